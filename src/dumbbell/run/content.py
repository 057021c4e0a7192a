"""A run directory as it comes home: what the roles read back, what the agents left, the tables made of it.

Nothing here judges. A file that is missing or broken reads as None or as an empty table; the verdict says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.ingest import spool
from dumbbell.plan import Flow, Phase, PingAction, Plan, Point
from dumbbell.plan.windows import Window, default_window
from dumbbell.run.directory import Event, point_folders, read_json, read_jsonl

_PING_REPLY = re.compile(r"^\[([0-9.]+)\] .*icmp_seq=(\d+) .*time=([0-9.]+) ms(.*)$", re.MULTILINE)
_DUPLICATE = " (DUP!)"
_SEQUENCES = 2**16  # of echo requests; then they begin again at 0
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


def located(path: Path | str) -> Path:
    """A relative path from here or, where it is not there, from the nearest directory above that has it.

    A notebook works in its own directory, while its user thinks of the checkout's.
    """
    bases = (Path(), *Path.cwd().parents)
    return next((base / path for base in bases if (base / path).exists()), Path(path))


def dig(value: Any, *keys: str) -> Any:
    """``value[k1][k2]...``, or None where a key is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def point_dirs(run_dir: Path | str) -> list[Path]:
    """Directories of all judged points of a run, in their order; of a run of one point its own."""
    run_dir = located(run_dir)
    return [folder for folder in point_folders(run_dir) if (folder / "verdict.json").exists()] or [run_dir]


