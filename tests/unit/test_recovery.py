"""Recoveries of senders, and latency of fetches, against numbers worked out by hand, and on runs made up."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from synthetic import REPOSITORY, write_run
from test_connection import CWR, LOSS, MS, OPEN, RECOVERY, events, sampled

from dumbbell import analysis
from dumbbell.execution.collect import collect
from dumbbell.report.pages.recovery import Fetches, Recovery, Reductions


def made_up(directory: Path, scenario: str) -> Path:
    """The directory of a run of a scenario of the end-to-end tests, collected."""
    run_dir = directory / "run"
    write_run(run_dir, REPOSITORY / "tests/e2e" / scenario)
    collect(run_dir, None)
    return run_dir


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("traced"), "traced.yml")


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("fetches"), "fetches.yml")


# --- by hand --------------------------------------------------------------------------------------

SAMPLES = sampled(
    {"snd_cwnd": 40},
    {"ca_state": RECOVERY, "snd_cwnd": 30, "snd_ssthresh": 28, "total_retrans": 2},
    {"snd_cwnd": 29, "total_retrans": 3},
    {"ca_state": OPEN, "snd_cwnd": 28, "total_retrans": 4},
    {"snd_cwnd": 33},
    {"ca_state": RECOVERY, "snd_cwnd": 24, "total_retrans": 5},
    {"ca_state": LOSS, "snd_cwnd": 1, "snd_ssthresh": 12, "total_retrans": 9},
)


def test_recoveries_by_samples() -> None:
    found = analysis.recoveries(SAMPLES)
    assert found.rows() == [
        # Of two samples long; what was sent again between those around it.
        ("f", "0", 100 * MS, 300 * MS, "Recovery", 40, 28, 28, 4, "samples"),
        # It lasts to the end of the samples.
        ("f", "0", 500 * MS, None, "Recovery, Loss", 33, None, None, 5, "samples"),
    ]


def test_a_connection_that_is_first_seen_in_recovery() -> None:
    (row,) = analysis.recoveries(
        sampled({"ca_state": LOSS, "total_retrans": 7}, {"ca_state": OPEN})
    ).to_dicts()
    assert (row["begin_ns"], row["end_ns"], row["cwnd_before"], row["retransmits"]) == (0, 100 * MS, None, 0)


def test_no_recovery() -> None:
    assert analysis.recoveries(sampled({}, {"ca_state": 2}, {"ca_state": 1})).is_empty()
    assert analysis.recoveries(sampled({})[:0]).is_empty()


def test_counters_that_wrap_in_a_recovery() -> None:
    rows = sampled(
        {"total_retrans": 2**32 - 2}, {"ca_state": RECOVERY}, {"ca_state": OPEN, "total_retrans": 1}
    )
    assert analysis.recoveries(rows)["retransmits"].to_list() == [3]


def trace(*probes: tuple[int, int, int]) -> pl.DataFrame:
    """What TCP knew at each segment that arrived: ms, window, threshold."""
    key = {"flow": "f", "stream": "0", "side": "sender"}
    return pl.DataFrame(
        [
            key | {"t_ns": ms * MS, "snd_cwnd": cwnd, "snd_ssthresh": threshold}
            for ms, cwnd, threshold in probes
        ]
    )


def test_recoveries_by_the_trace() -> None:
    states = events((110, RECOVERY), (130, OPEN), (150, LOSS), (170, LOSS), (190, OPEN))
    again = states[:1].with_columns(event=pl.lit("retransmit"))
    resent = [again.with_columns(t_ns=pl.lit(ms * MS, pl.Int64)) for ms in (60, 111, 115, 151, 171, 195)]
    probes = trace(
        (100, 40, 2**31 - 1), (109, 41, 2**31 - 1), (129, 21, 20), (130, 20, 20), (149, 22, 20), (191, 2, 11)
    )
    found = analysis.recoveries(SAMPLES, pl.concat([states, *resent]), probes)
    assert found.rows() == [
        ("f", "0", 110 * MS, 130 * MS, "Recovery", 41, 20, 20, 2, "trace"),
        ("f", "0", 150 * MS, 190 * MS, "Loss", 22, 2, 11, 2, "trace"),
    ]


def test_connections_recover_apart() -> None:
    both = pl.concat([SAMPLES, sampled({}, {"ca_state": RECOVERY}, {"ca_state": OPEN}, flow="g")])
    found = analysis.recoveries(both, events((110, RECOVERY), (130, OPEN)))
    assert found.select("flow", "begin_ns", "source").rows() == [
        ("f", 110 * MS, "trace"),
        ("g", 100 * MS, "samples"),
    ]


def test_a_threshold_is_null_while_it_is_infinite() -> None:
    assert analysis.windows(SAMPLES)["snd_ssthresh"].to_list()[:2] == [None, 28]


def acks(*rows: tuple[int, int, int, int, int, int]) -> pl.DataFrame:
    """A log of ACKs, each of which delivered one segment: ms, state, cwnd, pipe, prr_delivered, prr_out."""
    names = ("t_ns", "ca_state", "snd_cwnd", "pipe", "prr_delivered", "prr_out")
    key = {"flow": "f", "stream": "0", "side": "sender"}
    same = {"prior_cwnd": 40, "snd_ssthresh": 20, "delivered": 1, "lost": 0, "srtt_us": 50_000}
    return pl.DataFrame([key | same | dict(zip(names, (row[0] * MS, *row[1:]), strict=True)) for row in rows])


def test_reductions_by_the_log_of_acks() -> None:
    found = analysis.reductions(
        acks(
            (0, OPEN, 40, 39, 0, 0),
            (10, RECOVERY, 37, 36, 1, 0),  # one is sent
            (11, RECOVERY, 36, 36, 2, 1),
            (12, RECOVERY, 36, 35, 3, 1),  # one
            (30, RECOVERY, 20, 17, 4, 2),  # three
            (31, RECOVERY, 20, 20, 5, 5),
            (40, OPEN, 21, 19, 5, 5),
            (50, CWR, 20, 20, 1, 0),
            (51, RECOVERY, 20, 18, 2, 0),
            (60, LOSS, 1, 0, 2, 2),
            (70, RECOVERY, 5, 4, 1, 0),
        )
    )
    assert found.drop("flow", "stream").rows() == [
        *((10 * MS, 40 * MS, "Recovery", "Open", 50 * MS, 40, 20, 36, 17, 19, 21, 5, 5, 5, 3, 18 * MS),),
        *((50 * MS, 60 * MS, "CWR, Recovery", "Loss", 50 * MS, 40, 20, 20, 18, 0, 1, 2, 2, 0, 0, None),),
        *((70 * MS, None, "Recovery", None, 50 * MS, 40, 20, 4, 4, None, None, 1, 1, 0, 0, None),),
    ]


def test_an_ack_that_ends_a_reduction_and_begins_another() -> None:
    found = analysis.reductions(
        acks((0, RECOVERY, 20, 19, 7, 5), (1, RECOVERY, 20, 19, 8, 6), (2, RECOVERY, 18, 17, 1, 0))
    )
    assert found.select("begin_ns", "end_ns", "next_state", "sent").rows() == [
        (0, 2 * MS, "Recovery", 6),
        (2 * MS, None, None, 0),
    ]


def test_no_reduction() -> None:
    assert analysis.reductions(acks((0, OPEN, 20, 19, 0, 0))).is_empty()
    assert analysis.reductions(acks((0, OPEN, 20, 19, 0, 0))[:0]).is_empty()


def fetches(*rows: tuple[float | None, int | None]) -> pl.DataFrame:
    """Completion times in ms (None of a fetch that was not done) and retransmits."""
    times = [None if ms is None else round(ms * MS) for ms, _ in rows]
    done = [ms is not None for ms in times]
    again = [count for _, count in rows]
    schema = {"completion_ns": pl.Int64, "retransmits": pl.Int64, "done": pl.Boolean}
    return pl.DataFrame({"completion_ns": times, "retransmits": again, "done": done}, schema=schema)


def test_latency_with_and_without_loss() -> None:
    # Nine of 100 ms, one of which was sent again early; one of 1100: mean 200, sigma 316, and so beyond two.
    rows = [*[(100.0, 0)] * 8, (100.0, 1), (1100.0, 3), (None, 9)]
    found = analysis.latency(fetches(*rows))
    assert found.fetches == 10
    assert found.clean.to_list() == [100 * MS] * 8
    assert found.lossy.to_list() == [100 * MS, 1100 * MS]
    assert found.guess == {"true_positive": 1, "false_positive": 0, "false_negative": 1, "true_negative": 8}
    median, late = found.percentiles[50], found.percentiles[99]
    assert median is not None
    assert (median.value, median.low) == (100 * MS, 100 * MS)
    assert late is not None
    assert late.value == pytest.approx(1010 * MS)  # 100 and 0.91 of the way to 1100
    share = found.retransmitted
    assert share is not None
    # Wilson's interval of 2 of 10.
    assert (share.value, share.low, share.high) == pytest.approx((0.2, 0.0567, 0.5098), abs=1e-4)


def test_fetches_of_which_the_server_told_nothing() -> None:
    found = analysis.latency(fetches((100.0, None), (200.0, None)))
    assert (found.fetches, found.retransmitted) == (2, None)
    assert sum(found.guess.values()) == 0


def test_latency_of_nothing() -> None:
    found = analysis.latency(fetches((None, None)))
    assert (found.fetches, found.percentiles[50], found.retransmitted) == (0, None, None)


@pytest.mark.parametrize(("count", "of", "low", "high"), [(0, 10, 0, 0.2775), (10, 10, 0.7225, 1)])
def test_intervals_of_shares_stay_shares(count: int, of: int, low: float, high: float) -> None:
    found = analysis.share_interval(count, of)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert analysis.share_interval(0, 0) is None


# --- on runs --------------------------------------------------------------------------------------


def cells(page: str) -> list[list[str]]:
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(<td>.*?)</tr>", page)]


def test_a_traced_flow(traced: Path) -> None:
    recovery = Recovery(traced)
    table = recovery.recoveries().data
    states = pl.read_parquet(traced / "tcp_event.parquet").filter(flow=recovery.flow.name)
    assert len(cells(table)) == states.filter(ca_state=RECOVERY).height > 1
    assert "by the trace of ca_state" in table
    figure = recovery.around(2, 0.5).data
    assert f"Recovery 2 of {len(cells(table))}" in figure
    assert '"name":"Recovery"' in figure
    assert "pipe, at samples" in figure
    assert "There is no recovery 1000" in recovery.around(1000).data


@pytest.fixture
def logged(traced: Path, tmp_path: Path) -> Path:
    """A run with a log of ACKs: of flow1 a reduction to its end, of flow2 one to a timeout."""
    shutil.copytree(traced, tmp_path / "logged")
    done = acks((900, OPEN, 40, 39, 0, 0), (1000, RECOVERY, 30, 29, 1, 0), (1010, RECOVERY, 20, 20, 9, 1))
    done = pl.concat([done, acks((1050, RECOVERY, 20, 19, 20, 4), (1100, OPEN, 20, 18, 20, 4))])
    lost = acks((1000, RECOVERY, 30, 10, 1, 0), (1500, LOSS, 1, 0, 2, 2))
    parts = [done.with_columns(flow=pl.lit("flow1")), lost.with_columns(flow=pl.lit("flow2"))]
    rows = pl.concat(parts).with_columns(phase=pl.lit("measurement"))
    rows.write_parquet(tmp_path / "logged/recovery.parquet")
    return tmp_path / "logged"


def test_reductions_of_a_run(logged: Path) -> None:
    found = Reductions(logged)
    cubic, reno = cells(found.table().data)
    #                 loss, TCP, number, pipe below, at, above ssthresh
    assert cubic[:6] == ["0", "cubic", "1", "0", "0", "100 %"]
    # Between the first and the third ACK: 50 ms, 1 RTT. What was sent after the third: 3.
    # Pipe and cwnd less ssthresh at the end.
    assert cubic[6:] == ["-2<br>-2 to -2", "0<br>0 to 0", "100 ms", "0.200", "3", "0"]
    unended = ["-<br>- to -", "-<br>- to -"]
    assert reno == ["0", "reno", "1", "100 %", "0", "0", *unended, "-", "-", "0", "100 %"]
    assert '"name":"cubic"' in found.figure().data
    assert '"name":"reno"' in found.figure("0").data
    assert "No path loses 1 %; there are 0." in found.figure("1 %").data
    assert "pipe, at each ACK" in Recovery(logged, "flow1").around().data


def test_a_run_without_a_log_of_acks(traced: Path) -> None:
    assert "where <code>sampling.trace</code>" in html.unescape(Reductions(traced).table().data)


def test_another_flow(traced: Path) -> None:
    assert Recovery(traced, "flow2").flow.name == "flow2"
    assert (
        "no TCP flow nobody that lasts; of those it has flow1, flow2"
        in Recovery(traced, "nobody").recoveries().data
    )


def test_fetches_by_size_and_loss(fetched: Path) -> None:
    found = Fetches(fetched)
    kept, web = cells(found.table().data)
    # Every fifth of 20 was sent again.
    assert web[:5] == ["76\N{NARROW NO-BREAK SPACE}800", "3 %", "reno", "one for each", "20"]
    assert web[5].startswith("70.72 ms<br>70.72 ms to ")
    assert web[8].startswith("20 %<br>")
    assert kept[1:4] == ["0", "cubic", "one for all"]
    assert cells(found.guesses().data)[1][4:] == ["0", "0", "4", "16"]
    assert "something sent again" in found.figure().data


def test_without_fetches_or_samples(collected: Path, tmp_path: Path) -> None:
    for made in (Fetches(collected).table(), Fetches(tmp_path).figure(), Fetches(tmp_path / "no").guesses()):
        assert "No fetch over HTTP was done." in made.data
    shutil.copy(collected / "plan.json", tmp_path)
    assert "no readable tcp_info.parquet" in Recovery(tmp_path).around().data
    assert "no readable plan.json" in Recovery(tmp_path / "no").recoveries().data


def test_a_flow_without_recovery(fetched: Path, collected: Path, tmp_path: Path) -> None:
    assert "This run has no TCP flow that lasts." in Recovery(fetched).recoveries().data
    shutil.copy(collected / "plan.json", tmp_path)
    rows = pl.read_parquet(collected / "tcp_info.parquet").with_columns(ca_state=pl.lit(OPEN, pl.Int64))
    rows.write_parquet(tmp_path / "tcp_info.parquet")
    assert "flow1 was seen neither in Recovery nor in Loss" in Recovery(tmp_path).recoveries().data
