from __future__ import annotations

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
    assert analysis.goodput(rows, [0, 2 * S]).is_empty()
    # Of a series, 95 % covered: the rate is that of the covered part.
    (rate,) = analysis.goodput(rows, [0, round(S / 0.95)])["goodput_bps"]
    assert rate == 8000


def test_a_mean_is_over_all_of_its_window() -> None:
    rows = counted("f", (0, 0), (0.91, 1000))
    assert analysis.mean_goodput(rows, 0, S) == {}
    assert analysis.mean_goodput(rows, 0, S, within_ns=S // 20) == {}
    # What samples may leave out counts like the rest.
    assert analysis.mean_goodput(rows, 0, S, within_ns=S // 10) == {"f": 8000 / 0.91}


def test_counters_reach_over_the_life_of_a_flow() -> None:
    """Of two streams one has ended at 2 s, and of the other nothing is known after 2.5 s."""
    rows = pl.concat([counted("f", (1, 100), (2, 700)), counted("f", (1, 200), (2.5, 300), stream="1")])
    ended = pl.DataFrame({"flow": ["f"], "stream": ["0"]})
    whole = analysis.over_life(rows, ended, {"f": (0, 4 * S)})
    assert whole.filter(stream="0").select("t_ns", "bytes").rows() == [
        (0, 0), (S, 100), (2 * S, 700), (4 * S, 700),
    ]  # fmt: skip
    assert whole.filter(stream="1").select("t_ns", "bytes").rows() == [(0, 0), (S, 200), (5 * S // 2, 300)]


def test_a_stream_that_ended_has_a_final_row_at_the_end_that_counts() -> None:
    of = {"flow": "a", "stream": "0", "t_ns": 0, "bytes_acked": 1, "bytes_received": 2}
    rows = [of | {"side": "sender", "final": True}, of | {"side": "receiver", "final": None}]
    assert analysis.ended(pl.DataFrame(rows)).is_empty()
    assert analysis.ended(pl.DataFrame(rows[:1])).rows() == [("a", "0")]
    assert analysis.ended(pl.DataFrame(rows).drop("final")).is_empty()


def test_counters_prefer_the_receiver() -> None:
    rows = [
        {"flow": "a", "side": "sender", "stream": "0", "t_ns": 0, "bytes_acked": 1, "bytes_received": 0},
        {"flow": "a", "side": "receiver", "stream": "0", "t_ns": 0, "bytes_acked": 0, "bytes_received": 2},
        {"flow": "b", "side": "sender", "stream": "0", "t_ns": 0, "bytes_acked": 3, "bytes_received": 0},
    ]
    assert analysis.counters(pl.DataFrame(rows))["bytes"].to_list() == [2, 3]


def test_datagrams_count_at_the_receiver_with_or_without_headers() -> None:
    sent = {"flow": "f", "side": "sender", "t_ns": S, "received_packets": None, "received_bytes": None}
    rows = [
        {
            "flow": "f",
            "side": "receiver",
            "t_ns": t * S,
            "received_packets": 10 * t,
            "received_bytes": 9000 * t,
        }
        for t in (2, 0, 1)  # in any order
    ]
    udp = pl.DataFrame([*rows, sent], infer_schema_length=None)
    payload = analysis.datagram_counters(udp)
    assert payload["bytes"].to_list() == [0, 9000, 18000]
    assert analysis.mean_goodput(payload, 0, 2 * S) == {"f": 72000}
    assert analysis.datagram_counters(udp, 42)["bytes"].to_list() == [0, 9420, 18840]


@pytest.mark.parametrize(
    ("rates", "index"),
    [([5, 5], 1), ([1, 0], 0.5), ([3, 1], 0.8), ([1, 1, 1, 0], 0.75), ([7], 1), ([0, 0], None)],
)
def test_jain_index(rates: list[float], index: float | None) -> None:
    assert analysis.jain_index(rates) == index


def test_utilisation() -> None:
    assert analysis.utilisation([60e6, 30e6], 100e6) == pytest.approx(0.9)


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


def test_a_busy_core_is_not_hidden_by_idle_ones() -> None:
    seconds = range(11)
    busy_from_7_s = [min(second, 7) * 500 for second in seconds]  # 3 of 10 s without a moment left
    cores = {"0": busy_from_7_s, "1": [second * 1000 for second in seconds]}
    rows = [
        {"host": "router", "cpu": cpu, "t_ns": second * 10**9, "idle_ms": idle[second], "iowait_ms": 0}
        for cpu, idle in cores.items()
        for second in seconds
    ]
    assert analysis.saturated(pl.DataFrame(rows)) == {"router": pytest.approx(0.3)}
    assert analysis.saturated(pl.DataFrame(rows[:1])) == {}


def test_a_core_that_waits_for_a_disk_has_time_left() -> None:
    waits = {"host": "router", "cpu": "0", "t_ns": [0, 10**9], "idle_ms": [0, 0], "iowait_ms": [0, 900]}
    assert analysis.saturated(pl.DataFrame(waits)) == {"router": 0}
