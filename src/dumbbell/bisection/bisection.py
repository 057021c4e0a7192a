"""A bisection from its ends to the commit, which can be interrupted anywhere and goes on from its files.

``bisection.json`` has what was asked and every step; git keeps the search itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dumbbell.analysis.statistics import Interval
from dumbbell.bisection.decide import Effect, ends, step
from dumbbell.bisection.measure import Failed, Measure, Untestable
from dumbbell.bisection.search import Search
from dumbbell.run.record import read_json, write_json
from dumbbell.versions import refuse_newer

Tell = Callable[[str], None]
_FILE = "bisection.json"
_VERSION = 1  # of this file
_SHORT = 12  # digits of a commit's id
Json = dict[str, Any]


class NoDifference(Exception):
    """Good and bad cannot be told apart, so there is nothing to search."""


@dataclass
class Step:
    """A commit that was measured. ``low`` to ``high`` is the interval of ``change``, of 95 %."""

    commit: str
    subject: str
    word: Literal["good", "bad", "skip"]
    is_end: bool = False
    reason: str = ""  # of a skip
    values: list[float] = field(default_factory=list)
    change: float | None = None  # its mean over the good end's, or their difference
    low: float | None = None
    high: float | None = None
    is_ratio: bool = True
    error: float = 0.0  # probability, at most, that the word is wrong
    build_s: float = 0.0
    measure_s: float = 0.0
    reports: list[str] = field(default_factory=list)

    @property
    def short(self) -> str:
        """The commit as people write it."""
        return self.commit[:_SHORT]


class Bisection:
    """Of a search, by a measure. ``sure`` is the least probability that the whole answer is right."""

    def __init__(
        self,
        folder: Path,
        search: Search,
        measure: Measure,
        *,
        asked: Json,
        looks: Sequence[int],
        sure: float,
        tell: Tell,
    ) -> None:
        self.folder, self.search, self.measure, self.tell = folder, search, measure, tell
        self.asked, self.looks, self.sure = asked, looks, sure
        self._file = folder / _FILE
        kept = read(folder)
        self.steps = [Step(**of) for of in kept.get("steps", [])]
        # Of the whole search, so that its later steps are not judged more mildly.
        self.expected: int = kept.get("expected") or search.steps

    @property
    def found(self) -> list[str]:
        """The first bad commit, or those of which it is one because others between them were skipped."""
        return self.search.found

    @property
    def error(self) -> float:
        """The probability, at most, that any word of the search is wrong."""
        return min(1.0, sum(one.error for one in self.steps))

    @property
    def effect(self) -> Effect | None:
        """Of the commit that was found, over the last good one before it; None unless it is a single one."""
        if len(self.found) != 1:
            return None
        values = {one.commit: one.values for one in self.steps if one.values}
        parents = self.search.parents(self.found[0])
        good = next((values[commit] for commit in parents if commit in values), None)
        return ends(good, values[self.found[0]]) if good else None

    def run(self, good: str, bad: str) -> None:
        """Search until git has found it. NoDifference, Failed, KernelError or KeyboardInterrupt before that.

        Ends are measured first: nothing else is built unless they differ.
        """
        self._keep()
        if not any(one.is_end for one in self.steps):
            self._ends(good, bad)
        known = {one.commit: one for one in self.steps}
        while not self.found:
            commit = self.search.commit
            if commit not in known:
                self._begin(commit, f"about {self.search.steps} more")
                known[commit] = self._test(commit, good, bad)
                self.steps.append(known[commit])
                self._keep()
                self.tell(told(known[commit]))
            self.search.mark(known[commit].word)

    def _ends(self, good: str, bad: str) -> None:
        made = {}
        for commit, word in ((good, "good"), (bad, "bad")):
            self._begin(commit, f"the {word} end")
            made[commit] = Step(commit, self.search.subject(commit), word, is_end=True)  # type: ignore[arg-type]
            self._build(made[commit])
        try:
            effect, error = self._ends_differ(made[good], made[bad])
        except Untestable as reason:
            raise Failed(f"an end of the search cannot be measured: {reason}") from None
        _set(made[bad], effect, error)
        for one in made.values():
            one.reports = self.measure.reports(one.commit)
            self.steps.append(one)
            self.tell(told(one))
        self._keep()

    def _ends_differ(self, good: Step, bad: Step) -> tuple[Effect, float]:
        effect = None
        for number, seeds in enumerate(self.looks, start=1):
            self._values(good, seeds)
            self._values(bad, seeds)
            effect = ends(good.values, bad.values)
            error = 2 * effect.error * number  # in either direction; more looks find more by chance
            if error <= self._allowed:
                return effect, error
        assert effect is not None
        raise NoDifference(
            f"{good.short} and {bad.short} do not differ in {self.asked['metric']}: {change_of(effect)}, "
            f"{self.looks[-1]} seeds each. Nothing else was built. Choose other ends, another metric or "
            "scenario, or more seeds (--most)"
        )

    def _test(self, commit: str, good: str, bad: str) -> Step:
        made = Step(commit, self.search.subject(commit), "skip")
        try:
            self._build(made)
            for number, seeds in enumerate(self.looks, start=1):
                self._values(made, seeds)
                references = [self.measure.values(end, seeds) for end in (good, bad)]
                word, effect = step(references[0], references[1], made.values)
                error = effect.error * number
                _set(made, effect, error)
                if error <= self._allowed:
                    made.word = word
                    break
            else:
                made.reason = f"{self.looks[-1]} seeds do not show which end it is like"
                made.error = 0.0
        except Untestable as reason:
            made.reason = str(reason)
        made.reports = self.measure.reports(commit)
        return made

    @property
    def _allowed(self) -> float:
        """The error that each answer may have: of the ends, and of the steps that git expects."""
        return (1 - self.sure) / (self.expected + 2)

    def _build(self, one: Step) -> None:
        began = time.monotonic()
        try:
            self.measure.build(one.commit)
        except Untestable as reason:
            if one.is_end:
                raise Failed(f"the {one.word} end {one.short} {reason}") from None
            raise
        one.build_s += time.monotonic() - began

    def _values(self, one: Step, seeds: int) -> None:
        began = time.monotonic()
        one.values = self.measure.values(one.commit, seeds)
        one.measure_s += time.monotonic() - began

    def _begin(self, commit: str, where: str) -> None:
        self.tell(f"{commit[:_SHORT]} {self.search.subject(commit)} ({where})")

    def _keep(self) -> None:
        """Write it whole or not at all."""
        part = self._file.with_suffix(".part")
        steps = [asdict(one) for one in self.steps]
        write_json(
            part, {"schema_version": _VERSION, "asked": self.asked, "expected": self.expected, "steps": steps}
        )
        part.replace(self._file)


def read(folder: Path) -> Json:
    """What was kept of the search in a directory, or nothing; NewerError if that cannot be read."""
    refuse_newer(folder / _FILE, _VERSION)
    return read_json(folder / _FILE) or {}


def _set(one: Step, effect: Effect, error: float) -> None:
    one.change, one.low, one.high = effect.interval.value, effect.interval.low, effect.interval.high
    one.is_ratio, one.error = effect.is_ratio, error


def change_of(effect: Effect) -> str:
    """``-3.1 % (-3.5 to -2.7)`` of a ratio, or a difference in the metric's unit."""
    return change(effect.interval, is_ratio=effect.is_ratio)


def change(interval: Interval, *, is_ratio: bool) -> str:
    """The same of an interval."""
    numbers = (interval.value, interval.low, interval.high)
    value, low, high = (f"{100 * (x - 1):+.2f}" if is_ratio else f"{x:+.4g}" for x in numbers)
    return f"{value}{' %' if is_ratio else ''} ({low} to {high})"


def told(one: Step) -> str:
    """A step in a line."""
    if one.word == "skip":
        return f"  skip: {one.reason}"
    if one.change is None or one.low is None or one.high is None:
        return f"  {one.word}, {len(one.values)} seeds"
    size = change(Interval(one.change, one.low, one.high), is_ratio=one.is_ratio)
    return f"  {one.word}: {size} against good, {len(one.values)} seeds, wrong with p < {one.error:.2g}"
