"""How much of the emulated delay to subtract, because hosts, cables and bridges have their own delay.

The round trip is measured over the requested path; the excess is subtracted from the emulated delay. This is
repeated until the round trip is as requested.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dumbbell.chance import median_error
from dumbbell.run.record import read_json, write_json

KNOWN = "own_delays.json"  # in the run's directory
FEWEST = 10  # round trips of a sender that tell whether its host was busy
_RTT_MS = re.compile(r"time=([0-9.]+)")


@dataclass(frozen=True)
class Asked:
    """The round trip of the path, how far off it may be, and the limits of the correction."""

    rtt_ns: int
    jitters: bool
    jitter_us: float  # of a round trip
    tolerance: float  # share of the round trip
    max_us: int  # one way
    attempts: int


@dataclass(frozen=True)
class Trim:
    """The result of an attempt."""

    own_us: float  # the path's own round trip: the smallest that was measured
    trim_us: int = 0  # to subtract from the emulated delay, one way
    attempts: int = 0  # number of attempts so far
    changed: bool = False  # whether the path must be emulated again
    again: bool = True  # whether to measure once more


def attempt(former: Trim | None, pings: Sequence[str], asked: Asked) -> Trim:
    """The next correction, from the pings over the path with the former correction.

    The smallest result of all attempts counts, because delays of busy hosts are not the path's. Pings that
    agree come from hosts that were not busy: then no second attempt is made. A correction that changes the
    round trip by less than half of its tolerance, or less than jitter may, is not made.
    """
    former = former or Trim(own_us=2 * asked.max_us)
    own_us = min(former.own_us, _excess_us(pings, asked) + 2 * former.trim_us)
    trim_us = min(max(0, int(own_us / 2)), asked.max_us)
    made = former.attempts + 1
    least_us = max(asked.tolerance * asked.rtt_ns / 2000, _by_chance_us(pings, asked))
    if abs(trim_us - former.trim_us) * 2 <= least_us:
        return Trim(own_us, former.trim_us, made, changed=False, again=False)
    again = made < asked.attempts and not _agree(pings, least_us)
    return Trim(own_us, trim_us, made, changed=True, again=again)


def _agree(pings: Sequence[str], within_us: float) -> bool:
    """Whether half of the round trips of each sender are as short as its shortest."""
    return all(
        len(rtts_ms := _rtts_ms(said)) >= FEWEST and 1000 * (median(rtts_ms) - min(rtts_ms)) <= within_us
        for said in pings
    )


def _rtts_ms(said: str) -> list[float]:
    return [float(rtt) for rtt in _RTT_MS.findall(said)]


def _excess_us(pings: Sequence[str], asked: Asked) -> float:
    """Excess of the shortest round trip (with jitter, the median) over the requested; mean over senders."""
    excesses = []
    for said in pings:
        rtts_ms = sorted(_rtts_ms(said))
        rtt_ms = rtts_ms[len(rtts_ms) // 2 if asked.jitters else 0]
        excesses.append(rtt_ms * 1000 - asked.rtt_ns / 1000)
    return sum(excesses) / len(excesses)


def _by_chance_us(pings: Sequence[str], asked: Asked) -> float:
    """How far jitter may move the mean of the senders' medians."""
    if not asked.jitter_us:
        return 0
    fewest = min(len(_rtts_ms(said)) for said in pings)
    return median_error(asked.jitter_us, fewest) / math.sqrt(len(pings))


def remember(run_dir: Path, path: Mapping[str, Any], trim_us: int) -> None:
    """Record the correction of a path, as its plan has it, for later points."""
    with suppress(OSError):  # in virtual time a world has one point, and cannot write there
        write_json(run_dir / KNOWN, (read_json(run_dir / KNOWN) or {}) | {_digest(path): trim_us})


def known_us(run_dir: Path, path: Mapping[str, Any]) -> int | None:
    """The correction of a path that an earlier point of the run has recorded."""
    trim_us: int | None = (read_json(run_dir / KNOWN) or {}).get(_digest(path))
    return trim_us


def _digest(path: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(path, sort_keys=True).encode()).hexdigest()
