from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from damage import (
    Damage,
    asked,
    assert_invalid,
    edit,
    edit_rows,
    edit_spool,
    events,
    removed,
    state,
    text,
    together,
)
from synthetic import T0_UNIX_NS, write_spool

from dumbbell.execution.collect import collect


def routes(**options: bool) -> Damage:
    """The one that the first sender has to the other side."""
    there = [{"to": "198.18.2.0/24", "via": "198.18.1.1"} | options]

    def change(found: Any) -> None:
        found["nic"]["vec1"].update(routes=there)
        found["owned"]["vec1 routes"] = [there, there]

    return state("sender1", change)


def gaps(run_dir: Path) -> None:
    """The first flow is of a congestion control that sets the gap after each packet."""
    edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(congestion_control="rapid"),
    )


INVALID: dict[str, tuple[Damage, str]] = {
    "an agent failed": (
        text("raw/sender1/measurement/status.json", '"done", "reason": ""', '"failed", "reason": "no route"'),
        "sender1 measurement: the agent's measurement ended failed: no route",
    ),
    "an agent vanished": (
        removed("raw/receiver1/calibration/status.json"),
        "receiver1 calibration: the agent left no status of calibration",
    ),
    "strangers were not counted": (
        events("receiver1", "strangers", event="x"),
        "receiver1 measurement: packets of strangers to its ports not known: the agent did not count them",
    ),
    "strangers could not be counted": (
        events("receiver1", "strangers", packets=None, reason="socket: operation not permitted"),
        "receiver1 measurement: packets of strangers to its ports not known: socket: operation not permitted",
    ),
    "what came was of no flow": (
        lambda run_dir: edit(
            run_dir / "raw/receiver1/calibration/udp-calibration_rate-receiver.json",
            lambda told: told.update(foreign_packets=10_000),
        ),
        "calibration_rate calibration: 10000 datagrams came that were not its own, of ",
    ),
    "strangers found a port open": (
        events("receiver1", "strangers", packets=3, first="TCP from 1.2.3.4:5", open=["flow1: why"]),
        "receiver1 measurement: 3 packets of strangers came, the first TCP from 1.2.3.4:5, "
        "and a port was open to them: flow1: why",
    ),
    "offloads are on": (
        state("sender1", lambda s: s["nic"]["vec1"]["offloads"].update(tso=True)),
        "sender1 vec1: offloads: asked gro off, gso off, lro off, tso off, found gro off, gso off, lro off, "
        "tso on",
    ),
    "txqueuelen differs": (
        state("router", lambda s: s["nic"]["vec2"].update(txqueuelen=500)),
        "router vec2: txqueuelen: asked 1\N{NARROW NO-BREAK SPACE}000, found 500",
    ),
    "a sysctl was not read": (
        state("receiver1", lambda s: s["sysctl"].clear()),
        "receiver1: net.ipv4.tcp_no_metrics_save not known: nothing was read back",
    ),
    "a sysctl differs": (
        state("receiver1", lambda s: s["sysctl"].update({"net.ipv4.tcp_no_metrics_save": "0"})),
        "receiver1: net.ipv4.tcp_no_metrics_save: asked 1, found 0",
    ),
    "a congestion control is not available": (
        state("sender1", lambda s: s["modules"].update(available=["reno"])),
        "sender1: congestion controls available: asked cubic, found none",
    ),
    "the state was not read": (
        removed("raw/sender1/state.json"),
        "sender1: state of the interfaces not known: nothing was read back",
    ),
    "a core had no time left": (
        lambda run_dir: edit_spool(run_dir, "router", "idle_ms", lambda _: 0),
        "router: share of the time in which a core had no time left is 100 %, more than 10 %",
    ),
    "cores were not sampled": (
        lambda run_dir: edit_rows(
            run_dir, "router", "measurement", lambda row: re.sub("^cpu_core.*", "", row)
        ),
        "router: share of the time in which a core had no time left not known: its cores were not sampled",
    ),
    "another kernel runs": (
        asked("sender1", kernel="6.12.117"),
        "sender1: kernel: asked 6.12.117, found 6.12.0-synthetic",
    ),
    "a module is not loaded": (
        asked("sender1", modules={"tcp_bbr": {}}),
        "sender1: parameters of tcp_bbr not known",
    ),
    "a module's parameter differs": (
        asked("sender1", modules={"tcp_cubic": {"hystart": "0"}}),
        "sender1: parameters of tcp_cubic: asked hystart 0, found hystart 1",
    ),
    "a module's parameter was not read": (
        asked("sender1", modules={"tcp_cubic": {"gain": "3"}}),
        "sender1: parameters of tcp_cubic: asked gain 3, found none",
    ),
    "the MTU differs": (
        asked("receiver1", mtu=9000),
        "receiver1 vec1: mtu: asked 9\N{NARROW NO-BREAK SPACE}000, found 1",
    ),
    "the qdisc differs": (
        asked("sender2", qdisc="fq"),
        "sender2 vec1: qdisc: asked fq, found pfifo_fast",
    ),
    "the qdisc was not read": (
        together(asked("sender2", qdisc="fq"), state("sender2", lambda s: s["nic"]["vec1"].pop("qdisc"))),
        "sender2 vec1: qdisc not known",
    ),
    "fq takes the gaps of a flow": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="fq"))),
        "sender1 vec1: qdisc: found fq; rapid (flow1) sets each gap itself, which fq overrules: ask "
        "pfifo_fast",
    ),
    "fq takes the gaps below mq": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="mq", qdisc_leaves=["fq"]))),
        "sender1 vec1: qdisc: found fq, mq; rapid (flow1) sets each gap itself",
    ),
    "what is below mq was not read": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="mq"))),
        "sender1 vec1: qdiscs below mq not known: nothing was read back",
    ),
    "the qdisc of gaps was not read": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].pop("qdisc"))),
        "sender1 vec1: qdisc not known: nothing was read back",
    ),
    "no interface of gaps was read": (
        together(gaps, state("sender1", lambda s: s.pop("nic"))),
        "sender1: qdisc not known: nothing was read back",
    ),
    "an option of a route differs": (
        together(asked("sender1", routes={"quickack": True, "tcp_usec_ts": True}), routes(quickack=True)),
        "sender1: options of the route to 198.18.2.0/24: asked quickack on, tcp_usec_ts on, found ",
    ),
    "the routes were not read": (
        asked("sender1", routes={"quickack": True}),
        "sender1: options of the routes to the other side not known",
    ),
    "a clock is off": (
        state("sender2", lambda s: s["clock"].update(offset_ns=-49_000_000_000)),
        "sender2: clock offset is -49 s, more than 1 ms",
    ),
    "a clock may have drifted": (
        state("sender2", lambda s: s["clock"].update(root_dispersion_ns=2_500_000)),
        "sender2: clock root dispersion is 2.5 ms, more than 1 ms",
    ),
    "a clock is not synchronised": (
        state("sender2", lambda s: s["clock"].update(synchronised=False)),
        "sender2: clock offset not known: the clock is not synchronised",
    ),
    "a clock was set": (
        events("receiver1", "clock_watched", largest_step_ns=-5_000_000_000),
        "receiver1 measurement: largest step of the clock is -5 s, more than 1 ms",
    ),
    "nobody watched a clock": (
        events("receiver1", "clock_watched", event="x"),
        "receiver1 measurement: largest step of the clock not known",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_validity_check_can_fail(run_dir: Path, damage: Damage, reason: str) -> None:
    damage(run_dir)
    assert_invalid(run_dir, reason)


def test_kernel_modules_and_qdisc_as_asked(run_dir: Path) -> None:
    wanted = {"kernel": "6.12.0-synthetic", "qdisc": "pfifo_fast"}
    asked("sender1", **wanted, modules={"tcp_cubic": {"hystart": "1", "fast": "1"}})(run_dir)
    owned = {f"{name} of tcp_cubic": ["1", "1"] for name in ("hystart", "fast")}
    state("sender1", lambda s: s["owned"].update(owned))(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons
    found = {check.name: check.measured for check in verdict.checks if check.subject.startswith("sender1")}
    assert wanted.items() <= found.items()
    assert found["module tcp_cubic"] == {"hystart": "1", "fast": "1"}


def test_strangers_that_were_kept_out_are_counted(run_dir: Path) -> None:
    came = {"packets": 10_000, "first": "TCP from 198.18.1.12:40000 to 198.18.2.11:5201"}
    events("receiver1", "strangers", **came)(run_dir)
    events("receiver2", "strangers", open=["flow2: why"])(run_dir)  # to which nobody came
    edit(
        run_dir / "raw/receiver1/calibration/udp-calibration_rate-receiver.json",
        lambda told: told.update(foreign_packets=5),
    )
    verdict = collect(run_dir, None)
    assert verdict.state == "passed"
    found = {c.subject: c.measured for c in verdict.checks if c.name == "strangers"}
    assert found == {
        "receiver1 calibration": 5,
        "receiver1 measurement": 10_000,
        "receiver2 measurement": 0,
    }


@pytest.mark.parametrize("found", [{}, {"qdisc": "mq", "qdisc_leaves": ["fq_codel"]}])
def test_gaps_are_a_flow_s_own_but_under_fq(run_dir: Path, found: dict[str, Any]) -> None:
    together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(found)))(run_dir)
    (check,) = (check for check in collect(run_dir, None).checks if check.name == "gaps")
    assert (check.subject, check.ok) == ("sender1 vec1", True)


