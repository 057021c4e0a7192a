"""Rows of measurements: none is missing, each has all its columns, and counters only grow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from dumbbell.facts import columns
from dumbbell.facts.check import Check, faultless
from dumbbell.facts.columns import Columns
from dumbbell.kinds.found import FOUND
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import Run, dig
from dumbbell.run.of_flows import unsampled_share
from dumbbell.run.of_path import has_delay_line
from dumbbell.units import human
from dumbbell.validity.events import FASTEST_SLEW

Tables = Mapping[str, pl.DataFrame]
SECOND = 10**9
WRAP = 2**32  # counters of 32 bits wrap
GAUGES = 2**31  # a greater growth is a counter that shrank


def checks(run: Run, tables: Tables) -> Iterator[Check]:
    """A check of each host and phase, and of each flow of the measurement."""
    for phase in run.point.phases:
        for host in phase.hosts:
            yield of_host(run, tables, phase, host)
    for flow in run.point.phase("measurement").flows:
        yield from _covered(run, tables, flow)


def of_flow(flow: Flow, host: str, part: PhaseHost) -> Iterator[Columns]:
    """The columns that a host's rows about its ends of a flow must have."""
    for side, end in (("sender", flow.src_host), ("receiver", flow.dst_host)):
        if end == host:
            yield from FOUND[flow.kind].columns(flow, side, part)


def of_host(run: Run, tables: Tables, phase: Phase, host: str) -> Check:
    """A check of all rows of one host and phase."""
    rows = _Rows(run, tables, phase, host, phase.hosts[host])
    return faultless("rows", f"{host} {phase.phase}", rows.faults())


CHRONY = {"source": "chrony"}
WITHOUT_COUNTERS = {"noqueue", "noop", None}  # None: the kind was not read, which the check of states reports


def devices(run: Run, host: str) -> list[str]:
    """Interfaces of the experiment, and those that emulate the path."""
    state = run.states.get(host)
    return sorted({*(dig(state, "nic") or {}), *path_devices(state)})


def path_devices(state: Any) -> set[str]:
    """Interfaces that emulate a path, in the directions that are emulated."""
    ways = dig(state, "path", "devices")
    if not isinstance(ways, dict):
        return set()
    emulated = [devices for way, devices in ways.items() if dig(state, "path", way) is not None]
    return {device for devices in emulated for device in devices.values()}


def release(kernel: Any) -> tuple[int, int]:
    """``6.12.1-x`` as (6, 12); the oldest supported kernel if the release is not known."""
    found = re.match(r"(\d+)\.(\d+)", str(kernel))
    return (int(found[1]), int(found[2])) if found else (0, 0)


