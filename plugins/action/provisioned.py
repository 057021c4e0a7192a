"""Check whether a host, and the inputs of its roles, are unchanged since the roles ran; or record them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleError

from dumbbell.execution.asked import clock_of
from dumbbell.execution.host_state import ProvisioningAction
from dumbbell.execution.made_of import made_of, variables_of
from dumbbell.places import COLLECTION, HOME


class ActionModule(ProvisioningAction):
    """Arguments: ``roles`` of the host; ``record`` (an earlier ``made_of``, to be recorded).

    Returns ``as_left`` (whether nothing has changed), ``differs`` (what has changed) and ``made_of``.
    """

    spec: ClassVar[dict[str, Any]] = {
        "roles": {"type": "list", "elements": "str", "required": True},
        "record": {"type": "dict"},
    }

    def act(self, roles: list[str], record: dict[str, str] | None) -> dict[str, Any]:
        """Ask the host."""
        places = [COLLECTION / "roles" / role for role in roles]
        variables = self._variables(places)
        made = record or made_of(self.host, places, variables, HOME)
        result = self.module(
            "provisioned",
            made_of=made,
            record=record is not None,
            packages=_packages(variables),
            unloaded=variables.get("modules_blacklist", []),
            clock=clock_of(variables),
        )
        if result["differs"]:
            self._display.display(f"{self.host} differs: {'; '.join(result['differs'])}")
        return {"made_of": made} | {key: result[key] for key in ("changed", "as_left", "differs")}

    def _variables(self, roles: list[Path]) -> dict[str, Any]:
        """Variables that the roles read: the inventory's, else the roles' defaults."""
        known: dict[str, Any] = {}
        for role in roles:
            known |= self._loader.load_from_file(str(role / "defaults/main.yml"), trusted_as_template=True)
        known |= self.task_vars
        templar = self._templar.copy_with_new_env(available_variables=known)
        found = {}
        for name in sorted(set[str]().union(*(variables_of(role, known) for role in roles))):
            try:
                found[name] = templar.template(known[name])
            except AnsibleError:  # it refers to a variable that this host lacks: use its text
                found[name] = str(known[name])
        # Hosts reach the clock server by its address.
        server = self.task_vars["hostvars"].get(found["clock_server"], {})
        return found | {"address of clock_server": server.get("ansible_host")}


def _packages(variables: Mapping[str, Any]) -> list[str]:
    """Packages that roles install from the host's package sources."""
    ptp = ["linuxptp"] if variables["clock_source"] == "ptp" else []
    built = variables.get("modules_sources") and variables["modules_build_method"] == "dkms"
    return [*variables["packages_present"], *ptp, *(["dkms"] if built else [])]
