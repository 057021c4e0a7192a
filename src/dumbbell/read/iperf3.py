"""Reports of iperf3: those of ``--json``, one after the other, and ``--json-stream``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dumbbell.read.lines import lines, opened
from dumbbell.read.model import MOST, Malformed, Seen, Socket, Told, Value

KIND = "iperf3"
DOCUMENT_BYTES = 1 << 26  # of one report, which is parsed as a whole
NOT_TOLD = (
    "iperf3 does not tell busy_time, rwnd_limited and sndbuf_limited, nor what is in flight: what limited "
    "a flow is not known. `ss -tinm` of the sender, again and again during the test, tells it: give both "
    "files.",
)
CLIENT_ONLY = (
    "iperf3's client tells what it wrote to its socket, not what was acknowledged: its goodput over time has "
    "what still lies in the sender's buffer; its total is what the server reported. The server's report, or "
    "--get-server-output, tells what arrived when."
)
SECONDS = "iperf3 tells when it began in whole seconds: beside other files its times may be off by as much."
NO_RETRANSMITS = "iperf3's receiver does not tell cwnd, RTT and retransmissions, which are the sender's."
_LONGEST_S = 10**9  # of times in a test, 30 years
_ADVICE = "Write it again with iperf3 --json-stream"
_BEGIN = re.compile(rb'^\s*\{\s*"(start|error|title|intervals|end)"\s*:')
_STREAM = re.compile(rb'^\s*\{\s*"event"\s*:')

ERROR = "error that iperf3 reported"

Doc = dict[str, Any]


def is_kind(head: bytes) -> bool:
    """Whether a file begins like a report of iperf3."""
    return _STREAM.match(head) is not None or _BEGIN.match(head) is not None


def read(told: Told) -> None:
    """Fill in all tests of a file; :class:`Malformed` if it has none."""
    with opened(told.path) as file:
        begin = file.read(256)
    with opened(told.path) as file:
        tests = _streamed(told, file) if _STREAM.match(begin) else _documents(told, file)
        count = 0
        for test in tests:
            count += test.intervals
    if not count:
        errors = "".join(f"; {what}" for what in told.skipped if what.startswith(ERROR))
        raise told.malformed(
            "its end",
            f"no test in it has an interval{errors}",
            "Let the test run for longer than its -i, and to its end",
        )
    told.not_told += NOT_TOLD


class _Test:
    """A test as its parts come: start, intervals, end. ``error`` makes the message of a wrong part."""

    def __init__(self, told: Told, error: Callable[[str], Malformed]) -> None:
        self.told = told
        self.error = error
        self.intervals = 0
        self.sockets: dict[int, Seen] = {}
        self.totals: dict[int, dict[str, int]] = {}
        self.unix_ns = 0
        self.mss: int | None = None
        self.protocol = "tcp"
        self.has_receivers = False
        self.cookie = ""
        self.is_client = True

    def start(self, data: Doc, *, server_of: _Test | None = None) -> None:
        """The start of a test; ``server_of``: the server's own part in the client's report."""
        found = _dict(data)
        self.told.tool = str(found.get("version") or self.told.tool)[:80]
        set_up = _dict(found.get("test_start"))
        protocol = str(set_up.get("protocol", "TCP")).lower()
        if protocol not in ("tcp", "udp"):
            raise self.error(f"a test over {protocol[:20]} is neither TCP nor UDP")
        self.protocol = protocol
        at = _dict(found.get("timestamp"))
        ms, seconds = at.get("timemillisecs"), at.get("timesecs", 0)
        self.unix_ns = _int(ms) * 10**6 if ms is not None else _int(seconds) * 10**9
        if ms is None and SECONDS not in self.told.not_told:
            self.told.not_told.append(SECONDS)
        if server_of is not None:
            self.unix_ns = server_of.unix_ns
        self.mss = _int(found["tcp_mss_default"]) if found.get("tcp_mss_default") else None
        self.cookie = str(found.get("cookie", ""))[:40]
        self.is_client = "connecting_to" in found
        for stream, told in enumerate(_list(found.get("connected"))):
            one = _dict(told)
            socket = Socket.of(
                str(one.get("local_host")),
                _int(one.get("local_port")),
                str(one.get("remote_host")),
                _int(one.get("remote_port")),
            )
            end = self.told.seen(socket)
            end.stream, end.protocol = stream, protocol
            self.sockets[_int(one.get("socket"))] = end

    def interval(self, data: Doc) -> None:
        """What each stream did in an interval."""
        for told in _list(_dict(data).get("streams")):
            one = _dict(told)
            number = _int(one.get("socket"))
            if (end := self.sockets.get(number)) is None:
                raise self.error(f"the socket {number} is not among those that were connected")
            begin, until = (self.unix_ns + round(_float(one.get(key)) * 1e9) for key in ("start", "end"))
            if until <= begin:
                continue
            if isinstance(one.get("sender"), bool):
                end.sends = one["sender"]
            end.group = f"{self.cookie} {'reverse' if (end.sends is False) == self.is_client else 'forward'}"
            end.during(begin)
            total = self.totals.setdefault(number, {})
            moved = _int(one.get("bytes"))
            self.told.add("intervals", end, until, {"begin_unix_ns": begin, "bytes": moved})
            if self.protocol == "tcp" and end.sends is not False:
                self._sample(end, until, one, total)
            elif self.protocol == "udp" and end.sends is False:
                self._datagrams(end, until, one, total)
            self.has_receivers |= end.sends is False
            self.intervals += 1

    def _sample(self, end: Seen, unix_ns: int, one: Doc, total: dict[str, int]) -> None:
        again = one.get("retransmits")
        if again is not None:
            total["total_retrans"] = total.get("total_retrans", 0) + _int(again)
        cwnd = _int(one["snd_cwnd"]) if one.get("snd_cwnd") is not None else None
        # The window is a multiple of the segment's size of that time; the size is told at the start only.
        whole = self.mss and cwnd is not None and cwnd % self.mss == 0
        values: dict[str, Value] = {
            "total_retrans": total.get("total_retrans"),
            "snd_mss": self.mss if whole else None,
            "snd_cwnd": cwnd // self.mss if whole and cwnd is not None and self.mss else None,
        }
        for theirs, ours in (
            *(("snd_wnd", "snd_wnd"), ("rtt", "srtt_us"), ("rttvar", "rttvar_us"), ("pmtu", "pmtu")),
            ("reorder", "reord_seen"),
        ):
            values[ours] = _int(one[theirs]) if one.get(theirs) is not None else None
        self.told.add("tcp_info", end, unix_ns, values)

    def _datagrams(self, end: Seen, unix_ns: int, one: Doc, total: dict[str, int]) -> None:
        lost = max(_int(one.get("lost_packets", 0)), 0)
        for name, more in (
            ("received_bytes", _int(one.get("bytes"))),
            ("lost_packets", lost),
            ("received_packets", max(_int(one.get("packets", 0)) - lost, 0)),
        ):
            total[name] = total.get(name, 0) + more
        self.told.add("udp", end, unix_ns, total)

    def end(self, data: Doc) -> None:
        """Totals, among them those that the other end told."""
        found = _dict(data)
        control = found.get("sender_tcp_congestion")
        for told in _list(found.get("streams")):
            for side in ("sender", "receiver", "udp"):
                one = _dict(_dict(told).get(side))
                end = self.sockets.get(_int(one.get("socket", -1)))
                if end is None:
                    continue
                if isinstance(control, str) and self.protocol == "tcp":
                    end.control = control[:16]
                if side == "receiver" and end.sends is not False and one.get("bytes") is not None:
                    end.total_bytes = _int(one["bytes"])
                if side == "udp" and end.sends is not False and one.get("packets"):
                    self._lost_of_udp(end, one)

    def _lost_of_udp(self, end: Seen, one: Doc) -> None:
        """The receiver's count, as the client's report ends with it."""
        lost, packets = max(_int(one.get("lost_packets", 0)), 0), _int(one["packets"])
        row: dict[str, Value] = {"lost_packets": lost, "received_packets": max(packets - lost, 0)}
        end_ns = self.unix_ns + round(_float(one.get("end", 0)) * 1e9)
        self.told.add("udp", end, end_ns, row)

    def server(self, data: Doc) -> None:
        """The server's whole report, which the client asked for."""
        other = _Test(self.told, self.error)
        tool = self.told.tool
        _whole(other, _dict(data), server_of=self)
        self.told.tool = tool or self.told.tool
        self.has_receivers |= other.has_receivers

    def done(self) -> _Test:
        """Say what is not known."""
        if self.protocol == "tcp":
            note = NO_RETRANSMITS if self.has_receivers else CLIENT_ONLY
            if note not in self.told.not_told:
                self.told.not_told.append(note)
        return self


