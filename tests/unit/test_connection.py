"""Series and counts of one connection, of samples that were made up."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dumbbell import analysis

MS = 1_000_000
OPEN, CWR, RECOVERY, LOSS = 0, 2, 3, 4


def sampled(*rows: dict[str, Any], flow: str = "f") -> pl.DataFrame:
    """Samples of a sender every 100 ms; what is not given is as before."""
    now: dict[str, Any] = {
        "flow": flow,
        "side": "sender",
        "stream": "0",
        "ca_state": OPEN,
        "snd_mss": 1448,
        "snd_cwnd": 10,
        "snd_ssthresh": 2**31 - 1,
        "unacked": 10,
        "sacked": 0,
        "lost": 0,
        "retrans": 0,
        "srtt_us": 20_000,
        "min_rtt_us": 19_000,
        "pacing_rate_Bps": 1_000_000,
        "delivery_rate_Bps": 1_250_000,
        "bytes_sent": 0,
        "bytes_acked": 0,
        "data_segs_out": 0,
        "total_retrans": 0,
    }
    table = []
    for i, row in enumerate(rows):
        now = now | row | {"t_ns": i * 100 * MS}
        table.append(now)
    return pl.DataFrame(table)


def events(*entries: tuple[int, int]) -> pl.DataFrame:
    """Changes of the congestion state: ms and state."""
    key = {"flow": "f", "stream": "0", "side": "sender", "event": "ca_state"}
    return pl.DataFrame([key | {"t_ns": ms * MS, "ca_state": state} for ms, state in entries])


def test_what_a_sender_had_and_did() -> None:
    rows = sampled(
        {},
        {
            "bytes_sent": 250_000,
            "bytes_acked": 125_000,
            "data_segs_out": 173,
            "total_retrans": 2,
            "snd_cwnd": 20,
            "snd_ssthresh": 15,
            "sacked": 3,
            "lost": 2,
            "retrans": 1,
        },
    )
    first, second = analysis.samples(rows).to_dicts()
    assert first["dt_ns"] is None
    assert first["ssthresh_bytes"] is None  # infinite
    assert second["dt_ns"] == 100 * MS
    assert second["throughput_bps"] == 20e6
    assert second["goodput_bps"] == 10e6
    assert (second["sent_packets"], second["retransmitted_packets"]) == (173, 2)
    assert second["cwnd_bytes"] == 20 * 1448
    assert second["ssthresh_bytes"] == 15 * 1448
    assert second["pipe_bytes"] == (10 - 3 - 2 + 1) * 1448
    assert (second["pacing_bps"], second["delivery_bps"]) == (8e6, 10e6)
    assert (second["srtt_ns"], second["min_rtt_ns"]) == (20 * MS, 19 * MS)


def test_counters_that_wrap() -> None:
    rows = sampled(
        {"data_segs_out": 2**32 - 10, "total_retrans": 2**32 - 1}, {"data_segs_out": 5, "total_retrans": 0}
    )
    last = analysis.samples(rows).to_dicts()[-1]
    assert (last["sent_packets"], last["retransmitted_packets"]) == (15, 1)


def test_connections_are_apart() -> None:
    rows = pl.concat([sampled({"bytes_acked": 1000}, {}), sampled({"bytes_acked": 5000}, {}, flow="g")])
    found = analysis.samples(rows)
    assert found["dt_ns"].to_list() == [None, 100 * MS] * 2
    assert found["goodput_bps"].to_list() == [None, 0, None, 0]


def test_the_receiver_s_side_and_fetches_are_left_out() -> None:
    rows = sampled({}, {"side": "receiver"}, {"side": "sender", "stream": None})
    assert analysis.samples(rows).height == 1


def test_shares_of_time_in_each_state() -> None:
    rows = sampled({}, {"ca_state": RECOVERY}, {"ca_state": OPEN}, {}, {})
    shares = {row["state"]: row["share"] for row in analysis.state_shares(rows).to_dicts()}
    assert shares == {"Open": 0.75, "Recovery": 0.25}


def test_duplicate_acks_without_ebpf_are_what_the_receiver_had_out_of_order() -> None:
    sender = sampled({}, {}, {})
    ms = (-20, 90, 190, 290)
    receiver = pl.DataFrame({"t_ns": [m * MS for m in ms], "rcv_ooopack": [2**32 - 5, 2**32 - 5, 4, 100]})
    receiver = receiver.with_columns(flow=pl.lit("f"), stream=pl.lit("0"), side=pl.lit("receiver"))
    found = analysis.signals(pl.concat([sender, receiver], how="diagonal"))
    assert found["DupAcksIn"].to_list() == [0, 0, 9]


def test_signals_by_samples() -> None:
    rows = sampled(
        {},
        {"ca_state": CWR},
        {"ca_state": OPEN},
        {"ca_state": RECOVERY},
        {"ca_state": LOSS},
        {"ca_state": OPEN},
    )
    found = analysis.signals(rows)
    assert set(found["source"]) == {"samples"}
    assert found["SendStall"].to_list() == [0, 1, 0, 0, 0, 0]
    assert found["FastRetran"].to_list() == [0, 0, 0, 1, 0, 0]
    assert found["Timeouts"].to_list() == [0, 0, 0, 0, 1, 0]
    assert found["CongestionSignals"].sum() == 3
    assert found["DupAcksIn"].null_count() == 6


def test_signals_by_the_trace_are_counted_in_the_sample_that_follows() -> None:
    entries = events((10, RECOVERY), (30, OPEN), (50, RECOVERY), (99, OPEN), (100, CWR), (150, OPEN))
    found = analysis.signals(sampled({}, {}, {}), entries)
    assert set(found["source"]) == {"trace"}
    assert found["FastRetran"].to_list() == [0, 2, 0]
    assert found["SendStall"].to_list() == [0, 1, 0]  # at the very time of the sample
    assert found["CongestionSignals"].to_list() == [0, 3, 0]


def test_recovery_after_cwr_is_no_signal_of_its_own() -> None:
    found = analysis.signals(sampled({}, {}), events((10, CWR), (20, RECOVERY)))
    totals = analysis.budget(found).to_dicts()[0]
    assert (totals["SendStall"], totals["FastRetran"], totals["CongestionSignals"]) == (1, 1, 1)
    assert totals["unexplained"] == -1


def test_timeouts_are_the_kernel_s_where_it_counts_them() -> None:
    rows = sampled({"total_rto_recoveries": 0}, {"total_rto_recoveries": 2}, {})
    assert analysis.signals(rows)["Timeouts"].to_list() == [0, 2, 0]


def test_signals_by_ebpf_close_the_budget() -> None:
    first = {
        "congestion_signals": 4,
        "signals_send_stall": 1,
        "fast_retransmits": 3,
        "signals_timeout": 0,
        "dup_acks_in": 9,
    }
    more = {"congestion_signals": 7, "signals_send_stall": 2, "fast_retransmits": 4, "signals_timeout": 1}
    found = analysis.signals(sampled(first, more | {"dup_acks_in": 12}))
    assert set(found["source"]) == {"ebpf"}
    assert found["DupAcksIn"].to_list() == [9, 3]
    assert analysis.budget(found).to_dicts() == [
        {
            "flow": "f",
            "stream": "0",
            "SendStall": 2,
            "FastRetran": 4,
            "Timeouts": 1,
            "CongestionSignals": 7,
            "unexplained": 0,
        }
    ]


def test_slow_start_and_other_reductions() -> None:
    rows = sampled(
        {"snd_cwnd": 10, "snd_ssthresh": 15},
        {"snd_cwnd": 16},  # 6 below ssthresh
        {"snd_cwnd": 17},  # congestion avoidance
        {"snd_cwnd": 12},  # falls, and the state stays Open
        {"snd_cwnd": 8, "ca_state": RECOVERY},
    )
    found = analysis.signals(rows)
    assert found["SlowStart"].to_list() == [None, 6, 0, 0, 0]
    assert found["OtherReductions"].to_list() == [None, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("indices", "begin"),
    [([1, 1, 1, 1], 0), ([0.5, 0.95, 0.96, 0.97], 1), ([1, 0.5, 1, 0.5], None), ([0.5, 0.5, 0.5, 1], None)],
)
def test_when_flows_have_converged(indices: list[float], begin: int | None) -> None:
    shares = pl.DataFrame(
        {"t_ns": [i * 1000 * MS for i in range(4)], "jain_index": list(map(float, indices))}
    )
    found = analysis.convergence_ns(shares, for_ns=2000 * MS)
    assert found == (None if begin is None else begin * 1000 * MS)
