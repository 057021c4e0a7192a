#!/usr/bin/python
"""State, sizes, root qdisc, addresses and routes of a network interface."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: link
short_description: Set a network interface at runtime
description:
  - Brings an interface to the requested state with iproute2, and reads it back. Nothing is persistent.
  - Options that are left out change nothing. Addresses and routes are added; others are not removed.
  - The module fails on an interface that carries the SSH session.
options:
  name:
    description: The interface.
    type: str
    required: true
  up:
    description: Whether it is administratively up.
    type: bool
  mtu:
    description: Largest packet in bytes, without the link-layer header.
    type: int
  txqueuelen:
    description: Transmit queue length in packets. A pfifo uses it when it is created.
    type: int
  gso_max_segs:
    description: Largest number of segments that the device gets as one packet.
    type: int
  qdisc:
    description:
      - Kind of the root qdisc. The kernel derives the limit of a pfifo or bfifo from O(txqueuelen).
      - If the host's kernel does not have it, the module fails before any change.
    type: str
    choices: [pfifo_fast, pfifo, bfifo, fq, fq_codel, mq, rapid]
  addresses:
    description: Addresses with prefix lengths.
    type: list
    elements: str
  routes:
    description: Routes through this interface, which must be up.
    type: list
    elements: dict
    suboptions:
      to:
        description: Destination network, address or V(default).
        type: str
        required: true
      via:
        description: Address of the gateway.
        type: str
        required: true
      quickack:
        description: Whether every segment received over this route is acknowledged at once.
        type: bool
      tcp_usec_ts:
        description:
          - Whether TCP's timestamps are in microseconds; needs Linux 6.7. On older kernels the module fails
            before any change.
        type: bool
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
- name: Prepare the experiment interface
  dumbbell.testbed.link:
    name: vec1
    up: true
    mtu: 1500
    txqueuelen: 1000
    qdisc: fq
    addresses: [198.18.1.11/24]
    routes:
      - to: 198.18.2.0/24
        via: 198.18.1.1
"""

RETURN = r"""
before:
  description: The interface as found.
  returned: always
  type: dict
after:
  description: The interface as read back; in check mode as predicted.
  returned: always
  type: dict
  sample:
    name: vec1
    up: true
    mtu: 1500
    txqueuelen: 1000
    gso_max_segs: 65535
    qdisc: pfifo
    qdisc_options: {limit: 1000}
    qdisc_leaves: []
    addresses: []
    routes: []
commands:
  description: Executed commands; in check mode those that would be executed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_host import (
    converge,
    read_json,
    refuse_what_the_kernel_lacks,
    require_devices,
)
from ..module_utils.dumbbell_link import (
    QDISCS,
    ROUTE_OPTIONS,
    SIZES,
    canonical,
    mismatches,
    parse,
    parse_qdisc,
    plan,
    predict,
)


def read(module, name):
    (link,) = read_json(module, ["ip", "-j", "-d", "address", "show", "dev", name])
    routes = [
        route
        for family in ("-4", "-6")
        for route in read_json(module, ["ip", "-j", family, "route", "show", "dev", name])
    ]
    return parse(link, routes) | parse_qdisc(read_json(module, ["tc", "-j", "qdisc", "show", "dev", name]))


def main():
    route = {"to": {"type": "str", "required": True}, "via": {"type": "str", "required": True}}
    route |= {option: {"type": "bool"} for option in ROUTE_OPTIONS}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "up": {"type": "bool"},
            **{size: {"type": "int"} for size in SIZES},
            "qdisc": {"type": "str", "choices": list(QDISCS)},
            "addresses": {"type": "list", "elements": "str"},
            "routes": {"type": "list", "elements": "dict", "options": route},
        },
        supports_check_mode=True,
    )
    try:
        asked = canonical(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    name = asked["name"]
    require_devices(module, name)
    converge(
        module,
        read=lambda: read(module, name),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: found,
        predict=lambda found: predict(asked, found),
        preflight=lambda found, commands: refuse_what_the_kernel_lacks(module, commands),
    )


if __name__ == "__main__":
    main()
