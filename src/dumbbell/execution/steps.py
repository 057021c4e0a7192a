"""The steps of a point on one host, and the check before them, in the order of ``roles/run/tasks``.

Each step gets the point as the host sees it, and returns the host's answer. It raises
:class:`~dumbbell.execution.reach.Trouble` on an error.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dumbbell.execution import calibrated, own_delay
from dumbbell.execution.answers import SECOND_NS, SILENT, behind_ns, start_unix_ns
from dumbbell.execution.archive import unpack
from dumbbell.execution.asked import asked_in, clock_of
from dumbbell.execution.holding import holder, token
from dumbbell.execution.judge import begin_pages
from dumbbell.execution.judge import judge as judge_point
from dumbbell.execution.on_host import PointOnHost
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach, Silent, Trouble
from dumbbell.execution.words import resume
from dumbbell.run.record import read_json, record_state, write_json

PROGRAMS = ("iperf3", "chronyc", "ethtool", "tc", "dumbbell-agent")
STOPPED = "stopped.txt"  # in a point's directory, with the reason, if it was stopped by hand
PING_COUNT = 21  # fewer than in the calibration, which checks the result
_LOOK_S = 1.0
_AGAIN_S = 2

Variables = Mapping[str, Any]
Answer = dict[str, Any]


def check(
    reach: Reach,
    host: str,
    variables: Variables,
    *,
    points: Sequence[Mapping[str, Any]],
    hold: str,
    hold_s: int,
) -> Answer:
    """Try each state that points request in check mode, and lock the host for the run ``hold`` ('' for none).

    Returns ``boots``, the kernel that the host must boot first, '' if it is running, and ``kinds`` of all
    flows with an end on the host. Changes nothing else. Another kernel's features are checked after its boot.
    """
    states: dict[str, dict[str, Any]] = {}
    sources: dict[str, None] = {}
    for facts in points:
        plan = facts["plan"]
        if host not in plan["hosts"]:
            continue
        asked = asked_in(plan, host, variables)
        states.setdefault(json.dumps(asked, sort_keys=True), asked)
        for phase in plan["phases"]:
            sample = phase["hosts"].get(host, {}).get("sample", {})
            sources |= dict.fromkeys(name for name in ("trace", "ebpf") if sample.get(name))
    kernels = {asked["kernel"] for asked in states.values() if asked["kernel"]}
    runs = reach.shell("uname -r").strip()
    boots = next((kernel for kernel in kernels if kernel != runs), "")
    reach.apply(
        check=True,
        asked=[] if boots else list(states.values()),
        hold=holder(hold, hold_s) if hold else None,
        probe=[] if boots else list(sources),
        programs=[] if hold else list(PROGRAMS),
    )
    kinds = {kind for facts in points for kind in PlannedPoint(facts).kinds(host)}
    return {"boots": boots, "kinds": sorted(kinds)}


def state(
    on: PointOnHost,
    variables: Callable[[], Variables],
    *,
    run: str,
    hold_s: int,
    trim_us: int | None,
    pack: list[str],
) -> Answer:
    """Apply the point's complete state, write the plans of the host's agents, and ``raw/HOST/state.json``.

    ``run`` is the run's directory, ``hold_s`` the duration of its lock of the host, ``trim_us`` the path's
    own delay, if it was just measured, ``pack`` has stored runs. Returns ``trims``, whether the path's own
    delay must be measured. For a measurement that went on alone it only renews the lock.
    """
    point = on.point
    hold = holder(str(point.facts["holder"]), hold_s)
    if point.measuring:
        keep = [f"--run={hold['run']}", f"--owner={hold['owner']}", f"--for={hold_s}s"]
        on.reach.command(["dumbbell-agent", "lock", *keep])
        return {"trims": False}
    if on.host == on.hosts[0] and trim_us is None:
        record_state(point.dir, "preparing")
    known_us = own_delay.known_us(Path(run), point.path) if point.path else None
    of_host = variables()
    asked = asked_in(point.facts["plan"], on.host, of_host, known_us if trim_us is None else trim_us)
    raw = point.dir / "raw" / on.host
    has_atou = "atou" in point.kinds(on.host)
    result = on.reach.apply(
        asked=[asked],
        hold=hold,
        host=on.host,
        plans={point.folder(phase): read_json(raw / phase / "plan.json") for phase in point.phases(on.host)},
        token={"directory": str(Path(point.folder("x")).parent), "secret": token(point.dir)}
        if has_atou
        else None,
        clock=clock_of(of_host),
        pack=pack,
    )
    write_json(raw / "state.json", result["state"])
    return {
        "changed": result["changed"],
        "commands": result["commands"],
        "diff": result["diff"],
        "trims": point.path is not None and known_us is None and trim_us is None,
    }


def ping(on: PointOnHost) -> Answer:
    """Ping over the idle path of the host's first flow; lost echoes are no error as long as some come back.

    The interval is that of the calibration's pings, because a host answers later after a longer sleep.
    Senders measure one after the other, at fixed times, because they would lengthen each other's round trips.
    (With `throttle` Ansible may busy-wait for a process, which in virtual time then never runs.) Returns
    ``said``, the output of ping; nothing for hosts that send no flow.
    """
    senders = [host for host in on.hosts if on.point.peer(host)]
    if on.host not in senders or not on.answers().go_on:
        return {}
    interval_s = on.point.ping_interval_ns / 1e9
    turn_s = PING_COUNT * interval_s + 0.5  # of one sender, including its last reply
    line = f"ping -n -c {PING_COUNT} -i {interval_s} {on.point.peer(on.host)}"
    return {"said": on.reach.shell(f"sleep {senders.index(on.host) * turn_s:g}; {line} || test $? = 1")}


def trim(on: PointOnHost, run: str, max_us: int, attempts: int) -> Answer:
    """Compute how much to subtract from the emulated delay, and record the final value for later points.

    ``max_us`` and ``attempts`` are those of :class:`dumbbell.execution.own_delay.Asked`. Returns ``trim``,
    the fields of :class:`dumbbell.execution.own_delay.Trim`, the same on every host.
    """
    path = on.point.path
    if path is None or not on.answers().go_on:
        return {"trim": {"changed": False, "again": False}}
    asked = own_delay.Asked(
        rtt_ns=path["rtt_ns"] + path.get("slot_wait_ns", 0),
        jitters=path["jitters"],
        jitter_us=math.hypot(*(path[way].get("jitter_us") or 0 for way in ("forward", "reverse"))),
        tolerance=on.point.facts["plan"]["validity"]["rtt_tolerance"],
        max_us=max_us,
        attempts=attempts,
    )
    pings = [said["said"] for said in on.said("run_pinged").values() if said.get("said")]
    # The host's own answer: others may have given theirs to this attempt already.
    former = on.said("run_trimmed").get(on.host, {}).get("trim")
    try:
        found = own_delay.attempt(own_delay.Trim(**former) if former else None, pings, asked)
    except (IndexError, ZeroDivisionError):
        raise Trouble("no echo came back over the path: its own delay is not known") from None
    if not found.again and on.host == on.hosts[0]:
        own_delay.remember(Path(run), path, found.trim_us)
    return {"trim": asdict(found)}


def arm(on: PointOnHost, run: str, timeout_s: int, every: int) -> Answer:
    """Decide whether to calibrate, in the same way on every host, and arm the agent of the first phase.

    At most ``every`` points share a calibration. Returns ``calibrates`` (whether this point makes a new one),
    its ``fingerprint``, ``calibration`` (the earlier one that is reused), and ``armed``, which
    :class:`dumbbell.execution.answers.Armed` describes, if the host has an agent in that phase.
    """
    if not on.answers().go_on or on.point.measuring:
        return {"calibrates": False}
    raw = on.point.dir / "raw"
    states = {host: read_json(raw / host / "state.json") or {} for host in on.said("run_stated")}
    digest = calibrated.fingerprint(on.point.facts["plan"], states)
    known = None if on.point.facts["last"] else calibrated.reusable(Path(run), digest, every)
    decided = {"calibrates": known is None, "fingerprint": digest, "calibration": known}
    phase = "measurement" if known else "calibration"
    if not on.point.takes_part(on.host, phase):
        return decided
    return decided | {"changed": True, "armed": on.arm(phase, timeout_s)}


def start(on: PointOnHost, phase: str, armed_by: Sequence[str], margin_s: float) -> Answer:
    """Send t0 of a phase if every agent is armed. A measurement that went on alone has it already.

    ``armed_by`` names the steps that may have armed the agents, ``margin_s`` is the time to send t0. Returns
    ``t0_unix_ns``, by the controller's clock.
    """
    if not on.answers().go_on:
        return {}
    file = f"{on.point.folder(phase)}/start.json"
    if on.point.measuring:
        if not on.point.takes_part(on.host, phase):
            return {}
        return {"t0_unix_ns": json.loads(on.reach.command(["cat", file]))["t0_unix_ns"]}
    if on.host == on.hosts[0]:
        record_state(on.point.dir, "armed", phase)
    agents = next(filter(None, map(on.agents, armed_by)))
    # In virtual time a whole second stays the same if the work before it takes some us more or less.
    step_ns = SECOND_NS if on.point.virtual else SECOND_NS // 10
    t0_unix_ns = start_unix_ns(agents, round(margin_s * SECOND_NS), step_ns)
    if on.point.takes_part(on.host, phase):
        part = shlex.quote(f"{file}.part")  # renamed when complete
        make = f"install -o dumbbell -g dumbbell -m 0640 /dev/stdin {part}"
        text = json.dumps({"t0_unix_ns": t0_unix_ns}) + "\n"
        on.reach.shell(f"{make} && mv {part} {shlex.quote(file)}", stdin=text.encode())
    return {"changed": True, "t0_unix_ns": t0_unix_ns + behind_ns(agents)}


def turn(on: PointOnHost, end_timeout_s: int, arm_timeout_s: int) -> Answer:
    """Wait on the controller until the calibration's planned end, then on the host until it has ended.

    Arms the agent of the measurement, and returns ``armed``, the fields of
    :class:`dumbbell.execution.answers.Armed`.
    """
    if not on.answers().go_on:
        return {}
    if on.point.takes_part(on.host, "calibration"):
        ends_unix_ns = (
            on.said("run_calibrating")[on.host]["t0_unix_ns"] + on.point.phase("calibration")["duration_ns"]
        )
        time.sleep(max(0, ends_unix_ns - time.time_ns()) / 1e9)
        try:
            # It is packed while the next arms. In virtual time the archive's length would shift what follows.
            on.await_end("calibration", end_timeout_s, packed=on.point.virtual)
        except Trouble as trouble:
            raise Trouble(f"calibration: {trouble}") from None
    if not on.point.takes_part(on.host, "measurement"):
        return {}
    return {"changed": True, "armed": on.arm("measurement", arm_timeout_s)}


Follow = Callable[[int], str]  # shows the measurement with this t0; returns why it was stopped by hand, or ''


def end(on: PointOnHost, follow: Follow, end_timeout_s: int, answer_timeout_s: int) -> Answer:
    """Wait on the controller until the measurement's planned end, then fetch the files of the host's agents.

    ``follow`` shows the progress, once for all hosts. An agent must end within ``end_timeout_s`` after its
    phase; a silent host is awaited for ``answer_timeout_s``. Stops the agent if the point did not finish or
    was stopped by hand (``stopped`` has the reason). Partial results are fetched too.
    """
    stopped = _follow(on, follow) if on.answers().go_on else ""
    phases = [phase for phase in on.point.phases(on.host) if _begun(on, phase)]
    if not phases:
        return {"stopped": stopped}
    give_up = time.monotonic() + answer_timeout_s
    while True:
        try:
            return {"stopped": stopped} | _bring_home(on, phases, stopped, end_timeout_s)
        except Silent:  # it may be rebooting, or its network is cut
            if time.monotonic() > give_up:
                return {"stopped": stopped, "trouble": SILENT}
            time.sleep(_AGAIN_S)
            on.reach.reconnect()


def _follow(on: PointOnHost, follow: Follow) -> str:
    """Follow the measurement. Returns why the point was stopped by hand, '' if it was not."""
    times = {
        host: said["t0_unix_ns"] for host, said in on.said("run_measuring").items() if "t0_unix_ns" in said
    }
    if not times:
        raise Trouble("no host knows when the measurement began")
    shows, t0_unix_ns = next(iter(times.items()))
    if on.host == shows:
        return follow(t0_unix_ns)
    return _wait_for_end(on.point.dir, t0_unix_ns + on.point.phase("measurement")["duration_ns"])


def _wait_for_end(point_dir: Path, end_unix_ns: int) -> str:
    """Wait until the planned end of a phase, by the controller's clock, while another process follows it.

    If the phase is stopped by hand, returns at once with the reason.
    """
    while (left_ns := end_unix_ns - time.time_ns()) > 0:
        if (point_dir / STOPPED).exists():
            break
        time.sleep(min(left_ns / 1e9, _LOOK_S))
    return (point_dir / STOPPED).read_text() if (point_dir / STOPPED).exists() else ""


def _begun(on: PointOnHost, phase: str) -> bool:
    """Whether a phase may have an agent on this host."""
    armed = on.said("run_armed").get(on.host, {})
    if phase == "calibration":
        return on.point.measuring or bool(armed.get("calibrates"))
    return on.point.measuring or on.host in on.said("run_turned") or not armed.get("calibrates", True)


def _bring_home(on: PointOnHost, phases: Sequence[str], stopped: str, end_timeout_s: int) -> Answer:
    come_to_end = on.answers().go_on and not stopped
    trouble = ""
    # Nothing is fetched while a phase of the host goes on: in virtual time that would change its samples.
    for phase in phases:
        if not come_to_end:
            on.stop(phase)
        elif phase == "measurement":
            try:
                on.await_end(phase, end_timeout_s, packed=True)
            except Trouble as ended:
                trouble = str(ended)
    lost = _fetch(on, phases)
    return {"changed": True, "trouble": trouble or lost}


def _fetch(on: PointOnHost, phases: Sequence[str]) -> str:
    """Fetch and unpack the files of phases. Returns the first error, '' for none."""
    homes = {on.point.folder(phase): on.point.dir / "raw" / on.host / phase for phase in phases}
    try:
        for home in homes.values():
            home.parent.mkdir(parents=True, exist_ok=True)
        on.reach.fetch({folder: home.with_suffix(".tgz") for folder, home in homes.items()})
        for home in homes.values():
            unpack(home.with_suffix(".tgz"), home)
    except (Trouble, OSError) as lost:
        if len(phases) == 1:
            return str(lost)
        each = [_fetch(on, [phase]) for phase in phases]  # one of them may be whole
        return next(filter(None, each), "")
    return ""


def judge(on: PointOnHost, run: str, influxdb: Mapping[str, Any] | None, judged: bool) -> Answer:
    """Judge the fetched results, with the errors of the steps as reasons; if not ``judged``, store these.

    Returns ``verdict`` and ``stored``, as :func:`dumbbell.execution.judge.judge` does, and ``end``, why the
    run cannot go on: a host no longer answers, or the point was stopped by hand; '' if it can.
    """
    answers = on.answers()
    armed: Any = next(iter(on.said("run_armed").values()), {})
    if known := armed.get("calibration"):
        calibrated.reuse(Path(run), known, on.point.run_id, on.point.dir)
    answer = judge_point(on.point.dir, influxdb, answers.reasons(), judged=judged)
    if armed.get("calibrates") and calibrated.holds(answer["verdict"]) is not None:
        calibrated.remember(Path(run), armed["fingerprint"], on.point.run_id, on.point.dir)
    reasons = answer["verdict"]["reasons"]
    on.tell("\n".join([f"{on.point.facts['name']}: {answer['verdict']['state']}", *reasons]))
    if judged and on.point.facts["last"]:
        begin_pages(Path(run))
    end = answers.end()
    return answer | {"changed": True, "end": f"{end} {resume(run)}" if end else ""}
