"""Run directories on the controller: create and find them.

A run of one point has one directory. A run of several points has a directory with the plan, the summary and a
directory for each point, ``points/NNN``, which is like the directory of a run of one point.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dumbbell.plan import Plan, Point, refuse_newer_plan
from dumbbell.run.record import read_json, record_state, states, was_armed, write_json
from dumbbell.scenario import traces_of
from dumbbell.units import human

STAMP = "%Y%m%dT%H%M%SZ"  # time in the name of a directory: when the run or night began


LISTED = "points.json"  # of a run of several points: directory and name of each
_LEAST_DIGITS = 3  # of the number of a point in the name of its directory


def time_of(stamp: str) -> datetime:
    """When a run or a night began, in UTC, from the name of its directory; ValueError if it has no time."""
    return datetime.strptime(stamp, STAMP).replace(tzinfo=UTC)


def point_folders(run_dir: Path) -> list[Path]:
    """Directories of the points of a run in order, without those of earlier attempts.

    Empty for a run of one point.
    """
    found = (folder for folder in (run_dir / "points").glob("*") if folder.name.isdecimal())
    return sorted(found, key=lambda folder: int(folder.name))


def _keep(scenario: Path, traces: Iterable[str], folder: Path) -> None:
    """Copy a scenario and the files that it names, so that the run can be repeated from the copy."""
    shutil.copy(scenario, folder / "scenario.yml")
    for name in traces:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(scenario.parent / name, folder / name)


def _part(part: Mapping[str, Any]) -> str:
    return json.dumps(part, indent=1)


@dataclass(frozen=True)
class Execution:
    """One execution of a point: its directory, and the id that hosts and InfluxDB use."""

    id: str
    dir: Path
    holder: str  # id of the whole run, which holds the lock of the hosts
    name: str  # shown to people

    @cached_property
    def plan(self) -> Plan:
        """The plan, which contains this point only; OSError or ValueError if it cannot be read."""
        return Plan.read(self.dir / "plan.json")

    @property
    def point(self) -> Point:
        """The point that is executed."""
        return self.plan.points[0]

    @property
    def seed(self) -> str:
        """The seed of all random numbers of its world, if it runs in virtual time."""
        return f"{self.plan.seed}/{self.point.repetition}"

    @property
    def short_name(self) -> str:
        """The name without the levels: the number of the point and of all points."""
        return self.name.partition(":")[0]

    @property
    def phases(self) -> dict[str, list[str]]:
        """The phases of each host, in order."""
        found: dict[str, list[str]] = {}
        for phase in self.point.phases:
            for host in phase.hosts:
                found.setdefault(host, []).append(phase.phase)
        return found

    def facts(self, *, last: bool) -> dict[str, Any]:
        """The variables that playbooks need; ``last`` says whether it is the last execution of its run."""
        return {
            "run_id": self.id,
            "run_dir": str(self.dir),
            "holder": self.holder,
            "name": self.name,
            "plan": self.point.model_dump(mode="json"),
            "phases": self.phases,
            "measuring": self.measuring,
            "finished": self.finished,
            "last": last,
            "virtual": bool(self.plan.virtual),
        }

    def create(self, plan: Plan) -> None:
        """Create the directory with plan.json and the agents' plans, raw/HOST/PHASE/plan.json."""
        self.dir.mkdir(parents=True, exist_ok=True)
        (point,) = plan.points
        for host in point.hosts:
            (self.dir / "raw" / host).mkdir(parents=True)
        for phase in point.phases:
            for host in phase.hosts:
                about = {"run_id": self.id, "holder": self.holder, "point": point.id, "host": host}
                virtual = {"virtual": True} if plan.virtual else {}
                part = self.dir / "raw" / host / phase.phase / "plan.json"
                part.parent.mkdir()
                part.write_text(_part(phase.model_dump(mode="json") | about | virtual))
        (self.dir / "plan.json").write_bytes(plan.to_json())
        record_state(self.dir, "planned")

    @property
    def finished(self) -> bool:
        """Whether it has a verdict other than `aborted`."""
        state = self._verdict().get("state")
        return state is not None and state != "aborted"

    @property
    def judged(self) -> bool:
        """Whether it has a verdict, including `aborted`."""
        return bool(self._verdict())

    @property
    def begun(self) -> bool:
        """Whether the preparation of its hosts has begun."""
        return any(event["state"] == "preparing" for event in states(self.dir))

    @property
    def measuring(self) -> bool:
        """Whether its agents may be measuring without the controller."""
        return not self._verdict() and was_armed(self.dir)

    def progress(self, now_unix_ns: int) -> str:
        """The verdict, or the last state that the controller recorded, with its time."""
        if verdict := self._verdict():
            return "; ".join([verdict["state"], *verdict["reasons"]])
        if not (recorded := states(self.dir)):
            return "planned"
        last = recorded[-1]
        passed_s = (now_unix_ns - last["unix_ns"]) / 1e9
        if last["state"] == "running":
            total_s = self.point.phase(last["reason"]).duration_ns / 1e9
            if passed_s <= total_s:
                return f"running {last['reason']}, {passed_s:.0f} of {total_s:.0f} s"
            return f"{last['reason']} should have ended {human((passed_s - total_s) * 1e9, 'ns')} ago"
        words = " ".join(word for word in (last["state"], last["reason"]) if word)
        return words if last["state"] == "planned" else f"{words} for {passed_s:.0f} s"

    def again(self) -> Execution:
        """A new attempt with a new id. The directory of this one is kept beside it."""
        plan = self.plan
        before = self.dir.rename(self.dir.with_name(f"{self.dir.name}_attempt{_attempts(self.dir) + 1}"))
        other = _execution(self.dir, self.holder, self.name, _attempts(self.dir))
        other.create(plan)
        if (scenario := before / "scenario.yml").exists():
            _keep(scenario, traces_of(scenario), other.dir)
        return other

    def _verdict(self) -> dict[str, Any]:
        return read_json(self.dir / "verdict.json") or {}


