"""The time-sequence graph of a connection, from a capture and from traces."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dumbbell
from dumbbell.results import Run
from dumbbell.studies import sequence
from dumbbell.studies.source import Missing

MSS = 1000  # of the capture


def opened(path: Path) -> Run:
    run = dumbbell.open(path)
    assert isinstance(run, Run)
    return run


def test_of_a_capture(captured: Path) -> None:
    found = sequence.time_sequence(opened(captured), "flow1", 0, 10**9)
    assert found.source == "capture at router vec1"
    assert found.sent.select("begin", "end", "again").rows() == [
        *((number * MSS, (number + 1) * MSS, False) for number in range(5)),
        (MSS, 2 * MSS, True),
    ]
    assert (found.sent["t_ns"] // 10**6).to_list() == [10, 11, 12, 13, 14, 30]
    assert found.acked["y"].to_list() == [MSS, MSS, MSS, 5 * MSS]
    assert found.window["y"].to_list() == [number * MSS + (100 << 7) for number in (1, 1, 1, 5)]
    assert found.sacked.select("begin", "end").rows() == [
        (2 * MSS, 3 * MSS),
        (4 * MSS, 5 * MSS),
        (2 * MSS, 3 * MSS),
    ]


def test_the_capture_that_is_nearest_to_the_sender(captured: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(captured, tmp_path / "run"))
    one, other = (run_dir / f"raw/router/measurement/capture-{name}.pcap" for name in ("vec1", "vec2"))
    one.rename(kept := one.with_suffix(".kept"))
    other.rename(one)
    kept.rename(other)
    found = sequence.time_sequence(opened(run_dir), "flow1", 0, 10**9)
    assert (found.source, found.sent.height) == ("capture at router vec2", 6)
    other.write_bytes(b"no capture")
    found = sequence.time_sequence(opened(run_dir), "flow1", 0, 10**9)
    assert (found.source, found.sent.height) == ("capture at router vec1", 5)  # one was lost before it


def test_of_a_part_of_a_capture(captured: Path) -> None:
    found = sequence.time_sequence(opened(captured), "flow1", 25 * 10**6, 35 * 10**6)
    assert found.sent.select("begin", "again").rows() == [(MSS, True)]  # what was sent before is known
    with pytest.raises(Missing, match="sent nothing from 2 to 3 s"):
        sequence.time_sequence(opened(captured), "flow1", 2 * 10**9, 3 * 10**9)


def test_the_figure(captured: Path) -> None:
    drawn = opened(captured).plot.time_sequence("flow1", until="1s")
    names = [trace.name for trace in drawn.data]
    assert names == ["sent", "sent again", "SACK", "sent again", "acknowledged", "receiver's window"]
    assert [at for at in drawn.data[1].x if at is not None] == [0.03, 0.03]
    low, high = drawn.layout.yaxis.range
    assert low < 0
    assert 5 < high < 6  # kB: not up to the window's edge, 12.8 kB above
    with pytest.raises(Missing, match="There is no flow x; there are flow1, flow2"):
        opened(captured).plot.time_sequence("x")


def test_too_much_is_refused_with_what_to_ask(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "MOST", 5)
    with pytest.raises(
        Missing, match=r"10 segments and ACKs are too many to draw: ask for less time, say 0.5 s"
    ):
        sequence.time_sequence(opened(captured), "flow1", 0, 10**9)


def test_of_a_trace(captured: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(captured, tmp_path / "run"))
    for file in run_dir.glob("raw/*/measurement/capture-*.pcap"):
        file.unlink()
    probes = pl.read_parquet(run_dir / "tcp_probe.parquet").filter(
        phase="measurement", flow="flow1", side="sender"
    )
    start = 2**32 - 1500
    made = [(10, 0, 3000), (20, 1000, 4000), (30, 1000, 5000), (40, 5000, 6000)]
    rows = probes.head(len(made)).with_columns(
        t_ns=pl.Series([ms * 10**6 for ms, _, _ in made]),
        snd_una=pl.Series([(start + una) % 2**32 for _, una, _ in made]),
        snd_nxt=pl.Series([(start + nxt) % 2**32 for _, _, nxt in made]),
        snd_wnd=pl.lit(20_000),
    )
    rows.write_parquet(run_dir / "tcp_probe.parquet")
    event = (
        rows.head(1)
        .select("phase", "flow", "side", "stream")
        .with_columns(event=pl.lit("retransmit"), t_ns=pl.lit(35 * 10**6, pl.Int64))
    )
    event.write_parquet(run_dir / "tcp_event.parquet")
    found = sequence.time_sequence(opened(run_dir), "flow1", 0, 10**9)
    assert found.source.startswith("tcp_probe")
    assert found.sent.rows() == [
        (20 * 10**6, 3000, 4000, False),
        (30 * 10**6, 4000, 5000, False),
        (40 * 10**6, 5000, 6000, False),
        (35 * 10**6, 1000, 1000, True),
    ]
    assert found.acked["y"].to_list() == [0, 1000, 1000, 5000]
    assert found.window["y"].to_list() == [20_000, 21_000, 21_000, 25_000]
    assert opened(run_dir).plot.time_sequence().data


def test_of_atou(collected_atou: Path, tmp_path: Path) -> None:
    run = opened(Path(shutil.copytree(collected_atou, tmp_path / "run")))
    (flow,) = run.planned_flows
    sent = [(1, "xmt", 0), (2, "xmt", 1), (3, "ack", 0), (4, "xmt", 0), (5, "ack", 2)]
    trace = pl.DataFrame(sent, ["t_ns", "kind", "segment"], orient="row")
    trace = trace.with_columns(flow=pl.lit(flow.name), phase=pl.lit("measurement"))
    trace.write_parquet(run.dir / "atou_trace.parquet")
    found = sequence.time_sequence(run, flow.name, 0, 100)
    assert found.unit == "segments"
    assert found.sent.select("begin", "again").rows() == [(0, False), (1, False), (0, True)]
    assert found.acked["y"].to_list() == [0, 2]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=30))
def test_numbers_that_wrap_are_counted_on(first: int, steps: list[int]) -> None:
    true = [sum(steps[: i + 1]) for i in range(len(steps))]
    table = pl.DataFrame({"seq": [(first + number) % 2**32 for number in true]}, {"seq": pl.UInt32})
    assert table.select(sequence._since(pl.col("seq"), first))["seq"].to_list() == true
    assert [sequence._wrapped((number) % 2**32, number) for number in true] == true
