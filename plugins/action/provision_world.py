"""Provision the hosts of worlds of virtual time."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.virtual.runs import SPEC, provision


class ActionModule(ActionBase):
    """Arguments: ``world`` (as for ``run_worlds``, and ``provisioned``, the directory of provisioned hosts),
    ``checkout``, and ``command``, which runs the provisioning playbook.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Provision, unless it is done already."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = SPEC | {"command": {"type": "list", "elements": "str", "required": True}}
        _, args = self.validate_argument_spec(spec)
        changed, reason = provision(args["command"], args, Display().display)
        return result | {"changed": changed, "failed": bool(reason), "msg": reason}
