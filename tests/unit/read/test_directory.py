"""Several files together, and the directory that is made of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dumbbell.cli.read import read
from dumbbell.metrics.values import values
from dumbbell.read.directory import make, told
from dumbbell.report.pages.index import render_index
from dumbbell.run.content import Run
from dumbbell.studies.limits import what_limited
from dumbbell.studies.source import Source
from read.files import made, refused
from read.mutate import FILES

TOGETHER = ("capture-client.json", "capture-ss.txt", "raw.pcap")


def test_files_of_one_connection_make_one_flow(tmp_path: Path) -> None:
    run_dir, flows = made(tmp_path, *TOGETHER)
    test = json.loads((FILES / TOGETHER[0]).read_bytes())
    port = test["start"]["connected"][0]["local_port"]
    (flow,) = flows.filter(client_port=port).rows(named=True)
    # The kernel's counters are those of ss, which tells more than the others.
    assert flow["limit_unknown"] is not None
    assert flow["retransmits"] is not None
    (found,) = [of for of in what_limited(Source(run_dir)) if of.flow.name == flow["name"]]
    assert found.shares is not None
    assert sum(found.shares[name] for name in ("app_limited", "cwnd_limited", "rwnd_limited")) > 0.5


def test_metrics_and_tables_are_those_of_runs(tmp_path: Path) -> None:
    run_dir, flows = made(tmp_path, *TOGETHER)
    assert {flow.name for flow in Run.open(run_dir).point.phase("measurement").flows} == set(flows["name"])
    found = values(run_dir)
    assert {"goodput", "retransmits"} <= set(found["metric"])
    assert set(found["verdict"]) == {"read"}


def test_fewer_flows_keep_those_of_tests(tmp_path: Path) -> None:
    run_dir = make([FILES / name for name in TOGETHER], tmp_path, most_flows=1)
    (flow,) = Run.open(run_dir).point.phase("measurement").flows
    test = json.loads((FILES / TOGETHER[0]).read_bytes())
    assert flow.client_port == test["start"]["connected"][0]["local_port"]
    assert json.loads((run_dir / "manifest.json").read_bytes())["other_flows"] > 0


def test_gzip_is_unpacked(tmp_path: Path) -> None:
    content = (FILES / "raw.pcap").read_bytes()
    (path := tmp_path / "packed").write_bytes(gzip.compress(content))
    plain, packed = (told(each, tmp_path).table("tcp_info").collect() for each in (FILES / "raw.pcap", path))
    assert plain.equals(packed)
    assert "gzip is damaged" in refused(gzip.compress(content)[:-100], tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "byte 0: the file is empty."),
        (b"\x28\xb5\x2f\xfd....", "byte 0: the file is packed. Unpack it: zstd -d "),
        (b"hello\nworld", "byte 0: no known kind of file begins with 'hello'. Give a report of iperf3"),
    ],
)
def test_unknown_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    assert refused(content, tmp_path).startswith(message)


def test_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read([FILES / name for name in TOGETHER], tmp_path, 32)
    out = capsys.readouterr().out
    report = Path(out.splitlines()[-1])
    assert "flow1, 192.0.2.1 to 192.0.2.2: Its " in out
    text = report.read_text()
    assert "ss does not tell ca_state" in text
    assert "This run directory has no" not in text


def test_index_lists_it_as_read(tmp_path: Path) -> None:
    run_dir, _ = made(tmp_path, *TOGETHER)
    page = render_index(run_dir.parent).read_text()
    assert "\N{EN DASH} READ" in page
    assert f"Read from {', '.join(TOGETHER)}" in page
    assert "of 1</td>" not in page, "nothing was judged, so nothing has passed or failed"


def test_command_tells_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="missing: No such file"):
        read([tmp_path / "missing"], tmp_path, 32)
    (path := tmp_path / "empty").write_bytes(b"")
    with pytest.raises(SystemExit, match="empty, byte 0: the file is empty"):
        read([path], tmp_path, 32)
