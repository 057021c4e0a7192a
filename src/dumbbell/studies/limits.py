"""What limited each flow of a point, and what would lift the limit."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.kinds.found import FOUND
from dumbbell.metrics.flows import limits, mean_goodput, until_done
from dumbbell.metrics.registry import METRICS, NOT_COUNTED
from dumbbell.plan import Flow
from dumbbell.plan.path import POLICER_S, Policer
from dumbbell.plan.windows import default_window
from dumbbell.run.of_path import DROPS_FROM
from dumbbell.studies.source import Missing, Source
from dumbbell.units import human

FULL = 0.9  # of what a path carries of payload: flows together that get more fill it
PAYLOAD = 1448 / 1514  # of full packets
_READ = (*analysis.LIMITS_FROM, "total_retrans", "data_segs_out", "phase")
_AT_RECEIVER = "there are samples of its receiver only, and the sender's kernel counts what limits a flow"


class Limited(NamedTuple):
    """A flow with the shares of its time, by limit and cause, None if not known, and a sentence about it."""

    flow: Flow
    shares: analysis.Shares | None
    sentence: str


class Numbers(NamedTuple):
    """Medians over the samples at which the limit held; what was not sampled is None."""

    rtt_ns: float | None
    snd_wnd_bytes: float | None
    in_flight_bytes: float | None
    cwnd_bytes: float | None
    sndbuf_bytes: float | None
    max_pacing_bps: float | None
    goodput_bps: float | None
    retransmits: float | None  # share of all segments
    path_bps: float | None  # the rate of the path in its direction
    path_full: bool  # whether all flows of the direction together fill it
    policer: Policer | None = None  # of its direction, at its end
    loss: float = 0  # the share of packets that its direction is asked to lose, at its end


def what_limited(source: Source) -> list[Limited]:
    """Each TCP flow that the kernel counted for, in the plan's order; Missing if there is none."""
    flows = [
        flow for flow in source.planned_flows if METRICS["cwnd_limited"].of(flow) and "tcp" in flow.protocols
    ]
    if not flows:
        raise Missing("No flow of this point has a TCP connection that was followed in the kernel.")
    tables = {"tcp_info": source.rows("tcp_info", *_READ), "http_fetch": source.rows("http_fetch")}
    ends = analysis.fetch_ends(tables["http_fetch"])
    with contextlib.suppress(Missing):  # runs of older versions have none
        tables["cpu_core"] = source.rows("cpu_core")
    with contextlib.suppress(Missing):
        tables["qdisc"] = source.rows("qdisc", *DROPS_FROM)
    limited = limits(source.opened, tables)
    found = []
    for flow in flows:
        window = default_window([flow.life_ns], source.plan.warm_up_ns)
        window = window and until_done(source.counters, flow, window)
        own = limited.filter(flow=flow.name)
        shares = analysis.limit_shares(own, window) if window else None
        if shares is None or window is None:
            sampled = tables["tcp_info"].filter(flow=flow.name)
            why = NOT_COUNTED if sampled.is_empty() or "sender" in sampled["side"] else _AT_RECEIVER
            found.append(Limited(flow, None, f"Not known: {why}."))
            continue
        leaves = {name: share for name, share in shares.items() if name != "cwnd_limited"}
        by = max(leaves, key=leaves.__getitem__)
        of_flows = tables["tcp_info"] if flow.of_kind.follows_sockets else ends
        samples = of_flows.filter(flow=flow.name, side="sender")
        inside = own.filter(pl.col("t_ns").is_between(*window))
        held = inside.filter(pl.col(by) > pl.col("dt_ns") / 2)
        at = (held if held.height else inside).select("stream", "t_ns")
        held_at = samples.join(at, on=["stream", "t_ns"], how="semi")
        _, retransmits = FOUND[flow.kind].retransmitted(tables, flow)
        numbers = _numbers(source, flow, window, held_at, retransmits)
        found.append(Limited(flow, shares, sentence(by, flow, numbers)))
    return found


def _numbers(
    source: Source, flow: Flow, window: tuple[int, int], held: pl.DataFrame, retransmits: float | None
) -> Numbers:
    """``held`` are the samples at which the limit held."""

    def median(value: pl.Expr, *columns: str) -> float | None:
        if not {*columns} <= {*held.columns}:
            return None
        found = held.select(value.median()).item()
        return None if found is None else float(found)

    mss, path = pl.col("snd_mss"), source.plan.path
    way = path.way(flow.direction) if path else None
    path_bps = way.mean_rate_bps(*window) if way else None
    at_end = way.at(window[1]) if way else None
    together = [other for other in source.planned_flows if other.direction == flow.direction]
    goodputs = [mean_goodput(source.opened, source.counters, other, window) or 0 for other in together]
    return Numbers(
        rtt_ns=median(1000 * pl.col("srtt_us"), "srtt_us"),
        snd_wnd_bytes=median(pl.col("snd_wnd")),
        in_flight_bytes=median(pl.col("unacked") * mss),
        cwnd_bytes=median(pl.col("snd_cwnd") * mss),
        sndbuf_bytes=median(pl.col("skmem_sndbuf_bytes"), "skmem_sndbuf_bytes"),
        max_pacing_bps=median(8 * pl.col("max_pacing_rate_Bps"), "max_pacing_rate_Bps"),
        goodput_bps=mean_goodput(source.opened, source.counters, flow, window),
        retransmits=retransmits,
        path_bps=path_bps,
        policer=at_end.policer if at_end else None,
        loss=1 - at_end.arriving if at_end else 0,
        path_full=bool(path_bps) and sum(goodputs) >= FULL * PAYLOAD * (path_bps or 0),
    )


