"""What counters, samples and probes report about the path, in the units of the plan."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Literal

import polars as pl

from dumbbell import analysis
from dumbbell.chance import RARELY
from dumbbell.plan import (
    Direction,
    Flow,
    PlannedPath,
    Probe,
    Way,
    datagram_headers_bytes,
    probe_name,
)
from dumbbell.plan.path import BURST_S, Conditions, GilbertElliott
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json

TC_ROUNDING_US = 1  # tc stores delays in ticks of 64 ns and shows them cut to whole microseconds
# Precision of values read back, by unit: rates are stored in bytes, shares in 32 bits.
RESOLUTION = {"us": TC_ROUNDING_US, "bps": 8}
LEAST_SHARE = 2**-32
TIMESTAMP_NS = 1_000_000  # the RTT of retransmitted packets comes from TCP's timestamps, in ms

NETEM_SHARES = ("loss", "duplicate", "corrupt", "reorder")
GEMODEL = ("p", "r", "loss_bad", "loss_good")
GEMODEL_FIELDS = tuple(f"gemodel_{name}" for name in GEMODEL)
SLOT_FIELDS = ("slot_min_ns", "slot_max_ns")
NETEM = ("parent", "delay_ns", "jitter_ns", "rate_bps", *NETEM_SHARES, *GEMODEL_FIELDS, *SLOT_FIELDS)
BUCKET = ("rate_bps", "burst_ns")
QUEUE = ("limit_packets", "limit_bytes", "ecn", "target_us", "interval_us")


def agrees(asked: Any, found: Any, resolution: float = LEAST_SHARE) -> bool:
    """Whether each requested value was found, within precision; a zero may be absent."""
    if found is None:
        return not asked
    if isinstance(asked, dict):
        return isinstance(found, dict) and all(
            agrees(value, found.get(key), _resolution(key, asked)) for key, value in asked.items()
        )
    if isinstance(asked, list):
        return isinstance(found, list) and len(asked) == len(found) and all(map(agrees, asked, found))
    if isinstance(asked, int | float) and isinstance(found, int | float):  # tc shows six digits
        return math.isclose(asked, found, rel_tol=1e-5, abs_tol=resolution)
    return bool(asked == found)


def _resolution(key: str, among: dict[str, Any]) -> float:
    """The precision with which the kernel holds a value: of a burst, it depends on the rate."""
    if key == "burst_bytes":
        return 1 + BURST_S * float(among["rate_bps"]) / 8
    return RESOLUTION.get(key.rpartition("_")[2], LEAST_SHARE)


# --- seen by flows --------------------------------------------------------------------------------


def first_min_rtts(tcp_info: pl.DataFrame, flow: Flow) -> pl.DataFrame:
    """The first sample since the flow's start of each of its connections: ``t_ns`` and ``min_rtt_us``."""
    if "min_rtt_us" not in tcp_info:
        return pl.DataFrame(schema={"t_ns": pl.Int64, "min_rtt_us": pl.Int64})
    of = (pl.col("flow") == flow.name) & (pl.col("side") == "sender") & (pl.col("t_ns") >= flow.start_ns)
    rows = tcp_info.filter(of & pl.col("min_rtt_us").is_not_null()).sort("t_ns")
    return rows.group_by("stream").agg(pl.col("t_ns", "min_rtt_us").first()).drop("stream")


# --- the calibration ------------------------------------------------------------------------------


