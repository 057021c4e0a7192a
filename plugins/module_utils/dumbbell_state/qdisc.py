"""The root qdisc of an interface whose qdisc is not requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dumbbell_restore as restore
from ..dumbbell_baseline import Qdiscs, Setting
from .part import Command, Host, Ledger, Owned, Part

DEFAULT_QDISC = "net.core.default_qdisc"
NO_CHOICE = ("mq", "noqueue", "noop")  # determined by the kind of device, whatever the default is


def part(device: str, asked: Mapping[str, Any], ledger: Ledger, host: Host) -> Part:
    """The original qdisc if it was configured explicitly, or else the kernel's choice under the default."""
    was = _configured(ledger.get(Setting("qdisc", device)) or [])
    default = asked["sysctls"].get(DEFAULT_QDISC) or ledger.get(Setting("sysctl", DEFAULT_QDISC))
    # A qdisc that the kernel chose under another default is kept when the default changes back.
    chosen = default and not any(qdisc.get("root") for qdisc in was)

    def read() -> Any:
        return _configured(host.own_qdiscs(device)), host.default_qdiscs(device)

    def other(found: Any) -> list[str]:
        return [kind for kind in found[1] if chosen and kind not in (default, *NO_CHOICE)]

    def plan(found: Any) -> list[Command]:
        commands = list(restore.undo_qdiscs(device, was, found[0]))
        if not commands and other(found):  # the kernel chooses again after an explicit qdisc is deleted
            root = ["tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "pfifo"]
            commands = [root, ["tc", "qdisc", "del", "dev", device, "root"]]
        return commands

    def owned(found: Any) -> Owned:
        if other(found):
            return {f"qdisc of {device}": (default, ", ".join(found[1]))}
        return {f"qdisc of {device}": (was, found[0])}

    return Part(f"qdisc of {device}", read, plan, owned, lambda found: {})


def _configured(qdiscs: Qdiscs) -> Qdiscs:
    """Without the noop of a device that was never up: for a run it is up."""
    return [qdisc for qdisc in qdiscs if qdisc["kind"] != "noop"]
