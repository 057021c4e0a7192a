"""A run as it appears in a list of runs.

It is read from small files only: verdicts, states and the table of flows. A broken directory, or a run that
has not ended, is listed as such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl
from pydantic import BaseModel

from dumbbell import analysis
from dumbbell.run.content import dig
from dumbbell.run.directory import point_folders, time_of
from dumbbell.run.record import Event, read_json, read_jsonl

Numbers = Mapping[tuple[str, str], Sequence[float]]  # by metric and unit, over all flows and valid points


class _Check(BaseModel):
    kind: str
    name: str
    measured: object = None
    unit: str = ""


class _Point(BaseModel):
    directory: str
    state: str


class _Verdict(BaseModel):
    """The part of ``verdict.json`` that a list needs; of a point, or of a run with several points."""

    state: str
    reasons: list[str] = []
    checks: list[_Check] = []
    points: list[_Point] = []


class Testbed(NamedTuple):
    """The testbed of a run: its name, and a key that distinguishes it from others."""

    name: str
    hosts: str


UNKNOWN = Testbed("unknown", "")


@dataclass(frozen=True)
class Listed:
    """A run directory in a list. Whatever cannot be read is None or empty."""

    dir: Path

    @cached_property
    def _named(self) -> re.Match[str] | None:
        return re.fullmatch(r"(\d{8}T\d{6}Z)_(.+?)(_attempt\d+)?", self.dir.name)

    @property
    def is_run(self) -> bool:
        """Whether it is a run, by its name, or by its plan if it was renamed."""
        return self._named is not None or (self.dir / "plan.json").exists()

    @cached_property
    def scenario(self) -> str:
        """The name of the scenario."""
        if self._named:
            return self._named[2]
        return str(dig(read_json(self.dir / "plan.json"), "scenario") or "unknown")

    @cached_property
    def began(self) -> datetime | None:
        """When the run was planned, by the controller's clock."""
        if self._named:
            try:
                return time_of(self._named[1])
            except ValueError:
                return None
        times = [event["unix_ns"] for event in _states(self.dir)]
        return datetime.fromtimestamp(times[0] / 1e9, UTC) if times else None

    @property
    def title(self) -> str | None:
        """The title in the scenario."""
        for name in ("manifest.json", "plan.json"):
            if title := dig(read_json(self.dir / name), "title"):
                return str(title)
        return None

    @cached_property
    def _verdict(self) -> _Verdict | None:
        return _verdict(self.dir)

    @cached_property
    def _points(self) -> list[tuple[Path, _Verdict | None]]:
        """The directory and verdict of each point; a run of one point is its own directory."""
        if self._verdict and self._verdict.points:
            folders = [self.dir / point.directory for point in self._verdict.points]
        else:
            folders = point_folders(self.dir) or [self.dir]
        return [(folder, _verdict(folder)) for folder in folders]

    @cached_property
    def testbed(self) -> Testbed:
        """The testbed's hosts, roles and machines, and whether time was virtual, from the first manifest."""
        manifests = (read_json(folder / "manifest.json") for folder, _ in self._points)
        manifest = next((found for found in manifests if isinstance(dig(found, "hosts"), dict)), None)
        if manifest is None:
            return UNKNOWN
        hosts = {
            host: [str(_machine(state)), dig(state, "groups")] for host, state in manifest["hosts"].items()
        }
        machines = ", ".join(sorted({machine for machine, _ in hosts.values()}))
        kind = "virtual time" if manifest.get("digests") else machines
        return Testbed(f"{kind}, {len(hosts)} hosts", json.dumps(hosts, sort_keys=True))

    @cached_property
    def point_states(self) -> list[str | None]:
        """The verdict of each point, None for a point without one."""
        if self._verdict and self._verdict.points:
            return [point.state for point in self._verdict.points]
        return [verdict.state if verdict else None for _, verdict in self._points]

    @cached_property
    def state(self) -> str:
        """The verdict, or else the last state that the controller recorded, or else ``unknown``."""
        if self._verdict:
            return self._verdict.state
        if (self.dir / "verdict.json").exists():
            return "unknown"
        folders = {self.dir, *(folder for folder, verdict in self._points if not verdict)}
        states = [event for folder in folders for event in _states(folder)]
        return str(max(states, key=lambda event: event["unix_ns"])["state"]) if states else "unknown"

    @property
    def why(self) -> str:
        """Why the run is in that state, as far as known."""
        if self._verdict:
            more = len(self._verdict.reasons) - 1
            return "".join(self._verdict.reasons[:1]) + (f"; and {more} more" if more > 0 else "")
        if (self.dir / "verdict.json").exists():
            return "verdict.json cannot be read"
        return "no state was written down" if self.state == "unknown" else "no verdict yet"

    @cached_property
    def numbers(self) -> Numbers:
        """The metrics of expectations, and the flows' goodputs; of valid points only."""
        found: dict[tuple[str, str], list[float]] = {}
        for _, verdict in self._points:
            if verdict and verdict.state in analysis.VALID:
                for check in verdict.checks:
                    if check.kind == "expect" and isinstance(check.measured, int | float):
                        found.setdefault((check.name, check.unit), []).append(check.measured)
        for name, unit, values in self._of_flows():
            if values:
                found[name, unit] = values
        return found

    def median(self, metric: tuple[str, str]) -> float | None:
        """The median of a metric, None if it has no values."""
        numbers = self.numbers.get(metric)
        return median(numbers) if numbers else None

    def _of_flows(self) -> Iterator[tuple[str, str, list[float]]]:
        try:
            flows = pl.read_parquet(self.dir / "flows.parquet").filter(pl.col("phase") == "measurement")
            state = pl.col("verdict") if "verdict" in flows.columns else pl.lit(self.state)
            flows = flows.filter(state.is_in(analysis.VALID))
            fetches = pl.col("kind") == "http"
            yield "goodput", "bps", flows.filter(~fetches)["goodput_bps"].drop_nulls().to_list()
            if flows.filter(fetches).height:
                yield "median fetch", "ns", flows.filter(fetches)["completion_p50_ns"].drop_nulls().to_list()
        except (OSError, pl.exceptions.PolarsError):
            return

    @property
    def has_report(self) -> bool:
        """Whether it has a report page."""
        return (self.dir / "report.html").exists()


def _verdict(folder: Path) -> _Verdict | None:
    try:
        return _Verdict.model_validate_json((folder / "verdict.json").read_bytes())
    except (OSError, ValueError):
        return None


def _machine(state: object) -> object:
    return dig(state, "hardware", "machine") or dig(state, "hardware", "processor") or "machines unknown"


def _states(folder: Path) -> list[Event]:
    events = [event for event in read_jsonl(folder / "events.jsonl") if event.get("event") == "state"]
    return [event for event in events if event.get("state") and isinstance(event.get("unix_ns"), int)]
