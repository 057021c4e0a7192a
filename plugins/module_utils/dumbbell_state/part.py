"""A part of a host's state, which is one kind of settings, and the host that parts read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import dumbbell_baseline as baseline
from .. import dumbbell_ethtool as ethtool
from .. import dumbbell_link as link
from ..dumbbell_baseline import Setting

Command = list[str]
Owned = dict[str, tuple[Any, Any]]  # by name: the requested and the found value
Ledger = Mapping[Setting, Any]  # the original values of settings


class Part(NamedTuple):
    """One kind of settings: functions that read it, plan changes, and give owned values and reports."""

    name: str
    read: Callable[[], Any]
    plan: Callable[[Any], list[Command]]
    owned: Callable[[Any], Owned]
    report: Callable[[Any], dict[str, Any]]
    refuse: Callable[[Any, list[Command]], None] = lambda found, commands: None


class Host:
    """The host's state; each output of a tool is cached until something is changed."""

    def __init__(self, run: Callable[[Command], str], execute: baseline.Execute) -> None:
        self._run = run
        self.execute = execute
        self._said: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        """Drop the cache after a change."""
        self._said.clear()

    def said(self, command: Command) -> str:
        """The output of a command."""
        key = tuple(command)
        if key not in self._said:
            self._said[key] = self._run(command)
        return self._said[key]

    def json(self, command: Command) -> Any:
        """The decoded output of a command; some print nothing for an empty list."""
        return json.loads(self.said(command) or "[]")

    def links(self) -> list[dict[str, Any]]:
        """Every interface with its addresses."""
        links: list[dict[str, Any]] = self.json(["ip", "-j", "-d", "address", "show"])
        return links

    def qdiscs(self) -> list[dict[str, Any]]:
        """Every explicitly configured qdisc, and the qdiscs of devices."""
        qdiscs: list[dict[str, Any]] = self.json(["tc", "-j", "-d", "qdisc", "show"])
        return qdiscs

    def link(self, device: str) -> dict[str, Any]:
        """The state of an interface, as from `dumbbell_link`."""
        one = next(each for each in self.links() if each["ifname"] == device)
        routes = [
            route
            for family in ("-4", "-6")
            for route in self.json(["ip", "-j", family, "route", "show", "table", "main"])
            if route.get("dev") == device
        ]
        dump = [qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device]
        return {**link.parse(one, routes), **link.parse_qdisc(dump)}

    def own_qdiscs(self, device: str) -> list[dict[str, Any]]:
        """Explicitly configured root and ingress qdiscs, in the format of the record."""
        return list(baseline.own_qdiscs([qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device]))

    def default_qdiscs(self, device: str) -> list[str]:
        """Kinds of the egress qdiscs that the kernel chose."""
        chosen = [qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device and qdisc["handle"] == "0:"]
        return list(dict.fromkeys(qdisc["kind"] for qdisc in chosen))

    def group(self, device: str, group: str) -> str:
        """ethtool's output for a group; '' where the driver has none, or where it must not be asked."""
        if group == "features":
            return self.said(["ethtool", "-k", device])
        if (ethtool.driver(self.said(["ethtool", "-i", device])), group) in ethtool.NOT_TO_BE_READ:
            return ""
        key = ("group", device, group)
        if key not in self._said:
            self._said[key] = self.execute(["ethtool", ethtool.SHOW[group], device])[1]
        return self._said[key]
