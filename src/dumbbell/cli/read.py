"""``fab read``: make a directory like that of a run from files of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dumbbell.read.directory import make
from dumbbell.report.notebooks import READ_REPORT, render
from dumbbell.studies.limits import what_limited
from dumbbell.studies.source import Missing, Source


def read(paths: Sequence[Path], results: Path, most_flows: int) -> None:
    """Write the directory, and print what limited each flow and the path of the report.

    SystemExit with the reason if a file cannot be read.
    """
    try:
        run_dir = make(paths, results, most_flows)
    except OSError as error:
        raise SystemExit(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    except ValueError as error:
        raise SystemExit(str(error)) from None
    try:
        for limited in what_limited(Source(run_dir)):
            flow = limited.flow
            print(f"{flow.name}, {flow.src} to {flow.dst}: {limited.sentence}")
    except Missing as missing:
        print(missing)
    print(render(run_dir, READ_REPORT))
