"""Base classes of the actions that call the modules ``point_state`` and ``provisioned``."""

from __future__ import annotations

import getpass
import os
import platform
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

from dumbbell import REPOSITORY
from dumbbell.execution.action import HostAction, Trouble
from dumbbell.execution.asked import asked_of

ROLES = ("nic", "sysctl", "modules", "path", "clock")  # roles with variables for the inventory
PROGRAMS = ("iperf3", "chronyc", "ethtool", "tc", "dumbbell-agent")


Spec = dict[str, Any]


def defaults(roles: Path) -> dict[str, Any]:
    """Defaults of the variables that inventories may set; they may be templates of Ansible."""
    found: dict[str, Any] = {}
    for role in ROLES:
        found |= yaml_load((roles / role / "defaults/main.yml").read_bytes()) or {}
    return found


def specs(roles: Path) -> dict[str, Spec]:
    """The argument specs of each role's variables, in the format of Ansible's validators."""
    files = {role: roles / role / "meta/argument_specs.yml" for role in ROLES}
    return {
        role: yaml_load(file.read_bytes())["argument_specs"]["main"]["options"]
        for role, file in files.items()
    }


class StateAction(HostAction):
    """An action that applies a state to its host, or checks whether the host can have it."""

    MODULE = "point_state"

    def variables(self) -> dict[str, Any]:
        """The inventory's variables of the host, and the defaults of the others."""
        roles = REPOSITORY / "roles"
        wants = specs(roles)
        said = {name for of in wants.values() for name in of if name in self.task_vars}
        named = defaults(roles) | {name: self.task_vars[name] for name in said}
        found = {name: self._templar.template(value) for name, value in named.items()}
        for role, spec in wants.items():
            given = {name: found[name] for name in spec if found.get(name) is not None}
            checked = ArgumentSpecValidator(spec).validate(given)
            if checked.error_messages:
                raise Trouble(f"variables of role {role}: {'; '.join(checked.error_messages)}")
        return found

    def asked(
        self,
        variables: Mapping[str, Any],
        plan: Mapping[str, Any] | None = None,
        trim_us: int | None = None,
    ) -> dict[str, Any]:
        """The state that a point's plan requests, or the inventory alone."""
        try:
            if plan is None:
                return asked_of(variables)
            return asked_of(variables, plan["hosts"][self.host]["state"], plan["path"], trim_us)
        except ValueError as error:
            raise Trouble(str(error)) from None

    def module(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Run the module and return its result. Raises :class:`Trouble` with the reason if it fails."""
        before = self._task.check_mode
        self._task.check_mode = before or check
        try:
            result: dict[str, Any] = self._execute_module(
                module_name=self.MODULE, module_args=arguments, task_vars=self.task_vars
            )
        finally:
            self._task.check_mode = before
        if result.get("unreachable"):
            raise AnsibleConnectionFailure(str(result.get("msg")))
        if result.get("failed"):
            raise Trouble(_failure(result) or f"{self.MODULE} failed, and did not say why")
        for warning in result.get("warnings", ()):
            self._display.warning(f"{self.host}: {text_of(warning)}")
        return result

    def clock(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the module for reading the host's clock."""
        return {
            "server": variables["clock_server"],
            "source": variables["clock_source"],
            "offset_max_ns": variables["clock_offset_max_ns"],
            "root_dispersion_max_ns": variables["clock_root_dispersion_max_ns"],
            "timeout_s": variables["clock_sync_timeout"],
            "cmdline": Path("/proc/cmdline").read_text(),
        }


class ProvisioningAction(StateAction):
    """An action whose error ends the play for its host, because a host in another state must not be used."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action, and fail if it returns an error."""
        result = super().run(tmp, task_vars)
        return result | {"failed": bool(result["trouble"]), "msg": result["trouble"]}


def text_of(warning: Any) -> str:
    """The text of a module's warning, which Ansible passes as a text or as a record of the event."""
    event = getattr(warning, "event", None)
    return str(warning if event is None else event.msg)


def holder(run: str, seconds: int) -> dict[str, Any]:
    """The holder of a host's lock, shown to others who want the host."""
    return {"run": run, "owner": owner(), "seconds": seconds}


def owner() -> str:
    """The user who started the playbook, and the machine: ``user@machine``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


def token(point_dir: Path) -> str:
    """The secret of atou's ends, the same for all hosts of a point; :func:`forget_token` removes it."""
    file = point_dir / ".token"
    with NamedTemporaryFile("w", dir=point_dir) as drawn:  # readable by this user only
        drawn.write(secrets.token_hex(32))
        drawn.flush()
        with suppress(FileExistsError):  # the action of another host was faster
            os.link(drawn.name, file)
    return file.read_text()


def forget_token(point_dir: Path) -> None:
    """Remove the secret from the controller."""
    (point_dir / ".token").unlink(missing_ok=True)


def _failure(result: Mapping[str, Any]) -> str:
    """Why a module failed: its message, else that of the exception that ended it, else what it printed."""
    error = result.get("exception")
    raised = str(error).strip().splitlines()[-1:] if error else []
    return str(result.get("msg") or "".join(raised) or result.get("module_stderr") or "")
