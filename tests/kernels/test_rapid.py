"""TCP Rapid in a kernel of its own: its gaps, what it finds on a path, and that it can be unloaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import uml

from playbooks import REPOSITORY

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
SOURCE = REPOSITORY / "modules" / "tcp_rapid"
CAPACITY = 100e6 * 1448 / 1514  # of payload, bit/s, on Ethernet of 100 Mbit/s
TRACED = re.compile(r" ([0-9.]+): (pstream|sample): (.*)$")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uml.build_module(SOURCE, tmp_path_factory.mktemp("module"))


@dataclass(frozen=True)
class Traced:
    """What the module told: of each p-stream, and of each gap."""

    streams: pl.DataFrame
    samples: pl.DataFrame
    said: str


def transfer(
    module: Path,
    work: Path,
    *,
    seconds: int,
    virtual: bool = True,
    rate_mbit: int = 100,
    cross_mbit: float = 0,
    delay_ms: int = 20,
    parameters: str = "",
    samples: bool = False,
    also: str = "",
) -> Traced:
    """One flow over the path of path.sh, to which `also` may do more."""
    (work / module.name).write_bytes(module.read_bytes())
    cross = f"ip netns exec router $within cbr 198.18.2.11 {cross_mbit} {seconds + 1} &" if cross_mbit else ""
    said = uml.run(
        f"""
        HERE={HERE} RATE_MBIT={rate_mbit} QUEUE=200 BURST=1600 DELAY_MS={delay_ms}
        . $HERE/path.sh
        {also}
        insmod ./{module.name} {parameters}
        cd /sys/kernel/tracing
        echo mono >trace_clock
        echo {64_000 if samples else 8_000} >buffer_size_kb
        echo 1 >events/rapid/pstream/enable
        echo {int(samples)} >events/rapid/sample/enable
        cd /mnt/work
        {cross}
        ip netns exec receiver iperf3 --server --one-off >/dev/null &
        sleep 0.5
        ip netns exec sender iperf3 -c 198.18.2.11 -C rapid -t {seconds} --json >iperf3.json &
        client=$!
        sleep {seconds / 2}
        ip netns exec sender ss -tin dst 198.18.2.11
        ip netns exec receiver ss -tin src 198.18.2.11
        wait $client
        cat /sys/kernel/tracing/trace >trace
        tc -n router -s qdisc show dev right
        """,
        work,
        virtual=virtual,
        memory="768M",
    )
    trace = (work / "trace").read_text()
    assert "entries-in-buffer" in trace
    rows: dict[str, list[dict[str, object]]] = {"pstream": [], "sample": []}
    for line in trace.splitlines():
        if not (found := TRACED.search(line)):
            continue
        words = dict(word.split("=") for word in found[3].split())
        row: dict[str, object] = {k: int(v) if v.isdigit() else v for k, v in words.items()}
        rows[found[2]].append({"time_s": float(found[1]), **row})
    return Traced(pl.DataFrame(rows["pstream"]), pl.DataFrame(rows["sample"]), said)


def settled(traced: Traced) -> pl.DataFrame:
    """P-streams after slow start and the rise: of the second half of the transfer."""
    time_s = traced.streams["time_s"]
    middle = (time_s.min() + time_s.max()) / 2  # type: ignore[operator]
    return traced.streams.filter(pl.col("time_s") > middle)


@pytest.fixture(scope="module")
def idle(module: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Ten seconds alone on a path of 100 Mbit/s in virtual time."""
    return transfer(module, tmp_path_factory.mktemp("idle"), seconds=10, samples=True)


def test_gaps_are_sent_as_planned(idle: Traced) -> None:
    """Exactly in virtual time, but that timestamps are whole microseconds."""
    singles = idle.samples.filter(pl.col("bytes") == 1448)
    assert len(singles) > 0.9 * len(idle.samples)
    error_us = (singles["sent_ns"] - singles["planned_ns"]) / 1000
    print(error_us.describe(percentiles=[0.05, 0.5, 0.95]))
    assert -2 < error_us.quantile(0.05) <= error_us.quantile(0.95) < 2  # type: ignore[operator]


