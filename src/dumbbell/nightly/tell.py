"""Report a night to others: values and annotations in InfluxDB, and the user's program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dumbbell.ingest.influx import Influx, InfluxTarget
from dumbbell.metrics.registry import of_name
from dumbbell.nightly.history import Series
from dumbbell.nightly.page import NIGHTS, sentence
from dumbbell.run.directory import time_of

ANNOTATION = "annotation"  # measurement; dashboards read its title, text and tags
VALUE = "night"  # measurement of the values of nights
NOTIFY_S = 60


def store(told: Mapping[str, Any], series: Sequence[Series], target: InfluxTarget) -> None:
    """Write the values of the last nights and the findings of this one. Raises InfluxError.

    Nights that are there are written again, which changes nothing: if InfluxDB did not answer one night, the
    next one writes its values.
    """
    with Influx(target) as influx:
        influx.write([line.encode() for line in (*values(series), *rows(told))])


def values(series: Sequence[Series]) -> Iterator[str]:
    """The value of each series at each of the last :data:`NIGHTS` nights, in line protocol."""
    recent = sorted({night for one in series for night in one.nights})[-NIGHTS:]
    for one in series:
        metric = of_name(one.key.metric)
        tags = {
            "scenario": one.scenario,
            "point": one.key.point,
            "label": one.label,
            "metric": one.key.metric,
            "subject": one.key.subject,
            "unit": one.unit,
            "testbed": one.key.fingerprint,
            "definition": str(metric.version if metric else 0),
        }
        measured = zip(one.nights, one.medians, one.repetitions, one.runs, strict=True)
        for night, value, repetitions, run in measured:
            if night in recent:
                fields = f"value={float(value)!r},repetitions={len(repetitions)}i,directory={_text(run)}"
                yield f"{VALUE}{_tags(tags)} {fields} {unix_ns(night)}\n"


def rows(told: Mapping[str, Any]) -> Iterator[str]:
    """Each finding, at the night in which its change began, in line protocol."""
    for found in told["findings"]:
        tags = {key: found[key] for key in ("scenario", "point", "metric", "subject", "state")}
        fields = f"title={_text(found['metric'] + ' ' + found['state'])},text={_text(sentence(found))}"
        yield f"{ANNOTATION}{_tags({'suite': told['suite']} | tags)} {fields} {unix_ns(found['since'])}\n"


def _tags(tags: Mapping[str, str]) -> str:
    return "".join(f",{key}={_tag(value)}" for key, value in tags.items())


def _tag(value: str) -> str:
    return re.sub(r"([,= ])", r"\\\1", value) or "-"


def _text(value: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"'


def unix_ns(night: str) -> int:
    """When a night began."""
    return int(time_of(night).timestamp()) * 10**9


def notify(program: Sequence[str], text: str) -> str:
    """Run a program with a night's JSON on its standard input. Returns the error, or ''."""
    try:
        done = subprocess.run(
            program, input=text, text=True, capture_output=True, timeout=NOTIFY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nobody was told: {error}"
    return f"nobody was told: {program[0]} says: {done.stderr.strip()}" if done.returncode else ""
