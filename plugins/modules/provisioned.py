#!/usr/bin/python
"""Check whether a host is as its roles left it, and record its state after its roles."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: provisioned
short_description: Check whether a host is as its roles left it
description:
  - Compares every file, service, directory, user and package in the record of M(dumbbell.testbed.baseline)
    with its state when the roles last completed on this host. Also compares digests of the roles' inputs, and
    the release of the kernel.
  - An unchanged host must also have a synchronised clock; the module waits for it.
  - The record of a changed host is removed, because its roles will run. There is no record of a host whose
    roles did not complete, or that was restored since.
options:
  made_of:
    description: Digests of the roles' inputs, by names that tell people which one has changed.
    type: dict
    required: true
  packages:
    description: Packages that must be installed.
    type: list
    elements: str
    default: []
  unloaded:
    description: Kernel modules that must not be loaded.
    type: list
    elements: str
    default: []
  record:
    description: Record the state of the host instead of comparing it.
    type: bool
    default: false
extends_documentation_fragment: dumbbell.testbed.clock
attributes:
  check_mode:
    support: full
    description: Whether check mode changes nothing and tells what would be changed.
  diff_mode:
    support: none
    description: Whether diff mode shows what differs.
author:
  - Dumbbell (@dumbbell)
"""

EXAMPLES = r"""
- name: Check whether the host changed since its roles ran
  dumbbell.testbed.provisioned:
    made_of: "{{ digests }}"
    packages: [chrony, iperf3]
  register: provisioned
"""

RETURN = r"""
as_left:
  description: Whether the host is as its roles left it.
  returned: always
  type: bool
differs:
  description: Settings and inputs that differ, by kind and subject.
  returned: always
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import dumbbell_clock as clock
from ..module_utils import dumbbell_provisioned as provisioned
from ..module_utils.dumbbell_host import call


def away_from(asked, wait_s):
    """The state of the clock if it is not synchronised; else empty."""
    found = clock.read(asked, wait_s, call)
    if clock.follows(found, asked):
        return []
    return [f"clock: it does not follow {asked['server']} (offset {found['offset_ns']} ns)"]


def compare(module, made_of):
    """Settings and inputs that differ from the record."""
    differs = provisioned.differs(made_of, module.params["packages"], call)
    differs += [f"module {name}" for name in module.params["unloaded"] if Path("/sys/module", name).exists()]
    asked = module.params["clock"]
    if asked and not differs:
        differs = away_from(asked, 0 if module.check_mode else asked["timeout_s"])
    if differs and not module.check_mode:
        provisioned.forget()
    return differs


def main():
    module = AnsibleModule(
        argument_spec={
            "made_of": {"type": "dict", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "unloaded": {"type": "list", "elements": "str", "default": []},
            "clock": {"type": "dict", "options": clock.SPEC},
            "record": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    made_of = module.params["made_of"] | {"kernel": os.uname().release}
    differs = []
    try:
        if not module.params["record"]:
            differs = compare(module, made_of)
        elif not module.check_mode:
            provisioned.record(made_of, module.params["packages"], call)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, as_left=not differs, differs=differs)


if __name__ == "__main__":
    main()
