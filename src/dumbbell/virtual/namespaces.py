"""A host of a light world: namespaces of this kernel for network, mounts and name, without any process.

The world's ``init`` (roles/lab/templates/world.sh.j2) makes them. Their only long-lived process is the agent.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from configparser import ConfigParser, SectionProxy
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ansible.module_utils

from dumbbell.execution import archive, reach
from dumbbell.execution.reach import Reach, Trouble
from dumbbell.places import COLLECTION
from dumbbell.virtual import ENVIRONMENT

ansible.module_utils.__path__.append(str(COLLECTION / "plugins" / "module_utils"))
from ansible.module_utils import dumbbell_point  # noqa: E402

_KINDS = ("net", "uts", "mnt")  # after the last one the files are the host's
_UNITS = Path("/etc/systemd/system")
_STOP_S = 30  # as systemd's TimeoutStopSec of the agent
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    **ENVIRONMENT,
}
# Does for a unit what systemd would: user, capabilities and limits of the program, the end of all that it has
# left, and the program of ExecStopPost. The sandbox of the unit is not made.
_SERVICE = """\
umask {umask}
ulimit -n {files}
(echo 0 >{group}/cgroup.procs; exec {as_user} {start})
status=$?
echo 1 >{group}/cgroup.kill
if [ $status -gt 128 ]; then EXIT_CODE=killed; else EXIT_CODE=exited; fi
export EXIT_CODE EXIT_STATUS=$status
exec {as_user} {finish}
"""
_libc = ctypes.CDLL(None, use_errno=True)


class Namespaces(Reach):
    """The way to a host from a process of the same kernel, which must have a single thread."""

    def __init__(self, name: str, places: Mapping[str, Path], groups: Path, log: Path) -> None:
        """``places`` has the files of the namespaces net, uts and mnt, ``groups`` is the host's cgroup.

        Programs of units write to ``log``.
        """
        self.name = name
        self._groups = groups
        self._log = log
        self._here = {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS}
        self._there = {kind: os.open(places[kind], os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS}
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def shell(self, line: str, stdin: bytes | None = None) -> str:
        """Run a shell line on the host."""
        with self._within():
            done = subprocess.run(
                ["/bin/sh", "-c", line],
                input=stdin or b"",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
                check=False,
            )
        return reach.output(line, done.returncode, done.stdout.decode(errors="replace"))

    def fetch(self, archives: Mapping[str, Path]) -> None:
        """Copy agents' archives."""
        self.shell(archive.pack(archives))
        for folder, to in archives.items():
            with to.open("wb") as target, self._within(), open(f"{folder}.tgz", "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)

    def apply(self, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Apply a state by the engine of the module ``point_state``, in this process."""
        caller = dumbbell_point.Caller(arguments, check)
        try:
            with self._within():
                result: dict[str, Any] = dumbbell_point.bring(caller)
        except dumbbell_point.Refused as error:
            raise Trouble(str(error)) from None
        finally:
            for warning in caller.warnings:
                print(f"{self.name}: {warning}", flush=True)
        return result

    def start(self, unit: str, then: str) -> str:
        """Run the programs of a unit of systemd, then run a shell line and return its output."""
        group = self._groups / unit
        group.mkdir()
        with self._log.open("ab") as log, self._within():
            self._services[unit] = subprocess.Popen(
                ["/bin/sh", "-c", service(_UNITS, unit, group)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_ENVIRONMENT,
            )
        return self.shell(then)

    def stop(self, unit: str) -> None:
        """End what a unit has started; first by SIGTERM, after 30 s by SIGKILL."""
        if (process := self._services.get(unit)) is None:
            return
        group = self._groups / unit
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            (group / "cgroup.kill").write_text("1")
            process.wait()

    def reconnect(self) -> None:
        """There is no connection."""

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Have the host's network, name and files."""
        folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._there)
            yield
        finally:
            _enter(self._here)
            os.fchdir(folder)
            os.close(folder)


def service(units: Path, unit: str, group: Path) -> str:
    """The shell script that does what a template's unit says; its processes are in the cgroup ``group``."""
    template, _, instance = unit.partition("@")
    of = _section(units / f"{template}@.service")
    names = [name.removeprefix("CAP_").lower() for name in of["AmbientCapabilities"].split()]
    capabilities = ",".join(["-all", *(f"+{name}" for name in names)])
    as_user = (
        f"setpriv --reuid={of['User']} --regid=$(id -g {of['User']}) --init-groups --no-new-privs "
        f"--inh-caps={capabilities} --ambient-caps={capabilities} --bounding-set={capabilities}"
    )
    path = instance.replace("-", "/")  # as systemd's %I
    return _SERVICE.format(
        umask=of["UMask"],
        files=of["LimitNOFILE"],
        group=group,
        as_user=as_user,
        start=of["ExecStart"].replace("%I", path),
        finish=of["ExecStopPost"].replace("%I", path),
    )


def _section(file: Path) -> SectionProxy:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(file.read_text())
    return parser["Service"]


def _enter(places: Mapping[str, int]) -> None:
    for place in places.values():
        if _libc.setns(place, 0):
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
