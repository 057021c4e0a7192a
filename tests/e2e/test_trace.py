"""Runs that are traced, on hosts whose kernel has tracepoints, and on those whose kernel has none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from lab import Lab
from runs import Finished, run, run_in_time

from playbooks import ansible_playbook, unfolded

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parent
OPEN, RECOVERY = 0, 3  # TCP_CA_* of the kernel's tcp.h


def measured(run: Finished, name: str) -> pl.DataFrame:
    return run.table(name).filter(phase="measurement")


def variable(run: Finished, name: str, flow: str) -> tuple[int, set[str]]:
    """Sum over the connections that send a flow, and the grades of what was added."""
    rows = measured(run, "web100").filter(pl.col(name).is_not_null(), flow=flow, side="sender")
    return int(rows[name].sum()), set(rows["grade"])


def queue_drops(run: Finished, host: str) -> int:
    """Packets that queues of a host have dropped, by the trace."""
    rows = measured(run, "drops").filter(pl.col("reason").str.starts_with("QDISC_"), host=host)
    return int(rows["delta"].sum())


def passed(scenario: str, folder: Path) -> Finished:
    done = run_in_time(FOLDER / scenario, folder)
    verdict = done.json("verdict.json")
    assert verdict["state"] == "passed", verdict["reasons"]
    return done


# --- a kernel without tracepoints -----------------------------------------------------------------


def test_hosts_that_cannot_be_traced_are_named_and_left_alone(lab: Lab, tmp_path: Path) -> None:
    if "tracefs" in lab.ssh("sender1", "cat /proc/filesystems"):
        pytest.skip("the hosts of this lab run a kernel that can be traced")
    before = lab.ssh(
        "sender1", "sysctl net.ipv4.tcp_no_metrics_save; ethtool -k vec1; ls /var/lib/dumbbell/runs"
    )
    refused = run(FOLDER / "traced.yml", tmp_path)
    verdict = refused.json("verdict.json")
    assert verdict["state"] == "aborted"
    reason = "it is asked for trace; trace: kernel tracing is not available: this kernel has no tracefs"
    for host in ("sender1", "receiver2", "router"):
        assert any(said.startswith(f"{host}: ") and reason in said for said in verdict["reasons"]), verdict
    assert "Traceback" not in refused.output
    after = lab.ssh(
        "sender1", "sysctl net.ipv4.tcp_no_metrics_save; ethtool -k vec1; ls /var/lib/dumbbell/runs"
    )
    assert after == before

    code, said = ansible_playbook(
        "playbooks/check.yml", "-e", f"scenario={FOLDER / 'traced.yml'}", timeout_s=300
    )
    assert code != 0
    assert reason in unfolded(said)


# --- a kernel with them ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced(own_kernel: Lab, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return passed("traced.yml", tmp_path_factory.mktemp("traced"))


@pytest.mark.kernels
def test_every_row_is_in_influxdb(traced: Finished) -> None:
    rows = traced.json("manifest.json")["rows"]
    for name in ("tcp_probe", "tcp_event", "drops", "trace", "web100"):
        assert rows["influxdb"][name]["stored"] == rows["spooled"][name] > 0, name


@pytest.mark.kernels
def test_no_record_is_lost(traced: Finished) -> None:
    lost = {
        c["subject"]: c["measured"]
        for c in traced.json("verdict.json")["checks"]
        if c["name"] == "trace records lost"
    }
    assert lost == dict.fromkeys(("sender1", "sender2", "receiver1", "receiver2", "router"), 0)


@pytest.mark.kernels
def test_drops_at_the_router_have_their_reason(traced: Finished) -> None:
    counters = measured(traced, "qdisc").filter((pl.col("host") == "router") & (pl.col("parent") != "root"))
    dropped = (
        counters.group_by("dev", "handle").agg(pl.col("drops").max() - pl.col("drops").min())["drops"].sum()
    )
    assert dropped > 0
    assert queue_drops(traced, "router") == dropped
    for sender in ("sender1", "sender2"):
        assert queue_drops(traced, sender) == 0


@pytest.mark.kernels
def test_what_is_traced_is_what_the_kernel_counts(traced: Finished) -> None:
    sending = measured(traced, "tcp_info").filter(pl.col("side") == "sender")
    events = measured(traced, "tcp_event").filter(pl.col("side") == "sender").sort("unix_ns")
    for flow in ("flow1", "flow2"):
        again = sending.filter(pl.col("flow") == flow)["total_retrans"].max()
        own = events.filter(pl.col("flow") == flow)
        assert isinstance(again, int)
        # Several segments may go as one.
        assert 0 < own.filter(pl.col("event") == "retransmit").height <= again
        states = [OPEN, *own.filter(pl.col("event") == "ca_state")["ca_state"]]
        entered = sum(now == RECOVERY != before for before, now in pairwise(states))
        assert variable(traced, "FastRetran", flow) == (entered, {"exact"})
        assert variable(traced, "DupAcksIn", flow)[0] >= entered > 0
        assert variable(traced, "CongestionSignals", flow)[0] >= entered
        assert variable(traced, "SendStall", flow) == (0, {"approximate"})  # a router's drops are none


@pytest.fixture
def narrow(own_kernel: Lab) -> Iterator[Lab]:
    """The first sender's device slow, its queue ten packets: by itself User-Mode Linux's is never full."""
    length = own_kernel.ssh("sender1", "cat /sys/class/net/vec1/tx_queue_len").strip()
    for command in (
        "ip link set vec1 txqueuelen 10",  # before the class, whose queue has that length
        "tc qdisc replace dev vec1 root handle 1: htb default 1",
        "tc class replace dev vec1 parent 1: classid 1:1 htb rate 20mbit",
    ):
        own_kernel.ssh("sender1", command)
    yield own_kernel
    own_kernel.ssh("sender1", f"tc qdisc delete dev vec1 root; ip link set vec1 txqueuelen {length}")


@pytest.mark.kernels
def test_a_sender_whose_own_queue_drops_has_stalls(narrow: Lab, tmp_path: Path) -> None:
    done = passed("stalls.yml", tmp_path)
    queues = json.loads(narrow.ssh("sender1", "tc -s -j qdisc show dev vec1"))
    dropped = sum(queue["drops"] for queue in queues)
    stalls, _ = variable(done, "SendStall", "stalled")
    assert 0 < stalls <= dropped
    assert queue_drops(done, "sender1") == dropped
    assert queue_drops(done, "router") == 0
    assert variable(done, "SendStall", "plain")[0] == 0
    assert variable(done, "CongestionSignals", "stalled")[0] >= stalls
