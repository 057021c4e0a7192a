"""Brings a host to its complete state for a point: what the module `point_state` does, for any caller.

A caller passes a `module`: `params` as SPEC has them, `check_mode`, `warn`, and `fail_json`, which must not
return. `Caller` has these without Ansible, whose start on a host costs more than most states. As a program
this file reads a call from standard input, and prints the answer as its last line.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import dumbbell_baseline as baseline
from . import dumbbell_clock as clock
from . import dumbbell_path as path
from . import dumbbell_state as state
from . import dumbbell_tc as tc
from .dumbbell_facts import FACT, boot_id, facts
from .dumbbell_host import (
    call,
    execute,
    record,
    refuse_what_the_kernel_lacks,
    require_devices,
    run,
    unload,
    write_file,
)
from .dumbbell_modules import remember

AGENT = "dumbbell-agent"
RUNS = Path("/var/lib/dumbbell/runs")
STORED = "/var/lib/dumbbell/stored"
ROUNDS = 3  # a setting may change others: ip_forward makes the kernel reset accept_redirects

SPEC: dict[str, Any] = {
    "asked": {"type": "list", "elements": "dict", "required": True},
    "hold": {
        "type": "dict",
        "options": {
            "run": {"type": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "seconds": {"type": "int", "required": True},
        },
    },
    "release": {"type": "str"},
    "host": {"type": "str"},
    "plans": {"type": "dict", "default": {}},
    "token": {
        "type": "dict",
        "no_log": True,
        "options": {
            "directory": {"type": "path", "required": True},
            "secret": {"type": "str", "required": True, "no_log": True},
        },
    },
    "clock": {"type": "dict", "options": clock.SPEC},
    "pack": {"type": "list", "elements": "str", "default": []},
    "probe": {"type": "list", "elements": "str", "default": []},
    "programs": {"type": "list", "elements": "str", "default": []},
}

Command = list[str]


class Refused(Exception):
    """The host cannot have the state; the message is for people."""


class Caller:
    """What :func:`bring` needs of a module of Ansible."""

    def __init__(self, arguments: Mapping[str, Any], check: bool) -> None:
        self.params = {name: of.get("default") for name, of in SPEC.items()} | dict(arguments)
        self.check_mode = check
        self.warnings: list[str] = []

    def fail_json(self, msg: str, **_: Any) -> NoReturn:
        """Raise :class:`Refused`."""
        raise Refused(msg)

    def warn(self, warning: str) -> None:
        """Keep a warning."""
        self.warnings.append(warning)


class Context:
    """What the parts of a state need of the module: failing if the host lacks a feature."""

    def __init__(self, module: Any, host: state.Host) -> None:
        self.module, self.host = module, host

    def refuse_commands(self, commands: list[Command]) -> None:
        """Fail if the kernel does not support a command."""
        refuse_what_the_kernel_lacks(self.module, commands)

    def refuse_path(self, wanted: Any, found: Any, devices: Sequence[str]) -> None:
        """Fail if the host cannot emulate a path; warn of what makes it inexact."""
        texts = {device: self.host.group(device, "features") for device in devices}
        offloads = {device: path.put_together(text) for device, text in texts.items()}
        for warning in tc.warnings(wanted, offloads):
            self.module.warn(warning)
        path.refuse_what_the_host_lacks(self.module, wanted, found)


def hold(module: Any, asked: Mapping[str, Any]) -> None:
    """Lock the host for a run; if another run has it, fail with the agent's message."""
    if shutil.which(AGENT) is None:
        module.fail_json(msg="it has no dumbbell-agent: provision it first (playbooks/provision.yml)")
    command = [
        AGENT,
        "lock",
        f"--run={asked['run']}",
        f"--owner={asked['owner']}",
        f"--for={asked['seconds']}s",
    ]
    code, out, err = call(command)
    if code:
        module.fail_json(msg=(err or out).strip().removeprefix("dumbbell-agent lock: "))


def refuse_what_is_missing(module: Any) -> None:
    """Fail if the host lacks a program or a source of samples."""
    lacking = [name for name in module.params["programs"] if shutil.which(name) is None]
    if lacking:
        module.fail_json(msg=f"it lacks {', '.join(lacking)}: provision it first (playbooks/provision.yml)")
    sources = module.params["probe"]
    if sources:
        code, out, err = call([AGENT, "probe", *sources])
        if code:
            module.fail_json(msg=f"it is asked for {' and '.join(sources)}; {(out or err).strip()}")


def refuse_another_kernel(module: Any, asked: Mapping[str, Any]) -> None:
    """Fail if the host runs another kernel than the requested one."""
    release = os.uname().release
    if asked.get("kernel") and asked["kernel"] != release:
        module.fail_json(msg=f"kernel {asked['kernel']} was asked, and {release} runs")


def perform(module: Any, command: Command) -> None:
    """Execute a command of a plan."""
    if command[0] == "sysctl" or command[:2] == ["sh", "-c"]:
        write_file(module, command)
    else:
        execute(module, command)


def apply(module: Any, parts: Sequence[state.Part], host: state.Host, loaded: list[str]) -> list[Command]:
    """Execute the commands of each part, planned after those of the parts before it; returns them all."""
    done: list[Command] = []
    for part in parts:
        planned = part.plan(part.read())
        if planned:
            record(module, planned, loaded)
            for command in planned:
                perform(module, command)
            remember(planned)
            host.forget()
        done += planned
    return done