def served_bps(qdisc: pl.DataFrame, path: PlannedPath, flow: Flow) -> float | None:
    """Rate (bit/s) of a bottleneck while it had a queue; None if it never had one.

    ``qdisc`` has the columns of that measurement. If there are several bottlenecks, the one that sent most.
    """
    way = path.way(flow.direction)
    rows = qdisc.filter(
        (pl.col("phase") == "calibration")
        & (pl.col("kind") == way.queue.kind)
        & (pl.col("parent") != "root")
        & pl.col("t_ns").is_between(flow.start_ns, flow.end_ns)
    )
    if rows.is_empty():
        return None
    own = ("host", "dev", "handle")
    steps = rows.sort("t_ns").select(
        *own,
        sent_bytes=pl.col("bytes").diff().over(own),
        took_ns=pl.col("t_ns").diff().over(own),
        queued=(pl.min_horizontal("backlog_bytes", pl.col("backlog_bytes").shift().over(own)) > 0),
    )
    busy = steps.group_by(own).agg(pl.col("sent_bytes", "took_ns").filter("queued").sum())
    sent_bytes, took_ns = busy.sort("sent_bytes").select("sent_bytes", "took_ns").row(-1)
    return 8e9 * sent_bytes / took_ns if took_ns else None


def blast_rate_bps(path: PlannedPath, flow: Flow, sent: Any, arrived: Any) -> float | None:
    """Rate (bit/s) at which a blast arrived while it kept the bottleneck's queue full.

    The time ends with the last arrival, or earlier, when a full queue must have drained: a receiver that had
    to wait for a core gets the last packets later than they passed the path.
    """
    way = path.way(flow.direction)
    packets, first, last = (
        dig(arrived, key) for key in ("received_packets", "first_unix_ns", "last_unix_ns")
    )
    end = dig(sent, "last_unix_ns")
    if not packets or not end or not flow.payload_bytes:
        return None
    packet_bytes = flow.payload_bytes + datagram_headers_bytes(flow.src)
    if full_ns := way.fullest_ns(packet_bytes):
        last = min(last, end + 1000 * way.delay_us + full_ns)
    bits = 8 * packets * packet_bytes
    return bits * 1e9 / (last - first) / way.arriving if last > first and way.arriving else None


def lost_chances(way: Conditions, packets: int) -> list[float]:
    """Probabilities that a direction with these conditions loses 0, 1, 2 ... of so many packets.

    For losses in bursts, netem's Markov chain is followed packet by packet; it may start in either state.
    """
    bursts = way.loss_gemodel or GilbertElliott(p=0, r=1, loss_bad=0, loss_good=0)
    passes = (1 - way.loss) * (1 - (way.corrupt or 0))
    loses = [1 - passes * (1 - loss) for loss in (bursts.loss_good, bursts.loss_bad)]
    leaves = (bursts.p, bursts.r)
    bad = bursts.p / (bursts.p + bursts.r) if bursts.p else 0
    chances = [[1 - bad, *[0.0] * packets], [bad, *[0.0] * packets]]  # by state, by packets lost so far
    for _ in range(packets):
        after = [
            [one * (1 - lose) + before * lose for before, one in pairwise([0.0, *chance])]
            for chance, lose in zip(chances, loses, strict=True)
        ]
        chances = [
            [
                stay * (1 - leaves[state]) + come * leaves[1 - state]
                for stay, come in zip(after[state], after[1 - state], strict=True)
            ]
            for state in (0, 1)
        ]
    return [good + bad for good, bad in zip(*chances, strict=True)]


def most_lost(ways: Sequence[Conditions], packets: int) -> int:
    """The most packets of so many that these directions may lose together.

    One run in :data:`RARELY` loses more.
    """
    chances = [1.0]
    for way in ways:
        own = lost_chances(way, packets)
        chances = [
            sum(chances[i] * own[n - i] for i in range(max(0, n - packets), min(n, len(chances) - 1) + 1))
            for n in range(len(chances) + packets)
        ]
    more = 0.0
    for number in reversed(range(len(chances))):
        more += chances[number]
        if more > 1 / RARELY:
            return min(number, packets)
    return 0


