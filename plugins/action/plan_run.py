"""Plan a scenario for this inventory and create its run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dumbbell.places import known
from dumbbell.plan import Inventory, InventoryError, Plan, clock, in_real_time, plan
from dumbbell.run.directory import RunDir
from dumbbell.scenario import ScenarioError
from dumbbell.units import parse_duration

_HOUR_NS = 3600 * 10**9
_NONE = "name a scenario: -e scenario=scenarios/two_flow_fairness.yml"
_OTHER = {
    True: "the hosts of this inventory live in virtual time (lab_machine: vtime): run playbooks/virtual.yml",
    False: "the hosts of this inventory do not live in virtual time: -i inventory/vtime has some that do",
}


class ActionModule(ActionBase):
    """Arguments: ``scenario`` (a file; '' if the user named none), ``results_dir``, ``profile``, ``point``
    (an id; by default all), ``seed`` and ``repetitions`` (in place of the scenario's), ``virtual`` (whether
    it will run in virtual time), ``at_most`` (longest duration of traffic).

    Returns RunDir.facts of the run and of each point. In check mode it only plans, creates no run
    directory, and returns only the points' plans.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan, and write scenario.yml, plan.json and each agent's part of the plan."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "scenario": {"type": "path", "required": True},
                "results_dir": {"type": "path", "required": True},
                "profile": {"type": "str"},
                "point": {"type": "str"},
                "seed": {"type": "int"},
                "repetitions": {"type": "int"},
                "virtual": {"type": "bool", "default": False},
                "at_most": {"type": "str", "default": "24h"},
            }
        )
        if not args["scenario"]:
            raise AnsibleActionFail(_NONE)
        scenario = known(args["scenario"], "scenarios")
        try:
            inventory = Inventory.of(task_vars["groups"], task_vars["hostvars"])
            if inventory.virtual != args["virtual"]:
                raise InventoryError(_OTHER[inventory.virtual])
            whole = plan(scenario, inventory, args["profile"], args["seed"], args["repetitions"])
            planned = _chosen(whole, args["point"])
            at_most_ns = parse_duration(args["at_most"])
        except (ScenarioError, InventoryError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from None
        if planned.duration_ns > at_most_ns:
            takes = f"{planned.scenario} takes {clock(planned.duration_ns)} of traffic"
            hours = -(-planned.duration_ns // _HOUR_NS)
            raise AnsibleActionFail(
                f"{takes}, more than {args['at_most']}. If that is meant, allow it: -e run_at_most={hours}h"
            )
        for warned in planned.unacknowledged:
            self._display.warning(str(warned))
        if self._task.check_mode:
            if planned.virtual:
                self._display.display(in_real_time(planned))
            points = [{"plan": point.model_dump(mode="json")} for point in planned.points]
            return result | {"changed": False, "points": points}
        run = RunDir.create(planned, scenario, Path(args["results_dir"]))
        return result | {"changed": True} | run.facts(run.executions)


def _chosen(planned: Plan, asked: str | None) -> Plan:
    """The plan with all points, or with every repetition of the point that has the id ``asked``."""
    if asked is None:
        return planned
    points = [point for point in planned.points if point.id == asked]
    if not points:
        known = "\n".join(dict.fromkeys(f"{point.id}  {point.label}" for point in planned.points))
        raise AnsibleActionFail(f"{planned.scenario}: there is no point {asked}. Its points:\n{known}")
    return planned.model_copy(update={"points": points})
