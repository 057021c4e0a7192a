#!/usr/bin/python
"""Bring a host to its complete state, for a point or as in the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: point_state
short_description: Bring a host to its complete state, read it back, and install the plans of its agents
description:
  - Every setting that Dumbbell owns gets the requested value, or else the value from before Dumbbell's first
    change of this host. So all changes by earlier runs are undone.
  - If the host lacks a requested feature, the module fails before anything is changed. All settings are read
    back, also unchanged ones; the module fails if the kernel did not accept one, and names it.
  - Settings are recorded before they are changed, for M(dumbbell.testbed.restore).
options:
  asked:
    description:
      - Requested states in the format of C(dumbbell.execution.asked); several only in check mode, which
        tries each.
    type: list
    elements: dict
    required: true
  hold:
    description: The run that locks the host, or renews its lock, before anything else.
    type: dict
    suboptions:
      run:
        description: Its id.
        type: str
        required: true
      owner:
        description: Who runs it; shown to others whose runs are refused.
        type: str
        required: true
      seconds:
        description: Time after which the lock expires.
        type: int
        required: true
  release:
    description: Id of a run whose lock is released after everything else.
    type: str
  host:
    description: Name of this host in the plans.
    type: str
  plans:
    description: Plans of its agents by directory; the directories are created.
    type: dict
    default: {}
  token:
    description: Secret that atou's ends share, and the directory for its file.
    type: dict
    suboptions:
      directory:
        description: The directory.
        type: path
        required: true
      secret:
        description: The secret.
        type: str
        required: true
  pack:
    description: Runs whose data is stored elsewhere; their directories are archived.
    type: list
    elements: str
    default: []
  probe:
    description: Sources of samples that must be available; the agent checks them.
    type: list
    elements: str
    default: []
  programs:
    description: Programs that must be installed.
    type: list
    elements: str
    default: []
extends_documentation_fragment: dumbbell.testbed.clock
attributes:
  check_mode:
    support: full
    description: Whether check mode changes nothing and tells what would be changed.
  diff_mode:
    support: full
    description: Whether diff mode shows what differs.
author:
  - Dumbbell (@dumbbell)
"""

EXAMPLES = r"""
- name: Bring the host to the state in the inventory
  dumbbell.testbed.point_state:
    asked: ["{{ asked }}"]
"""

RETURN = r"""
state:
  description: The host's state, in the format of C(raw/HOST/state.json) in docs/data-model.md.
  returned: success
  type: dict
commands:
  description: Executed commands; in check mode those that would be executed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_point import SPEC, bring


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.exit_json(**bring(module))


if __name__ == "__main__":
    main()
