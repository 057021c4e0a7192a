"""Apply a point's complete state to a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dumbbell.execution import own_delay
from dumbbell.execution.action import StepAction
from dumbbell.execution.host_state import StateAction, holder, token
from dumbbell.run.directory import read_json, record_state, write_json


class ActionModule(StateAction, StepAction):
    """Arguments: ``planned`` (a point), ``run`` (directory of the run), ``hold_s`` (duration of its lock
    of the host), ``trim_us`` (the path's own delay, if it was just measured), ``pack`` (stored runs).

    Writes ``raw/HOST/state.json``. Returns ``trims``, whether the path's own delay must be measured. For a
    measurement that went on alone it only renews the lock.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "hold_s": {"type": "int", "required": True},
        "trim_us": {"type": "int"},
        "pack": {"type": "list", "elements": "str", "default": []},
    }

    def step(self, run: str, hold_s: int, trim_us: int | None, pack: list[str]) -> dict[str, Any]:
        """Apply the state, and write the state that was read back."""
        point = self.point
        hold = holder(str(point.facts["holder"]), hold_s)
        if point.measuring:
            keep = [f"--run={hold['run']}", f"--owner={hold['owner']}", f"--for={hold_s}s"]
            self.command(["dumbbell-agent", "lock", *keep])
            return {"trims": False}
        if self.host == self.hosts[0] and trim_us is None:
            record_state(point.dir, "preparing")
        known_us = own_delay.known_us(Path(run), point.path) if point.path else None
        variables = self.variables()
        asked = self.asked(variables, point.facts["plan"], known_us if trim_us is None else trim_us)
        raw = point.dir / "raw" / self.host
        has_atou = "atou" in point.kinds(self.host)
        result = self.module(
            asked=[asked],
            hold=hold,
            host=self.host,
            plans={
                point.folder(phase): read_json(raw / phase / "plan.json") for phase in point.phases(self.host)
            },
            token={"directory": str(Path(point.folder("x")).parent), "secret": token(point.dir)}
            if has_atou
            else None,
            clock=self.clock(variables),
            pack=pack,
        )
        write_json(raw / "state.json", result["state"])
        return {
            "changed": result["changed"],
            "commands": result["commands"],
            "diff": result["diff"],
            "trims": point.path is not None and known_us is None and trim_us is None,
        }
