"""Each flow began in time, over the path of its start, with the congestion control that it asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.run.content import (
    IN_MEASUREMENT,
    congestion_controls,
    ping_replies,
    start_error_ns,
)
from dumbbell.run.of_flows import (
    failures,
    paced_bps,
    pacing_bps,
    why_no_start,
)
from dumbbell.run.of_path import (
    TIMESTAMP_NS,
    first_min_rtts,
)
from dumbbell.units import human
from dumbbell.validity.asked import Asked
from dumbbell.validity.check import Check, close, fact, same
from dumbbell.validity.programs import NDT, atou, datagrams, fetches, iperf3, ndt
from dumbbell.validity.sampling import sampled


def checks(of: Asked) -> Iterator[Check]:
    """All of the flows of the measurement."""
    tcp_info = of.tables["tcp_info"].filter(pl.col("phase") == "measurement")
    fetched = analysis.fetches(of.tables["http_fetch"].filter(IN_MEASUREMENT))
    for flow in of.measurement.flows:
        for failure in failures(of.run, flow):
            yield fact("program", flow.name, "no error", failure, ok=False, reason=failure)
        if flow.kind in NDT:
            yield from ndt(of, flow)
            continue
        if flow.kind == "command":
            continue  # that it ran is what the agent's state says
        yield close(
            "start",
            flow.name,
            0,
            start_error_ns(of.run, flow),
            tolerance=of.point.validity.start_error_ns,
            unit="ns",
            what="start error",
            missing=why_no_start(of.run, flow),
        )
        if flow.kind == "udp":
            yield from datagrams(of, flow)
        if flow.kind in ("iperf3_tcp", "iperf3_udp"):
            yield from iperf3(of, flow)
        yield from _path_met(of, flow, tcp_info)
        if flow.kind == "atou":
            yield from atou(of, flow, tcp_info)
        if flow.congestion_control is None:
            continue
        found = ", ".join(sorted(congestion_controls(of.run, of.tables, flow))) or None
        yield same("congestion control", flow.name, flow.congestion_control, found, what="congestion control")
        if flow.kind == "http":
            yield from fetches(of, flow, fetched.filter(pl.col("flow") == flow.name))
            continue
        for side in ("sender", "receiver"):
            rows = tcp_info.filter((pl.col("flow") == flow.name) & (pl.col("side") == side))
            streams = rows["stream"].n_unique()
            reason = "" if streams == flow.streams else f"{streams} of {flow.streams} connections sampled"
            yield fact(
                "connections sampled",
                f"{flow.name} {side}",
                flow.streams,
                streams,
                ok=not reason,
                reason=reason,
            )
            if flow.kind == "iperf3_tcp" and not flow.bytes:
                yield from sampled(of, flow, side, rows, flow.end_ns)
        if flow.pacing_bps is not None:
            yield from _pacing(of, flow, flow.pacing_bps, tcp_info)


def pings(of: Asked) -> Iterator[Check]:
    """A ping beside the flows had enough replies for its RTTs to be those of the path.

    Full queues drop echoes too, and nobody asked how many; what the path is asked to lose comes on top.
    """
    path = of.point.path
    arriving = [min(state.arriving for _, state in way.states) for _, way in path.ways] if path else []
    least = of.point.validity.ping_replies * math.prod(arriving)
    for host, ping in of.run.pings("measurement"):
        share = len(ping_replies(of.run.raw(host, "measurement", f"ping-{ping.name}.txt"))) / ping.count
        what = "share of its echo requests that were answered"
        reason = f"{what} is {human(share, 'share')}, asked at least {human(least, 'share')}"
        ok = share >= least
        yield fact("ping replies", ping.name, least, share, unit="share", ok=ok, reason="" if ok else reason)


def _path_met(of: Asked, flow: Flow, tcp_info: pl.DataFrame) -> Iterator[Check]:
    """Connections that are made ahead met no path with a lower RTT than that of the flow's start has."""
    path = of.point.path
    if path is None or flow.kind not in ("iperf3_tcp", "atou"):
        return
    first = first_min_rtts(tcp_info, flow)
    requested, measured, tolerance = None, None, None
    reason = "the least RTT of its connections is not known: no sample has it after the start"
    if not first.is_empty():
        until_ns, measured = first.select(pl.col("t_ns").max(), 1000 * pl.col("min_rtt_us").min()).row(0)
        requested = path.least_rtt_ns(flow.start_ns, until_ns) + 1000 * (flow.delay_us or 0)
        tolerance = TIMESTAMP_NS + of.point.validity.rtt_tolerance * requested
        reason = ""
        if measured < requested - tolerance:
            reason = f"it met an RTT of {human(measured, 'ns')} before its start, and its path has"
            reason += f" {human(requested, 'ns')}: it was connected over another"
    yield fact(
        "path met",
        flow.name,
        requested,
        measured,
        tolerance=tolerance,
        unit="ns",
        ok=not reason,
        reason=reason,
    )


def _pacing(of: Asked, flow: Flow, asked_bps: int, tcp_info: pl.DataFrame) -> Iterator[Check]:
    """The kernel keeps each socket to the rate that was asked, in whole bytes per second."""
    rows = tcp_info.filter(flow=flow.name, side="sender")
    found, missing = pacing_bps(rows, asked_bps)
    yield close(
        "pacing", flow.name, asked_bps, found, tolerance=7, unit="bps", what="pacing", missing=missing
    )
    most = asked_bps * (1 + of.point.validity.rate_tolerance)
    rate, reason = paced_bps(rows, flow.start_ns - of.point.validity.start_error_ns), ""
    if rate is None:
        reason = "rate at which it was paced not known: the kernel does not tell what was sent"
    elif rate > most:
        reason = f"rate at which it was paced is {human(rate, 'bps')}, asked at most {human(most, 'bps')}"
    yield fact("paced rate", flow.name, most, rate, unit="bps", ok=not reason, reason=reason)