def _whole(test: _Test, doc: Doc, *, server_of: _Test | None = None) -> None:
    if doc.get("error"):
        test.told.skip(f"{ERROR}: {str(doc['error'])[:200]}")
    if "start" in doc:
        test.start(doc["start"], server_of=server_of)
    for interval in _list(doc.get("intervals")):
        test.interval(interval)
    test.end(doc.get("end") or {})
    if doc.get("server_output_json"):
        test.server(doc["server_output_json"])


def _documents(told: Told, file: BinaryIO) -> Iterator[_Test]:
    """Each document of a file; a server writes one after the other."""
    decoder = json.JSONDecoder()
    begin, left, more = 0, "", True
    while True:
        while more and len(left) < DOCUMENT_BYTES:
            if not (block := file.read(1 << 20)):
                more = False
                break
            left += block.decode("latin-1")  # a character is a byte
        stripped = left.lstrip()
        begin += len(left) - len(stripped)
        left = stripped
        if not left:
            return
        where = f"byte {begin}"
        try:
            doc, size = decoder.raw_decode(left)
        except (json.JSONDecodeError, RecursionError) as error:
            at = begin + getattr(error, "pos", 0)
            if more:
                raise told.malformed(
                    where, f"a report has more than {DOCUMENT_BYTES} bytes", _ADVICE
                ) from None
            raise told.malformed(
                f"byte {at}", f"the report is cut off, or no JSON: {getattr(error, 'msg', error)}", _ADVICE
            ) from None
        yield _read_one(told, where, doc)
        begin, left = begin + size, left[size:]


