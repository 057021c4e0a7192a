"""What is known of a run now, from its directory: state, points, time left, and the runs before it.

The page looks every other second, and a run may have a thousand points: a file is read again only if it has
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from dumbbell.plan import Phase
from dumbbell.run.directory import Execution, RunDir
from dumbbell.run.record import Event, read_json, states
from dumbbell.studies.listed import Listed
from dumbbell.units import human

GOING = ("preparing", "armed", "running", "collecting")  # recorded states of a point that is under way
POINT_STATES = ("planned", "running", "passed", "failed", "invalid", "inconclusive", "aborted")
BEFORE = 10  # most earlier runs that are listed
PACED = 10  # ended points from which the time of a point is estimated, at most
LEAST_PACED = 3
NOT_RUN = ("the run ended before it",)

Stamp = tuple[int, int] | None  # mtime (ns) and size of a file; None if it does not exist


class NoRunError(Exception):
    """The directory has no run; the message says which and why."""


@dataclass(frozen=True)
class PointNow:
    """A point of the run: one of :data:`POINT_STATES`, and why it is in it.

    ``recorded`` is the last state that the controller recorded, ``changed_ns`` the time of this machine's
    clock at which verdict or state was written.
    """

    number: int
    execution: Execution
    state: str
    reasons: tuple[str, ...]
    recorded: Event
    changed_ns: int

    @property
    def judged(self) -> bool:
        """Whether it has a verdict."""
        return self.state not in {"planned", "running"}

    @property
    def has_report(self) -> bool:
        """Whether its page has been written."""
        return (self.execution.dir / "report.html").exists()


@dataclass(frozen=True)
class Before:
    """An earlier run of the same directory."""

    listed: Listed
    state: str
    why: str


@dataclass(frozen=True)
class Left:
    """The time that is left (s), None if it is not known; ``how`` says how it is known, or why it is not."""

    seconds: float | None
    how: str


@dataclass(frozen=True)
class Known:
    """A run as it is now. ``shown`` is the point that is under way, or else the next one, or the last."""

    run: RunDir
    state: str
    progress: str
    reasons: tuple[str, ...]
    points: Sequence[PointNow]
    shown: PointNow
    left: Left
    before: Sequence[Before]

    @property
    def virtual(self) -> bool:
        """Whether it runs in virtual time."""
        return bool(self.shown.execution.plan.virtual)

    @property
    def counts(self) -> dict[str, int]:
        """Number of points in each of :data:`POINT_STATES` that has any."""
        found = Counter(point.state for point in self.points)
        return {state: found[state] for state in POINT_STATES if found[state]}

    @property
    def phase(self) -> Phase:
        """The phase of the shown point that is armed or running; by default the measurement."""
        calibrates = not self.shown.judged and self.shown.recorded.get("reason") == "calibration"
        name: Literal["calibration", "measurement"] = "calibration" if calibrates else "measurement"
        return self.shown.execution.point.phase(name)

    @property
    def ended(self) -> list[PointNow]:
        """Points with a verdict: those that have not passed first, then the latest first."""
        judged = [point for point in self.points if point.judged]
        return sorted(judged, key=lambda point: (point.state == "passed", -point.changed_ns))


def look(run: Path, now_unix_ns: int) -> Known:
    """The run of a directory at a time of this machine's clock.

    A link such as ``latest`` is followed each time. Raises NoRunError without a usable ``plan.json``.
    """
    run_dir = run.resolve()
    try:
        found = _opened(run_dir, _stamp(run_dir / "plan.json"), _stamp(run_dir / "points"))
    except (OSError, ValueError) as error:
        raise NoRunError(f"{run} is no run directory: {error}") from None
    points = [_point(number, execution) for number, execution in enumerate(found.executions, 1)]
    written = _stamp(run_dir / "verdict.json")
    verdict = _verdict(run_dir, written)
    # A point that was left without a verdict is not under way once the run has one.
    ended_ns = written[0] if verdict and written else 0
    going = [point for point in points if point.state == "running" and point.changed_ns > ended_ns]
    before = list(_before(run_dir))
    if verdict and not going:
        last = max(points, key=lambda point: (point.judged, point.changed_ns))
        # As the run's verdict has them.
        points = [each if each.judged else replace(each, state="aborted", reasons=NOT_RUN) for each in points]
        return Known(found, verdict[0], "", verdict[1], points, last, Left(None, ""), before)
    shown, state, progress = _under_way(points, going, now_unix_ns)
    return Known(found, state, progress, (), points, shown, _left(points, going, now_unix_ns), before)


def _under_way(
    points: Sequence[PointNow], going: Sequence[PointNow], now_ns: int
) -> tuple[PointNow, str, str]:
    """The point to show of a run without a verdict, its state, and how far it is in words."""
    if going:
        first = going[0]
        words = " ".join(filter(None, (first.recorded["state"], first.recorded["reason"])))
        # The controller of a point in virtual time may record the time of its world.
        progress = words if first.execution.plan.virtual else first.execution.progress(now_ns)
        return first, str(first.recorded["state"]), progress
    judged = [point for point in points if point.judged]
    last = max(judged, key=lambda point: point.changed_ns, default=None)
    ahead = next((point for point in points if point.state == "planned"), None)
    if ahead is None:
        assert last is not None
        return last, "collecting", "every point has ended; the run has no verdict yet"
    if last is None:
        return ahead, "planned", "no point has begun"
    ago = human(round((now_ns - last.changed_ns) / 1e9) * 10**9, "ns")
    return ahead, "planned", f"{ahead.execution.short_name} has not begun; the last one ended {ago} ago"


def _left(points: Sequence[PointNow], going: Sequence[PointNow], now_ns: int) -> Left:
    """The time until the last point has ended: by the pace of those that ended, else the planned time."""
    ahead = [point for point in points if not point.judged]
    if not ahead:
        return Left(None, "")
    ends_ns = sorted(point.changed_ns for point in points if point.judged)[-PACED:]
    if len(ends_ns) >= LEAST_PACED:
        pace_ns = (ends_ns[-1] - ends_ns[0]) / (len(ends_ns) - 1)
        left_ns = pace_ns * len(ahead) - (now_ns - ends_ns[-1])
        return Left(max(0, left_ns) / 1e9, f"about, by the last {len(ends_ns)} points that ended")
    if points[0].execution.plan.virtual:
        return Left(None, f"In virtual time it is not known before {LEAST_PACED} points have ended.")
    planned_ns = sum(point.execution.point.duration_ns for point in ahead)
    done_ns = sum(_done_ns(point, now_ns) for point in going)
    return Left(max(0, planned_ns - done_ns) / 1e9, "of traffic; the time between phases is not counted")


def _done_ns(point: PointNow, now_ns: int) -> int:
    """How much of its phases a point that is under way has behind it."""
    recorded, of = point.recorded, point.execution.point
    calibration, measurement = (of.phase(name).duration_ns for name in ("calibration", "measurement"))
    passed_ns: int = max(0, now_ns - recorded["unix_ns"])
    match recorded["state"], recorded["reason"]:
        case "armed", "calibration":
            return min(passed_ns, calibration)
        case "armed", _:
            return calibration
        case "running", _:
            return calibration + min(passed_ns, measurement)
        case "collecting", _:
            return calibration + measurement
    return 0


def _point(number: int, execution: Execution) -> PointNow:
    written = _stamp(execution.dir / "verdict.json")
    recorded_at = _stamp(execution.dir / "events.jsonl")
    recorded = _recorded(execution.dir, recorded_at)
    if written and (verdict := _verdict(execution.dir, written)):
        return PointNow(number, execution, *verdict, recorded, written[0])
    state = "running" if recorded["state"] in GOING else "planned"
    return PointNow(number, execution, state, (), recorded, recorded_at[0] if recorded_at else 0)


def _before(run_dir: Path) -> Iterator[Before]:
    """The runs with a verdict that began before a run, the latest first: names begin with the time."""
    names = sorted((each.name for each in run_dir.parent.iterdir() if each.name < run_dir.name), reverse=True)
    left = BEFORE
    for name in names:
        folder = run_dir.parent / name
        if (stamp := _stamp(folder / "verdict.json")) and not folder.is_symlink():
            listed, state, why = _listed(folder, stamp)
            if listed.is_run:
                yield Before(listed, state, why)
                left -= 1
        if not left:
            return


# --- files, read again when they have changed ------------------------------------------------------


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2)
def _opened(run_dir: Path, *_: Stamp) -> RunDir:
    return RunDir.open(run_dir)


@lru_cache(maxsize=1 << 14)
def _verdict(folder: Path, _: Stamp) -> tuple[str, tuple[str, ...]] | None:
    found = read_json(folder / "verdict.json")
    return (str(found["state"]), tuple(found["reasons"])) if found else None


@lru_cache(maxsize=1 << 14)
def _recorded(folder: Path, _: Stamp) -> Event:
    return (states(folder) or [{"state": "planned", "reason": "", "unix_ns": 0}])[-1]


@lru_cache(maxsize=1 << 10)
def _listed(folder: Path, _: Stamp) -> tuple[Listed, str, str]:
    listed = Listed(folder)
    return listed, listed.state, listed.why
