"""Report whether the hosts of a testbed can run a scenario, and why not."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.answers import trouble_of
from dumbbell.execution.words import can_run


class ActionModule(HostAction):
    """Argument: ``scenario``. Reads ``run_checked`` of each host; fails if a host cannot."""

    spec: ClassVar[dict[str, Any]] = {"scenario": {"type": "str", "required": True}}

    def act(self, scenario: str) -> dict[str, Any]:
        """One answer for all hosts."""
        checked = self.registered("run_checked")
        troubles = {host: trouble_of(answer) for host, answer in checked.items()}
        boots = {host: str(answer["boots"]) for host, answer in checked.items() if answer.get("boots")}
        told = can_run(scenario, troubles, boots)
        if any(troubles.values()):
            return {"failed": True, "msg": told}
        self._display.display(told)
        return {}