def _read_one(told: Told, where: str, doc: Any) -> _Test:
    def error(found: str) -> Malformed:
        return told.malformed(where, found, "It is no report of iperf3 --json")

    test = _Test(told, error)
    _guarded(error, lambda: _whole(test, _dict(doc)))
    return test.done()


def _guarded(error: Callable[[str], Malformed], act: Callable[[], None]) -> None:
    """Run, and tell of a value that is not as iperf3 writes it."""
    try:
        act()
    except Malformed:
        raise
    except (ValueError, TypeError, OverflowError) as wrong:
        raise error(str(wrong)) from None


def _streamed(told: Told, file: BinaryIO) -> Iterator[_Test]:
    """The tests of a stream of events, a line each."""
    test: _Test | None = None
    repeated = False  # --json-stream-full-output tells all of a test once more, as one document
    for number, line in lines(file, told.path):
        if line == ("}" if repeated else "{"):
            repeated = not repeated
            continue
        if repeated or not line.strip():
            continue

        def error(found: str, number: int = number) -> Malformed:
            return told.malformed(f"line {number}", found, "It is no event of iperf3 --json-stream")

        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            raise error("the line is cut off, or no JSON") from None
        if not isinstance(event, dict):
            raise error("it is no object")
        name, data = event.get("event"), event.get("data")
        if name == "start":
            if test is not None:
                yield test.done()
            test = _Test(told, error)
        if test is None:
            if name == "error":
                told.skip(f"{ERROR}: {str(data)[:200]}")
            elif name != "end":  # which follows an error, too
                raise error("there is no start before it")
            continue
        test.error = error
        _guarded(error, lambda test=test, name=name, data=data: _event(test, name, data))  # type: ignore[misc]
    if test is not None:
        yield test.done()


def _event(test: _Test, name: object, data: Any) -> None:
    match name:
        case "start":
            test.start(data)
        case "interval":
            test.interval(data)
        case "end":
            test.end(data)
        case "server_output_json":
            test.server(data)
        case "error":
            test.told.skip(f"{ERROR}: {str(data)[:200]}")
        case _:
            test.told.skip(f"events {str(name)[:40]}")


def _dict(value: Any) -> Doc:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:40]!r} is no object")
    return value


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:40]!r} is no list")
    return value


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LONGEST_S:
        raise ValueError(f"{str(value)[:40]!r} is no time")
    return float(value)
