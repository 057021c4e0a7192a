"""Packages of the host's distribution: what is installed, what an installation changes, and the commands.

dpkg and apt of Debian and Ubuntu, rpm and dnf of RHEL and its relatives; a host has one of the two.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Command = list[str]
Execute = Callable[[Command], tuple[int, str, str]]

# No questions, and no restart of services that use a library: needrestart of Ubuntu would restart them.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C"}
CONFIGURATION = "configuration"
LOCK_WAIT_S = 600  # unattended-upgrades holds the lock for minutes after a boot
STATE = re.compile(r"^(?P<name>\S+) (?P<state>[a-z]{2}.\S*)$", re.MULTILINE)  # as `query` prints it
LOCKED = re.compile(r"(Could not get lock|frontend lock was locked|Waiting for process with pid) ?[^\n]*")
SIMULATED = re.compile(r"^(?P<verb>Inst|Remv) (?P<name>[^ :]+)\S* (?P<had>\[\S+\] )?", re.MULTILINE)


class Manager(NamedTuple):
    """A package manager's commands; names of packages follow them."""

    query: Command  # prints `NAME STATE VERSION` of each
    simulate: Command | None  # prints what would be changed, as apt-get does
    install: Command
    update: Command  # the list of packages, which dnf renews by itself
    purge: Command  # refuses packages that others need
    remove: Command  # the same, and leaves the configuration


APT = Manager(
    ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}${Version}\\n"],
    ["apt-get", "--simulate", "--no-install-recommends", "install"],
    ["apt-get", "--yes", "--no-install-recommends", "install"],
    ["apt-get", "update"],
    ["dpkg", "--purge"],
    ["dpkg", "--remove"],
)
DNF = Manager(
    ["rpm", "--query", "--queryformat", "%{NAME} ii %{VERSION}-%{RELEASE}\\n"],
    None,
    ["dnf", "--assumeyes", "--setopt=install_weak_deps=False", "install"],
    ["dnf", "makecache"],
    ["rpm", "--erase"],
    ["rpm", "--erase"],
)


def manager() -> Manager:
    """The package manager of this host."""
    return DNF if shutil.which("rpm") and not shutil.which("dpkg-query") else APT


def states(names: Sequence[str], execute: Execute) -> dict[str, str]:
    """The states and versions of those packages that are known, by name; `ii 4.3` is installed."""
    said = execute([*manager().query, *names])[1] if names else ""
    return {match["name"]: match["state"] for match in STATE.finditer(said)}


def presence(name: str, execute: Execute) -> bool | str | None:
    """True for an installed package, `configuration` if only that is left of it, None without it."""
    known: dict[str, bool | str] = {"i": True, "c": CONFIGURATION}
    return known.get(states([name], execute).get(name, "")[1:2])


def changed_by(simulated: str) -> tuple[list[str], list[str]]:
    """Packages that are new, and packages that are removed, by the output of `apt-get --simulate`.

    A package that only gets another version is neither.
    """
    found = list(SIMULATED.finditer(simulated))
    new = [match["name"] for match in found if match["verb"] == "Inst" and not match["had"]]
    return new, [match["name"] for match in found if match["verb"] == "Remv"]


def patiently(
    execute: Execute, command: Command, wait_s: float = LOCK_WAIT_S, pause_s: float = 5
) -> tuple[int, str, str]:
    """Execute a command of the package manager, again and again while another one holds its lock.

    If the lock is not released in time, the error is one line that says who holds it.
    """
    until = time.monotonic() + wait_s
    while True:
        code, out, err = execute(command)
        held = LOCKED.search(err) if code else None
        if not held:
            return code, out, err if code == 0 else in_short(err or out)
        if time.monotonic() >= until:
            return code, out, f"waited {wait_s / 60:g} minutes: {held[0]}"
        time.sleep(pause_s)


def in_short(said: str) -> str:
    """The errors among what a package manager says, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Error", "dpkg: error", "dpkg: dependency"))]
    return "; ".join(dict.fromkeys(errors or lines[-3:]))


def units_of(name: str, execute: Execute) -> list[str]:
    """Services that come with an installed package."""
    listing = ["rpm", "--query", "--list"] if manager() is DNF else ["dpkg", "--listfiles"]
    files: Iterable[str] = execute([*listing, name])[1].splitlines()
    return sorted(
        {m[1] for file in files if (m := re.fullmatch(r".*/systemd/system/([^/@]+)\.service", file))}
    )
