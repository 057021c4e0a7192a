"""Variables of web100 as CSV: names of RFC 4898, a column each, and a row for each time.

The kernel patch of web100 and RFC 4898 name alike, but not all units are the same: web100 counts
``SndLimTime*`` and ``Duration`` in microseconds, the RFC ``SndLimTime*`` in milliseconds. A file with
``Duration`` is of web100.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import BinaryIO

from dumbbell.read.clock import Clock
from dumbbell.read.lines import lines, opened
from dumbbell.read.model import Socket, Told, Value

KIND = "web100"
NOT_TOLD = (
    "web100 counts one time for what the sender itself held back (SndLimTimeSnd): its buffer counts as its "
    "application.",
    "web100 does not tell ca_state, nor what is in flight.",
)
NO_ADDRESSES = "The file has no addresses of connections (LocalAddress, LocalPort, RemAddress, RemPort)."
_ADVICE = "Write a line of names of RFC 4898, and below it a line of values for each time"
_PREFIX = re.compile(r"^tcpEStats(Perf|Path|Stack|App|Tune|ConnectId|Connect)?")
_SPELLED = {"RemoteAddress": "RemAddress", "RemotePort": "RemPort", "SndLimTimeSender": "SndLimTimeSnd",
            "LocalAddr": "LocalAddress", "RemAddr": "RemAddress", "OctetsOut": "DataOctetsOut",
            "BytesRetrans": "OctetsRetrans"}  # fmt: skip
_TIMES = ("time", "timestamp", "unix_time")
_SINCE = ("Duration", "ElapsedSecs")
_COUNTS = {
    **{
        "SegsOut": "segs_out",
        "DataSegsOut": "data_segs_out",
        "SegsIn": "segs_in",
        "DataSegsIn": "data_segs_in",
    },
    **{"DataOctetsOut": "bytes_sent", "OctetsRetrans": "bytes_retrans", "SegsRetrans": "total_retrans"},
    **{"ThruOctetsAcked": "bytes_acked", "ThruOctetsReceived": "bytes_received", "CurMSS": "snd_mss"},
    **{"CurRwinRcvd": "snd_wnd", "CurTimeoutCount": "backoff", "DSACKDups": "dsack_dups"},
    **{"CurAppWQueue": "notsent_bytes", "CurAppRQueue": "rqueue_bytes", "CurRwinSent": "rcv_wnd"},
}
_MS = {"SmoothedRTT": "srtt_us", "RTTVar": "rttvar_us", "MinRTT": "min_rtt_us", "CurRTO": "rto_us"}
_WINDOWS = {"CurCwnd": "snd_cwnd", "CurSsthresh": "snd_ssthresh"}  # bytes there, segments in tcp_info
_LIMITS = ("SndLimTimeRwin", "SndLimTimeCwnd")
_KNOWN = {*_COUNTS, *_MS, *_WINDOWS, *_LIMITS}
_LEAST = 3  # variables by which a file is known


def is_kind(head: bytes) -> bool:
    """Whether a file begins with names of RFC 4898."""
    first = head.splitlines()[0].decode(errors="replace")
    names = {_named(name) for name in re.split(r"[,;\t]", first)}
    return len(names & _KNOWN) >= _LEAST


def read(told: Told) -> None:
    """Fill in all connections; :class:`Malformed` if a value is none, or if there is no time."""
    told.not_told += NOT_TOLD
    with opened(told.path) as file:
        table = _records(told, file)
        _, first = next(table, (1, []))
        names = [_named(name) for name in first]
        repeated = sorted({name for name in names if name and names.count(name) > 1})
        if repeated:
            raise told.malformed("line 1", f"the column {repeated[0]} is there twice", _ADVICE)
        if not {*(name.lower() for name in names)} & {*_TIMES} and not {*names} & {*_SINCE}:
            raise told.malformed(
                "line 1", "no column has the time (time, timestamp, Duration, ElapsedSecs)", _ADVICE
            )
        number = 1
        clock, rows = Clock(), 0
        for number, values in table:
            if len(values) != len(names):
                raise told.malformed(
                    f"line {number}",
                    f"it has {len(values)} values, and the first line {len(names)} names",
                    _ADVICE,
                )
            try:
                _row(told, clock, dict(zip(names, values, strict=True)))
            except (ValueError, OverflowError) as error:
                raise told.malformed(f"line {number}", str(error), _ADVICE) from None
            rows += 1
        if not rows:
            raise told.malformed(f"line {number}", "there are no values", _ADVICE)


def _named(column: str) -> str:
    name = _PREFIX.sub("", column.strip().strip('"\ufeff'))
    name = name.removeprefix("HC") if name.removeprefix("HC") in _COUNTS else name
    return _SPELLED.get(name, name)


def _records(told: Told, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    separator = ""
    for number, line in lines(file, told.path):
        if not line.strip():
            continue
        separator = separator or max(",;\t", key=line.count)
        try:
            yield number, next(csv.reader([line], delimiter=separator, strict=True))
        except csv.Error as error:
            raise told.malformed(f"line {number}", str(error), _ADVICE) from None


def _row(told: Told, clock: Clock, row: dict[str, str]) -> None:
    address = [row.get(name, "").strip() for name in ("LocalAddress", "LocalPort", "RemAddress", "RemPort")]
    if all(address):
        socket = Socket.of(address[0], _count(address[1]), address[2], _count(address[3]))
    else:
        socket = Socket("local", 1, "remote", 1)
        if NO_ADDRESSES not in told.not_told:
            told.not_told.append(NO_ADDRESSES)
    values: dict[str, Value] = {}
    for names, scale in ((_COUNTS, 1), (_MS, 1000)):
        values |= {ours: round(scale * _number(row[name])) for name, ours in names.items() if row.get(name)}
    mss = values.get("snd_mss")
    if isinstance(mss, int) and mss > 0:
        values |= {ours: _count(row[name]) // mss for name, ours in _WINDOWS.items() if row.get(name)}
    if all(row.get(name) for name in _LIMITS):
        scale = 1 if row.get("Duration") else 1000
        rwin, cwnd = (scale * _count(row[name]) for name in _LIMITS)
        values |= {"rwnd_limited_us": rwin, "busy_time_us": rwin + cwnd, "sndbuf_limited_us": 0}
    told.add("tcp_info", told.seen(socket), _unix_ns(told, clock, row), values)


def _unix_ns(told: Told, clock: Clock, row: dict[str, str]) -> int:
    by_name = {name.lower(): value for name, value in row.items()}
    for name in _TIMES:
        if text := by_name.get(name, "").strip():
            if (found := clock.read(text)) is None or found[1].strip():
                raise ValueError(f"{text!r} is no time")
            told.dated = clock.dated
            return found[0]
    told.dated = False
    if duration := row.get("Duration"):
        return 1000 * _count(duration)
    seconds, us = row.get("ElapsedSecs", ""), row.get("ElapsedMicroSecs") or "0"
    return round(1e9 * _number(seconds)) + 1000 * (_count(us) % 10**6)


def _number(text: str) -> float:
    found = float(text)
    if not 0 <= found < 2**63 / 1000:
        raise ValueError(f"{text!r} is no value of a variable")
    return found


def _count(text: str) -> int:
    text = text.strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 18:  # noqa: PLR2004
        raise ValueError(f"{text!r} is no count")
    return int(text)
