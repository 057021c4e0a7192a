"""A part of a host's state: one kind of settings; and the host that parts read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible.module_utils import dumbbell_baseline as baseline
from ansible.module_utils import dumbbell_ethtool as ethtool
from ansible.module_utils import dumbbell_link as link
from ansible.module_utils.dumbbell_baseline import Setting

Command = list[str]
Owned = dict[str, tuple[Any, Any]]  # by a name for people: what it is to be, and what it is
Ledger = Mapping[Setting, Any]  # what settings were as found


class Part(NamedTuple):
    """One kind of settings: how to read it, and from that what to do, what is owned, what to write down."""

    name: str
    read: Callable[[], Any]
    plan: Callable[[Any], list[Command]]
    owned: Callable[[Any], Owned]
    report: Callable[[Any], dict[str, Any]]
    refuse: Callable[[Any, list[Command]], None] = lambda found, commands: None


class Host:
    """What the host has, each answer of a tool read once until something is changed."""

    def __init__(self, run: Callable[[Command], str], execute: baseline.Execute) -> None:
        self._run = run
        self.execute = execute
        self._said: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        """Read again from now on: something was changed."""
        self._said.clear()

    def said(self, command: Command) -> str:
        """What a command prints."""
        key = tuple(command)
        if key not in self._said:
            self._said[key] = self._run(command)
        return self._said[key]

    def json(self, command: Command) -> Any:
        """Likewise, decoded; some commands print nothing where they mean an empty list."""
        return json.loads(self.said(command) or "[]")

    def links(self) -> list[dict[str, Any]]:
        """Every interface with its addresses."""
        links: list[dict[str, Any]] = self.json(["ip", "-j", "-d", "address", "show"])
        return links

    def qdiscs(self) -> list[dict[str, Any]]:
        """Every qdisc that is not the kernel's own choice, and those of the devices."""
        qdiscs: list[dict[str, Any]] = self.json(["tc", "-j", "-d", "qdisc", "show"])
        return qdiscs

    def link(self, device: str) -> dict[str, Any]:
        """State of an interface, as `dumbbell_link` has it."""
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
        """Root and ingress that somebody chose, as the record has them."""
        return list(baseline.own_qdiscs([qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device]))

    def default_qdiscs(self, device: str) -> list[str]:
        """Kinds of those that the kernel chose for what is sent."""
        chosen = [qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device and qdisc["handle"] == "0:"]
        return list(dict.fromkeys(qdisc["kind"] for qdisc in chosen))

    def group(self, device: str, group: str) -> str:
        """What ethtool shows of a group; '' where the driver has none, or must not be asked."""
        if group == "features":
            return self.said(["ethtool", "-k", device])
        if (ethtool.driver(self.said(["ethtool", "-i", device])), group) in ethtool.NOT_TO_BE_READ:
            return ""
        key = ("group", device, group)
        if key not in self._said:
            self._said[key] = self.execute(["ethtool", ethtool.SHOW[group], device])[1]
        return self._said[key]
