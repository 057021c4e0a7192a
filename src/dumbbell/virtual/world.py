"""Worlds of virtual time: a kernel whose clock stops while a program works, and jumps when all wait.

A world is one User-Mode Linux process, started with ``time-travel=inf-cpu``. Its hosts are containers of
this kernel, and their controller runs in it too. Each point of a run can have its own world, side by side.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from dumbbell.places import IS_WHEEL
from dumbbell.virtual import ENVIRONMENT, GIVEN

_CORES = Path("/run/lock/dumbbell")  # a lock file for each core
_LOOK_S = 1.0
_MCONSOLE = struct.Struct("=III512s")  # struct mconsole_request of Linux' arch/um/drivers/mconsole.h
_MCONSOLE_MAGIC, _MCONSOLE_VERSION = 0xCAFEBABE, 2
_MCONSOLE_REPLY_S = 5.0
_ERROR = re.compile(r"^\[ERROR\]: (?:Task failed: )?(.+)$", re.MULTILINE)  # of Ansible
_RUNNING = re.compile(r"^Pid: [0-9]+, comm: (\S+)", re.MULTILINE)
_UMID = "kernel"  # directory of its sockets, in the world's directory
_OWN = Path("/proc/self/cwd")  # the world's directory, as its kernel sees it
_PRELOAD = "xstate.so"  # library beside the kernel, roles/lab/files/xstate.c
_LINKS = "links"  # in the world's directory: links to what it gets
# Where a world sees the checkout, its Python and the lab's files, wherever they are on the machine.
_CHECKOUT, _PYTHON, _LAB = Path("/run/checkout"), Path("/run/python"), Path("/run/lab")
_SEED_DIGITS = 31  # limit of the kernel


@dataclass(frozen=True)
class World:
    """A world, and the command to run in it.

    ``dir`` is the world's directory; only this and ``writable`` directories are kept. It gets
    ``console.log``, and ``time.csv``: real, virtual and CPU time, in seconds, and the number of turns that
    were ended. Keys of ``writable`` and ``readable`` are paths inside the world. ``command`` is run by its
    controller, in ``checkout``. Inside, all of these have the same paths on every machine: a path of another
    length, for example in the list of mounts, would change the steps of programs.
    """

    dir: Path
    kernel: Path  # program, with CONFIG_UML_TIME_TRAVEL_SUPPORT
    lab: Path  # directory of all files of worlds and hosts
    init: Path  # program in it that the kernel starts
    command: Sequence[str]
    checkout: Path
    writable: Mapping[Path, Path]
    start_unix_ns: int  # its first time
    readable: Mapping[Path, Path] = field(default_factory=dict)
    seed: str = ""  # of its kernel's random numbers
    light: Mapping[str, Any] | None = None  # for the controller of a light world; None: the world is full
    expected_s: float = 0  # about how much real time it takes: on a cluster the longest begins first
    memory: str = "4G"
    turn_s: float = 2  # CPU time after which a task without a system call is preempted
    stall_s: float = 300  # CPU time without progress of virtual time or console after which it is killed;
    # also the real time in which all its tasks sleep


@dataclass(frozen=True)
class Ended:
    """The result of a world. ``reason`` is why it did not finish, or ''."""

    status: int | None  # of the command
    virtual_s: float
    real_s: float
    reason: str
    turns_ended: int = 0  # each delayed its task by a millisecond
    cpu_s: float = 0  # CPU time of its kernel and all its tasks


def run(world: World) -> Ended:
    """Start a world once a core is free, and wait until its command ends or its time stalls.

    Does nothing if its command has already succeeded. Raises OSError if the world cannot start.
    """
    if before := ended_before(world):
        return before
    world.dir.mkdir(parents=True, exist_ok=True)
    for name in ("status", "beat"):
        (world.dir / name).unlink(missing_ok=True)
    (world.dir / "command").write_text(f"cd {_CHECKOUT} && exec {shlex.join(_command(world))}\n")
    (world.dir / "environment").write_text("".join(f"{name}={of}\n" for name, of in _variables().items()))
    if world.light is not None:
        (world.dir / GIVEN).write_text(json.dumps(world.light))
    _give(world)
    # Appended: an earlier attempt may have ended for another reason.
    with _core() as core, (world.dir / "console.log").open("ab") as console:
        begins = console.tell()
        began = time.monotonic()
        kernel = subprocess.Popen(
            [*_on(core), *_command_line(world)],
            cwd=world.dir,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=_environment(world),
            start_new_session=True,
        )
        _keep_niceness(kernel.pid)
        try:
            reason, turns = _watch(world, kernel)
        finally:
            _end(kernel)
            for name in (_UMID, _LINKS):
                shutil.rmtree(world.dir / name, ignore_errors=True)
        real_s = time.monotonic() - began
    status = _read(world.dir / "status")
    if not reason and status != "0":
        who = f"controller ended with status {status}" if status else f"kernel ended with {kernel.returncode}"
        said = _last_error(world.dir / "console.log", begins)
        reason = f"the world's {who}{said and f': {said}'}; see {world.dir / 'console.log'}"
    return Ended(
        status=int(status) if status else None,
        virtual_s=virtual_s(world),
        real_s=real_s,
        reason=reason,
        turns_ended=turns.ended,
        cpu_s=turns.cpu_s,
    )


def ended_before(world: World) -> Ended | None:
    """The end of a world whose command has already succeeded, None if it has not."""
    if _read(world.dir / "status") != "0":
        return None
    return Ended(status=0, virtual_s=virtual_s(world), real_s=0, reason="")


def run_all(worlds: Iterable[World], executor: Executor | None = None) -> list[Ended]:
    """Run worlds side by side, in order; without an executor as many at once as there are cores.

    :class:`dumbbell.cluster.points.Points` is an executor of many machines.
    """
    if executor is not None:
        return list(executor.map(run, worlds))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as local:
        return list(local.map(run, worlds))


def virtual_s(world: World) -> float:
    """Virtual time that has passed, in whole seconds."""
    return float(_read(world.dir / "beat") or 0)


def _command(world: World) -> list[str]:
    """The command with paths as the world sees them."""
    seen = {sys.prefix: _PYTHON, str(world.checkout): _CHECKOUT}
    path = re.compile(rf"(?<![^=])({'|'.join(map(re.escape, seen))})(?=/|$)")
    return [path.sub(lambda match: str(seen[match[1]]), word) for word in world.command]


def _variables() -> dict[str, str]:
    """Variables of all programs in worlds."""
    # A checkout's package is installed by its path on the machine.
    return ENVIRONMENT | ({} if IS_WHEEL else {"PYTHONPATH": str(_CHECKOUT / "src")})


def _give(world: World) -> None:
    """Link what the world gets, and list it in ``mounts``."""
    links = world.dir / _LINKS
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir()
    (links / "init").symlink_to(world.init.absolute())
    given = [
        ("overlay", _CHECKOUT, world.checkout),
        ("ro", _PYTHON, Path(sys.prefix)),
        ("ro", _LAB, world.lab),
    ]
    given += [("ro", *of) for of in world.readable.items()] + [("rw", *of) for of in world.writable.items()]
    lines = []
    for number, (option, within, outside) in enumerate(given):
        link = links / str(number)
        link.symlink_to(outside.absolute())
        lines.append(f"{option}\t{_OWN / _LINKS / link.name}\t{within}\n")
    (world.dir / "mounts").write_text("".join(lines))


@contextmanager
def _core() -> Iterator[int]:
    """Lock a CPU core that no other world on this machine uses."""
    _CORES.mkdir(exist_ok=True)
    # The first core does more of the machine's own work.
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    while True:
        for core in cores:
            with suppress(Timeout), FileLock(_CORES / str(core), blocking=False):
                yield core
                return
        time.sleep(_LOOK_S)


def _on(core: int) -> list[str]:
    """Prefix of a command that runs on one core, as its processes often wake each other, and ends with us."""
    # Without it, addresses in memory would differ between runs.
    memory = ["setarch", "--addr-no-randomize"]
    return ["setpriv", "--pdeathsig", "KILL", *memory, "taskset", "--cpu-list", str(core)]


def _keep_niceness(pid: int) -> None:
    """Let our niceness count for a process in a session of its own.

    With sched_autogroup the scheduler shares cores among sessions first, and a new session has niceness 0.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)))


