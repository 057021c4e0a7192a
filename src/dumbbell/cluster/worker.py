"""What a worker of a cluster does: it says what it has of what points need, gets the world, runs points."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import get_client, get_worker
from filelock import FileLock

from dumbbell.cluster.needs import Needs, digest_of_checkout
from dumbbell.run.packed import pack, unpack
from dumbbell.virtual.runs import in_use, prepare
from dumbbell.virtual.world import Ended, World

if TYPE_CHECKING:
    from distributed import Worker

MAPPINGS = 1_048_576  # as roles/lab asks of a machine: a User-Mode Linux maps every page of its processes
LEAST_ROOM_BYTES = 256 << 20  # to begin a point
_FULL_BYTES = 16 << 20  # with less, what a world has written may not be whole
MOST_DEATHS = 2  # of workers, by one point
_KEYS = ("ssh", "hosts")  # directories of a lab with SSH keys
_MAPPINGS = Path("/proc/sys/vm/max_map_count")


class _MustLeave(Exception):
    """This worker can run no more points; the message says why."""


@dataclass(frozen=True)
class Joined:
    """What a worker said: its name, why it is refused ('' if it is not), and whether it has the world."""

    name: str
    refused: str
    has_world: bool
    worlds: int  # that it runs at once


@dataclass(frozen=True)
class Job:
    """A point to run. ``world`` has the controller's paths; ``root`` is the directory that it reads."""

    topic: str  # under which its workers are noted
    world: World
    root: Path
    folder: Path  # the point's directory, ``root`` or below it
    inputs: bytes  # archive of what a worker needs of ``root``
    digest: str


@dataclass(frozen=True)
class Home:
    """What comes home: how the world ended, and the archive of the point's directory."""

    ended: Ended
    files: bytes
    digest: str


@dataclass(frozen=True)
class Leaving:
    """A worker whose disk is full, or whose job of the batch system is about to end."""

    at: str  # its address
    reason: str


@dataclass(frozen=True)
class GivenUp:
    """A point that is not run again: too many workers died of it, or its world cannot start."""

    reason: str


async def join(needs: Needs, dask_worker: Worker) -> Joined:
    """Compare what a worker has with what points need. A worker that has it all offers its cores."""
    refused = await asyncio.to_thread(_why_refused, needs)
    offered = dask_worker.state.total_resources.get("world", dask_worker.state.nthreads)
    worlds = int(min(offered, len(os.sched_getaffinity(0)), dask_worker.state.nthreads))
    if has := not refused and needs.mark.exists() and needs.world.exists():
        await dask_worker.set_resources(**{needs.resource: worlds})
    return Joined(_name(dask_worker), refused, has, worlds)


def _why_refused(needs: Needs) -> str:
    if not needs.checkout.is_dir():
        return f"it has no checkout at {needs.checkout}, the path that all it is sent names"
    if (found := digest_of_checkout(needs.checkout)) != needs.digest:
        return (
            f"its checkout {needs.checkout} has the digest {found[:12]}, and this one {needs.digest[:12]}: "
            "bring it to the same commit and run make setup build there"
        )
    if not Path(needs.python).exists():
        return f"it has no {needs.python}: run make setup in its checkout"
    if (limit := int(_MAPPINGS.read_text())) < MAPPINGS:
        return f"its vm.max_map_count is {limit}, and worlds need {MAPPINGS}: set it by sysctl"
    return ""


def take(needs: Needs, piece: bytes, *, first: bool) -> None:
    """Append a piece to the world's archive; ``first`` begins it anew."""
    needs.mark.parent.mkdir(parents=True, exist_ok=True)
    with _part(needs).open("wb" if first else "ab") as file:
        file.write(piece)


def place(needs: Needs) -> None:
    """Unpack the world's archive; OSError if it is damaged, or if a world is in use that it replaces.

    Workers of one machine share its files: the first one unpacks it.
    """
    part = _part(needs)
    try:
        with FileLock(f"{needs.mark}.lock"):
            if not needs.mark.exists():
                with tempfile.TemporaryDirectory(dir=needs.mark.parent) as scratch:
                    unpack(part, Path(scratch), needs.archive)
                    _put(needs, Path(scratch))
                needs.mark.touch()
    finally:
        part.unlink(missing_ok=True)


