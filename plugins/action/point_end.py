"""Await the end of a point on a host, and fetch its agents' files."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, ``run`` (directory of the run), ``influxdb``, which has the samples, and those
    of :func:`dumbbell.execution.steps.end`.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "influxdb": {"type": "dict"},
        "end_timeout_s": {"type": "int", "required": True},
        "answer_timeout_s": {"type": "int", "required": True},
    }

    def step(self, run: str, influxdb: dict[str, Any] | None, **args: Any) -> dict[str, Any]:
        """Show the progress of the measurement, then fetch."""
        point = self.on.point

        def show(t0_unix_ns: int) -> str:
            # Only one of the hosts shows it. The import takes each worker half a second.
            from dumbbell.execution.follow import follow  # noqa: PLC0415

            return follow(
                title=str(point.facts["name"]).split(":", maxsplit=1)[0],
                phase="measurement",
                run_id=point.run_id,
                run_dir=point.dir,
                run=run,
                t0_unix_ns=t0_unix_ns,
                influxdb=influxdb,
            )

        return steps.end(self.on, show, **args)