class _Rows:
    def __init__(self, run: Run, tables: Tables, phase: Phase, host: str, part: PhaseHost) -> None:
        self.run, self.tables, self.phase, self.host, self.part = run, tables, phase, host, part
        self.release = release(dig(run.states.get(host), "kernel"))
        self.devices = devices(run, host)

    def faults(self) -> Iterator[str]:
        for asked in self._asked():
            table = self.tables.get(asked.measurement)
            rows = pl.DataFrame() if table is None else self._own(table, asked)
            if rows.is_empty():
                of = f" of {', '.join(asked.match.values())}" if asked.match else ""
                yield f"no rows of {asked.measurement}{of}"
            else:
                yield from self._judged(asked, rows)

    def _asked(self) -> Iterator[Columns]:
        shared = dig(self.run.states.get(self.host), "clock", "source") == "shared"
        for asked in columns.of_hosts():
            if shared and asked.match == CHRONY:  # it would tell of a clock that nobody follows
                continue
            if asked.sampled is not None and asked.sampled(self.part):
                yield asked
        path = self.run.point.path
        if self.part.sample.qdisc and path is not None and self.host in self.run.routers:
            trim_us = dig(self.run.states.get(self.host), "path", "trim_us") or 0
            kinds = {"htb", *(way.queue.kind for _, way in path.ways)}
            kinds |= {"police"} if any(way.policer for _, way in path.ways) else set()
            kinds |= {"netem"} if any(has_delay_line(way, trim_us) for _, way in path.ways) else set()
            yield from map(columns.of_queue, sorted(kinds))
            yield columns.of_class()
        elif self.part.sample.qdisc or self.part.sample.queues:
            nics = (dig(self.run.states.get(self.host), "nic") or {}).values()
            for kind in sorted({dig(nic, "qdisc") for nic in nics} - WITHOUT_COUNTERS):
                yield columns.of_queue(kind, each_second=not self.part.sample.qdisc)
        for flow in self.phase.flows:
            yield from of_flow(flow, self.host, self.part)

    def _own(self, table: pl.DataFrame, asked: Columns) -> pl.DataFrame:
        if not {"phase", "host", *asked.match} <= {*table.columns}:
            return pl.DataFrame()
        rows = table.filter(phase=self.phase.phase, host=self.host, **asked.match)
        if "dev" in asked.series and self.devices:
            rows = rows.filter(pl.col("dev").is_in(self.devices))
        return rows

    def _judged(self, asked: Columns, rows: pl.DataFrame) -> Iterator[str]:
        of = " ".join([asked.measurement, *asked.match.values()])
        always = [*asked.always]
        for since, names in asked.since.items():
            always += names if self.release >= since else ()
        absent = [name for name in (*always, *asked.sometimes) if name not in rows.columns]
        empty = [
            name for name in asked.sometimes if name not in absent and rows[name].null_count() == rows.height
        ]
        if absent or empty:
            yield f"{of}: no row has {', '.join([*absent, *empty])}"
        nulls = rows.select(pl.col(name).null_count() for name in always if name not in absent).row(
            0, named=True
        )
        if lacking := [name for name, count in nulls.items() if count]:
            yield f"{of}: rows lack {', '.join(lacking)}"
        if unnamed := [name for name in asked.series if name not in rows.columns or rows[name].has_nulls()]:
            yield f"{of}: rows lack {', '.join(unnamed)}"
        yield from self._steady(of, asked, rows)
        series = [name for name in asked.series if name in rows.columns]
        counters = [name for name in asked.counters if name in rows.columns and rows[name].dtype.is_integer()]
        if len(counters) + len([n for n in asked.counters if n in absent]) < len(asked.counters):
            yield f"{of}: counters that are no whole numbers"
        yield from self._shrinking(of, rows, series, counters)
        if asked.measurement == "snmp":
            yield from _unlike_totals(rows)
        uneven = pl.col("ticks") - pl.col("sampled") != pl.col("missed")
        if asked.measurement == "sampler" and not absent and rows.filter(uneven).height:
            yield "sampler: sampled and missed are not its ticks"
        if asked.measurement == "web100":
            yield from self._unlike_samples(of, rows)
        if asked.steady:
            interval = self.phase.sampling_interval_ns
            yield from self._gaps(of, rows, series, max(SECOND, interval) if asked.each_second else interval)

    def _steady(self, of: str, asked: Columns, rows: pl.DataFrame) -> Iterator[str]:
        """Rows whose two clocks disagree, and settings that change while the path does not."""
        if {"unix_ns", "mono_ns"} <= {*rows.columns}:
            apart: Any = rows.select((pl.col("unix_ns") - pl.col("mono_ns")).alias("apart"))["apart"]
            most = self.run.point.validity.clock_offset_ns + FASTEST_SLEW * self.phase.duration_ns
            if (low := apart.min()) is not None and apart.max() - low > most:
                yield f"{of}: unix_ns and mono_ns of its rows do not go together"
        path = self.run.point.path
        if path is None or any(way.changes for _, way in path.ways):
            return
        constant = (*columns.SETTINGS.get(asked.match.get("kind", ""), ()), *columns.OF_CLASS)
        for name in constant if asked.measurement in ("qdisc", "tc_class") else ():
            if (
                name in rows.columns
                and rows.group_by(asked.series).agg(pl.col(name).n_unique())[name].max() != 1
            ):
                yield f"{of}: {name} did not stay as it was"

    def _shrinking(
        self, of: str, rows: pl.DataFrame, series: Sequence[str], counters: Sequence[str]
    ) -> Iterator[str]:
        """Counters that decreased or are not counters."""
        if not counters:
            return
        ordered = rows.sort(*series, "unix_ns", maintain_order=True)
        of_one = [pl.col(name).eq_missing(pl.col(name).shift()) for name in series]
        after = ordered.select(pl.all_horizontal(of_one)).to_series() if series else pl.lit(value=True)
        steps = ordered.select(_shrink(counters, after))
        if shrunk := [name for name, value in steps.row(0, named=True).items() if value]:
            yield f"{of}: {', '.join(shrunk)} became less"

    def _unlike_samples(self, of: str, rows: pl.DataFrame) -> Iterator[str]:
        """Variables of web100 that do not follow from the connection's sample of the same time."""
        samples = self.tables["tcp_info"].filter(phase=self.phase.phase, host=self.host)
        key = ["flow", "side", "stream", "unix_ns"]
        if not {*key} <= {*samples.columns} & {*rows.columns}:
            return  # then all rows lack the name or the time
        both = rows.join(samples, on=key, how="left", suffix="_of_sample")
        if both["phase_of_sample"].has_nulls():
            yield f"{of}: rows are of another time than the samples of their connections"
        made = {
            name: sample
            for name, sample in columns.WEB100_OF.items()
            if name in rows.columns and {*sample.meta.root_names()} <= {*samples.columns}
        }
        # Counters of 32 bits wrap; web100's do not.
        differ = [((pl.col(name) - sample) % WRAP != 0).any().alias(name) for name, sample in made.items()]
        wrong = both.select(differ)
        if unlike := [name for name, any_of in wrong.row(0, named=True).items() if any_of]:
            yield f"{of}: {', '.join(unlike)} differ from what its sample has"

    def _gaps(self, of: str, rows: pl.DataFrame, series: Sequence[str], interval_ns: int) -> Iterator[str]:
        """Series without rows for more than the allowed share of the time."""
        end = self.phase.duration_ns
        at = pl.col("t_ns")
        if rows["t_ns"].null_count() == rows.height:
            yield f"{of}: the times of its rows since t0 are not known"
            return
        within = rows.filter(at.is_between(0, end)).sort("t_ns")
        own = [pl.lit(0).alias("all")] if not series else [pl.col(name) for name in series]
        left_out = within.group_by(own).agg(
            (
                (at.diff().drop_nulls() - 2 * interval_ns).clip(0).sum()
                + (at.first() - 2 * interval_ns).clip(0)
                + (end - at.last() - 2 * interval_ns).clip(0)
            ).alias("missed")
        )
        most: Any = left_out["missed"].max()
        share = 1.0 if most is None else most / end
        if share > self.run.point.validity.missed_samples:
            yield f"{of}: {human(share, 'share')} of the time has no rows"


