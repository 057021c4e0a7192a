"""The original atou's figures, from its simulator and from runs of its scenarios."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path

import polars as pl
from markupsafe import Markup

from dumbbell import analysis, atou
from dumbbell.metrics.values import values
from dumbbell.plan import Flow
from dumbbell.report import html
from dumbbell.report.figures import atou as figures
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import part
from dumbbell.run.content import RunSet
from dumbbell.studies.atou import flows_of_atou
from dumbbell.studies.source import Missing
from dumbbell.units import human

BIN_NS = 200_000_000  # goodput of a run: its samples do not lie on the edges of bins
_COUNTS = ("retransmits", "duplicates", "events", "timeouts")

fill = partial(html.part, "atou.html")


class Simulations:
    """Parts about the simulator's transfers in the original's experiments."""

    name = "atou"

    @cached_property
    def _found(self) -> dict[str, dict[str, atou.Simulated]]:
        try:
            return {name: experiment.run() for name, experiment in atou.EXPERIMENTS.items()}
        except atou.AtouError as error:
            raise Missing(f"{error}.") from None

    @part
    def compared(self) -> Markup:
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
                    experiment.title,
                    transfer,
                    "-" if original is None else f"{original:g}",
                    f"{simulated.goodput_bps / 1e6:.3g}",
                    *(str(count) for count in counts),
                    f"{simulated.sender['avg_rtt_ns'] / 1e6:.1f}",
                ]
                rows.append(cells)
        head = (
            "experiment",
            "transfer",
            "original (Mbit/s)",
            "simulated (Mbit/s)",
            *_COUNTS,
            "mean RTT (ms)",
        )
        return fill("compared", head=head, rows=rows)

    @part
    def goodput(self, name: str) -> Markup:
        """Goodput of an experiment's transfers, over time and on average."""
        found = self._of(name)
        means = ", ".join(f"{name} {human(one.goodput_bps, 'bps')}" for name, one in found.items())
        samples = {transfer: one.samples for transfer, one in found.items()}
        drawn = figures.simulated_goodput(samples, _length_s(found))
        return fill("simulated", drawn=drawn, experiment=atou.EXPERIMENTS[name].title, means=means)

    @part
    def state(self, name: str) -> Markup:
        """Windows, or RTTs where these are more informative."""
        found = self._of(name)
        column = atou.EXPERIMENTS[name].column
        samples = {transfer: one.samples for transfer, one in found.items()}
        drawn = figures.state(samples, column, _length_s(found))
        return fill("simulated_state", drawn=drawn, column=column)

    def _of(self, name: str) -> dict[str, atou.Simulated]:
        if name not in self._found:
            raise Missing(f"There is no experiment {name}; there are {', '.join(self._found)}.")
        return self._found[name]


def _length_s(found: dict[str, atou.Simulated]) -> float:
    return max(simulated.elapsed_ns for simulated in found.values()) / 1e9


class AtouRun(Report):
    """Parts about the atou flows of a run, of all points together."""

    def __init__(self, run_dir: Path | str) -> None:
        self._points = RunSet.open(run_dir).dirs
        super().__init__(self._points[0])
        self._whole = run_dir

    @cached_property
    def _flows(self) -> dict[str, tuple[Flow, pl.DataFrame]]:
        """Each atou flow by its label, and its samples, with times since its start."""
        found = dict(flows_of_atou(self._points))
        if not found:
            raise Missing("This run has no flow of atou whose sender told of itself.")
        return found

    @part
    def goodput(self) -> Markup:
        """Goodput of each flow of atou from its start on."""
        rates = {}
        for name, (flow, rows) in self._flows.items():
            edges = analysis.steps(0, flow.duration_ns, BIN_NS)
            rates[name] = analysis.goodput(analysis.counters(rows), edges)
        drawn = figures.goodput(rates, self._length_s)
        return fill("goodput", drawn=drawn, width_ns=BIN_NS)

    @part
    def cwnd(self) -> Markup:
        """Congestion windows."""
        return self._state("snd_cwnd")

    @part
    def srtt(self) -> Markup:
        """Smoothed round-trip times."""
        return self._state("srtt_us")

    def _state(self, column: str) -> Markup:
        samples = {name: rows for name, (_, rows) in self._flows.items()}
        drawn = figures.state(samples, column, self._length_s)
        return fill("state", drawn=drawn, column=column)

    @property
    def _length_s(self) -> float:
        return max(flow.duration_ns for flow, _ in self._flows.values()) / 1e9

    @part
    def numbers(self) -> Markup:
        """A row for each point and flow, with TCP's flows beside them."""
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
            rows.append([str(cell) for cell in cells])
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
        return fill("numbers", head=head, rows=rows)
