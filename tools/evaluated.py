"""Write the tables and figures of ``docs/evaluation/`` from the results of an evaluation.

``python -m tools.evaluated RESULTS``, where RESULTS is the directory that ``fab evaluate`` has written.
``README.md`` compares all candidates; each has a page of its own. A table is renewed between its two marks;
the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dumbbell.evaluation.judge import FAIL, PASS
from dumbbell.evaluation.told import MARKS
from dumbbell.report import figures, vector
from dumbbell.units import human
from tools.seeds.shown import lines

FOLDER = Path("docs/evaluation")
EMPTY = "<!-- table -->\n<!-- end -->\n"
_TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->\n)", re.DOTALL)
_WIDTH_PX, _ROW_PX = 760, 15
_WIDEST = 10  # what is more than ten times better or worse than its bound has the same colour
_COLOURS = [[0, "#b2400a"], [0.5, "#ffffff"], [1, "#1b6ca8"]]

Criterion = Mapping[str, Any]


def decisive(criterion: Criterion) -> Mapping[str, Any]:
    """The point that decides a criterion of ``summary.json``: nearest to its bound, or farthest beyond."""
    own = [point for point in criterion["points"] if point["state"] == criterion["state"]]
    return min(own, key=lambda point: math.inf if point["margin"] is None else point["margin"])


def comparison(candidates: Mapping[str, Sequence[Criterion]]) -> str:
    """A row for each criterion, a column for each candidate; then how many each passes."""
    names = [*candidates]
    rows = [["criterion", *(f"[{name}]({name}.md)" for name in names)]]
    family = ""
    for results in zip(*candidates.values(), strict=True):
        if results[0]["family"] != family:
            family = results[0]["family"]
            rows.append([f"**{family}**", *("" for _ in names)])
        rows.append([f"`{results[0]['name']}`", *(_cell(result) for result in results)])
    sums = [str(sum(of["state"] == PASS for of in results)) for results in candidates.values()]
    rows.append([f"**passes of {len(next(iter(candidates.values())))}**", *(f"**{each}**" for each in sums)])
    return lines(rows[0], rows[1:])


def own(results: Sequence[Criterion]) -> str:
    """A row for each criterion: verdict, value, bound, the references' values, and the point that decides."""
    rows = [["", "criterion", "value", "bound", "references there", "point"]]
    for of in results:
        point = decisive(of)
        others = [
            f"{name} {human(value, of['unit'])}"
            for name, value in point["others"].items()
            if value is not None and name in of["bound"]
        ]
        value = point["why"] if point["value"] is None else human(point["value"], of["unit"])
        judged = [MARKS[of["state"]], of["title"], value, f"{of['metric']} {of['bound']}"]
        rows.append([*judged, ", ".join(others), point["point"]])
    return lines(rows[0], rows[1:])


def heat_map(candidates: Mapping[str, Sequence[Criterion]]) -> go.Figure:
    """How many times as good as its bound each candidate is; failed criteria have a cross."""
    (first, *_) = candidates.values()
    rows = [*zip(*candidates.values(), strict=True)]
    figure = go.Figure(
        go.Heatmap(
            x=[*candidates],
            y=[of["name"] for of in first],
            z=[[None if (at := _margin(of)) is None else math.log10(at) for of in row] for row in rows],
            text=[[MARKS[FAIL] if of["state"] == FAIL else "" for of in row] for row in rows],
            texttemplate="%{text}",
            zmin=-math.log10(_WIDEST),
            zmax=math.log10(_WIDEST),
            colorscale=_COLOURS,
            xgap=1,
            ygap=1,
            colorbar={
                "title": "times as good<br>as the bound",
                "tickvals": [math.log10(at) for at in (0.1, 0.2, 0.5, 1, 2, 5, 10)],
                "ticktext": ["0.1", "0.2", "0.5", "1", "2", "5", "10"],
                "thickness": 10,
            },
        )
    )
    figure.update_yaxes(autorange="reversed", dtick=1, automargin=True, showgrid=False)
    figure.update_xaxes(side="top", showgrid=False)
    return _sized(figure, len(first))


def margins(name: str, results: Sequence[Criterion]) -> go.Figure:
    """How many times as good as its bound a candidate is, for each criterion."""
    marks = [(_margin(of), human(decisive(of)["value"], of["unit"])) for of in results]
    return _sized(figures.margins([of["name"] for of in results], {name: marks}), len(results))


def write(folder: Path, candidates: Mapping[str, Sequence[Criterion]]) -> Iterator[Path]:
    """Write pages and figures into a directory; the paths of the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    vector.write(
        {folder / "comparison.svg": heat_map(candidates)}
        | {folder / f"{name}.svg": margins(name, results) for name, results in candidates.items()}
    )
    pages = {"README": comparison(candidates)} | {name: own(results) for name, results in candidates.items()}
    for name, table in pages.items():
        path = folder / f"{name}.md"
        path.write_text(renewed(path.read_text() if path.exists() else f"# {name}\n\n{EMPTY}", table))
        yield path


def renewed(text: str, table: str) -> str:
    """A page with another table."""
    return _TABLE.sub(lambda marks: f"{marks[1]}{table}{marks[2]}", text)


def _cell(of: Criterion) -> str:
    point = decisive(of)
    if point["value"] is None:
        return MARKS[of["state"]]
    told = human(point["value"], of["unit"]).replace(" ", "\N{NO-BREAK SPACE}")
    return f"{MARKS[of['state']]} {told}"


def _margin(of: Criterion) -> float | None:
    """Within what is drawn; None without an answer."""
    margin = decisive(of)["margin"]
    return None if margin is None else min(max(margin, 1 / _WIDEST), _WIDEST)


def _sized(figure: go.Figure, rows: int) -> go.Figure:
    figure.update_layout(
        width=_WIDTH_PX,
        height=90 + _ROW_PX * rows,
        font={"family": vector.FONT, "size": 11},
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        paper_bgcolor="#ffffff",
        plot_bgcolor="#eeeeee",
    )
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.evaluated", description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="the directory that fab evaluate has written")
    summary = json.loads((parser.parse_args(arguments).results / "summary.json").read_text())
    for path in write(FOLDER, {name: of["criteria"] for name, of in summary["candidates"].items()}):
        print(path)


if __name__ == "__main__":
    main()
