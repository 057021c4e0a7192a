"""Runs for other tools, read back by these or by other libraries."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from synthetic import T0_UNIX_NS

from dumbbell.export import flent, long, pcapng, qlog
from dumbbell.results import RunSet
from dumbbell.studies.source import Missing, Source


def test_flent_has_what_the_run_has(collected: Path, tmp_path: Path) -> None:
    run = Source(collected)
    flent.write(run, path := tmp_path / "run.flent.gz")
    whole = json.loads(gzip.decompress(path.read_bytes()))
    assert (whole["version"], whole["metadata"]["NAME"]) == (4, "tcp_nup")
    assert whole["metadata"]["SERIES_META"]["TCP upload::2"]["DUMBBELL_FLOW"] == "flow2"
    rates = run.goodputs(flent.STEP_NS).filter(flow="flow1")
    at = whole["x_values"].index(rates["t_ns"][5] / 1e9)
    assert whole["results"]["TCP upload::1"][at] == pytest.approx(rates["goodput_bps"][5] / 1e6)
    assert {len(values) for values in whole["results"].values()} == {len(whole["x_values"])}
    first, second, both = (whole["results"][f"TCP upload{name}"] for name in ("::1", "::2", " sum"))
    assert both[at] == sum(value for value in (first[at], second[at]) if value is not None)
    samples = [row for row in whole["raw_values"]["TCP upload::1"] if "tcp_rtt" in row]
    assert samples[0]["t"] == pytest.approx(T0_UNIX_NS["measurement"] / 1e9, abs=1)


@pytest.mark.skipif(shutil.which("flent") is None, reason="flent is not installed")
def test_flent_plots_it(collected: Path, tmp_path: Path) -> None:
    flent.write(Source(collected), path := tmp_path / "run.flent.gz")
    for plot in ("totals", "upload", "tcp_rtt"):
        made = tmp_path / f"{plot}.png"
        command = ["flent", "--input", str(path), "--plot", plot, "--output", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert made.read_bytes().startswith(b"\x89PNG"), done.stderr


def test_one_long_table(swept: Path, tmp_path: Path) -> None:
    runs = RunSet.open(swept)
    long.write(runs, path := tmp_path / "long.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["variable"] for row in rows} == {"goodput_bps", *long.SENDER, *long.QUEUE}
    assert {row["level_queue"] for row in rows} == {"0.5bdp", "2bdp"}
    assert {row["place"] for row in rows} == {str(place) for place in range(len(runs))}
    flow = [
        row for row in rows if (row["place"], row["of"], row["variable"]) == ("0", "first", "goodput_bps")
    ]
    rates = runs[0].goodput().filter(flow="first")
    assert [float(row["value"]) for row in flow] == pytest.approx(rates["goodput_bps"].to_list())
    with pytest.raises(Missing, match="None of 0 points has samples"):
        long.write(RunSet([]), tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_captures_with_names(captured: Path, tmp_path: Path) -> None:
    run = Source(captured)
    pcapng.write(run, path := tmp_path / "run.pcapng")
    fields = ("frame.comment", "frame.interface_name", "ip.src_host", "tcp.len")
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    command = ["tshark", "-N", "n", "-r", str(path), "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert Counter(row[1] for row in rows) == {"router vec1": 12, "router vec2": 11}  # one is lost between
    assert {row[0] for row in rows} == {"flow1"}
    assert {row[2] for row in rows} == {"sender1", "receiver1"}
    assert [row[3] for row in rows].count("1000") == 6 + 5


def test_nothing_captured_is_said(collected: Path, tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"ask for sampling.capture"):
        pcapng.write(Source(collected), tmp_path / "x.pcapng")


def test_qlog_of_atou(collected_atou: Path, collected: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(collected_atou, tmp_path / "run"))
    run = Source(run_dir)
    with pytest.raises(Missing, match="has no flow of atou"):
        qlog.write(Source(collected), tmp_path / "x.qlog")
    (flow,) = run.planned_flows
    rows = [
        (0, "xmt", 0, None, None, None),
        (10**6, "xmt", 1, None, None, None),
        (20 * 10**6, "ack", 2, 20 * 10**6, 4, 10),
    ]
    names = ["t_ns", "kind", "segment", "rtt_ns", "snd_cwnd", "snd_ssthresh"]
    trace = pl.DataFrame(rows, names, orient="row").with_columns(
        flow=pl.lit(flow.name), phase=pl.lit("measurement")
    )
    trace.write_parquet(run_dir / "atou_trace.parquet")
    qlog.write(run, path := tmp_path / "run.qlog")
    (found,) = json.loads(path.read_text())["traces"]
    assert [event["name"] for event in found["events"]] == [
        "transport:packet_sent",
        "transport:packet_sent",
        "transport:packet_received",
        "recovery:metrics_updated",
    ]
    mss = run.rows("tcp_info", "snd_mss")["snd_mss"][0]
    assert found["events"][3]["time"] == 20
    assert found["events"][3]["data"] == {
        "latest_rtt": 20,
        "congestion_window": 4 * mss,
        "ssthresh": 10 * mss,
    }
    assert found["events"][2]["data"]["frames"][0]["acked_ranges"] == [[0, 1]]