def new_dir(results: Path, scenario: str) -> Path:
    """The directory of a new run. Only one run of a scenario can begin in the same second."""
    while True:
        run_dir = results / f"{datetime.now(UTC):{STAMP}}_{scenario}"
        try:
            run_dir.mkdir(parents=True)
        except FileExistsError:
            time.sleep(0.1)
        else:
            return run_dir


@dataclass(frozen=True)
class RunDir:
    """A whole run: its directory, and the executions of its points in order."""

    dir: Path
    executions: list[Execution]

    @property
    def id(self) -> str:
        """The run's id."""
        return self.executions[0].holder

    @classmethod
    def create(cls, plan: Plan, scenario: Path, results_dir: Path) -> RunDir:
        """Create the directories of a new run, and point the link ``latest`` to it."""
        run_dir = new_dir(results_dir.absolute(), plan.scenario)
        run_id = run_dir.name
        run = cls(run_dir, _executions(listed(plan), run_id, run_dir))
        for execution, point in zip(run.executions, plan.points, strict=True):
            execution.create(_of_point(plan, point))
        traces = traces_of(scenario)
        for folder in {run_dir, *(execution.dir for execution in run.executions)}:
            _keep(scenario, traces, folder)
        if run.sweeps:
            (run_dir / "plan.json").write_bytes(plan.to_json())
            write_json(run_dir / LISTED, listed(plan))
            record_state(run_dir, "planned")
        # Atomic, because another run may begin at the same time.
        latest = run_dir.parent / f"latest.{run_id}"
        latest.symlink_to(run_id)
        latest.replace(run_dir.parent / "latest")
        return run

    @classmethod
    def open(cls, run_dir: Path) -> RunDir:
        """Open an existing run. OSError or ValueError without a usable ``plan.json``.

        The plans of its points are read when they are asked for: a run may have ten thousand.
        """
        run_dir = run_dir.resolve()
        refuse_newer_plan(run_dir / "plan.json")
        found = read_json(run_dir / LISTED)
        if not found:  # a run of one point, or of a version that did not write the list
            found = listed(Plan.read(run_dir / "plan.json"))
        return cls(run_dir, _executions(found, run_dir.name, run_dir))

    @property
    def sweeps(self) -> bool:
        """Whether it has several points, each with a directory."""
        return self.executions[0].dir != self.dir

    def facts(self, executions: Sequence[Execution]) -> dict[str, Any]:
        """The variables that playbooks need to run these executions."""
        points = [each.facts(last=each.id == self.executions[-1].id) for each in executions]
        return {"run_id": self.id, "run_dir": str(self.dir), "sweeps": self.sweeps, "points": points}

    def describe(self, now_unix_ns: int) -> str:
        """One line for the run and one for each point: the verdict, or the current state and its age."""
        lines = [f"{self.id}: {self.executions[0].plan.title}"]
        lines += [f"  {execution.name}: {execution.progress(now_unix_ns)}" for execution in self.executions]
        return "\n".join(lines)


def listed(plan: Plan) -> list[dict[str, str]]:
    """Directory and name of each point of a plan."""
    number_of_points = len(plan.points)
    if number_of_points == 1:
        return [{"directory": ".", "name": plan.scenario}]
    digits = max(_LEAST_DIGITS, len(str(number_of_points)))
    return [
        {
            "directory": f"points/{number:0{digits}d}",
            "name": f"point {number} of {number_of_points}: "
            + ", ".join(filter(None, [point.label, f"repetition {point.repetition}"])),
        }
        for number, point in enumerate(plan.points, 1)
    ]


def _of_point(plan: Plan, point: Point) -> Plan:
    return plan.model_copy(update={"points": [point]})


def _executions(points: Iterable[Mapping[str, str]], run_id: str, run_dir: Path) -> list[Execution]:
    kept = Counter(path.name.partition("_attempt")[0] for path in (run_dir / "points").glob("*_attempt*"))
    return [
        _execution(run_dir, run_id, of["name"], _attempts(run_dir))
        if of["directory"] == "."
        else _execution(folder := run_dir / of["directory"], run_id, of["name"], kept[folder.name])
        for of in points
    ]


def _execution(folder: Path, holder: str, name: str, attempts: int) -> Execution:
    base = holder if folder.name == holder else f"{holder}_{folder.name}"
    own_id = f"{base}_attempt{attempts + 1}" if attempts else base
    # A world in virtual time cannot see earlier attempts beside the directory of a run.
    if folder.name == holder and (known := _recorded(folder)).startswith(f"{base}_attempt"):
        own_id = known
    return Execution(own_id, folder, holder, name)


def _recorded(folder: Path) -> str:
    """The id of an execution from the plans of its agents, which all have it; '' if there are none."""
    part = next(folder.glob("raw/*/*/plan.json"), None)
    return str((read_json(part) or {}).get("run_id", "")) if part else ""


def _attempts(folder: Path) -> int:
    """The number of earlier attempts kept beside a directory."""
    return len(list(folder.parent.glob(f"{folder.name}_attempt*")))
