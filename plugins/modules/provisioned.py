#!/usr/bin/python
"""Tell whether a host is as its roles left it, and record how they leave it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: provisioned
short_description: Tell whether a host is as its roles left it
description:
  - Every file, service, directory, user and package that M(baseline) knows of is read, and compared with what
    it was when roles had last come to their end here. So are digests of what they made that of, and the
    release of the kernel.
  - A host that is as it was left also follows its clock; that is waited for.
  - What is not as it was left is forgotten, for roles are going to run. Nothing is known of a host whose
    roles did not come to their end, or that was restored since.
options:
  made_of:
    description: Digests of what roles make the host of, by names that tell people what has changed.
    type: dict
    required: true
  packages:
    description: Packages that must be there.
    type: list
    elements: str
    default: []
  unloaded:
    description: Modules of the kernel that must not be loaded.
    type: list
    elements: str
    default: []
  clock:
    description: How the host's clock is read, as M(point_state) takes it.
    type: dict
  record:
    description: Record how the host is, in place of comparing.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - Dumbbell
"""

EXAMPLES = r"""
- name: Check whether the host changed since its roles ran
  provisioned:
    roles: [packages, clock]
  register: provisioned
"""

RETURN = r"""
as_left:
  description: Whether it is.
  returned: always
  type: bool
differs:
  description: What is other than it was left, by kind and subject.
  returned: always
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils import dumbbell_clock as clock
from ansible.module_utils import dumbbell_provisioned as provisioned
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_host import call


def away_from(asked, wait_s):
    """What the clock is, if it does not follow."""
    found = clock.read(asked, wait_s, call)
    if clock.follows(found, asked):
        return []
    return [f"clock: it does not follow {asked['server']} (offset {found['offset_ns']} ns)"]


def compare(module, made_of):
    """What is other than it was left."""
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
