"""Measure what the collectors cost, beside the tools that they replace. Writes bench/collect.json.

Everything runs over loopback on this machine, which should be doing nothing else. Peers are measured in the
same run, by turns with the collectors. CPU time is that of the processes (getrusage of children).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dumbbell.ingest.influx import Influx, InfluxTarget
from tools.bench import Row, to_json, to_table

COLLECT = Path(".build/bin/dumbbell-collect")
INFLUXD = Path(".build/bin/influxd")
TARGET = Path("bench/collect.json")
WEEK_S = 7 * 24 * 3600
WEEK_BUDGET_GB = 8.0  # docs/collectors.md
MOVED_BYTES = 10_000  # by each flow, ten times a second
MOVING = 10  # flows of many that move data
INFLUXD_START_S = 10
SHARE_TIME = "60s"  # beside which the start of the program is short


class Flows:
    """Connections over loopback; a thread keeps data moving on them."""

    def __init__(self, count: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
            self.clients = [socket.create_connection(server.getsockname()) for _ in range(count)]
            self.servers = {s.getpeername(): s for s in (server.accept()[0] for _ in range(count))}
            self.port = server.getsockname()[1]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self._thread.start()

    def _move(self) -> None:
        while not self._stop.wait(0.1):
            for client in self.clients[:MOVING]:
                client.sendall(bytes(MOVED_BYTES))
                received = 0
                while received < MOVED_BYTES:
                    received += len(self.servers[client.getsockname()].recv(MOVED_BYTES))

    def tuples(self) -> list[str]:
        """The senders' sockets as flags of dumbbell-collect."""
        return [
            part
            for c in self.clients
            for part in ("--tuple", "{}:{},{}:{}".format(*c.getsockname(), *c.getpeername()))
        ]

    def close(self) -> None:
        """Stop moving data and close all connections."""
        self._stop.set()
        self._thread.join()
        for s in (*self.clients, *self.servers.values()):
            s.close()


@contextmanager
def flows(count: int) -> Iterator[Flows]:
    """Connections that are closed at the end."""
    opened = Flows(count)
    try:
        yield opened
    finally:
        opened.close()


