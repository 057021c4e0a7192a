"""Run worlds for playbooks: report their progress, and provision their hosts once."""

from __future__ import annotations

import compileall
import fcntl
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dumbbell.places import COLLECTION, PACKAGE
from dumbbell.virtual.modules import ADDED, layer
from dumbbell.virtual.world import Ended, World, run_all, virtual_s

SPEC = {
    "world": {"type": "dict", "required": True},
    "checkout": {"type": "path", "required": True},
    "stall_timeout": {"type": "float", "default": 300},
    "module": {"type": "path"},
}
KEPT = Path("/run/keep")  # in the provisioning world: files that are added to its hosts
_SAY_S = 30.0
_INSTALLED = Path(sysconfig.get_path("purelib"))

Say = Callable[[str], None]


def run(
    worlds: Sequence[Mapping[str, Any]], args: Mapping[str, Any], say: Say, executor: Executor | None = None
) -> list[Ended]:
    """Run worlds side by side, on this machine or by an executor, which reports their progress itself.

    Each has ``dir``, ``command``, ``writable`` and may have ``readable``, ``seed``, ``light`` and
    ``expected_s``, as :class:`dumbbell.virtual.world.World` has them; ``args`` has what :data:`SPEC` says.
    With ``module``, the directory of its source, their hosts have a module more: ValueError if it does not
    build, or with an executor.
    """
    added: dict[Path, Path] = {}
    if args.get("module"):
        if executor is not None:
            raise ValueError(
                f"{args['module']} is built on this machine, not on a cluster: run it without one"
            )
        added[ADDED] = layer(Path(args["module"]), args["world"], Path(args["checkout"]))
    if executor is None:
        prepare(Path(args["world"]["dir"]))
    second = int(time.time())  # a whole second, so that actions at multiples of the wall clock repeat
    made = [
        World(
            dir=Path(of["dir"]),
            kernel=Path(args["world"]["kernel"]),
            lab=Path(args["world"]["dir"]).parents[1],
            init=Path(args["world"]["init"]),
            command=of["command"],
            checkout=Path(args["checkout"]),
            writable=_paths(of["writable"]),
            readable=_paths(of.get("readable", {})) | added,
            start_unix_ns=second * 1_000_000_000,
            seed=of.get("seed", ""),
            light=of.get("light"),
            expected_s=of.get("expected_s", 0),
            stall_s=args["stall_timeout"],
        )
        for of in worlds
    ]
    with in_use(Path(args["world"]["dir"])):
        ended = _here(made, say) if executor is None else run_all(made, executor)
    for world, of in zip(made, ended, strict=True):
        took = (
            f"{of.virtual_s:.0f} s of virtual time in {of.real_s:.0f} s, {of.cpu_s:.0f} s of CPU time"
            if of.real_s
            else "had come to its end before"
        )
        if of.turns_ended:
            took += f"; {of.turns_ended} times a task that computed without a pause was made to wait 1 ms"
        say(f"{world.dir.parent.name}: {took}")
    return ended


def _here(worlds: Sequence[World], say: Say) -> list[Ended]:
    began = time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run_all, worlds)
        while not wait([running], timeout=_SAY_S).done:
            times = ", ".join(f"{virtual_s(world):.0f}" for world in worlds)
            passed_s = time.monotonic() - began
            say(f"after {passed_s:.0f} s of real time, seconds of virtual time: {times}")
        return running.result()


def provision(command: Sequence[str], args: Mapping[str, Any], say: Say) -> tuple[bool, str]:
    """Provision hosts, by a playbook in a world, and keep the files that it has added to them.

    ``command`` runs the playbook; its variable ``keep`` is the directory for these files.

    If several runs ask at the same time, one provisions and the others wait. Returns whether this one did and
    why it failed ('' if it did not).
    """
    folder, kept = Path(args["world"]["dir"]), Path(args["world"]["provisioned"])
    with _alone(folder, say):
        if kept.exists():
            return False, ""
        for left in folder.glob("provisioning.*/"):  # of an interrupted run
            shutil.rmtree(left)
        place = Path(tempfile.mkdtemp(prefix="provisioning.", dir=folder))
        added = place / "added"
        added.mkdir(mode=0o700)
        keeping = [*command, "-e", f"keep={KEPT}"]
        world = {"dir": place / "world", "writable": {KEPT: added}, "command": keeping}
        (ended,) = run([world], args, say)
        if ended.reason:  # it names the world's console, so keep the directory
            return True, ended.reason
        for packed in sorted(added.glob("*.tar")):
            packed.with_suffix("").mkdir()
            subprocess.run(["tar", "-xf", packed, "-C", packed.with_suffix("")], check=True)
            packed.unlink()
        added.rename(kept)
        shutil.rmtree(place)
    return True, ""


def prepare(folder: Path) -> None:
    """Compile what controllers of worlds may import.

    A controller that compiles its imports takes other steps, and samples would differ. Installed packages,
    which take a second to look through, are compiled again if one was added or removed since.
    """
    for own in (PACKAGE, COLLECTION / "plugins"):
        compileall.compile_dir(own, quiet=2)
    done, state = folder / "compiled", f"{_INSTALLED} {_INSTALLED.stat().st_mtime_ns}"
    if not done.exists() or done.read_text() != state:
        compileall.compile_dir(_INSTALLED, quiet=2)
        done.write_text(state)


@contextmanager
def _alone(folder: Path, say: Say) -> Iterator[None]:
    lock = FileLock(folder / "provisioning.lock")
    with in_use(folder):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say("another run provisions the same hosts; this one waits for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Hold a shared lock on a directory, so that no other run removes the worlds' files in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _paths(by_path: Mapping[Any, Any]) -> dict[Path, Path]:
    return {Path(within): Path(outside) for within, outside in by_path.items()}
