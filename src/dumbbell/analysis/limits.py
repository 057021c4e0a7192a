"""What limited a flow at each time: its application, a buffer or window, its pacing, its host, or its cwnd.

The kernel counts how long a sender had data (``busy_time_us``), and how long of that the receiver's window
(``rwnd_limited_us``) or the sender's buffer (``sndbuf_limited_us``) held it back: ``tcp_chrono`` in
net/ipv4/tcp_output.c. What held it back in the rest of its busy time is read from the samples.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dumbbell.analysis.connection import INFINITE_SSTHRESH, KEY, PIPE, RECOVERY, senders
from dumbbell.analysis.processor import busy_intervals
from dumbbell.analysis.rates import grown_u32

# Every time of a flow counts to one of these; `limit_unknown` if counters and samples do not tell.
LIMITS = (
    *("app_limited", "sndbuf_limited", "rwnd_limited", "pacing_limited", "cpu_limited", "cwnd_limited"),
    "limit_unknown",
)
# Why the window was not larger: the last cause that reduced it. Their times add up to cwnd_limited.
CAUSES = ("cwnd_slow_start", "cwnd_loss", "cwnd_policer", "cwnd_ecn", "cwnd_delay")

COUNTERS = ("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us")
_STATE = (
    "ca_state",
    "snd_mss",
    "snd_cwnd",
    "snd_ssthresh",
    "unacked",
    "sacked",
    "lost",
    "retrans",
    "snd_wnd",
)
_NEEDED = (*COUNTERS, *_STATE, "notsent_bytes", "total_retrans", "delivered_ce")
_OPTIONAL = (
    "srtt_us",
    *("pacing_rate_Bps", "max_pacing_rate_Bps", "bbr_bw_Bps", "skmem_wmem_queued_bytes"),
    "skmem_sndbuf_bytes",
)
_OF_FETCHES = ("ca_state", "snd_cwnd", "snd_ssthresh", "total_retrans", "delivered_ce", "srtt_us")
LIMITS_FROM = (*KEY, "host", "side", "t_ns", *_NEEDED, *_OPTIONAL)

# The kernel counts in jiffies, of 10 ms at the most, and a sample may be stamped later than it was read: by
# this, or by half an interval. What one interval has too much, the next has too little.
SLACK_NS = 20_000_000
_PACED = 0.99  # of the largest pacing rate, from which on it is what paces
_FULL = 2 / 3  # of the sender's buffer: the kernel wakes a waiting writer below it (sk_stream_is_writeable)

_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(KEY, pl.String),
    **dict.fromkeys(("t_ns", "dt_ns"), pl.Int64),
    **dict.fromkeys((*LIMITS, *CAUSES), pl.Float64),
}

Shares = dict[str, float]


def limits(
    tcp_info: pl.DataFrame, cpu_core: pl.DataFrame | None = None, drops: pl.DataFrame | None = None
) -> pl.DataFrame:
    """How long each limit held between two samples of a sender.

    ``[flow, stream, t_ns, dt_ns, *LIMITS, *CAUSES]``, in ns; ``t_ns`` is the second sample. ``tcp_info`` has
    :data:`LIMITS_FROM`, as far as the kernel has them; ``cpu_core`` tells when a processor was busy: then
    its host's application is `cpu_limited`, and a receiver's window is, if it is the receiver's host. Empty
    without the counters. The time without data may be below 0 in an interval, by the kernel's jiffy.

    ``drops`` are the packets that the policer of a flow's direction and all else of it have dropped so far:
    ``[flow, t_ns, policed, others]``. A loss is the policer's if it dropped more than the others in the
    interval and the round trip before; if nothing was dropped then, it is that of the drops before.

    Where ``sndbuf_limited_us`` is null, as in captures, the rest of the busy time is `limit_unknown`.
    """
    if not {*_NEEDED, *KEY, "t_ns"} <= {*tcp_info.columns}:
        return pl.DataFrame(schema=_SCHEMA)
    rows = _rows(tcp_info, pl.col("t_ns").shift().over(KEY), cpu_core, drops)
    busy, rwnd, sndbuf = (1000 * pl.col(name).cast(pl.Int64).diff().over(KEY) for name in COUNTERS)
    lost, marked = ((grown_u32(pl.col(name)) > 0).over(KEY) for name in ("total_retrans", "delivered_ce"))
    rows = rows.with_columns(
        busy=busy,
        rwnd=rwnd,
        sndbuf=sndbuf,
        state=pl.when(pl.col(COUNTERS[2]).is_not_null()).then(_state()),
        cause=_cause(lost, marked),
    ).with_columns(
        # A window that is full at the sample is in the counter; what the rest of the time was like is seen at
        # the samples before and after.
        state=pl.coalesce(
            pl.col("state").forward_fill().over(KEY), pl.col("state").backward_fill().over(KEY)
        ),
        sndbuf=pl.col("sndbuf").fill_null(0),
        rest=pl.col("busy") - pl.col("rwnd") - pl.col("sndbuf").fill_null(0),
        idle=pl.col("dt_ns") - pl.col("busy"),
    )
    return _times(rows)


def fetch_limits(
    ends: pl.DataFrame, cpu_core: pl.DataFrame | None = None, drops: pl.DataFrame | None = None
) -> pl.DataFrame:
    """:func:`limits` of flows that fetch: a row for each fetch, ``dt_ns`` is how long it took.

    ``ends`` is of :func:`dumbbell.analysis.fetch_ends`; its kernel counted per connection. Until a request
    comes, the application is the limit. So it is for the last round trip of a fetch, when all is sent;
    what is left of the busy time belongs to the congestion window.
    """
    if not {*COUNTERS, *_OF_FETCHES, "t_ns"} <= {*ends.columns}:
        return pl.DataFrame(schema=_SCHEMA)
    rows = _rows(ends, pl.col("begun_ns"), cpu_core, drops)

    def grown(name: str) -> pl.Expr:
        total = pl.col(name).cast(pl.Int64)
        return total - total.shift(fill_value=0).over(KEY)  # a connection begins with nothing

    busy, rwnd, sndbuf = (1000 * grown(name) for name in COUNTERS)
    rest = busy - rwnd - sndbuf
    last = pl.min_horizontal(rest, 1000 * pl.col("srtt_us")).clip(0)
    rows = rows.with_columns(
        busy=busy,
        rwnd=rwnd,
        sndbuf=sndbuf,
        idle=pl.col("dt_ns") - busy + last,
        rest=rest - last,
        state=pl.lit("cwnd"),
        cause=_cause(grown("total_retrans") > 0, grown("delivered_ce") > 0),
    )
    return _times(rows)


def limit_shares(limited: pl.DataFrame, window_ns: tuple[int, int]) -> Shares | None:
    """Shares of the time of a flow in a window, by each of :data:`LIMITS` and :data:`CAUSES`.

    ``limited`` has the rows of :func:`limits` of one flow; its streams count alike. An interval at an edge of
    the window counts by its part in it. The shares of :data:`LIMITS` add up to 1, those of :data:`CAUSES` to
    ``cwnd_limited``. None if nothing is known of the window.
    """
    start, end = window_ns
    since = pl.col("t_ns") - pl.col("dt_ns")
    part = (pl.min_horizontal("t_ns", pl.lit(end)) - pl.max_horizontal(since, pl.lit(start))) / pl.col(
        "dt_ns"
    )
    inside = limited.with_columns(part=part).filter(pl.col("part") > 0)
    names = [*LIMITS, *CAUSES]
    sums = inside.select((pl.col(name) * pl.col("part")).sum() for name in names)
    times: Mapping[str, float] = {name: max(0.0, ns) for name, ns in zip(names, sums.row(0), strict=True)}
    total = sum(times[name] for name in LIMITS)
    return {name: ns / total for name, ns in times.items()} if total > times["limit_unknown"] else None


def _rows(
    of_both: pl.DataFrame, since_ns: pl.Expr, cpu_core: pl.DataFrame | None, drops: pl.DataFrame | None
) -> pl.DataFrame:
    """The rows of senders with ``since_ns``, ``dt_ns``, processors and policers; what is missing is null."""
    missing = [pl.lit(None, pl.Int64).alias(name) for name in _OPTIONAL if name not in of_both.columns]
    rows = senders(of_both.with_columns(missing)).with_columns(since_ns=since_ns)
    rows = rows.with_columns(dt_ns=pl.col("t_ns") - pl.col("since_ns"))
    return _with_policers(_with_processors(rows, of_both, cpu_core), drops)


def _times(rows: pl.DataFrame) -> pl.DataFrame:
    """How long each limit held in the ``dt_ns`` before a row, of what the kernel counted in it (ns).

    Those are ``busy``, ``rwnd``, ``sndbuf``, ``idle`` without data, and the ``rest``, which belongs to
    ``state`` and ``cause``.
    """
    rows = rows.filter(pl.col("dt_ns") > 0)
    slack = pl.max_horizontal(SLACK_NS, pl.col("dt_ns") // 2)
    consistent = pl.min_horizontal("rwnd", "sndbuf", "rest", pl.col("idle") + slack) >= 0
    known = (consistent & pl.all_horizontal(pl.col("busy", "rwnd").is_not_null())).fill_null(value=False)

    def of(state: str) -> pl.Expr:
        return pl.when(pl.col("state") == state).then("rest").otherwise(0)

    def while_known(ns: pl.Expr) -> pl.Expr:
        return pl.when(known).then(ns).otherwise(0).cast(pl.Float64)

    app, window = pl.col("idle") + of("app"), pl.col("rwnd")
    sender_busy, receiver_busy = pl.col("sender_busy"), pl.col("receiver_busy")
    found = {
        "app_limited": pl.when(sender_busy).then(0).otherwise(app),
        "sndbuf_limited": pl.col("sndbuf") + of("sndbuf"),
        "rwnd_limited": pl.when(receiver_busy).then(0).otherwise(window),
        "pacing_limited": of("pacing"),
        "cpu_limited": pl.when(sender_busy).then(app).otherwise(0)
        + pl.when(receiver_busy).then(window).otherwise(0),
        "cwnd_limited": of("cwnd"),
    }
    causes = {name: pl.when(pl.col("cause") == name).then(of("cwnd")).otherwise(0) for name in CAUSES}
    return rows.select(
        *KEY,
        "t_ns",
        "dt_ns",
        **{name: while_known(ns) for name, ns in found.items()},
        limit_unknown=pl.when(~known)
        .then("dt_ns")
        .when(pl.col("state").is_null())
        .then("rest")
        .otherwise(0)
        .cast(pl.Float64),
        **{name: while_known(ns) for name, ns in causes.items()},
    )


def _with_processors(
    rows: pl.DataFrame, tcp_info: pl.DataFrame, cpu_core: pl.DataFrame | None
) -> pl.DataFrame:
    """The rows with ``sender_busy`` and ``receiver_busy``: whether a core of that host had no time left."""
    no = pl.lit(value=False)
    if cpu_core is None or cpu_core.is_empty() or "host" not in rows.columns:
        return rows.with_columns(sender_busy=no, receiver_busy=no)
    receivers = tcp_info.filter(side="receiver").select("flow", peer="host").unique("flow")
    busy = busy_intervals(cpu_core).select("host", "t_ns", "busy").sort("t_ns")
    found = rows.join(receivers, on="flow", how="left").sort("t_ns")
    for end, host in (("sender_busy", "host"), ("receiver_busy", "peer")):
        of_host = busy.rename({"host": host, "busy": end})
        found = found.join_asof(of_host, on="t_ns", by=host, strategy="forward", check_sortedness=False)
    return found.with_columns(pl.col("sender_busy", "receiver_busy").fill_null(value=False)).sort(
        *KEY, "t_ns"
    )


def _with_policers(rows: pl.DataFrame, drops: pl.DataFrame | None) -> pl.DataFrame:
    """The rows with ``policed``: whether a policer made most of the latest drops; null if there were none."""
    if drops is None or drops.is_empty():
        return rows.with_columns(policed=pl.lit(value=False))
    since = pl.col("since_ns") - 1000 * pl.col("srtt_us").fill_null(0)
    found = rows.with_columns(since=since.fill_null(pl.col("t_ns"))).sort("t_ns")
    so_far = drops.select("flow", "t_ns", "policed", "others").sort("t_ns")
    found = found.join_asof(so_far, on="t_ns", by="flow", check_sortedness=False)
    before = so_far.rename({"t_ns": "since", "policed": "policed_before", "others": "others_before"})
    found = found.sort("since").join_asof(before, on="since", by="flow", check_sortedness=False)
    policed, others = (pl.col(name) - pl.col(f"{name}_before").fill_null(0) for name in ("policed", "others"))
    most = pl.when(policed + others > 0).then(policed > others)
    return found.with_columns(policed=most).sort(*KEY, "t_ns")


def _state() -> pl.Expr:
    """What holds a sender back that has data, at a sample: ``app``, ``sndbuf``, ``pacing`` or ``cwnd``.

    Null while the receiver's window is full, which the kernel counts itself. It also counts a full buffer,
    but only if it sends while the writer waits: not if a large write had sent all before it found no room.
    """
    mss = pl.col("snd_mss")
    nothing_to_send = pl.col("notsent_bytes") < mss
    below_cwnd = pl.col("snd_cwnd") > PIPE
    full_buffer = pl.col("skmem_wmem_queued_bytes") >= _FULL * pl.col("skmem_sndbuf_bytes")
    full_window = pl.col("snd_wnd") < (pl.col("unacked") + 1) * mss
    paced = pl.col("pacing_rate_Bps") >= _PACED * pl.col("max_pacing_rate_Bps")
    return (
        pl.when(below_cwnd & nothing_to_send & full_buffer.fill_null(value=False))
        .then(pl.lit("sndbuf"))
        .when(below_cwnd & nothing_to_send)
        .then(pl.lit("app"))
        .when(below_cwnd & full_window)
        .then(None)
        .when(below_cwnd & paced.fill_null(value=False))
        .then(pl.lit("pacing"))
        .otherwise(pl.lit("cwnd"))
    )


def _cause(retransmitted: pl.Expr, marked: pl.Expr) -> pl.Expr:
    """Why the window is not larger, one of :data:`CAUSES`: what reduced it last.

    Losses reduce it if ssthresh is finite; BBR has none and goes by the rate and the delay that it measures.
    """
    ssthresh = pl.col("snd_ssthresh")
    lost = retransmitted & (ssthresh < INFINITE_SSTHRESH)
    losing = (pl.col("ca_state") >= RECOVERY) | lost
    reduced = (
        pl.when(losing & pl.col("policed"))
        .then(pl.lit("cwnd_policer"))
        .when(losing & ~pl.col("policed"))
        .then(pl.lit("cwnd_loss"))
        .when(marked)
        .then(pl.lit("cwnd_ecn"))
    )
    unreduced = (
        pl.when(pl.col("snd_cwnd") < ssthresh).then(pl.lit("cwnd_slow_start")).otherwise(pl.lit("cwnd_delay"))
    )
    lost_before = pl.when(losing).then(pl.lit("cwnd_loss")).forward_fill().over(KEY)
    by_last = pl.coalesce(reduced.forward_fill().over(KEY), lost_before, unreduced)
    return pl.when(pl.col("bbr_bw_Bps").is_not_null()).then(pl.lit("cwnd_delay")).otherwise(by_last)
