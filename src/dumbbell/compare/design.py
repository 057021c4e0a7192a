"""The design of an A/B: who runs in which order with which seed, and how many rounds it takes.

A round is a block: each side runs once, with the same seed, close together in time. Pure functions, the same
for the same arguments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import scipy

from dumbbell.analysis.blocks import least_p
from dumbbell.analysis.statistics import LEVEL, POWER
from dumbbell.quantities import Strict

PILOT = 4  # rounds from whose spread the number of all rounds follows
MOST_ROUNDS = 1000  # seeds of rounds that replace others begin beyond those


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

    schema_version: Literal[1] = 1
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
    """Rounds that show a difference of ``least`` with the probability POWER.

    ``deviation`` is that of a difference within a round, with its degrees of freedom, as the pilot has found
    it (:func:`dumbbell.analysis.blocks.spread`); how well it knows it is allowed for (C. Stein, 1945).
    """
    return max(
        least_rounds(sides, pilot) + 1, math.ceil((_quantiles(degrees, sides) * deviation / least) ** 2)
    )


def detectable(deviation: float, degrees: int, number: int, sides: int) -> float:
    """The difference that so many rounds show with the probability POWER."""
    return _quantiles(degrees, sides) * deviation / math.sqrt(number)


def _quantiles(degrees: int, sides: int) -> float:
    """How many standard errors a difference must have."""
    of = scipy.stats.t
    return float(of.isf((1 - level_of_each(sides)) / 2, degrees) + of.ppf(POWER, degrees))
