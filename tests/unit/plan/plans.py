"""Plans of one point, for tests of what is planned."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from synthetic import REPOSITORY, inventory

from dumbbell.plan import Flow, Inventory, Point, plan

SCENARIOS = REPOSITORY / "scenarios"
SCENARIO = SCENARIOS / "two_flow_fairness.yml"
S = 10**9  # ns
WAY = {"rate": "100mbit", "delay": "10ms", "queue": {"kind": "pfifo", "limit": "1bdp"}}
TCP = {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}


def planned() -> Point:
    """The only point of ``SCENARIO``."""
    (point,) = plan(SCENARIO, inventory()).points
    return point


def ipv6() -> Inventory:
    """The same hosts with IPv6 addresses on their experiment networks."""
    text = re.sub(r"198\.18\.([12])\.(\d+)/24", r"fd00:\1::\2/64", inventory().model_dump_json())
    return Inventory.model_validate_json(text)


def only(tmp_path: Path, text: str, **hosts: int) -> Point:
    """The only point of this scenario, on so many senders and receivers."""
    (tmp_path / "x.yml").write_text(text)
    (point,) = plan(tmp_path / "x.yml", inventory(**hosts)).points
    return point


def scenario(flows: Any, **more: Any) -> str:
    """A scenario of these flows; JSON is YAML."""
    return json.dumps({"name": "x", "title": "x", "duration": "10s", "flows": flows} | more)


def measured(tmp_path: Path, **flow: Any) -> Flow:
    """The plan of one flow between the first pair."""
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    (found,) = only(tmp_path, scenario({"flow": ends | flow})).phase("measurement").flows
    return found


def changing(tmp_path: Path, *changes: Any, forward: Any = WAY, reverse: Any = WAY) -> Point:
    """The plan of one flow over a path with these changes of the way forward."""
    path = {"forward": forward | {"changes": list(changes)}} | ({"reverse": reverse} if reverse else {})
    return only(tmp_path, scenario({"flow": TCP}, path=path))
