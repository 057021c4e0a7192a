#!/usr/bin/python
"""One direction of an emulated path on a router."""

from __future__ import annotations

# Longer than other files: more than half is documentation, which Ansible wants in the module itself.
DOCUMENTATION = r"""
---
module: tc_path
short_description: Emulate one direction of a path on a router
description:
  - Traffic that enters O(ingress) is redirected to an ifb device that the module creates, where an htb over
    the queue forms the bottleneck, and leaves by O(egress), where a filter polices it if asked, and netem
    delays, loses, duplicates, corrupts and reorders it.
  - Owns the ingress filters of O(ingress), and the egress filters and the root qdisc of O(egress), so that
    the two directions of a path can share two devices. The module fails if others have filters on that
    hook, or if an interface carries the SSH session.
  - A stage that differs is replaced by a new one, which loses its queued packets; a stage with the requested
    settings is not changed. Without delay, loss or anything else to emulate there is no netem. The netem's
    limit is computed so that it never drops.
  - If the host's kernel or tc lacks a feature, the module fails before anything is changed.
  - Rates count bytes of Ethernet frames without the checksum, as the kernel does. Shares and probabilities
    are between 0 and 1.
options:
  direction:
    description: Names the ifb device, C(ifb_fwd) or C(ifb_rev).
    type: str
    required: true
    choices: [forward, reverse]
  ingress:
    description: Device by which the traffic enters.
    type: str
    required: true
  egress:
    description: Device by which the traffic leaves.
    type: str
    required: true
  rate_bps: &rate_bps
    description: Rate of the bottleneck; without it there is no bottleneck and no queue.
    type: int
  burst_us:
    description:
      - The rate stays accurate while the router's timer is late by at most this time.
      - After an idle period, the bottleneck passes a burst of this length at once.
    type: int
    default: 1000
  burst_bytes: &burst_bytes
    description: That burst in bytes, in place of O(burst_us); at least a packet of 1514 bytes.
    type: int
  outage: &outage
    description:
      - Of a change, in place of O(rate_bps). The bottleneck sends the packet that is due, and the next one
        not before O(outage.packet_bytes) have passed at O(outage.rate_bps), whatever their size. So this is
        how long an outage lasts, at most 60 s, and a change that ends it may be made a little earlier.
    type: dict
    suboptions:
      rate_bps:
        description: The rate meanwhile.
        type: int
        required: true
      packet_bytes:
        description: Bytes that each packet counts, at most 65535.
        type: int
        required: true
  policer: &policer
    description:
      - Drops what leaves the bottleneck faster than a token bucket allows; behind the bottleneck's queue,
        before the delay line.
      - It passes O(policer.burst_bytes) at once and O(policer.rate_bps) in the long run.
    type: dict
    suboptions:
      rate_bps:
        description: Rate at which the bucket fills.
        type: int
        required: true
      burst_bytes:
        description: Size of the bucket.
        type: int
        required: true
  queue: &queue
    description: The queue before the bottleneck. Defaults are the kernel's unless said otherwise.
    type: dict
    suboptions:
      kind:
        description: The qdisc of the queue.
        type: str
        required: true
        choices: [pfifo, bfifo, codel, fq_codel, cake, pie, red]
      limit_packets:
        description: Length of a V(pfifo) (required), V(codel) (1000), V(fq_codel) (10240) or V(pie) (1000).
        type: int
      limit_bytes:
        description: Length of a V(bfifo) or V(red) (both required) or V(cake) (which has its own default).
        type: int
      ecn:
        description:
          - Whether ECN-capable packets are marked instead of dropped, by a V(codel), V(pie), V(red) (off) or
            V(fq_codel) (on). A V(cake) always marks.
        type: bool
      target_us:
        description: Delay that a V(codel), V(fq_codel) (5000) or V(pie) (15000) tolerates.
        type: int
      interval_us:
        description: Time that a V(codel) or V(fq_codel) tolerates a longer delay (100000).
        type: int
      tupdate_us:
        description: How often a V(pie) computes its probability (15000); in steps of the kernel's tick.
        type: int
      flows:
        description: Number of queues of a V(fq_codel) (1024).
        type: int
      quantum_bytes:
        description: Bytes that each queue of a V(fq_codel) sends in turn (1514).
        type: int
      memory_limit_bytes:
        description: Largest memory of a V(fq_codel) (33554432).
        type: int
      rtt_us:
        description: Round-trip time that a V(cake) is tuned for (100000).
        type: int
      diffserv:
        description: C(besteffort), the default here, C(diffserv3), C(diffserv4) or C(diffserv8) for V(cake).
        type: str
      flowmode:
        description: How a V(cake) tells flows apart, C(triple-isolate), C(flows), C(flowblind) and others.
        type: str
      min_bytes:
        description: Mean length from which on a V(red) drops packets; a third of O(queue.max_bytes).
        type: int
      max_bytes:
        description: Mean length from which on a V(red) drops all packets; a quarter of O(queue.limit_bytes).
        type: int
      probability:
        description: Probability of a drop at O(queue.max_bytes) of a V(red) (0.02).
        type: float
      average_packet_bytes:
        description: Packet size with which a V(red) accounts for idle time (1000).
        type: int
      burst_packets:
        description:
          - Burst that a V(red) lets pass, in average packets; (2 min + max) / 3 of them by default, after
            C(tc-red(8\)).
        type: int
  delay_us:
    description: One-way delay after the bottleneck.
    type: int
    default: 0
  trim_us:
    description: One-way delay that the path has without emulation; subtracted from every O(delay_us).
    type: int
    default: 0
  jitter_us: &jitter_us
    description:
      - Variation of delays, as the standard deviation with a O(distribution), or half the range without one.
      - Packets then overtake each other, unless O(keep_order) is set.
    type: int
  delay_correlation: &delay_correlation
    description: Correlation of a delay with the one before.
    type: float
  distribution: &distribution
    description:
      - Distribution of delays; uniform without one. tc's tables cannot be read back, so the qdisc's
        handle encodes which one was loaded.
    type: str
    choices: [normal, pareto, paretonormal]
  keep_order: &keep_order
    description: Whether a packet with a shorter delay waits for those before it.
    type: bool
  loss:
    description: Probability of losing a packet, after the bottleneck. One model of loss at a time.
    type: float
    default: 0.0
  loss_correlation: &loss_correlation
    description: Correlation of a loss with the one before; this changes the share of packets that are lost.
    type: float
  loss_gemodel: &loss_gemodel
    description:
      - Loss in bursts, after Gilbert and Elliott. The share of packets lost is
        (p loss_bad + r loss_good) / (p + r).
    type: dict
    suboptions:
      p:
        description: Probability of going from the good to the bad state, for each packet.
        type: float
      r:
        description: Probability of going back; 1 - p by default.
        type: float
      loss_bad:
        description: Probability of losing a packet in the bad state (1).
        type: float
      loss_good:
        description: Probability of losing a packet in the good state (0).
        type: float
  loss_state: &loss_state
    description:
      - Loss by netem's chain of four states, 1 good, 2 good within a burst, 3 lost within a burst, 4 lost
        alone. Numbers name the state before and after.
    type: dict
    suboptions:
      p13:
        description: Probability that a burst begins.
        type: float
      p31:
        description: Probability that a burst ends; 1 - p13 by default.
        type: float
      p32:
        description: Probability that a packet within a burst is not lost (0).
        type: float
      p23:
        description: Probability that the packet after that one is lost (1).
        type: float
      p14:
        description: Probability of a single loss (0).
        type: float
  duplicate: &duplicate
    description: Probability of sending a packet twice.
    type: float
  duplicate_correlation: &duplicate_correlation
    description: Correlation of it with the packet before.
    type: float
  corrupt: &corrupt
    description: Probability of a wrong bit in a packet.
    type: float
  corrupt_correlation: &corrupt_correlation
    description: Correlation of it with the packet before.
    type: float
  reorder: &reorder
    description: Probability of sending a packet at once, without delay.
    type: float
  reorder_correlation: &reorder_correlation
    description: Correlation of it with the packet before.
    type: float
  reorder_gap: &reorder_gap
    description: Only every n-th packet may be sent at once (1).
    type: int
  slot: &slot
    description: Packets wait for slots in time, as on a shared medium.
    type: dict
    suboptions:
      min_us:
        description: Shortest time between slots.
        type: int
      max_us:
        description: Longest time between slots; O(slot.min_us) by default.
        type: int
      packets:
        description: Largest number of packets in a slot; 0 for any number.
        type: int
      bytes:
        description: Largest number of bytes in a slot; 0 for any number.
        type: int
  seed: &seed
    description: Seed of the random numbers; needs Linux 6.6 and iproute2 6.6.
    type: int
  flows: &flows
    description:
      - Flows with an additional delay. They share the bottleneck and its queue with all others; behind it,
        filters direct them to a netem of their own. At most 15 different delays.
    type: list
    elements: dict
    suboptions:
      delay_us:
        description: One-way delay in addition to the path's.
        type: int
        required: true
      protocol:
        description: Transport protocol.
        type: str
        choices: [tcp, udp]
      src:
        description: Source address or network.
        type: str
      dst:
        description: Destination address or network.
        type: str
      src_port:
        description: Source port.
        type: int
      dst_port:
        description: Destination port.
        type: int
  changes:
    description:
      - Later states of the direction within a run, each with C(at_ns) and the options that differ from the
        state before. The module does not apply them; it returns the commands that do, in place and without
        losing a packet, as RV(changes). A change of the policer fills its bucket.
      - The kind of queue, the distribution, the flows and whether there is a policer cannot change. When a
        delay gets shorter, packets overtake those in flight, unless O(keep_order) is set.
    type: list
    elements: dict
    default: []
    suboptions:
      at_ns:
        description: Time of the change, from the begin of the run.
        type: int
        required: true
      rate_bps: *rate_bps
      burst_us:
        description: As O(burst_us); without it as before.
        type: int
      burst_bytes: *burst_bytes
      outage: *outage
      policer: *policer
      queue: *queue
      delay_us:
        description: As O(delay_us); without it as before.
        type: int
      jitter_us: *jitter_us
      delay_correlation: *delay_correlation
      distribution: *distribution
      keep_order: *keep_order
      loss:
        description: As O(loss); without it as before.
        type: float
      loss_correlation: *loss_correlation
      loss_gemodel: *loss_gemodel
      loss_state: *loss_state
      duplicate: *duplicate
      duplicate_correlation: *duplicate_correlation
      corrupt: *corrupt
      corrupt_correlation: *corrupt_correlation
      reorder: *reorder
      reorder_correlation: *reorder_correlation
      reorder_gap: *reorder_gap
      slot: *slot
      seed: *seed
      flows: *flows
  state:
    description: Whether the direction is emulated.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: The host's features are probed in an empty network namespace, which may load modules.
  diff_mode:
    support: full
    description: Whether diff mode shows what differs.
author:
  - Dumbbell (@dumbbell)
"""

