"""Texts of scenarios, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import inventory

from dumbbell.plan import Plan, plan
from dumbbell.scenario import ScenarioError

GOOD = """\
name: probe
title: One flow
duration: 10s
path:
  forward: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
  reverse: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  flow1:
    kind: iperf3_tcp
    from: senders[0]
    to: receivers[0]
"""
WHERE = "    from: senders[0]\n"
BASE = """\
name: x
title: x
duration: 20s
{}
path:
  forward: {{rate: 10mbit, delay: 5ms, queue: {{kind: pfifo, limit: 1bdp}}}}
flows:
  tcp:
    kind: iperf3_tcp
    from: senders[0]
    to: receivers[0]
  udp:
    kind: udp
    from: senders[1]
    to: receivers[1]
    rate: 2mbit
"""


def planned(tmp_path: Path, text: str, profile: str | None = None) -> Plan:
    """The plan of this text as a scenario."""
    (tmp_path / "x.yml").write_text(text)
    return plan(tmp_path / "x.yml", inventory(), profile)


def problems(tmp_path: Path, text: str, profile: str | None = None) -> list[str]:
    """Everything that loading and planning this text says, without the folder."""
    with pytest.raises(ScenarioError) as caught:
        planned(tmp_path, text, profile)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()
