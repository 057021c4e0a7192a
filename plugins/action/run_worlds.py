"""Run worlds of virtual time side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.virtual.runs import SPEC, run


class ActionModule(ActionBase):
    """Arguments: ``world`` (``dir`` with what it begins with, ``kernel``), ``checkout``, and ``worlds``, as
    :func:`dumbbell.virtual.runs.run` has them; ``stall_timeout`` (s).

    Returns ``ended``, of each world what :class:`dumbbell.virtual.world.Ended` has.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run them, and say now and then how far they are."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = SPEC | {"worlds": {"type": "list", "elements": "dict", "required": True}}
        _, args = self.validate_argument_spec(spec)
        ended = run(args["worlds"], args, Display().display)
        reasons = "; ".join(of.reason for of in ended if of.reason)
        return result | {"changed": True, "ended": [asdict(of) for of in ended], "msg": reasons}
