"""Logs of ``ss -tin``: its output again and again, with a time before each, or before each line."""

from __future__ import annotations

import re

from dumbbell.read.clock import Clock
from dumbbell.read.lines import lines, opened
from dumbbell.read.model import Malformed, Seen, Socket, Told, Value

KIND = "ss"
HOW = "while sleep 0.1; do date +%s.%N; ss -tinm; done > FILE"
NOT_TOLD = (
    "ss does not tell ca_state: that losses reduced a window is known from its retransmissions only.",
    "ss tells busy_time, rwnd_limited and sndbuf_limited in whole milliseconds.",
    "ss leaves out an ssthresh of 65535 segments or more: it counts as infinite.",
)

_STATES = (
    "ESTAB|SYN-SENT|SYN-RECV|FIN-WAIT-1|FIN-WAIT-2|TIME-WAIT|UNCONN|CLOSE-WAIT|LAST-ACK|LISTEN|CLOSING|CLOSED"
)
_HEAD = re.compile(r"(Netid +)?State +Recv-Q +Send-Q")
_SOCKET = re.compile(
    rf"(?:(?P<net>tcp|mptcp|udp|sctp|dccp) +)?(?P<state>{_STATES}) +(?P<recv>\d+) +(?P<send>\d+) +"
    r"(?P<local>\S+):(?P<lport>[^\s:]+) +(?P<remote>\S+):(?P<rport>[^\s:]+)(?P<rest>.*)"
)
_OTHER = re.compile(rf"(?:nl|raw|tipc|xdp|icmp6?|[upv]_[a-z]+) +(?:{_STATES}) ")  # of ss -a
_WITHOUT_INFO = ("LISTEN", "TIME-WAIT", "UNCONN", "SYN-RECV", "CLOSED")
# A word of the line about the connection: NAME:VALUE, NAME:(...), or a word alone.
_WORD = re.compile(r"([a-z_A-Z0-9]+):(\([^()]*\)|\S*)|(\S+)")
_INFO = re.compile(r"\b(rto|rtt|cwnd|mss|skmem|timer|uid|ino|cgroup|users):")

_COUNTS = {
    **{name: name for name in ("pmtu", "advmss", "bytes_sent", "bytes_retrans", "bytes_acked")},
    **{name: name for name in ("bytes_received", "segs_out", "segs_in", "data_segs_out", "data_segs_in")},
    **{name: name for name in ("delivered", "delivered_ce", "unacked", "sacked", "lost", "dsack_dups")},
    **{name: name for name in ("reordering", "reord_seen", "rcv_space", "rcv_ssthresh", "rcv_ooopack")},
    **{name: name for name in ("snd_wnd", "rcv_wnd", "rehash", "backoff", "total_rto")},
    **{"total_rto_recoveries": "total_rto_recoveries", "total_rto_time": "total_rto_time_ms"},
    **{"mss": "snd_mss", "rcvmss": "rcv_mss", "cwnd": "snd_cwnd", "ssthresh": "snd_ssthresh"},
    **{"notsent": "notsent_bytes", "lastsnd": "last_data_sent_ms", "lastrcv": "last_data_recv_ms"},
    "lastack": "last_ack_recv_ms",
}
_MS = {"rto": "rto_us", "ato": "ato_us", "minrtt": "min_rtt_us", "rcv_rtt": "rcv_rtt_us"}
_BUSY = {"busy": "busy_time_us", "rwnd_limited": "rwnd_limited_us", "sndbuf_limited": "sndbuf_limited_us"}
_RATES = {"pacing_rate": "pacing_rate_Bps", "delivery_rate": "delivery_rate_Bps"}
_FLAGS = ("ts", "sack", "ecn", "ecnseen", "fastopen", "qack", "bidir", "send", "<->", "-->", "<--", "---")
_SKMEM = {
    **{"r": "rmem_alloc_bytes", "rb": "rcvbuf_bytes", "t": "wmem_alloc_bytes", "tb": "sndbuf_bytes"},
    **{"f": "fwd_alloc_bytes", "w": "wmem_queued_bytes", "o": "optmem_bytes", "bl": "backlog_bytes"},
    "d": "drops",
}
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = re.compile(r"([0-9.]+(?:e\+?\d+)?)([KMGT]?)bps")
_CONTROL = re.compile(r"[a-z][a-z0-9_-]{0,14}")
# Since ss has one of these, it has the others, and leaves out what is 0.
_SINCE_BUSY = (
    *("rwnd_limited_us", "sndbuf_limited_us", "unacked", "sacked", "lost", "retrans"),
    *("total_retrans", "notsent_bytes", "bytes_acked", "bytes_received", "data_segs_out", "data_segs_in"),
)
_SINCE_SENT = ("bytes_retrans", "delivered_ce", "dsack_dups", "reord_seen")
_DIGITS = 20  # of a counter of 64 bits
INFINITE_SSTHRESH = 2**31 - 1


