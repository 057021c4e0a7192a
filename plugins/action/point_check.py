"""Check whether a host can do what points ask for, and lock it for their run."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from dumbbell.execution.host_state import PROGRAMS, StateAction, holder
from dumbbell.execution.point import PlannedPoint


class ActionModule(StateAction):
    """Arguments: ``points`` (as plan_run returns them), ``hold`` (id of the run that locks the host; '' to
    check only), ``hold_s``.

    Returns ``boots``, the kernel that the host must boot first, '' if it is running, and ``kinds`` of all
    flows with an end on the host. Changes nothing else. Another kernel's features are checked after its boot.
    """

    spec: ClassVar[dict[str, Any]] = {
        "points": {"type": "list", "elements": "dict", "required": True},
        "hold": {"type": "str", "default": ""},
        "hold_s": {"type": "int", "default": 0},
    }

    def act(self, points: list[dict[str, Any]], hold: str, hold_s: int) -> dict[str, Any]:
        """Try each requested state in check mode."""
        variables = self.variables()
        states: dict[str, dict[str, Any]] = {}
        sources: dict[str, None] = {}
        for facts in points:
            plan = facts["plan"]
            if self.host not in plan["hosts"]:
                continue
            asked = self.asked(variables, plan)
            states.setdefault(json.dumps(asked, sort_keys=True), asked)
            for phase in plan["phases"]:
                sample = phase["hosts"].get(self.host, {}).get("sample", {})
                sources |= dict.fromkeys(name for name in ("trace", "ebpf") if sample.get(name))
        kernels = {asked["kernel"] for asked in states.values() if asked["kernel"]}
        runs = self.shell("uname -r").strip()
        boots = next((kernel for kernel in kernels if kernel != runs), "")
        self.module(
            check=True,
            asked=[] if boots else list(states.values()),
            hold=holder(hold, hold_s) if hold else None,
            probe=[] if boots else list(sources),
            programs=[] if hold else list(PROGRAMS),
        )
        kinds = {kind for facts in points for kind in PlannedPoint(facts).kinds(self.host)}
        return {"boots": boots, "kinds": sorted(kinds)}
