"""Plan a scenario for this inventory and make its run directory."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dumbbell.model import ScenarioError
from dumbbell.plan import Inventory, InventoryError, Plan, Point, plan
from dumbbell.states import record_state


class ActionModule(ActionBase):
    """Arguments: ``scenario``, ``results_dir``, ``profile``, ``point``.

    Returns run_id, run_dir, plan (of the point), and each host's phases.
    In check mode it only plans, and makes no run directory.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan, then write scenario.yml, plan.json and each agent's part of the plan."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "scenario": {"type": "path", "required": True},
                "results_dir": {"type": "path", "required": True},
                "profile": {"type": "str"},
                "point": {"type": "str"},
            }
        )
        assert task_vars is not None
        scenario = Path(args["scenario"])
        try:
            inventory = Inventory.of(task_vars["groups"], task_vars["hostvars"])
            planned = plan(scenario, inventory, args["profile"])
        except (ScenarioError, InventoryError) as error:
            raise AnsibleActionFail(str(error)) from None
        point = _chosen(planned, args["point"])
        planned = planned.model_copy(update={"points": [point]})
        if self._task.check_mode:
            return result | {"changed": False, "plan": point.model_dump(mode="json")}
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{planned.scenario}"
        run_dir = Path(args["results_dir"]).absolute() / run_id
        run_dir.mkdir(parents=True)
        shutil.copy(scenario, run_dir / "scenario.yml")
        (run_dir / "plan.json").write_bytes(planned.to_json())
        latest = run_dir.parent / "latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(run_id)
        phases = _write_parts(point, run_id, run_dir)
        record_state(run_dir, "planned")
        return result | {
            "changed": True,
            "run_id": run_id,
            "run_dir": str(run_dir),
            "plan": point.model_dump(mode="json"),
            "phases": phases,
        }


def _chosen(planned: Plan, asked: str | None) -> Point:
    """The only point, or the one that was asked for by its id, in its first repetition."""
    points = {point.id: point for point in reversed(planned.points)}
    if len(points) == 1 and asked is None:
        return planned.points[0]
    if asked in points:
        return points[asked]
    known = "\n".join(f"{name}  {point.label}" for name, point in points.items())
    wanted = f"there is no point {asked}" if asked else "choose one of its points: -e point=ID"
    raise AnsibleActionFail(f"{planned.scenario}: {wanted}\n{known}")


def _write_parts(planned: Point, run_id: str, run_dir: Path) -> dict[str, list[str]]:
    """Write raw/HOST/PHASE/plan.json for every host that takes part; return its phases by host."""
    phases: dict[str, list[str]] = {}
    for host in planned.hosts:
        (run_dir / "raw" / host).mkdir(parents=True)
    for phase in planned.phases:
        for host in phase.hosts:
            directory = run_dir / "raw" / host / phase.phase
            directory.mkdir()
            about = {"run_id": run_id, "point": planned.id, "host": host}
            (directory / "plan.json").write_text(json.dumps(phase.model_dump(mode="json") | about, indent=1))
            phases.setdefault(host, []).append(phase.phase)
    return phases