def _environment(world: World) -> dict[str, str]:
    preload = world.kernel.with_name(_PRELOAD)
    return dict(os.environ) | ({"LD_PRELOAD": str(preload)} if preload.exists() else {})


def _command_line(world: World) -> list[str]:
    return [
        str(world.kernel),
        f"mem={world.memory}",
        f"umid={_UMID}",
        "uml_dir=.",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        f"init={_OWN / _LINKS / 'init'}",
        f"world={_OWN}",
        *(["hosts=light"] if world.light is not None else []),
        "time-travel=inf-cpu",
        "seccomp=auto",  # enter the kernel by seccomp if the machine can, else by ptrace; 6.12 ignores it
        f"time-travel-start={world.start_unix_ns}",
        f"rng_seed={sha256(world.seed.encode()).hexdigest()[:_SEED_DIGITS]}",
        "con=null",
        "con0=null,fd:1",
        "panic=-1",
    ]


def _watch(world: World, kernel: subprocess.Popen[bytes]) -> tuple[str, _Turns]:
    """Wait until the world ends. Returns the reason to kill it, or '', and what its tasks did."""
    console = world.dir / "console.log"
    began = moved = worked = time.monotonic()
    moved_cpu_s, before = 0.0, (0.0, 0)
    turns = _Turns(kernel.pid, world.turn_s)
    times = world.dir / "time.csv"
    times.write_text("real_s,virtual_s,cpu_s,turns_ended\n")
    while True:
        with suppress(subprocess.TimeoutExpired):
            kernel.wait(_LOOK_S)
            return "", turns
        if turns.look():
            worked = time.monotonic()
        # Much work may take no virtual time; console output is progress too.
        if (now := (virtual_s(world), console.stat().st_size)) != before:
            before, moved, moved_cpu_s = now, time.monotonic(), turns.cpu_s
            with times.open("a") as file:
                file.write(f"{moved - began:.1f},{now[0]:.2f},{turns.cpu_s:.2f},{turns.ended}\n")
        # On a busy machine it gets little CPU time; in a world that hangs in a wait no task asks for any.
        elif max(turns.cpu_s - moved_cpu_s, time.monotonic() - worked) > world.stall_s:
            # Paths of sockets are limited to 108 bytes; the world's path may be longer.
            mconsole = Path("/proc", str(kernel.pid), "cwd", _UMID, "mconsole")
            running = _running(console, mconsole) or "nothing known"
            stood_s = time.monotonic() - moved
            reason = f"virtual time stood at {now[0]:.0f} s for {stood_s:.0f} s; what ran: {running}"
            return reason, turns


