"""Shared by the modules of testbed hosts: run commands, converge to a state, and keep SSH alive."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import dumbbell_baseline as baseline
from . import dumbbell_link as link
from . import dumbbell_modules as modules
from . import dumbbell_sysctl as sysctl

State = dict[str, Any]
Command = list[str]


def call(command: Command) -> tuple[int, str, str]:
    """Exit status, output and errors of a command; 127 if it does not exist.

    AnsibleModule.run_command copies this whole process each time, which takes longer than most commands.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except OSError as error:
        return 127, "", f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout, done.stderr


def run(module: Any, command: Command) -> str:
    """Standard output of `command`; if it fails, the module fails with the command and its errors."""
    code, out, err = call(command)
    if code:
        module.fail_json(msg=f"`{shlex.join(command)}` failed: {(err or out).strip()}", rc=code)
    return str(out)


def execute(module: Any, command: Command) -> None:
    """Execute a command that changes the host, including those that this host's iproute2 does not know."""
    if not link.needs_netlink(command):
        run(module, command)
        return
    device = command[command.index("dev") + 1]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(link.route_request(command, socket.if_nametoindex(device)))
        if reason := link.refusal(netlink.recv(65536)):
            module.fail_json(msg=f"`{shlex.join(command)}` failed: {reason}")


def write_file(module: Any, command: Command) -> None:
    """Do the work of a `sysctl` or `echo` command without a process."""
    if command[0] == "sysctl":
        name, _, value = command[-1].partition("=")
        file = sysctl.ROOT / sysctl.path(name)
    else:
        (value, redirection) = shlex.split(command[-1].removeprefix("echo "))
        file = Path(name := redirection.removeprefix(">"))
    try:
        file.write_text(value)
    except OSError as error:
        module.fail_json(msg=f"{name}: the kernel refuses {value!r}: {error.strerror}")


def read_json(module: Any, command: Command) -> Any:
    """Decoded output of an iproute2 command; some commands print nothing for an empty list."""
    return json.loads(run(module, command) or "[]")


def converge(
    module: Any,
    *,
    read: Callable[[], Any],
    plan: Callable[[Any], list[Command]],
    mismatches: Callable[[Any], dict[str, tuple[Any, Any]]],
    report: Callable[[Any], Any],
    predict: Callable[[Any], Any],
    perform: Callable[[Command], object] | None = None,
    preflight: Callable[[Any, list[Command]], None] | None = None,
    also: Callable[[Any], State] | None = None,
) -> None:
    """Bring the host to the requested state, read it back, and exit the module.

    `plan` gives the commands from the current state to the requested one, none if they agree; `mismatches`
    gives (requested, found) by name; `report` converts a state for users, and `predict` gives the state after
    the commands, for check mode. `preflight` fails on commands that this host cannot execute. `also` gives
    further results of the module, from the first state. Settings are recorded before the commands change
    them, for `playbooks/restore.yml`.
    """
    found = read()
    before = after = report(found)
    commands = plan(found)
    loaded = baseline.read(baseline.MODULES, call)
    if commands and preflight:
        preflight(found, commands)
    result = {"before": before, "commands": [shlex.join(command) for command in commands]}
    result |= also(found) if also else {}
    if commands and module.check_mode:
        after = predict(found)
        unload(loaded)
    elif commands:
        record(module, commands, loaded)
        for command in commands:
            perform(command) if perform else execute(module, command)
        modules.remember(commands)
        found = read()
        after = report(found)
        wrong = mismatches(found)
        if wrong:
            words = "; ".join(f"{name}: asked for {want}, found {got}" for name, (want, got) in wrong.items())
            module.fail_json(msg=f"the kernel did not take what was asked: {words}", after=after, **result)
    diff = {"before": before, "after": after}
    module.exit_json(changed=bool(commands), after=after, diff=diff, **result)


def record(module: Any, commands: list[Command], loaded: list[str]) -> None:
    """Record the settings that the commands will change, unless they are recorded."""
    settings = [baseline.MODULES]
    for command in commands:
        try:
            settings += baseline.touched(command)
        except ValueError as error:
            module.warn(f"{error} by restore.yml")
    known = {baseline.MODULES: loaded}
    baseline.record(
        settings,
        lambda setting: known[setting] if setting in known else baseline.read(setting, call),
    )
    modules.remember(commands, kept=True)


