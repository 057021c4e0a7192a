"""Emulation of a path on a router: the request, the current state, and missing features."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Callable, Sequence
from typing import Any

from . import dumbbell_ethtool as ethtool
from . import dumbbell_tc as tc
from .dumbbell_host import call

OFFLOADS = ("tso", "gso", "gro", "lro")


def options() -> dict[str, Any]:
    """Ansible's argument specification of a direction, with its later states."""
    queue: dict[str, Any] = {"kind": {"type": "str", "required": True, "choices": list(tc.QUEUES)}}
    for kind in tc.QUEUES:
        queue |= tc.arguments(kind)
    flow = {
        "delay_us": {"type": "int", "required": True},
        "protocol": {"type": "str", "choices": ["tcp", "udp"]},
        "src": {"type": "str"},
        "dst": {"type": "str"},
        "src_port": {"type": "int"},
        "dst_port": {"type": "int"},
    }
    state = tc.arguments("netem") | {
        "rate_bps": {"type": "int"},
        "burst_us": {"type": "int"},
        "burst_bytes": {"type": "int"},
        "outage": {
            "type": "dict",
            "options": {
                "rate_bps": {"type": "int", "required": True},
                "packet_bytes": {"type": "int", "required": True},
            },
        },
        "policer": {
            "type": "dict",
            "options": {
                "rate_bps": {"type": "int", "required": True},
                "burst_bytes": {"type": "int", "required": True},
            },
        },
        "queue": {"type": "dict", "options": queue},
        "keep_order": {"type": "bool"},
        "distribution": {"type": "str", "choices": [name for name in tc.DISTRIBUTIONS if name]},
        "flows": {"type": "list", "elements": "dict", "options": flow},
    }
    change = {"at_ns": {"type": "int", "required": True}} | state
    return {**state, "changes": {"type": "list", "elements": "dict", "options": change, "default": []}}


def params(given: tc.Json, way: tc.Json) -> dict[str, Any]:
    """A direction of a plan as options of the module `tc_path`; zeros are left out."""
    asked = {name: value for name, value in given.items() if value and name != "changes"}
    about = {"delay_us": 0, "loss": 0.0, "trim_us": way["trim_us"], "burst_us": way["burst_us"]}
    return {**dict.fromkeys(options()), **about, **asked}


def read_classes(links: Sequence[tc.Json], devices: tc.Devices) -> bytes:
    """The classes of a direction's ifb, read over netlink; none without that device."""
    return _dumped(links, devices.ifb, tc.class_request)


def read_egress_filters(links: Sequence[tc.Json], devices: tc.Devices) -> bytes:
    """The filters of the egress hook, where the policer is, likewise; none without that hook."""
    return _dumped(links, devices.egress, tc.filter_request)


def _dumped(links: Sequence[tc.Json], device: str, request: Callable[[int], bytes]) -> bytes:
    ifindex = next((link["ifindex"] for link in links if link["ifname"] == device), None)
    if ifindex is None:
        return b""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(request(ifindex))
        dump = b""
        while True:
            part = netlink.recv(1 << 16)
            dump += part
            if any(kind in {tc.NLMSG_DONE, tc.NLMSG_ERROR} for kind, _ in tc.messages(part)):
                return dump


def refuse_what_the_host_lacks(module: Any, asked: tc.Direction, found: tc.Found) -> None:
    """Fail if this host's kernel or tc does not support a stage; tested in an empty namespace."""
    for stage, commands in tc.probes(asked, found).items():
        script = [*map(shlex.join, commands), "tc -j -d qdisc show >&3"]
        # With -x, the last command in the output is the one that failed.
        probe = "exec 3>&1 >&2; set -ex; " + "; ".join(script)
        code, out, err = call(["unshare", "--net", "sh", "-c", probe])
        if code:
            failed, _, words = err.rpartition("+ ")[2].partition("Usage:")[0].partition("\n")
            module.fail_json(
                msg=f"this host's kernel or tc cannot make the {stage}: `{failed}`: {' '.join(words.split())}"
            )
        lost = tc.probe_differences(asked, json.loads(out))
        if lost:
            words = "; ".join(f"{name} {want}" for name, (want, _) in lost.items())
            module.fail_json(msg=f"this host's kernel ignores a part of the {stage}: {words}")


def put_together(features: str) -> list[str]:
    """Names of active offloads that merge packets, in the output of `ethtool -k`."""
    found = ethtool.parse("features", features)
    return [name for name in OFFLOADS if (feature := found.get(ethtool.SHORT_NAMES[name])) and feature.value]


def offloads_on(module: Any, *devices: str) -> dict[str, list[str]]:
    """These offloads by device."""
    found = {}
    for device in devices:
        code, out, err = call(["ethtool", "-k", device])
        if code:
            module.warn(f"whether offloads of {device} are on is not known: {err.strip()}")
        found[device] = put_together(out)
    return found


def batches(
    devices: tc.Devices, states: Sequence[tc.Direction], roots: tuple[str, str]
) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Commands that change a direction to each state after the first, and those that undo all, after `tc`."""

    def words(state: tc.Direction, before: tc.Direction | None) -> list[list[str]]:
        return [said for _, *said in tc.render_change(devices, state, roots, before)]

    first, *later = states
    return [words(*pair) for pair in zip(later, states)], words(first, None) if later else []  # noqa: B905  Python 3.9
