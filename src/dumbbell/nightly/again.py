"""An A/B in the same night: measure a point in turn with the kernels before a change and those of now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import polars as pl
from ruamel.yaml import YAML

from dumbbell import analysis
from dumbbell.metrics.registry import PERCENTILES
from dumbbell.metrics.values import VALUES, values
from dumbbell.nightly.changes import PAIRS
from dumbbell.nightly.history import Series
from dumbbell.nightly.judge import NotMeasured
from dumbbell.plan import Inventory, Plan
from dumbbell.run.record import read_json
from dumbbell.scenario.tree import read
from dumbbell.suite import Budget, Entry, Outcome, run_entry

NOW, BEFORE = "night_now", "night_before"  # names of profiles
SPARE = 2  # runs that may be invalid
_KERNEL = " kernel"


class InTurn:
    """Runs the A/B of a point once a night for all of its series, within the budget."""

    def __init__(
        self, inventory: Path, folder: Path, ran: Iterable[tuple[Outcome, Plan]], budget: Budget
    ) -> None:
        self._inventory, self._folder, self._budget = inventory, folder, budget
        self.exact = Inventory.read(inventory).virtual
        self._ran = {str(outcome.run_dir): (outcome.entry, wanted) for outcome, wanted in ran}
        self._found: dict[str, tuple[list[pl.DataFrame], str]] = {}

    def __call__(
        self, series: Series, before: Mapping[str, str], now: Mapping[str, str]
    ) -> list[tuple[float, float]]:
        """Pairs of values of a series, with what was under test before and what is now.

        Raises NotMeasured if what was under test cannot be had, or if there are too few valid runs.
        """
        point = series.key.point
        if point not in self._found:
            if series.runs[-1] not in self._ran:
                raise NotMeasured("it is no longer in the suite")
            self._found[point] = self._measure(*self._ran[series.runs[-1]], point, kernels(before, now))
        tables, why = self._found[point]
        each = [
            table.filter(metric=series.key.metric, subject=series.key.subject)["value"].to_list()
            for table in tables
        ]
        pairs = list(zip(*each, strict=False))
        if len(pairs) < PAIRS:
            raise NotMeasured(why or f"{len(pairs)} of {PAIRS} pairs of runs have a number")
        return pairs

    def _measure(
        self, entry: Entry, wanted: Plan, point: str, of: Mapping[str, tuple[str, str]]
    ) -> tuple[list[pl.DataFrame], str]:
        """Values of both sides, before and now, in the order of runs; and the reason if there are too few."""
        results = self._folder / "again" / point
        own = [p for p in wanted.points if p.id == point]
        if why := self._budget.refuses(wanted.model_copy(update={"points": own * (2 * PAIRS)})):
            return [], why
        results.mkdir(parents=True, exist_ok=True)
        scenario = with_kernels(Path(entry.scenario), of, results)
        spare, last, why = SPARE, NOW, ""

        @cache
        def read_once(run_dir: Path) -> pl.DataFrame:
            return values(run_dir, PERCENTILES)

        def run(side: str) -> None:
            profile = ",".join(filter(None, (entry.profile, side)))
            asked = Entry(scenario=str(scenario), profile=profile)
            run_entry(asked, self._inventory, results / side, virtual=self.exact, point=point)

        # Now first, and in the next round last: the hosts end with the kernel of now.
        for i in range(PAIRS):
            for side in (NOW, BEFORE) if i % 2 == 0 else (BEFORE, NOW):
                while len(_valid(results / side, read_once)) <= i and spare >= 0:
                    run(side)
                    last = side
                    if len(_valid(results / side, read_once)) <= i:
                        spare, why = spare - 1, _reason(results / side)
        if last != NOW:
            run(NOW)
        return [
            pl.concat([pl.DataFrame(schema=VALUES), *_valid(results / side, read_once)])
            for side in (BEFORE, NOW)
        ], why


def kernels(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """For each host whose kernel changed: the release before and now.

    Raises NotMeasured if something else is under test too: hosts keep their former kernels, and nothing else.
    """
    found = {}
    for name in {**before, **now}:
        host, _, what = name.partition(" ")
        of = (before.get(name), now.get(name))
        if what == "kernel" and of[0] != of[1] and None not in of:
            found[host] = of
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    others = [
        name
        for name in changed
        if name.partition(" ")[0] not in found or name.partition(" ")[2] in ("iperf3", "atou")
    ]
    if others or not found:
        raise NotMeasured(
            f"{', '.join(others) or 'what was under test'} cannot be had as it was; only kernels can"
        )
    return found  # type: ignore[return-value]


def with_kernels(scenario: Path, of: Mapping[str, tuple[str, str]], folder: Path) -> Path:
    """Write a scenario with the profiles BEFORE and NOW, which request the kernels; return its path."""
    asked = dict(read(scenario).value)
    profiles = {
        name: {"hosts": {host: {"kernel": releases[i]} for host, releases in of.items()}}
        for i, name in enumerate((BEFORE, NOW))
    }
    asked["profiles"] = {**asked.get("profiles", {}), **profiles}
    target = folder / scenario.name
    YAML(typ="safe").dump(asked, target)
    return target


def _valid(results: Path, read_run: Callable[[Path], pl.DataFrame]) -> list[pl.DataFrame]:
    """Values of each valid run in a directory; unreadable runs are left out."""
    return [table for table in _tables(results, read_run) if not table.is_empty()]


def _tables(results: Path, read_run: Callable[[Path], pl.DataFrame]) -> Iterator[pl.DataFrame]:
    for run in sorted(results.glob("[0-9]*/verdict.json")):
        with suppress(OSError, ValueError, pl.exceptions.PolarsError):
            yield read_run(run.parent).filter(pl.col("verdict").is_in(analysis.VALID))


def _reason(results: Path) -> str:
    """Why the last run of a directory is not valid."""
    verdicts = [read_json(path) or {} for path in sorted(results.glob("[0-9]*/verdict.json"))]
    reasons = verdicts[-1].get("reasons") if verdicts else None
    return f"a run of the A/B was not valid: {reasons[0] if reasons else 'it has no verdict'}"
