"""Commands for runs that have ended, which :mod:`dumbbell.cli.commands` lists with the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task


@task(
    positional=["a", "b"],
    iterable=["also"],
    help={
        "a": "directory of a run, or several with commas between them; NAME= before them names them",
        "b": "directory of another run, or several",
        "also": "further ones; once for each",
        "figure": "file for a figure of the ratios: .svg, .pdf or .png",
    },
)
def compare(_: Context, a: str, b: str, also: Sequence[str] | None = None, figure: str | None = None) -> None:
    """Compare runs or sets of runs with the first: medians, their ratio with its interval, other differences.

    Settings of hosts that differ without an explanation by plans or kernels are listed first.
    Exits with 2 if there is nothing to compare.
    """
    from dumbbell.cli import compare as command

    command.compare([a, b, *(also or ())], Path(figure) if figure else None)


@task(help={"results": "directory of the runs"})
def index(_: Context, results: str = "results") -> None:
    """Write index.html of all runs again, for example after runs were copied or deleted."""
    from dumbbell.cli import index as command

    command.index(Path(results))


@task(
    iterable=["run"],
    help={
        "run": "directory of a run, or of a point; once for each. By default all old runs of `results`",
        "results": "directory of the runs",
        "days": "runs that began so many days ago are old",
        "unpack": "put back what is packed, of each --run",
    },
)
def archive(
    _: Context, run: Sequence[str], results: str = "results", days: int = 30, unpack: bool = False
) -> None:
    """Pack the large raw files of old runs; tables, verdicts and reports stay. Tells what is saved."""
    from dumbbell.cli import archive as command

    command.archive([Path(each) for each in run], Path(results), int(days), unpack=unpack)


@task(
    positional=["run", "name"],
    iterable=["asked"],
    help={
        "run": "directory of a run, or several with commas between them",
        "name": "the figure, or all; list tells which there are",
        "pdf": "as PDF, the default",
        "svg": "as SVG",
        "png": "as PNG, of 384 dpi",
        "columns": "as wide as 1 column of a paper, or 2",
        "out": "directory of the files",
        "asked": "argument=value of the figure, such as metric=rtt; once for each",
    },
)
def figure(  # noqa: PLR0917
    _: Context,
    run: str,
    name: str,
    asked: Sequence[str],
    pdf: bool = False,
    svg: bool = False,
    png: bool = False,
    columns: int = 1,
    out: str = ".",
) -> None:
    """Write a figure of a run for a paper: ``dumbbell figure results/latest goodput --pdf``."""
    from dumbbell.cli.figure import figure as command

    formats = [kind for kind, wanted in (("pdf", pdf), ("svg", svg), ("png", png)) if wanted] or ["pdf"]
    command(run, name, formats, int(columns), Path(out), asked)


@task(
    positional=["run"],
    help={
        "run": "directory of a run, or several with commas between them",
        "metrics": "metrics of the scenario reference, with commas between them",
        "csv": "as CSV, in base units, in place of LaTeX",
        "out": "the file; by default it is printed",
    },
)
def table(
    _: Context, run: str, metrics: str = "goodput,rtt,retransmits", csv: bool = False, out: str = ""
) -> None:
    """Print medians by levels and flows with their intervals, as LaTeX for a paper or as CSV."""
    from dumbbell.cli.table import table as command

    command(run, metrics, csv=csv, out=out)


@task(
    positional=["run", "kind"],
    help={
        "run": "directory of a run, or several with commas between them",
        "kind": "csv, flent, pcapng, or qlog (of atou)",
        "out": "directory of the files",
    },
)
def export(_: Context, run: str, kind: str, out: str = ".") -> None:
    """Write a run for another tool: one long CSV, or for each point a file of Flent, pcapng or qlog."""
    from dumbbell.cli.export import export as command

    command(run, kind, Path(out))
