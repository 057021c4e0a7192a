#!/usr/bin/python
"""Sysctls of the running kernel."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: sysctl_runtime
short_description: Set sysctls of the running kernel
description:
  - Writes values below /proc/sys and reads them back, so that a value which the kernel clamps or rounds is a
    failure. Nothing is persistent.
  - A sysctl that this kernel does not have is refused by name before anything is written.
options:
  settings:
    description:
      - Names and values. As in sysctl(8), a slash in a name stands for a dot in the file's
        (C(net.ipv4.conf.eth0/100.rp_filter)). Blanks in values are compared as one.
    type: dict
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
- name: Forget connections, and forward
  sysctl_runtime:
    settings:
      net.ipv4.tcp_no_metrics_save: 1
      net.ipv4.tcp_rmem: 4096 131072 6291456
"""

RETURN = r"""
before:
  description: The sysctls named, as found.
  returned: always
  type: dict
after:
  description: The sysctls named, as read back, or as they would be in check mode.
  returned: always
  type: dict
  sample: {net.ipv4.tcp_no_metrics_save: "1"}
commands:
  description: Commands of sysctl(8) that do the same, for those values that were written.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_host import converge, write_file
from ansible.module_utils.dumbbell_sysctl import ROOT, canonical, mismatches, path, plan


def read(module, files):
    found = {}
    for name, file in files.items():
        try:
            found[name] = canonical(file.read_text())
        except OSError as error:
            module.fail_json(msg=f"this kernel has no sysctl {name} that can be read: {error}")
    return found


def main():
    module = AnsibleModule(
        argument_spec={"settings": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    asked = {name: canonical(value) for name, value in module.params["settings"].items()}
    try:
        files = {name: ROOT / path(name) for name in asked}
    except ValueError as error:
        module.fail_json(msg=str(error))

    converge(
        module,
        read=lambda: read(module, files),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: found,
        predict=lambda found: asked,
        perform=lambda command: write_file(module, command),
    )


if __name__ == "__main__":
    main()
