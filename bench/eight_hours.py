"""An eight-hour transfer of two flows that no testbed has made, with every field of TCP_INFO at both ends.

It has the size and the shape of a real one, to time what is made of it, and is never a result.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from synthetic import MSS, PACKET_BITS, RUN_ID, T0_UNIX_NS, write_run

from dumbbell.plan import Phase, Point

SCENARIO = Path(__file__).with_suffix(".yml")
STEPS = 10  # of the model between two samples
OPEN, CWR, RECOVERY, LOSS = 0, 2, 3, 4
STALLS, TIMEOUTS = 0.05, 0.01  # share of the reductions that are the host's own, and by a timer
CHUNK = 20_000  # rows that are spelled at once

# What stands still, as the ends of a real connection of Linux 6.12 had it.
BOTH = {
    **dict.fromkeys(("retransmits", "probes", "backoff", "fastopen_client_fail", "delivered_ce"), 0),
    **dict.fromkeys(("dsack_dups", "reord_seen", "rwnd_limited_us", "sndbuf_limited_us"), 0),
    **dict.fromkeys(("skmem_optmem_bytes", "skmem_backlog_bytes", "skmem_drops"), 0),
    **{"state": 1, "options": 7, "snd_wscale": 6, "rcv_wscale": 6, "snd_mss": MSS, "advmss": MSS},
    **{"pmtu": 1500, "reordering": 3, "skmem_rcvbuf_bytes": 2_906_112, "last_ack_recv_ms": 0},
}
SENDER = {
    **dict.fromkeys(("delivery_rate_app_limited", "ato_us", "last_data_sent_ms", "data_segs_in"), 0),
    **dict.fromkeys(("rcv_rtt_us", "bytes_received", "rcv_ooopack", "rqueue_bytes"), 0),
    **dict.fromkeys(("skmem_rmem_alloc_bytes", "skmem_wmem_alloc_bytes"), 0),
    **{"rcv_mss": 536, "rcv_ssthresh": 64_088, "rcv_space": 14_480, "snd_wnd": 1_453_056},
    **{"skmem_sndbuf_bytes": 1_087_488, "skmem_fwd_alloc_bytes": 3240, "timer": 1, "timer_expires_ms": 30},
}
RECEIVER = {
    **dict.fromkeys(("ca_state", "unacked", "sacked", "lost", "retrans", "last_data_recv_ms"), 0),
    **dict.fromkeys(("total_retrans", "bytes_acked", "notsent_bytes", "data_segs_out", "bytes_sent"), 0),
    **dict.fromkeys(("delivery_rate_Bps", "busy_time_us", "bytes_retrans", "timer", "timer_expires_ms"), 0),
    **dict.fromkeys(("skmem_wmem_alloc_bytes", "skmem_wmem_queued_bytes", "wqueue_bytes"), 0),
    **{"delivery_rate_app_limited": 1, "rto_us": 210_000, "ato_us": 40_000, "rcv_mss": MSS},
    **{"rcv_ssthresh": 1_453_056, "srtt_us": 6222, "rttvar_us": 3111, "snd_ssthresh": 2**31 - 1},
    **{"snd_cwnd": 10, "rcv_space": 403_992, "delivered": 1, "snd_wnd": 64_256, "min_rtt_us": 6222},
    **{"pacing_rate_Bps": 4_654_451, "skmem_sndbuf_bytes": 46_080, "skmem_fwd_alloc_bytes": 3584},
    **{"skmem_rmem_alloc_bytes": 4608, "rqueue_bytes": 2896},
}


def simulate(planned: Point, phase: Phase) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Windows that grow by a packet a round trip and halve when the queue overflows; and the queue.

    ``[t_ns, ca_state, cwnd, ssthresh, rtt_s, delivered, lost]`` of each flow, in packets, and
    ``[t_ns, queue, sent, drops]``, a row for each sample. Acknowledgements clock the senders: what is in
    flight beyond the bandwidth-delay product is in the queue.
    """
    assert planned.path
    rng = np.random.default_rng(1)
    there, rtt_s = planned.path.forward, planned.path.rtt_ns / 1e9
    capacity, limit = there.rate_bps / PACKET_BITS, float(there.queue.limit_packets or 0)
    bdp, step_s = capacity * rtt_s, phase.sampling_interval_ns / 1e9 / STEPS
    n = len(phase.flows)
    cwnd, ssthresh, state = [10.0] * n, [1e9] * n, [OPEN] * n
    delivered, lost, drops = [0.0] * n, [0] * n, 0
    rows: list[list[tuple[float, ...]]] = [[] for _ in range(n + 1)]
    for step in range(phase.duration_ns // phase.sampling_interval_ns * STEPS):
        flight = sum(cwnd)
        queue = min(max(flight - bdp, 0.0), limit)
        rtt = rtt_s + queue / capacity
        served = min(capacity, flight / rtt) * step_s
        hit = -1
        if flight > bdp + limit:
            hit = 0 if rng.random() * flight < cwnd[0] else 1
        for i in range(n):
            delivered[i] += served * cwnd[i] / flight
            state[i] = OPEN
            if i == hit:
                kind = rng.random()
                state[i] = CWR if kind < STALLS else LOSS if kind < STALLS + TIMEOUTS else RECOVERY
                ssthresh[i] = max(cwnd[i] / 2, 2.0)
                cwnd[i] = 1.0 if state[i] == LOSS else ssthresh[i]
                gone = 0 if state[i] == CWR else 1 + int(rng.poisson(1.5))
                lost[i], drops = lost[i] + gone, drops + gone
            elif cwnd[i] < ssthresh[i]:
                cwnd[i] = min(cwnd[i] * 2 ** (step_s / rtt), bdp + limit + 1)
            else:
                cwnd[i] += step_s / rtt
        if step % STEPS == STEPS // 2:
            t_ns = step * phase.sampling_interval_ns // STEPS
            for i in range(n):
                rows[i].append((t_ns, state[i], cwnd[i], ssthresh[i], rtt, delivered[i], lost[i]))
            rows[n].append((t_ns, queue, sum(delivered), drops))
    names = ["t_ns", "ca_state", "cwnd", "ssthresh", "rtt_s", "delivered", "lost"]
    flows = [pl.DataFrame(own, schema=names, orient="row") for own in rows[:n]]
    return flows, pl.DataFrame(rows[n], schema=["t_ns", "queue", "sent", "drops"], orient="row")


def sender(flow: pl.DataFrame) -> pl.DataFrame:
    """TCP_INFO of the sending end."""
    packets, cwnd, again = pl.col("delivered").cast(pl.Int64), pl.col("cwnd").cast(pl.Int64), pl.col("lost")
    rtt_us, acked = (1e6 * pl.col("rtt_s")).cast(pl.Int64), packets * MSS
    losing = pl.col("ca_state") >= RECOVERY
    return flow.select(
        "t_ns",
        "ca_state",
        rto_us=200_000 + rtt_us,
        unacked=cwnd,
        sacked=pl.when(losing).then(cwnd // 2).otherwise(0),
        lost=pl.when(losing).then(2).otherwise(0),
        retrans=pl.when(losing).then(1).otherwise(0),
        last_data_recv_ms=pl.col("t_ns") // 10**6,
        srtt_us=rtt_us,
        rttvar_us=rtt_us // 30,
        snd_ssthresh=pl.min_horizontal(pl.col("ssthresh").cast(pl.Int64), pl.lit(2**31 - 1)),
        snd_cwnd=cwnd,
        total_retrans=again,
        bytes_acked=acked + 38,
        segs_out=packets + cwnd + again,
        segs_in=packets // 2,
        notsent_bytes=500_000 + acked % 200_000,
        data_segs_out=packets + cwnd + again,
        delivery_rate_Bps=(cwnd * MSS / pl.col("rtt_s")).cast(pl.Int64),
        busy_time_us=pl.col("t_ns") // 1000,
        delivered=packets,
        bytes_sent=acked + (cwnd + again) * MSS,
        bytes_retrans=again * MSS,
        pacing_rate_Bps=(1.2 * cwnd * MSS / pl.col("rtt_s")).cast(pl.Int64),
        min_rtt_us=rtt_us.cum_min(),
        skmem_wmem_queued_bytes=600_000 + acked % 200_000,
        wqueue_bytes=500_000 + acked % 200_000 + cwnd * MSS,
        **{name: pl.lit(value, pl.Int64) for name, value in (BOTH | SENDER).items()},
    )


def receiver(flow: pl.DataFrame) -> pl.DataFrame:
    """TCP_INFO of the receiving end."""
    packets = pl.col("delivered").cast(pl.Int64)
    return flow.select(
        "t_ns",
        last_data_sent_ms=pl.col("t_ns") // 10**6,
        rcv_rtt_us=(1e6 * pl.col("rtt_s")).cast(pl.Int64),
        bytes_received=packets * MSS + 37,
        segs_out=packets // 2,
        segs_in=packets,
        data_segs_in=packets,
        rcv_ooopack=pl.col("lost") * 20,
        **{name: pl.lit(value, pl.Int64) for name, value in (BOTH | RECEIVER).items()},
    )


def bottleneck(queue: pl.DataFrame, limit_packets: int) -> pl.DataFrame:
    """Statistics of the router's queue."""
    length, packets = pl.col("queue").cast(pl.Int64), pl.col("sent").cast(pl.Int64)
    return queue.select(
        "t_ns",
        "drops",
        backlog_bytes=length * PACKET_BITS // 8,
        qlen_packets=length,
        bytes=packets * PACKET_BITS // 8,
        packets=packets,
        overlimits=pl.lit(0),
        requeues=pl.lit(0),
        limit_packets=pl.lit(limit_packets),
    )


def spelled(head: str, rows: pl.DataFrame, t0: int, more: str = "") -> Iterator[str]:
    """Rows of integers in line protocol, after a measurement and its tags."""
    fields = [name for name in rows.columns if name != "t_ns"]
    text = ",".join(f"{name}={{}}i" for name in fields)
    stamps = [pl.col("t_ns") + 10**12, pl.col("t_ns") + t0]
    line = pl.format(f"{head} {text}{more},mono_ns={{}}i {{}}", *fields, *stamps)
    for part in rows.iter_slices(CHUNK):
        yield from part.select(line.alias("line"))["line"]


def write(run_dir: Path) -> None:
    """Write the run directory as it would come home."""
    made: dict[str, tuple[list[pl.DataFrame], pl.DataFrame]] = {}

    def measured(planned: Point, phase: Phase, host: str) -> Iterator[str]:
        assert planned.path
        if not made:
            made["run"] = simulate(planned, phase)
        flows, queue = made["run"]
        t0, common = T0_UNIX_NS[phase.phase], f"phase={phase.phase},point={planned.id},run={RUN_ID}"
        for flow, samples in zip(phase.flows, flows, strict=True):
            if flow.name in phase.hosts[host].sample.tcp:
                side, ends = ("sender", sender) if host == flow.src_host else ("receiver", receiver)
                tags = f"flow={flow.name},host={host},{common},side={side},stream=0"
                more = f',cookie=26i,congestion_control="{flow.congestion_control}"'
                yield from spelled(f"tcp_info,{tags}", ends(samples), t0, more)
        if phase.hosts[host].sample.qdisc:
            tags = f"dev=vec2,handle=10:,host={host},kind=pfifo,parent=1:1,{common}"
            rows = bottleneck(queue, planned.path.forward.queue.limit_packets or 0)
            yield from spelled(f"qdisc,{tags}", rows, t0)

    write_run(run_dir, SCENARIO, measured=measured)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_dir", type=Path, help="directory to write; it must not be there")
    write(parser.parse_args().run_dir)
