"""How senders recover from loss: the window around one recovery, all of them, and what loss costs fetches.

Where modules/tcp_recovery has logged every ACK also how windows came down, by which rule.

After a page on proportional rate reduction (CS244, 2013): cwnd in fast recovery, and the latency of fetches
with and without retransmissions.
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow, Point
from dumbbell.report import figures, html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import Missing, part, show
from dumbbell.run.content import point_dirs
from dumbbell.units import human

LISTED = 200  # most recoveries of the table
SOURCES = {
    "trace": "by the trace of ca_state",
    "samples": "by samples of ca_state, which are late by up to an interval and miss what lies between two",
}
PERCENTS = (50, 95, 99)
# What the sender of a flow of atou tells only with SACK, or once it has a threshold.
NOT_ALWAYS = ("sacked", "lost", "retrans", "snd_ssthresh")


class Recovery(Report):
    """Recoveries of one flow of TCP or atou of a run directory of one point, or of many.

    By default it is the first flow that was seen in Recovery or Loss, of the first point that has one;
    ``point`` names a directory below ``points``.
    """

    def __init__(self, run_dir: Path | str, flow: str = "", point: str = "") -> None:
        points = [path for path in point_dirs(run_dir) if point in ("", path.name)]
        seen = [(path, losing) for path in points if (losing := _losing(path))]
        where, losing = next(iter(seen), (points[0] if points else Path(run_dir, "points", point), []))
        super().__init__(where)
        self._name, self._losing = flow, losing

    @cached_property
    def flow(self) -> Flow:
        """The flow that is looked at, or Missing."""
        flows = [f for f in self.plan.phase("measurement").flows if f.kind in ("iperf3_tcp", "atou")]
        wanted = [f for f in flows if f.name == self._name or (not self._name and f.name in self._losing)]
        if found := wanted or ([] if self._name else flows):
            return found[0]
        known = f"; of those it has {', '.join(flow.name for flow in flows)}" * bool(flows)
        raise Missing(f"This run has no TCP flow {self._name} that lasts{known}.".replace("  ", " "))

    def _of_flow(self, name: str) -> pl.DataFrame | None:
        """Its rows of a table that not every run has."""
        try:
            return self.table(name, where=pl.col("flow") == self.flow.name)
        except Missing:
            return None

    @cached_property
    def _tcp_info(self) -> pl.DataFrame:
        name = self.flow.name  # or Missing, before a table is
        own = (pl.col("flow") == name) & pl.col("stream").is_not_null()
        rows = self.rows("tcp_info", *analysis.SAMPLED_FROM, where=own)
        if rows.filter(pl.col("side") == "sender").is_empty():
            raise Missing(f"The sender's socket of {name} was not sampled.")
        return rows.with_columns(pl.lit(None, pl.Int64).alias(c) for c in NOT_ALWAYS if c not in rows.columns)

    @cached_property
    def found(self) -> pl.DataFrame:
        """:func:`analysis.recoveries` of the flow; Missing if there are none."""
        found = analysis.recoveries(self._tcp_info, self._of_flow("tcp_event"), self._of_flow("tcp_probe"))
        if found.is_empty():
            raise Missing(f"{self.flow.name} was seen neither in Recovery nor in Loss.")
        return found.sort("begin_ns")

    @part
    def recoveries(self) -> str:
        """A row for each."""
        rows = [
            html.row(
                [
                    str(number),
                    *([escape(row["stream"])] if self.flow.streams > 1 else []),
                    f"{row['begin_ns'] / 1e9:.3f} s",
                    "lasts" if row["end_ns"] is None else human(row["end_ns"] - row["begin_ns"], "ns"),
                    escape(row["kind"]),
                    *(
                        human(row[name])
                        for name in ("cwnd_before", "cwnd_after", "ssthresh_after", "retransmits")
                    ),
                ]
            )
            for number, row in enumerate(self.found.head(LISTED).iter_rows(named=True), start=1)
        ]
        head = ["", *(["stream"] if self.flow.streams > 1 else []), "begin", "length", "states"]
        head += ["cwnd before", "cwnd at the end", "ssthresh at the end", "sent again"]
        lengths = (self.found["end_ns"] - self.found["begin_ns"]).drop_nulls()
        median = human(analysis.percentile(lengths, 50), "ns")
        more = f" The first {LISTED} are listed." * (self.found.height > LISTED)
        return (
            f"{html.table(head, rows)}"
            f'<p class="note">{self.found.height} recoveries of {escape(self.flow.name)}, '
            f"{SOURCES[self.found['source'][0]]}; their median length is {median}. Windows are in "
            f"segments: the last before, and the first from the end on.{more}</p>"
        )

    @part
    def around(self, number: int = 1, around_s: float = 2.0) -> str:
        """Window, threshold and pipe about the number-th recovery, from 1, and the states meanwhile."""
        if not 1 <= number <= self.found.height:
            raise Missing(f"There is no recovery {number} of {self.flow.name}: it has {self.found.height}.")
        chosen = self.found.row(number - 1, named=True)
        end_ns = chosen["begin_ns"] if chosen["end_ns"] is None else chosen["end_ns"]
        since_ns, until_ns = chosen["begin_ns"] - around_s * 1e9, end_ns + around_s * 1e9
        near = pl.col("t_ns").is_between(since_ns, until_ns)
        stream = {"stream": chosen["stream"]}
        acks = self._of_flow("recovery")
        traced = self._of_flow("tcp_probe") if acks is None else acks
        windows = analysis.windows(self._tcp_info, traced).filter(near, **stream)
        if acks is None:
            samples = self._tcp_info.filter(near, side="sender", **stream).sort("t_ns")
            pipe = {"pipe, at samples": samples.select("t_ns", y=analysis.PIPE)}
        else:
            logged = acks.filter(near, side="sender", **stream).sort("t_ns")
            pipe = {"pipe, at each ACK": logged.select("t_ns", y="pipe")}
        figure = figures.lines(
            {
                # In this order, since pipe is often as large as cwnd.
                **pipe,
                "ssthresh": windows.select("t_ns", y="snd_ssthresh"),
                "cwnd": windows.select("t_ns", y="snd_cwnd"),
            },
            until_ns / 1e9,
            title="segments",
            unit="segments",
            least_s=max(since_ns, 0) / 1e9,
        )
        states = analysis.ca_states(self._tcp_info, self._of_flow("tcp_event")).filter(**stream)
        figures.shade_states(figure, states, since_ns, until_ns)
        return show(
            figure,
            f"Recovery {number} of {self.found.height}, at {chosen['begin_ns'] / 1e9:.3f} s. The background "
            f"is the congestion state, {SOURCES[chosen['source']]}. Pipe is what the sender takes to be on "
            "the way: <code>unacked</code> - <code>sacked</code> - <code>lost</code> + <code>retrans</code>.",
        )


class Reductions:
    """How windows came down, by the logs of ACKs of a run directory of one point, or of many."""

    def __init__(self, run_dir: Path | str) -> None:
        self.points = [Report(path) for path in point_dirs(run_dir)]

    @cached_property
    def _logs(self) -> list[tuple[Flow, str, pl.DataFrame]]:
        """Of each flow that has one, in valid points: the flow, what its path loses, and its log."""
        found = []
        for point in self.points:
            if len(self.points) > 1 and point.verdict.get("state") not in analysis.VALID:
                continue
            try:
                plan, rows = point.plan, point.table("recovery")
            except Missing:
                continue
            for flow in plan.phase("measurement").flows:
                of_flow = rows.filter(pl.col("flow") == flow.name)
                if flow.congestion_control and of_flow.height:
                    found.append((flow, _loss(plan, flow), of_flow))
        if not found:
            raise Missing(
                "No valid point has a log of ACKs: the controls of modules/tcp_recovery write it where "
                "<code>sampling.trace</code> is asked for."
            )
        return sorted(found, key=lambda of: (of[1], of[0].congestion_control))

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`analysis.reductions` of all of them, with ``congestion_control`` and ``loss``."""
        parts = [
            analysis.reductions(log).with_columns(
                congestion_control=pl.lit(flow.congestion_control), loss=pl.lit(loss)
            )
            for flow, loss, log in self._logs
        ]
        if (found := pl.concat(parts)).is_empty():
            raise Missing("No sender reduced its window.")
        return found

    @cached_property
    def _groups(self) -> list[tuple[list[str], pl.DataFrame]]:
        by = ["loss", "congestion_control"]
        groups = self.rows.group_by(by, maintain_order=True)
        return [([str(name) for name in key], rows) for key, rows in groups]

    @part
    def table(self) -> str:
        """Where reductions began and ended, how long they took, and how they sent."""
        body = []
        for names, rows in self._groups:
            ended = rows.filter(pl.col("next_state").is_in(["Open", "Disorder"]))
            excess = ended["cwnd_after"] - ended["ssthresh"]
            over = rows["pipe_before"] - rows["ssthresh"]
            left = ended["pipe_after"] - ended["ssthresh"]
            length = ended["end_ns"] - ended["begin_ns"]
            silence = (rows["silence_ns"] / rows["srtt_ns"]).drop_nulls()
            body.append(
                html.row(
                    [
                        *map(escape, names),
                        str(rows.height),
                        *(human(share, "share") for share in _signs(over)),
                        _spread(left),
                        _spread(excess),
                        human(analysis.percentile(length, 50), "ns"),
                        human(analysis.percentile(silence, 50)),
                        human(rows["most_sent"].max()),
                        human(rows.filter(next_state="Loss").height / rows.height, "share"),
                    ]
                )
            )
        head = ["loss", "TCP", "reductions", "pipe below ssthresh", "at it", "above it"]
        head += ["pipe - ssthresh at the end", "cwnd - ssthresh at the end"]
        head += ["length", "silence (RTTs)", "most at once", "timeouts"]
        return (
            f"{html.table(head, body)}"
            '<p class="note">Below, at or above ssthresh is pipe of the ACK with which a reduction began. '
            "Pipe and window at the end are those of the first ACK after it, by which the window has grown "
            "in slow start: the median, and from the 5th to the 95th percentile, of reductions that did not "
            "end with a timeout. "
            "Length and silence are medians; silence is the longest time between two ACKs after which "
            "something was sent. Most at once is the largest number of segments sent after one ACK.</p>"
        )

    @part
    def figure(self, loss: str = "") -> str:
        """The longest reduction of each control on the paths of one loss: what it had on the way."""
        losses = list(dict.fromkeys(self.rows["loss"]))
        chosen = loss or losses[0]
        if chosen not in losses:
            raise Missing(f"No path loses {loss}; there are {', '.join(losses)}.")
        series: dict[str, pl.DataFrame] = {}
        last_s = 0.0
        for flow, lost, log in self._logs:
            found = analysis.reductions(log).filter(pl.col("end_ns").is_not_null())
            control = str(flow.congestion_control)
            if lost != chosen or found.is_empty() or control in series:
                continue
            longest = found.sort("delivered").row(-1, named=True)
            near = pl.col("t_ns").is_between(longest["begin_ns"], longest["end_ns"])
            rows = log.filter(near, side="sender", stream=longest["stream"]).sort("t_ns")
            began = pl.col("t_ns") - longest["begin_ns"]
            pipe = pl.col("pipe") / pl.col("snd_ssthresh")
            series[control] = rows.select(t_ns=began, y=pipe)
            last_s = max(last_s, (longest["end_ns"] - longest["begin_ns"]) / 1e9)
        if not series:
            raise Missing(f"No reduction on a path that loses {chosen} came to its end.")
        figure = figures.lines(series, last_s, title="pipe / ssthresh", unit="of ssthresh")
        figure.update_xaxes(title_text="time since the reduction began (s)")
        return show(
            figure,
            f"Of each control the reduction that delivered most, where the path loses {escape(chosen)}: what "
            "was on the way when an ACK came, of what should be at the end.",
        )


