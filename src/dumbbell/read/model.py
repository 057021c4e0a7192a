"""What every reader makes of a file: sockets, rows of their samples, and what the file does not tell.

Rows have the names and units of the table ``tcp_info`` of runs (docs/data-model.md). They go to disk in
parts, so that a file may be larger than memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import polars as pl

PART_ROWS = 20_000
MOST_SOCKETS = 100_000  # of a file; each takes about a kilobyte of memory
MOST = 2**63 - 1  # of a number in a table

_MS = "last_data_sent_ms last_data_recv_ms last_ack_recv_ms total_rto_time_ms"
_COUNTS = """
    ca_state retransmits backoff snd_wscale rcv_wscale delivery_rate_app_limited rto_us ato_us snd_mss rcv_mss
    unacked sacked lost retrans pmtu rcv_ssthresh srtt_us rttvar_us snd_ssthresh snd_cwnd advmss reordering
    rcv_rtt_us rcv_space total_retrans pacing_rate_Bps max_pacing_rate_Bps bytes_acked bytes_received segs_out
    segs_in notsent_bytes min_rtt_us data_segs_in data_segs_out delivery_rate_Bps busy_time_us rwnd_limited_us
    sndbuf_limited_us delivered delivered_ce bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack
    snd_wnd rcv_wnd rehash total_rto total_rto_recoveries rqueue_bytes wqueue_bytes bbr_bw_Bps bbr_min_rtt_us
    skmem_rmem_alloc_bytes skmem_rcvbuf_bytes skmem_wmem_alloc_bytes skmem_sndbuf_bytes skmem_fwd_alloc_bytes
    skmem_wmem_queued_bytes skmem_optmem_bytes skmem_backlog_bytes skmem_drops"""
TCP_INFO = {name: pl.Int64 for name in (*_COUNTS.split(), *_MS.split())} | {"congestion_control": pl.String}
UDP = dict.fromkeys(("received_packets", "received_bytes", "lost_packets"), pl.Int64)
INTERVALS = dict.fromkeys(("begin_unix_ns", "bytes"), pl.Int64)  # up to the row's time
TABLES: dict[str, Mapping[str, type[pl.DataType]]] = {
    "tcp_info": TCP_INFO,
    "udp": UDP,
    "intervals": INTERVALS,
}

Value = int | str | None


class Malformed(ValueError):
    """A file cannot be read. The message says where, what was found, and what to do."""

    def __init__(self, path: Path, where: str, found: str, advice: str) -> None:
        super().__init__(f"{path}, {where}: {found}. {advice}")


class Socket(NamedTuple):
    """An end of a connection: its own address and port, and those of the other end."""

    local: str
    local_port: int
    remote: str
    remote_port: int

    @classmethod
    def of(cls, local: str, local_port: int, remote: str, remote_port: int) -> Socket:
        """Addresses as :mod:`ipaddress` writes them, IPv4 in IPv6 as IPv4; ValueError if one is none."""
        for port in (local_port, remote_port):
            if not 0 < port < 1 << 16:
                raise ValueError(f"{port} is no port")
        return cls(plain(local), local_port, plain(remote), remote_port)

    @property
    def peer(self) -> Socket:
        """The other end."""
        return Socket(self.remote, self.remote_port, self.local, self.local_port)


def plain(address: str) -> str:
    """An address in its shortest form, without the interface; ValueError if it is none."""
    ip = ip_address(address.partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip)


@dataclass
class Seen:
    """What a file tells of a connection's end. Times are of Unix, in ns."""

    socket: Socket
    number: int  # in the tables
    life: int = 0  # an address and port may be used again: 0 is the first connection with them
    protocol: str = "tcp"
    sends: bool | None = None  # whether the data goes from it, if the file says so
    group: str = ""  # connections of one test, which become streams of one flow
    stream: int = 0
    control: str | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    total_bytes: int | None = None  # delivered by its end, as the receiver reported
    tables: set[str] = field(default_factory=set)  # that have rows of it

    def during(self, unix_ns: int) -> None:
        """The end existed at this time."""
        self.first_ns = unix_ns if self.first_ns is None else min(self.first_ns, unix_ns)
        self.last_ns = unix_ns if self.last_ns is None else max(self.last_ns, unix_ns)


