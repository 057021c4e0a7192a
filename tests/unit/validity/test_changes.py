from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import Damage, assert_invalid, drops, edit, events, held, removed, state
from synthetic import T0_UNIX_NS, write_spool

from dumbbell.execution.collect import collect
from dumbbell.run.record import read_jsonl


def change(name: str, /, **changed: Any) -> Damage:
    """What the router's agent says of one change."""

    def alter(run_dir: Path) -> None:
        path = run_dir / "raw/router/measurement/events.jsonl"
        events = [e | (changed if e.get("name") == name else {}) for e in read_jsonl(path)]
        path.write_text("".join(json.dumps(e) + "\n" for e in events))

    return alter


def unsampled(run_dir: Path) -> None:
    """Of the second change on there are no samples."""
    spool = run_dir / "raw/router/measurement/spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    write_spool(spool, [row for row in rows if int(row.split()[-1]) < T0_UNIX_NS["measurement"] + 9 * 10**9])


TCP_PROBE = "raw/sender2/calibration/tcp-ping-far.{}.json"
UDP_PROBE = "raw/receiver2/calibration/udp-datagrams.{}-receiver.json"


def answers(probe: str, change: Callable[[list[int]], list[int]]) -> Damage:
    return lambda run_dir: edit(
        run_dir / TCP_PROBE.format(probe), lambda found: found.update(rtts_ns=change(found["rtts_ns"]))
    )


def datagrams(probe: str, **counts: int) -> Damage:
    return lambda run_dir: edit(run_dir / UDP_PROBE.format(probe), lambda found: found.update(counts))


def last_socket(after_s: float) -> Damage:
    """The last row of a sender is that of its socket's end, at a time since t0."""

    def alter(run_dir: Path) -> None:
        spool = run_dir / "raw/sender1/measurement/spool.lp"
        rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        last = max(i for i, row in enumerate(rows) if row.startswith("tcp_info,"))
        fields = rows[last].rpartition(" ")[0].replace(",final=true", "")
        rows[last] = f"{fields},final=true {T0_UNIX_NS['measurement'] + round(after_s * 1e9)}"
        write_spool(spool, rows)

    return alter


