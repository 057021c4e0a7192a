"""The original atou's figures, from its simulator and from runs of its scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from html import escape
from pathlib import Path

import polars as pl

from dumbbell import analysis, atou
from dumbbell.metrics.values import values
from dumbbell.plan import Flow
from dumbbell.report import figures, html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import Missing, part, show
from dumbbell.run.content import IN_MEASUREMENT, Run, point_dirs
from dumbbell.units import human

BIN_NS = 200_000_000  # of a run's goodput: its samples are not at the bins' edges
_COLUMNS = {
    "snd_cwnd": ("cwnd (segments)", "segments", 1),
    "srtt_us": ("smoothed RTT (ms)", "ms", 1000),
}
_COUNTS = ("retransmits", "duplicates", "events", "timeouts")


class Simulations:
    """Parts about what the simulator has of the original's experiments."""

    name = "atou"

    @cached_property
    def _found(self) -> dict[str, dict[str, atou.Simulated]]:
        try:
            return {name: experiment.run() for name, experiment in atou.EXPERIMENTS.items()}
        except atou.AtouError as error:
            raise Missing(f"{error}.") from None

    @part
    def compared(self) -> str:
        """A row for each transfer of each experiment."""
        rows = []
        for name, found in self._found.items():
            experiment = atou.EXPERIMENTS[name]
            for transfer, simulated in found.items():
                original = experiment.transfers[transfer].original_mbps
                counts = (
                    simulated.sender["rxmts"],
                    simulated.receiver["duplicate_segments"],
                    simulated.sender["dup3s"],
                    simulated.sender["timeouts"],
                )
                cells = [
                    escape(experiment.title),
                    escape(transfer),
                    "-" if original is None else f"{original:g}",
                    f"{simulated.goodput_bps / 1e6:.3g}",
                    *(str(count) for count in counts),
                    f"{simulated.sender['avg_rtt_ns'] / 1e6:.1f}",
                ]
                rows.append(html.row(cells))
        head = (
            "experiment",
            "transfer",
            "original (Mbit/s)",
            "simulated (Mbit/s)",
            *_COUNTS,
            "mean RTT (ms)",
        )
        return (
            f'{html.table(head, rows)}<p class="note">What the page gives of a transfer, and what the '
            "simulator has of it after the same time. Duplicates are retransmits that were not needed. The "
            "page does not tell rates and queues of its paths: they are chosen, so that shapes compare, not "
            "numbers.</p>"
        )

    @part
    def goodput(self, name: str) -> str:
        """Goodput of an experiment's transfers over time, and on average."""
        found = self._of(name)
        rate = pl.col("bytes_acked").diff() * 8e3 / pl.col("t_ns").diff()
        lines = {transfer: simulated.samples.select("t_ns", y=rate) for transfer, simulated in found.items()}
        means = ", ".join(f"{name} {human(one.goodput_bps, 'bps')}" for name, one in found.items())
        return show(
            figures.lines(lines, _length_s(found), title="goodput (Mbit/s)", unit="Mbit/s"),
            f"{escape(atou.EXPERIMENTS[name].title)}. Acknowledged payload in each 100 ms; on average "
            f"{escape(means)}.",
        )

    @part
    def state(self, name: str) -> str:
        """Windows, or RTTs where they tell more."""
        found = self._of(name)
        column = atou.EXPERIMENTS[name].column
        title, unit, scale = _COLUMNS[column]
        lines = {
            transfer: simulated.samples.select("t_ns", y=pl.col(column) / scale)
            for transfer, simulated in found.items()
        }
        return show(
            figures.lines(lines, _length_s(found), title=title, unit=unit),
            f"<code>{column}</code> of the sender, each 100 ms.",
        )

    def _of(self, name: str) -> dict[str, atou.Simulated]:
        if name not in self._found:
            raise Missing(f"There is no experiment {name}; there are {', '.join(self._found)}.")
        return self._found[name]