def probe_ns(
    run: Run, flow: Flow, protocol: Literal["tcp", "udp"], probe: Probe, *, median: bool
) -> float | None:
    """Time of a probe's fastest packet, or of the median; a round trip over TCP, one way over UDP.

    None if fewer packets arrived than the path's loss allows.
    """
    name, path = probe_name(flow, probe), run.point.path
    assert path is not None
    if protocol == "tcp":
        found = read_json(run.raw(flow.client_host, "calibration", f"tcp-ping-{name}.json"))
        rtts, sent = dig(found, "rtts_ns"), dig(found, "sent")
        if not rtts or not sent or sent - len(rtts) > most_lost([path.forward, path.reverse], sent):
            return None
        return float(statistics.median(rtts) if median else min(rtts))
    found = read_json(run.raw(flow.dst_host, "calibration", f"udp-{name}-receiver.json"))
    received, lost = dig(found, "received_packets"), dig(found, "lost_packets")
    if not received or lost is None or lost > most_lost([path.way(flow.direction)], received + lost):
        return None
    delay = dig(found, "delay_p50_ns" if median else "delay_min_ns")
    return None if delay is None else float(delay)


# --- delay lines ----------------------------------------------------------------------------------


def has_delay_line(way: Direction, trim_us: int) -> bool:
    """Whether packets pass a netem: without delay, loss or the like behind the bottleneck there is none.

    ``trim_us`` is the delay of the real path, which counts towards the requested delay.
    """
    does = ("loss", "loss_gemodel", "jitter_us", "duplicate", "corrupt", "reorder", "slot")
    return bool(way.flows) or any(
        state.delay_us > trim_us or any(getattr(state, name) for name in does) for _, state in way.states
    )


def dropped_share(qdisc: pl.DataFrame) -> float | None:
    """Share of packets that qdiscs dropped; None if none was sampled twice.

    ``qdisc`` has the columns of that measurement.
    """
    own = ("dev", "handle")
    rows = qdisc.filter(pl.len().over(own) > 1)
    if rows.is_empty():
        return None
    dropped, passed = rows.select(
        analysis.grown_u32(pl.col(name)).over(own, order_by="t_ns").sum() for name in ("drops", "packets")
    ).row(0)
    return float(dropped / (dropped + passed)) if dropped else 0.0


def most_at_once(qdisc: pl.DataFrame, rate_bps: int) -> float | None:
    """The most bytes that a qdisc sent beyond a rate in any time between two samples; None without two."""
    if qdisc.height <= 1:
        return None
    beyond = qdisc.sort("t_ns").select(pl.col("bytes") - pl.col("t_ns") * (rate_bps / 8e9)).to_series()
    most = (beyond - beyond.cum_min()).max()
    return None if most is None else float(most)  # type: ignore[arg-type]


DROPS_FROM = ("phase", "host", "dev", "kind", "handle", "parent", "t_ns", "drops")  # columns of qdisc


def drops_of(run: Run, tables: Mapping[str, pl.DataFrame], way: Way) -> pl.DataFrame:
    """Packets that the policer of a direction and its other stages dropped so far in the measurement.

    ``[t_ns, policed, others]``, at each time of which there is a sample; empty without a policer.
    """
    rows = tables.get("qdisc")
    found = []
    for host in run.routers if rows is not None and {*DROPS_FROM} <= {*rows.columns} else []:
        assert rows is not None
        places = dig(run.states.get(host), "path", "devices", way) or {}
        own = rows.filter(
            pl.col("dev").is_in([device for device in places.values() if device]),
            phase="measurement",
            host=host,
        )
        # The root over a queue counts what the queue drops.
        found.append(own.filter((pl.col("parent") != "root") | (pl.col("kind") == "netem")))
    samples = pl.concat(found) if found else pl.DataFrame()
    if samples.is_empty() or samples.filter(kind="police").is_empty():
        return pl.DataFrame(schema=dict.fromkeys(("t_ns", "policed", "others"), pl.Int64))
    series = ("host", "dev", "kind", "handle", "parent")
    grown = analysis.grown_u32(pl.col("drops")).over(series)
    is_policer = pl.col("kind") == "police"
    steps = samples.sort("t_ns").select("t_ns", is_policer.alias("policer"), grown=grown.fill_null(0))
    sums = steps.group_by("t_ns").agg(
        policed=pl.col("grown").filter(pl.col("policer")).sum(),
        others=pl.col("grown").filter(~pl.col("policer")).sum(),
    )
    return sums.sort("t_ns").with_columns(pl.col("policed", "others").cum_sum())