CHANGING_INVALID: dict[str, tuple[Damage, str]] = {
    "a change was late": (
        change("forward-1", error_ns=560_000_000),
        "router forward from 6 s: time after which the path was as changed is 562 ms, more than 500 ms",
    ),
    "a change took long": (
        change("forward-2", took_ns=570_000_000),
        "router forward from 9 s: time after which the path was as changed is 571 ms, more than 500 ms",
    ),
    "a change failed": (
        change("forward-1", ok=False, reason="Command failed -:1"),
        "router forward from 6 s: time after which the path was as changed not known: Command failed -:1",
    ),
    "nobody knows of a change": (
        change("forward-2", name="forward-9"),
        "router forward from 9 s: time after which the path was as changed not known: the agent says nothing",
    ),
    "the rate stayed": (
        held("tc_class,", "rate_bps=10000000i", "rate_bps=20000000i"),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "the rate came back before its time": (
        held("tc_class,", "rate_bps=10000000i", "rate_bps=20000000i", after_s=8.5),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "the delay was changed for others alone": (
        held("parent=1:3", r"delay_ns=\d+i", "delay_ns=30000000i"),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "something loses packets": (
        held("kind=netem", "loss=0.0", "loss=0.01", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "something duplicates packets": (
        held("kind=netem", "duplicate=0", "duplicate=0.5", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "the queue has another limit": (
        held("kind=pfifo", "limit_packets=34i", "limit_packets=17i", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "the path came back while the flows ran": (
        events("router", "path_restored", unix_ns=T0_UNIX_NS["measurement"] + 11_950_000_000),
        "router: the path was restored at 11.95 s, while flows may still have met it: asked 12 s or later",
    ),
    "the path came back while a flow ended": (
        last_socket(19),
        "router: the path was restored at 15 s, while flows may still have met it: asked 19 s or later",
    ),
    "the path never came back": (
        events("router", "path_restored", event="nothing"),
        "router: when the path was restored is not known: the agent says nothing of it",
    ),
    "nobody looked": (
        unsampled,
        "router forward from 9 s: emulated path not known: the router's queues were not sampled",
    ),
    "nobody knows where the path is": (
        state("router", lambda s: s["path"].pop("devices")),
        "router forward from 6 s: emulated path not known: the router's queues were not sampled",
    ),
    "a filter is missing": (
        state("router", lambda s: s["path"]["forward"]["flows"].pop()),
        "router forward: emulated path: asked ",
    ),
    "a filter has another delay": (
        state("router", lambda s: s["path"]["forward"]["flows"][0].update(delay_us=20_000)),
        "router forward: emulated path: asked ",
    ),
    "a flow has no delay of its own": (
        answers("delayed", lambda rtts: [rtt - 30_000_000 for rtt in rtts]),
        "far tcp: idle RTT is 20.1 ms, asked 50 ms ± 5 ms",
    ),
    "others have it too": (
        answers("plain", lambda rtts: [rtt + 30_000_000 for rtt in rtts]),
        "far tcp: idle RTT is 20.1 ms, asked 50 ms ± 5 ms",
    ),
    "few answers": (
        answers("plain", lambda rtts: rtts[:30]),
        "far tcp: idle RTT not known: too few packets of the probes of its delay came through",
    ),
    "no probe of TCP": (removed(TCP_PROBE.format("delayed")), "far tcp: idle RTT not known: too few packets"),
    "a flow of datagrams has no delay of its own": (
        datagrams("delayed", delay_min_ns=9_300_000),
        "datagrams udp: idle RTT is 20.1 ms, asked 40 ms ± 4 ms",
    ),
    "few datagrams": (
        datagrams("delayed", received_packets=50, lost_packets=1),
        "datagrams udp: idle RTT not known: too few packets of the probes of its delay came through",
    ),
    "no probe of UDP": (removed(UDP_PROBE.format("plain")), "datagrams udp: idle RTT not known: too few"),
    "the pair has no idle RTT": (
        removed("raw/sender2/calibration/ping-sender2-receiver2.txt"),
        "far tcp: idle RTT not known: its pair has none",
    ),
}


def test_a_path_that_changed_as_asked(changing: Path) -> None:
    verdict = collect(changing, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    late = {check.subject: check.measured for check in verdict.checks if check.name == "path change"}
    assert late == {"router forward from 6 s": 3_000_000, "router forward from 9 s": 3_000_000}
    rtts = {check.subject: check.measured / 1e6 for check in verdict.checks if check.name == "idle RTT"}
    # Clocks of the two ends differ by 0.7 ms.
    expected = {"near tcp": 30.1, "far tcp": 50.1, "datagrams udp": 40.1}
    assert {name: rtts[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("damage", "reason"), CHANGING_INVALID.values(), ids=CHANGING_INVALID.keys())
def test_each_check_of_changes_and_delays_can_fail(changing: Path, damage: Damage, reason: str) -> None:
    damage(changing)
    assert_invalid(changing, reason)


def test_busy_hosts_make_no_delay(changing: Path) -> None:
    """All but one of the packets wait."""
    answers("delayed", lambda rtts: [rtts[0], *(rtt + 80_000_000 for rtt in rtts[1:])])(changing)
    assert collect(changing, None).state == "passed"


@pytest.mark.parametrize("phase", ["calibration", "measurement"])
def test_loss_that_comes_within_a_run_excuses_no_drop_before_it(changing: Path, phase: str) -> None:
    edit(
        changing / "plan.json",
        lambda plan: plan["points"][0]["path"]["forward"]["changes"][1].update(loss=0.05),
    )
    held("dev=vec2,handle=101:", "drops=0i", "drops=5i", after_s=9.5, phase=phase)(changing)
    found = drops(changing)
    assert (found["router forward calibration"] > 0) == (phase == "calibration")
    assert "router forward measurement" not in found
    assert found["router reverse measurement"] == 0
