#!/usr/bin/python
"""Return a borrowed host to its state before Dumbbell."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: restore
short_description: Return every recorded setting to what it was
description:
  - Restores the settings that Dumbbell's modules recorded before their first change of this host, reads them
    back, and removes the record. Settings that could not be restored stay in the record and are named.
  - Directories that contain data, and the users that own it, are kept.
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
- name: Release the host
  dumbbell.testbed.restore:
"""

RETURN = r"""
before:
  description: The settings that differ from the record, as found.
  returned: always
  type: dict
after:
  description: The same settings as restored, with their values from before Dumbbell.
  returned: always
  type: dict
kept:
  description: Directories with data, and users, that are kept.
  returned: always
  type: list
  elements: str
commands:
  description: Executed commands; in check mode those that would be executed.
  returned: always
  type: list
  elements: str
"""

import os
import pwd
import shlex

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import dumbbell_baseline as baseline
from ..module_utils import dumbbell_packages as packages
from ..module_utils import dumbbell_provisioned as provisioned
from ..module_utils import dumbbell_restore as back
from ..module_utils.dumbbell_host import call, execute
from ..module_utils.dumbbell_link import needs_netlink

LOCK = "lock.json"  # the playbook's own lock of the host, which is no data


def held(directory):
    """Names in a directory, if it exists."""
    return os.listdir(directory) if os.path.isdir(directory) else []


def kept_of(recorded):
    """Directories with more in them than will be restored, and the users that own these directories."""
    names = {os.path.split(s.subject) for s in recorded if s.kind in ("file", "directory", "tree")}
    own = {
        directory: {LOCK} | {name for where, name in names if where == directory} for directory, _ in names
    }
    made = [setting for setting in recorded if setting.kind == "directory"]
    full = [s for s in made if set(held(s.subject)) - own.get(s.subject, {LOCK})]
    full += [s for s in made if s not in full and any(is_within(each.subject, s.subject) for each in full)]
    owners = {os.stat(setting.subject).st_uid for setting in full}
    users = [s for s in recorded if s.kind == "user" and uid_of(s.subject) in owners]
    return full + users


def is_within(inner, outer):
    """Whether a directory lies within another one."""
    return inner.startswith(f"{outer}/")


def uid_of(user):
    """Number of a user; None if there is none of this name."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def perform(module, commands):
    """Execute commands; what those said that failed, which holds up no other."""
    failed = []
    for command in commands:
        if needs_netlink(command):
            execute(module, command)
        elif command[0] == "userdel" and uid_of(command[-1]) is None:
            continue  # the package has taken its user with it
        else:
            code, out, err = packages.patiently(call, command)
            failed += [f"`{shlex.join(command)}`: {(err or out).strip()}"] if code else []
    return failed


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    os.environ.update(packages.ENVIRONMENT)

    def read(settings):
        return {setting: baseline.read(setting, call) for setting in settings}

    def differing(was, now):
        return {setting: now[setting] for setting in was if back.differs(setting, was[setting], now[setting])}

    recorded = baseline.load()
    kept = kept_of(recorded)
    was = {setting: value for setting, value in recorded.items() if setting not in kept}
    now = read(was)
    found = differing(was, now)
    commands, purge = back.undo(was, now), back.purge(was, now)
    result = {
        "before": {str(setting): value for setting, value in found.items()},
        "after": {str(setting): was[setting] for setting in found},
        "kept": [str(setting) for setting in kept],
        "commands": [shlex.join(command) for command in commands + purge],
    }
    if not module.check_mode:
        provisioned.forget()
        for directory in (s.subject for s in was if s.kind == "directory"):
            if LOCK in held(directory):
                os.unlink(os.path.join(directory, LOCK))
        failed = perform(module, commands)
        # What is left is read before its tools go. If something is, they stay for the next try.
        others = {s: value for s, value in was.items() if s.kind not in back.PURGED or value is True}
        added = {setting: was[setting] for setting in was if setting not in others}
        left = differing(others, read(others))
        waits = bool(left) and bool(purge)
        if waits:
            failed.append("packages and users that were added stay until the rest is returned")
        else:
            failed += perform(module, purge)
            left |= differing(added, read(added))
        baseline.save({s: was[s] for s in was if s in left or (waits and s in added)})
        if left:
            words = "; ".join(
                f"{setting}: {back.told(was[setting], value)}" for setting, value in left.items()
            )
            why = "; ".join(["", *failed])
            module.fail_json(msg=f"not returned: {words}{why}", **result)
    diff = {"before": result["before"], "after": result["after"]}
    module.exit_json(changed=bool(found), diff=diff, **result)


if __name__ == "__main__":
    main()