def sentence(by: str, flow: Flow, of: Numbers) -> str:
    """What one of the limits (or causes of cwnd_limited) did to a flow, with numbers, and what lifts it."""
    return _SENTENCES[by](flow, of)


def _allows(window_bytes: float | None, of: Numbers) -> str:
    """``32 KiB, which allows 26 Mbit/s at 10 ms``."""
    if not window_bytes or not of.rtt_ns:
        return f"{_size(window_bytes)}"
    rate, rtt = human(8e9 * window_bytes / of.rtt_ns, "bps"), human(of.rtt_ns, "ns")
    return f"{_size(window_bytes)}, which allows {rate} at {rtt}"


def _size(size_bytes: float | None) -> str:
    return "of a size that is not known" if size_bytes is None else f"{size_bytes / 1024:.4g} KiB"


def _raise_buffer(flow: Flow, option: str, sysctl: str, host: str) -> str:
    if flow.socket_buffer_bytes:
        return f"raise its socket_buffer of {_size(flow.socket_buffer_bytes)}"
    if asked := getattr(flow, f"{option}_bytes"):
        return f"raise its {option} of {_size(asked)}, or leave it out"
    return f"raise {sysctl} of {host}, or give it a larger buffer of its own ({option}, or socket_buffer)"


def _app(flow: Flow, of: Numbers) -> str:
    if flow.kind == "http":
        return (
            "Its server had nothing to send: it waited for the request, or all of a fetch was under way. "
            "Fetch more at once, or keep one connection."
        )
    if flow.rate_bps:
        return (
            f"Its application writes {human(flow.rate_bps, 'bps')}, as its rate asks, and TCP could send "
            "more: raise its rate, or leave it out."
        )
    return (
        f"Its application wrote {human(of.goodput_bps, 'bps')}, less than TCP would have sent: let it write "
        "more at once."
    )


def _sndbuf(flow: Flow, of: Numbers) -> str:
    buffer = f"Its sender's buffer of {_size(of.sndbuf_bytes)}" if of.sndbuf_bytes else "Its sender's buffer"
    lift = _raise_buffer(flow, "send_buffer", "net.ipv4.tcp_wmem", flow.src_host)
    return f"{buffer} had room for {_allows(of.in_flight_bytes, of)}: {lift}."


def _rwnd(flow: Flow, of: Numbers) -> str:
    lift = _raise_buffer(flow, "receive_buffer", "net.ipv4.tcp_rmem", flow.dst_host)
    return f"Its receiver's window was {_allows(of.snd_wnd_bytes, of)}: {lift}."


def _pacing(flow: Flow, of: Numbers) -> str:
    return f"Its pacing allows {human(of.max_pacing_bps, 'bps')} of payload: raise it, or leave it out."


def _cpu(flow: Flow, of: Numbers) -> str:
    return (
        f"A core of {flow.src_host} or {flow.dst_host} had less than 1 % left: turn offloads on, use "
        "a larger MTU, or spread flows over hosts."
    )


def _policer(flow: Flow, of: Numbers) -> str:
    asked = of.policer
    if asked is None:  # another was in its way before
        return _SENTENCES["cwnd_loss"](flow, of)
    burst, needed = asked.burst_bytes, math.ceil(asked.rate_bps * POLICER_S / 8)
    about = f"{human(asked.rate_bps, 'bps')} with a burst of {human(burst)} bytes"
    lift = "send less at once: pace, or use a smaller window"
    if burst < needed:
        lift = f"a burst of {human(needed)} bytes, a tenth of a second of its rate, or pacing lets TCP use it"
    return _cwnd(f", as drops of the policer of {about} left it", lift)(flow, of)


def _lift_losses(of: Numbers) -> str:
    found = "find what else loses packets"
    if of.loss:
        found = f"ask its path for less than the {human(of.loss, 'share')} of packets that it loses"
    return f"give its queue more room, {found}, or use a control that yields less to losses"


def _cwnd(why: str, lift: str) -> Callable[[Flow, Numbers], str]:
    def told(flow: Flow, of: Numbers) -> str:
        again = (
            f" {human(of.retransmits, 'share')} of its segments were sent again." if of.retransmits else ""
        )
        window = f"Its congestion window was {_allows(of.cwnd_bytes, of)}{why}.{again}"
        if of.path_full:
            return (
                f"{window} The path of {human(of.path_bps, 'bps')} is full: only a faster one carries more."
            )
        if of.path_bps is None:
            return f"{window} To get more, {lift}."
        rate = human(of.path_bps, "bps")
        return f"{window} The path of {rate} is not full: {lift}."

    return told


_SENTENCES: Mapping[str, Callable[[Flow, Numbers], str]] = {
    "app_limited": _app,
    "sndbuf_limited": _sndbuf,
    "rwnd_limited": _rwnd,
    "pacing_limited": _pacing,
    "cpu_limited": _cpu,
    "limit_unknown": lambda flow, of: (
        "Its counters went back or are missing for most of its time, so nothing is known."
    ),
    "cwnd_loss": lambda flow, of: _cwnd(", as losses left it", _lift_losses(of))(flow, of),
    "cwnd_policer": _policer,
    "cwnd_ecn": _cwnd(", as ECN marks left it", "let the queue mark later"),
    "cwnd_delay": _cwnd(
        ", which no loss had reduced",
        "its control measured a delay or a rate that says so; run it longer, or use another",
    ),
    "cwnd_slow_start": _cwnd(
        ", and still grew in slow start", "run it longer, or leave its start out with warm_up"
    ),
}
