"""Read the inventory's variables of a host, for a controller without Ansible."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.host_state import ProvisioningAction


class ActionModule(ProvisioningAction):
    """Argument: ``settings``, numbers of the role ``run``. Fails if a variable is wrong.

    Returns ``settings`` as numbers, and ``variables``, those of the host and the defaults of the others.
    """

    spec: ClassVar[dict[str, Any]] = {"settings": {"type": "dict", "required": True}}

    def act(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Read them."""
        numbers = {name: float(value) for name, value in settings.items()}
        whole = {name: int(value) if value.is_integer() else value for name, value in numbers.items()}
        return {"settings": whole, "variables": self.variables()}
