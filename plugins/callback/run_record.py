"""Gives a run that Ansible could not bring to its end the verdict `aborted`, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

from dumbbell.run.directory import abort

DOCUMENTATION = """
name: run_record
type: aggregate
short_description: Record why a run was aborted
description:
  - A run whose playbook fails before it is judged gets a C(verdict.json) with the state C(aborted)
    and the reasons.
"""


class CallbackModule(CallbackBase):
    """Remembers the run that is under way and what failed."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "run_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.run_dir: Path | None = None
        self.reasons: dict[tuple[str, str], str] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        """Learn which run directory this playbook made."""
        # A plan alone makes none.
        if result.task.action in ("plan_run", "resume_run") and (made := result.result.get("run_dir")):
            self.run_dir = Path(made)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Remember a reason."""
        if not ignore_errors:
            self._remember(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Remember a reason."""
        if not result.task.ignore_unreachable:
            self._remember(result)

    def _remember(self, result: Any) -> None:
        host, reason = result.host.get_name(), result.result.get("msg", "failed")
        # The first task that says it is where it went wrong; later ones pass it on.
        self.reasons.setdefault((host, reason), f"{host}: {result.task.get_name()}: {reason}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the verdict, if nothing else has."""
        if self.run_dir is None or not self.reasons or (self.run_dir / "verdict.json").exists():
            return
        abort(self.run_dir, list(self.reasons.values()))
        from dumbbell.report.pages.index import render_index  # noqa: PLC0415  only here, because it takes a second

        render_index(self.run_dir.parent)
