from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell import model
from dumbbell.model import ScenarioError
from dumbbell.plan import plan

SCENARIOS = sorted([*REPOSITORY.glob("scenarios/*.yml"), *REPOSITORY.glob("tests/e2e/*.yml")])
SCHEMA = REPOSITORY / "schemas" / "scenario.schema.json"

GOOD = """\
name: probe
title: One flow
duration: 10s
path:
  forward: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
  reverse: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  - name: flow1
    kind: iperf3_tcp
    from: senders[0]
    to: receivers[0]
    duration: 10s
"""


def problems(tmp_path: Path, text: str) -> list[str]:
    """Everything that loading and planning this text says, without the folder."""
    file = tmp_path / "x.yml"
    file.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        plan(file, inventory())
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(GOOD)
    scenario = model.load(tmp_path / "x.yml").scenario
    assert scenario.path is not None
    assert scenario.path.forward.rate == 10_000_000
    assert scenario.flows[0].start == 0
    assert scenario.sampling.interval == 100_000_000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "title:",
            "titel:",
            ["x.yml:1:1: title: missing", "x.yml:2:1: titel: unknown key, did you mean title?"],
        ),
        (
            "10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\n  rev",
            "10 Mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\n  rev",
            [
                "x.yml:5:13: path.forward.rate: '10 Mbit' is not a rate: "
                "write a number and one of bit, kbit, mbit, gbit, as in 100mbit"
            ],
        ),
        (
            "title: One flow\n",
            "title: One\ntitle: Two\n",
            ["x.yml:3:1: title: duplicate key, first given in line 2"],
        ),
        (
            "senders[0]",
            "sender9",
            [
                "x.yml:10:5: flows[0].from: the inventory has no host sender9; "
                "it has archive, receiver1, receiver2, router, sender1, sender2"
            ],
        ),
        (
            "senders[0]",
            "sources[0]",
            [
                "x.yml:10:5: flows[0].from: the inventory has no group sources; "
                "it has archives, receivers, routers, senders, testbed"
            ],
        ),
        (
            "senders[0]",
            "senders[7]",
            ["x.yml:10:5: flows[0].from: the group senders has 2 hosts: sender1, sender2"],
        ),
        ("receivers[0]", "sender1", ["x.yml:11:5: flows[0].to: both ends are sender1"]),
        (
            "receivers[0]",
            "router",
            [
                "x.yml:11:5: flows[0].to: router has 2 experiment interfaces; "
                "the end of a flow has exactly one"
            ],
        ),
        (
            "to: receivers[0]\n    duration: 10s",
            "to: receivers[0]\n    start: 1s\n    duration: 10s",
            ["x.yml:13:5: flows[0].duration: ends at 11s, after the scenario's duration of 10s"],
        ),
        (
            "    duration: 10s",
            "    duration: 2.5s",
            ["x.yml:12:5: flows[0].duration: iperf3 runs for a whole number of seconds, not 2500ms"],
        ),
        ("iperf3_tcp", "iperf3_udp", ["x.yml:8:5: flows[0].rate: missing"]),
        (
            "iperf3_tcp",
            "netperf",
            ["x.yml:9:5: flows[0].kind: 'netperf' is not one of iperf3_tcp, iperf3_udp"],
        ),
        (
            "limit: 1bdp}}\nflows",
            "limit: 0packets}}\nflows",
            [
                "x.yml:6:60: path.reverse.queue.limit: 0packets is 0 packets, "
                "less than one packet of 1514 bytes"
            ],
        ),
        (
            "limit: 1bdp}}\nflows",
            "limit: 10kB}}\nflows",
            ["x.yml:6:39: path.reverse.queue: a pfifo is limited in packets or bdp, not in bytes"],
        ),
        ("flows:\n", "flows: [\n", ["x.yml:8:3: not YAML: "]),
        (
            "flows:\n",
            "hosts: {nowhere: {txqueuelen: 1000}}\nflows:\n",
            ["x.yml:7:9: hosts.nowhere: is neither a group of the inventory nor a host of the group testbed"],
        ),
        (
            "flows:\n",
            "expect: [{metric: jain_index}]\nflows:\n",
            ["x.yml:7:10: expect[0]: give min, max or both"],
        ),
    ],
)
def test_errors_name_line_key_and_reason(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert len(found) == len(said), found
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True)), found


def test_the_same_name_twice(tmp_path: Path) -> None:
    flow = GOOD[GOOD.index("  - name") :]
    assert problems(tmp_path, GOOD + flow) == [
        "x.yml:13:5: flows[1].name: flows[0] has the name flow1 already"
    ]


def test_several_problems_at_once_in_order(tmp_path: Path) -> None:
    text = GOOD.replace("10s", "soon").replace("name: probe", "name: probe\nname: other")
    assert [line.split(":")[1] for line in problems(tmp_path, text)] == ["2", "4", "13"]


@pytest.mark.parametrize(
    "text", ["", "- 1", "name: &a [*a]", "\x01", "a: b: c", "duration: !!int x", "{{}: 1}"]
)
def test_what_is_no_scenario_is_refused_with_a_position(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)[0].startswith("x.yml:1:")


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.yml:1:1: cannot be read"):
        model.load(tmp_path / "none.yml")


def test_the_committed_schema_is_that_of_the_models() -> None:
    assert SCHEMA.read_bytes() == model.schema(), "run python -m dumbbell.model"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios(path: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    document: Any = YAML(typ="safe").load(path)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert model.load(path).scenario.name == path.stem
