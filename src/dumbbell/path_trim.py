"""How much of the emulated delay to leave out, because hosts, cables and bridges have a delay of their own.

The round trip is measured under the path as it was asked; what it is longer is subtracted from the emulated
delay. That is repeated until the round trip is as asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RTT_MS = re.compile(r"time=([0-9.]+)")


@dataclass(frozen=True)
class Asked:
    """The round trip of the path, how far off it may be, and the limits of the correction."""

    rtt_ns: int
    jitters: bool
    tolerance: float  # a share of the round trip
    max_us: int  # one way
    attempts: int


@dataclass(frozen=True)
class Trim:
    """What is known after an attempt."""

    own_us: float  # the path's own round trip: the least that was found
    trim_us: int = 0  # to subtract from the emulated delay, one way
    attempts: int = 0  # made until now
    changed: bool = False  # whether the path has to be emulated anew
    again: bool = True  # whether to measure once more


def attempt(former: Trim | None, pings: Sequence[str], asked: Asked) -> Trim:
    """The correction after what pings said under the path with the former one.

    The least of all attempts counts: what busy hosts add is no delay of the path. A correction that would
    change the round trip by less than half of its tolerance is not made.
    """
    former = former or Trim(own_us=2 * asked.max_us)
    own_us = min(former.own_us, _excess_us(pings, asked) + 2 * former.trim_us)
    trim_us = min(max(0, int(own_us / 2)), asked.max_us)
    made = former.attempts + 1
    if abs(trim_us - former.trim_us) * 2 <= asked.tolerance * asked.rtt_ns / 2000:
        return Trim(own_us, former.trim_us, made, changed=False, again=False)
    return Trim(own_us, trim_us, made, changed=True, again=made < asked.attempts)


def _excess_us(pings: Sequence[str], asked: Asked) -> float:
    """How much longer than asked the quickest round trip is (with jitter, the median); mean over senders."""
    excesses = []
    for said in pings:
        rtts_ms = sorted(float(found) for found in _RTT_MS.findall(said))
        rtt_ms = rtts_ms[len(rtts_ms) // 2 if asked.jitters else 0]
        excesses.append(rtt_ms * 1000 - asked.rtt_ns / 1000)
    return sum(excesses) / len(excesses)
