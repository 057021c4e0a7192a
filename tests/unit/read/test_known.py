"""Every file of the fixtures, compared with what other programs say of it (`known.csv`)."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from dumbbell.read.directory import make, told
from read.mutate import FILES

with (FILES / "known.csv").open() as file:
    KNOWN = {row["file"]: row for row in csv.DictReader(file)}
LEAST = 10  # of each kind of file that tools of today write
KINDS = {
    "capture": [name for name in KNOWN if ".pcap" in name],
    "iperf3": [name for name in KNOWN if name.startswith("iperf3") and name.endswith(".json")],
    "iperf3 as events": [name for name in KNOWN if name.startswith("iperf3") and name.endswith(".jsonl")],
    "ss": [name for name in KNOWN if name.startswith("ss-")],
    "M-Lab": [name for name in KNOWN if name.startswith("mlab-")],
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_there_are_ten_of_each_kind(kind: str) -> None:
    assert len(KINDS[kind]) >= LEAST


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_file_tells_what_other_programs_say(name: str, tmp_path: Path) -> None:
    known, found = KNOWN[name], told(FILES / name, tmp_path)
    assert (found.kind, found.tool) == (known["kind"], known["tool"])
    ends = {end.socket for end in found.ends.values()}
    if known["connections"]:
        assert len({min(socket, socket.peer) for socket in ends}) == int(known["connections"])
    rows = found.table("tcp_info").collect()
    match known["kind"]:
        case "capture":
            most = rows.sort("bytes_sent").row(-1, named=True)
            (end,) = [end for end in found.ends.values() if end.number == most["number"]]
            assert end.socket.local == known["sender"]
            assert most["bytes_sent"] == int(known["bytes"])
        case "ss" | "mlab":
            end = max(found.ends.values(), key=lambda end: end.sent_bytes)
            assert end.socket.local == known["sender"]
            assert not known["bytes"] or end.sent_bytes == int(known["bytes"])
        case "iperf3" if known["bytes"]:
            assert found.table("intervals").collect()["bytes"].sum() == int(known["bytes"])
    if known["segments"]:
        last = rows.filter(number=end.number).row(-1, named=True)
        assert last["segs_out"] + last["segs_in"] == int(known["segments"])


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_file_makes_a_directory(name: str, tmp_path: Path) -> None:
    flows = pl.read_parquet(make([FILES / name], tmp_path) / "flows.parquet")
    assert flows.height
    assert set(flows["kind"]) <= {"read_tcp", "read_udp"}
