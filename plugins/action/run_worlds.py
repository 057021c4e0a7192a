"""Run worlds of virtual time side by side."""

from __future__ import annotations

import compileall
import fcntl
import os
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.world import World, run_all, virtual_s

_SAY_S = 30.0
_INSTALLED = Path(sysconfig.get_path("purelib"))


class ActionModule(ActionBase):
    """Arguments: ``world`` (``dir`` with what it begins with, ``kernel``), ``checkout``, and ``worlds``, of
    each, as :class:`dumbbell.world.World` has them, ``dir``, ``command``, ``writable``, ``readable`` and
    ``seed``; ``stall_timeout`` (s).

    Returns ``ended``, of each world what :class:`dumbbell.world.Ended` has.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run them, and say now and then how far they are."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "world": {"type": "dict", "required": True},
                "checkout": {"type": "path", "required": True},
                "worlds": {"type": "list", "elements": "dict", "required": True},
                "stall_timeout": {"type": "float", "default": 300},
            }
        )
        # A controller that has to compile what it imports takes other steps than one that finds it compiled.
        for folder in (Path(args["checkout"], "src"), Path(args["checkout"], "plugins"), _INSTALLED):
            compileall.compile_dir(folder, quiet=2)
        second = int(time.time())  # whole: what is done at multiples of the wall clock's then repeats
        worlds = [
            World(
                dir=Path(of["dir"]),
                kernel=Path(args["world"]["kernel"]),
                init=Path(args["world"]["dir"], "init"),
                command=of["command"],
                checkout=Path(args["checkout"]),
                writable=_paths(of["writable"]),
                readable=_paths(of.get("readable", {})),
                start_unix_ns=second * 1_000_000_000,
                seed=of.get("seed", ""),
                stall_s=args["stall_timeout"],
            )
            for of in args["worlds"]
        ]
        began = time.monotonic()
        with _in_use(Path(args["world"]["dir"])), ThreadPoolExecutor(1) as thread:
            running = thread.submit(run_all, worlds)
            while not wait([running], timeout=_SAY_S).done:
                times = ", ".join(f"{virtual_s(world):.0f}" for world in worlds)
                passed_s = time.monotonic() - began
                Display().display(f"after {passed_s:.0f} s of real time, seconds of virtual time: {times}")
        ended = running.result()
        for world, of in zip(worlds, ended, strict=True):
            took = (
                f"{of.virtual_s:.0f} s of virtual time in {of.real_s:.0f} s: {of.virtual_s / of.real_s:.2f}"
                if of.real_s
                else "had come to its end before"
            )
            if of.turns_ended:
                took += f"; what computed without a pause was made to wait 1 ms, {of.turns_ended} times"
            Display().display(f"{world.dir.parent.name}: {took}")
        reasons = "; ".join(of.reason for of in ended if of.reason)
        return result | {"changed": True, "ended": [asdict(of) for of in ended], "msg": reasons}


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Hold a shared lock on a directory, so that no other run removes what worlds begin with there."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _paths(by_path: dict[str, str]) -> dict[Path, Path]:
    return {Path(within): Path(outside) for within, outside in by_path.items()}
