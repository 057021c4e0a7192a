"""What samples, tools and agents say of a flow of the measurement, in the words of the plan."""

from __future__ import annotations

from typing import Any

import polars as pl

from dumbbell.plan import Flow
from dumbbell.rundir import read_json
from dumbbell.store.run import Run, dig

SAID = 300  # characters of what a program wrote when it failed


def client_report(run: Run, flow: Flow) -> Any:
    """What the flow's iperf3 client left; None if that is nothing."""
    return read_json(run.raw(flow.src_host, "measurement", f"iperf3-{flow.name}-client.json"))


def sent_bps(run: Run, flow: Flow) -> float | None:
    """Payload that the sender of a flow of datagrams has sent, over the time that was planned."""
    if flow.kind == "udp":
        sent = read_json(run.raw(flow.src_host, "measurement", f"udp-{flow.name}-sender.json"))
        found: float | None = dig(sent, "sent_bps")
        return found
    sums = [dig(interval, "sum", "bytes") for interval in dig(client_report(run, flow), "intervals") or []]
    if not sums or not all(isinstance(count, int) for count in sums):
        return None
    return float(sum(sums) * 8e9 / flow.duration_ns)


def pacing_bps(tcp_info: pl.DataFrame, asked_bps: int) -> tuple[float | None, str]:
    """The limit that the kernel had for the sockets of a sender, and why it is not known.

    Of several the one that is furthest from what was asked. ``tcp_info`` has the sender's rows; those before
    its data may be from before it had set the limit.
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


def unsampled_share(tcp_info: pl.DataFrame, span_ns: tuple[int, int], interval_ns: int) -> float | None:
    """Share of a time that is further from the next sample than the sampling interval; of the worst stream.

    ``tcp_info`` has the rows of one end of a flow. None without any in that time.
    """
    start, end = span_ns
    rows = tcp_info.filter(pl.col("t_ns").is_between(start, end))
    missed = []
    for _, stream in rows.group_by("stream"):
        times = pl.concat([pl.Series([start]), stream["t_ns"].sort(), pl.Series([end])])
        missed.append(int((times.diff() - 2 * interval_ns).clip(0).sum()) / (end - start))
    return max(missed, default=None)


def failures(run: Run, flow: Flow) -> list[str]:
    """What agents say went wrong with the programs of a flow, in order of time."""
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
    """Why the agent saw no first data of a flow, from the first thing that went wrong on."""
    events = (
        run.event(name, flow=flow.name, phase="measurement") for name in ("flow_held", "flow_first_data")
    )
    reasons = [str(event["reason"]) for event in events if event and event.get("reason")]
    return "; ".join(reasons) or "the agent saw no first data"
