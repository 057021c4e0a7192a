"""The contents of a run directory: plan, state of the hosts, files of the agents, spools and tables.

Nothing here judges them. A missing or broken file reads as None or as an empty table; the verdict reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from dumbbell.ingest import spool
from dumbbell.plan import Flow, PingAction, Plan, Point
from dumbbell.run.directory import point_folders
from dumbbell.run.record import Event, read_json, read_jsonl

_PING_REPLY = re.compile(r"^\[([0-9.]+)\] .*icmp_seq=(\d+) .*time=([0-9.]+) ms(.*)$", re.MULTILINE)
_DUPLICATE = " (DUP!)"
_SEQUENCES = 2**16  # sequence numbers of echo requests; they wrap to 0
_NO_ROWS = {
    "tcp_info": {
        **dict.fromkeys(("phase", "host", "flow", "side", "stream", "congestion_control"), pl.String),
        **dict.fromkeys(("t_ns", "bytes_received", "bytes_acked", "snd_cwnd", "srtt_us"), pl.Int64),
    },
    "udp": {
        **dict.fromkeys(("phase", "host", "flow", "side"), pl.String),
        **dict.fromkeys(("t_ns", "received_packets", "received_bytes"), pl.Int64),
    },
    "http_fetch": {
        **dict.fromkeys(("phase", "host", "flow", "side", "congestion_control", "error"), pl.String),
        **dict.fromkeys(("t_ns", "fetch", "connect_ns", "first_byte_ns", "completion_ns"), pl.Int64),
        **dict.fromkeys(("cut_ns", "received_bytes", "cookie"), pl.Int64),
        **dict.fromkeys(("data_segs_out", "total_retrans", "total_rto"), pl.Int64),
    },
    "qdisc": {
        **dict.fromkeys(("phase", "host", "dev", "kind", "handle", "parent"), pl.String),
        **dict.fromkeys(("t_ns", "backlog_bytes", "qlen_packets", "drops"), pl.Int64),
    },
}


def dig(value: Any, *keys: str) -> Any:
    """``value[k1][k2]...``, or None where a key is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@dataclass