@dataclass
class Run:
    """A run directory, read lazily."""

    dir: Path
    plan: Plan
    spools: dict[tuple[str, str], spool.Spool | None] = field(default_factory=dict)

    @classmethod
    def open(cls, run_dir: Path) -> Run:
        """Read the plan and find the spools; OSError or ValueError if there is no usable ``plan.json``."""
        plan = Plan.model_validate_json((run_dir / "plan.json").read_bytes())
        if not plan.points:
            raise ValueError(f"{run_dir}/plan.json has no points")
        return cls(run_dir, plan)

    @property
    def point(self) -> Point:
        """The point that was run: a run directory holds one."""
        return self.plan.points[0]

    @cached_property
    def id(self) -> str:
        """The run's id, as the agents were told it; it survives a renamed directory."""
        for path in sorted(self.dir.glob("raw/*/*/plan.json")):
            if isinstance(run_id := dig(read_json(path), "run_id"), str):
                return run_id
        return self.dir.resolve().name

    @property
    def routers(self) -> list[str]:
        """Hosts that emulate the path, if there is one."""
        return [host for host, planned in self.point.hosts.items() if "routers" in planned.groups]

    def raw(self, host: str, *parts: str) -> Path:
        """A file under ``raw/HOST``."""
        return self.dir.joinpath("raw", host, *parts)

    @cached_property
    def states(self) -> dict[str, Any]:
        """``state.json`` of each host, or None."""
        return {host: read_json(self.raw(host, "state.json")) for host in self.point.hosts}

    def status(self, host: str, phase: str) -> Any:
        """The agent's last ``status.json``, or None."""
        return read_json(self.raw(host, phase, "status.json"))

    def t0_unix_ns(self, phase: str) -> int | None:
        """When a phase began, or None if no host kept its ``start.json``."""
        for host in self.point.hosts:
            if isinstance(t0 := dig(read_json(self.raw(host, phase, "start.json")), "t0_unix_ns"), int):
                return t0
        return None

    def foreign(self, flow: Flow, phase: Phase) -> int:
        """What a flow's server got that was not its client's, and counted apart."""
        side = "sender" if flow.kind == "http" else "receiver"
        path = self.raw(flow.server_host, phase.phase, f"{flow.kind}-{flow.name}-{side}.json")
        told = read_jsonl(path) if flow.kind in ("http", "udp", "atou") else []
        counts = [line.get(key) for line in told for key in ("foreign", "foreign_packets")]
        return sum(count for count in counts if isinstance(count, int))

    def pings(self, phase: Literal["calibration", "measurement"]) -> Iterator[tuple[str, PingAction]]:
        """Every ping of a phase and the host that sends it."""
        for host, part in self.point.phase(phase).hosts.items():
            for action in part.actions:
                if isinstance(action, PingAction):
                    yield host, action

    @cached_property
    def agent_events(self) -> list[Event]:
        """Events of all agents, with ``host`` and ``phase``, in order of time."""
        events: list[Event] = [
            {"unix_ns": event.get("unix_ns", 0), "host": host, "phase": phase.phase} | event
            for phase in self.point.phases
            for host in phase.hosts
            for event in read_jsonl(self.raw(host, phase.phase, "events.jsonl"))
        ]
        return sorted(events, key=lambda event: event["unix_ns"])

    def event(self, name: str, /, **match: str) -> Event | None:
        """The last event of this name whose keys have these values."""
        for event in reversed(self.agent_events):
            if event.get("event") == name and all(event.get(key) == value for key, value in match.items()):
                return event
        return None

    def read_spools(self) -> None:
        """Read the spool of every host that samples in a phase."""
        for phase in self.point.phases:
            for host, part in phase.hosts.items():
                path = self.raw(host, phase.phase, "spool.lp")
                if spool.segments(path):
                    self.spools[host, phase.phase] = spool.read(path)
                elif part.writes_rows:
                    self.spools[host, phase.phase] = None

    @property
    def spool_paths(self) -> list[Path]:
        """First file of each spool that was read."""
        return [self.raw(host, phase, "spool.lp") for (host, phase), part in self.spools.items() if part]

    def last_row_unix_ns(self, host: str, phase: str) -> int | None:
        """When the last row of a spool was taken, or None if it has none."""
        part = self.spools.get((host, phase))
        times = [table["unix_ns"].max() for table in part.tables.values()] if part else []
        return max((int(at) for at in times if isinstance(at, int)), default=None)

    def measurements(self) -> list[str]:
        """Names of all measurements in the spools; some are there even without rows."""
        found = {name for part in self.spools.values() if part for name in part.tables}
        return [*_NO_ROWS, *sorted(found - set(_NO_ROWS))]

    def table(self, measurement: str) -> pl.DataFrame:
        """All rows of a measurement from the spools, with ``t_ns`` since the t0 of their phase."""
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
        # Columns that are there whatever was measured.
        none = pl.DataFrame(schema=_NO_ROWS.get(measurement, {}))
        if not parts:
            return none
        return pl.concat([*parts, none], how="diagonal_relaxed")


# --- what the tools on the hosts report ----------------------------------------------------------


class Reply(NamedTuple):
    """The first reply to an echo request, which was sent at ``sent_unix_ns``. Numbers begin at 1."""

    number: int
    sent_unix_ns: int
    rtt_ns: int


