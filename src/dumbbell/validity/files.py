"""Files of a run: every planned file is there and complete, and there are no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumbbell.facts import documents
from dumbbell.facts.check import Check, faultless
from dumbbell.kinds.found import FOUND
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import (
    Action,
    CaptureAction,
    CommandAction,
    PathAction,
    PhaseHost,
    PingAction,
    TcpPingAction,
)
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json

ALWAYS = ("plan.json", "start.json", "status.json", "events.jsonl")
MAY_BE_EMPTY = re.compile(r"path-.*\.txt|command-.*\.txt|atou-.*-(events|trace)\.txt")
SPOOL = re.compile(r"spool(-\d+)?\.lp(\.gz)?")
OBSERVED = "observed.json"  # in the measurement phase
DOCUMENTS: dict[str, type[documents.Document]] = {
    "status.json": documents.Status,
    "start.json": documents.Start,
    "tcp-ping": documents.TcpPing,
    **{name: document for found in FOUND.values() for name, document in found.documents.items()},
}


def checks(run: Run) -> Iterator[Check]:
    """A check of each host and phase."""
    for phase in run.point.phases:
        for host, part in phase.hosts.items():
            yield faultless("files", f"{host} {phase.phase}", _files(run, phase, host, part))
        yield faultless("t0", phase.phase, _starts(run, phase))
    yield faultless("agents of one version", "run", _versions(run))


def expected(phase: Phase, part: PhaseHost) -> Iterator[str]:
    """Names of the files that the agent of a host writes, except its spool."""
    yield from ALWAYS
    flows = {flow.name: flow for flow in phase.flows}
    for action in part.actions:
        yield from _of_action(action, flows)


def _of_action(action: Action, flows: dict[str, Flow]) -> Iterator[str]:
    match action:
        case PingAction():
            yield f"ping-{action.name}.txt"
        case TcpPingAction():
            yield f"tcp-ping-{action.name}.json"
        case PathAction():
            yield f"path-{action.name}.txt"
        case CaptureAction():
            yield f"capture-{action.name}.pcap"
        case _ if (flow := flows.get(getattr(action, "flow", ""))) is not None:
            yield from FOUND[flow.kind].files_of(flow, action.kind)


def _files(run: Run, phase: Phase, host: str, part: PhaseHost) -> Iterator[str]:
    folder = run.raw(host, phase.phase)
    if not folder.is_dir():
        yield "nothing came home"
        return
    wanted = [*expected(phase, part)]
    found = {file.name: file for file in folder.iterdir()}
    for name in wanted:
        if name not in found:
            yield f"{name} is missing"
        elif not found[name].stat().st_size and not MAY_BE_EMPTY.fullmatch(name):
            yield f"{name} is empty"
        else:
            yield from _content(run, phase, host, found[name])
    if not any(SPOOL.fullmatch(name) for name in found):
        yield "spool.lp is missing"
    known = {*wanted, OBSERVED}
    # Programs of flows of kind command and NDT write what they like into their directory.
    others = any(isinstance(action, CommandAction) for action in part.actions)
    for name in sorted(found.keys() - known):
        if name == "path-undo.tc":
            yield "path-undo.tc is left: the changes of the path were not undone"
        elif not SPOOL.fullmatch(name) and not others:
            yield f"{name} is nothing that the plan makes"


def _content(run: Run, phase: Phase, host: str, file: Path) -> Iterator[str]:
    if file.suffix == ".json" and not file.name.startswith("atou-"):
        content = read_json(file)
        if content is None:
            yield f"{file.name} is no JSON"
            return
        kind = re.sub(r"^(?:(udp|tcp|http)-.*(-sender|-receiver)|(tcp-ping)-.*)\.json$", r"\1\2\3", file.name)
        if kind in DOCUMENTS:
            yield from documents.faults(DOCUMENTS[kind], content, file.name)
        if file.name == "status.json" and dig(content, "state") == "done" and dig(content, "reason"):
            yield f"status.json: it is done, and says {dig(content, 'reason')}"
        if file.name == "plan.json":
            yield from _plan(phase, run, host, content)
    if file.name.startswith("path-") and file.stat().st_size:
        yield f"tc said in {file.name}: {file.read_text(errors='replace').strip()[:80]}"


def _plan(phase: Phase, run: Run, host: str, told: Any) -> Iterator[str]:
    """Differences between the plan that the agent got and the plan's phase, or another run's id."""
    about = {"run_id": run.id, "point": run.point.id, "host": host}
    # As written: unset keys are left out.
    wanted = json.loads(phase.model_dump_json()) | about
    if run.plan.virtual:
        wanted["virtual"] = True
    for key, value in wanted.items():
        found = dig(told, key)
        if key == "hosts" and isinstance(found, dict):  # a router's part also has its path's commands
            found = {name: _without_commands(part) for name, part in found.items()}
        if found != value:
            yield f"plan.json: {key} is not that of the plan"
    if not isinstance(dig(told, "holder"), str) or not run.id.startswith(dig(told, "holder")):
        yield "plan.json: holder is not that of the run"


def _without_commands(part: Any) -> Any:
    if not isinstance(part, dict) or not all(isinstance(a, dict) for a in part.get("actions", [])):
        return part
    actions = [
        {key: value for key, value in action.items() if key != "commands"}
        for action in part.get("actions", [])
    ]
    return {key: value for key, value in part.items() if key != "restore"} | {"actions": actions}


def _starts(run: Run, phase: Phase) -> Iterator[str]:
    """Agents of a phase with different t0."""
    told = {
        host: dig(read_json(run.raw(host, phase.phase, "start.json")), "t0_unix_ns") for host in phase.hosts
    }
    known = {host: t0 for host, t0 in told.items() if t0 is not None}
    if len(set(known.values())) > 1:
        yield "its agents had not one t0: " + ", ".join(f"{host} {t0}" for host, t0 in known.items())


def _versions(run: Run) -> Iterator[str]:
    """Agents of different builds in one run; different builds may write different things."""
    told: dict[str, list[str]] = {}
    for phase in run.point.phases:
        for host in phase.hosts:
            if isinstance(version := dig(run.status(host, phase.phase), "version"), str):
                told.setdefault(version, []).append(host)
    if len(told) > 1:
        yield "; ".join(f"{', '.join(dict.fromkeys(hosts))}: {version}" for version, hosts in told.items())