def is_kind(head: bytes) -> bool:
    """Whether a file begins like a log of ss."""
    text = head.decode(errors="replace")
    return re.search(rf"(^|\s)({_STATES}) +\d+ +\d+ +\S+:\S+ +\S+:\S+", text) is not None or (
        _HEAD.search(text) is not None
    )


def read(told: Told) -> None:
    """Fill in all sockets with information of TCP; :class:`Malformed` if the file has none."""
    told.not_told += NOT_TOLD
    with opened(told.path) as file:
        _Log(told).read(lines(file, told.path))


class _Log:
    """A log as it is read: the last time, and the socket whose lines come."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.clock = Clock()
        self.unix_ns: int | None = None
        self.times = 0  # how many were read
        self.used = False  # whether an output of ss had the last time
        self.outputs = 0
        self.socket: tuple[int, Socket, str] | None = None  # with its line's number
        self.values: dict[str, Value] = {}
        self.rows = 0
        self.last: dict[Socket, tuple[Seen, int]] = {}  # with the number of its time

    def read(self, numbered: object) -> None:
        """All lines."""
        number = 0
        try:
            for number, line in numbered:  # type: ignore[attr-defined]
                self._line(number, line)
            self._end()
        except Malformed:
            raise
        except ValueError as error:
            raise self._wrong(number, str(error)) from None
        if not self.rows:
            raise self._wrong(max(number, 1), "no socket has a line about TCP (rto, rtt, cwnd)")
        self.told.dated = self.clock.dated and self.unix_ns is not None

    def _wrong(self, number: int, found: str) -> Malformed:
        return self.told.malformed(f"line {number}", found, f"Write a log with: {HOW}")

    def _line(self, number: int, line: str) -> None:
        rest = line
        if (timed := self.clock.read(line)) is not None:
            unix_ns, rest = timed
            if not rest.strip():
                self._end()
            # A time of each line: those of one socket have the first.
            if (
                not rest.strip()
                or self.unix_ns is None
                or _SOCKET.match(rest.strip())
                or _HEAD.match(rest.strip())
            ):
                self._end()
                self.unix_ns, self.used, self.times = unix_ns, False, self.times + 1
        text = rest.strip()
        if not text:
            return
        if _HEAD.match(text):
            self._end()
            self.outputs += 1
            if self.outputs > 1 and self.used:
                raise self._wrong(number, "ss wrote again, and there is no time in between")
            self.used = True
        elif match := _SOCKET.match(text):
            self._end()
            self._begin(number, match)
        elif _OTHER.match(text):
            self._end()
            self.told.skip("sockets that are not TCP")
        elif self.socket is not None and (_INFO.search(text) or _CONTROL.match(text)):
            self.values |= words(text)
        else:
            self.told.skip("lines that are not of ss")

    def _begin(self, number: int, match: re.Match[str]) -> None:
        if match["state"] in _WITHOUT_INFO or match["net"] not in (None, "tcp"):
            self.told.skip("sockets that are not connected")
            return
        ends = []
        for end in ("l", "r"):
            address, port = match["local" if end == "l" else "remote"], match[f"{end}port"]
            if not port.isascii() or not port.isdecimal():
                raise self._wrong(number, f"the port {port!r} is a name, which -n prevents")
            ends += [_address(address), int(port)]
        try:
            socket = Socket.of(*ends)  # type: ignore[arg-type]
        except ValueError as error:
            raise self._wrong(number, str(error)) from None
        self.socket = number, socket, match["state"]
        self.values = {"rqueue_bytes": number_of(match["recv"]), "wqueue_bytes": number_of(match["send"])}
        if match["rest"].strip():
            self.values |= words(match["rest"])

    def _end(self) -> None:
        """Add the row of the socket whose lines have ended."""
        if self.socket is None:
            return
        number, socket, _ = self.socket
        values, self.socket = self.values, None
        if not {"rto_us", "srtt_us", "snd_cwnd"} & values.keys():
            self.told.skip("sockets without a line about TCP")
            return
        before, at = self.last.get(socket, (None, 0))
        if before is not None and at == self.times:
            raise self._wrong(number, f"{_text(socket)} comes twice without a time in between")
        if before is not None and before.last_ns == self.unix_ns:
            self.told.skip("samples with the time of the one before: write fractions of seconds")
            return
        if "busy_time_us" in values:
            values = {**dict.fromkeys(_SINCE_BUSY, 0), **values}
        if "bytes_sent" in values:
            values = {**dict.fromkeys(_SINCE_SENT, 0), **values}
        values.setdefault("snd_ssthresh", INFINITE_SSTHRESH)
        end = self.told.add("tcp_info", before or self.told.seen(socket), self.unix_ns or 0, values)
        self.last[socket] = end, self.times
        self.rows += 1


def words(text: str) -> dict[str, Value]:
    """What one line tells, by the names of ``tcp_info``. ValueError if a value is not as ss writes it."""
    values: dict[str, Value] = {}
    rate = ""  # the name before a rate
    for match in _WORD.finditer(text):
        name, value, alone = match.groups()
        try:
            if alone is None:
                _named(name, value, values)
            elif rate:
                values |= _rates(rate, alone)
            elif alone == "app_limited":
                values["delivery_rate_app_limited"] = 1
            elif (
                alone not in {*_FLAGS, *_RATES}
                and _CONTROL.fullmatch(alone)
                and not values.keys() & {"rto_us", "srtt_us", "snd_mss"}
            ):
                values["congestion_control"] = alone
        except (ValueError, OverflowError):
            raise ValueError(f"{match[0]!r} is not as ss writes it") from None
        rate = alone if alone in _RATES else ""
    return values


def _named(name: str, value: str, values: dict[str, Value]) -> None:
    if name in _COUNTS:
        values[_COUNTS[name]] = number_of(value)
    elif name in _MS:
        values[_MS[name]] = _us(value.partition("/")[0])
    elif name in _BUSY:
        ms, found, _ = value.partition("ms")
        if not found:
            raise ValueError
        values[_BUSY[name]] = 1000 * number_of(ms)
    elif name == "rtt":
        rtt, _, var = value.partition("/")
        values |= {"srtt_us": _us(rtt), "rttvar_us": _us(var) if var else None}
    elif name == "retrans":
        now, _, total = value.partition("/")
        values |= {"retrans": number_of(now), "total_retrans": number_of(total)}
    elif name == "wscale":
        sent, _, received = value.partition(",")
        values |= {"snd_wscale": number_of(sent), "rcv_wscale": number_of(received)}
    elif name == "skmem":
        values |= _skmem(value)
    elif name == "bbr":
        told = dict(part.partition(":")[::2] for part in value.strip("()").split(","))
        if "bw" in told:
            values["bbr_bw_Bps"] = _Bps(told["bw"])
        if "mrtt" in told:
            values["bbr_min_rtt_us"] = _us(told["mrtt"])


def _skmem(value: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for part in value.strip("()").split(","):
        letters = part.rstrip("0123456789")
        if letters in _SKMEM:
            found[f"skmem_{_SKMEM[letters]}"] = number_of(part[len(letters) :])
    return found


def _rates(name: str, text: str) -> dict[str, Value]:
    rate, _, largest = text.partition("/")
    found: dict[str, Value] = {_RATES[name]: _Bps(rate)}
    if largest and name == "pacing_rate":
        found["max_pacing_rate_Bps"] = _Bps(largest)
    return found


def number_of(text: str) -> int:
    """A count; ValueError if it is none, or longer than a counter of 64 bits."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        raise ValueError(f"{text!r} is no count")
    return int(text)


def _us(ms: str) -> int:
    found = round(1000 * float(ms))
    if found < 0:
        raise ValueError
    return found


def _Bps(text: str) -> int:
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError
    return round(float(match[1]) * _SCALE[match[2]] / 8)


def _address(text: str) -> str:
    """Without brackets and the interface: ``[fe80::1]%eth0``."""
    return text.partition("%")[0].strip("[]")


def _text(socket: Socket) -> str:
    return f"{socket.local}:{socket.local_port} to {socket.remote}:{socket.remote_port}"
