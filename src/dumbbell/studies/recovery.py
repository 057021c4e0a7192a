"""How senders recover from loss, and how their windows are reduced."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow, Point
from dumbbell.run.content import RunSet
from dumbbell.studies.source import Missing, Source
from dumbbell.units import human

# Columns that atou's sender reports only with SACK, or only once it has a threshold.
NOT_ALWAYS = ("sacked", "lost", "retrans", "snd_ssthresh")


class Around(NamedTuple):
    """A recovery and the time around it; times are in ns since t0, windows in segments."""

    begin_ns: int
    source: str  # where the states come from, as in :func:`analysis.ca_states`
    since_ns: float
    until_ns: float
    windows: pl.DataFrame  # [t_ns, snd_cwnd, snd_ssthresh]
    pipe: tuple[str, pl.DataFrame]  # what reports it, and [t_ns, y]
    states: pl.DataFrame  # [t_ns, ca_state], of the whole flow


class LossRecovery(Source):
    """The recoveries of one flow of TCP or atou, in a run directory of one or many points.

    By default the first flow that was in Recovery or Loss, of the first point that has one; ``point`` names a
    directory below ``points``.
    """

    def __init__(self, run_dir: Path | str, flow: str = "", point: str = "") -> None:
        points = [path for path in RunSet.open(run_dir).dirs if point in ("", path.name)]
        seen = [(path, losing) for path in points if (losing := _losing(path))]
        where, losing = next(iter(seen), (points[0] if points else Path(run_dir, "points", point), []))
        super().__init__(where)
        self._name, self._losing = flow, losing

    @cached_property
    def flow(self) -> Flow:
        """The selected flow, or Missing."""
        flows = [f for f in self.planned_flows if f.kind in ("tcp", "iperf3_tcp", "atou")]
        wanted = [f for f in flows if f.name == self._name or (not self._name and f.name in self._losing)]
        if found := wanted or ([] if self._name else flows):
            return found[0]
        known = f"; of those it has {', '.join(flow.name for flow in flows)}" * bool(flows)
        raise Missing(f"This run has no TCP flow {self._name} that lasts{known}.".replace("  ", " "))

    def _of_flow(self, name: str) -> pl.DataFrame | None:
        """The flow's rows of a table that not every run has."""
        try:
            return self.table(name, where=pl.col("flow") == self.flow.name)
        except Missing:
            return None

    @cached_property
    def _tcp_info(self) -> pl.DataFrame:
        name = self.flow.name  # raises Missing first if there is no flow
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

    def near(self, number: int, around_s: float) -> Around:
        """The number-th recovery, counted from 1, and so many seconds before and after it; or Missing."""
        if not 1 <= number <= self.found.height:
            raise Missing(f"There is no recovery {number} of {self.flow.name}: it has {self.found.height}.")
        chosen = self.found.row(number - 1, named=True)
        end_ns = chosen["begin_ns"] if chosen["end_ns"] is None else chosen["end_ns"]
        since_ns, until_ns = chosen["begin_ns"] - around_s * 1e9, end_ns + around_s * 1e9
        near = pl.col("t_ns").is_between(since_ns, until_ns)
        stream = {"stream": chosen["stream"]}
        acks = self._of_flow("recovery")
        traced = self._of_flow("tcp_probe") if acks is None else acks
        if acks is None:
            samples = self._tcp_info.filter(near, side="sender", **stream).sort("t_ns")
            pipe = ("pipe, at samples", samples.select("t_ns", y=analysis.PIPE))
        else:
            logged = acks.filter(near, side="sender", **stream).sort("t_ns")
            pipe = ("pipe, at each ACK", logged.select("t_ns", y="pipe"))
        return Around(
            chosen["begin_ns"],
            chosen["source"],
            since_ns,
            until_ns,
            analysis.windows(self._tcp_info, traced).filter(near, **stream),
            pipe,
            analysis.ca_states(self._tcp_info, self._of_flow("tcp_event")).filter(**stream),
        )


class ReductionLogs:
    """Window reductions in the ACK logs of a run directory of one or many points."""

    def __init__(self, run_dir: Path | str) -> None:
        self.points = [Source(path) for path in RunSet.open(run_dir).dirs]

    @cached_property
    def logs(self) -> list[tuple[Flow, str, pl.DataFrame]]:
        """Each flow of a valid point that has a log: the flow, its path's loss, and the log."""
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
        """:func:`analysis.reductions` of all logs, with ``congestion_control`` and ``loss``."""
        parts = [
            analysis.reductions(log).with_columns(
                congestion_control=pl.lit(flow.congestion_control), loss=pl.lit(loss)
            )
            for flow, loss, log in self.logs
        ]
        if (found := pl.concat(parts)).is_empty():
            raise Missing("No sender reduced its window.")
        return found

    @cached_property
    def groups(self) -> list[tuple[list[str], pl.DataFrame]]:
        """``rows`` grouped by loss and control, with the names of both."""
        by = ["loss", "congestion_control"]
        groups = self.rows.group_by(by, maintain_order=True)
        return [([str(name) for name in key], rows) for key, rows in groups]

    @property
    def losses(self) -> list[str]:
        """The path losses for which there were reductions."""
        return list(dict.fromkeys(self.rows["loss"]))

    def longest(self, loss: str) -> dict[str, pl.DataFrame]:
        """For each control, the reduction that delivered most at this loss; or Missing.

        ``[t_ns, y]``: pipe over ssthresh at each ACK since the reduction began.
        """
        found: dict[str, pl.DataFrame] = {}
        for flow, lost, log in self.logs:
            ended = analysis.reductions(log).filter(pl.col("end_ns").is_not_null())
            control = str(flow.congestion_control)
            if lost != loss or ended.is_empty() or control in found:
                continue
            longest = ended.sort("delivered").row(-1, named=True)
            near = pl.col("t_ns").is_between(longest["begin_ns"], longest["end_ns"])
            rows = log.filter(near, side="sender", stream=longest["stream"]).sort("t_ns")
            began = pl.col("t_ns") - longest["begin_ns"]
            found[control] = rows.select(t_ns=began, y=pl.col("pipe") / pl.col("snd_ssthresh"))
        if not found:
            raise Missing(f"No reduction on a path that loses {loss} came to its end.")
        return found


def _losing(run_dir: Path) -> list[str]:
    """Flows of a point that were in Recovery or Loss, by their samples."""
    losing = pl.col("ca_state").is_in(analysis.LOSING) & (pl.col("side") == "sender")
    try:
        rows = pl.scan_parquet(run_dir / "tcp_info.parquet").filter(losing, pl.col("phase") == "measurement")
        return rows.select(pl.col("flow").unique(maintain_order=True)).collect()["flow"].to_list()
    except (OSError, pl.exceptions.PolarsError):
        return []


def _loss(plan: Point, flow: Flow) -> str:
    """The loss that is requested of a flow's path."""
    way = plan.path.way(flow.direction) if plan.path else None
    share = human(1 - way.arriving if way else 0.0, "share")
    return f"{share} in bursts" if way and way.loss_gemodel else share
