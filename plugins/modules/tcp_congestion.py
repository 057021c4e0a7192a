#!/usr/bin/python
"""TCP congestion controls available to every user of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: tcp_congestion
short_description: Make TCP congestion controls available
description:
  - Loads the modules of congestion controls that the kernel does not have yet, and allows all of them to
    sockets of any user.
  - A control that this host neither has nor can load is refused, naming those it has, before any change.
options:
  controls:
    description: Names of congestion controls, as sockets name them.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - Dumbbell
"""

EXAMPLES = r"""
- name: Have what the flows use
  tcp_congestion:
    controls: [cubic, bbr]
"""

RETURN = r"""
before:
  description: Controls available and allowed, and those asked for that are available, as found.
  returned: always
  type: dict
after:
  description:
    - The same as read back, or as it would be in check mode. The srcversion of a module identifies its
      source; it is null for a control built into the kernel, for a kernel built without
      CONFIG_MODULE_SRCVERSION_ALL, and in check mode for one not loaded yet.
  returned: always
  type: dict
  sample:
    available: [reno, cubic, bbr]
    allowed: [reno, cubic, bbr]
    congestion_controls: {bbr: {srcversion: 4E9F7AAA65BA6C93BE9E3A4}, cubic: {srcversion: null}}
commands:
  description: Commands executed, or to be executed in check mode; sysctls are written to their files.
  returned: always
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_congestion import (
    Controls,
    loadable,
    mismatches,
    missing,
    plan,
    predict,
    report,
)
from ansible.module_utils.dumbbell_host import converge, run

SYSCTLS = Path("/proc/sys/net/ipv4")


def srcversion(name):
    file = Path(f"/sys/module/tcp_{name}/srcversion")
    return file.read_text().strip() if file.exists() else None


def read(asked):
    available = (SYSCTLS / "tcp_available_congestion_control").read_text().split()
    allowed = (SYSCTLS / "tcp_allowed_congestion_control").read_text().split()
    modules = Path("/lib/modules", os.uname().release).rglob("tcp_*.ko*")
    srcversions = {name: srcversion(name) for name in asked}
    return Controls(available, allowed, loadable(file.name for file in modules), srcversions)


def main():
    module = AnsibleModule(
        argument_spec={"controls": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    asked = list(dict.fromkeys(module.params["controls"]))
    found = read(asked)
    lacking = missing(asked, found)
    if lacking:
        names, had = ", ".join(lacking), ", ".join(sorted({*found.available, *found.loadable}))
        module.fail_json(msg=f"asked for congestion control {names}, which this host lacks; it has {had}")

    def perform(command):
        if command[0] == "modprobe":
            run(module, command)
        else:
            (SYSCTLS / "tcp_allowed_congestion_control").write_text(command[-1].partition("=")[2])

    converge(
        module,
        read=lambda: read(asked),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: report(asked, found),
        predict=lambda found: report(asked, predict(asked, found)),
        perform=perform,
    )


if __name__ == "__main__":
    main()
