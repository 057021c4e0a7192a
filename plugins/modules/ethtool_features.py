#!/usr/bin/python
"""Offloads and other features of a network interface."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ethtool_features
short_description: Switch offloads and other features of a network interface
description:
  - Switches features with ethtool at runtime, and reads them back.
  - A feature that the driver holds fixed at another value is refused by name, and so is an interface that
    carries the SSH session.
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
- name: Let every packet on the wire be one packet in the kernel
  ethtool_features:
    name: vec1
    features:
      tso: false
      gso: false
      gro: false
"""

RETURN = r"""
before:
  description: The interface and the features asked about, as found, under the names they were asked by.
  returned: always
  type: dict
after:
  description: The same as read back, or as it would be in check mode.
  returned: always
  type: dict
  sample: {name: vec1, features: {tso: false, gso: false, gro: false}}
commands:
  description: Commands executed, or to be executed in check mode.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_ethtool import find, mismatches, parse, plan
from ansible.module_utils.dumbbell_host import converge, require_devices, run
from ansible.module_utils.parsing.convert_bool import boolean


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "features": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    name = module.params["name"]
    require_devices(module, name)
    try:
        asked = {feature: boolean(on) for feature, on in module.params["features"].items()}
        converge(
            module,
            read=lambda: find(asked, parse(run(module, ["ethtool", "-k", name]))),
            plan=lambda found: plan(name, asked, found),
            mismatches=lambda found: mismatches(asked, found),
            report=lambda found: {"name": name, "features": {key: value.on for key, value in found.items()}},
            predict=lambda found: {"name": name, "features": asked},
        )
    except (TypeError, ValueError) as error:
        module.fail_json(msg=f"{name}: {error}")


if __name__ == "__main__":
    main()