@dataclass
class _Turns:
    """Preempts a task that computes for ``turn_s`` of its own CPU time without a system call.

    It may busy-wait for another task of its world, as Go's background sweeper does for other sweepers. On
    hardware a timer tick would preempt it. Real time does not count, because a busy machine may give
    the task little of it.
    """

    kernel: int
    turn_s: float
    ended: int = 0
    cpu_s: float = 0  # CPU time of the kernel and all its tasks, including ended ones
    _calls: int = -1
    _since_s: dict[int, float] = field(default_factory=dict)  # CPU time at the last system call, by task

    def look(self) -> bool:
        """Check the kernel and its tasks once.

        Returns whether any has used CPU time since the last look, or waits for a core.
        """
        before_s, runnable = self.cpu_s, False
        with suppress(psutil.Error):
            kernel = psutil.Process(self.kernel)
            times, had = kernel.cpu_times(), {task: _cpu_s(task) for task in kernel.children()}
            runnable = any(task.status() == psutil.STATUS_RUNNING for task in (kernel, *had))
            ended_s = times.children_user + times.children_system
            self.cpu_s = max(before_s, times.user + times.system + ended_s + sum(had.values()))
            # The kernel waits for the computing task, and continues at each system call.
            calls = kernel.num_ctx_switches().voluntary
            if calls != self._calls:
                self._calls, self._since_s = calls, {}
            for task, had_s in had.items():
                if had_s - self._since_s.setdefault(task.pid, had_s) >= self.turn_s:
                    self._since_s.clear()
                    task.send_signal(signal.SIGUSR2)
                    self.ended += 1
                    break
        return runnable or self.cpu_s > before_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _last_error(console: Path, begins: int) -> str:
    """The last error that Ansible printed after a position of a console, '' if it printed none."""
    with console.open("rb") as file:
        file.seek(begins)
        errors = _ERROR.findall(file.read().decode(errors="replace"))
    return errors[-1].strip() if errors else ""


def _running(console: Path, mconsole: Path) -> str:
    """Name of the program that runs in a world, which its kernel prints on request; '' without an answer."""
    before = console.stat().st_size
    command = b"sysrq p"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(
                _MCONSOLE.pack(_MCONSOLE_MAGIC, _MCONSOLE_VERSION, len(command), command), str(mconsole)
            )
        except OSError:
            return ""
    deadline = time.monotonic() + _MCONSOLE_REPLY_S
    while time.monotonic() < deadline:
        with console.open("rb") as file:
            file.seek(before)
            if match := _RUNNING.search(file.read().decode(errors="replace")):
                return match[1]
        time.sleep(_LOOK_S)
    return ""


def _end(kernel: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(kernel.pid, signal.SIGKILL)  # all its processes
    kernel.wait()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
