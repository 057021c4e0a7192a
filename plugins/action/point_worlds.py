"""Choose the worlds of virtual time in which the points of a run take place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.run.directory import RunDir
from dumbbell.virtual.points import full, light, why_full


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``points`` (ids of executions), ``full`` (by default only if the plan
    needs full worlds), ``playbook`` (the command that runs a playbook in a world).

    Needs ``run_described`` of each host, which ``describe_host`` returned. Returns ``worlds``, for
    ``run_worlds``.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Choose them, and say why they are full if nobody asked for that."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "points": {"type": "list", "elements": "str", "required": True},
                "full": {"type": "bool", "default": False},
                "playbook": {"type": "list", "elements": "str", "required": True},
            }
        )
        run = RunDir.open(Path(args["run_dir"]))
        chosen = [execution for execution in run.executions if execution.id in args["points"]]
        if why := "" if args["full"] else why_full(run):
            Display().display(f"full worlds: {why}")
        if args["full"] or why:
            return result | {"worlds": list(full(run, chosen, args["playbook"]))}
        groups, of = task_vars["groups"], task_vars["hostvars"]
        names = [name for name in groups["testbed"] if name not in groups.get("archives", [])]
        hosts = {name: of[name]["run_described"] for name in names}
        return result | {"worlds": list(light(run, chosen, hosts, groups["routers"]))}
