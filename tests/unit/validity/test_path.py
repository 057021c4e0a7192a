from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from damage import (
    ARRIVED,
    Damage,
    assert_invalid,
    drops,
    edit,
    edit_rows,
    edit_spool,
    held,
    lossy,
    reasons,
    removed,
    slow,
    state,
    text,
    together,
    unanswered,
)
from hypothesis import given
from hypothesis import strategies as st
from synthetic import PATH_TRIM_US

from dumbbell.execution.collect import collect
from dumbbell.plan.path import Conditions, GilbertElliott, Queue
from dumbbell.run.of_path import lost_chances, most_lost
from dumbbell.validity.rows import path_devices


def narrow(run_dir: Path) -> None:
    """The router's bottleneck lets 90 % of what was asked through."""
    edit_spool(run_dir, "router", "bytes", lambda sent: round(0.9 * sent), "calibration")


def held_up(run_dir: Path) -> None:
    """The last packets of the calibration reach the receiver's program half a second late."""
    edit(run_dir / ARRIVED, lambda r: r.update(last_unix_ns=r["last_unix_ns"] + 500_000_000))


def test_a_receiver_that_is_held_up_is_no_slow_path(run_dir: Path) -> None:
    held_up(run_dir)
    verdict = collect(run_dir, None)
    assert reasons(verdict) == []
    (rate,) = (check for check in verdict.checks if check.name == "rate, arriving")
    assert 0.99 * 100e6 < rate.measured < 100e6  # the queue's drain counts


def netem(drops: int) -> Damage:
    """The router's delay line forward drops this many packets between two samples."""
    return held("dev=vec2,handle=101:", "drops=0i", f"drops={drops}i", after_s=15)


def without_netem(phase: str) -> Damage:
    """Nobody sampled the router's delay lines."""
    return lambda run_dir: edit_rows(run_dir, "router", phase, lambda row: row * ("kind=netem" not in row))