def _shrink(names: Sequence[str], after: pl.Series | pl.Expr) -> pl.Expr:
    """Whether each counter decreases in a row that is ``after`` one of the same series, or is negative."""
    value = pl.col(names).cast(pl.Int64)
    grown = value.diff()
    before = value.shift()
    wrapped = (before < WRAP) & (value < WRAP) & (grown + WRAP < GAUGES)
    return (((grown < 0) & after & ~wrapped) | (value < 0)).fill_null(value=False).any()


def _unlike_totals(rows: pl.DataFrame) -> Iterator[str]:
    """Totals that are not the total of the row before plus the difference."""
    if not {"name", "total", "delta"} <= {*rows.columns}:
        return
    if rows["name"].has_nulls():
        yield "snmp: rows lack name"
        return
    grown = pl.col("total").diff().over("name")
    wrong = rows.sort("unix_ns").filter(grown.is_not_null() & (grown != pl.col("delta").fill_null(0)))
    if wrong.height:
        yield f"snmp: {', '.join(wrong['name'].unique().sort().head(3))}: totals and differences disagree"


# --- flows ----------------------------------------------------------------------------------------


def _covered(run: Run, tables: Tables, flow: Flow) -> Iterator[Check]:
    """Each end that writes rows about a flow has them from the flow's start to its end."""
    most = run.point.validity.missed_samples
    for end in FOUND[flow.kind].covered(run, tables, flow):
        side, each_ns = end.side, end.each_ns
        one = end.rows.select("t_ns", stream=pl.lit("all"))
        share = unsampled_share(one, (flow.start_ns, flow.end_ns), each_ns)
        reason = ""
        if share is None:
            reason = f"nothing tells of its {side}"
        elif share > most:
            reason = f"share of its time of which its {side} tells nothing is {human(share, 'share')}"
        yield Check(
            name="covered",
            kind="validity",
            subject=f"{flow.name} {side}",
            requested=0,
            measured=share,
            tolerance=most,
            unit="share",
            ok=not reason,
            reason=reason,
        )
