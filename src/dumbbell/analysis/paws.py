"""Whether retransmissions overtook segments, which the receiver then rejected because of their timestamps.

A queue that sends retransmissions first sends them ahead of segments with older timestamps. The receiver
takes the newer timestamp and rejects those segments (PAWS, RFC 7323, section 5). They are sent again, ahead
of still others, though nothing was lost. Told from counters, and from the headers of a capture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

# It is no repair of losses if more than so many are sent again for each packet dropped, and if the causes
# leave less than this share of them unexplained.
MOST_PER_DROP, MOST_UNEXPLAINED = 3, 0.1
PAWS_WINDOW = 1  # ticks by which a timestamp may be older: TCP_PAWS_WINDOW, include/net/tcp.h
COLUMNS = (
    "at",
    "src",
    "src_port",
    "dst",
    "dst_port",
    "seq",
    "ack",
    "flags",
    "payload_bytes",
    "tsval",
    "dsack",
)
_SYN, _RST, _ACK = 2, 4, 16
_NEVER = -(1 << 62)  # less than any number without wraps

Verdict = Literal["overtaken", "not overtaken", "unexplained"]
FROM_BEST: tuple[Verdict, ...] = ("not overtaken", "unexplained", "overtaken")
Connection = tuple[str, int, str, int]  # address and port of the sender, of the receiver


@dataclass(frozen=True)
class Budget:
    """Retransmitted segments by cause, over the same time at both ends and on the path.

    Each segment that was dropped is sent again, and each that the receiver's PAWS rejected. What it had
    already and got again it reports as a duplicate (D-SACK, RFC 2883).
    """

    retransmits: float  # TcpRetransSegs of the sender
    drops: float  # packets of TCP on the way
    rejects: float  # TcpExtPAWSEstab of the receiver
    duplicates: float  # TcpExtTCPDSACKRecvSegs of the sender

    @property
    def residual(self) -> float:
        """Retransmissions without one of these causes; negative if the causes exceed the retransmissions."""
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
    """A rejected segment, and the one that overtook it, by their offsets in the capture."""

    at: int
    by_at: int
    step: int  # by which its timestamp is older, in its ticks


@dataclass(slots=True)
class _Way:
    """State of one direction of a connection; numbers do not wrap."""

    connection: Connection
    opened: int | None  # number of the SYN
    edge: int  # last number in sequence, of a segment or of an acknowledgment
    tsval: int = 0  # last timestamp
    newest: int = _NEVER  # timestamp
    highest: int = _NEVER  # end of what was sent
    acked: int = _NEVER
    expected: int = _NEVER  # what the receiver waits for
    beyond: dict[int, int] = field(default_factory=dict)  # begin and end of what it has behind that
    ts_recent: int = _NEVER
    ts_recent_at: int = -1
    suspects: dict[int, list[tuple[int, Overtaken]]] = field(default_factory=dict)  # timestamps, by begin
    back: _Way = field(init=False, repr=False)
    segments: int = 0
    again: int = 0
    duplicates: int = 0
    backwards: int = 0
    rejected: int = 0

    @property
    def verdict(self) -> Verdict:
        """That of a :class:`Budget` of what was captured, in which all else that came again was dropped."""
        if self.backwards and self.acked == _NEVER:
            return "unexplained"  # without acknowledgments it is not known what the receiver waited for
        drops = max(self.again - self.rejected - self.duplicates, 0)
        return Budget(self.again, drops, self.rejected, self.again - self.rejected - drops).verdict

    def acknowledge(self, number: int) -> None:
        """The receiver has all before a number."""
        self.edge = edge = _unwrapped(number, self.edge)
        self.acked = max(self.acked, edge)
        if edge > self.expected:  # also what was not captured
            self.expected = edge
            self.beyond = {begin: end for begin, end in self.beyond.items() if begin >= edge}
            self._advance()

    def receive(self, begin: int, end: int) -> None:
        """The receiver gets data, which may be none."""
        if begin <= self.expected:
            if end > self.expected:
                self.expected = end
                self._advance()
        elif end > begin:
            self.beyond[begin] = end

    def _advance(self) -> None:
        while self.expected in self.beyond:
            self.expected = self.beyond.pop(self.expected)


@dataclass
class Paws:
    """Finds segments that receivers behind a capture reject because of their timestamps.

    A receiver takes the timestamp of a segment that begins no later than what it waits for, and rejects data
    with one that is older by more than a tick. Here it gets what was captured, and has what it acknowledges.
    That a segment was rejected is sure when the same data comes once more with a newer timestamp before it is
    acknowledged; others do not count.

    ``steps`` counts the rejected by how many ticks their timestamps are older. What was dropped before it
    came to the capture is in none of the counts.
    """

    steps: Counter[int] = field(default_factory=Counter)
    first: Overtaken | None = None
    _ways: dict[Connection, _Way] = field(default_factory=dict)
    _all: list[_Way] = field(default_factory=list)  # also of ports that serve another connection now

    @property
    def segments(self) -> int:
        """Number of segments with data and timestamps."""
        return sum(way.segments for way in self._all)

    @property
    def again(self) -> int:
        """Number of segments without new data."""
        return sum(way.again for way in self._all)

    @property
    def duplicates(self) -> int:
        """Number of segments that receivers report as duplicates (D-SACK)."""
        return sum(way.duplicates for way in self._all)

    @property
    def backwards(self) -> int:
        """Number of segments with an older timestamp than a previous one."""
        return sum(way.backwards for way in self._all)

    @property
    def rejected(self) -> Counter[Connection]:
        """Number of segments that were certainly rejected."""
        rejected: Counter[Connection] = Counter()
        for way in self._all:
            if way.rejected:
                rejected[way.connection] += way.rejected
        return rejected

    @property
    def verdict(self) -> Verdict:
        """The worst of its connections, as one that was overtaken is lost among many that losses hit.

        It is ``unexplained`` where timestamps went back and the capture has no acknowledgment of them.
        """
        return max((way.verdict for way in self._all), key=FROM_BEST.index, default=FROM_BEST[0])

    def feed(self, segments: pl.DataFrame) -> None:
        """The next segments of a capture, of all connections, as :meth:`Capture.segments` has them."""
        rows = segments.filter(pl.col("flags") & _RST == 0).select(COLUMNS)
        for at, src, src_port, dst, dst_port, seq, ack, flags, payload, tsval, dsack in rows.iter_rows():
            opens = flags & (_SYN | _ACK) == _SYN
            way = self._ways.get((src, src_port, dst, dst_port))
            if way is None or (opens and seq != way.opened):  # ports may serve one connection after another
                opened = seq if opens else None
                way = _Way((src, src_port, dst, dst_port), opened, edge=seq)
                way.back = _Way((dst, dst_port, src, src_port), opened, edge=ack)
                way.back.back = way
                self._ways |= {way.connection: way, way.back.connection: way.back}
                self._all += [way, way.back]
            self._sent(way, at, seq, payload, tsval)
            if flags & _ACK:
                way.back.acknowledge(ack)
                way.back.duplicates += dsack
        for way in self._ways.values():
            if way.suspects:  # what is acknowledged without having come again was accepted
                way.suspects = {begin: of for begin, of in way.suspects.items() if begin >= way.acked}

    def _sent(self, way: _Way, at: int, seq: int, payload: int, tsval: int | None) -> None:
        way.edge = begin = _unwrapped(seq, way.edge)
        end = begin + payload
        if tsval is not None:
            way.tsval = stamp = _unwrapped(tsval, way.tsval) if way.newest > _NEVER else tsval
            if payload:
                way.segments += 1
                way.again += end <= way.highest
                way.backwards += stamp < way.newest
                if begin in way.suspects and way.acked <= begin:
                    self._confirm(way, begin, stamp)
            way.newest = max(way.newest, stamp)
            way.highest = max(way.highest, end)
            if way.ts_recent - stamp > PAWS_WINDOW:
                if payload:
                    overtaken = Overtaken(at, way.ts_recent_at, way.ts_recent - stamp)
                    way.suspects.setdefault(begin, []).append((stamp, overtaken))
                return
            if begin <= way.expected and stamp > way.ts_recent:
                way.ts_recent, way.ts_recent_at = stamp, at
        way.receive(begin, end)

    def _confirm(self, way: _Way, begin: int, stamp: int) -> None:
        """Data that has come again was rejected, where its timestamp was older."""
        left = []
        for suspect in way.suspects.pop(begin):
            older, overtaken = suspect
            if older >= stamp:
                left.append(suspect)
                continue
            way.rejected += 1
            self.steps[overtaken.step] += 1
            if self.first is None or overtaken.at < self.first.at:
                self.first = overtaken
        if left:
            way.suspects[begin] = left


def _unwrapped(number: int, last: int) -> int:
    """A number of 32 bits without its wraps, within half the range of the last one."""
    return last + (number - last + (1 << 31)) % (1 << 32) - (1 << 31)
