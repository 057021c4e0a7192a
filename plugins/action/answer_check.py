"""Report whether the hosts of a testbed can run a scenario, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.answers import trouble_of
from dumbbell.execution.preflight import End, Finding, Ping, findings, unanswered, unreached
from dumbbell.execution.words import can_run
from dumbbell.inventory.check import forwarding


class ActionModule(HostAction):
    """Argument: ``scenario``. Reads ``run_checked``, ``run_read`` and ``run_tried`` of each host.

    Fails if a host cannot run it.
    """

    spec: ClassVar[dict[str, Any]] = {"scenario": {"type": "str", "required": True}}

    def act(self, scenario: str) -> dict[str, Any]:
        """One answer for all hosts."""
        checked = self.registered("run_checked")
        found = {host: list(self._found(host)) for host in checked}
        boots = {host: str(answer["boots"]) for host, answer in checked.items() if answer.get("boots")}
        reasons = {host: [each.text for each in of if each.refuses] for host, of in found.items()}
        notes = {host: [each.text for each in of if not each.refuses] for host, of in found.items()}
        told = can_run(scenario, reasons, notes, boots)
        if any(reasons.values()):
            return {"failed": True, "msg": told}
        self._display.display(told)
        return {}

    def _found(self, host: str) -> Iterator[Finding]:
        read, tried = self.registered("run_read"), self.registered("run_tried")
        steps = [of[host] for of in (self.registered("run_checked"), read, tried) if host in of]
        yield from (Finding(text, True) for text in dict.fromkeys(map(trouble_of, steps)) if text)
        facts = {name: answer["facts"] for name, answer in read.items() if "facts" in answer}
        routers = self.task_vars["groups"].get("routers", [])
        if host in facts:
            interfaces = self.task_vars["hostvars"][host].get("experiment_interfaces", {})
            yield from findings(facts[host], forwarding(interfaces) if host in routers else ())
        answer = tried.get(host, {})
        pings = [(Ping(*ping), said) for ping, said in answer.get("pings", [])]
        yield from unanswered([ping for ping, _ in pings], [said for _, said in pings])
        ends = [(End(*end), error) for end, error in answer.get("tries", [])]
        taken = {name: of.get("taken", []) for name, of in read.items()}
        yield from unreached(ends, facts, taken, routers)