def unload(loaded: list[str]) -> None:
    """Unload kernel modules that are not in `loaded`: a query of a feature loads its module.

    The kernel removes the namespace of a query in the background. Modules that are in use after a second
    stay. Hosts that share a kernel unload none: another host may be about to use a module that it has just
    loaded.
    """
    if sysctl.is_fixed(sysctl.OF_THE_KERNEL):
        return
    for _ in range(10):
        more = [name for name in baseline.read(baseline.MODULES, call) if name not in loaded]
        if not more or call(["modprobe", "-r", "-a", *more])[0] == 0:
            return
        time.sleep(0.1)


def refuse_what_the_kernel_lacks(module: Any, commands: list[Command]) -> None:
    """Fail if this host's kernel does not support a route or a qdisc of the commands."""
    for command in commands:
        release = os.uname().release
        version = tuple(int(number) for number in re.findall("[0-9]+", release)[:2])
        if link.needs_netlink(command) and version < link.USEC_TS_SINCE:
            module.fail_json(
                msg=f"asked for tcp_usec_ts of the route to {command[3]}, which Linux has from 6.7 on; "
                f"this host runs {release}"
            )
        if command[:3] != ["tc", "qdisc", "replace"]:
            continue
        name, kind = command[command.index("dev") + 1], command[command.index("root") + 1]
        if kind == "mq":  # mq cannot be tried on lo
            if not Path("/sys/class/net", name, "queues/tx-1").exists():
                module.fail_json(msg=f"asked for qdisc mq, but {name} has one transmit queue")
            continue
        probe = ["lo" if word == name else word for word in command]
        code, _, err = call(["unshare", "--net", *probe])
        if code:
            module.fail_json(msg=f"asked for qdisc {kind}, which this host lacks: {' '.join(err.split())}")


def ssh_connection() -> str | None:
    """SSH_CONNECTION of this process's session.

    sudo drops the variable, so the environments of the ancestors are searched too.
    """
    own = os.environ.get("SSH_CONNECTION")
    inherited = (
        entry.partition(b"=")[2].decode()
        for environment in _environments(os.getppid())
        for entry in environment.split(b"\0")
        if entry.startswith(b"SSH_CONNECTION=")
    )
    return own or next(inherited, None)


def _environments(pid: int) -> Iterator[bytes]:
    while pid > 1:
        process = Path(f"/proc/{pid}")
        try:
            yield (process / "environ").read_bytes()
            # The command's name may contain any character, so fields are counted from its last parenthesis.
            pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def management_devices(connection: str | None, links: list[State]) -> set[str]:
    """The devices of the SSH session: the one with its local address, and all devices beneath it.

    `links` is the output of `ip -j address show`. Beneath are the device of a VLAN, the other end of a veth,
    and the members of a bridge or bond.
    """
    if not connection:
        return set()
    local = connection.split()[2].partition("%")[0].removeprefix("::ffff:")
    carrying = {
        link["ifname"]
        for link in links
        if local in (address.get("local") for address in link.get("addr_info", []))
    }
    while True:
        beneath = {link["link"] for link in links if link["ifname"] in carrying and link.get("link")}
        beneath |= {link["ifname"] for link in links if link.get("master") in carrying}
        if beneath <= carrying:
            return carrying
        carrying |= beneath


def require_devices(module: Any, *names: str, links: list[State] | None = None) -> list[State]:
    """Links of this host, unless the caller has read them.

    Fails on names that do not exist, and on devices of the SSH session.
    """
    if links is None:
        links = read_json(module, ["ip", "-j", "-d", "address", "show"])
    known = [link["ifname"] for link in links]
    carrying = management_devices(ssh_connection(), links)
    for name in names:
        if name not in known:
            module.fail_json(msg=f"this host has no interface {name}; it has {', '.join(known)}")
        if name in carrying:
            module.fail_json(msg=f"{name} carries the SSH session of this very connection and is left alone")
    return links