class Fetches:
    """Latency of fetches over HTTP, by size and loss rate, of a run directory of one point or of many."""

    def __init__(self, run_dir: Path | str) -> None:
        self.points = [Report(path) for path in point_dirs(run_dir)]

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`analysis.fetches` of all flows of fetches of all valid points, or Missing.

        With ``size`` (bytes), ``loss`` (share that the path is asked to lose in the direction of the data),
        ``congestion_control`` and ``connections``.
        """
        parts, left_out = [], 0
        for point in self.points:
            if len(self.points) > 1 and point.verdict.get("state") not in analysis.VALID:
                left_out += 1
                continue
            try:
                plan, rows = point.plan, point.rows("http_fetch")
            except Missing:
                continue
            for flow in plan.phase("measurement").flows:
                if flow.kind == "http":
                    way = plan.path.way(flow.direction) if plan.path else None
                    parts.append(
                        analysis.fetches(rows.filter(pl.col("flow") == flow.name)).with_columns(
                            size=pl.lit(flow.fetch_bytes),
                            loss=pl.lit(1 - way.arriving if way else 0.0),
                            congestion_control=pl.lit(flow.congestion_control or "-"),
                            connections=pl.lit("one for all" if flow.persistent else "one for each"),
                        )
                    )
        found = pl.concat(parts, how="vertical_relaxed") if parts else pl.DataFrame({"done": []})
        if found.filter(pl.col("done").cast(pl.Boolean)).is_empty():
            which = f" in {len(self.points)} points, of which {left_out} are not valid" * (left_out > 0)
            raise Missing(f"No fetch over HTTP was done{which}.")
        return found

    @cached_property
    def _groups(self) -> list[tuple[list[str], analysis.Latency]]:
        by = ["size", "loss", "congestion_control", "connections"]
        found = []
        for key, rows in self.rows.sort(by, maintain_order=True).group_by(by, maintain_order=True):
            size, loss, control, connections = key
            names = [human(size), human(loss, "share"), str(control), str(connections)]
            found.append((names, analysis.latency(rows, PERCENTS)))
        return [(names, latency) for names, latency in found if latency.fetches]

    @part
    def table(self) -> str:
        """Percentiles with their intervals, and how many fetches met loss."""
        body = [
            html.row(
                [
                    *map(escape, names),
                    human(found.fetches),
                    *(_interval(found.percentiles[percent], "ns") for percent in PERCENTS),
                    _interval(found.retransmitted, "share"),
                ]
            )
            for names, found in self._groups
        ]
        head = ("bytes", "loss", "TCP", "connections", "fetches", "median", "95 %", "99 %", "sent again")
        return (
            f"{html.table(head, body)}"
            '<p class="note">From the begin of a fetch, with connecting, to its last byte, of all that were '
            "done in valid points; below each its interval of 95 %, of percentiles by bootstrap, which of "
            "few fetches is too narrow. Loss is what the path is asked for, behind its queue. Sent again is "
            "the share of fetches of which the server's kernel sent a segment again, its SYN-ACK too.</p>"
        )

    @part
    def figure(self) -> str:
        """Mean times of fetches with and without retransmissions."""
        names = [f"{size} bytes, {loss}, {rest}" for (size, loss, rest, _), _ in self._groups]
        sets = {
            "nothing sent again": [found.clean for _, found in self._groups],
            "something sent again": [found.lossy for _, found in self._groups],
        }
        return show(
            figures.bars(names, sets, title="completion time (ms)", scale=1e6),
            "Means of the two classes, told apart by the server's counts of retransmissions; whiskers are "
            "one standard deviation.",
        )

    @part
    def guesses(self) -> str:
        """How well two standard deviations tell fetches that met loss."""
        body = [
            html.row(
                [
                    *map(escape, names),
                    *(
                        str(found.guess[name])
                        for name in ("true_positive", "false_positive", "false_negative", "true_negative")
                    ),
                ]
            )
            for names, found in self._groups
        ]
        head = ["bytes", "loss", "TCP", "connections", "slow, sent again", "slow, nothing again"]
        head += ["not slow, sent again", "not slow, nothing again"]
        return (
            f"{html.table(head, body)}"
            '<p class="note">Slow is what is two standard deviations or more from the mean of its row: how '
            "fetches with loss are guessed where nobody counts. Sent again is what the kernel counted.</p>"
        )


def _losing(run_dir: Path) -> list[str]:
    """Flows that samples of a point show in Recovery or Loss."""
    losing = pl.col("ca_state").is_in(analysis.LOSING) & (pl.col("side") == "sender")
    try:
        rows = pl.scan_parquet(run_dir / "tcp_info.parquet").filter(losing, pl.col("phase") == "measurement")
        return rows.select(pl.col("flow").unique(maintain_order=True)).collect()["flow"].to_list()
    except (OSError, pl.exceptions.PolarsError):
        return []


def _loss(plan: Point, flow: Flow) -> str:
    """What a flow's path is asked to lose."""
    way = plan.path.way(flow.direction) if plan.path else None
    share = human(1 - way.arriving if way else 0.0, "share")
    return f"{share} in bursts" if way and way.loss_gemodel else share


def _signs(values: pl.Series) -> list[float]:
    """Shares of values below, at, and above 0."""
    return [(values < 0).mean() or 0.0, (values == 0).mean() or 0.0, (values > 0).mean() or 0.0]  # type: ignore[list-item]


def _spread(values: pl.Series) -> str:
    low, middle, high = (human(analysis.percentile(values, percent)) for percent in (5, 50, 95))
    return f"{middle}<br>{low} to {high}"


def _interval(found: analysis.Interval | None, unit: str) -> str:
    if found is None:
        return "-"
    return f"{human(found.value, unit)}<br>{human(found.low, unit)} to {human(found.high, unit)}"
