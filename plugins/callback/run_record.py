"""Write the verdict `aborted`, with the reasons, if a run's playbook failed before the run was judged."""

from __future__ import annotations

DOCUMENTATION = """
name: run_record
type: aggregate
author: Dumbbell (@dumbbell)
short_description: Record why a run was aborted
description:
  - A run whose playbook fails before it is judged gets a C(verdict.json) with the state C(aborted)
    and the reasons.
"""

from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

_MAKE_RUNS = ("dumbbell.testbed.plan_run", "dumbbell.testbed.resume_run")


class CallbackModule(CallbackBase):
    """Remembers the run of this playbook, and its failures."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "run_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.run_dir: Path | None = None
        self.reasons: dict[tuple[str, str], str] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        """Remember the run directory that this playbook created."""
        # In check mode none is created.
        if result.task.action in _MAKE_RUNS and (made := result.result.get("run_dir")):
            self.run_dir = Path(made)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Remember a failure."""
        if not ignore_errors:
            self._remember(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Remember a failure."""
        if not result.task.ignore_unreachable:
            self._remember(result)

    def _remember(self, result: Any) -> None:
        host, reason = result.host.get_name(), result.result.get("msg", "failed")
        # Keep the first task with this reason; later tasks repeat it.
        self.reasons.setdefault((host, reason), f"{host}: {result.task.get_name()}: {reason}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the verdict, if there is none."""
        if self.run_dir is None or not self.reasons or (self.run_dir / "verdict.json").exists():
            return
        # Loading them takes a second; and only a playbook that has the package makes runs.
        from dumbbell.report.pages.index import render_index  # noqa: PLC0415
        from dumbbell.run.record import abort  # noqa: PLC0415

        abort(self.run_dir, list(self.reasons.values()))
        render_index(self.run_dir.parent)
