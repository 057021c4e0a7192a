"""The kernel's state of a direction, from the output of ip and tc, and htb's classes."""

from __future__ import annotations

from collections.abc import Sequence

from .direction import (
    POLICER_INDEX,
    Bottleneck,
    DelayLine,
    Devices,
    Direction,
    Filter,
    Found,
    class_of,
    major,
)
from .htb import parse_htb_classes
from .kinds import DISTRIBUTIONS, MATCH, QUEUES, Json, read
from .police import parse_policer


def parse(  # noqa: PLR0917
    devices: Devices,
    links: Sequence[Json],
    qdiscs: Sequence[Json],
    filters: Sequence[Json],
    classes: bytes,
    flow_filters: Sequence[Json] = (),
    egress_filters: bytes = b"",
) -> Found:
    """State of a direction.

    From `ip -j -d link`, `tc -j -d qdisc`, `tc -j filter` of the ingress hook, the ifb's classes over
    netlink, `tc -j filter` of the egress device, and the filters of its egress hook over netlink. ValueError
    names settings of others that are in the way.
    """
    ingress, egress, ifb = devices
    link = next((link for link in links if link["ifname"] == ifb), None)
    if link and link.get("linkinfo", {}).get("info_kind") != "ifb":
        raise ValueError(f"{ifb} exists and is no ifb device")
    egress_root = _root(qdiscs, egress)
    ifb_root = _root(qdiscs, ifb)
    return Found(
        direction=Direction(
            parse_bottleneck(qdiscs, classes, ifb),
            parse_line(qdiscs, flow_filters, egress),
            parse_policer(egress_filters, egress, POLICER_INDEX[ifb]),
        ),
        redirect=parse_redirect(filters, ingress, ifb),
        hooked=any(qdisc["dev"] == ingress and qdisc["kind"] in {"clsact", "ingress"} for qdisc in qdiscs),
        ifb="absent" if link is None else "up" if "UP" in link["flags"] else "down",
        ifb_handle=ifb_root["handle"] if ifb_root else None,
        egress_kind=egress_root["kind"] if egress_root else None,
        egress_handle=egress_root["handle"] if egress_root else None,
        netem=any(qdisc["dev"] == egress and qdisc["kind"] == "netem" for qdisc in qdiscs),
        egress_hooked=any(qdisc["dev"] == egress and qdisc["kind"] == "clsact" for qdisc in qdiscs),
    )


def _root(qdiscs: Sequence[Json], device: str) -> Json | None:
    return next((qdisc for qdisc in qdiscs if qdisc["dev"] == device and qdisc.get("root")), None)


def parse_redirect(filters: Sequence[Json], ingress: str, ifb: str) -> str | None:
    """The device to which all packets that enter `ingress` are redirected."""
    entries = [entry for entry in filters if "options" in entry]
    if not entries:
        return None
    actions = entries[0]["options"].get("actions", [])
    targets = [action.get("to_dev") for action in actions if action.get("mirred_action") == "redirect"]
    ours = entries[0]["kind"] == "matchall" and len(entries) == len(actions) == len(targets) == 1
    if not ours or targets[0] not in {ifb, "*"}:
        kinds = ", ".join(f"{entry['kind']} (pref {entry['pref']})" for entry in entries)
        raise ValueError(f"{ingress} has ingress filters that are not this direction's: {kinds}")
    return str(targets[0])


def parse_bottleneck(qdiscs: Sequence[Json], classes: bytes, ifb: str) -> Bottleneck | None:
    """The bottleneck on `ifb`, or None if its qdiscs are not one htb class over one known queue."""
    root = _root(qdiscs, ifb)
    leaves = [qdisc for qdisc in qdiscs if qdisc["dev"] == ifb and not qdisc.get("root")]
    found = list(parse_htb_classes(classes))
    if not root or root["kind"] != "htb" or len(leaves) != 1 or len(found) != 1:
        return None
    (leaf,) = leaves
    known = leaf["kind"] in QUEUES and leaf["parent"] == f"{root['handle']}1"
    if not known or int(root["options"]["default"], 16) != 1:
        return None
    return Bottleneck(*found[0], leaf["kind"], read(leaf["kind"], leaf["options"]))


def parse_line(qdiscs: Sequence[Json], filters: Sequence[Json], egress: str) -> DelayLine | None:
    """The delay line on `egress`, or None if its qdiscs are something else."""
    root = _root(qdiscs, egress)
    if not root or root["kind"] not in {"netem", "prio"}:
        return None
    netems = [root]
    if root["kind"] == "prio":
        children = {
            qdisc["parent"]: qdisc for qdisc in qdiscs if qdisc["dev"] == egress and "parent" in qdisc
        }
        netems = [children.get(class_of(root["handle"], i), {}) for i in range(root["options"]["bands"])]
        if any(root["options"]["priomap"]) or any(netem.get("kind") != "netem" for netem in netems):
            return None
    code = major(root["handle"]) >> 4
    distribution = (
        DISTRIBUTIONS[code] if code < len(DISTRIBUTIONS) else f"unknown, of handle {root['handle']}"
    )
    bands = tuple(read("netem", netem["options"]) | {"distribution": distribution} for netem in netems)
    entries = sorted((entry for entry in filters if "options" in entry), key=lambda entry: entry["pref"])
    found = [_parse_filter(entry, root["handle"]) for entry in entries]
    known = tuple(item for item in found if item)
    return DelayLine(bands, known) if len(known) == len(found) else None


def _parse_filter(entry: Json, handle: str) -> Filter | None:
    shown, options = dict(entry["options"].get("keys", {})), entry["options"]
    shown.pop("eth_type", None)
    match = {a.name: shown.pop(a.key) for a in MATCH if a.key in shown}
    major, _, band = options.get("classid", "").partition(":")
    if entry["kind"] != "flower" or shown or "actions" in options or f"{major}:" != handle:
        return None
    return Filter(match, int(band, 16) - 1)
