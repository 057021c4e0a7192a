"""Measure how fast atou sends over loopback, and how exactly at a gap of 100 us. Writes bench/atou.json.

By turns with peers, on this machine, which should be doing nothing else: iperf3's UDP, datagram by datagram
like the precise mode, and bulk transfer by quic-go, in trains like the bulk mode. Ratios are of one turn.
"""

from __future__ import annotations

import argparse
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench import Row, publish

ATOU = Path(".build/bin/atou")
QUIC = Path(".build/bin/bench-quic")
TARGET = Path("bench/atou.json")
START_S = 10
MSS = 1448
GAP_US = 100
SENDER = f"host 127.0.0.1\nmss {MSS}\nrcvrwin 2000\nsndbuf 4000000\nrcvbuf 16000000\nmaxpkts 0\n"
RECEIVER = "rcvbuf 16000000\n"
BULK_BPS, PRECISE_BPS, LATE_SPREAD_US = ">= 5", ">= 1", "<= 10"


def free_port() -> int:
    """A UDP port that nobody has just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A server that is ended at the end."""
    with subprocess.Popen(command, text=True, **options) as server:
        try:
            yield server
        finally:
            server.terminate()


class Atou:
    """A receiver of atou on loopback."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds, self._port = folder, seconds, free_port()
        self._token = folder / "token"
        self._token.touch(mode=0o600)
        self._token.write_text(secrets.token_hex(32))
        self._receiver = folder / "receiver.conf"
        self._receiver.write_text(f"port {self._port}\n{RECEIVER}")

    @contextmanager
    def served(self) -> Iterator[None]:
        """The receiver runs."""
        ready = self._folder / "ready"
        command: list[str | Path] = [ATOU, "serve", "--token-file", self._token, "--listen", "127.0.0.1"]
        command += ["--ready", ready, self._receiver]
        with serving(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            wait_for(ready)
            yield

    def send(self, mode: str, *flags: str | Path, gap_us: int = 0) -> dict[str, Any]:
        """What a transfer of some seconds says of itself."""
        config, result = self._folder / "sender.conf", self._folder / "result.json"
        config.write_text(f"port {self._port}\n{SENDER}maxtime {self._seconds}\ngap {gap_us}\n")
        command: list[str | Path] = [ATOU, "send", "--token-file", self._token, "--mode", mode]
        command += [*flags, "--json", result, config]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return dict(json.loads(result.read_text()))


def wait_for(path: Path) -> None:
    """Until a file is there; TimeoutError if it does not come."""
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is not there after {START_S} s")
        time.sleep(0.01)


def iperf3_bps(seconds: float) -> float:
    """Bit/s that iperf3's receiver got of UDP datagrams sent as fast as they go."""
    port = str(free_port())
    server = ["iperf3", "--server", "--one-off", "--port", port, "--forceflush"]
    client = ["iperf3", "--client", "127.0.0.1", "--port", port, "--udp", "--bitrate", "0", "--json"]
    with serving(server, stdout=subprocess.PIPE) as running:
        assert running.stdout
        while "listening" not in running.stdout.readline():
            pass
        done = subprocess.run(
            [*client, "--length", str(MSS), "--time", f"{seconds:.0f}"],
            check=True,
            capture_output=True,
            text=True,
        )
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"])


def quic_bps(seconds: float) -> float:
    """Bit/s that a receiver got over a stream of quic-go."""
    with serving([QUIC, "serve"], stdout=subprocess.PIPE) as server:
        assert server.stdout
        address = server.stdout.readline()
        subprocess.run([QUIC, f"{seconds}s"], check=True, input=address, text=True)
        return float(server.stdout.readline())


@dataclass
class Turn:
    """One measurement of each: goodput in Gbit/s, lateness of departures in us."""

    bulk: float
    precise: float
    traced: float
    lost_lines: int
    iperf3: float
    quic: float
    late_p5: float
    late_p95: float
    late_p99: float
    late_share: float


def turn(atou: Atou, seconds: float) -> Turn:
    """Measure each once."""
    with atou.served():
        bulk, precise = (atou.send(mode)["goodput_bps"] / 1e9 for mode in ("bulk", "precise"))
        traced = atou.send("precise", "--trace", "/dev/null")
        paced = atou.send("precise", gap_us=GAP_US)
    late = paced["departures"]
    return Turn(
        bulk=bulk,
        precise=precise,
        traced=traced["goodput_bps"] / 1e9,
        lost_lines=traced["lost_lines"],
        iperf3=iperf3_bps(seconds) / 1e9,
        quic=quic_bps(seconds) / 1e9,
        late_p5=late["late_p5_ns"] / 1e3,
        late_p95=late["late_p95_ns"] / 1e3,
        late_p99=late["late_p99_ns"] / 1e3,
        late_share=late["segments"] / (seconds * 1e6 / GAP_US),
    )


def rows(turns: list[Turn]) -> Iterator[Row]:
    """Medians over the turns."""

    def median(name: str, values: Iterator[float], unit: str, target: str | None = None) -> Row:
        return Row.median(name, list(values), unit, target)

    yield median("atou, bulk: goodput", (t.bulk for t in turns), "Gbit/s", BULK_BPS)
    yield median("atou, precise: goodput", (t.precise for t in turns), "Gbit/s", PRECISE_BPS)
    yield median("iperf3, UDP: received", (t.iperf3 for t in turns), "Gbit/s")
    yield median("quic-go, one stream: goodput", (t.quic for t in turns), "Gbit/s")
    yield median("atou, bulk / quic-go", (t.bulk / t.quic for t in turns), "x")
    yield median("atou, precise / iperf3", (t.precise / t.iperf3 for t in turns), "x")
    yield median("atou, precise with a trace / without", (t.traced / t.precise for t in turns), "x")
    yield median("atou, precise with a trace: lines lost", (float(t.lost_lines) for t in turns), "1")
    gap = f"atou, gap {GAP_US} us: a departure is late"
    yield median(f"{gap}, p5", (t.late_p5 for t in turns), "us")
    yield median(f"{gap}, p95", (t.late_p95 for t in turns), "us")
    yield median(f"{gap}, p99", (t.late_p99 for t in turns), "us")
    yield median(f"{gap}, p95 - p5", (t.late_p95 - t.late_p5 for t in turns), "us", LATE_SPREAD_US)
    share = f"atou, gap {GAP_US} us: departures that waited for their time / scheduled"
    yield median(share, (t.late_share for t in turns), "x")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path, default=TARGET)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        turns = []
        for number in range(args.turns):
            place = Path(folder) / str(number)
            place.mkdir()
            turns.append(turn(Atou(place, args.seconds), args.seconds))
            print(turns[-1], file=sys.stderr)
    publish(list(rows(turns)), args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
