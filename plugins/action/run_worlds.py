"""Run worlds of virtual time side by side."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import points
from dumbbell.scenario import ScenarioError
from dumbbell.virtual.runs import SPEC, run


class ActionModule(ActionBase):
    """Arguments: ``world`` (``dir`` with its hosts' files, ``kernel``), ``checkout``, and ``worlds``, as for
    :func:`dumbbell.virtual.runs.run`; ``stall_timeout`` (s); ``module``, the source of a kernel module
    that their hosts have in addition; ``cluster`` ('' for this machine).

    Returns ``ended``, for each world the fields of :class:`dumbbell.virtual.world.Ended`.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the worlds, and report their progress."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = SPEC | {
            "worlds": {"type": "list", "elements": "dict", "required": True},
            "cluster": {"type": "str", "default": ""},
        }
        _, args = self.validate_argument_spec(spec)
        say = Display().display
        try:
            with ExitStack() as stack:
                executor = None
                if args["cluster"] and args["worlds"]:
                    full = any("light" not in of for of in args["worlds"])
                    cluster = points(
                        args["cluster"], args["world"], Path(args["checkout"]), keys=full, say=say
                    )
                    executor = stack.enter_context(cluster)
                ended = run(args["worlds"], args, say, executor)
        except (ClusterError, ScenarioError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from None
        reasons = "; ".join(of.reason for of in ended if of.reason)
        return result | {"changed": True, "ended": [asdict(of) for of in ended], "msg": reasons}
