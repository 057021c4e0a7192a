"""Archives of M-Lab's tcp-info: JSON lines with messages of inet_diag, as the kernel gave them.

The format is that of ``ArchivalRecord`` in github.com/m-lab/tcp-info/netlink; the messages are
``struct inet_diag_msg`` (uapi/linux/inet_diag.h) and, of its attributes, ``struct tcp_info``.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from dumbbell.read.lines import lines, opened
from dumbbell.read.model import MOST, Socket, Told, Value

KIND = "mlab"
NOT_TOLD = (
    "tcp-info of M-Lab writes a row when a counter has changed, not at regular times, in milliseconds.",
)
_ADVICE = "Give the lines of an archive as tcp-info wrote them (unpack .zst with zstd -d)"
_BEGIN = re.compile(rb'^\s*\{\s*"(Timestamp|Metadata|RawIDM)"\s*:')
_MESSAGE_BYTES = 72
_INFO, _CONTROL, _MEMORY, _BBR = 2, 4, 7, 16  # INET_DIAG_INFO, _CONG, _SKMEMINFO, _BBRINFO
_UNSET = {"pacing_rate_Bps", "max_pacing_rate_Bps", "min_rtt_us"}  # all bits are set until there is a value

_U32 = (
    *("rto_us", "ato_us", "snd_mss", "rcv_mss", "unacked", "sacked", "lost", "retrans", "_"),
    *("last_data_sent_ms", "_", "last_data_recv_ms", "last_ack_recv_ms", "pmtu", "rcv_ssthresh"),
    *("srtt_us", "rttvar_us", "snd_ssthresh", "snd_cwnd", "advmss", "reordering", "rcv_rtt_us"),
    *("rcv_space", "total_retrans"),
)
_U64 = ("pacing_rate_Bps", "max_pacing_rate_Bps", "bytes_acked", "bytes_received")
# Name, offset, and width in bytes; kernels know the more of them, the newer they are.
_FIELDS = [
    *(("ca_state", 1, 1), ("retransmits", 2, 1), ("backoff", 4, 1)),
    *((name, 8 + 4 * at, 4) for at, name in enumerate(_U32) if name != "_"),
    *((name, 104 + 8 * at, 8) for at, name in enumerate(_U64)),
    *(("segs_out", 136, 4), ("segs_in", 140, 4), ("notsent_bytes", 144, 4), ("min_rtt_us", 148, 4)),
    *(("data_segs_in", 152, 4), ("data_segs_out", 156, 4), ("delivery_rate_Bps", 160, 8)),
    *(("busy_time_us", 168, 8), ("rwnd_limited_us", 176, 8), ("sndbuf_limited_us", 184, 8)),
    *(("delivered", 192, 4), ("delivered_ce", 196, 4), ("bytes_sent", 200, 8), ("bytes_retrans", 208, 8)),
    *(("dsack_dups", 216, 4), ("reord_seen", 220, 4), ("rcv_ooopack", 224, 4), ("snd_wnd", 228, 4)),
    *(("rcv_wnd", 232, 4), ("rehash", 236, 4), ("total_rto", 240, 2), ("total_rto_recoveries", 242, 2)),
    ("total_rto_time_ms", 244, 4),
]
_SKMEM = ("rmem_alloc", "rcvbuf", "wmem_alloc", "sndbuf", "fwd_alloc", "wmem_queued", "optmem", "backlog")


def is_kind(head: bytes) -> bool:
    """Whether a file begins like an archive of tcp-info."""
    return _BEGIN.match(head) is not None


def read(told: Told) -> None:
    """Fill in all connections; :class:`Malformed` if a line is damaged, or if none has TCP_INFO."""
    told.not_told += NOT_TOLD
    number = rows = 0
    with opened(told.path) as file:
        for number, line in lines(file, told.path):
            if line.strip():
                try:
                    rows += _row(told, json.loads(line))
                except (ValueError, TypeError, RecursionError) as error:
                    raise told.malformed(f"line {number}", f"{error}"[:200], _ADVICE) from None
    if not rows:
        raise told.malformed(f"line {number}", "no record has TCP_INFO", _ADVICE)


def _row(told: Told, record: Any) -> bool:
    if not isinstance(record, dict):
        raise ValueError("it is no object")
    message, attributes = record.get("RawIDM"), record.get("Attributes") or []
    if message is None or len(attributes) <= _INFO or attributes[_INFO] is None:
        told.skip("records without TCP_INFO")
        return False
    raw = [None if each is None else _bytes(each) for each in attributes]
    end = told.seen(_socket(_bytes(message)))
    values = tcp_info(raw[_INFO] or b"")
    if len(raw) > _CONTROL and (name := raw[_CONTROL]):
        values["congestion_control"] = name.rstrip(b"\0").decode("ascii", errors="replace")
    if len(raw) > _MEMORY and (memory := raw[_MEMORY]) and len(memory) >= 4 * len(_SKMEM):
        sizes = struct.unpack(f"<{len(_SKMEM)}I", memory[: 4 * len(_SKMEM)])
        values |= {f"skmem_{name}_bytes": size for name, size in zip(_SKMEM, sizes, strict=True)}
    if len(raw) > _BBR and (bbr := raw[_BBR]) and len(bbr) >= 12:  # noqa: PLR2004
        values |= dict(zip(("bbr_bw_Bps", "bbr_min_rtt_us"), struct.unpack("<QI", bbr[:12]), strict=True))
    told.add("tcp_info", end, _unix_ns(record.get("Timestamp")), values)
    return True


def tcp_info(raw: bytes) -> dict[str, Value]:
    """``struct tcp_info`` of a little-endian host, as far as its kernel filled it. ValueError: too short."""
    if len(raw) < 104:  # noqa: PLR2004  what every kernel has
        raise ValueError(f"TCP_INFO has {len(raw)} bytes")
    values: dict[str, Value] = {"snd_wscale": raw[6] & 15, "rcv_wscale": raw[6] >> 4}
    values["delivery_rate_app_limited"] = raw[7] & 1
    for name, at, width in _FIELDS:
        if at + width <= len(raw):
            value = int.from_bytes(raw[at : at + width], "little")
            unset = name in _UNSET and value == (1 << 8 * width) - 1
            values[name] = None if unset or value > MOST else value
    return values


def _socket(message: bytes) -> Socket:
    if len(message) < _MESSAGE_BYTES:
        raise ValueError(f"RawIDM has {len(message)} bytes, and inet_diag_msg {_MESSAGE_BYTES}")
    v4 = message[0] == 2  # noqa: PLR2004  AF_INET
    ends = [
        str(IPv4Address(message[at : at + 4]) if v4 else IPv6Address(message[at : at + 16])) for at in (8, 24)
    ]
    src_port, dst_port = struct.unpack(">HH", message[4:8])
    return Socket.of(ends[0], src_port, ends[1], dst_port)


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{str(text)[:40]!r} is no base64") from None


def _unix_ns(text: Any) -> int:
    at = datetime.fromisoformat(str(text))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