# --- changes within a run -------------------------------------------------------------------------


def conditions_held(
    run: Run, tables: dict[str, pl.DataFrame], host: str, name: Way, span_unix_ns: tuple[int, int | None]
) -> list[dict[str, Any]]:
    """All conditions of a direction in a time, from the qdisc settings in every sample; empty without any.

    They have the keys of :class:`Conditions`, except the distribution, which no kernel shows. The delay
    includes that of the real path, and excludes the flows' own delays.
    """
    about = dig(run.states[host], "path")
    bottleneck, delay_line = (dig(about, "devices", name, stage) for stage in ("bottleneck", "delay_line"))
    assert run.point.path is not None
    way = run.point.path.way(name)
    own_us = sorted({0, *(flow.delay_us for flow in way.flows or [])})  # one per band of the delay line
    start, end = span_unix_ns

    def settings(table: str, device: Any, kind: str, names: Sequence[str]) -> list[dict[str, Any]]:
        rows = tables.get(table, pl.DataFrame())
        if device is None or rows.is_empty():
            return []
        own = rows.filter(pl.col("unix_ns") >= start, phase="measurement", host=host, dev=device, kind=kind)
        own = own if end is None else own.filter(pl.col("unix_ns") < end)
        return own.select(n for n in names if n in own.columns).unique(maintain_order=True).to_dicts()

    def burst_bytes(of: dict[str, Any]) -> int | None:
        time_ns, rate_bps = of.get("burst_ns"), of.get("rate_bps")
        return None if time_ns is None or rate_bps is None else round(time_ns * rate_bps / 8e9)

    classes = settings("tc_class", bottleneck, "htb", BUCKET if way.burst_bytes else BUCKET[:1])
    policers = settings("qdisc", delay_line, "police", BUCKET) or [{}]
    queues = settings("qdisc", bottleneck, way.queue.kind, QUEUE)
    netems = settings("qdisc", delay_line, "netem", NETEM) or [{}]  # without delay and loss there is none
    found = []
    for held, queue, policer, netem in product(classes, queues, policers, netems):
        band = int(netem.get("parent", "").partition(":")[2] or "1", 16) - 1
        delay_us = (netem.get("delay_ns") or 0) / 1000 + (dig(about, "trim_us") or 0) - own_us[band]
        gemodel = [netem.get(field) for field in GEMODEL_FIELDS]
        slot = [netem[field] / 1000 for field in SLOT_FIELDS if netem.get(field) is not None]
        found.append(
            {"rate_bps": held.get("rate_bps"), "delay_us": round(delay_us, 3)}
            | ({"burst_bytes": burst_bytes(held)} if way.burst_bytes else {})
            | (
                {"policer": {"rate_bps": policer.get("rate_bps"), "burst_bytes": burst_bytes(policer)}}
                if policer
                else {}
            )
            | {key: netem.get(key) for key in NETEM_SHARES}
            | {"loss_gemodel": None if None in gemodel else dict(zip(GEMODEL, gemodel, strict=True))}
            | {"slot": dict(zip(("min_us", "max_us"), slot, strict=True)) if slot else None}
            | {"jitter_us": (netem.get("jitter_ns") or 0) / 1000, "keep_order": bool(netem.get("rate_bps"))}
            | {"queue": {"kind": way.queue.kind} | {k: v for k, v in queue.items() if v is not None}}
        )
    return found


def holds(asked: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether a direction had the requested conditions and no others."""
    return agrees(asked, found) and not any(value for key, value in found.items() if key not in asked)
