"""Flows of the ends that files told of, and their part of a run: plan and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from dumbbell.plan.document import SCHEMA_VERSION, Flow, Phase, Plan, Point, Validity
from dumbbell.read.model import INTERVALS, TABLES, TCP_INFO, UDP, Seen, Socket, Told

MOST_FLOWS = 32  # in a report: those that moved most
MANY = 1000  # a connection that moved so many times less than another is not of interest
_SECOND = 10**9
_JUDGED = dict.fromkeys(Validity.model_fields, 0)  # nothing was asked, so nothing is judged
# Of several files that tell of one end of a flow, the first has its rows of tcp_info.
BEST_FIRST = ("mlab", "web100", "ss", "capture", "iperf3")


@dataclass
class Connection:
    """A connection: the end that sends most of its data, and what each file told of either end."""

    src: Socket
    ends: list[tuple[Told, Seen]] = field(default_factory=list)

    @property
    def moved_bytes(self) -> int:
        """Bytes that went either way, as far as a file tells; the most that one tells."""
        return max((end.sent_bytes + end.received_bytes for _, end in self.ends), default=0)

    @property
    def dated(self) -> list[Seen]:
        """Its ends with rows in the best file, whose clock counts."""
        seen = [(BEST_FIRST.index(file.kind), end) for file, end in self.ends if end.tables]
        return [end for rank, end in seen if rank == min(rank for rank, _ in seen)]


@dataclass
class Found:
    """A flow: its connections, in the order of their streams."""

    name: str
    connections: list[Connection]

    @property
    def moved_bytes(self) -> int:
        """Bytes that its connections moved."""
        return sum(one.moved_bytes for one in self.connections)

    @property
    def life_unix_ns(self) -> tuple[int, int]:
        """Its first and its last row; of a single row at least a nanosecond."""
        ends = [end for connection in self.connections for end in connection.dated]
        first = min(end.first_ns or 0 for end in ends)
        return first, max(first + 1, *(end.last_ns or 0 for end in ends))

    def planned(self, t0_ns: int, direction: Literal["forward", "reverse"]) -> Flow:
        """The flow in a plan of what was found."""
        (src, *_) = (connection.src for connection in self.connections)
        start, end = self.life_unix_ns
        seen = [end for connection in self.connections for _, end in connection.ends]
        protocol = next((end.protocol for end in seen), "tcp")
        controls = [end.control for end in sorted(seen, key=lambda end: end.socket != src) if end.control]
        return Flow(
            name=self.name,
            kind=f"read_{protocol}",
            direction=direction,
            src_host=src.local,
            dst_host=src.remote,
            src=src.local,
            dst=src.remote,
            server_port=src.remote_port,
            client_port=src.local_port,
            streams=len(self.connections),
            start_ns=start - t0_ns,
            duration_ns=end - start,
            congestion_control=controls[0] if controls else None,
            rate_bps=None,
        )


def found(told: Sequence[Told], most: int = MOST_FLOWS) -> tuple[list[Found], int]:
    """The flows that moved most, in order of their start, and the number of others.

    Connections of one test of iperf3 in one direction are one flow.
    """
    groups: dict[tuple[object, ...], list[Connection]] = {}
    for connection in _connections(told):
        grouped = [end for _, end in connection.ends if end.group]
        key = (grouped[0].group,) if grouped else (connection.src, len(groups))
        groups.setdefault(key, []).append(connection)
    flows = [
        Found("", sorted(own, key=lambda one: min((end.stream for _, end in one.ends), default=0)))
        for own in groups.values()
        if any(connection.dated for connection in own)
    ]
    # What a tool measured on purpose is there first, whatever else the host does.
    flows.sort(key=lambda flow: (_of_test(flow), flow.moved_bytes))
    least = max((flow.moved_bytes for flow in flows), default=0) / MANY
    kept = [flow for flow in flows[-most:] if flow.moved_bytes >= least or _of_test(flow)]
    kept.sort(key=lambda flow: flow.life_unix_ns)
    for number, flow in enumerate(kept, 1):
        flow.name = f"flow{number}"
    return kept, len(flows) - len(kept)


def _of_test(flow: Found) -> bool:
    return any(end.group for connection in flow.connections for _, end in connection.ends)


def _connections(told: Iterable[Told]) -> Iterator[Connection]:
    """Connections of all files; the n-th use of addresses and ports in one file is that in others."""
    pairs: dict[tuple[Socket, int], list[tuple[Told, Seen]]] = {}
    for file in told:
        for (socket, life), end in file.ends.items():
            pairs.setdefault((min(socket, socket.peer), life), []).append((file, end))
    for (socket, _), ends in pairs.items():
        yield Connection(_sender(socket, ends), ends)


def _sender(socket: Socket, ends: list[tuple[Told, Seen]]) -> Socket:
    """The end that sends: as a file says, or the one that moved more."""
    sent = {socket: 0, socket.peer: 0}
    for _, end in ends:
        if end.sends is not None:
            return end.socket if end.sends else end.socket.peer
        sent[end.socket] = max(sent[end.socket], end.sent_bytes)
        sent[end.socket.peer] = max(sent[end.socket.peer], end.received_bytes)
    return max(sent, key=lambda end: (sent[end], end == socket))


def plan(flows: Sequence[Found], title: str, sampling_interval_ns: int) -> tuple[Plan, int]:
    """A plan with these flows, as if they had been asked for, and its t0 (ns since 1970)."""
    t0_ns = min(flow.life_unix_ns[0] for flow in flows)
    (first, *_) = (flow.connections[0].src for flow in flows)
    back = {first.remote} - {first.local}
    planned = [
        flow.planned(t0_ns, "reverse" if flow.connections[0].src.local in back else "forward")
        for flow in flows
    ]
    phase = Phase(
        phase="measurement",
        duration_ns=max(flow.end_ns for flow in planned),
        sampling_interval_ns=sampling_interval_ns,
        flows=planned,
        hosts={},
    )
    point = Point(
        id="read", repetition=1, levels={}, baseline=None, path=None, hosts={}, phases=[phase],
        validity=Validity(**_JUDGED), expect=[],
    )  # fmt: skip
    whole = Plan(
        schema_version=SCHEMA_VERSION, scenario="read", title=title, profile=None, seed=0, points=[point]
    )
    return whole, t0_ns


def rows(flows: Sequence[Found], table: str, t0_ns: int, run_id: str) -> pl.LazyFrame:
    """Rows of a table, with the tags of runs (run, point, phase, host, flow, side, stream) and ``t_ns``."""
    parts = []
    for file, ends in _by_file(flows, table).items():
        tags = pl.LazyFrame(ends, schema=_TAGS, orient="row")
        own = told_of(flows, file).table(table).join(tags, on="number", how="inner", maintain_order="left")
        parts.append(own)
    columns = TABLES[table]
    if not parts:
        parts = [pl.LazyFrame(schema={**_TAGS, "unix_ns": pl.Int64, **columns})]
    return pl.concat(parts).select(
        pl.lit(run_id).alias("run"),
        pl.lit("read").alias("point"),
        pl.lit("measurement").alias("phase"),
        *("host", "flow", "side", "stream", "unix_ns"),
        (pl.col("unix_ns") - t0_ns).alias("t_ns"),
        *columns,
    )


_TAGS = {"number": pl.Int64, **dict.fromkeys(("host", "flow", "side", "stream"), pl.String)}


def told_of(flows: Sequence[Found], path: str) -> Told:
    """The file of this path."""
    return next(
        file for flow in flows for one in flow.connections for file, _ in one.ends if str(file.path) == path
    )


def _by_file(flows: Sequence[Found], table: str) -> dict[str, list[tuple[int, str, str, str, str]]]:
    """The ends whose rows a table takes, by file: of each side of a flow, those of the best file alone."""
    chosen: dict[str, list[tuple[int, str, str, str, str]]] = {}
    for flow in flows:
        for side in ("sender", "receiver"):
            of_side = [
                (file, end, stream)
                for stream, connection in enumerate(flow.connections)
                for file, end in connection.ends
                if (end.socket == connection.src) == (side == "sender")
            ]
            files = {str(file.path): file for file, *_ in of_side}
            for path in sorted(files, key=lambda path: BEST_FIRST.index(files[path].kind)):
                own = [(end, stream) for file, end, stream in of_side if str(file.path) == path]
                if any(table in end.tables for end, _ in own):
                    chosen.setdefault(path, []).extend(
                        (end.number, end.socket.local, flow.name, side, str(stream)) for end, stream in own
                    )
                    break
    return chosen


def delivered(flows: Sequence[Found], t0_ns: int) -> pl.DataFrame:
    """Bytes that tools counted in consecutive intervals, ``[flow, begin_ns, end_ns, bytes]``, of all streams.

    Of the receiver if a file tells of it, else of the sender: then no more than what the receiver reported in
    the end.
    """
    parts = []
    chosen = _by_file(flows, "intervals")
    received = {flow for ends in chosen.values() for _, _, flow, side, _ in ends if side == "receiver"}
    most = {
        flow.name: None if None in (totals := _totals(flow)) else sum(total or 0 for total in totals)
        for flow in flows
    }
    for path, ends in chosen.items():
        used = [end for end in ends if end[3] == ("receiver" if end[2] in received else "sender")]
        tags = pl.LazyFrame(used, schema=_TAGS, orient="row")
        own = told_of(flows, path).table("intervals").join(tags, on="number", maintain_order="left")
        # The n-th intervals of streams are one, though a stream's begins microseconds after another's.
        nth = own.with_columns(nth=pl.int_range(pl.len()).over("number"))
        begin_end = pl.col("begin_unix_ns").min(), pl.col("unix_ns").max()
        parts.append(nth.group_by("flow", "side", "nth").agg(*begin_end, pl.col("bytes").sum()).collect())
    if not parts:
        return pl.DataFrame(
            schema={"flow": pl.String, **dict.fromkeys(("begin_ns", "end_ns", "bytes"), pl.Int64)}
        )
    table = pl.concat(parts).sort("flow", "unix_ns")
    limit = pl.col("flow").replace_strict(most, default=None, return_dtype=pl.Int64)
    total = pl.col("bytes").cum_sum().over("flow")
    before = pl.col("unix_ns").shift().over("flow")
    capped = pl.when(pl.col("side") == "sender").then(pl.min_horizontal(total, limit)).otherwise(total)
    return table.with_columns(total=capped).select(
        "flow",
        begin_ns=pl.max_horizontal("begin_unix_ns", before) - t0_ns,
        end_ns=pl.col("unix_ns") - t0_ns,
        bytes=pl.col("total").diff().over("flow").fill_null(pl.col("total")),
    )


def _totals(flow: Found) -> list[int | None]:
    """What each connection delivered in the end, where a file tells it."""
    return [
        max((end.total_bytes for _, end in one.ends if end.total_bytes is not None), default=None)
        for one in flow.connections
    ]


def interval_ns(flows: Sequence[Found]) -> int:
    """The median time between the rows of an end, over all tables; a second if none has two."""
    steps = []
    for table in (INTERVALS, TCP_INFO, UDP):
        name = next(name for name, columns in TABLES.items() if columns is table)
        for path, ends in _by_file(flows, name).items():
            numbers = [end[0] for end in ends]
            own = told_of(flows, path).table(name).filter(pl.col("number").is_in(numbers))
            step = pl.col("unix_ns").diff().over("number")
            found = own.select(step.filter(step > 0).median()).collect().item()
            steps += [int(found)] if found else []
    return min(steps, default=_SECOND)
