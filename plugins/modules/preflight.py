#!/usr/bin/python
"""Read what decides whether a host is fit for experiments, and try whether it reaches the others."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: preflight
short_description: Read the host's fitness for experiments, and try whether hosts reach each other
description:
  - Reads NICs and who configures them, firewall, services, power, disk, boot and load. Changes nothing.
  - With O(serve) a process of its own answers once on each end, and ends by itself.
  - With O(pings) and O(tries) it asks the ends of other hosts.
options:
  nics:
    description: Experiment interfaces to read. If left out, the host is not read.
    type: list
    elements: str
  discover:
    description: Read all NICs, the device of the SSH session, and neighbours that are known.
    type: bool
    default: false
  serve:
    description: Ends to answer on, C({protocol, address, port}).
    type: list
    elements: dict
    default: []
  serve_s:
    description: Seconds after which the process that answers ends.
    type: int
    default: 60
  pings:
    description: Addresses to reach by packets that may not be fragmented, C({device, peer, mtu, neighbour}).
    type: list
    elements: dict
    default: []
  tries:
    description: Ends to reach, C({protocol, from, address, port}).
    type: list
    elements: dict
    default: []
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
- name: Read the host
  dumbbell.testbed.preflight:
    nics: [eth1]
"""

RETURN = r"""
facts:
  description: What was read.
  returned: if O(nics) or O(discover) is given
  type: dict
taken:
  description: Ends to answer on that the host cannot have, with the reason.
  returned: always
  type: list
  elements: str
pings:
  description: Of each ping what came instead of an echo, '' for nothing; and the neighbour's address.
  returned: always
  type: list
  elements: dict
tries:
  description: Of each end why it was not reached, '' if it was.
  returned: always
  type: list
  elements: str
"""

import os
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import dumbbell_preflight as preflight
from ..module_utils import dumbbell_reach as reach
from ..module_utils.dumbbell_host import call, management_devices, read_json, ssh_connection


def pinged(asked):
    """The answer to one ping, and to whom the device sent it."""
    device, peer = asked["device"], asked["peer"]
    error = reach.ping(call, device, peer, asked["mtu"])
    known = reach.neighbour(call, device, peer) if asked["neighbour"] else None
    return {"error": error, "lladdr": known}


def main():
    module = AnsibleModule(
        argument_spec={
            "nics": {"type": "list", "elements": "str"},
            "discover": {"type": "bool", "default": False},
            "serve": {"type": "list", "elements": "dict", "default": []},
            "serve_s": {"type": "int", "default": 60},
            "pings": {"type": "list", "elements": "dict", "default": []},
            "tries": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    params, result = module.params, {}
    if params["discover"] or params["nics"] is not None:
        links = read_json(module, ["ip", "-j", "-d", "address", "show"])
        nics = preflight.physical(links) if params["discover"] else params["nics"]
        result["facts"] = preflight.read(nics, links, call)
    if params["discover"]:
        carrying = management_devices(ssh_connection(), links)
        result["facts"]["name"] = os.uname().nodename
        result["facts"]["management"] = [name for name in nics if name in carrying]
        result["facts"]["neighbours"] = preflight.neighbours(
            read_json(module, ["ip", "-j", "neighbour", "show"])
        )
    with ThreadPoolExecutor(max(1, len(params["pings"]))) as pool:
        result["pings"] = list(pool.map(pinged, params["pings"]))
    result["tries"] = reach.attempts(params["tries"])
    result["taken"] = reach.serve(params["serve"], params["serve_s"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
