"""The pages of ``docs/seeds``: one for each original, and a summary of all.

What is shown of an item stands between its two marks and is written from runs; without a run it stays as it
is. The text around it is written by hand: after each item one of :data:`VERDICTS`, and why.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
import polars as pl

from dumbbell.studies.source import Missing
from tools.seeds.originals import Check, Item, Original, Seed
from tools.seeds.runs import NotRun, Runs
from tools.seeds.shown import SHOWS, Excerpt, Number, Part, Picture, Table, lines

FOLDER = Path("docs/seeds")
WIDTH = 140  # of the lines of a text
VERDICTS = ("Agrees", "Differs", "Null", "Not judged")
NOT_RUN = "Not run yet."
CHECKED = (
    "Numbers of this page, and queries on the tables (Parquet files) of their run directories that give them"
    " without code of this project."
)
CHECKS, SUMMARY, TIMES = "the-checks", "the-summary", "the-times"
_BLOCK = re.compile(r"(<!-- here ([\w-]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
_VERDICT = re.compile(
    rf"<!-- here ([\w-]+) -->\n.*?<!-- end -->\n\n\*\*({'|'.join(VERDICTS)})\.\*\*", re.DOTALL
)


@dataclass
class Page:
    """A page as it is written: its blocks, their pictures, and the tables that checks compare with."""

    seed: Seed
    runs: Runs
    pictures: dict[Path, go.Figure] = field(default_factory=dict)
    tables: dict[str, list[Table]] = field(default_factory=dict)

    def written(self, before: str) -> str:
        """The page, from what it was, or from nothing."""
        blocks = {item.id: self.shown(item) for item in self.seed.items}
        blocks[CHECKS] = self.checked()
        return renewed(before or skeleton(self.seed), blocks)

    def shown(self, item: Item) -> str | None:
        """What is shown of an item beside its original; None without a run."""
        self.tables[item.id], parts = [], []
        try:
            for part in SHOWS[self.seed.name, item.id](self.runs):
                parts.append(self._of(item, part, first=not self.tables[item.id]))
        except NotRun:
            return None
        except Missing as missing:
            parts.append(f"Nothing to show: {missing}\n")
        told = original(item.original) if item.original.text or not self.tables[item.id] else ""
        return "\n".join(filter(None, (told, *parts)))

    def _of(self, item: Item, part: Part, *, first: bool) -> str:
        match part:
            case Table():
                self.tables[item.id].append(part)
                return part.beside(item.original if first else Original())
            case Picture():
                number = sum(path.stem.startswith(f"{item.id}-of-") for path in self.pictures) + 1
                path = FOLDER / self.seed.name / f"{item.id}-of-{number}.svg"
                self.pictures[path] = part.figure
                return f"![{item.shows}]({path.relative_to(FOLDER)})\n\n{part.caption}\n"
            case Excerpt():
                return f"```\n{part.text.rstrip()}\n```\n"

    def checked(self) -> str | None:
        """Numbers of the page beside what a query on the tables of their runs gives; None without any run."""
        rows = [row for check in self.seed.checks if (row := self._check(check))]
        head = ["number", "item", "on the page", "by the query", "run directory", "query"]
        return lines(head, rows) if rows else None

    def _check(self, check: Check) -> list[str] | None:
        scenario, profile = check.run
        try:
            point = self.runs.points(scenario, profile, **check.point)[0]
        except NotRun:
            return None
        except Missing as missing:
            return [check.what, check.item, "-", str(missing), "-", f"`{check.sql}`"]
        cells = [
            table
            for table in self.tables[check.item]
            if check.row in table.rows and check.column in table.head
        ]
        cell = cells[0].rows[check.row][list(cells[0].head).index(check.column)] if cells else "-"
        unit = cell.unit if isinstance(cell, Number) else ""
        there = str(point.relative_to(self.runs.results))
        return [
            check.what,
            check.item,
            str(cell),
            str(Number(queried(point, check.sql), unit)),
            f"`{there}`",
            f"`{check.sql}`",
        ]


def queried(point: Path, sql: str) -> float | None:
    """The one number that a query on the Parquet files of a point gives, each a table of its name."""
    tables = {path.stem: pl.scan_parquet(path) for path in point.glob("*.parquet")}
    with pl.SQLContext(tables) as context:
        found = context.execute(sql).collect().item()
    return None if found is None else float(found)


def original(of: Original) -> str:
    """What an original says, where nothing is beside it."""
    said = f"Original: {of.text}\n" if of.text else ""
    return said + (Table([], {}).beside(of) if of.rows else "")


def renewed(page: str, blocks: Mapping[str, str | None]) -> str:
    """A page with other blocks; a block that is None stays. KeyError of a block that is not given."""
    return _BLOCK.sub(
        lambda own: own[1] + (own[3] if (new := blocks[own[2]]) is None else new) + own[4], page
    )


def skeleton(seed: Seed) -> str:
    """A page on which nothing was run."""
    about = textwrap.fill(seed.about, WIDTH)
    parts = [f"# {seed.title}\n\nBy {seed.by}.\n\n{about}\n\n`make seeds SEED={seed.name}` runs it.\n"]
    for item in seed.items:
        told = f"{original(item.original)}\n{NOT_RUN}\n"
        parts.append(f"## {item.id}: {item.shows}\n\n{item.kind.capitalize()}; {item.where}.\n")
        parts.append(f"<!-- here {item.id} -->\n{told}<!-- end -->\n\n**{VERDICTS[-1]}.**\n")
    parts.append(f"## Checks\n\n{CHECKED}\n")
    parts.append(f"<!-- here {CHECKS} -->\n{NOT_RUN}\n<!-- end -->\n")
    return "\n".join(parts)


def blocks(page: str) -> dict[str, str]:
    """What stands between the marks of a page, by item."""
    return {own[2]: own[3] for own in _BLOCK.finditer(page)}


def verdicts(page: str) -> dict[str, str]:
    """The verdict on each item of a page; items without one are absent."""
    return {item: verdict for item, verdict in _VERDICT.findall(page)}


def summary(seeds: Mapping[str, Seed], pages: Mapping[str, str]) -> str:
    """A row for each original: how much it shows, and what became of it here."""
    kinds = ("table", "figure", "exhibit", "claim", "added")
    body = []
    for name, seed in seeds.items():
        found, shown = verdicts(pages[name]), blocks(pages[name])
        counts = [sum(item.kind == kind for item in seed.items) for kind in kinds]
        answered = sum(NOT_RUN not in shown[item.id] for item in seed.items)
        of = [sum(found[item.id] == verdict for item in seed.items) for verdict in VERDICTS]
        body.append([f"[{seed.title}]({name}.md)", *map(str, [*counts, answered, *of])])
    totals = [sum(int(row[column]) for row in body) for column in range(1, len(body[0]))]
    body.append(["**all**", *(f"**{total}**" for total in totals)])
    head = [
        "original",
        "tables",
        "figures",
        "excerpts",
        "claims",
        "added here",
        "answered",
        *map(str.lower, VERDICTS),
    ]
    return lines(head, body)


def times(runs: Mapping[str, Runs], expected_s: Mapping[str, Mapping[tuple[str, str], float]]) -> str:
    """A row for each run: its points, and the time of one core as expected and as measured."""
    return lines(["part", "run", "points", "expected", "measured"], list(_times(runs, expected_s)))


def _times(
    runs: Mapping[str, Runs], expected_s: Mapping[str, Mapping[tuple[str, str], float]]
) -> Iterator[list[str]]:
    for name, of in runs.items():
        total = 0.0
        for (scenario, profile), points, took_s in of.took_s():
            total += took_s or 0
            known = "-" if took_s is None else _minutes(took_s)
            yield [
                name,
                f"{scenario} {profile}".strip(),
                str(points),
                _minutes(expected_s[name][scenario, profile]),
                known,
            ]
        every = sum(len(plan.points) for plan in of.plans.values())
        yield [
            f"**{name}**",
            "",
            f"**{every}**",
            f"**{_minutes(sum(expected_s[name].values()))}**",
            f"**{_minutes(total)}**",
        ]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds else "-"