EXAMPLES = r"""
- name: Emulate 100 Mbit/s and 10 ms from left to right
  dumbbell.testbed.tc_path:
    direction: forward
    ingress: vec1
    egress: vec2
    rate_bps: 100000000
    delay_us: 10000
    loss: 0.001
    queue:
      kind: pfifo
      limit_packets: 166

- name: Lose packets in bursts, 1 % of all, behind an fq_codel without ECN
  dumbbell.testbed.tc_path:
    direction: forward
    ingress: vec1
    egress: vec2
    rate_bps: 100000000
    delay_us: 10000
    loss_gemodel: {p: 0.00101, r: 0.1}
    queue: {kind: fq_codel, limit_packets: 1000, ecn: false}

- name: Let one of the flows through a bottleneck have 30 ms more
  dumbbell.testbed.tc_path:
    direction: forward
    ingress: vec1
    egress: vec2
    rate_bps: 100000000
    delay_us: 10000
    queue: {kind: pfifo, limit_packets: 166}
    flows:
      - {protocol: tcp, dst: 198.18.2.22, dst_port: 5201, delay_us: 30000}

- name: Prepare the bottleneck's fall to 10 Mbit/s after 5 s
  dumbbell.testbed.tc_path:
    direction: forward
    ingress: vec1
    egress: vec2
    rate_bps: 100000000
    queue: {kind: pfifo, limit_packets: 166}
    changes:
      - {at_ns: 5000000000, rate_bps: 10000000}

- name: Remove the reverse direction
  dumbbell.testbed.tc_path:
    direction: reverse
    ingress: vec2
    egress: vec1
    state: absent
"""

