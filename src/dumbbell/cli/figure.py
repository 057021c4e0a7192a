"""``fab figure``: figures of a run as files for papers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dumbbell.cli import tell
from dumbbell.cli.named import named
from dumbbell.report.vector import WIDTH_INCHES, for_paper, write
from dumbbell.results import Run, RunSet
from dumbbell.studies.source import Missing


def figure(  # noqa: PLR0917
    run: str, name: str, formats: Sequence[str], columns: int, out: Path, asked: Sequence[str]
) -> None:
    """Write a figure, or all that the run has data for (``all``), and print the paths; or ``list`` figures.

    ``run`` has commas between several directories, ``asked`` is ``argument=value`` for the figure. SystemExit
    with the reason where there is none.
    """
    data = named(run)
    if name == "list":
        tell(f"{data!r} has these figures, and `all`:\n{data.plot!r}")
        return
    if columns not in WIDTH_INCHES:
        raise SystemExit(f"--columns {columns}: a figure is as wide as 1 column or 2")
    arguments = _arguments(asked)
    names = data.plot.names
    if name != "all" and name not in names:
        raise SystemExit(f"There is no figure {name} of {data!r}; there are all, {', '.join(names)}.")
    made: dict[Path, Any] = {}
    why: dict[str, str] = {}
    for each in names if name == "all" else [name]:
        try:
            drawn = for_paper(_draw(data, each, arguments), columns)
        except (Missing, ValueError) as missing:
            why[each] = str(missing)
            continue
        made |= {out / f"{each}.{kind}": drawn for kind in formats}
    if name != "all" and why:
        raise SystemExit(f"{name}: {why[name]}")
    try:
        write(made)
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    tell("\n".join([*map(str, made), *(f"no {each}: {reason}" for each, reason in why.items())]))


def _draw(data: Run | RunSet, name: str, arguments: Mapping[str, str]):  # type: ignore[no-untyped-def]
    draw = data.plot[name]
    known = inspect.signature(draw).parameters
    if unknown := [each for each in arguments if each not in known]:
        takes = ", ".join(known) or "nothing"
        raise ValueError(f"it has no {', '.join(unknown)}; it takes {takes}")
    lists = {each: value.split(",") if each == "by" else value for each, value in arguments.items()}
    return draw(**lists)


def _arguments(asked: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in asked]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise SystemExit(f"--asked {wrong[0]}: write argument=value, as in metric=rtt")
    return {name: value for name, _, value in pairs}
