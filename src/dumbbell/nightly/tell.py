"""Report a night to others: annotations in InfluxDB, and the user's program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dumbbell.ingest.influx import Influx, InfluxTarget
from dumbbell.nightly.page import sentence
from dumbbell.run.directory import time_of

ANNOTATION = "annotation"  # measurement; dashboards read its title, text and tags
NOTIFY_S = 60


def annotate(told: Mapping[str, Any], target: InfluxTarget) -> None:
    """Write each finding to InfluxDB, at the night in which its change began. Raises InfluxError."""
    with Influx(target) as influx:
        influx.write([line.encode() for line in rows(told)])


def rows(told: Mapping[str, Any]) -> Iterator[str]:
    """Each finding in line protocol, with times in nanoseconds."""
    for found in told["findings"]:
        tags = {key: found[key] for key in ("scenario", "point", "metric", "subject", "state")}
        tagged = "".join(f",{key}={_tag(value)}" for key, value in ({"suite": told["suite"]} | tags).items())
        since = time_of(found["since"])
        text = re.sub(r'(["\\])', r"\\\1", sentence(found))
        yield (
            f'{ANNOTATION}{tagged} title="{found["metric"]} {found["state"]}",text="{text}"'
            f" {int(since.timestamp())}000000000\n"
        )


def _tag(value: str) -> str:
    return re.sub(r"([,= ])", r"\\\1", value) or "-"


def notify(program: Sequence[str], text: str) -> str:
    """Run a program with a night's JSON on its standard input. Returns the error, or ''."""
    try:
        done = subprocess.run(
            program, input=text, text=True, capture_output=True, timeout=NOTIFY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nobody was told: {error}"
    return f"nobody was told: {program[0]} says: {done.stderr.strip()}" if done.returncode else ""
