"""The worlds of a run's points: which kind of world they take, and what each begins with."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from dumbbell.plan.virtual import only_full, real_s
from dumbbell.run.directory import Execution, RunDir

_RESULTS = PurePosixPath("/run/results")  # where a world sees the run's directory, wherever results are kept


def why_full(run: RunDir) -> str:
    """Why a run takes full worlds although it may take light ones; '' if it does not.

    All of its points take the same kind of world, so that they can be compared.
    """
    lacking = only_full(execution.point for execution in run.executions)
    return f"light worlds lack {' and '.join(lacking)}" if lacking else ""


def full(run: RunDir, executions: Sequence[Execution], playbook: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The world of each point, as :func:`dumbbell.virtual.runs.run` has it; ``playbook`` is a command that
    runs a playbook in a world."""
    for execution in executions:
        asked = ("-e", f"run={_seen(run.dir, run)}", "-e", f"point={execution.id}", "-e", "run_judged=false")
        yield _world(run, execution) | {"command": [*playbook, "dumbbell.testbed.world_point", *asked]}


def light(
    run: RunDir,
    executions: Sequence[Execution],
    hosts: Mapping[str, Mapping[str, Any]],
    routers: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """The same of light worlds; ``hosts`` has what the action ``describe_host`` returned of each."""
    variables = {name: of["variables"] for name, of in hosts.items()}
    settings = next(iter(hosts.values()))["settings"]
    for execution in executions:
        point = execution.facts(last=execution.id == run.executions[-1].id)
        yield _world(run, execution) | {
            "command": [sys.executable, "-m", "dumbbell.virtual.light", "/run/world"],
            "light": {
                "run": _seen(run.dir, run),
                "point": point | {"run_dir": _seen(execution.dir, run)},
                "variables": variables,
                "routers": list(routers),
                "settings": settings,
            },
        }


def _world(run: RunDir, execution: Execution) -> dict[str, Any]:
    return {
        "dir": str(execution.dir / "world"),
        "seed": execution.seed,
        "expected_s": real_s([execution.point]),
        "readable": {_seen(run.dir, run): str(run.dir)},
        "writable": {_seen(execution.dir, run): str(execution.dir)},
    }


def _seen(folder: Path, run: RunDir) -> str:
    """A directory of the run, as its worlds see it."""
    return str(_RESULTS / run.dir.name / folder.relative_to(run.dir))
