"""Sends points to the workers of a cluster, the longest first, and brings their results home."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from distributed import KilledWorker

from dumbbell.cluster import ClusterError
from dumbbell.cluster.needs import Needs
from dumbbell.cluster.worker import GivenUp, Home, Job, Joined, Leaving, join, place, run_point, take
from dumbbell.run.directory import LISTED
from dumbbell.run.packed import pack, unpack
from dumbbell.virtual.world import Ended, World, ended_before

if TYPE_CHECKING:
    from distributed import Client, Future

_LOOK_S = 1.0
_SAY_S = 30.0
_PATIENCE_S = 60.0  # with workers that are all refused
_PIECE_BYTES = 16 << 20
_AHEAD = 2  # points that Dask has for each world that runs, so that none waits for the controller
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)

Run = Callable[[World], Ended]


@dataclass
class _Asked:
    """The worlds of a call: those that wait, the longest last; those that Dask has; and those that ended."""

    run: Run
    root: Path  # the run's directory
    waiting: list[World]
    flying: dict[Path, tuple[World, Future]] = field(default_factory=dict)  # by the world's directory
    ended: dict[Path, Ended] = field(default_factory=dict)


class Points(Executor):
    """An executor of worlds, as :func:`dumbbell.virtual.world.run_all` takes it, on a cluster.

    Its only method is :meth:`map`. ``archive`` is that of the world. ``say`` gets lines for people.
    """

    def __init__(self, client: Client, needs: Needs, archive: Path, say: Callable[[str], None]) -> None:
        self._client, self._needs, self._archive, self._say = client, needs, archive, say
        self._workers: dict[str, Joined] = {}  # by address
        self._back: SimpleQueue[tuple[World, Future]] = SimpleQueue()
        self._id = uuid.uuid4().hex
        self._had_worker = time.monotonic()

    def map(  # type: ignore[override]
        self, fn: Run, worlds: Iterable[World], /, **_: object
    ) -> Iterator[Ended]:
        """How each world ended, in order. ClusterError if the cluster is lost, or no worker can take part."""
        if not (every := list(worlds)):
            return
        before = {world.dir: end for world in every if (end := ended_before(world))}
        left = [world for world in every if world.dir not in before]
        longest_last = sorted(left, key=lambda world: world.expected_s)
        asked = _Asked(fn, _root(every[0]), longest_last, ended=before)
        looked = said = -_SAY_S
        while len(asked.ended) < len(every):
            if (now := time.monotonic()) - looked > _LOOK_S:
                looked = now
                self._look(asked)
            while asked.waiting and len(asked.flying) < _AHEAD * self._slots:
                self._send(asked, asked.waiting.pop())
            try:
                self._bring_world()
            except OSError:
                raise self._lost(asked) from None
            if now - said > _SAY_S:
                said = now
                self._say(self._progress(len(asked.ended), len(every)))
            with suppress(Empty):
                self._take_back(asked, *self._back.get(timeout=_LOOK_S))
        with suppress(OSError):  # all points are home
            self._present()
        self._say(self._progress(len(every), len(every)))
        yield from (asked.ended[world.dir] for world in every)

    @property
    def _ready(self) -> list[Joined]:
        return [of for of in self._workers.values() if of.has_world and not of.refused]

    @property
    def _refused(self) -> list[Joined]:
        return [of for of in self._workers.values() if of.refused]

    @property
    def _slots(self) -> int:
        """How many worlds run at once."""
        return sum(of.worlds for of in self._ready)

    def _progress(self, done: int, total: int) -> str:
        refused = f", {len(self._refused)} refused" if self._refused else ""
        return (
            f"cluster: {done} of {total} points have ended, {min(total - done, self._slots)} run on "
            f"{len(self._ready)} workers{refused}; {self._client.dashboard_link or 'no dashboard'}"
        )

    # points

    def _send(self, asked: _Asked, world: World) -> None:
        future = self._client.submit(
            run_point,
            asked.run,
            self._needs,
            job_of(world, f"dumbbell-{self._id}-{world.dir}"),
            key=f"{world.dir.parent.name}-{uuid.uuid4().hex}",
            resources={self._needs.resource: 1},
            priority=world.expected_s,
            pure=False,
        )
        asked.flying[world.dir] = world, future
        future.add_done_callback(lambda future: self._back.put((world, future)))

    def _take_back(self, asked: _Asked, world: World, future: Future) -> None:
        """Keep how a world ended, or have it run again."""
        if asked.flying.get(world.dir) != (world, future):
            return  # it was recalled
        del asked.flying[world.dir]
        if future.status not in {"finished", "error"}:
            raise self._lost(asked)
        try:
            answer: Home | Leaving | GivenUp = future.result()
        except KilledWorker:  # perhaps another point's fault; each point counts the workers that died of it
            asked.waiting.append(world)
        except CancelledError:
            raise self._lost(asked) from None
        except Exception as error:
            if self._client.status != "running":
                raise self._lost(asked) from None
            asked.ended[world.dir] = _failed(f"{type(error).__name__}: {error}")
        else:
            if isinstance(answer, Leaving):
                self._retire(answer)
                asked.waiting.append(world)
            elif isinstance(answer, GivenUp):
                asked.ended[world.dir] = _failed(answer.reason)
            else:
                self._keep(asked, world, answer)

    def _keep(self, asked: _Asked, world: World, home: Home) -> None:
        try:
            bring_home(home, world)
        except OSError as error:
            raise ClusterError(
                f"{_folder(world)} has come home and cannot be kept: {error}. When that is put right: "
                f"playbooks/virtual.yml -e run={asked.root}"
            ) from None
        asked.ended[world.dir] = home.ended

    def _lost(self, asked: _Asked) -> ClusterError:
        return ClusterError(
            "the cluster's scheduler no longer answers. What has come home is kept. "
            f"To go on: playbooks/virtual.yml -e run={asked.root}"
        )

    # workers

    def _present(self) -> list[str]:
        """Addresses of the workers that are there. Says of others that they are gone."""
        present = list(self._client.nthreads())
        for at in self._workers.keys() - set(present):
            gone = self._workers.pop(at)
            if not gone.refused:
                self._say(f"{gone.name} is gone; what it ran begins again elsewhere")
        return present

    def _look(self, asked: _Asked) -> None:
        """See which workers came and went."""
        if self._client.status != "running":
            raise self._lost(asked)
        try:
            self._ask([at for at in self._present() if at not in self._workers])
        except OSError:
            raise self._lost(asked) from None
        if self._ready or not self._refused:
            self._had_worker = time.monotonic()
        elif time.monotonic() - self._had_worker > _PATIENCE_S:
            why = "\n".join(f"{of.name} is refused: {of.refused}" for of in self._refused)
            raise ClusterError(f"no worker of the cluster can run points:\n{why}")
        if not self._ready:
            # Dask would give them to a worker that comes with what they need, not to one that offers it then.
            for world, future in asked.flying.values():
                future.cancel()
                asked.waiting.append(world)
            asked.flying.clear()
            asked.waiting.sort(key=lambda world: world.expected_s)

    def _bring_world(self) -> None:
        """Bring the world to workers that lack it, and let them take part."""
        lacking = [at for at, of in self._workers.items() if not of.refused and not of.has_world]
        if not lacking:
            return
        size = self._archive.stat().st_size
        self._say(f"{len(lacking)} workers get the world {self._needs.archive[:12]}: {size >> 20} MB")
        said: dict[str, Any] = {}
        with self._archive.open("rb") as file:
            first = True
            while piece := file.read(_PIECE_BYTES):
                said |= self._client.run(
                    take, self._needs, piece, first=first, workers=lacking, on_error="return"
                )
                first = False
        said |= self._client.run(place, self._needs, workers=lacking, on_error="return")
        for at in lacking:
            if said.get(at) is not None:
                self._refuse(
                    at, replace(self._workers[at], refused=f"it could not get the world: {said[at]}")
                )
        self._ask([at for at in lacking if not self._workers[at].refused])

    def _ask(self, addresses: list[str]) -> None:
        if not addresses:
            return
        answers = self._client.run(join, self._needs, workers=addresses, on_error="return")
        for at in addresses:
            answer = answers.get(at)
            if not isinstance(answer, Joined):
                why = f"it could not say what it has, so its checkout is another one: {answer!r}"
                answer = Joined(f"worker {at}", why, has_world=False, worlds=0)
            self._workers[at] = answer
            if answer.refused:
                self._refuse(at, answer)

    def _refuse(self, at: str, worker: Joined) -> None:
        self._workers[at] = worker
        self._say(f"{worker.name} is refused: {worker.refused}")

    def _retire(self, worker: Leaving) -> None:
        """End a worker that can run no more; Dask gives its other points to others."""
        known = self._workers.get(worker.at)
        if known is not None and not known.refused:
            self._workers[worker.at] = replace(known, refused=worker.reason)
            self._say(f"{worker.reason}; it is ended, and its points run elsewhere")
            self._client.retire_workers([worker.at], close_workers=True)


def _failed(reason: str) -> Ended:
    return Ended(status=None, virtual_s=0, real_s=0, reason=reason)


def _root(world: World) -> Path:
    """The run's directory, which a point's world reads."""
    (root,) = world.readable.values()
    return root


def _folder(world: World) -> Path:
    """The point's directory, which its world writes."""
    (folder,) = world.writable.values()
    return folder


def job_of(world: World, topic: str) -> Job:
    """What a worker needs to run a world: the point's directory, and in a full world the run's plan."""
    root, folder = _root(world), _folder(world)
    names, attempts = [str(folder.relative_to(root))], []
    if world.light is None and folder != root:
        names += [name for name in ("plan.json", LISTED) if (root / name).exists()]
        attempts = [str(path.relative_to(root)) for path in folder.parent.glob(f"{folder.name}_attempt*")]
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "inputs")
        digest = pack(root, names, archive, empty=attempts)
        return Job(topic, world, root, folder, archive.read_bytes(), digest)


def bring_home(home: Home, world: World) -> None:
    """Put a point's directory in the place of the one that was sent, at once. OSError if it is damaged."""
    root, folder = _root(world), _folder(world)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        archive, files = Path(scratch, "archive"), Path(scratch, "files")
        archive.write_bytes(home.files)
        unpack(archive, files, home.digest)
        _exchange(files / folder.relative_to(root), folder)


def _exchange(one: Path, other: Path) -> None:
    paths = os.fsencode(one), os.fsencode(other)
    if _libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot exchange two directories: {os.strerror(number)}", str(other))
