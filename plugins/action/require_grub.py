"""Stop a change of the kernel unless GRUB can try it for one boot, and the firmware starts it."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.host_state import StateAction
from dumbbell.execution.preflight import kernel_refusal


class ActionModule(StateAction):
    """Arguments: ``release`` of an installed kernel, or ''; ``file``, whether it is not the distribution's.

    Fails before anything is changed.
    """

    spec: ClassVar[dict[str, Any]] = {
        "release": {"type": "str", "default": ""},
        "file": {"type": "bool", "default": False},
    }

    def act(self, release: str, file: bool) -> dict[str, Any]:
        """Ask the host, and decide."""
        refusal = kernel_refusal(self.module("preflight", nics=[])["facts"], release, file=file)
        return {"failed": True, "msg": f"{self.host} keeps its kernel: {refusal}"} if refusal else {}
