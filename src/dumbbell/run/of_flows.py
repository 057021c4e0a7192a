"""What samples, tools and agents report about a flow of the measurement, in the units of the plan."""

from __future__ import annotations

from typing import Any

import polars as pl

from dumbbell.plan import Flow
from dumbbell.run.content import Run

UNPACED_SEGMENTS = 10  # segments that the kernel sends on a connection before it paces
SUPER_PACKET_BYTES = 2**16  # the largest packet that the kernel hands to the network
SAID = 300  # characters of the output of a failed program that are quoted


def pacing_bps(tcp_info: pl.DataFrame, asked_bps: int) -> tuple[float | None, str]:
    """The kernel's pacing rate of a sender's sockets (bit/s), and the reason if it is None.

    Of several sockets it is the rate furthest from ``asked_bps``. ``tcp_info`` has the sender's rows; rows
    before its first data may precede the setting and are ignored.
    """
    if tcp_info.is_empty() or "data_segs_out" not in tcp_info.columns:
        return None, "its sender was not sampled"
    sending = tcp_info.filter(pl.col("data_segs_out") > 1)
    if sending.is_empty():
        return None, "it sent no data"
    limit = "max_pacing_rate_Bps"
    if limit not in sending.columns or sending[limit].has_nulls():
        return None, "the kernel does not limit the sender's socket"
    return max((8.0 * Bps for Bps in sending[limit].unique()), key=lambda bps: abs(bps - asked_bps)), ""


def paced_bps(tcp_info: pl.DataFrame, start_ns: int) -> float | None:
    """Rate (bit/s) of the payload that a sender sent, with retransmissions, from its start to its last row.

    Of several streams the highest. ``tcp_info`` has the sender's rows. What the kernel sends before it paces
    is not counted.
    """
    if not {"bytes_sent", "snd_mss", "t_ns"} <= {*tcp_info.columns}:
        return None
    paced = pl.col("bytes_sent") - UNPACED_SEGMENTS * pl.col("snd_mss") - SUPER_PACKET_BYTES
    time_ns = pl.col("t_ns").last() - start_ns
    rates = tcp_info.sort("t_ns").group_by("stream").agg((8e9 * paced.last().clip(0) / time_ns).alias("bps"))
    highest: Any = rates["bps"].max()
    return None if highest is None else float(highest)


def unsampled_share(tcp_info: pl.DataFrame, span_ns: tuple[int, int], interval_ns: int) -> float | None:
    """Share of a time that is further from the next sample than the sampling interval; of the worst stream.

    ``tcp_info`` has the rows of one end of a flow. None if it has none in that time.
    """
    start, end = span_ns
    rows = tcp_info.filter(pl.col("t_ns").is_between(start, end))
    missed = []
    for _, stream in rows.group_by("stream"):
        times = pl.concat([pl.Series([start]), stream["t_ns"].sort(), pl.Series([end])])
        missed.append(int((times.diff() - 2 * interval_ns).clip(0).sum()) / (end - start))
    return max(missed, default=None)


def failures(run: Run, flow: Flow) -> list[str]:
    """Failures of the flow's programs that agents reported, in order of time."""
    found = []
    for event in run.agent_events:
        if (event.get("event"), event.get("flow"), event["phase"]) == (
            "process_exit",
            flow.name,
            "measurement",
        ):
            words = " ".join(str(event.get("stderr") or "it said nothing").split())[:SAID]
            found.append(
                f"{event.get('action')} on {event['host']} ended with code {event.get('code')}: {words}"
            )
    return found


def why_no_start(run: Run, flow: Flow) -> str:
    """Why the agent saw no first data of a flow: what it reported, the first first; else what to try."""
    events = (
        run.event(name, flow=flow.name, phase="measurement") for name in ("flow_held", "flow_first_data")
    )
    reasons = [str(event["reason"]) for event in events if event and event.get("reason")]
    asked = f"{' and '.join(flow.protocols).upper()} port {flow.server_port} of {flow.server_host}"
    return "; ".join(reasons) or (
        f"the agent saw no first data. Is {asked} open to {flow.client_host}? playbooks/check.yml tries it "
        "and names the firewall"
    )
