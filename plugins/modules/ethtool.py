#!/usr/bin/python
"""Offloads, rings, coalescing, pause frames and queues of a network interface."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ethtool
short_description: Set the hardware settings of a network interface with ethtool
description:
  - Sets features, rings, coalescing, pause frames and the number of queues at runtime, and reads them back.
  - A group that is left out is neither read nor changed. If the device does not have a setting, holds it
    fixed at another value, or has a lower limit, the module fails before anything is changed and names the
    setting.
  - The module fails on an interface that carries the SSH session.
options:
  name:
    description: The interface.
    type: str
    required: true
  features:
    description:
      - Features and whether they are on. Names are ethtool's short ones (C(rx), C(tx), C(sg), C(tso),
        C(gso), C(gro), C(lro), C(rxvlan), C(txvlan), C(ntuple), C(rxhash)) or those C(ethtool -k) prints.
    type: dict
    default: {}
  rings:
    description: Descriptors of the rings, as C(ethtool -G) takes them, for example C(rx) and C(tx).
    type: dict
    default: {}
  coalescing:
    description: Interrupt coalescing, as C(ethtool -C) takes it, for example C(adaptive-rx) and C(rx-usecs).
    type: dict
    default: {}
  pause:
    description: Pause frames (IEEE 802.3x), C(autoneg), C(rx) and C(tx).
    type: dict
    default: {}
  channels:
    description: Number of queues, as C(ethtool -L) takes it, for example C(combined).
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
- name: Let every packet on the wire be one packet in the kernel, and interrupt for each
  dumbbell.testbed.ethtool:
    name: enp65s0f0np0
    features: {tso: false, gso: false, gro: false}
    coalescing: {adaptive-rx: false, rx-usecs: 0}
    pause: {autoneg: false, rx: false, tx: false}
    rings: {rx: 4096, tx: 4096}
"""

RETURN = r"""
before:
  description: The interface and the requested settings as found, under the requested names.
  returned: always
  type: dict
after:
  description: The same as read back; in check mode as predicted.
  returned: always
  type: dict
  sample: {name: vec1, features: {tso: false, gso: false, gro: false}}
commands:
  description: Executed commands; in check mode those that would be executed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_ethtool import (
    NOT_TO_BE_READ,
    SHOW,
    canonical,
    driver,
    find,
    mismatches,
    parse,
    plan,
)
from ..module_utils.dumbbell_host import converge, require_devices, run


def read(module, name, asked):
    found = {}
    for group, values in asked.items():
        text = ""
        if group == "features":
            text = run(module, ["ethtool", "-k", name])
        elif (driver(run(module, ["ethtool", "-i", name])), group) not in NOT_TO_BE_READ:
            text = module.run_command(["ethtool", SHOW[group], name])[1]  # empty if the driver has none
        found[group] = find(group, values, parse(group, text))
    return found


def report(name, values):
    return {"name": name, "features": {}} | values


def main():
    module = AnsibleModule(
        argument_spec={"name": {"type": "str", "required": True}}
        | {group: {"type": "dict", "default": {}} for group in SHOW},
        supports_check_mode=True,
    )
    name = module.params["name"]
    require_devices(module, name)
    try:
        asked = {
            group: {key: canonical(key, value) for key, value in module.params[group].items()}
            for group in SHOW
            if module.params[group]
        }
        converge(
            module,
            read=lambda: read(module, name, asked),
            plan=lambda found: [
                command for group in asked for command in plan(name, group, asked[group], found[group])
            ],
            mismatches=lambda found: {
                f"{group} {key}": pair
                for group in asked
                for key, pair in mismatches(asked[group], found[group]).items()
            },
            report=lambda found: report(
                name,
                {group: {key: each.value for key, each in values.items()} for group, values in found.items()},
            ),
            predict=lambda found: report(name, asked),
        )
    except ValueError as error:
        module.fail_json(msg=f"{name}: {error}")


if __name__ == "__main__":
    main()