def test_options_of_routes_as_asked(run_dir: Path) -> None:
    together(asked("sender1", routes={"quickack": True, "tcp_usec_ts": False}), routes(quickack=True))(
        run_dir
    )
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons
    (check,) = (check for check in verdict.checks if check.name == "route")
    assert check.measured == {"quickack": True, "tcp_usec_ts": False}


def moved(run_dir: Path, host: str, *names: str) -> None:
    """Counters of a host's stack that grew by 500 in the first second of the measurement."""
    spool, t0 = run_dir / f"raw/{host}/measurement/spool.lp", T0_UNIX_NS["measurement"]
    rows = [row for row in spool.read_text().splitlines() if not row.startswith("#")]
    tags = next(row for row in rows if row.startswith("snmp,")).split()[0]
    for name in names:
        own = re.sub(r"name=\w+", f"name={name}", tags)
        rows.append(f"{own} total=5i,mono_ns={10**12}i {t0}")
        grown = "delta=500i,interval_ns=1000000000i"
        rows.append(f"{own} total=505i,{grown},mono_ns={10**12 + 10**9}i {t0 + 10**9}")
    write_spool(spool, rows)


@pytest.mark.parametrize(("came", "told"), [(0, ["receiver1: UdpInErrors grew by 500"]), (500, [])])
def test_datagrams_of_strangers_are_no_errors(run_dir: Path, came: int, told: list[str]) -> None:
    moved(run_dir, "receiver1", "UdpInErrors")
    first = "UDP from 198.18.1.12:40000 to 198.18.2.11:5201" if came else ""
    events("receiver1", "strangers", packets=came, first=first)(run_dir)
    assert collect(run_dir, None).reasons == told


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["TcpInErrs"], ["receiver1: TcpInErrs grew by 500"]),
        (["TcpInErrs", "TcpExtTCPSYNChallenge"], []),  # a SYN-ACK that was sent again
    ],
)
def test_what_tcp_refuses_is_an_error_unless_it_is_challenged(
    run_dir: Path, names: list[str], told: list[str]
) -> None:
    moved(run_dir, "receiver1", *names)
    assert collect(run_dir, None).reasons == told