def cpu_s(work: Callable[[], None]) -> float:
    """CPU seconds of the child processes that end during the work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Sampled:
    """One run of dumbbell-collect: CPU seconds, samples and missed ticks, and the spool that it left."""

    def __init__(self, *flags: str, interval: str, duration: str, keep: Path | None = None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "spool.lp"
            command: list[str | Path] = [
                COLLECT,
                "tcp",
                *flags,
                f"--interval={interval}",
                f"--duration={duration}",
                f"--spool={path}",
            ]
            began = time.monotonic()
            errors: list[str] = []

            def work() -> None:
                errors.append(subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr)

            self.cpu_s = cpu_s(work)
            self.wall_s = time.monotonic() - began
            found = re.search(r"(\d+) of (\d+) samples taken, (\d+) missed", errors[0])
            if not found:
                raise ValueError(f"dumbbell-collect says {errors[0]!r}")
            self.samples, self.ticks, self.missed = map(int, found.groups())
            self.bytes = sum(p.stat().st_size for p in Path(folder).iterdir())
            if keep:
                shutil.copy(path, keep)


def per_sample() -> Iterator[Row]:
    """CPU per sample of one flow: the collector in a loop and every ms, a loop of ss, and flent's loop.

    Loops are compared with loops, and the collector that sleeps and wakes with flent's, which does too.
    """
    ours, waking, ss, flent = [], [], [], []
    test = Path(".build/bin/tcpinfo.test")
    subprocess.run(["go", "test", "-c", "-o", test, "./collectors/tcpinfo"], check=True)
    benchmark: list[str | Path] = [test.resolve(), "-test.run=^$", "-test.bench=^BenchmarkSample$"]
    count = 100
    with flows(1) as one:
        a, b = one.tuples()[1].split(",")
        command = ["ss", "-tinHO", "src", a, "dst", b]
        # What flent's ss_iterate.sh does for a sample: ss, date, sleep.
        script = (
            f"for i in $(seq {count}); do ss -t -i -n -p -H src {a} dst {b}; date +%s.%N; sleep 0.001; done"
        )

        def loop() -> None:
            for _ in range(count):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        def flent_loop() -> None:
            subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL)

        for _ in range(5):
            run = Sampled(*one.tuples(), interval="1ms", duration="3s")
            waking.append(run.cpu_s / run.samples * 1e6)
            out = subprocess.run(benchmark, check=True, capture_output=True, text=True).stdout
            ours += [float(ns) / 1e3 for ns in re.findall(r"([0-9.]+) ns/op", out)]
            ss.append(cpu_s(loop) / count * 1e6)
            flent.append(cpu_s(flent_loop) / count * 1e6)
    costs = (
        ("collector", ours),
        ("collector, every ms", waking),
        ("loop of ss", ss),
        ("flent's loop", flent),
    )
    for name, values in costs:
        yield Row.median(f"CPU per sample, 1 flow: {name}", values, "us")
    pairs = (
        ("loop of ss / collector", ss, ours),
        ("loop of ss / collector, every ms", ss, waking),
        ("flent's loop / collector, every ms", flent, waking),
    )
    for name, peers, own in pairs:
        ratios = [peer / mine for peer, mine in zip(peers, own, strict=True)]
        yield Row.median(f"CPU per sample: {name}", ratios, "x", ">= 100")


def shares() -> Iterator[Row]:
    """Share of a core at common loads."""
    with flows(10) as ten:
        yield from _share("10 sockets every 10 ms", ten.tuples(), "10ms", "<= 1")
    with flows(500) as many:
        yield from _share("1000 sockets every 100 ms", ["--port", str(many.port)], "100ms", "<= 3")
        command = ["ss", "-tinHO", f"( sport = :{many.port} or dport = :{many.port} )"]

        def list_them() -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        times = [cpu_s(list_them) for _ in range(10)]
        yield Row("CPU, 1000 sockets every 100 ms: ss", 1000 * statistics.median(times), "% of a core", n=10)
    with flows(1) as one:
        yield from _share("1 socket every ms", one.tuples(), "1ms", "<= 5")


def _share(what: str, flags: list[str], interval: str, target: str) -> Iterator[Row]:
    run = Sampled(*flags, interval=interval, duration=SHARE_TIME)
    yield Row(f"CPU, {what}", 100 * run.cpu_s / run.wall_s, "% of a core", target=target)
    yield Row(f"missed, {what}", 100 * run.missed / run.ticks, "% of ticks")


def memory(minutes: float) -> Iterator[Row]:
    """Resident memory of ten flows every 10 ms: its peak, and its growth after the first tenth."""
    with flows(10) as ten, tempfile.TemporaryDirectory() as folder:
        flags = ["--interval=10ms", f"--duration={minutes}m", f"--spool={folder}/spool.lp"]
        began = time.monotonic()
        process = subprocess.Popen([COLLECT, "tcp", *ten.tuples(), *flags], stderr=subprocess.PIPE, text=True)
        resident: list[tuple[float, float]] = []
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            if found := re.search(r"VmRSS:\s+(\d+) kB", status):
                resident.append((time.monotonic() - began, int(found[1]) / 1024))
            time.sleep(minutes / 3)
        early = max(mb for at, mb in resident if at < minutes * 6)
        peak = max(mb for _, mb in resident)
        yield Row(
            f"resident memory, 10 flows every 10 ms, {minutes:g} min: peak",
            peak,
            "MB",
            len(resident),
            target="<= 50",
        )
        yield Row("resident memory: growth after the first tenth", peak - early, "MB")
        size = sum(p.stat().st_size for p in Path(folder).iterdir()) / 2**20
        yield Row("spool of those flows, old files compressed", size, "MB")


def decoding() -> Iterator[Row]:
    """Speed of the decoder, of the encoder and of compression, by Go's benchmarks."""
    for package, benchmark, name, target in (
        ("tcpinfo", "BenchmarkDecode", "tcp_info decoded", ">= 1e6"),
        ("tcpinfo", "BenchmarkAddFields", "tcp_info rows written", None),
        ("trace", "BenchmarkRecords", "pages of 14 kernel events read", None),
    ):
        out = _go_benchmark(package, benchmark)
        rates = [1e9 / float(ns) for ns in re.findall(r"([0-9.]+) ns/op", out)]
        yield Row.median(name, rates, "/s per core", target)


def programs() -> Iterator[Row]:
    """What the kernel spends in eBPF programs at each segment that arrives, by its own statistics."""
    out = _go_benchmark("ebpf", "BenchmarkSegment")
    for case in ("counted", "not_counted"):
        found = re.findall(rf"BenchmarkSegment/{case}-\S+.*\s([0-9.]+) ns/segment", out)
        name = f"eBPF, a segment of a connection that is {case.replace('_', ' ')}"
        yield Row.median(name, [float(ns) for ns in found], "ns")