def test_the_bandwidth_of_an_idle_path_is_found(idle: Traced) -> None:
    streams = settled(idle)
    print(streams.describe())
    assert (streams["verdict"] == "estimated").mean() > 0.9  # type: ignore[operator]
    assert streams["available_bps"].median() == pytest.approx(CAPACITY, rel=0.1)
    assert streams["rate_bps"].median() == pytest.approx(CAPACITY, rel=0.1)


def test_half_of_it_is_found_where_half_is_taken(module: Path, tmp_path: Path) -> None:
    streams = settled(transfer(module, tmp_path, seconds=10, cross_mbit=50))
    print(streams.describe())
    assert streams["available_bps"].median() == pytest.approx(CAPACITY / 2, rel=0.1)
    assert streams["rate_bps"].median() == pytest.approx(CAPACITY / 2, rel=0.1)


@pytest.mark.parametrize("policy", [0, 2])
def test_single_losses_take_no_bandwidth(module: Path, tmp_path: Path, policy: int) -> None:
    """Of 0.1 %: on a path of 20 ms Reno would have 15 Mbit/s."""
    loss = "tc -n sender qdisc add dev out root netem loss 0.1% delay 1ms limit 10000"
    traced = transfer(module, tmp_path, seconds=8, also=loss, parameters=f"loss_policy={policy}")
    streams = settled(traced)
    assert streams["rate_bps"].median() == pytest.approx(CAPACITY, rel=0.1)
    assert streams.filter(pl.col("ca_state") >= 3, verdict="estimated").is_empty() == (policy == 0)


@pytest.mark.parametrize(
    ("verdict", "also"),
    [
        ("clock", "ip -n receiver route replace 198.18.1.0/24 via 198.18.2.1 dev in quickack 1"),
        ("bursts", "tc -n sender qdisc add dev out root fq"),
    ],
)
def test_what_it_needs_and_does_not_have_is_named(
    module: Path, tmp_path: Path, verdict: str, also: str
) -> None:
    streams = settled(transfer(module, tmp_path, seconds=4, also=also))
    assert streams["verdict"].unique().to_list() == [verdict]


def test_values_that_mean_nothing_are_refused(module: Path, tmp_path: Path) -> None:
    (tmp_path / module.name).write_bytes(module.read_bytes())
    unknown = "packets=1 packets=1025 levels=0 spread_permille=999 eta=0 spike_us=1000001 alpha_shift=32"
    unknown += " excursion=0 estimator=2 denoise=4 gap_floor=2 loss_policy=3 min_kbit=7 loss_policy=-1"
    uml.run(
        f"""
        for given in {unknown}; do
            insmod ./{module.name} $given && exit 1
        done
        insmod ./{module.name} loss_policy=2
        cd /sys/module/tcp_rapid/parameters
        for given in {unknown}; do
            echo ${{given#*=}} >${{given%=*}} && exit 1
        done
        [ "$(cat packets levels loss_policy | xargs)" = "64 16 2" ]
        """,
        tmp_path,
        virtual=True,
    )


def test_sockets_tell_the_estimate(idle: Traced) -> None:
    assert re.search(r"bbr:\(bw:(9\d|10\d)\d{6}bps,mrtt:20[0-9.]*,pacing_gain:[01]", idle.said), idle.said


def test_it_can_be_swapped_and_unloaded_under_traffic(tmp_path: Path) -> None:
    module = uml.build_module(SOURCE, tmp_path, uml.DEBUG)
    said = uml.run(
        f"/usr/bin/python3 {HERE}/within.py swap ./{module.name} 1000",
        tmp_path,
        virtual=False,
        kernel=uml.DEBUG,
        timeout_s=3600,
    )
    print(said)
    assert int(said.split()[-1]) < 4096
