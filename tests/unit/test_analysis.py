from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dumbbell import analysis

S = 1_000_000_000


def counted(flow: str, *samples: tuple[float, int], stream: str = "0") -> pl.DataFrame:
    return pl.DataFrame(
        [{"flow": flow, "stream": stream, "t_ns": round(t * S), "bytes": total} for t, total in samples]
    )


def test_goodput_is_growth_over_time() -> None:
    # 125 000 bytes in a second are 1 Mbit/s, then twice that.
    rates = analysis.goodput(counted("f", (0, 0), (1, 125_000), (2, 375_000)), [0, S, 2 * S])
    assert rates.to_dicts() == [
        {"flow": "f", "t_ns": S // 2, "dt_ns": S, "goodput_bps": 1e6},
        {"flow": "f", "t_ns": 3 * S // 2, "dt_ns": S, "goodput_bps": 2e6},
    ]


def test_goodput_interpolates_at_the_edges() -> None:
    # 100 kB/s up to 1.5 s, 300 kB/s after: between 1 and 2 s, 50 kB + 150 kB.
    rates = analysis.goodput(counted("f", (0.5, 0), (1.5, 100_000), (2.5, 400_000)), [S, 2 * S])
    assert rates["goodput_bps"].to_list() == [200_000 * 8]


def test_streams_add_up() -> None:
    both = pl.concat([counted("f", (0, 0), (1, 1000)), counted("f", (0, 500), (1, 2500), stream="1")])
    assert analysis.mean_goodput(both, 0, S) == {"f": 3000 * 8}


def test_an_interval_without_samples_has_no_rate() -> None:
    rows = counted("f", (0, 0), (1, 1000))
    assert analysis.mean_goodput(rows, 0, 2 * S) == {}
    # 95 % covered: the rate is that of the covered part.
    assert analysis.mean_goodput(rows, 0, round(S / 0.95)) == {"f": 8000}


def test_counters_prefer_the_receiver() -> None:
    rows = [
        {"flow": "a", "side": "sender", "stream": "0", "t_ns": 0, "bytes_acked": 1, "bytes_received": 0},
        {"flow": "a", "side": "receiver", "stream": "0", "t_ns": 0, "bytes_acked": 0, "bytes_received": 2},
        {"flow": "b", "side": "sender", "stream": "0", "t_ns": 0, "bytes_acked": 3, "bytes_received": 0},
    ]
    assert analysis.counters(pl.DataFrame(rows))["bytes"].to_list() == [2, 3]


def sampled(side: str, t: float, data_segs_in: int = 0, stream: str = "0") -> dict[str, Any]:
    row = {"flow": "f", "side": side, "stream": stream, "t_ns": round(t * S), "data_segs_in": data_segs_in}
    return row | {"snd_mss": 1448, "options": 7}


@pytest.mark.parametrize(
    ("options", "snd_mss", "packet"),
    # With timestamps 12 bytes of a full packet's 1514 are theirs; bits 2 and 4 are SACK and window scaling.
    [(7, 1448, 1514), (6, 1460, 1514), (0, 1460, 1514), (1, 8948, 9014)],
)
def test_wire_counters_are_packets_with_all_their_headers(options: int, snd_mss: int, packet: int) -> None:
    sent = {"options": options, "snd_mss": snd_mss}
    # The receiver's own snd_mss is about acknowledgements, and its options may not yet say what is agreed.
    received = {"options": 0, "snd_mss": 536}
    rows = [
        # Path MTU discovery may begin low: the largest size is the full one.
        sampled("sender", 0) | sent | {"snd_mss": 536},
        sampled("sender", 1) | sent,
        sampled("receiver", 0, 1) | received,
        sampled("receiver", 1, 101) | received,
    ]
    found = analysis.wire_counters(pl.DataFrame(rows))
    assert found.to_dicts() == [
        {"flow": "f", "stream": "0", "t_ns": 0, "bytes": 0},
        {"flow": "f", "stream": "0", "t_ns": S, "bytes": 100 * packet},
    ]
    assert analysis.mean_goodput(found, 0, S) == {"f": 100 * packet * 8}


def test_wire_counters_may_wrap_and_tell_streams_apart() -> None:
    rows = [
        sampled("receiver", t, (first + 50 * t) % 2**32, stream)
        for t in (2, 0, 1)  # in any order
        for stream, first in (("0", 2**32 - 60), ("1", 7))
    ]
    found = analysis.wire_counters(pl.DataFrame([sampled("sender", 0), *rows])).sort("stream", "t_ns")
    assert found["bytes"].to_list() == [0, 50 * 1514, 100 * 1514] * 2
    assert analysis.mean_goodput(found, 0, 2 * S) == {"f": 2 * 50 * 1514 * 8}


def test_wire_counters_wrap_in_the_width_of_the_kernel_too() -> None:
    rows = pl.DataFrame(
        [sampled("sender", 0), sampled("receiver", 0, 2**32 - 1), sampled("receiver", 1, 1)],
        schema_overrides={"data_segs_in": pl.UInt32},
    )
    assert analysis.wire_counters(rows)["bytes"].to_list() == [0, 2 * 1514]


def test_wire_counters_need_both_ends() -> None:
    for rows in ([sampled("sender", 0)], [sampled("receiver", 0), sampled("receiver", 1)]):
        found = analysis.wire_counters(pl.DataFrame(rows))
        assert found.is_empty()
        assert analysis.mean_goodput(found, 0, S) == {}


@pytest.mark.parametrize(
    ("rates", "index"),
    [([5, 5], 1), ([1, 0], 0.5), ([3, 1], 0.8), ([1, 1, 1, 0], 0.75), ([7], 1), ([0, 0], None)],
)
def test_jain_index(rates: list[float], index: float | None) -> None:
    assert analysis.jain_index(rates) == index


def test_utilisation() -> None:
    assert analysis.utilisation([60e6, 30e6], 100e6) == pytest.approx(0.9)


def test_common_window() -> None:
    assert analysis.common_window([(0, 30), (5, 25)]) == (5, 25)
    assert analysis.common_window([(0, 5), (5, 10)]) is None
    assert analysis.common_window([]) is None


def test_fairness_counts_those_that_run_throughout() -> None:
    rows = pl.concat(
        [counted("a", (0, 0), (1, 3000), (2, 6000), (3, 9000)), counted("b", (1, 0), (2, 1000), (3, 4000))]
    )
    rates = analysis.goodput(rows, analysis.steps(0, 3 * S, S))
    found = analysis.fairness(rates, {"a": (0, 3 * S), "b": (S, 3 * S)})
    # alone; then 3:1, (3+1)^2 / (2 (9+1)) = 0.8; then 3:3
    assert found["jain_index"].to_list() == pytest.approx([0.8, 1.0])
    assert found["t_ns"].to_list() == [1.5 * S, 2.5 * S]


def test_u32_counters_may_wrap() -> None:
    rows = pl.DataFrame({"n": [2**32 - 10, 2**32 - 1, 5, 5, 7]}, schema={"n": pl.UInt32})
    assert rows.select(analysis.unwrap_u32(pl.col("n")))["n"].to_list() == [0, 9, 15, 15, 17]


def test_queue_tells_devices_apart_and_counts_drops_between_samples() -> None:
    rows = pl.DataFrame(
        [
            {
                "host": "r", "dev": dev, "kind": "pfifo", "handle": "10:", "t_ns": t, "qlen_packets": t,
                "backlog_bytes": 0, "drops": (start + t) % 2**32,
            }
            for t in (0, 1, 3)
            for dev, start in (("left", 100), ("right", 2**32 - 2))
        ]
    )  # fmt: skip
    found = analysis.queue(rows)
    assert found.filter(pl.col("dev") == "left")["dropped_packets"].to_list() == [0, 1, 2]
    assert found.filter(pl.col("dev") == "right")["dropped_packets"].to_list() == [0, 1, 2]
