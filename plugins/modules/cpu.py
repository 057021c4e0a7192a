#!/usr/bin/python
"""Governor and idle states of a host's CPUs, and which of them handle a NIC's interrupts."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cpu
short_description: Set CPU governor, idle states and interrupt affinity at runtime
description:
  - Writes the kernel's files below C(/sys) and C(/proc/irq), and reads them back. Nothing is persistent.
  - Options that are left out change nothing. If the host does not have a requested setting, as in a virtual
    machine, the module fails and names it.
options:
  governor:
    description: Frequency governor of every CPU, for example V(performance).
    type: str
  idle_latency_max_us:
    description: Idle states with a longer exit latency are disabled, all others enabled.
    type: int
  irq_cpus:
    description: CPUs that may handle the interrupts of each network interface, for example C({eth1 - "2-3"}).
    type: dict
    default: {}
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
- name: Keep CPUs awake, and interrupts on the NIC's own node
  dumbbell.testbed.cpu:
    governor: performance
    idle_latency_max_us: 2
    irq_cpus: {enp65s0f0np0: 0-7}
"""

RETURN = r"""
before:
  description: Governors and idle states in use (null for none), and the requested files, as found.
  returned: always
  type: dict
after:
  description: The same as read back, or as it would be in check mode.
  returned: always
  type: dict
  sample: {governors: [performance], idle_states: [POLL, C1], files: {}}
commands:
  description: Shell commands equivalent to the files that were written.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_cpu import mismatches, plan, read, summary, wanted
from ..module_utils.dumbbell_host import converge, require_devices, write_file


def main():
    module = AnsibleModule(
        argument_spec={
            "governor": {"type": "str"},
            "idle_latency_max_us": {"type": "int"},
            "irq_cpus": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    if module.params["irq_cpus"]:
        require_devices(module, *module.params["irq_cpus"])
    try:
        asked = wanted(**module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))

    converge(
        module,
        read=lambda: read(asked),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: summary() | {"files": found},
        predict=lambda found: summary() | {"files": asked},
        perform=lambda command: write_file(module, command),
    )


if __name__ == "__main__":
    main()