def _put(needs: Needs, scratch: Path) -> None:
    """Put parts of a world in their places, but for those that are there."""
    lacking = [
        (name, mark) for name, version in needs.parts if not (mark := needs.mark_of(name, version)).exists()
    ]
    for name, _ in lacking:
        if Path(name).parts[0] in _KEYS and (needs.lab / name).exists():
            raise OSError(f"a lab of its own has keys in {needs.lab / name}, so it can run light worlds only")
    with _unused(needs, replaces=any((needs.lab / name).exists() for name, _ in lacking)):
        for name, mark in lacking:
            target = needs.lab / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            (scratch / name).rename(target)
            mark.touch()


@contextmanager
def _unused(needs: Needs, *, replaces: bool) -> Iterator[None]:
    """Have the world's directory, alone if parts of it are replaced."""
    needs.world.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(needs.world, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if replaces else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(f"a run uses another {needs.world}; remove it when that has ended") from None
    else:
        yield
    finally:
        os.close(descriptor)


def _part(needs: Needs) -> Path:
    """The archive while it arrives; of each worker, because several may share the files."""
    return needs.mark.with_name(f"{needs.archive}.{socket.gethostname()}.{os.getpid()}.part")


def run_point(run: Callable[[World], Ended], needs: Needs, job: Job) -> Home | Leaving | GivenUp:
    """Run a point's world below the worker's own directory, and pack what it leaves."""
    worker = get_worker()
    name = _name(worker)
    if len(died := died_of(get_client().get_events(job.topic))) >= MOST_DEATHS:
        return GivenUp(f"given up, because workers died while they ran it: {'; '.join(died)}")
    worker.log_event(job.topic, {"began": name})
    try:
        with tempfile.TemporaryDirectory(prefix="point.", dir=worker.local_directory) as scratch:
            return _run(run, needs, job, Path(scratch), name)
    except _MustLeave as why:
        return Leaving(worker.address, f"{name}: {why}")
    except OSError as error:
        return GivenUp(f"{error} (it ran on {name})")
    finally:
        worker.log_event(job.topic, {"left": name})


_prepare = functools.cache(prepare)  # once in each worker


def died_of(events: Iterable[tuple[float, Mapping[str, str]]]) -> list[str]:
    """Names of workers that began a point and did not leave it."""
    died: list[str] = []
    for _, event in events:
        if "began" in event:
            died.append(event["began"])
        elif event["left"] in died:
            died.remove(event["left"])
    return died


def _run(run: Callable[[World], Ended], needs: Needs, job: Job, scratch: Path, name: str) -> Home:
    _ask_for_time(2 * job.world.expected_s)
    _ask_for_room(scratch, LEAST_ROOM_BYTES)
    archive, root = scratch / "archive", scratch / job.root.name
    archive.write_bytes(job.inputs)
    try:
        unpack(archive, root, job.digest)
        _prepare(needs.world)
        with in_use(needs.world):
            ended = run(moved(job.world, job.root, root))
        _ask_for_room(scratch, _FULL_BYTES)
        digest = pack(root, [str(job.folder.relative_to(job.root))], archive)
    except OSError:  # it may be for lack of room
        _ask_for_room(scratch, _FULL_BYTES)
        raise
    if ended.reason:
        reason = ended.reason.replace(str(root), str(job.root))
        ended = replace(ended, reason=f"{reason} (it ran on {name})")
    return Home(ended, archive.read_bytes(), digest)


def moved(world: World, before: Path, now: Path) -> World:
    """A world whose directories are below another one."""

    def at(path: Path) -> Path:
        return now / path.relative_to(before)

    return replace(
        world,
        dir=at(world.dir),
        writable={within: at(path) for within, path in world.writable.items()},
        readable={within: at(path) for within, path in world.readable.items()},
    )


def _ask_for_room(folder: Path, least_bytes: int) -> None:
    if (free := shutil.disk_usage(folder).free) < least_bytes:
        raise _MustLeave(f"its disk is full: {free >> 20} MB are free in {folder.parent}")


def _ask_for_time(least_s: float) -> None:
    """A batch system ends a job at its limit, in the middle of a point."""
    end_s = os.environ.get("SLURM_JOB_END_TIME")
    if end_s and (left_s := float(end_s) - time.time()) < least_s:
        raise _MustLeave(f"its job ends in {left_s:.0f} s, and a point may take {least_s:.0f} s")


def _name(worker: Any) -> str:
    """A worker for people: its name, its machine, and where it writes its log."""
    log = os.readlink("/proc/self/fd/2")
    where = f"log {log}" if Path(log).is_file() else "it has no log file"
    return f"worker {worker.name} on {socket.gethostname()} ({where})"
