"""Sentences that several actions say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def do_not_answer(hosts: Sequence[str], variables: Mapping[str, Any]) -> str:
    """Which hosts do not answer, and what to do; ``variables`` are those of one of them."""
    does = "does" if len(hosts) == 1 else "do"
    remedy = (
        "boot the lab with `make lab`."
        if variables.get("kernel_boot_method") == "lab"
        else "check that they are on, and what the inventory says of them "
        "(ansible_host, ansible_user, the key)."
    )
    return f"{', '.join(hosts)} {does} not answer by SSH: {remedy}"


def go_on(run: str) -> str:
    """How to go on with a run; '' without one."""
    return f" Then: ansible-playbook playbooks/resume.yml -e run={run}" if run else ""
