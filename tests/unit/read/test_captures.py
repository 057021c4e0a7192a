"""Captures: of several links, and compared with what the kernel of the sender counted."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
import pytest

from dumbbell.read.capture import FAR
from dumbbell.read.directory import told
from dumbbell.read.model import Told
from read.files import made, refused
from read.mutate import FILES


def sender(found: Told) -> pl.DataFrame:
    """The rows of the end that sent most, with all of its connections."""
    most = max(found.ends.values(), key=lambda end: end.sent_bytes)
    return found.table("tcp_info").collect().filter(number=most.number)


def last(rows: pl.DataFrame) -> dict[str, int]:
    return rows.row(-1, named=True)


def test_retransmissions_and_rtt_are_those_of_the_kernel(tmp_path: Path) -> None:
    kernel = told(FILES / "capture-ss.txt", tmp_path)
    captured = told(FILES / "raw.pcap", tmp_path)
    counted, seen = last(sender(kernel)), last(sender(captured))
    assert seen["total_retrans"] >= counted["total_retrans"] > 0
    assert seen["snd_mss"] == counted["snd_mss"]
    assert seen["min_rtt_us"] == pytest.approx(counted["min_rtt_us"], rel=0.1)


@pytest.mark.parametrize("name", ["any.pcap", "raw.pcapng"])
def test_other_links_and_pcapng_tell_the_same(name: str, tmp_path: Path) -> None:
    one, other = (last(sender(told(FILES / path, tmp_path))) for path in ("raw.pcap", name))
    for column in ("data_segs_out", "bytes_sent", "bytes_acked", "total_retrans", "snd_wnd", "unacked"):
        assert one[column] == other[column], column


def test_far_from_the_sender_there_is_no_rtt(tmp_path: Path) -> None:
    found = told(FILES / "receiver.pcap", tmp_path)
    assert FAR in found.not_told
    rows = sender(found)
    assert rows["srtt_us"].null_count() == rows["busy_time_us"].null_count() == rows.height
    assert last(rows)["bytes_acked"] > 0


@pytest.mark.parametrize("name", ["lo6.pcap"])
def test_loopback_over_ethernet(name: str, tmp_path: Path) -> None:
    _, flows = made(tmp_path, name)
    assert max(flows["goodput_bps"] * flows["duration_ns"] / 8e9) >= 200 * 1024


def test_limits_are_known_as_far_as_packets_tell(tmp_path: Path) -> None:
    _, flows = made(tmp_path, "raw.pcap")
    flow = max(flows.rows(named=True), key=lambda flow: flow["goodput_bps"] * flow["duration_ns"])
    known = ("app_limited", "rwnd_limited", "limit_unknown")
    assert sum(flow[name] for name in known) == pytest.approx(1)
    assert flow["cwnd_limited"] == flow["sndbuf_limited"] == 0


def test_what_is_wrong_is_told_with_its_offset(tmp_path: Path) -> None:
    content = (FILES / "raw.pcap").read_bytes()
    assert refused(content[:-3], tmp_path).startswith("byte ")
    assert "the file ends here, within a packet or block" in refused(content[:-3], tmp_path)
    long = content[:32] + struct.pack("<I", 1 << 30) + content[36:]
    assert refused(long, tmp_path).startswith(f"byte 24: the packet would have {1 << 30} bytes.")
    other = content[:20] + struct.pack("<I", 127) + content[24:]
    assert refused(other, tmp_path).startswith("byte 20: link type 127 is not understood.")
    assert refused(content[:24], tmp_path).startswith("its end: none of its 0 packets has data of TCP.")
