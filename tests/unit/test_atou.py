"""atou's simulator from Python, and that it takes what scenarios may ask."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell import atou
from dumbbell.atou import AtouError, compared, simulate
from dumbbell.model.atou import AtouReceiver, AtouSender
from dumbbell.plan import plan
from dumbbell.report.atou import Simulations

pytestmark = pytest.mark.usefixtures("simulator")

SCENARIOS = sorted(REPOSITORY.glob("scenarios/atou_*.yml"))


def test_the_experiments_of_atou_have_the_shapes_of_the_original() -> None:
    rows = compared().rows_by_key(["experiment", "transfer"], named=True, unique=True)
    mbps = {key: row["mbps"] for key, row in rows.items()}
    for experiment, less, more in (
        ("delayed_acks", "two losses, delayed ACKs", "two losses"),
        ("delayed_acks", "no loss, delayed ACKs", "no loss"),
        ("aimd", "standard", "aggressive"),
        ("segment_size", "1472 bytes", "2944 bytes"),
        ("segment_size", "2944 bytes", "5888 bytes"),
        ("virtual_mss", "one", "ten"),
        ("scalable", "Reno", "Scalable"),
        ("ssincr", "ssincr 1", "ssincr 100"),
        ("vegas_exit", "standard Vegas", "limited slow start"),
        ("lossy_start", "standard slow start", "Vegas, gamma 2"),
        ("lossy_start", "Vegas, gamma 2", "Vegas, gamma 60"),
        ("sawtooth", "Reno", "Vegas"),
        ("cable", "dup thresh 3", "dup thresh 9"),
        ("reordering", "dup thresh 3", "dup thresh 19"),
        ("ack_limited", "untrimmed ACKs", "trimmed"),
        ("ack_limited", "trimmed", "trimmed and delayed"),
    ):
        assert mbps[experiment, less] < mbps[experiment, more]
    for transfer in ("dup thresh 3", "dup thresh 19"):
        row = rows["reordering", transfer]
        assert row["retransmits"] == row["duplicates"]  # none was needed
    assert (
        rows["policed", "window 22 kB"]["retransmits"] == 0 < rows["policed", "window 88 kB"]["retransmits"]
    )
    deep = [rows["deep_buffers", name]["mean_rtt_ms"] for name in ("standard", "Vegas 50 80 400")]
    assert deep[0] > 1.5 * deep[1]


def test_the_simulator_says_what_it_cannot_have() -> None:
    with pytest.raises(AtouError, match=r'sender:\d: mss: found "31"; allowed is'):
        simulate(atou.Path(10), {"mss": 31}, {})
    assert "There is no experiment aimed; there are " in Simulations().goodput("aimed").data


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_shipped_scenarios_ask_of_atou_it_takes(path: Path) -> None:
    profiles = [None, *(YAML().load(path.read_text()).get("profiles") or {})]
    points = chain.from_iterable(plan(path, inventory(), profile).points for profile in profiles)
    asked = {
        (tuple(flow.sender.items()), tuple(flow.receiver.items()))
        for point in points
        for flow in point.phase("measurement").flows
        if flow.sender is not None and flow.receiver is not None
    }
    assert asked
    for sender, receiver in asked:
        simulate(atou.Path(1, {"rate_bps": 1_000_000}), dict(sender) | {"maxtime": 0.01}, dict(receiver))


@pytest.mark.parametrize(
    "keys",
    [
        {"fack": 1},
        {"rampdown": 1},
        {"prr": 1},
        {"reloss": 1},
        {"prr": 1, "rampdown": 1, "sack": 1},
        {"vegas_floyd": 1},
        {"initsegs": 301},
        {"alpha": 4},
        {"highspeed": 1, "scalable": 1},
        {"droplist": [7, 7]},
        {"droplist": [7], "maxpkts": 7},
        {"mss": 65508},
        {"vegas_rtt": "mean"},
        {"multiplier": 1.0},
    ],
    ids=str,
)
def test_a_scenario_is_refused_what_atou_refuses(keys: atou.Json) -> None:
    with pytest.raises(ValueError, match=next(iter(keys))):
        AtouSender(**keys)
    with pytest.raises(AtouError, match=next(iter(keys))):
        simulate(atou.Path(1), keys, {})


def test_every_key_of_a_scenario_is_one_of_atou() -> None:
    for model, end in ((AtouSender, "sender"), (AtouReceiver, "receiver")):
        properties = model.model_json_schema()["properties"]
        keys = {key: value.get("default", [5]) for key, value in properties.items()}
        assert len(keys) >= 3
        asked = model(**{key: float(v) if isinstance(v, float) else v for key, v in keys.items()}).words()
        ends = {"sender": {}, "receiver": {}} | {end: asked | ({"maxtime": 0.01} if end == "sender" else {})}
        simulate(atou.Path(1, {"rate_bps": 1_000_000}), ends["sender"] or {"maxtime": 0.01}, ends["receiver"])