def converge(
    module: Any, asked: Mapping[str, Any], host: state.Host
) -> tuple[list[tuple[state.Part, Any]], list[Command], dict[str, Any]]:
    """Bring the host to a state; returns the parts with their values, the commands, and the differences."""
    require_devices(module, *asked["interfaces"], links=host.links())
    if not module.check_mode:
        baseline.record(state.first_contact(asked), lambda setting: baseline.read(setting, host.execute))
    parts = state.parts(asked, baseline.load(), host, Context(module, host))
    loaded = baseline.read(baseline.MODULES, host.execute)
    commands: list[Command] = []
    before: dict[str, Any] = {}
    for part in parts:  # before anything is changed
        found = part.read()
        planned = part.plan(found)
        part.refuse(found, planned)
        before.update(part.owned(found))
        commands += planned
    if module.check_mode:
        unload(loaded)
        return [(part, part.read()) for part in parts], commands, before
    changed: list[Command] = []
    for _ in range(ROUNDS if commands else 0):
        done = apply(module, parts, host, loaded)
        changed += done
        if not done:
            break
    return [(part, part.read()) for part in parts], changed, before


def read_clock(module: Any, asked: Mapping[str, Any]) -> clock.Clock:
    """The clock once it is synchronised; in check mode its current state."""
    return clock.read(asked, 0 if module.check_mode else asked["timeout_s"], call)


def put(file: Path, text: str, mode: int) -> None:
    """Write a file for the agent's user, in a directory that only this user can read."""
    owner = pwd.getpwnam("dumbbell")
    for folder in (file.parent.parent, file.parent):
        if folder != RUNS and RUNS in folder.parents and not folder.exists():
            folder.mkdir(mode=0o750)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
    part = file.with_name(f".{file.name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "w") as opened:
        opened.write(text)
        os.fchmod(opened.fileno(), mode)
        os.fchown(opened.fileno(), owner.pw_uid, owner.pw_gid)
    part.replace(file)


def put_plans(module: Any, reported: Mapping[str, Any]) -> None:
    """Write the agents' plans; a router's plan has the commands for the path in its current state."""
    host = module.params["host"]
    for folder, planned in module.params["plans"].items():
        commands = reported.get("path_commands", {})
        whole = state.with_path_commands(planned, host, commands)
        put(Path(folder, "plan.json"), json.dumps(whole, indent=1), 0o640)


def bring(module: Any) -> dict[str, Any]:
    """Bring the host to the requested state and return the result of the module `point_state`."""
    params = module.params
    states = params["asked"]
    if len(states) > 1 and not module.check_mode:
        module.fail_json(msg=f"{len(states)} states were asked; a host can have one")
    if params["hold"]:
        hold(module, params["hold"])
    refuse_what_is_missing(module)
    host = state.Host(lambda command: run(module, command), call)
    reached: list[tuple[state.Part, Any]] = []
    commands: list[Command] = []
    before: dict[str, Any] = {}
    try:
        for asked in states:
            refuse_another_kernel(module, asked)
            reached, commands, before = converge(module, asked, host)
    except ValueError as error:
        module.fail_json(msg=str(error))
    owned: dict[str, Any] = {}
    reports = []
    for part, found in reached:
        owned.update(part.owned(found))
        reports.append(part.report(found))
    result: dict[str, Any] = {
        "commands": [shlex.join(command) for command in commands],
        "changed": bool(commands),
    }
    after = {name: want for name, (want, _) in owned.items()} if module.check_mode else None
    after = after or {name: got for name, (_, got) in owned.items()}
    differ = [name for name in after if before.get(name, (None, None))[1] != after[name]]
    result["diff"] = {
        "before": {name: before.get(name, (None, None))[1] for name in differ},
        "after": {name: after[name] for name in differ},
    }
    wrong = {name: pair for name, pair in owned.items() if pair[0] != pair[1]}
    if wrong and not module.check_mode:
        words = "; ".join(f"{name}: asked for {want}, found {got}" for name, (want, got) in wrong.items())
        module.fail_json(msg=f"the kernel did not take what was asked: {words}", **result)
    reported = state.merged(reports)
    flushes = bool(states) and states[-1].get("tcp_metrics") != "keep" and not module.check_mode
    if not module.check_mode:
        if flushes:
            run(module, ["ip", "tcp_metrics", "flush"])
        put_plans(module, reported)
        if params["token"]:
            put(Path(params["token"]["directory"], "atou.token"), params["token"]["secret"], 0o600)
        for run_id in params["pack"]:
            call([AGENT, "pack", str(RUNS / run_id), STORED])
    reported.pop("path_commands", None)
    result["state"] = {
        "boot_id": boot_id(),
        "kernel": os.uname().release,
        **facts(lambda: run(module, [str(FACT)]), keep=not module.check_mode),
        "nic": {},
        "path": None,
        **reported,
        "clock": read_clock(module, params["clock"]) if params["clock"] else None,
        "owned": {name: list(pair) for name, pair in sorted(owned.items())},
        "tcp_metrics": {"flushed": flushes},
    }
    if params["release"]:
        call([AGENT, "unlock", f"--run={params['release']}"])
    return result


def main() -> None:
    """Answer a call: ``arguments`` and ``check``. The answer has ``refused`` instead if it failed."""
    asked = json.load(sys.stdin)
    caller = Caller(asked["arguments"], asked["check"])
    try:
        answer = bring(caller)
    except Refused as error:
        answer = {"refused": str(error)}
    except Exception as error:
        import traceback  # noqa: PLC0415  a slow host takes as long to import it as to run `ip`

        traceback.print_exc()
        answer = {"refused": f"{type(error).__name__}: {error}"}
    print(json.dumps({"warnings": caller.warnings, **answer}))


if __name__ == "__main__":
    main()
