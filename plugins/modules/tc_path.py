#!/usr/bin/python
"""One direction of an emulated path on a router."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: tc_path
short_description: Emulate one direction of a path on a router
description:
  - Traffic that enters O(ingress) is redirected to an ifb device of the module's own, where an htb over the
    queue forms the bottleneck, and leaves by O(egress), where a netem delays and loses it.
  - Owns the ingress filters of O(ingress) and the root qdisc of O(egress), so that the two directions of a
    path can share two devices. Filters of others on that hook are refused, and so is an interface that
    carries the SSH session.
  - A stage that differs is replaced by a fresh one, which loses the packets it holds; a stage that is as
    asked is left alone. The netem's limit is computed so that it never drops.
  - Rates count bytes of Ethernet frames without the checksum, as the kernel does.
options:
  direction:
    description: Names the ifb device, C(ifb_fwd) or C(ifb_rev).
    type: str
    required: true
    choices: [forward, reverse]
  ingress:
    description: Device the traffic enters by.
    type: str
    required: true
  egress:
    description: Device the traffic leaves by.
    type: str
    required: true
  rate_bps:
    description: Rate of the bottleneck; without it there is none, and no queue.
    type: int
  delay_us:
    description: One-way delay after the bottleneck.
    type: int
    default: 0
  burst_us:
    description:
      - The rate stays accurate while the router's timer is late by no more than this.
      - After an idle time, as much as the bottleneck carries in it passes at once.
    type: int
    default: 1000
  loss:
    description: Probability of losing a packet, independently of others, after the bottleneck.
    type: float
    default: 0.0
  queue:
    description: The queue before the bottleneck.
    type: dict
    suboptions:
      kind:
        description: Its qdisc.
        type: str
        required: true
        choices: [pfifo, bfifo]
      limit_packets:
        description: Length of a V(pfifo).
        type: int
      limit_bytes:
        description: Length of a V(bfifo).
        type: int
  state:
    description: Whether the direction is emulated.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: The kernel's features are probed in an empty network namespace, which may load modules.
  diff_mode:
    support: full
author:
  - Dumbbell
"""

EXAMPLES = r"""
- name: Emulate 100 Mbit/s and 10 ms from left to right
  tc_path:
    direction: forward
    ingress: vec1
    egress: vec2
    rate_bps: 100000000
    delay_us: 10000
    loss: 0.001
    queue:
      kind: pfifo
      limit_packets: 166

- name: Remove the reverse direction
  tc_path:
    direction: reverse
    ingress: vec2
    egress: vec1
    state: absent
"""

RETURN = r"""
before:
  description: The direction as found, null without one; a qdisc of another make is no part of it.
  returned: always
  type: dict
after:
  description: The direction as the kernel holds it, or as it would be in check mode.
  returned: always
  type: dict
  sample: {rate_bps: 100000000, delay_us: 10000, loss: 0.001, queue: {kind: pfifo, limit_packets: 166}}
commands:
  description: Commands executed, or to be executed in check mode.
  returned: always
  type: list
  elements: str
"""

import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_host import converge, read_json, require_devices
from ansible.module_utils.dumbbell_tc import (
    ABSENT,
    BURST_US,
    IFB,
    NLMSG_DONE,
    NLMSG_ERROR,
    Devices,
    ask,
    class_request,
    measured,
    messages,
    mismatches,
    parse,
    plan,
    probes,
)


def dump_classes(ifindex):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(class_request(ifindex))
        dump = b""
        while True:
            part = netlink.recv(1 << 16)
            dump += part
            if any(kind in {NLMSG_DONE, NLMSG_ERROR} for kind, _ in messages(part)):
                return dump


def read(module, devices):
    links = read_json(module, ["ip", "-j", "-d", "link", "show"])
    qdiscs = read_json(module, ["tc", "-j", "-d", "qdisc", "show"])
    filters = read_json(module, ["tc", "-j", "filter", "show", "dev", devices.ingress, "ingress"])
    ifindex = next((link["ifindex"] for link in links if link["ifname"] == devices.ifb), None)
    classes = dump_classes(ifindex) if ifindex else b""
    try:
        return parse(devices, links, qdiscs, filters, classes)
    except ValueError as error:
        module.fail_json(msg=str(error))


def refuse_what_the_kernel_lacks(module, asked, found):
    for feature, probe in probes(asked, found).items():
        code, _, err = module.run_command(["unshare", "--net", "sh", "-c", probe])
        if code:
            module.fail_json(msg=f"this kernel has no {feature}: `{probe}` failed: {err.strip()}")


def main():
    queue = {
        "kind": {"type": "str", "required": True, "choices": ["pfifo", "bfifo"]},
        "limit_packets": {"type": "int"},
        "limit_bytes": {"type": "int"},
    }
    module = AnsibleModule(
        argument_spec={
            "direction": {"type": "str", "required": True, "choices": ["forward", "reverse"]},
            "ingress": {"type": "str", "required": True},
            "egress": {"type": "str", "required": True},
            "rate_bps": {"type": "int"},
            "delay_us": {"type": "int", "default": 0},
            "burst_us": {"type": "int", "default": BURST_US},
            "loss": {"type": "float", "default": 0.0},
            "queue": {
                "type": "dict",
                "options": queue,
                "required_if": [("kind", "pfifo", ["limit_packets"]), ("kind", "bfifo", ["limit_bytes"])],
                "mutually_exclusive": [("limit_packets", "limit_bytes")],
            },
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    params = module.params
    devices = Devices(params["ingress"], params["egress"], IFB[params["direction"]])
    if devices.ingress == devices.egress:
        module.fail_json(msg=f"traffic cannot enter and leave by the same interface {devices.ingress}")
    try:
        asked = ABSENT
        if params["state"] == "present":
            asked = ask(
                params["rate_bps"], params["delay_us"], params["loss"], params["queue"], params["burst_us"]
            )
    except ValueError as error:
        module.fail_json(msg=str(error))
    require_devices(module, devices.ingress, devices.egress)
    converge(
        module,
        read=lambda: read(module, devices),
        plan=lambda found: plan(devices, asked, found),
        mismatches=lambda found: mismatches(devices, asked, found),
        report=lambda found: measured(found.direction),
        predict=lambda found: measured(asked),
        preflight=lambda found, commands: refuse_what_the_kernel_lacks(module, asked, found.direction),
    )


if __name__ == "__main__":
    main()
