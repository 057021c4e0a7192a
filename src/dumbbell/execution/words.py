"""Messages that several actions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def do_not_answer(hosts: Sequence[str], variables: Mapping[str, Any]) -> str:
    """The message that hosts do not answer, with a remedy; ``variables`` are those of one of the hosts."""
    does = "does" if len(hosts) == 1 else "do"
    remedy = (
        "boot the lab with `make lab`."
        if variables.get("kernel_boot_method") == "lab"
        else "check that they are on, and what the inventory says of them "
        "(ansible_host, ansible_user, the key)."
    )
    return f"{', '.join(hosts)} {does} not answer by SSH: {remedy}"


def resume(run: str) -> str:
    """The command that resumes a run."""
    return f"ansible-playbook playbooks/resume.yml -e run={run}"


def go_on(run: str) -> str:
    """What to do when hosts answer again; '' if there is no run to resume."""
    return f" Then: {resume(run)}" if run else ""


def can_run(scenario: str, troubles: Mapping[str, str], boots: Mapping[str, str]) -> str:
    """The message whether hosts can run a scenario; ``troubles`` has the reason of each host, '' if it can.

    ``boots`` has the kernels that hosts must boot first.
    """
    if any(troubles.values()):
        hosts = "".join(f"\n{host}: {trouble or 'can'}" for host, trouble in troubles.items())
        return f"this testbed cannot run {scenario}:{hosts}"
    first = "".join(
        f"; {host} is to boot {kernel} first, and what that kernel has shows then"
        for host, kernel in boots.items()
    )
    return f"every host can run {scenario}: {', '.join(troubles)}{first}"
