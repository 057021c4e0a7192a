"""Run worlds of virtual time side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.virtual.runs import SPEC, run


class ActionModule(ActionBase):
    """Arguments: ``world`` (``dir`` with its hosts' files, ``kernel``), ``checkout``, and ``worlds``, as for
    :func:`dumbbell.virtual.runs.run`; ``stall_timeout`` (s); ``module``, the source of a kernel module
    that their hosts have in addition.

    Returns ``ended``, for each world the fields of :class:`dumbbell.virtual.world.Ended`.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the worlds, and report their progress."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = SPEC | {"worlds": {"type": "list", "elements": "dict", "required": True}}
        _, args = self.validate_argument_spec(spec)
        try:
            ended = run(args["worlds"], args, Display().display)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from None
        reasons = "; ".join(of.reason for of in ended if of.reason)
        return result | {"changed": True, "ended": [asdict(of) for of in ended], "msg": reasons}
