"""Sets of runs that are compared: what is valid of each, what they were asked for, what their hosts had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.compare.observed import Difference, Seen, by_hosts, differences, unexplained
from dumbbell.metrics.values import VALUES, conditions, digests, values
from dumbbell.plan.settings import settings
from dumbbell.run.content import Run, RunSet, located
from dumbbell.run.record import read_json
from dumbbell.validity.settings import seen

FEW = 5  # settings that are told one by one
UNEXPLAINED = "Settings of hosts that differ, and nothing explains it:"


@dataclass(frozen=True)
class Side:
    """A set of runs: its directories, and what came of each of their points."""

    name: str
    dirs: Sequence[Path]

    @cached_property
    def values(self) -> pl.DataFrame:
        """Metrics of its valid points, as :func:`dumbbell.metrics.values.values` has them."""
        return pl.concat([pl.DataFrame(schema=VALUES), *map(values, self.valid)])

    @cached_property
    def points(self) -> list[tuple[Path, dict[str, Any]]]:
        """Directory and verdict of each point that has one."""
        folders = RunSet.open(*self.dirs).dirs
        return [(folder, read_json(folder / "verdict.json") or {}) for folder in folders]

    @cached_property
    def valid(self) -> list[Path]:
        """Directories of the points whose numbers are results."""
        return [folder for folder, verdict in self.points if verdict.get("state") in analysis.VALID]

    @property
    def count(self) -> str:
        """How many of its runs are valid."""
        what = "runs" if len(self.points) == len(self.dirs) else "points"
        return f"{len(self.valid)} of {len(self.points)} {what} of {self.name}"

    @property
    def lacks(self) -> str | None:
        """Which is the first of its runs that is not valid, and why; None if all are."""
        if not self.points:
            return f"no run of {self.name} came to a verdict"
        for folder, verdict in self.points:
            if folder not in self.valid:
                return f"{self.count} are valid: {folder} {_fate(folder, verdict)}"
        return None

    def had(self, told: Callable[[Path], dict[Any, str]]) -> dict[Any, str]:
        """Conditions or settings of its valid points, by name."""
        found: dict[Any, set[str]] = {}
        for each in (told(folder) for folder in self.valid):
            for name, value in each.items():
                found.setdefault(name, set()).add(value)
        return {name: ", ".join(sorted(of)) for name, of in found.items()}

    @cached_property
    def seen(self) -> list[Seen]:
        """Settings of hosts at each valid point that kept them."""
        runs = [Run.open(folder) for folder in self.valid]
        found = seen(((run, self.name) for run in runs), valid=True)
        # In virtual time a run is begun on a kernel: all runs of a side must be on the same.
        virtual = any(run.plan.virtual for run in runs)
        return [replace(one, side=self.name) for one in found] if virtual else [*found]

    @cached_property
    def digests(self) -> dict[tuple[str, int], dict[str, set[str]]]:
        """Of each point and repetition that was run in virtual time all digests of each table."""
        found: dict[tuple[str, int], dict[str, set[str]]] = {}
        for key, told in (of for folder in self.valid for of in digests(folder).items()):
            for table, digest in told.items():
                found.setdefault(key, {}).setdefault(table, set()).add(digest)
        return found


class Sides:
    """Sets of run directories by name. OSError or ValueError if files of a valid run cannot be read."""

    def __init__(self, runs: Mapping[str, Iterable[Path | str]], accept: Sequence[str] = ()) -> None:
        self._accept = accept
        self.sides = [Side(name, [located(run_dir) for run_dir in dirs]) for name, dirs in runs.items()]

    @cached_property
    def _differences(self) -> list[Difference]:
        return differences([one for side in self.sides for one in side.seen])

    @cached_property
    def unexplained(self) -> list[str]:
        """Settings of hosts that differ within a side or between sides, which nothing explains or accepts."""
        return by_hosts(unexplained(self._differences, self._accept))

    def notes(self) -> list[str]:
        """Which runs are not valid, what sides were asked for and had that is not the same, and points that
        only some have.
        """
        lacking = [lack for side in self.sides if (lack := side.lacks)]
        if not all(side.valid for side in self.sides):
            return lacking
        first, *others = self.sides
        only = dict.fromkeys(
            told
            for other in others
            for told in analysis.only_one_has(first.values, other.values, (first.name, other.name))
        )
        return [*lacking, *self._settings(), *self._host_settings(), *self._conditions(), *only]

    def _settings(self) -> Iterator[str]:
        """Settings that differ at points of all sides, each once for all hosts and points."""
        each = [side.had(_settings) for side in self.sides]
        shared = set.intersection(*({point for point, *_ in found} for found in each))
        differ: dict[tuple[str, str], dict[str, list[str]]] = {}
        for point, subject, name in dict.fromkeys(key for found in each for key in found):
            told = self._differ([found.get((point, subject, name)) for found in each])
            if told and point in shared:
                differ.setdefault((name, told), {}).setdefault(subject, []).append(point)
        for (name, told), subjects in differ.items():
            points = list(dict.fromkeys(point for of in subjects.values() for point in of))
            where = "" if len(points) == len(shared) else f", at {', '.join(points)}"
            yield f"{name} of {', '.join(subjects)}{where}: {told}"

    def _host_settings(self) -> Iterator[str]:
        """Settings of hosts that differ and are accepted, or that another kernel explains."""
        accepted = [one for one in self._differences if not one.because]
        for told in by_hosts(accepted):
            if told not in self.unexplained:
                yield f"accepted: {told}"
        kernels: dict[str, list[str]] = {}
        for one in self._differences:
            if one.because == ("kernel",):
                kernels.setdefault(one.name, []).append(one.host)
        names: dict[str, list[str]] = {}
        for name, hosts in kernels.items():
            names.setdefault(", ".join(hosts), []).append(name)
        for where, of in names.items():
            yield f"settings that come with the kernels, of {where}: {', '.join(in_short(of))}"
        for side in self.sides:
            older = len(side.valid) - len(side.seen)
            if older and any(other.seen for other in self.sides):
                yield f"{older} of {len(side.valid)} valid runs of {side.name} kept no settings of hosts"

    def _conditions(self) -> Iterator[str]:
        each = [side.had(conditions) for side in self.sides]
        for name in dict.fromkeys(name for found in each for name in found):
            if told := self._differ([found.get(name) for found in each]):
                yield f"{name}: {told}"

    def _differ(self, each: Sequence[str | None]) -> str:
        """What each side has, in words; empty if it is the same."""
        if all(one == other for one, other in pairwise(each)):
            return ""
        told = (f"{one or 'none'} in {side.name}" for one, side in zip(each, self.sides, strict=True))
        return ", ".join(told)


def in_short(names: Sequence[str]) -> list[str]:
    """Names of settings; of many of an interface, or of a part of the sysctls, their number."""

    def of(name: str) -> str:
        return f"{name.rpartition('.')[0]}.*" if name.startswith("net.") else name.partition(" ")[0]

    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(of(name), []).append(name)
    return [
        told
        for group, own in groups.items()
        for told in (own if len(own) <= FEW else [f"{len(own)} settings of {group}"])
    ]


def _fate(folder: Path, verdict: dict[str, Any]) -> str:
    if not verdict:
        return "has no verdict" if (folder / "plan.json").exists() else "is no directory of a run"
    reason = next(iter(verdict.get("reasons") or []), "no reason was written down")
    return f"is {verdict.get('state')}: {reason}"


def _settings(point_dir: Path) -> dict[tuple[str, str, str], str]:
    point = Run.open(point_dir).point
    return {(point.label or "-", *of): value for of, value in settings(point).items()}