RETURN = r"""
before:
  description:
    - The direction as found, null without one. C(unknown) holds settings that the module does not know.
  returned: always
  type: dict
after:
  description:
    - The direction as read back, in check mode as predicted, with the options' names. Apart from delay_us and
      loss, only those options of netem that have an effect.
  returned: always
  type: dict
  sample: {rate_bps: 100000000, delay_us: 10000, loss: 0.001, queue: {kind: pfifo, limit_packets: 166}}
commands:
  description: Executed commands; in check mode those that would be executed.
  returned: always
  type: list
  elements: str
changes:
  description:
    - For each of O(changes) its C(at_ns), and the C(commands) that apply it, each a list of words for
      C(tc -batch).
  returned: always
  type: list
  elements: dict
  sample: [{at_ns: 5000000000, commands: [[class, change, dev, ifb_fwd, '...']]}]
restore:
  description: Commands that undo all of O(changes), in the same format; empty without changes.
  returned: always
  type: list
  elements: list
devices:
  description: The devices of its two stages.
  returned: always
  type: dict
  sample: {bottleneck: ifb_fwd, delay_line: vec2}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_host import converge, read_json, require_devices
from ..module_utils.dumbbell_path import (
    batches,
    offloads_on,
    options,
    read_classes,
    read_egress_filters,
    refuse_what_the_host_lacks,
)
from ..module_utils.dumbbell_tc import (
    ABSENT,
    BURST_US,
    IFB,
    Devices,
    ask_changes,
    handles,
    measured,
    mismatches,
    parse,
    plan,
    report,
    warnings,
)


def read(module, devices):
    links = read_json(module, ["ip", "-j", "-d", "link", "show"])
    qdiscs = read_json(module, ["tc", "-j", "-d", "qdisc", "show"])
    filters = read_json(module, ["tc", "-j", "filter", "show", "dev", devices.ingress, "ingress"])
    flow_filters = read_json(module, ["tc", "-j", "filter", "show", "dev", devices.egress])
    try:
        classes, policers = read_classes(links, devices), read_egress_filters(links, devices)
        return parse(devices, links, qdiscs, filters, classes, flow_filters, policers)
    except ValueError as error:
        module.fail_json(msg=str(error))


def main():
    module = AnsibleModule(
        argument_spec=options()
        | {
            "direction": {"type": "str", "required": True, "choices": ["forward", "reverse"]},
            "ingress": {"type": "str", "required": True},
            "egress": {"type": "str", "required": True},
            "delay_us": {"type": "int", "default": 0},
            "trim_us": {"type": "int", "default": 0},
            "burst_us": {"type": "int", "default": BURST_US},
            "loss": {"type": "float", "default": 0.0},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    params = module.params
    devices = Devices(params["ingress"], params["egress"], IFB[params["direction"]])
    if devices.ingress == devices.egress:
        module.fail_json(msg=f"traffic cannot enter and leave by the same interface {devices.ingress}")
    asked, later = ABSENT, []
    try:
        if params["state"] == "present":
            asked, *later = ask_changes(params, params["changes"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    require_devices(module, devices.ingress, devices.egress)
    for warning in warnings(asked, offloads_on(module, devices.ingress, devices.egress)):
        module.warn(warning)
    converge(
        module,
        read=lambda: read(module, devices),
        plan=lambda found: plan(devices, asked, found),
        mismatches=lambda found: mismatches(devices, asked, found),
        report=lambda found: report(devices, found),
        predict=lambda found: measured(asked),
        preflight=lambda found, commands: refuse_what_the_host_lacks(module, asked, found),
        also=lambda found: commands_of(params["changes"], devices, [asked, *later], handles(asked, found)),
    )


def commands_of(changes, devices, states, roots):
    commands, restore = batches(devices, states, roots)
    return {
        "changes": [
            {"at_ns": change["at_ns"], "commands": of}
            for change, of in zip(changes, commands)  # noqa: B905  Python 3.9
        ],
        "restore": restore,
        "devices": {"bottleneck": devices.ifb, "delay_line": devices.egress},
    }


if __name__ == "__main__":
    main()
