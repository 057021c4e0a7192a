#!/usr/bin/python
"""Record the state of a host once, before it is changed for the first time."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: baseline
short_description: Record the state of a host before it is changed for the first time
description:
  - Keeps copies of files, and the state of services, users, directories, packages and more, for
    M(dumbbell.testbed.restore). Existing records are not changed.
  - Settings of the running kernel need no task, because the modules that change them record them.
options:
  files:
    description: Files that will be written.
    type: list
    elements: path
    default: []
  services:
    description: Services that will be enabled and started.
    type: list
    elements: str
    default: []
  directories:
    description: Directories that will be created. M(dumbbell.testbed.restore) keeps those that contain data.
    type: list
    elements: path
    default: []
  users:
    description: Users that will be created.
    type: list
    elements: str
    default: []
  packages:
    description:
      - Packages that will be installed, or replaced by others, temporarily.
        M(dumbbell.testbed.restore) purges them, or installs them again.
    type: list
    elements: str
    default: []
  dkms:
    description: Modules that will be registered with DKMS, as C(name/version).
    type: list
    elements: str
    default: []
  trees:
    description:
      - Directories that will be created. M(dumbbell.testbed.restore) removes them with their content.
    type: list
    elements: path
    default: []
  menus:
    description:
      - GRUB's menu, which is going to be made anew. When returned, it is made of the settings as they were.
    type: list
    elements: path
    default: []
  kernel:
    description: Whether another kernel is going to be booted.
    type: bool
    default: false
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
- name: Record what the host has
  dumbbell.testbed.baseline:
    files: [/etc/chrony/chrony.conf]
    services: [chrony]
"""

RETURN = r"""
recorded:
  description: Settings that were recorded by this task.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import dumbbell_baseline as baseline

KINDS = {
    "files": "file",
    "services": "service",
    "directories": "directory",
    "users": "user",
    "packages": "package",
    "dkms": "dkms",
    "trees": "tree",
    "menus": "menu",
}
PATHS = ("file", "directory", "tree", "menu")


def main():
    module = AnsibleModule(
        argument_spec={
            name: {
                "type": "list",
                "elements": "path" if kind in PATHS else "str",
                "default": [],
            }
            for name, kind in KINDS.items()
        }
        | {"kernel": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    settings = [baseline.Setting(kind, each) for name, kind in KINDS.items() for each in module.params[name]]
    settings += [baseline.Setting("kernel", "")] if module.params["kernel"] else []
    if module.check_mode:
        recorded = [setting for setting in settings if setting not in baseline.load()]
    else:
        recorded = baseline.record(settings, lambda setting: baseline.read(setting, module.run_command))
    module.exit_json(changed=bool(recorded), recorded=[str(setting) for setting in recorded])


if __name__ == "__main__":
    main()