INVALID: dict[str, tuple[Damage, str]] = {
    "the path differs": (
        state("router", lambda s: s["path"]["forward"]["queue"].update(limit_packets=1000)),
        "router forward: emulated path: asked ",
    ),
    "the path's own delay was taken off and not put back": (
        state("router", lambda s: s["path"].update(trim_us=0)),
        "router forward: emulated path: asked ",
    ),
    "the path's own delay was put back and not taken off": (
        state("router", lambda s: s["path"]["reverse"].update(delay_us=10_000)),
        "router reverse: emulated path: asked ",
    ),
    "the path was not read": (
        state("router", lambda s: s.update(path=None)),
        "router reverse: emulated path not known",
    ),
    "the RTT is off": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.", "time=25."),
        "sender1-receiver1: idle RTT is 25.1 ms, asked 20 ms ± 400 µs",
    ),
    "hosts are slow to answer": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.1", "time=23.1"),
        "sender1-receiver1: the median echo's wait beyond the quickest is 2.9 ms, more than 2 ms",
    ),
    "echoes that come twice": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.1 ms", "time=20.1 ms (DUP!)"),
        "sender1-receiver1: duplicate echo replies: asked 0, found ",
    ),
    "no ping": (
        removed("raw/sender2/calibration/ping-sender2-receiver2.txt"),
        "sender2-receiver2: idle RTT not known: 0 of 30 echo replies",
    ),
    "an echo was lost on a path that loses nothing": (
        unanswered(1),
        "sender1-receiver1: idle RTT not known: 29 of 30 echo replies, of which 30 had to come",
    ),
    "more echoes were lost than the path is asked to": (
        together(lossy(loss=0.02), unanswered(11)),
        "sender1-receiver1: idle RTT not known: 19 of 30 echo replies, of which 25 had to come",
    ),
    "the rate is off": (narrow, "sender1-receiver1: rate of the bottleneck is 90"),
    "behind the bottleneck it is slower": (
        slow,
        "sender1-receiver1: rate at which the path's packets arrive is 80 Mbit/s, asked 100 Mbit/s ",
    ),
    "the calibration never had a queue": (
        lambda run_dir: edit_spool(run_dir, "router", "backlog_bytes", lambda _: 0, "calibration"),
        "sender1-receiver1: rate of the bottleneck not known: no router was seen to have a queue",
    ),
    "no counts of the calibration": (
        removed(ARRIVED),
        "sender1-receiver1: rate at which the path's packets arrive not known: the ends of",
    ),
    "a delay line overflowed": (
        netem(drops=40),
        "router forward measurement: share of packets that a delay line dropped is ",
    ),
    "delay lines were not sampled": (
        without_netem("measurement"),
        "router reverse measurement: share of packets that a delay line dropped not known: it was not",
    ),
    "delay lines were not sampled while the path was calibrated": (
        without_netem("calibration"),
        "router forward calibration: share of packets that a delay line dropped not known: it was not",
    ),
    "nobody knows which the delay lines are": (
        state("router", lambda s: s["path"].pop("devices")),
        "router forward measurement: share of packets that a delay line dropped not known: ",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_validity_check_can_fail(run_dir: Path, damage: Damage, reason: str) -> None:
    damage(run_dir)
    assert_invalid(run_dir, reason)


@pytest.mark.parametrize(
    "loss",
    [{"loss": 0.02}, {"loss_gemodel": {"p": 0.01, "r": 0.3, "loss_bad": 1.0, "loss_good": 0.0}}],
    ids=["random", "in bursts"],
)
def test_echoes_may_be_lost_where_loss_is_asked(run_dir: Path, loss: dict[str, Any]) -> None:
    together(lossy(**loss), unanswered(4))(run_dir)
    assert not [r for r in collect(run_dir, None).reasons if "idle RTT" in r]


@pytest.mark.parametrize(("rtt", "known"), [("22.", True), ("24.", False)])
def test_jitter_may_move_the_median_of_the_echoes(run_dir: Path, rtt: str, known: bool) -> None:
    together(
        lossy(jitter_us=4000),  # 50 echoes: their median may be off by 2.8 ms, and the RTT by 0.4 ms
        lambda run_dir: edit(
            run_dir / "plan.json", lambda plan: plan["points"][0]["path"].update(jitters=True)
        ),
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.", f"time={rtt}"),
    )(run_dir)
    found = [r for r in collect(run_dir, None).reasons if "sender1-receiver1: idle RTT" in r]
    assert (not found) is known, found


def conditions(loss: float, corrupt: float, bursts: tuple[float, float, float, float]) -> Conditions:
    names = ("p", "r", "loss_bad", "loss_good")
    return Conditions(
        rate_bps=1_000_000,
        delay_us=0,
        loss=loss,
        corrupt=corrupt,
        loss_gemodel=GilbertElliott(**dict(zip(names, bursts, strict=True))),
        queue=Queue(kind="pfifo", limit_packets=10),
    )


SHARE = st.floats(0, 1)


@given(SHARE, SHARE, st.tuples(SHARE, st.floats(0.01, 1), SHARE, SHARE), st.integers(1, 60))
def test_what_a_path_loses_on_average(
    loss: float, corrupt: float, bursts: tuple[float, float, float, float], packets: int
) -> None:
    way = conditions(loss, corrupt, bursts)
    chances = lost_chances(way, packets)
    assert sum(chances) == pytest.approx(1)
    mean = sum(number * chance for number, chance in enumerate(chances))
    assert mean == pytest.approx(packets * (1 - way.arriving), abs=1e-9)


@given(st.integers(1, 60), SHARE)
def test_what_a_path_loses_at_random_is_binomial(packets: int, loss: float) -> None:
    chances = lost_chances(conditions(loss, 0, (0, 1, 1, 0)), packets)
    expected = [math.comb(packets, k) * loss**k * (1 - loss) ** (packets - k) for k in range(packets + 1)]
    assert chances == pytest.approx(expected, abs=1e-9)


def test_bursts_may_take_more_than_single_losses() -> None:
    single, bursts = (conditions(0.02, 0, (0, 1, 1, 0)), conditions(0, 0, (0.002, 0.098, 1, 0)))
    assert single.arriving == pytest.approx(bursts.arriving)
    assert most_lost([single], 50) == 6
    assert most_lost([bursts], 50) > 20
    assert most_lost([single, single], 50) == 9
    assert most_lost([conditions(0, 0, (0, 1, 1, 0))], 50) == 0


def test_drops_are_expected_where_loss_is(run_dir: Path) -> None:
    lines = ["router forward calibration", "router forward measurement"]
    lines += ["router reverse calibration", "router reverse measurement"]
    assert drops(run_dir) == dict.fromkeys(lines, 0)
    edit(run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(loss=0.01))
    netem(drops=40)(run_dir)
    assert drops(run_dir) == dict.fromkeys(lines[2:], 0)


def test_a_path_without_delay_lines_has_no_drops_of_theirs(run_dir: Path) -> None:
    for phase in ("calibration", "measurement"):
        without_netem(phase)(run_dir)
    edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(delay_us=PATH_TRIM_US)
    )
    assert {*drops(run_dir)} == {"router reverse calibration", "router reverse measurement"}


def test_a_path_without_a_router_is_not_known(run_dir: Path) -> None:
    edit(run_dir / "plan.json", lambda plan: plan["points"][0]["hosts"]["router"].update(groups=["testbed"]))
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert "path: emulated path not known: no host of the plan is a router" in verdict.reasons


@pytest.mark.parametrize(("trim_us", "valid"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_tc_cuts_delays_to_whole_microseconds(run_dir: Path, trim_us: int, valid: bool) -> None:
    """What was taken off and what is left add up to what was asked, to 1 us."""
    state("router", lambda s: s["path"].update(trim_us=PATH_TRIM_US + trim_us))(run_dir)
    checks = [check for check in collect(run_dir, None).checks if check.name == "path"]
    assert [check.ok for check in checks] == [valid, valid]


def test_a_router_without_a_path_has_no_interfaces_of_one() -> None:
    """It was asked for samples of them, and every run without a path was invalid."""
    ways = {way: {"bottleneck": f"ifb_{way}", "delay_line": "vec1"} for way in ("forward", "reverse")}
    path = {"devices": ways, "forward": None, "reverse": None}
    assert path_devices({"path": path}) == set()
    assert path_devices({"path": path | {"forward": {}}}) == {"ifb_forward", "vec1"}
    assert path_devices({"path": None}) == path_devices(None) == set()
