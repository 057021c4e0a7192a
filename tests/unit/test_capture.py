"""Captures, read in blocks: against packets that another library made, and against tcpdump's own words."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from captures import Segment, frame, stamps, tagged, write
from dpkt.ethernet import Ethernet
from hypothesis import given, settings
from hypothesis import strategies as st

from dumbbell.ingest.capture import SEGMENTS, Capture

U16, U32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
OPTIONS = {
    "none": b"",
    "as Linux has them": stamps(4_294_967_295, 7),
    "behind others": b"\x02\x04\x05\xb4\x04\x02\x08\x0a"
    + bytes([1, 2, 3, 4, 5, 6, 7, 8])
    + b"\x01\x03\x03\x07",
    "before a SACK": stamps(9, 8) + b"\x01\x01\x05\x0a" + bytes(range(8)),
    "behind the end": b"\x00\x00\x08\x0a" + bytes(8),
    "of no size": b"\x05\x00\x08\x0a" + bytes(8),
    "cut": b"\x01\x01\x01\x08",
}
STAMPS = {
    "as Linux has them": (2**32 - 1, 7),
    "behind others": (0x01020304, 0x05060708),
    "before a SACK": (9, 8),
}


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    v6 = draw(st.booleans())
    addresses = ["2001:db8::1", "2001:db8:0:1::ffff"] if v6 else ["198.18.1.11", "255.255.255.255"]
    src, dst = draw(st.permutations(addresses))
    return Segment(
        unix_ns=draw(st.integers(0, 2**32 * 10**9 - 1)),
        src=src,
        dst=dst,
        src_port=draw(U16),
        dst_port=draw(U16),
        seq=draw(U32),
        ack=draw(U32),
        payload=draw(st.integers(0, 1448)),
        flags=draw(st.integers(0, 255)),
        window=draw(U16),
        options=draw(st.sampled_from(list(OPTIONS.values()))),
    )


def stamped(segment: Segment) -> tuple[int | None, int | None]:
    """Timestamp and echo."""
    found = (STAMPS.get(name) for name, options in OPTIONS.items() if options == segment.options)
    return next(found, None) or (None, None)


def dsack(segment: Segment) -> bool:
    """The only block with both edges begins at 66051."""
    return segment.options == OPTIONS["before a SACK"] and (66051 - segment.ack) % 2**32 >= 2**31


@pytest.mark.parametrize(
    ("blocks", "twice"),
    [
        ((500, 600), True),
        ((1100, 1200), False),
        ((2**32 - 5, 7), True),
        ((1100, 1200, 1100, 1300), True),
        ((1100, 1200, 1000, 1200), True),
        ((1100, 1200, 1150, 1300), False),
        ((1100, 1200, 3000, 4000), False),
    ],
)
def test_data_that_came_twice_is_told_by_the_first_block(
    tmp_path: Path, blocks: tuple[int, ...], twice: bool
) -> None:
    option = bytes([1, 1, 5, 2 + 4 * len(blocks)]) + b"".join(n.to_bytes(4, "big") for n in blocks)
    segment = Segment(0, "10.0.0.1", 1, "10.0.0.2", 2, 3, 1000, options=stamps(5) + option)
    (found,) = Capture.open(write(tmp_path / "x.pcap", [(0, frame(segment))])).segments()
    assert found.select("tsval", "dsack").rows() == [(5, twice)]


@settings(max_examples=60, deadline=None)
@given(st.lists(segments(), max_size=12), st.booleans(), st.booleans(), st.integers(40, 600))
def test_every_field_is_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[Segment],
    nano: bool,
    big_endian: bool,
    block_bytes: int,
) -> None:
    path = tmp_path_factory.mktemp("capture") / "x.pcap"
    frames = [(s.unix_ns, tagged(frame(s)) if i % 2 else frame(s)) for i, s in enumerate(written)]
    write(path, frames, nano=nano, big_endian=big_endian)
    found = pl.concat([pl.DataFrame(schema=SEGMENTS), *Capture.open(path).segments(block_bytes)])
    tick = 1 if nano else 1000
    assert found.drop("at").rows() == [
        (
            *(s.unix_ns // tick * tick, s.src, s.src_port, s.dst, s.dst_port),
            *(s.seq, s.ack, s.flags, s.payload, *stamped(s), dsack(s)),
        )
        for s in written
    ]


def test_what_is_no_segment_is_left_out(tmp_path: Path) -> None:
    segment = Segment(0, "10.0.0.1", 1, "10.0.0.2", 2, 3, 4, 1448, options=stamps(5))
    whole = frame(segment)
    fragment = bytearray(whole)
    fragment[14 + 6 : 14 + 8] = b"\x00\x10"
    udp = bytearray(whole)
    udp[14 + 9] = 17
    arp = bytes(Ethernet(type=0x0806, data=bytes(28)))
    others = [(0, bytes(fragment)), (0, bytes(udp)), (0, arp), (0, b""), (0, tagged(tagged(whole)))]
    path = write(tmp_path / "x.pcap", [*others, (0, whole), *others])
    (found,) = Capture.open(path).segments()
    assert found.select("seq", "payload_bytes", "tsval").rows() == [(3, 1448, 5)]


@pytest.mark.parametrize(
    ("snap", "expected"), [(66, [(1448, 5)]), (65, [(1448, None)]), (54, [(1448, None)]), (53, []), (20, [])]
)
def test_of_a_packet_cut_short_is_known_what_is_left(
    tmp_path: Path, snap: int, expected: list[tuple[int, int | None]]
) -> None:
    segment = Segment(0, "10.0.0.1", 1, "10.0.0.2", 2, 3, 4, 1448, options=stamps(5))
    path = write(tmp_path / "x.pcap", [(0, frame(segment))] * 2, snap=snap)
    (found,) = Capture.open(path).segments()
    assert found.select("payload_bytes", "tsval").rows() == expected * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no capture as tcpdump -w writes it: it begins with nothing"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "it begins with 0a 0d 0d 0a"),
        (b"\xd4\xc3\xb2\xa1" + bytes(16) + b"\x71\x00\x00\x00", "of link type 113; only Ethernet, 1,"),
    ],
)
def test_what_is_no_capture_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.pcap").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        Capture.open(tmp_path / "x.pcap")


def test_a_capture_that_is_broken_is_told_from_a_whole_one(tmp_path: Path) -> None:
    segment = Segment(0, "10.0.0.1", 1, "10.0.0.2", 2, 3, 4)
    path = write(tmp_path / "x.pcap", [(0, frame(segment))] * 2)
    content = path.read_bytes()
    for cut in (1, 54, 60):
        path.write_bytes(content[:-cut])
        with pytest.raises(ValueError, match="ends within a packet, at 94"):
            list(Capture.open(path).segments())
    path.write_bytes(content[:94] + b"\xff" * 16 + content[110:])
    with pytest.raises(ValueError, match="at 94 is no packet: it would have 4294967295 bytes"):
        list(Capture.open(path).segments())


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not there")
@pytest.mark.parametrize("nano", [True, False])
def test_the_words_are_tcpdumps(tmp_path: Path, nano: bool) -> None:
    common = (1342187058_274410_123, "192.168.135.5", 43287, "192.168.134.9", 5678, 482147033, 2987578558)
    v6 = (1, "2001:db8::1", 1, "2001:db8:0:1::ffff", 65535, 2**32 - 10, 9)
    syn = b"\x02\x04\x05\xb4\x04\x02\x08\x0a" + bytes(8) + b"\x01\x03\x03\x07"
    sack = stamps(1, 2) + b"\x01\x01\x05\x12" + b"".join(n.to_bytes(4, "big") for n in (10, 20, 30, 40))
    written = [
        Segment(*common, 1448, options=stamps(68581250, 48164441)),
        Segment(*v6, 1448, options=stamps(2**32 - 1)),
        Segment(*v6, 0, options=sack),
        Segment(*common, flags=0x02, options=syn),
        Segment(*common, flags=0x12, options=syn),
        Segment(*common, 100, flags=0x18),
        Segment(*common, flags=0x11),
        Segment(*common, flags=0x04),
        Segment(*common, 5, flags=0xD8),
    ]
    frames = [(s.unix_ns, frame(s)) for s in written]
    frames += [(s.unix_ns, tagged(whole)) for s, (_, whole) in zip(written, frames, strict=True)]
    path = write(tmp_path / "x.pcap", frames, nano=nano)
    precision = ["--time-stamp-precision", "nano"] if nano else []
    command = ["tcpdump", "-tt", "-n", "-S", *precision, "-r", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    capture = Capture.open(path)
    (found,) = capture.segments()
    assert [capture.text(at) for at in found["at"]] == said.splitlines()