def _go_benchmark(package: str, benchmark: str) -> str:
    """What five runs of a benchmark of Go's say."""
    command = ["go", "test", "-run=^$", f"-bench=^{benchmark}$", "-count=5", f"./collectors/{package}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disk() -> Iterator[Row]:
    """Disk for a week of 4 flows every 100 ms, from real rows of 4 flows that move data."""
    with flows(4) as four, tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.lp"
        run = Sampled(*four.tuples(), interval="2ms", duration="20s", keep=kept)
        data = kept.read_bytes()
        rows = run.samples * 4
        compressed = len(gzip.compress(data, compresslevel=1))
        week = 4 * 10 * WEEK_S
        yield Row("spool, a row of tcp_info", run.bytes / rows, "bytes", rows)
        yield Row("spool, a row of tcp_info, compressed", compressed / rows, "bytes", rows)
        # Eight files of 64 MiB stay as they are; what is older is compressed.
        total = (8 * 64 * 2**20 + compressed / rows * week) / 1e9
        yield Row(
            "a week of 4 flows every 100 ms, on each host", total, "GB", target=f"<= {WEEK_BUDGET_GB:g}"
        )


def backfill() -> Iterator[Row]:
    """From spools into a fresh InfluxDB, by the store's own code."""
    rows = tcp_info_rows("10s")
    with tempfile.TemporaryDirectory() as folder, influxd(Path(folder)) as target, Influx(target) as influx:
        yield from backfilled(influx, rows, "backfill", ">= 200000")


def tcp_info_rows(duration: str) -> list[bytes]:
    """Rows of ten flows every ms, as a spool has them."""
    with tempfile.TemporaryDirectory() as folder, flows(10) as ten:
        kept = Path(folder) / "kept.lp"
        Sampled(*ten.tuples(), interval="1ms", duration=duration, keep=kept)
        return [line for line in kept.read_bytes().splitlines(keepends=True) if line.startswith(b"tcp_info")]


def backfilled(influx: Influx, rows: Sequence[bytes], name: str, target: str) -> Iterator[Row]:
    """Rows and values a second that an empty database takes; ValueError unless it then has all rows."""
    values = sum(line.count(b"=") for line in rows[:1000]) / 1000
    began = time.monotonic()
    influx.write([b"".join(rows)])
    elapsed = time.monotonic() - began
    found = influx.query('SELECT count("mono_ns") FROM "tcp_info"')
    if found[0]["count"] != len(rows):
        raise ValueError(f"{len(rows)} rows were written, InfluxDB has {found}")
    yield Row(f"{name}: rows of tcp_info", len(rows) / elapsed, "rows/s", len(rows))
    yield Row(f"{name}: values of tcp_info", values * len(rows) / elapsed, "values/s", target=target)


@contextmanager
def influxd(folder: Path) -> Iterator[InfluxTarget]:
    """An InfluxDB of its own on loopback."""
    config = folder / "influxdb.conf"
    config.write_text(
        f'reporting-disabled = true\nbind-address = "127.0.0.1:18088"\n[meta]\ndir = "{folder}/meta"\n'
        f'[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\n[http]\nbind-address = "127.0.0.1:18086"\n'
        "log-enabled = false\n[monitor]\nstore-enabled = false\n"
    )
    url = "http://127.0.0.1:18086"
    with subprocess.Popen([INFLUXD, "-config", config], stderr=subprocess.DEVNULL) as process:
        try:
            give_up = time.monotonic() + INFLUXD_START_S
            while True:
                try:
                    urllib.request.urlopen(f"{url}/ping", timeout=1)
                    break
                except OSError:
                    if time.monotonic() > give_up or process.poll() is not None:
                        raise
                    time.sleep(0.1)
            urllib.request.urlopen(f"{url}/query", data=b"q=CREATE DATABASE bench", timeout=10)
            yield InfluxTarget(url, "bench")
        finally:
            process.terminate()


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "per-sample": per_sample,
    "shares": shares,
    "decoding": decoding,
    "programs": programs,
    "disk": disk,
    "backfill": backfill,
}


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "memory"], help="all of them by default")
    parser.add_argument("--memory-minutes", type=float, default=30)
    args = parser.parse_args()
    chosen = args.parts or [*PARTS, "memory"]
    parts = PARTS | {"memory": lambda: memory(args.memory_minutes)}
    for name in chosen:
        new = list(parts[name]())
        # What else the machine was doing: on a busy one all times are longer.
        new.append(Row(f"{name}: load average at its end", os.getloadavg()[0], "processes"))
        print(to_table(new), flush=True)
        names = {row.name for row in new}
        kept = [Row(**r) for r in json.loads(TARGET.read_text())] if TARGET.exists() else []
        TARGET.write_text(to_json([row for row in kept if row.name not in names] + new))
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
