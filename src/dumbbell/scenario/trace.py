"""Rates over time from a file, as changes of a direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

SECOND = 10**9
DELIVERY_BYTES = 1500  # of each delivery in a file of mahimahi: mm-link(1)
LEAST_BPS = 8 * 1514  # a full packet a second, where the file has less
MOST_STEPS = 2000

Step = tuple[int, int]  # ns since t0, and the rate from then on in bit/s


def read_steps(path: Path, every_ns: int, duration_ns: int) -> list[Step]:
    """The mean rates of a trace in intervals of ``every_ns``, from t0 on, each other than the one before.

    The file has either lines of ``SECONDS,BIT_PER_SECOND``, each rate until the next line, the last to the
    end; or the format of mahimahi, a whole number of milliseconds for each delivery of 1500 bytes, which
    begins anew after its last. Empty lines and those that begin with # do not count. ValueError names file,
    line and what is wrong.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: {error.strerror if isinstance(error, OSError) else 'is no text'}"
        ) from None
    said = [(i, line.strip()) for i, line in enumerate(lines, start=1)]
    said = [(i, line) for i, line in said if line and not line.startswith("#")]
    if not said:
        raise ValueError(f"{path}: there is no rate in it")
    count = math.ceil(duration_ns / every_ns)
    if count > MOST_STEPS:
        raise ValueError(f"{count} intervals are more than {MOST_STEPS}: give a longer `every`")
    means = _of_rates if "," in said[0][1] else _of_deliveries
    rates = [max(LEAST_BPS, round(bps)) for bps in means(path, said, every_ns, count)]
    steps = [(i * every_ns, bps) for i, bps in enumerate(rates)]
    return steps[:1] + [step for before, step in pairwise(steps) if step[1] != before[1]]


def _of_rates(path: Path, lines: Sequence[tuple[int, str]], every_ns: int, count: int) -> list[float]:
    points: list[tuple[int, float]] = []
    for number, line in lines:
        try:
            seconds, bps = (float(word) for word in line.split(","))
        except ValueError:
            raise ValueError(f"{path}:{number}: {line!r} is not SECONDS,BIT_PER_SECOND") from None
        at_ns = round(seconds * SECOND) if math.isfinite(seconds) else -1
        if at_ns < 0 or not 0 <= bps < math.inf or (points and at_ns <= points[-1][0]):
            raise ValueError(f"{path}:{number}: {line!r} is no later time and rate")
        points.append((at_ns, bps))
    points[0] = (0, points[0][1])  # the first rate also counts before
    ends = [at for at, _ in points[1:]] + [max(count * every_ns, points[-1][0] + 1)]
    bits = [0.0] * count
    for (since, bps), until in zip(points, ends, strict=True):
        for i in range(since // every_ns, min(count, -(-until // every_ns))):
            bits[i] += bps * max(0, min(until, (i + 1) * every_ns) - max(since, i * every_ns)) / SECOND
    return [of * SECOND / every_ns for of in bits]


def _of_deliveries(path: Path, lines: Sequence[tuple[int, str]], every_ns: int, count: int) -> list[float]:
    times: list[int] = []
    for number, line in lines:
        if not line.isdecimal() or (times and int(line) < times[-1]):
            raise ValueError(f"{path}:{number}: {line!r} is not a time in ms, no earlier than the one before")
        times.append(int(line))
    lasts_ms = times[-1]
    if not lasts_ms:
        raise ValueError(f"{path}:{lines[-1][0]}: the last time is 0 ms: the trace has no length")
    packets = [0] * count
    rounds = -(-count * every_ns // (lasts_ms * 1_000_000))
    for again in range(rounds):
        for ms in times:
            # One at the end of an interval belongs to it, as the last of a trace does.
            i = max(0, (again * lasts_ms + ms) * 1_000_000 - 1) // every_ns
            if i < count:
                packets[i] += 1
    return [n * 8 * DELIVERY_BYTES * SECOND / every_ns for n in packets]
