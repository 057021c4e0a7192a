"""``fab export``: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

from dumbbell.cli import tell
from dumbbell.cli.named import points_of
from dumbbell.export import flent, long, pcapng, qlog
from dumbbell.results import Run
from dumbbell.studies.source import Missing

OF_POINTS = {
    "flent": (flent.write, flent.SUFFIX),
    "pcapng": (pcapng.write, ".pcapng"),
    "qlog": (qlog.write, ".qlog"),
}
FORMATS = ("csv", *OF_POINTS)


def export(run: str, kind: str, out: Path) -> None:
    """Write a file, or one for each point, into a directory, and print paths; SystemExit without any."""
    if kind not in FORMATS:
        raise SystemExit(f"There is no format {kind}; there are {', '.join(FORMATS)}.")
    runs = points_of(run)
    out.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        path = out / f"{_name(runs[0], several=len(runs) > 1)}.csv"
        try:
            long.write(runs, path)
        except Missing as missing:
            raise SystemExit(str(missing)) from None
        tell(str(path))
        return
    write, suffix = OF_POINTS[kind]
    made, why = [], []
    for point in runs:
        path = out / f"{_name(point)}{suffix}"
        try:
            write(point, path)
            made.append(str(path))
        except Missing as missing:
            why.append(f"{point.name}: {missing}")
    if not made:
        raise SystemExit("\n".join(dict.fromkeys(why)))
    tell("\n".join([*made, *why]))


def _name(point: Run, *, several: bool = False) -> str:
    """Of a file: the name of the run, and of the point if the run has several."""
    folder = point.dir
    if folder.parent.name != "points":
        return folder.name
    run = folder.parent.parent.name
    return run if several else f"{run}_{folder.name}"