class Run:
    """The directory of one point, read lazily. A run of one point has no other."""

    dir: Path
    plan: Plan
    spools: dict[tuple[str, str], spool.Spool | None] = field(default_factory=dict)

    @classmethod
    def open(cls, run_dir: Path) -> Run:
        """Read the plan and find the spools; OSError or ValueError without a usable ``plan.json``."""
        plan = Plan.read(run_dir / "plan.json")
        if not plan.points:
            raise ValueError(f"{run_dir}/plan.json has no points")
        return cls(run_dir, plan)

    @property
    def point(self) -> Point:
        """The point that was run."""
        return self.plan.points[0]

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """``verdict.json``; empty if it cannot be read."""
        return read_json(self.dir / "verdict.json") or {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """``manifest.json``; empty if it cannot be read."""
        return read_json(self.dir / "manifest.json") or {}

    @cached_property
    def id(self) -> str:
        """The run's id as the agents got it; it stays the same if the directory is renamed."""
        for path in sorted(self.dir.glob("raw/*/*/plan.json")):
            if isinstance(run_id := dig(read_json(path), "run_id"), str):
                return run_id
        return self.dir.resolve().name

    @property
    def routers(self) -> list[str]:
        """The hosts that emulate the path, if any."""
        return [host for host, planned in self.point.hosts.items() if "routers" in planned.groups]

    def raw(self, host: str, *parts: str) -> Path:
        """A file under ``raw/HOST``."""
        return self.dir.joinpath("raw", host, *parts)

    @cached_property
    def states(self) -> dict[str, Any]:
        """``state.json`` of each host, or None where it is missing."""
        return {host: read_json(self.raw(host, "state.json")) for host in self.point.hosts}

    def status(self, host: str, phase: str) -> Any:
        """The agent's last ``status.json``, or None."""
        return read_json(self.raw(host, phase, "status.json"))

    def t0_unix_ns(self, phase: str) -> int | None:
        """The t0 of a phase, or None if no host has a ``start.json``."""
        for host in self.point.hosts:
            if isinstance(t0 := dig(read_json(self.raw(host, phase, "start.json")), "t0_unix_ns"), int):
                return t0
        return None

    def pings(self, phase: Literal["calibration", "measurement"]) -> Iterator[tuple[str, PingAction]]:
        """Every ping of a phase and the host that sends it."""
        for host, part in self.point.phase(phase).hosts.items():
            for action in part.actions:
                if isinstance(action, PingAction):
                    yield host, action

    @cached_property
    def agent_events(self) -> list[Event]:
        """The events of all agents with ``host`` and ``phase``, in order of time."""
        events: list[Event] = [
            {"unix_ns": event.get("unix_ns", 0), "host": host, "phase": phase.phase} | event
            for phase in self.point.phases
            for host in phase.hosts
            for event in read_jsonl(self.raw(host, phase.phase, "events.jsonl"))
        ]
        return sorted(events, key=lambda event: event["unix_ns"])

    def event(self, name: str, /, **match: str) -> Event | None:
        """The last event with this name and these values, or None."""
        for event in reversed(self.agent_events):
            if event.get("event") == name and all(event.get(key) == value for key, value in match.items()):
                return event
        return None

    def read_spools(self) -> None:
        """Read the spools of all hosts that sample in any phase."""
        for phase in self.point.phases:
            for host, part in phase.hosts.items():
                path = self.raw(host, phase.phase, "spool.lp")
                if spool.segments(path):
                    self.spools[host, phase.phase] = spool.read(path)
                elif part.writes_rows:
                    self.spools[host, phase.phase] = None

    @property
    def spool_paths(self) -> list[Path]:
        """The first file of each spool that was read."""
        return [self.raw(host, phase, "spool.lp") for (host, phase), part in self.spools.items() if part]

    def last_row_unix_ns(self, host: str, phase: str) -> int | None:
        """The time of the last row in a spool, or None if it has none."""
        part = self.spools.get((host, phase))
        times = [table["unix_ns"].max() for table in part.tables.values()] if part else []
        return max((int(at) for at in times if isinstance(at, int)), default=None)

    def measurements(self) -> list[str]:
        """The names of all measurements in the spools, including some without rows."""
        found = {name for part in self.spools.values() if part for name in part.tables}
        return [*_NO_ROWS, *sorted(found - set(_NO_ROWS))]

    def table(self, measurement: str) -> pl.DataFrame:
        """All rows of a measurement in the spools, with ``t_ns``, the time since the t0 of their phase."""
        parts = []
        for (_, phase), part in self.spools.items():
            if part is not None and measurement in part.tables:
                frame = part.tables[measurement]
                t0 = self.t0_unix_ns(phase)
                t_ns = pl.lit(None, pl.Int64) if t0 is None else pl.col("unix_ns") - t0
                at = frame.columns.index("unix_ns") + 1
                parts.append(
                    frame.with_columns(t_ns=t_ns).select(*frame.columns[:at], "t_ns", *frame.columns[at:])
                )
        # Columns that exist even without a row.
        none = pl.DataFrame(schema=_NO_ROWS.get(measurement, {}))
        if not parts:
            return none
        return pl.concat([*parts, none], how="diagonal_relaxed")


@dataclass(frozen=True)
class RunSet:
    """The points of one or several runs that have a verdict, in their order."""

    dirs: list[Path]  # of each point

    @classmethod
    def open(cls, *run_dirs: Path | str) -> RunSet:
        """Find the points of runs. A run without any verdict stands for itself, so that reading it says why.

        A relative path is searched from here and from each directory above: a notebook works in its own
        directory, while its user names directories of the checkout.
        """
        found: list[Path] = []
        for run_dir in map(located, run_dirs):
            judged = [folder for folder in point_folders(run_dir) if (folder / "verdict.json").exists()]
            found += judged or [run_dir]
        return cls(found)

    def __iter__(self) -> Iterator[Run]:
        """Each point. OSError or ValueError for one whose plan cannot be read."""
        return map(Run.open, self.dirs)


def located(path: Path | str) -> Path:
    """A relative path from here or, if it is not there, from the nearest directory above that has it."""
    bases = (Path(), *Path.cwd().parents)
    return next((base / path for base in bases if (base / path).exists()), Path(path))


# --- outputs of the tools on the hosts ------------------------------------------------------------


class Reply(NamedTuple):
    """The first reply to an echo request sent at ``sent_unix_ns``. Sequence numbers start at 1."""

    number: int
    sent_unix_ns: int
    rtt_ns: int


def ping_replies(path: Path) -> list[Reply]:
    """Replies in the output of ``ping -D``, without duplicates; empty if there is no file.

    The time of a request is computed as the time of its reply minus the RTT, because ping keeps its interval
    only roughly.
    """
    replies: list[Reply] = []
    for at, seq, ms, mark in _ping_lines(path):
        if mark != _DUPLICATE:
            # ping prints the low 16 bits; the full number is the one nearest to the last.
            last = replies[-1].number if replies else int(seq)
            number = last + (int(seq) - last + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2
            rtt_ns = round(float(ms) * 1e6)
            replies.append(Reply(number, int(Decimal(at) * 10**9) - rtt_ns, rtt_ns))
    return replies


def ping_duplicates(path: Path) -> int:
    """The number of replies to requests that already had one."""
    return sum(mark == _DUPLICATE for *_, mark in _ping_lines(path))


def ping_rtts_ns(path: Path) -> list[int]:
    """Round-trip times of all replies but the first, which includes the time for ARP."""
    return [reply.rtt_ns for reply in ping_replies(path) if reply.number > 1]


def _ping_lines(path: Path) -> list[tuple[str, str, str, str]]:
    try:
        return _PING_REPLY.findall(path.read_text(errors="replace"))
    except OSError:
        return []


# --- tables --------------------------------------------------------------------------------------


# The rows of the measurement phase whose time since t0 is known.
IN_MEASUREMENT = (pl.col("phase") == "measurement") & pl.col("t_ns").is_not_null()


def start_error_ns(run: Run, flow: Flow) -> int | None:
    """When the first data of a flow left its host, minus the planned start; None if not known."""
    error = (run.event("flow_first_data", flow=flow.name) or {}).get("error_ns")
    return error if isinstance(error, int) else None
