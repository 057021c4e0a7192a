"""Measure in the lab what collectors take from a flow, and how fast rows are stored: bench/in_lab.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from lab import Lab

from bench.collect import COLLECT, backfilled, tcp_info_rows
from dumbbell.ingest.influx import Influx
from tools.bench import Row, publish

TARGET = Path("bench/in_lab.json")
PAIRS = 10
FLOW_S = 10
SETTLE_S = 2  # collectors begin this long before the flow, and end as long after it
SAMPLED = ("sender1", "router", "receiver1")
PORT = 5201
UNIT = "dumbbell-bench"
REMOTE = "/var/tmp/dumbbell-collect"


def goodput(lab: Lab) -> Iterator[Row]:
    """Goodput of a flow with all collectors every 100 ms on its hosts and its router, against none.

    Nothing but the hosts themselves limits it: the router has no emulated path.
    """
    bare_path = json.dumps({"path_forward": None, "path_reverse": None})
    subprocess.run(
        ["ansible", "routers", "-m", "ansible.builtin.include_role", "-a", "name=path", "-e", bare_path],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    binary = COLLECT.read_bytes()
    for host in SAMPLED:
        lab.ssh(host, f"cat > {REMOTE} && chmod +x {REMOTE}", stdin=binary)
    address = lab.ssh("receiver1", "ip -json -4 address show dev vec1")
    receiver = json.loads(address)[0]["addr_info"][0]["local"]
    collect = (
        f"{REMOTE} tcp,qdisc,snmp,link,cpu,clock --port {PORT} --interval 100ms "
        f"--duration {FLOW_S + 2 * SETTLE_S}s --spool $(mktemp -d)/spool.lp"
    )
    lab.ssh("receiver1", f"systemd-run --quiet --unit={UNIT} iperf3 --server --port {PORT}")
    bare: list[float] = []
    sampled: list[float] = []
    try:
        for pair in range(PAIRS):
            for with_collectors in (pair % 2 == 0, pair % 2 == 1):
                with ThreadPoolExecutor() as beside:
                    sampling = [beside.submit(lab.ssh, host, collect) for host in SAMPLED if with_collectors]
                    time.sleep(SETTLE_S)
                    send = f"iperf3 --client {receiver} --port {PORT} --time {FLOW_S} --bitrate 1G --json"
                    report = json.loads(lab.ssh("sender1", send))
                    for collector in sampling:
                        collector.result()
                bps = report["end"]["sum_received"]["bits_per_second"]
                (sampled if with_collectors else bare).append(bps)
    finally:
        lab.ssh("receiver1", f"systemctl stop {UNIT}")
    ratios = [ours / none for ours, none in zip(sampled, bare, strict=True)]
    yield Row.median("goodput, 1 Gbit/s asked, no collectors", [bps / 1e6 for bps in bare], "Mbit/s")
    yield Row.median("goodput with all collectors every 100 ms / none", ratios, "x", ">= 0.98")


def backfill(lab: Lab) -> Iterator[Row]:
    """From spools into the archive's InfluxDB, by the store's own code."""
    rows = tcp_info_rows("3s")
    with lab.influx() as archive, Influx(replace(archive.target, database="bench")) as influx:
        influx.query("CREATE DATABASE bench")
        try:
            yield from backfilled(influx, rows, "backfill into the archive", ">= 50000")
        finally:
            influx.query("DROP DATABASE bench")


def main() -> int:
    """Entry point; returns the exit status."""
    lab = Lab.of_inventory()
    rows = [*goodput(lab), *backfill(lab)]
    rows.append(Row("load average at the end", os.getloadavg()[0], "processes"))
    publish(rows, TARGET)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
