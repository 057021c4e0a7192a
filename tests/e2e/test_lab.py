"""Whole runs on the hosts of the virtual lab, which ``make provision`` has brought up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from lab import Lab
from runs import CLOSE, MS, Finished, S, run, run_in_time

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("ten_seconds.yml")
RTT_TOLERANCE, START_ERROR_NS = 0.1, 500 * MS  # of its validity


@pytest.fixture(scope="module")
def finished(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_in_time(SCENARIO, tmp_path_factory.mktemp("passing"))


# --- a run in which all goes as asked -------------------------------------------------------------


def test_the_run_passes(finished: Finished) -> None:
    verdict = finished.json("verdict.json")
    assert (verdict["state"], verdict["reasons"]) == ("passed", []), finished.output[-4000:]
    assert finished.code == 0, finished.output[-4000:]
    assert all(check["ok"] for check in verdict["checks"])
    assert {"rate", "idle RTT", "path", "start", "utilisation"} <= {c["name"] for c in verdict["checks"]}


def test_every_sample_is_in_the_spools_the_table_and_influxdb(finished: Finished, lab: Lab) -> None:
    lines = [line for spool in finished.dir.glob("raw/*/*/spool.lp") for line in spool.open()]
    spooled = sum(line.startswith("tcp_info,") for line in lines)
    rows = finished.json("manifest.json")["rows"]
    assert rows["lost"] == 0
    assert rows["spooled"]["tcp_info"] == rows["influxdb"]["tcp_info"]["stored"] == spooled
    assert rows["spooled"]["qdisc"] == rows["influxdb"]["qdisc"]["stored"] > 0
    assert finished.tcp_info.height == spooled
    # Telegraf delivered them, not only the controller afterwards.
    assert rows["influxdb"]["tcp_info"]["backfilled"] < spooled

    with lab.influx() as influx:
        assert influx.counts(["tcp_info"], finished.id) == {"tcp_info": spooled}
        groups = influx.query(
            'SELECT count("snd_cwnd") AS n FROM "tcp_info" WHERE "run" = $run GROUP BY "flow", "side"',
            run=finished.id,
        )
    stored = {(group["flow"], group["side"]): group["n"] for group in groups}
    table = finished.tcp_info.group_by("flow", "side").len()
    assert stored == {(flow, side): n for flow, side, n in table.iter_rows()}


def test_the_flows_are_sampled_at_both_ends_throughout(finished: Finished) -> None:
    (point,) = finished.json("plan.json")["points"]
    for phase in point["phases"]:
        for flow in phase["flows"]:
            ticks = flow["duration_ns"] // phase["sampling_interval_ns"]
            for side in ("sender", "receiver"):
                table = finished.table("udp" if flow["kind"] == "udp" else "tcp_info")
                rows = table.filter((pl.col("flow") == flow["name"]) & (pl.col("side") == side))
                assert rows.height >= 0.9 * ticks * flow["streams"], (flow["name"], side)


def test_congestion_control_is_read_back_from_every_flow(finished: Finished) -> None:
    assert finished.facts("congestion control") == {"flow1": "cubic", "flow2": "cubic"}
    for flow, asked in {"flow1": "cubic", "flow2": "cubic"}.items():
        rows = finished.tcp_info.filter((pl.col("flow") == flow) & (pl.col("side") == "sender"))
        # A client that is held before its first byte (the cookie is one segment) may not have chosen yet.
        # The kernel's last word about a socket, when it is destroyed (CLOSE), does not name it.
        sending = rows.filter((pl.col("data_segs_out") > 1) & (pl.col("state") != CLOSE))
        assert sending["congestion_control"].unique().to_list() == [asked]
    for flow in ("flow1", "flow2"):
        assert finished.event("flow_congestion_control", flow=flow)["name"] == "cubic"


def test_telegraf_is_not_left_with_what_is_stored(finished: Finished, lab: Lab) -> None:
    for host in ("sender1", "router"):
        spools = lab.ssh(host, f"cd /var/lib/dumbbell/stored/{finished.id} && ls */spool*").split()
        assert sorted(spools) == ["calibration/spool.lp.gz", "measurement/spool.lp.gz"]


def test_the_idle_rtt_is_as_asked(finished: Finished) -> None:
    measured = finished.facts("idle RTT")
    assert sorted(measured) == ["sender1-receiver1", "sender2-receiver2"]
    for pair, rtt_ns in measured.items():
        assert rtt_ns == pytest.approx(20 * MS, rel=RTT_TOLERANCE)
        sender = pair.partition("-")[0]
        text = (finished.dir / "raw" / sender / "calibration" / f"ping-{pair}.txt").read_text()
        rtts_ms = [float(ms) for ms in re.findall(r"time=([0-9.]+) ms", text)]
        assert len(rtts_ms) > 10
        assert min(rtts_ms[1:]) == pytest.approx(20, rel=RTT_TOLERANCE)


def test_the_second_flow_starts_on_time(finished: Finished) -> None:
    planned_ns = 2 * S
    t0 = finished.json("manifest.json")["t0_unix_ns"]["measurement"]
    first = finished.event("flow_first_data", flow="flow2")
    assert first["planned_unix_ns"] == t0 + planned_ns
    assert abs(first["error_ns"]) <= START_ERROR_NS
    assert finished.facts("start")["flow2"] == first["error_ns"]
    # What arrived after iperf3's cookie of 37 bytes says so too, to a sample or two and the clocks' offset.
    arrived = finished.tcp_info.filter(
        (pl.col("flow") == "flow2") & (pl.col("side") == "receiver") & (pl.col("bytes_received") > 37)
    )
    start_ns = arrived["t_ns"].min()
    assert isinstance(start_ns, int)
    assert planned_ns - MS <= start_ns <= planned_ns + first["error_ns"] + 500 * MS


class Loads(HTMLParser):
    """Addresses that a browser would fetch to show the page; links to follow are none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "srcset", "poster", "data") and tag != "a":
                self.found.append(f"<{tag} {name}={(value or '')[:80]}>")


