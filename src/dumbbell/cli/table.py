"""``fab table``: medians of a run as LaTeX or CSV."""

from __future__ import annotations

from pathlib import Path

from dumbbell.cli import tell
from dumbbell.cli.named import points_of
from dumbbell.report import latex
from dumbbell.studies.source import Missing


def table(run: str, metrics: str, *, csv: bool, out: str) -> None:
    """Print or write medians by levels and flows; SystemExit with the reason without any."""
    runs = points_of(run)
    try:
        medians = runs.medians(metrics.split(","))
    except Missing as error:
        raise SystemExit(str(error)) from None
    title = runs[0].manifest.get("title") or Path(run).name
    text = medians.write_csv() if csv else latex.table(medians, title)
    if out:
        Path(out).write_text(text)
        text = out
    tell(text.rstrip())
