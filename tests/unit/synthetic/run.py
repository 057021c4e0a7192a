"""Write the directory of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dumbbell.plan import Phase, Plan, Point, plan
from dumbbell.plan.actions import CaptureAction, PathAction, PhaseHost
from synthetic import told
from synthetic.constants import CHANGE_LATE_NS, CHANGE_TOOK_NS, REPOSITORY, RUN_ID, T0_UNIX_NS
from synthetic.fluid import Fluid, simulate
from synthetic.hosts import inventory, settings_read, state_read
from synthetic.reports import flows_told, write_datagrams, write_pings
from synthetic.rows import samples
from synthetic.spool import write_spool


def write_points(run_dir: Path, scenario: Path) -> Plan:
    """Write directories of all points of a scenario, one after the other."""
    whole = plan(scenario, inventory())
    for number in range(len(whole.points)):
        write_run(run_dir / "points" / f"{number + 1:03}", scenario, number)
    return whole


Measured = Callable[[Point, Phase, str], Iterable[str]]  # rows of a host


def write_run(
    run_dir: Path,
    scenario: Path = REPOSITORY / "tests/unit/fixtures/iperf3/two_flow_fairness.yml",
    point: int = 0,
    measured: Measured | None = None,
) -> Plan:
    """Write ``scenario.yml``, ``plan.json`` and ``raw/`` of a run in which everything went as asked.

    ``measured`` gives what a host sampled in the measurement, in place of the fluid model.
    """
    run_dir.mkdir(parents=True)
    whole = plan(scenario, inventory())
    planned = whole.points[point]
    whole = whole.model_copy(update={"points": [planned]})
    (run_dir / "scenario.yml").write_bytes(scenario.read_bytes())
    (run_dir / "plan.json").write_bytes(whole.to_json())
    states = ("planned", "preparing", "calibrating", "armed", "running", "collecting")
    transitions = [
        {
            "unix_ns": T0_UNIX_NS["calibration"] + 8_000_000_000 * (i - 2),
            "event": "state",
            "state": s,
            "reason": "",
        }
        for i, s in enumerate(states)
    ]
    (run_dir / "events.jsonl").write_text("".join(json.dumps(t) + "\n" for t in transitions))
    assert planned.path
    forward, rtt_s = planned.path.forward, planned.path.rtt_ns / 1e9
    fluids = [
        None
        if measured and phase.phase == "measurement"
        else simulate(phase.flows, forward, rtt_s, phase.duration_ns / 1e9, whole.seed)
        for phase in planned.phases
    ]
    for host, detail in planned.hosts.items():
        raw = run_dir / "raw" / host
        raw.mkdir(parents=True)
        router = "routers" in detail.groups
        (raw / "state.json").write_text(json.dumps(state_read(planned, host, router=router)))
        for phase, fluid in zip(planned.phases, fluids, strict=True):
            if host in phase.hosts:
                rows: Iterable[str] = ()
                if measured and fluid is None:
                    rows = measured(planned, phase, host)
                elif fluid and phase.hosts[host].writes_rows:
                    rows = samples(planned, phase, host, T0_UNIX_NS[phase.phase], fluid)
                _write_phase(raw / phase.phase, planned, phase, host, rows, fluid=fluid)
                if phase.phase == "measurement":
                    read = json.dumps(settings_read(planned, phase, host))
                    (raw / phase.phase / "observed.json").write_text(read)
    return whole


def _write_phase(
    folder: Path, planned: Point, phase: Phase, host: str, rows: Iterable[str], *, fluid: Fluid | None
) -> None:
    folder.mkdir()
    t0 = T0_UNIX_NS[phase.phase]
    own = phase.hosts[host]
    part = phase.model_dump() | {"run_id": RUN_ID, "holder": RUN_ID, "point": planned.id, "host": host}
    (folder / "plan.json").write_text(json.dumps(part))
    (folder / "start.json").write_text(json.dumps({"t0_unix_ns": t0}))
    end = t0 + phase.duration_ns
    ended = max(end, t0 + (own.restore_ns or 0))
    status = {
        "state": "done",
        "reason": "",
        "unix_ns": ended + 2_000_000,
        "version": "0.1.0",
        "lead_ns": 3_500_000_000,
        "iperf3": "iperf 3.12",
    }
    (folder / "status.json").write_text(json.dumps(status))

    events = list(told.launched(phase, host, own, t0))
    events += flows_told(folder, planned, phase, host, fluid=fluid)
    events += _changes_made(own, t0)
    for action in own.actions:
        if isinstance(action, PathAction):
            (folder / f"path-{action.name}.txt").touch()
        if isinstance(action, CaptureAction):
            (folder / f"capture-{action.name}.pcap").write_bytes(b"pcap")
    common = f"phase={phase.phase},point={planned.id},run={RUN_ID}"
    devices = ["vec1", "vec2"] if host == "router" else ["vec1"]
    rows = [*rows, *told.rows(phase, host, common, t0, devices)]
    write_spool(folder / "spool.lp", rows)
    events += _sampling_ended(phase, own, end)
    for action in own.actions:
        if isinstance(action, CaptureAction):
            counts = {"name": action.name, "packets": 9_500, "dropped": 0}
            events.append({"unix_ns": end, "event": "capture"} | counts)
    none = {"unix_ns": end, "event": "strangers", "packets": 0, "first": "", "open": []}
    events += [none] if own.waits else []
    watched = {"steps": 0, "largest_step_ns": 0, "drift_ns": 12_000}
    events.append({"unix_ns": end, "event": "clock_watched"} | watched)
    events.append({"unix_ns": ended + 1_000_000, "event": "done"})
    text = "".join(json.dumps({"mono_ns": e["unix_ns"] - t0 + 10**12} | e) + "\n" for e in events)
    (folder / "events.jsonl").write_text(text)
    for flow in phase.flows:
        if flow.kind == "udp":
            write_datagrams(folder, planned, flow, host, t0)
    write_pings(folder, planned, own, t0)


def _sampling_ended(phase: Phase, own: PhaseHost, end: int) -> Iterator[dict[str, Any]]:
    """What an agent says of its samples at the end."""
    ticks = (phase.duration_ns + told.LEAD_NS) // phase.sampling_interval_ns
    if ticks:
        sampler = {"sampled": ticks - 1, "ticks": ticks, "missed": 1}
        interval_ns = phase.sampling_interval_ns * 100_012 // 100_000
        achieved = {"achieved_interval_ns": interval_ns, "late_max_ns": 3_100_000}
        yield {"unix_ns": end, "event": "sampler"} | sampler | achieved
    kinds = {flow.name: flow.kind for flow in phase.flows}
    if any(kinds[name] not in ("http", "atou") for name in own.sample.tcp):
        yield {"unix_ns": end, "event": "finals", "open": 0, "lost": 0}
    if own.sample.trace:
        yield {"unix_ns": end, "event": "trace", "records": 1000, "lost": 0}


def _changes_made(own: PhaseHost, t0: int) -> Iterator[dict[str, Any]]:
    for action in own.actions:
        if isinstance(action, PathAction):
            at = t0 + action.at_ns
            made = {"error_ns": CHANGE_LATE_NS, "took_ns": CHANGE_TOOK_NS, "planned_unix_ns": at, "ok": True}
            yield {"unix_ns": at + CHANGE_LATE_NS, "event": "path_changed", "name": action.name} | made
    if own.restore_ns is not None:
        yield {"unix_ns": t0 + own.restore_ns, "event": "path_restored", "ok": True}
