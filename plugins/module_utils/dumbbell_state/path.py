"""A direction of the emulated path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dumbbell_path as path
from .. import dumbbell_tc as tc
from .part import Command, Host, Owned, Part

DIRECTIONS = {"forward": ("left", "right"), "reverse": ("right", "left")}


def part(name: str, way: Mapping[str, Any], host: Host, module: Any) -> Part:
    """A direction as in the plan, with the commands for its later states; absent if the plan has none."""
    ingress, egress = (way[side] for side in DIRECTIONS[name])
    devices = tc.Devices(ingress, egress, tc.IFB[name])
    given = way[name]
    wanted, later = tc.ABSENT, []
    if given:
        wanted, *later = tc.ask_changes(path.params(given, way), given.get("changes") or [])

    def read() -> Any:
        links = host.json(["ip", "-j", "-d", "link", "show"])
        filters = host.json(["tc", "-j", "filter", "show", "dev", ingress, "ingress"])
        flows = host.json(["tc", "-j", "filter", "show", "dev", egress])
        classes, policers = path.read_classes(links, devices), path.read_egress_filters(links, devices)
        return tc.parse(devices, links, host.qdiscs(), filters, classes, flows, policers)

    def plan(found: Any) -> list[Command]:
        return list(tc.plan(devices, wanted, found))

    def owned(found: Any) -> Owned:
        asks = tc.measured(wanted)
        wrong = tc.mismatches(devices, wanted, found)
        settings: Owned = {f"path {name}": (asks, asks if not wrong else tc.report(devices, found))}
        return {**settings, **{f"path {name}: {what}": pair for what, pair in wrong.items()}}

    def report(found: Any) -> dict[str, Any]:
        roots = tc.handles(wanted, found)
        places = {"bottleneck": devices.ifb, "delay_line": devices.egress}
        about = {
            name: tc.report(devices, found),
            "devices": {name: places},
            "handles": {name: list(roots)},
            "trim_us": way["trim_us"],
            "burst_us": way["burst_us"],
        }
        if given and given.get("burst_bytes") and about[name]:
            about[name] = about[name] | {"burst_bytes": tc.burst_of(found.direction)}
        changes, restore = path.batches(devices, [wanted, *later], roots)
        return {"path": about, "path_commands": {name: {"changes": changes, "restore": restore}}}

    def refuse(found: Any, commands: list[Command]) -> None:
        module.refuse_path(wanted, found, (ingress, egress))

    return Part(f"path {name}", read, plan, owned, report, refuse)


def with_path_commands(plan: Mapping[str, Any], host: str, commands: Mapping[str, Any]) -> dict[str, Any]:
    """A host's part of a plan; if it changes the path, with the commands for each change and for the undoing.

    ``commands`` has for each direction ``changes``, with the commands of each change as lines of `tc -batch`,
    and ``restore``.
    """
    own = dict(plan["hosts"][host])
    if not any(action["kind"] == "path" for action in own["actions"]):
        return dict(plan)
    named = {
        f"{direction}-{number}": change
        for direction, of in commands.items()
        for number, change in enumerate(of["changes"], start=1)
    }
    own["actions"] = [
        {**action, "commands": named[action["name"]]} if action["kind"] == "path" else action
        for action in own["actions"]
    ]
    own["restore"] = [command for of in commands.values() for command in of["restore"]]
    return {**plan, "hosts": {**plan["hosts"], host: own}}
