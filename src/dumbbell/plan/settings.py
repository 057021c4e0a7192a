"""The settings of a point, one by one, for comparison with another point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dumbbell.plan.actions import PingAction
from dumbbell.plan.document import Point
from dumbbell.units import render_duration, render_rate

RENDER: dict[str, Callable[[int], str]] = {  # by the ending of a setting's name
    "_ns": render_duration,
    "_us": lambda us: render_duration(1000 * us),
    "_bps": render_rate,
}
NOT_OF_TCP = {"name", "server_port", "client_port"}  # keys of a flow that do not change its behaviour


def settings(point: Point) -> dict[tuple[str, str], str]:
    """Every setting of a point by its subject (host, flow, ping or path) and name; none are empty.

    Without the kernels of hosts: the kernel that ran is known better than the requested one.
    """
    measurement = point.phase("measurement")
    found = {("measurement", "duration"): render_duration(measurement.duration_ns)}
    trees = {"path": point.path.model_dump() if point.path else {}}
    trees |= {name: host.state.model_dump(exclude={"kernel"}) for name, host in point.hosts.items()}
    for flow in measurement.flows:
        trees[f"flow {flow.name}"] = flow.model_dump(exclude=NOT_OF_TCP)
    for host, part in measurement.hosts.items():
        for ping in (action for action in part.actions if isinstance(action, PingAction)):
            trees[f"ping {ping.name}"] = {"from": host} | ping.model_dump(exclude={"name", "kind"})
    for subject, tree in trees.items():
        found |= {(subject, name): text for name, text in _leaves(tree)}
    return found


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            for inner, text in _leaves(value):
                yield f"{name} {inner}", text
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for number, item in enumerate(value, 1):
                for inner, text in _leaves(item):
                    yield f"{name} {number} {inner}", text
        elif value not in (None, []):
            yield _told(name, value)


def _told(name: str, value: Any) -> tuple[str, str]:
    """Name and value as a scenario would write them, exact, so that different values look different."""
    for ending, render in RENDER.items():
        if name.endswith(ending):
            return name.removesuffix(ending), render(value)
    if isinstance(value, bool):
        return name, "on" if value else "off"
    return name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
