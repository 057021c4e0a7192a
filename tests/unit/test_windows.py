"""Over which time each metric is measured, where a scenario does not say it, and of what."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from synthetic import inventory, write_run

from dumbbell.execution.collect import collect
from dumbbell.metrics.values import values
from dumbbell.plan import Plan, plan
from dumbbell.scenario import ScenarioError

S = 10**9
HEAD = """\
name: probe
title: A probe
duration: 12s
path: {forward: {rate: 10mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}}
"""
FETCHES = """\
flows:
  first: {kind: http, from: "senders[0]", to: "receivers[0]", size: 1MB, count: 1, start: 1s}
  second: {kind: http, from: "senders[0]", to: "receivers[0]", size: 1MB, count: 1, start: 5s}
"""
TCP = 'kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]"'
INTURN = f"""\
flows:
  one: {{{TCP}, duration: 5s}}
  two: {{{TCP}, start: 6s, duration: 6s}}
  echo: {{kind: ping, from: "senders[1]", to: "receivers[1]", start: 2s, duration: 4s}}
"""


def planned(tmp_path: Path, text: str) -> Plan:
    (tmp_path / "x.yml").write_text(text)
    return plan(tmp_path / "x.yml", inventory())


def run(tmp_path: Path, text: str) -> Path:
    """A synthetic run of a scenario, and all that is made of it."""
    (tmp_path / "x.yml").write_text(text)
    write_run(tmp_path / "run", tmp_path / "x.yml")
    return tmp_path / "run"


def refused(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        planned(tmp_path, text)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]


def windows(tmp_path: Path, text: str) -> list[tuple[list[str], tuple[int, int]]]:
    """Of the expectations of a scenario, in seconds."""
    (point,) = planned(tmp_path, text).points
    return [(e.flows, (e.window_ns[0] // S, e.window_ns[1] // S)) for e in point.expect]


@pytest.mark.parametrize("metric", ["goodput", "retransmits", "time_in_recovery", "completion_time"])
def test_a_metric_of_each_flow_is_of_its_own_life(tmp_path: Path, metric: str) -> None:
    flows = FETCHES if metric == "completion_time" else INTURN
    found = windows(tmp_path, HEAD + flows + f"expect: [{{metric: {metric}, min: {LEAST[metric]}}}]\n")
    assert found == (
        [(["first"], (1, 12)), (["second"], (5, 12))]
        if metric == "completion_time"
        else [(["one"], (0, 5)), (["two"], (6, 12))]
    )


LEAST = {"goodput": "1bit", "retransmits": "0%", "time_in_recovery": "0%", "completion_time": "0s"}


def test_own_lives_begin_after_the_warm_up(tmp_path: Path) -> None:
    text = HEAD + "warm_up: 3s\n" + INTURN + "expect: [{metric: rtt, min: 0s}]\n"
    assert windows(tmp_path, text) == [(["one"], (3, 5)), (["two"], (6, 12)), (["echo"], (3, 6))]
    text = HEAD + "warm_up: 5s\n" + INTURN + "expect:\n  - {metric: rtt, min: 0s}\n"
    assert refused(tmp_path, text) == [
        "x.yml:11:5: expect[0]: one does not run after the warm-up: give a window"
    ]


def test_flows_of_the_same_life_are_one_expectation(tmp_path: Path) -> None:
    flows = f"flows: {{a: {{{TCP}}}, b: {{{TCP}}}, c: {{{TCP}, start: 2s}}}}\n"
    text = HEAD + flows + "expect: [{metric: goodput, min: 1mbit}, {metric: utilisation, min: 1%}]\n"
    assert windows(tmp_path, text) == [
        (["a", "b"], (0, 12)),
        (["c"], (2, 12)),
        (["a", "b", "c"], (2, 12)),
    ]


@pytest.mark.parametrize("metric", ["rtt", "retransmits", "time_in_recovery"])
def test_a_window_without_the_flow_is_refused_where_samples_of_it_are_needed(
    tmp_path: Path, metric: str
) -> None:
    bound = f"expect:\n  - {{metric: {metric}, flows: [one], window: 6s-8s, min: 0{'s' * (metric == 'rtt')}"
    bound += "}\n" if metric == "rtt" else "%}\n"
    assert refused(tmp_path, HEAD + INTURN + bound) == [
        f"x.yml:10:{30 + len(metric)}: expect[0].window: one runs in 0-5 s: {metric} of it is not known "
        "before or after"
    ]
    # What it delivers then is known: nothing.
    for metric_known in ("goodput, max: 1mbit", "utilisation, max: 1%"):
        bound = f"expect: [{{metric: {metric_known}, flows: [one], window: 6s-8s}}]\n"
        assert windows(tmp_path, HEAD + INTURN + bound) == [(["one"], (6, 8))]


def test_an_index_of_flows_of_which_none_runs_is_refused(tmp_path: Path) -> None:
    bound = "expect:\n  - {metric: jain_index, flows: [one], window: 6s-8s, min: 0.5}\n"
    assert len(refused(tmp_path, HEAD + INTURN + bound)) == 1
    bound = "expect: [{metric: jain_index, flows: [one, two], window: 4s-7s, min: 0.5}]\n"
    assert windows(tmp_path, HEAD + INTURN + bound) == [(["one", "two"], (4, 7))]


@pytest.mark.parametrize("bound", ["jain_index, min: 0.5", "utilisation, min: 50%"])
def test_flows_of_both_directions_share_nothing(tmp_path: Path, bound: str) -> None:
    flows = f"flows: {{up: {{{TCP}}}, down: {{{TCP}, direction: reverse}}}}\n"
    said = "these flows go both ways: name those of one direction in `flows`"
    text = HEAD + flows + f"expect:\n  - {{metric: {bound}}}\n"
    assert refused(tmp_path, text) == [f"x.yml:7:6: expect[0].metric: {said}"]


# --- what comes of it ----------------------------------------------------------------------------


def test_fetches_in_turn_are_judged_each_over_its_own_life(tmp_path: Path) -> None:
    run_dir = run(tmp_path, HEAD + FETCHES + "expect: [{metric: completion_time, max: 2s}]\n")
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    checks = [check for check in verdict.checks if check.name == "completion_time"]
    assert [check.subject for check in checks] == ["first", "second"]
    assert all(check.measured and check.measured < S for check in checks)


def test_goodput_of_a_transfer_is_from_its_start_to_its_end(tmp_path: Path) -> None:
    bounds = "expect: [{metric: goodput, min: 1kbit}, {metric: goodput, min: 1kbit, window: 0s-12s}]\n"
    run_dir = run(tmp_path, HEAD + FETCHES + bounds)
    own, _, whole, _ = [c.measured for c in collect(run_dir, None).checks if c.name == "goodput"]
    fetch = pl.read_parquet(run_dir / "http_fetch.parquet").filter(flow="first", side="receiver")
    done_ns = fetch["t_ns"][0] + fetch["completion_ns"][0]
    assert own == pytest.approx(1e6 * 8e9 / (done_ns - S))
    assert whole == pytest.approx(1e6 * 8 / 12)
    flows = pl.read_parquet(run_dir / "flows.parquet").filter(name="first", phase="measurement")
    assert flows.select("goodput_bps", "window_start_ns", "window_end_ns").rows() == [(own, S, done_ns)]


def test_goodput_is_one_number(tmp_path: Path) -> None:
    """Of the expectation, of the table of flows, and of what runs are compared by."""
    flows = f"flows: {{early: {{{TCP}}}, late: {{{TCP}, start: 4s}}}}\n"
    run_dir = run(tmp_path, HEAD + "warm_up: 2s\n" + flows + "expect: [{metric: goodput, min: 1kbit}]\n")
    checks = {c.subject: c.measured for c in collect(run_dir, None).checks if c.name == "goodput"}
    table = pl.read_parquet(run_dir / "flows.parquet").filter(phase="measurement")
    assert checks == dict(table.select("name", "goodput_bps").rows())
    assert table["window_start_ns"].to_list() == [2 * S, 4 * S]
    compared = values(run_dir).filter(metric="goodput")
    assert checks == dict(compared.select("subject", "value").rows())


def test_both_directions_have_a_utilisation_each(tmp_path: Path) -> None:
    flows = "".join(
        f"  {name}: {{{TCP}, direction: {direction}}}\n"
        for name, direction in (("up1", "forward"), ("up2", "forward"), ("down", "reverse"))
    )
    run_dir = run(tmp_path, HEAD + "flows:\n" + flows)
    collect(run_dir, None)
    found = values(run_dir)
    shared = {
        (metric, subject): value for metric, subject, value in found["metric", "subject", "value"].rows()
    }
    up, both = shared["utilisation", "all flows forward"], ("utilisation", "all flows")
    assert both not in shared
    assert 0 < up < 1
    assert 0 < shared["utilisation", "all flows reverse"] < 1
    goodputs = dict(found.filter(metric="goodput").select("subject", "value").rows())
    assert up == pytest.approx((goodputs["up1"] + goodputs["up2"]) / 10e6)
    # One flow alone has nothing to share.
    assert [subject for metric, subject in shared if metric == "jain_index"] == ["all flows forward"]


def test_pings_are_compared(tmp_path: Path) -> None:
    """Also if there is nothing else."""
    text = HEAD + 'flows: {echo: {kind: ping, from: "senders[0]", to: "receivers[0]", duration: 4s}}\n'
    run_dir = run(tmp_path, text)
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    (row,) = values(run_dir).select("metric", "subject", "unit").rows()
    assert row == ("rtt", "echo", "ns")
    (value,) = values(run_dir)["value"]
    assert value == pytest.approx(20e6, rel=0.05)


def test_pings_beside_flows_are_compared(tmp_path: Path) -> None:
    run_dir = run(tmp_path, HEAD + INTURN)
    collect(run_dir, None)
    assert sorted(values(run_dir).filter(metric="rtt")["subject"]) == ["echo", "one", "two"]
