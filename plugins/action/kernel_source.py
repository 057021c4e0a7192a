"""Find what a kernel is made of, and bring its tree to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dumbbell.kernels import Kernel, KernelError, asked


class ActionModule(ActionBase):
    """Arguments: ``kernel``, as a recipe's file or as :func:`dumbbell.kernels.asked` takes it; ``like``, the
    recipe of options; ``home``, the directory of all kernels.

    Returns ``asked`` with ``name``, ``is_recipe``, ``is_tree`` and the keys of the recipe. With ``found``
    also ``kernel``: ``id``, ``version``, ``tag``, the paths ``result``, ``failed`` and ``work``, and
    ``options``. ``checked_out`` says to bring the tree in ``work`` to it.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the recipe, find the source, change the tree: as far as is asked for."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "kernel": {"type": "str", "required": True},
                "like": {"type": "path", "required": True},
                "home": {"type": "path", "required": True},
                "found": {"type": "bool", "default": True},
                "checked_out": {"type": "bool", "default": False},
            }
        )
        try:
            wanted = asked(args["kernel"], Path(args["like"]))
            recipe = wanted.recipe
            told = {"name": wanted.name, "is_recipe": wanted.is_recipe, "is_tree": recipe.is_tree}
            result["asked"] = recipe.model_dump() | told
            if not args["found"]:
                return result | {"changed": False}
            kernel = Kernel.find(wanted, Path(args["home"]))
            if args["checked_out"] and not self._task.check_mode:
                kernel.check_out()
        except KernelError as error:
            raise AnsibleActionFail(str(error)) from None
        result["kernel"] = {
            "id": kernel.id,
            "version": kernel.source,
            "tag": kernel.tree,
            "result": str(kernel.result),
            "failed": str(kernel.failed),
            "work": str(kernel.work),
            "options": list(kernel.options),
        }
        return result | {"changed": args["checked_out"]}