def _length_s(found: dict[str, atou.Simulated]) -> float:
    return max(simulated.elapsed_ns for simulated in found.values()) / 1e9


class AtouRun(Report):
    """Parts about the flows of atou of a run, of all of its points together."""

    def __init__(self, run_dir: Path | str) -> None:
        self._points = point_dirs(run_dir)
        super().__init__(self._points[0])
        self._whole = run_dir

    @cached_property
    def _flows(self) -> dict[str, tuple[Flow, pl.DataFrame]]:
        """Each flow of atou by what tells it from the others, and its samples, in times since its start."""
        found = dict(self._sampled())
        if not found:
            raise Missing("This run has no flow of atou whose sender told of itself.")
        return found

    def _sampled(self) -> Iterator[tuple[str, tuple[Flow, pl.DataFrame]]]:
        for point_dir in self._points:
            try:
                run = Run.open(point_dir)
                rows = pl.scan_parquet(point_dir / "tcp_info.parquet").filter(IN_MEASUREMENT).collect()
            except (OSError, ValueError, pl.exceptions.PolarsError):
                continue
            flows = [flow for flow in run.point.phase("measurement").flows if flow.kind == "atou"]
            for flow in flows:
                own = rows.filter(flow=flow.name).with_columns(pl.col("t_ns") - flow.start_ns).sort("t_ns")
                words = [run.point.label, flow.name if len(flows) > 1 or not run.point.label else ""]
                again = f"({run.point.repetition})" * (run.point.repetition > 1)
                if own.height:
                    yield " ".join(filter(None, [*words, again])), (flow, own)

    @part
    def goodput(self) -> str:
        """Goodput of each flow of atou from its start on."""
        lines = {}
        for name, (flow, rows) in self._flows.items():
            edges = analysis.steps(0, flow.duration_ns, BIN_NS)
            rates = analysis.goodput(analysis.counters(rows), edges)
            lines[name] = rates.select("t_ns", y=pl.col("goodput_bps") / 1e6)
        return show(
            figures.lines(lines, self._length_s, title="goodput (Mbit/s)", unit="Mbit/s"),
            f"Acknowledged payload in each {human(BIN_NS, 'ns')}, from the flow's start on, of all points.",
        )

    @part
    def cwnd(self) -> str:
        """Congestion windows."""
        return self._state("snd_cwnd")

    @part
    def srtt(self) -> str:
        """Smoothed round-trip times."""
        return self._state("srtt_us")

    def _state(self, column: str) -> str:
        title, unit, scale = _COLUMNS[column]
        lines = {
            name: rows.select("t_ns", y=pl.col(column) / scale) for name, (_, rows) in self._flows.items()
        }
        return show(
            figures.lines(lines, self._length_s, title=title, unit=unit),
            f"<code>{column}</code>, as atou's sender tells of itself.",
        )

    @property
    def _length_s(self) -> float:
        return max(flow.duration_ns for flow, _ in self._flows.values()) / 1e9

    @part
    def numbers(self) -> str:
        """A row for each point and flow: those of atou, and those of TCP beside them."""
        _ = self._flows
        names = ("goodput", "retransmits", "time_in_recovery", "rtt")
        found = values(Path(self._whole)).filter(pl.col("metric").is_in(names))
        if found.is_empty():
            raise Missing("No point of this run has numbers.")
        rows = []
        for (point, subject, repetition), own in found.group_by(
            "point", "subject", "repetition", maintain_order=True
        ):
            known = {row["metric"]: human(row["value"], row["unit"]) for row in own.iter_rows(named=True)}
            verdict = own["verdict"][0]
            cells = (point, subject, repetition, verdict, *(known.get(name, "-") for name in names))
            rows.append(html.row(escape(str(cell)) for cell in cells))
        head = (
            "point",
            "flow",
            "repetition",
            "verdict",
            "goodput",
            "sent again",
            "in recovery",
            "median RTT",
        )
        return f'{html.table(head, rows)}<p class="note">Of each flow from its start to its end.</p>'
