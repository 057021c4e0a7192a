"""M-Lab's tcp-info, and variables of web100."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from dumbbell.analysis import LIMITS
from dumbbell.read.directory import told
from dumbbell.studies.limits import what_limited
from dumbbell.studies.source import Source
from read.files import made, refused
from read.mutate import FILES

WEB100 = "web100.csv"


def test_tcp_info_of_m_lab_is_that_of_the_kernel(tmp_path: Path) -> None:
    _, flows = made(tmp_path, "mlab.jsonl")
    assert set(flows["congestion_control"]) <= {"bbr", "cubic"}
    most = max(flows.rows(named=True), key=lambda flow: flow["goodput_bps"])
    assert sum(most[name] for name in LIMITS) == pytest.approx(1)
    assert most["limit_unknown"] < 0.1
    rows = told(FILES / "mlab.jsonl", tmp_path).table("tcp_info").collect()
    assert rows["snd_mss"].unique().to_list() == [1448]
    assert (rows["min_rtt_us"] > 20_000).all(), "the path has 20 ms"
    assert (rows["skmem_sndbuf_bytes"] > 0).all()


def test_tcp_info_of_an_old_kernel_lacks_its_end(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (FILES / "mlab.jsonl").read_text().splitlines()]
    for record in lines[1:]:
        record["Attributes"][2] = base64.b64encode(base64.b64decode(record["Attributes"][2])[:192]).decode()
    (path := tmp_path / "old").write_text("\n".join(map(json.dumps, lines)))
    rows = told(path, tmp_path).table("tcp_info").collect()
    assert rows["snd_wnd"].null_count() == rows.height
    assert rows["sndbuf_limited_us"].null_count() == 0


def test_a_file_of_a_receiver_says_whose_counters_are_missing(tmp_path: Path) -> None:
    run_dir, _ = made(tmp_path, "mlab-1.9.0-receive.jsonl")
    (limited,) = what_limited(Source(run_dir))
    assert limited.sentence.startswith("Not known: there are samples of its receiver only")


def test_damaged_record_is_told_with_its_line(tmp_path: Path) -> None:
    first, second, *_ = (FILES / "mlab.jsonl").read_text().splitlines()
    record = json.loads(second)
    for change, message in (
        ({"RawIDM": "AAAA"}, "line 2: RawIDM has 3 bytes, and inet_diag_msg 72."),
        ({"RawIDM": "#"}, "line 2: '#' is no base64."),
        ({"Timestamp": "yesterday"}, "line 2: Invalid isoformat string: 'yesterday'."),
    ):
        content = f"{first}\n{json.dumps(record | change)}\n"
        assert refused(content.encode(), tmp_path).startswith(message)


def test_variables_of_web100(tmp_path: Path) -> None:
    _, flows = made(tmp_path, WEB100)
    (flow,) = flows.rows(named=True)
    assert (flow["src"], flow["dst"]) == ("192.0.2.1", "192.0.2.2")
    assert flow["goodput_bps"] == pytest.approx(8e6)
    assert flow["rwnd_limited"] == pytest.approx(0.5)
    assert flow["cwnd_limited"] == pytest.approx(0.3)
    assert flow["app_limited"] == pytest.approx(0.2)


def test_units_of_the_rfc_are_milliseconds(tmp_path: Path) -> None:
    content = "ElapsedSecs,tcpEStatsPathSmoothedRTT,SndLimTimeRwin,SndLimTimeCwnd,HCThruOctetsAcked\n"
    content += "0,20,0,0,0\n1,20,500,300,1000000\n"
    (path := tmp_path / "rfc").write_text(content)
    run_dir, flows = made(tmp_path, path)
    (flow,) = flows.rows(named=True)
    assert flow["rwnd_limited"] == pytest.approx(0.5)
    (file,) = json.loads((run_dir / "manifest.json").read_bytes())["files"]
    assert any("no addresses" in sentence for sentence in file["not_told"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("CurCwnd,CurMSS,SegsOut\n1,2,3\n", "line 1: no column has the time"),
        ("Duration,CurCwnd,CurMSS,SegsOut\n1,2,3\n", "line 2: it has 3 values, and the first line 4 names."),
        ("Duration,CurCwnd,CurMSS,SegsOut\n1,2,3,x\n", "line 2: could not convert string to float: 'x'"),
        ("Duration,CurCwnd,CurMSS,SegsOut,SegsOut\n", "line 1: the column SegsOut is there twice."),
        ("Duration,CurCwnd,CurMSS,SegsOut\n", "line 1: there are no values."),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content: str, message: str, tmp_path: Path) -> None:
    assert refused(content.encode(), tmp_path).startswith(message)
