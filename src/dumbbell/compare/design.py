"""The design of an A/B: who runs in which order with which seed, and how many rounds it takes.

A round is a block: each side runs once, with the same seed, close together in time. Pure functions, the same
for the same arguments.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Literal

import scipy

from dumbbell.analysis.blocks import least_p
from dumbbell.analysis.statistics import LEVEL, POWER
from dumbbell.quantities import Strict

PILOT = 4  # rounds from whose spread the number of all rounds follows
MOST_ROUNDS = 1000  # seeds of rounds that replace others begin beyond those
SCHEMA_VERSION: Literal[1] = 1  # of ab.json
UNREACHABLE = 10**6  # a number of rounds that stands for all that nobody runs


@dataclass(frozen=True)
class Round:
    """A round: its number from 1, its sides in the order in which they run, and the seed of their runs."""

    number: int
    sides: tuple[str, ...]
    seed: int

    def again(self, attempt: int) -> Round:
        """The round that replaces this one: its order, but other random numbers; attempts count from 1."""
        return replace(self, seed=self.seed + (attempt - 1) * MOST_ROUNDS)


class Arm(Strict):
    """What a side runs: the plan of a profile, on the inventory's kernels or, in virtual time, on another.

    ``plan`` is the digest of the plan. ``built`` names what ``kernel`` was when the A/B began, as
    :class:`dumbbell.kernels.Kernel` does: a branch may move.
    """

    profile: str | None
    kernel: str | None = None
    built: str | None = None
    plan: str


class Design(Strict):
    """What is decided before the first run: the content of ``ab.json``.

    ``sides`` have names; the others are compared with the first. ``least`` is the smallest difference that
    matters, as a share. ``pilot`` rounds decide how many rounds there are, at most all of ``rounds``; 0 if
    their number was asked for. ``chosen`` is that number.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    scenario: str
    inventory: str
    sides: dict[str, Arm]
    metric: str
    of: str
    least: float
    pilot: int
    rounds: list[Round]
    chosen: int | None = None

    @property
    def number(self) -> int:
        """How many rounds there are; of a pilot that has not ended, its own."""
        return self.chosen or self.pilot


def rounds(sides: Sequence[str], number: int, seed: int) -> list[Round]:
    """So many rounds, in random orders; fewer are the first of more.

    In the first rounds, as many as there are sides, each side has each place once, and so on: they are Latin
    squares. What drifts steadily then affects all sides alike.
    """
    orders = _orders(sides, random.Random(f"{seed}/rounds"))
    return [Round(i + 1, next(orders), seed + i) for i in range(number)]


def _orders(sides: Sequence[str], drawn: random.Random) -> Iterator[tuple[str, ...]]:
    while True:
        names, shifts = list(sides), list(range(len(sides)))
        drawn.shuffle(names)
        drawn.shuffle(shifts)
        for shift in shifts:
            yield (*names[shift:], *names[:shift])


def level_of_each(sides: int) -> float:
    """Level of the interval of each side against the first, so that all hold at LEVEL (Bonferroni)."""
    return 1 - (1 - LEVEL) / (sides - 1)


def least_rounds(sides: int, pilot: int = 0) -> int:
    """The fewest rounds that can show a difference at LEVEL, if a pilot is among them; they count as one."""
    limit = 1 - level_of_each(sides)
    units = next(n for n in count(2) if least_p(n) <= limit)
    return units if not pilot else pilot + units - 1


def needed_rounds(deviation: float, degrees: int, least: float, sides: int, pilot: int) -> int:
    """The fewest rounds that show a difference of ``least`` with the probability POWER.

    ``deviation`` is that of a difference within a round, with its degrees of freedom, as the pilot has found
    it (:func:`dumbbell.analysis.blocks.spread`).
    """
    return bisect_left(
        range(UNREACHABLE),
        True,
        lo=least_rounds(sides, pilot) + 1,
        key=lambda number: detectable(deviation, degrees, number, sides, pilot) <= least,
    )


def detectable(deviation: float, degrees: int, number: int, sides: int, pilot: int) -> float:
    """The difference that so many rounds, a pilot among them, show with the probability POWER."""
    return _quantile(degrees, number, sides, pilot) * deviation / math.sqrt(number)


@cache
def _quantile(degrees: int, number: int, sides: int, pilot: int) -> float:
    """How many standard errors the difference must have.

    The test has the power of a t-test of so many values as its blocks are worth, of which the pilot is one
    that is larger (L. Kish's effective size of a weighted sample, 1965). The deviation is as far off as one
    of so many degrees of freedom is, so what the test needs follows a non-central t: POWER is the mean over
    all pilots.
    """
    worth = number**2 / (number - pilot + pilot**2)
    critical = scipy.stats.t.isf((1 - level_of_each(sides)) / 2, worth - 1)
    return float(scipy.stats.nct.ppf(POWER, degrees, critical))