def ping_replies(path: Path) -> list[Reply]:
    """Replies in the output of ``ping -D``, without duplicates; empty without a file.

    A request's time is that of its reply less the RTT: ping keeps its interval only roughly.
    """
    replies: list[Reply] = []
    for at, seq, ms, mark in _ping_lines(path):
        if mark != _DUPLICATE:
            # ping prints 16 bits of the number: the number meant is the one nearest to the last.
            last = replies[-1].number if replies else int(seq)
            number = last + (int(seq) - last + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2
            rtt_ns = round(float(ms) * 1e6)
            replies.append(Reply(number, int(Decimal(at) * 10**9) - rtt_ns, rtt_ns))
    return replies


def ping_duplicates(path: Path) -> int:
    """How many replies came again to a request that had been answered."""
    return sum(mark == _DUPLICATE for *_, mark in _ping_lines(path))


def ping_rtts_ns(path: Path) -> list[int]:
    """Round-trip times of ping's replies but that to the first request, which also waited for ARP."""
    return [reply.rtt_ns for reply in ping_replies(path) if reply.number > 1]


def _ping_lines(path: Path) -> list[tuple[str, str, str, str]]:
    try:
        return _PING_REPLY.findall(path.read_text(errors="replace"))
    except OSError:
        return []


def interval_sums(report: Any) -> list[Any]:
    """Of each interval in a report of iperf3 what all streams did together, None where it does not say."""
    return [dig(interval, "sum") for interval in dig(report, "intervals") or []]


def iperf3_intervals(run: Run, flow: Flow) -> list[tuple[int, int, int]]:
    """Intervals of the server of a UDP flow of iperf3: begin and end since t0, and bytes received.

    None without its report, or where nothing tells when its test began. Its totals repeat what the client
    says and are not used.
    """
    report = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
    sums = interval_sums(report)
    began_ns = _iperf3_began_ns(run, flow)
    if began_ns is None or not all({"start", "end", "bytes"} <= (told or {}).keys() for told in sums):
        return []
    return [
        (began_ns + round(told["start"] * 1e9), began_ns + round(told["end"] * 1e9), told["bytes"])
        for told in sums
    ]


def _iperf3_began_ns(run: Run, flow: Flow) -> int | None:
    """When the server of a flow began its test: half a round trip before its client had the server's word.

    The agent stops a client that waits for it, seconds before the first data, and goes on with it then.
    """
    t0, path = run.t0_unix_ns("measurement"), run.point.path
    held = run.event("flow_held", flow=flow.name) or {}
    told = held if held.get("held") else run.event("flow_first_data", flow=flow.name) or {}
    if t0 is None or not (held.get("held") or isinstance(told.get("error_ns"), int)):
        return None
    return int(told["unix_ns"]) - t0 - (path.rtt_ns // 2 if path else 0)


# --- tables --------------------------------------------------------------------------------------


# Rows of the measurement whose time since t0 is known.
IN_MEASUREMENT = (pl.col("phase") == "measurement") & pl.col("t_ns").is_not_null()

COUNTED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "tcp_info": analysis.counters,
    "udp": analysis.datagram_counters,
    "http_fetch": analysis.fetch_counters,
}
# Samples cover a window if they leave out no more than so many sampling intervals of it.
WITHIN_SAMPLES = 2


def goodput_counters(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Payload bytes delivered so far in the measurement, from the start of each flow's life to its end.

    From all tables of :data:`COUNTED`, and of UDP flows of iperf3 from their servers' intervals.
    """
    rows = {name: tables[name].filter(IN_MEASUREMENT) for name in COUNTED}
    flows = run.point.phase("measurement").flows
    intervals = [
        analysis.interval_counters(flow.name, iperf3_intervals(run, flow), flow.life_ns)
        for flow in flows
        if flow.kind == "iperf3_udp"
    ]
    counted = pl.concat([*(count(rows[name]) for name, count in COUNTED.items()), *intervals])
    counted_all = [flow.name for flow in flows if _counted_all(run, flow)]
    ends = pl.concat([analysis.ended(rows["tcp_info"]), pl.DataFrame({"flow": counted_all, "stream": "0"})])
    return over_life(run, counted, ends)


def _counted_all(run: Run, flow: Flow) -> bool:
    """Whether the receiving end of a flow of the agents has said that nothing more will come."""
    result = read_json(run.raw(flow.dst_host, "measurement", f"{flow.kind}-{flow.name}-receiver.json"))
    return (flow.kind == "http" and result is not None) or (
        flow.kind == "udp" and bool(dig(result, "end_seen"))
    )


def over_life(run: Run, counted: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """:func:`analysis.over_life` of the measurement's flows."""
    flows = run.point.phase("measurement").flows
    return analysis.over_life(counted, ends, {flow.name: flow.life_ns for flow in flows})


def within_ns(run: Run) -> int:
    """How much of a window samples may leave out."""
    return WITHIN_SAMPLES * run.point.phase("measurement").sampling_interval_ns


def mean_goodput(run: Run, counted: pl.DataFrame, flow: Flow, window_ns: Window) -> float | None:
    """Mean goodput of a flow over a window, of :func:`goodput_counters`; None where they do not tell it.

    Before its start a flow has delivered nothing; after its end it delivers what is still on its way.
    """
    own = counted.filter(pl.col("flow") == flow.name)
    last_ns: int | None = own["t_ns"].max()  # type: ignore[assignment]
    start = max(window_ns[0], flow.start_ns)
    end = min(window_ns[1], max(flow.end_ns, last_ns or 0))
    if start >= end:
        return 0.0
    rate = analysis.mean_goodput(own, start, end, within_ns=within_ns(run)).get(flow.name)
    return None if rate is None else rate * (end - start) / (window_ns[1] - window_ns[0])


def until_done(counted: pl.DataFrame, flow: Flow, window_ns: Window) -> Window:
    """A window up to when a flow has transferred all that it is asked for, if it has; by its counters."""
    start, end = window_ns
    if flow.asked_bytes is not None:
        total = pl.col("bytes")
        grown = total.diff().over("stream", order_by="t_ns").fill_null(total)
        own = counted.filter(pl.col("flow") == flow.name).sort("t_ns", "bytes").with_columns(grown)
        done_ns = own.filter(total.cum_sum() >= flow.asked_bytes)["t_ns"].min()
        end = min(end, done_ns) if isinstance(done_ns, int) else end
    return start, end


def congestion_controls(run: Run, tables: Mapping[str, pl.DataFrame], flow: Flow) -> set[str]:
    """Every congestion control that the kernel reported for a flow's sender, in the agent's event or a
    sample, or at the end of a fetch. A client that is held before its first byte may not have chosen yet:
    iperf3's cookie is a segment.
    """
    event = run.event("flow_congestion_control", flow=flow.name, host=flow.src_host)
    names = {event["name"]} if event and event.get("name") else set()
    rows = tables["http_fetch" if flow.kind == "http" else "tcp_info"]
    rows = rows.filter((pl.col("flow") == flow.name) & (pl.col("side") == "sender"))
    if flow.kind != "http" and "data_segs_out" in rows.columns:
        rows = rows.filter(pl.col("data_segs_out") > 1)
    return names | (set(rows["congestion_control"].drop_nulls().unique()) - {""})


def start_error_ns(run: Run, flow: Flow) -> int | None:
    """First data of a flow, as it left its host, minus its planned start."""
    error = (run.event("flow_first_data", flow=flow.name) or {}).get("error_ns")
    return error if isinstance(error, int) else None


def flows_table(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """A row for each flow of each phase: what was planned, and what became of it.

    ``goodput_bps`` is over ``window_start_ns`` to ``window_end_ns``: the default window of the flow.
    """
    counted = goodput_counters(run, tables)
    fetched = analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT))
    rows = []
    for phase, flow in _flows(run.point.phases):
        measuring = phase.phase == "measurement"
        window = default_window([flow.life_ns], run.point.warm_up_ns) if measuring else None
        window = window and until_done(counted, flow, window)
        if window and window[0] >= window[1]:
            window = None  # it was done before the warm-up was over
        controls = congestion_controls(run, tables, flow) if flow.congestion_control else set()
        own = fetched.filter(pl.col("flow") == flow.name)
        rows.append(
            {"run": run.id, "point": run.point.id, "phase": phase.phase}
            | flow.model_dump(exclude={"rate_steps", "sender", "receiver"})
            | {
                "congestion_control_measured": ",".join(sorted(controls)) or None,
                "start_error_ns": start_error_ns(run, flow) if measuring else None,
                "window_start_ns": window and window[0],
                "window_end_ns": window and window[1],
                "goodput_bps": window and mean_goodput(run, counted, flow, window),
            }
            | (analysis.fetch_summary(own) if flow.kind == "http" else {})
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _flows(phases: Sequence[Phase]) -> Iterator[tuple[Phase, Flow]]:
    for phase in phases:
        for flow in phase.flows:
            yield phase, flow
