from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from damage import Damage, expectation, slow
from synthetic import RUN_ID

from dumbbell.execution.collect import collect
from dumbbell.run.record import read_json, read_jsonl


def test_a_run_in_which_all_went_as_asked(run_dir: Path) -> None:
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    assert read_json(run_dir / "verdict.json") == verdict.model_dump()
    manifest = read_json(run_dir / "manifest.json")
    assert manifest["run"] == RUN_ID
    assert manifest["rows"] == {
        "spooled": {
            "tcp_info": 1104,
            "udp": 82,
            "http_fetch": 0,
            "qdisc": 2440,
            "clock": 330,
            "cpu_core": 310,
            "link": 363,
            "sampler": 209,
            "snmp": 203,
            "tc_class": 772,
            "web100": 8,
        },
        "lost": 0,
        "influxdb": None,
    }
    assert {"subject", "name", "requested", "measured", "unit", "ok"} == {*manifest["facts"][0]}
    flows = pl.read_parquet(run_dir / "flows.parquet")
    assert flows["congestion_control_measured"].to_list() == [None, "cubic", "cubic"]
    tcp_info = pl.read_parquet(run_dir / "tcp_info.parquet")
    assert tcp_info["phase"].unique().to_list() == ["measurement"]
    assert tcp_info["t_ns"].min() == pytest.approx(0, abs=1e6)
    calibration = pl.read_parquet(run_dir / "udp.parquet")
    assert calibration["phase"].unique().to_list() == ["calibration"]
    # Each 100 ms of 4 s, at both ends, and what came after the end.
    assert calibration.group_by("side").len()["len"].to_list() == [41] * 2
    (rate,) = (check for check in verdict.checks if check.name == "rate")
    assert rate.measured == pytest.approx(100e6, rel=0.002)


def test_collecting_again_changes_nothing(run_dir: Path) -> None:
    def content() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in run_dir.iterdir() if file.is_file()}

    collect(run_dir, None, ["sender2 no longer answers"])
    first = content()
    assert collect(run_dir, None).reasons == ["run: sender2 no longer answers"]
    assert content() == first


def test_events_are_merged_in_order_of_time(run_dir: Path) -> None:
    collect(run_dir, None)
    merged = read_jsonl(run_dir / "events.jsonl")
    times = [event["unix_ns"] for event in merged]
    assert times == sorted(times)
    assert {"state", "flow_first_data", "sampler", "done"} <= {event["event"] for event in merged}
    assert {"router", "sender1"} <= {event.get("host") for event in merged}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (expectation("utilisation", max=0.5), "all flows: utilisation is 95.6 %, above 50 %"),
        (expectation("jain_index", min=0.999), "all flows: jain_index is "),
    ],
)
def test_a_valid_run_can_fail(run_dir: Path, change: Damage, reason: str) -> None:
    change(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "failed"
    assert verdict.reasons[0].startswith(reason)


def test_invalid_outranks_failed(run_dir: Path) -> None:
    expectation("jain_index", min=0.999)(run_dir)
    slow(run_dir)
    assert collect(run_dir, None).state == "invalid"


def test_a_run_without_raw_data_is_invalid_and_not_a_crash(run_dir: Path) -> None:
    (run_dir / "raw").rename(run_dir / "elsewhere")
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert not any(check.ok for check in verdict.checks if check.name in ("agent", "rate", "utilisation"))
