"""atou's simulator from Python, and that it takes what scenarios may ask."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell import atou
from dumbbell.atou import AtouError, compared, simulate
from dumbbell.kinds.asked.atou import AtouReceiver, AtouSender
from dumbbell.plan import plan
from dumbbell.plan.path import PACKET_BYTES
from dumbbell.report.pages.atou import Simulations

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
    with pytest.raises(AtouError, match=r'sender\.mss: found "31"; allowed is'):
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
        buffers = [int(dict(end)["rcvbuf"]) for end in (sender, receiver)]
        assert min(buffers) >= 1_000_000  # room for all that comes
        simulate(atou.Path(1, {"rate_bps": 1_000_000}), dict(sender) | {"maxtime": 0.01}, dict(receiver))


@pytest.mark.parametrize("profile", [None, "tiny", "short", "cern"])
def test_limited_slow_start_loses_less_than_the_standard_one_as_expected(profile: str | None) -> None:
    assert checked("atou_slow_start", profile)


@pytest.mark.parametrize("profile", [None, "tiny", "short"])
def test_reordering_of_fewer_places_than_dup_thresh_resends_nothing_as_expected(profile: str | None) -> None:
    assert checked("atou_reordering", profile) == 1


def checked(name: str, profile: str | None) -> int:
    """How many bounds of a scenario on retransmits the simulator keeps on the same path: all of them."""
    bounds = 0
    for point in plan(REPOSITORY / "scenarios" / f"{name}.yml", inventory(), profile).points:
        if not point.expect:
            continue
        (bound,), (flow,), asked = point.expect, point.phase("measurement").flows, point.path
        assert bound.metric == "retransmits"
        assert asked is not None
        forward, back = (
            atou.Json({"rate_bps": way.rate_bps, "queue": way.queue.limit_packets})
            for way in (asked.forward, asked.reverse)
        )
        if asked.forward.reorder:  # who does not skip the delay is overtaken by those that come in it
            places = asked.forward.delay_us * asked.forward.rate_bps // (8 * PACKET_BYTES * 10**6) + 1
            forward |= {"reorder": 1 - asked.forward.reorder, "displace": places}
        path = atou.Path(asked.rtt_ns / 1e6, forward, back)
        sender = (flow.sender or {}) | {"maxtime": flow.duration_ns / 1e9}
        sent = simulate(path, sender, flow.receiver or {}).sender
        share = sent["rxmts"] / sent["pkts_out"]
        assert (bound.min or 0) <= share <= (1 if bound.max is None else bound.max), point.label
        bounds += 1
    return bounds


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


def test_segments_to_drop_fit_a_line_of_a_configuration() -> None:
    with pytest.raises(ValueError, match="at most 1000000 items"):
        AtouSender(droplist=[*range(1_000_001)])


def test_every_key_of_a_scenario_is_one_of_atou() -> None:
    for model, end in ((AtouSender, "sender"), (AtouReceiver, "receiver")):
        properties = model.model_json_schema()["properties"]
        keys = {key: value.get("default", [5]) for key, value in properties.items()}
        assert len(keys) >= 3
        asked = model(**{key: float(v) if isinstance(v, float) else v for key, v in keys.items()}).words()
        ends = {"sender": {}, "receiver": {}} | {end: asked | ({"maxtime": 0.01} if end == "sender" else {})}
        simulate(atou.Path(1, {"rate_bps": 1_000_000}), ends["sender"] or {"maxtime": 0.01}, ends["receiver"])