def test_the_report_is_one_file_about_both_flows(finished: Finished) -> None:
    page = (finished.dir / "report.html").read_text()
    loads = Loads()
    loads.feed(page)
    assert [load for load in loads.found if re.search(r"=\s*(https?:)?//", load)] == []
    assert re.findall(r"url\(\s*[\"']?https?://|@import\s+[\"']?https?://", page) == []
    assert "PASSED" in page
    for flow in ("flow1", "flow2"):
        assert f"Goodput {flow}" in page


# --- a run that cannot be had ---------------------------------------------------------------------


def state_of(lab: Lab) -> Iterator[tuple[str, str]]:
    """What preparing a run may change, of every host that takes part."""
    sysctls = "net.ipv4.tcp_available_congestion_control net.ipv4.tcp_allowed_congestion_control"
    for host in lab.addresses:
        if host != "archive":
            found = lab.ssh(host, f"tc qdisc show && sysctl {sysctls}")
            yield host, re.sub(r"direct_packets_stat \d+", "", found)  # a counter among htb's settings


@dataclass(frozen=True)
class Refused:
    """A run, and the state of the hosts before and after it."""

    run: Finished
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def refused(lab: Lab, finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Refused:
    """Of a scenario like the first, but for a congestion control of flow2 that no kernel has."""
    folder = tmp_path_factory.mktemp("refused")
    head, found, tail = SCENARIO.read_text().rpartition("congestion_control: cubic")
    assert found
    (folder / "vegas9.yml").write_text(f"{head}congestion_control: vegas9{tail}")
    before = dict(state_of(lab))
    aborted = run(folder / "vegas9.yml", folder / "results")
    return Refused(aborted, before, dict(state_of(lab)))


def test_a_missing_congestion_control_is_named_with_host_and_alternatives(refused: Refused, lab: Lab) -> None:
    assert refused.run.code != 0
    verdict = refused.run.json("verdict.json")
    assert verdict["state"] == "aborted"
    reasons = {reason.partition(":")[0]: reason for reason in verdict["reasons"]}
    assert sorted(reasons) == ["receiver2", "sender2"]  # the ends of flow2
    said = " ".join(refused.run.output.split())
    for host, reason in reasons.items():
        available = lab.ssh(host, "sysctl -n net.ipv4.tcp_available_congestion_control").split()
        assert {"reno", "cubic"} <= set(available)
        assert "asked for congestion control vegas9" in reason
        had = set(re.findall(r"[\w-]+", reason.partition("it has")[2]))
        assert set(available) <= had
        assert host in said
        assert " ".join(reason.partition("asked for")[2].split()) in said
    assert "Traceback" not in said


def test_no_agent_was_started_for_it(refused: Refused, lab: Lab) -> None:
    assert list((refused.run.dir / "raw").rglob("spool.lp")) == []
    assert list((refused.run.dir / "raw").rglob("status.json")) == []
    for host in refused.before:
        units = lab.ssh(host, "systemctl list-units --all --plain --no-legend 'dumbbell-agent@*'")
        assert refused.run.id not in units
        assert refused.run.id not in lab.ssh(host, "ls /var/lib/dumbbell/runs")


def test_it_left_the_hosts_as_they_were(refused: Refused) -> None:
    assert "netem" in refused.before["router"]
    assert "cubic" in refused.before["sender1"]
    assert refused.after == refused.before