@dataclass
class Told:
    """What one file tells. A reader fills it: :meth:`seen` for each end of a connection, then :meth:`add`."""

    path: Path
    kind: str  # the name of the reader
    scratch: Path  # where parts of tables are kept
    tool: str = ""  # name and version of what wrote the file, if it says so
    dated: bool = True  # whether its times have a date
    not_told: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)  # how often, by what was left out
    ends: dict[tuple[Socket, int], Seen] = field(default_factory=dict)
    _last: dict[Socket, int] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    _parts: dict[str, list[Path]] = field(default_factory=dict)

    def malformed(self, where: str, found: str, advice: str) -> Malformed:
        """The error to raise."""
        return Malformed(self.path, where, found, advice)

    def skip(self, what: str) -> None:
        """Count something that is left out."""
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def seen(self, socket: Socket, *, again: bool = False) -> Seen:
        """The end with these addresses; ``again``: a new connection that uses them again."""
        life = self._last.get(socket, -1) + 1 if again else max(self._last.get(socket, 0), 0)
        if (found := self.ends.get((socket, life))) is None:
            if len(self.ends) >= MOST_SOCKETS:
                raise self.malformed(
                    f"connection {MOST_SOCKETS + 1}",
                    f"it has more than {MOST_SOCKETS} connections",
                    "Leave the others out, with a filter of its tool (ss dst ADDRESS, tcpdump host ADDRESS)",
                )
            found = Seen(socket, len(self.ends), life)
            self.ends[socket, life] = found
            self._last[socket] = life
        return found

    def add(self, table: str, end: Seen, unix_ns: int, values: Mapping[str, Value]) -> Seen:
        """Add a row. Returns the end, a new one if its counters of bytes begin again."""
        for name, value in values.items():
            if isinstance(value, int) and not -MOST <= value <= MOST:
                raise ValueError(f"{name} is {value}, which no counter reaches")
        if not 0 <= unix_ns <= MOST:
            raise ValueError(f"its time is {unix_ns / 1e9:.0f} s since 1970")
        if table == "tcp_info":
            acked, got = (values.get(name) for name in ("bytes_acked", "bytes_received"))
            sent, received = (value if isinstance(value, int) else 0 for value in (acked, got))
            if (acked is not None and sent < end.sent_bytes) or (
                got is not None and received < end.received_bytes
            ):
                end = self.seen(end.socket, again=True)
            end.sent_bytes, end.received_bytes = (
                max(sent, end.sent_bytes),
                max(received, end.received_bytes),
            )
            control = values.get("congestion_control")
            end.control = control if isinstance(control, str) else end.control
        end.during(unix_ns)
        end.tables.add(table)
        rows = self._rows.setdefault(table, [])
        rows.append({"number": end.number, "unix_ns": unix_ns, **values})
        if len(rows) >= PART_ROWS:
            self._write(table)
        return end

    def table(self, name: str) -> pl.LazyFrame:
        """All rows of a table, ``[number, unix_ns, ...]`` with the columns of :data:`TABLES`."""
        self._write(name)
        parts = self._parts.get(name, [])
        return pl.scan_parquet(parts) if parts else pl.LazyFrame(schema=_schema(name))

    def _write(self, name: str) -> None:
        if rows := self._rows.pop(name, []):
            parts = self._parts.setdefault(name, [])
            with tempfile.NamedTemporaryFile(dir=self.scratch, suffix=".parquet", delete=False) as file:
                pl.DataFrame(rows, schema=_schema(name)).write_parquet(file)
            parts.append(Path(file.name))


def _schema(table: str) -> dict[str, type[pl.DataType]]:
    return {"number": pl.Int64, "unix_ns": pl.Int64, **TABLES[table]}
