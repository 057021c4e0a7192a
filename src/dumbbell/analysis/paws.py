"""Whether retransmissions overtook segments, which the receiver then rejected because of their timestamps.

A queue that sends retransmissions first sends them ahead of segments with older timestamps. The receiver
takes the newer timestamp and rejects those segments (PAWS, RFC 7323, section 5). They are sent again, ahead
of still others, though nothing was lost. Told from counters, and from the headers of a capture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

# It is no repair of losses if more than so many are sent again for each packet dropped, and if the causes
# leave less than this share of them unexplained.
MOST_PER_DROP, MOST_UNEXPLAINED = 3, 0.1
PAWS_WINDOW = 1  # ticks by which a timestamp may be older: TCP_PAWS_WINDOW, include/net/tcp.h
CONNECTION = ["src", "src_port", "dst", "dst_port"]
_SYN, _RST, _ACK = 2, 4, 16
_NEVER = np.iinfo(np.int64).min // 2  # less than any number, with room for differences

Verdict = Literal["overtaken", "not overtaken", "unexplained"]
Key = tuple[Any, ...]
Suspect = tuple[int, int, int, int, int]  # edge, tsval, at, by_at, step
Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Budget:
    """How many segments were sent again, and why, over the same time at both ends and on the way.

    Each segment that was dropped is sent again, and each that the receiver's PAWS rejected. What it had
    already and got again it reports as a duplicate (D-SACK, RFC 2883).
    """

    retransmits: float  # TcpRetransSegs of the sender
    drops: float  # packets of TCP on the way
    rejects: float  # TcpExtPAWSEstab of the receiver
    duplicates: float  # TcpExtTCPDSACKRecv of the sender

    @property
    def residual(self) -> float:
        """Retransmissions that none of these caused; negative if they caused more than there were."""
        return self.retransmits - self.drops - self.rejects - self.duplicates

    @property
    def unexplained(self) -> float:
        """Size of the residual as a share of the retransmissions."""
        return abs(self.residual) / self.retransmits if self.retransmits else float(self.residual != 0)

    @property
    def verdict(self) -> Verdict:
        """``overtaken`` if most was sent again for rejects; ``unexplained`` if the terms do not add up."""
        if not self.rejects or self.retransmits <= MOST_PER_DROP * self.drops:
            return "not overtaken"
        return "overtaken" if self.unexplained < MOST_UNEXPLAINED else "unexplained"


@dataclass(frozen=True)
class Overtaken:
    """A rejected segment, and the one that overtook it, by where they are in the capture."""

    at: int
    by_at: int
    step: int  # by which its timestamp is older, in its ticks


@dataclass
class _Way:
    """What is known of one direction of a connection; numbers do not wrap."""

    opened: int | None = None  # number of the SYN
    edge: int | None = None  # last sequence number, or the other side's acknowledgment of one
    tsval: int | None = None
    newest: int = _NEVER  # tsval so far
    acked: int = _NEVER
    next: int = _NEVER  # what the receiver waits for
    beyond: dict[int, int] = field(default_factory=dict)  # begin and end of what it has behind that
    ts_recent: int = _NEVER
    ts_recent_at: int = -1
    suspects: list[Suspect] = field(default_factory=list)

    def forget(self, opened: int) -> None:
        self.__init__(opened)  # type: ignore[misc]


@dataclass
class Paws:
    """What receivers behind a capture make of the timestamps that they are sent.

    A receiver takes the timestamp of a segment that begins no later than what it waits for, and rejects data
    with one that is older by more than a tick. Here it gets what was captured, and has what it acknowledges.
    That a segment was rejected is sure when the same data comes once more with a newer timestamp before it is
    acknowledged; others do not count.

    ``segments`` have data and timestamps; ``backwards`` of them have an older timestamp than one before;
    ``rejected`` are by connection, and ``steps`` by how many ticks their timestamps are older.
    """

    segments: int = 0
    backwards: int = 0
    rejected: Counter[Key] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    first: Overtaken | None = None
    _ways: dict[Key, _Way] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """In the words of :class:`Budget`."""
        return "overtaken" if self.rejected else "not overtaken"

    def feed(self, segments: pl.DataFrame) -> None:
        """The next segments of a capture, of all connections, as :meth:`Capture.segments` has them."""
        rows = segments.filter(pl.col("flags") & _RST == 0)
        nothing = rows.clear()
        found = rows.partition_by(CONNECTION, as_dict=True)
        for key in dict.fromkeys([*found, *map(_back, found)]):
            own, back = found.get(key, nothing), found.get(_back(key), nothing)
            merged = pl.concat([own.with_columns(own=True), back.with_columns(own=False)]).sort("at")
            way = self._ways.setdefault(key, _Way())
            for part in _lives(merged, way):
                self._feed(key, way, part)

    def _feed(self, key: Key, way: _Way, rows: pl.DataFrame) -> None:
        """One direction: segments of its own, and those of the other, which acknowledge."""
        own = rows["own"].to_numpy()
        acks = ~own & ((rows["flags"].to_numpy() & _ACK) > 0)
        used = own | acks
        rows, own, acks = rows.filter(pl.Series(used)), own[used], acks[used]
        if rows.is_empty():
            return
        edge = _unwrapped(np.where(own, rows["seq"].to_numpy(), rows["ack"].to_numpy()), way.edge)
        acked = _highest(np.where(acks, edge, _NEVER), way.acked)
        way.edge, way.acked = int(edge[-1]), int(acked[-1])

        stamped = own & rows["tsval"].is_not_null().to_numpy()
        tsval = np.full(len(edge), _NEVER)
        if stamped.any():
            tsval[stamped] = _unwrapped(rows["tsval"].to_numpy()[stamped].astype(np.int64), way.tsval)
            way.tsval = int(tsval[stamped][-1])
        data = stamped & (rows["payload_bytes"].to_numpy() > 0)
        newest = _highest(tsval, way.newest)
        way.newest = int(newest[-1])
        self.segments += int(data.sum())
        self.backwards += int((data & (tsval < newest)).sum())

        end = edge + rows["payload_bytes"].to_numpy()
        columns = {"own": own, "edge": edge, "end": end, "tsval": tsval, "at": rows["at"], "acked": acked}
        arrived = pl.DataFrame(columns)
        if suspects := way.suspects + _rejected(way, arrived):
            self._confirm(key, way, suspects, arrived.filter(pl.Series(data)))

    def _confirm(self, key: Key, way: _Way, suspects: list[Suspect], sent: pl.DataFrame) -> None:
        found = pl.DataFrame(suspects, schema=["edge", "tsval", "at", "by_at", "step"], orient="row")
        again = (
            found.join(sent, on="edge", suffix="_again")
            .filter(
                pl.col("at_again") > pl.col("at"),
                pl.col("tsval_again") > pl.col("tsval"),
                pl.col("acked") <= pl.col("edge"),
            )
            .unique("at")
            .sort("at")
        )
        # What is acknowledged without having come again was accepted.
        left = found.filter(pl.col("edge") >= way.acked).join(again, on="at", how="anti")
        way.suspects = left.rows()
        if again.is_empty():
            return
        self.rejected[key] += again.height
        self.steps.update(again["step"].to_list())
        begin = again.row(0, named=True)
        if self.first is None or begin["at"] < self.first.at:
            self.first = Overtaken(begin["at"], begin["by_at"], begin["step"])


def _rejected(way: _Way, arrived: pl.DataFrame) -> list[Suspect]:
    """Data whose timestamp is too old for the receiver of a way, which becomes what they leave it as."""
    found: list[Suspect] = []
    expected, beyond, ts_recent, ts_recent_at = way.next, way.beyond, way.ts_recent, way.ts_recent_at
    for own, edge, end, tsval, at, _ in arrived.iter_rows():
        if not own:
            if edge > expected:  # it has what was not captured
                expected = edge
                beyond = {begin: behind for begin, behind in beyond.items() if begin >= expected}
        elif tsval != _NEVER and ts_recent - tsval > PAWS_WINDOW:
            if end > edge:
                found.append((edge, tsval, at, ts_recent_at, ts_recent - tsval))
        elif edge > expected:
            if end > edge:
                beyond[edge] = end
        else:
            if tsval > ts_recent:
                ts_recent, ts_recent_at = tsval, at
            expected = max(expected, end)
        while expected in beyond:
            expected = beyond.pop(expected)
    way.next, way.beyond, way.ts_recent, way.ts_recent_at = expected, beyond, ts_recent, ts_recent_at
    return found


def _back(key: Key) -> Key:
    return (*key[2:], *key[:2])


def _lives(rows: pl.DataFrame, way: _Way) -> Iterator[pl.DataFrame]:
    """Rows by connection: ports may serve another one, which a SYN with another number begins."""
    opens = (rows["flags"].to_numpy() & (_SYN | _ACK)) == _SYN
    begin = 0
    for i in np.flatnonzero(opens):
        if (number := int(rows["seq"][int(i)])) != way.opened:
            yield rows[begin : int(i)]
            way.forget(number)
            begin = int(i)
    yield rows[begin:]


def _unwrapped(numbers: np.ndarray[Any, Any], last: int | None) -> Numbers:
    """Numbers of 32 bits without their wraps, each within half the range of the one before it."""
    numbers = numbers.astype(np.int64)
    start = int(numbers[0]) if last is None else last
    steps = np.diff(numbers, prepend=start)
    return start + np.cumsum((steps + (1 << 31)) % (1 << 32) - (1 << 31))


def _highest(numbers: Numbers, before: int) -> Numbers:
    """The highest so far."""
    return np.maximum(np.maximum.accumulate(numbers), before)
