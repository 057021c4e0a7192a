"""Decide how much of the emulated delay to leave out for the delay that the path has of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.path_trim import Asked, Trim, attempt


class ActionModule(ActionBase):
    """Arguments: ``pings`` (what ping said, of each sender), ``former`` (``trim`` of the attempt before),
    and those of :class:`dumbbell.path_trim.Asked`.

    Returns ``trim``, what :class:`dumbbell.path_trim.Trim` has.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Decide."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "pings": {"type": "list", "elements": "str", "required": True},
                "former": {"type": "dict"},
                "rtt_ns": {"type": "int", "required": True},
                "jitters": {"type": "bool", "required": True},
                "tolerance": {"type": "float", "required": True},
                "max_us": {"type": "int", "required": True},
                "attempts": {"type": "int", "required": True},
            }
        )
        pings, former = args.pop("pings"), args.pop("former")
        found = attempt(Trim(**former) if former else None, pings, Asked(**args))
        return result | {"changed": False, "trim": asdict(found)}
