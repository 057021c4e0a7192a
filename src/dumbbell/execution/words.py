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


def can_run(
    scenario: str,
    reasons: Mapping[str, Sequence[str]],
    notes: Mapping[str, Sequence[str]],
    boots: Mapping[str, str],
) -> str:
    """The message whether hosts can run a scenario: yes or no for each, and why not.

    ``reasons`` has for each host why it cannot, ``notes`` what else a person should know of it, ``boots`` the
    kernels that hosts must boot first.
    """
    first = [
        f"{host} is to boot {kernel} first, and what that kernel has shows then"
        for host, kernel in boots.items()
    ]
    if any(reasons.values()):
        head = f"this testbed cannot run {scenario}:"
    else:
        head = "; ".join([f"every host can run {scenario}", *first])
    lines = [head]
    for host, why in reasons.items():
        lines.append(f"{host}: {'no' if why else 'yes'}")
        lines += [f"  {reason}" for reason in why]
        lines += [f"  note: {note}" for note in notes.get(host, [])]
    return "\n".join(lines)
