#!/usr/bin/python
"""Tell whether a host is as its last provisioning left it, and record how it is left."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: provisioned
short_description: Tell whether a host is as its last provisioning left it
description:
  - Every file, service, directory, user and package that M(baseline) knows of is read, and compared with what
    it was at the end of the last provisioning. So is what that was made from.
  - Nothing is known of a host whose last provisioning did not come to its end, or that was restored since.
options:
  inputs:
    description: Digest of what the provisioning is made from.
    type: str
    required: true
  packages:
    description: Packages that must be there.
    type: list
    elements: str
    default: []
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
- name: See whether the host is as the last provisioning left it
  provisioned:
    packages: [chrony]
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

from ansible.module_utils import dumbbell_provisioned as provisioned
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_host import call


def main():
    module = AnsibleModule(
        argument_spec={
            "inputs": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "record": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    inputs, packages = module.params["inputs"], module.params["packages"]
    if not module.params["record"]:
        differs = provisioned.differs(inputs, packages, call)
        module.exit_json(changed=False, as_left=not differs, differs=differs)
    if not module.check_mode:
        provisioned.record(inputs, packages, call)
    module.exit_json(changed=False, as_left=True, differs=[])


if __name__ == "__main__":
    main()
