#!/usr/bin/python
"""Install packages of the host's distribution, and record what that changes."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: packages
short_description: Install packages, and record for restore what that changes
description:
  - Installs the packages that the host does not have, by apt or dnf. If it has all of them, no list of
    packages is needed.
  - Records before the change which packages are added, which are removed for them with their services, and
    afterwards which users came with them, for M(dumbbell.testbed.restore). With dnf only the named packages
    are recorded.
  - While another package manager works, the module waits for it; after ten minutes it fails and says who
    holds the lock.
options:
  present:
    description: Names of packages.
    type: list
    elements: str
    required: true
  files:
    description: Files that come with them and that roles will change; they are recorded before.
    type: list
    elements: path
    default: []
  record:
    description: Whether M(dumbbell.testbed.restore) shall undo it.
    type: bool
    default: true
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
- name: Install what measures
  dumbbell.testbed.packages:
    present: [chrony, iperf3]
"""

RETURN = r"""
missing:
  description: Packages that the host did not have; in check mode it still does not.
  returned: always
  type: list
  elements: str
removed:
  description: Packages that are removed for them.
  returned: always
  type: list
  elements: str
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import dumbbell_baseline as baseline
from ..module_utils import dumbbell_packages as packages
from ..module_utils.dumbbell_baseline import Setting
from ..module_utils.dumbbell_host import call


def look_ahead(module, manager, missing):
    """Packages that the installation adds and removes, by the newest list of packages."""
    if not manager.simulate:
        return missing, []
    code, out, err = call([*manager.simulate, *missing])
    if code and module.check_mode:
        module.warn(
            f"the host's list of packages, which is empty or old, lacks some of {', '.join(missing)}. "
            "Without --check it is renewed; to do so now: apt-get update"
        )
        return missing, []
    if code:
        run(module, manager.update)
        code, out, err = call([*manager.simulate, *missing])
    if code:
        module.fail_json(msg=f"cannot install {', '.join(missing)}: {packages.in_short(err)}")
    return packages.changed_by(out)


def record(new, removed, files):
    """Record what an installation is going to change."""
    services = [unit for name in removed for unit in packages.units_of(name, call)]
    settings = [Setting("service", unit) for unit in services]
    settings += [Setting("package", name) for name in (*removed, *new)]
    settings += [Setting("file", file) for file in files]
    baseline.record(settings, lambda setting: baseline.read(setting, call))


def record_new(new, users):
    """Record the services and users that came with packages: they did not exist before."""
    came = {entry.pw_name for entry in pwd.getpwall()} - users
    services = [Setting("service", unit) for name in new for unit in packages.units_of(name, call)]
    baseline.record([*services, *(Setting("user", name) for name in sorted(came))], lambda setting: None)


def run(module, command):
    """Execute a command when the lock is free; the module fails if the command does."""
    code, _, err = packages.patiently(call, command)
    if code:
        module.fail_json(msg=f"`{' '.join(command)}` failed: {err}")


def install(module, manager, missing):
    """Install, again by a new list of packages if the one that the host has is too old to fetch them."""
    command = [*manager.install, *missing]
    if packages.patiently(call, command)[0]:
        run(module, manager.update)
        run(module, command)


def install_recorded(module, manager, missing, changes):
    """Install, and record what that changes."""
    new, removed = changes
    record(new, removed, module.params["files"])
    users = {entry.pw_name for entry in pwd.getpwall()}
    try:
        install(module, manager, missing)
    finally:
        record_new(new, users)


def main():
    module = AnsibleModule(
        argument_spec={
            "present": {"type": "list", "elements": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "record": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    os.environ.update(packages.ENVIRONMENT)
    manager, names = packages.manager(), module.params["present"]
    found = packages.states(names, call)
    missing = [name for name in names if found.get(name, "")[1:2] != "i"]
    new, removed = look_ahead(module, manager, missing) if missing else ([], [])
    if missing and not module.check_mode:
        if module.params["record"]:
            install_recorded(module, manager, missing, (new, removed))
        else:
            install(module, manager, missing)
    diff = {"before": {"packages": removed}, "after": {"packages": new}}
    module.exit_json(changed=bool(missing), missing=missing, removed=removed, diff=diff)


if __name__ == "__main__":
    main()
