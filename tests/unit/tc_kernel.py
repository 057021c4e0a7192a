"""A kernel in miniature: executes what `plan` and `render_change` give, and dumps what tc shows.

It rounds as tc does. Its grammar is that of tc's manual pages, not that of the table under test.
"""

import struct
from typing import Any

from conftest_modules import tc

from plugins.module_utils.dumbbell_tc import htb, netlink, police

DEVICES = {
    "forward": tc.Devices("left", "right", "ifb_fwd"),
    "reverse": tc.Devices("right", "left", "ifb_rev"),
}
FORWARD = DEVICES["forward"]
PFIFO = {"kind": "pfifo", "limit_packets": 166}
SHAPED = {"rate_bps": 10**6, "queue": {"kind": "pfifo", "limit_packets": 9}}
DELAYED = {"delay_us": 10_000}
BARE = tc.parse(FORWARD, [], [], [], b"")


def ask(asked: dict[str, Any]) -> Any:
    return tc.ask(asked)


def ask_changes(asked: dict[str, Any], changes: list[dict[str, Any]]) -> Any:
    return tc.ask_changes(asked, changes)


NETEM_VALUES = {
    ("delay",): ("delay", ["delay", "jitter", "correlation"]),
    ("loss", "random"): ("loss-random", ["loss", "correlation"]),
    ("loss", "state"): ("loss-state", ["p13", "p31", "p32", "p23", "p14"]),
    ("loss", "gemodel"): ("loss-gemodel", ["p", "r", "1-h", "1-k"]),
    ("duplicate",): ("duplicate", ["duplicate", "correlation"]),
    ("corrupt",): ("corrupt", ["corrupt", "correlation"]),
    ("reorder",): ("reorder", ["reorder", "correlation"]),
    ("slot",): ("slot", ["min-delay", "max-delay"]),
    ("packets",): ("slot", ["packets"]),
    ("bytes",): ("slot", ["bytes"]),
    ("rate",): ("rate", ["rate"]),
    ("limit",): ("", ["limit"]),
    ("gap",): ("", ["gap"]),
    ("distribution",): ("", []),
}
LOSSES = ("loss-random", "loss-state", "loss-gemodel")


def number(word: str) -> float:
    """A value as tc shows it."""
    if word.endswith("us"):
        return float(f"{int(int(float(word[:-2]) * 15.625) / 15.625) / 1e6:g}")
    if word.endswith("%"):
        return float(f"{round(float(word[:-1]) / 100 * (2**32 - 1)) / (2**32 - 1):g}")
    return int(word.removesuffix("bit")) // 8 if word.endswith("bit") else int(word)


def netem_shown(words: list[str], before: dict[str, Any]) -> dict[str, Any]:
    """What netem holds after it is told `words`; it keeps much of what it held."""
    shown = {key: value for key, value in before.items() if key not in LOSSES}
    shown |= {"ecn": False, "gap": 0}
    rest = list(words)
    while rest:
        name = next(n for n in NETEM_VALUES if tuple(rest[: len(n)]) == n)
        holder, fields = NETEM_VALUES[name]
        rest = rest[len(name) :]
        if name == ("distribution",):
            assert rest.pop(0) in {"normal", "pareto", "paretonormal"}
            latency, jitter = words[words.index("delay") + 1 :][:2]
            assert "0us" not in (latency, jitter), "distribution specified but no latency and jitter values"
        for field in fields:
            if rest and rest[0][0].isdigit():
                place = shown.setdefault(holder, {}) if holder else shown
                place[field] = number(rest.pop(0))
    assert len([key for key in LOSSES if key in shown]) <= 1
    delayed = words[words.index("delay") + 1] != "0us" if "delay" in words else "delay" in before
    for key in [key for key, value in shown.items() if isinstance(value, dict)]:
        does = any(value for field, value in shown[key].items() if field != "correlation")
        if not (delayed if key == "delay" else does):
            del shown[key]
    return shown


def queue_shown(kind: str, words: list[str], before: dict[str, Any]) -> dict[str, Any]:
    """What a queue shows: flags when on, times of codel in 1024 ns, pie's tupdate in ticks of 10 ms."""
    shown, rest = dict(before), list(words)
    while rest:
        word = rest.pop(0)
        if word in {"ecn", "noecn"}:
            shown.pop("ecn", None)
            shown |= {"ecn": True} if word == "ecn" else {}
        elif kind == "cake" and word in {"besteffort", "diffserv3", "diffserv4"}:
            shown["diffserv"] = word
        elif kind == "cake" and word in {"triple-isolate", "flows", "flowblind"}:
            shown["flowmode"] = word
        elif word in {"avpkt", "burst", "bandwidth"}:
            rest.pop(0)
        elif word.endswith(("target", "interval")) and kind != "pie":
            shown[word] = int(rest.pop(0)[:-2]) * 1000 // 1024 * 1024 // 1000
        elif word == "tupdate":
            shown[word] = -(-int(rest.pop(0)[:-2]) // 10_000) * 10_000
        elif word == "probability":
            shown[word] = float(f"{round(float(rest.pop(0)) * 2**32) / 2**32:g}")
        else:
            assert word in {
                "limit",
                "memlimit",
                "memory_limit",
                "flows",
                "quantum",
                "target",
                "rtt",
                "min",
                "max",
            }
            shown[word] = int(rest.pop(0).removesuffix("us"))
    if kind == "red":
        shown = {key: value for key, value in shown.items() if key != "ecn" or "ecn" in words}
        shown |= {"ewma": 4, "Scell_log": 11}
    return shown


class Kernel:
    """Devices left and right without qdiscs; knows the commands that are rendered, and no others."""

    def __init__(self) -> None:
        self.links: dict[str, dict[str, Any]] = {}
        for device in ("left", "right"):
            self.add_link(device, "veth")
        self.qdiscs: list[dict[str, Any]] = []
        self.classes: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.filters: dict[str, list[dict[str, Any]]] = {}
        self.policers: dict[str, tuple[int, bytes]] = {}  # index and filter, by device

    def add_link(self, name: str, kind: str) -> None:
        self.links[name] = {"ifname": name, "flags": [], "linkinfo": {"info_kind": kind}}

    def execute(self, command: list[str]) -> None:  # noqa: PLR0912, PLR0915
        match command:
            case ["ip", "link", "add", "name", name, "type", "ifb"]:
                self.add_link(name, "ifb")
            case ["ip", "link", "set", "dev", name, "up"]:
                self.links[name]["flags"] = ["UP"]
            case ["ip", "link", "del", "dev", name]:
                del self.links[name]
                self.drop(name)
            case ["tc", "qdisc", "del", "dev", device, "root"]:
                self.drop(device)
            case ["tc", "qdisc", "add", "dev", device, "clsact"]:
                self.qdiscs.append({"kind": "clsact", "handle": "ffff:", "dev": device, "options": {}})
            case ["tc", "qdisc", "replace", "dev", device, "root", "handle", handle, kind, *words]:
                assert handle not in [qdisc["handle"] for qdisc in self.qdiscs if qdisc["dev"] == device]
                before = [q for q in self.qdiscs if q["dev"] == device and q["kind"] != "clsact"]
                self.add({"handle": handle, "dev": device, "root": True}, kind, words)
                self.qdiscs = [q for q in self.qdiscs if q not in before]
                self.classes.pop(device, None)
                self.filters.pop(device, None)
            case ["tc", "qdisc", "add", "dev", device, "parent", parent, "handle", handle, kind, *words]:
                assert handle not in [qdisc["handle"] for qdisc in self.qdiscs if qdisc["dev"] == device]
                self.add({"handle": handle, "dev": device, "parent": parent}, kind, words)
            case ["tc", "qdisc", "change", "dev", device, "root", kind, *words]:
                self.change(device, None, kind, words)
            case ["tc", "qdisc", "change", "dev", device, "parent", parent, "handle", "10:", kind, *words]:
                self.change(device, parent, kind, words)
            case ["tc", "qdisc", "change", "dev", device, "parent", parent, kind, *words]:
                self.change(device, parent, kind, words)
            case ["tc", "class", "add" | "change", "dev", device, "parent", _, "classid", _, "htb", *shape]:
                self.classes[device] = self.htb(dict(zip(shape[::2], shape[1::2], strict=True)))
            case ["tc", "filter", "del", "dev", device, "ingress"]:
                del self.redirects[device]
            case ["tc", "filter", "del", "dev", device, "egress"]:
                del self.policers[device]
            case [
                "tc",
                "filter",
                "add",
                "dev",
                device,
                "egress",
                "pref",
                "1",
                "matchall",
                "action",
                "police",
                *of,
            ]:
                assert device not in self.policers
                assert any(q["kind"] == "clsact" and q["dev"] == device for q in self.qdiscs)
                self.policers[device] = int(of[1]), self.police(of)
            case ["tc", "actions", "change", "action", "police", *of]:
                (device,) = (device for device, (index, _) in self.policers.items() if index == int(of[1]))
                self.policers[device] = int(of[1]), self.police(of)
            case [
                *_,
                "dev",
                device,
                "ingress",
                "pref",
                "1",
                "matchall",
                "action",
                "mirred",
                "egress",
                _,
                _,
                target,
            ]:
                assert device not in self.redirects
                self.redirects[device] = target
            case [
                "tc",
                "filter",
                "add",
                "dev",
                device,
                "parent",
                _,
                "pref",
                pref,
                "protocol",
                _,
                "flower",
                *words,
            ]:
                keys: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
                classid = keys.pop("classid")
                keys = {key: int(value) if key.endswith("port") else value for key, value in keys.items()}
                options = {"classid": classid, "keys": keys | {"eth_type": "ipv4"}}
                entry = {"pref": int(pref), "kind": "flower"}
                self.filters.setdefault(device, []).extend([entry, entry | {"options": options}])
            case _:
                raise AssertionError(command)

    def add(self, qdisc: dict[str, Any], kind: str, words: list[str]) -> None:
        match kind:
            case "netem":
                options = netem_shown(words, {"limit": 1000})
                others = [q for q in self.qdiscs if q["dev"] == qdisc["dev"] and q["kind"] == "netem"]
                for netem in [options, *(other["options"] for other in others)] if others else []:
                    assert "duplicate" not in netem, "cannot mix duplicating netems with other netems in tree"
            case "htb":
                options = {"default": hex(int(words[1], 16))}
            case "prio":
                options = {"bands": int(words[1]), "priomap": [int(word) for word in words[3:]]}
            case _:
                options = queue_shown(kind, words, {})
        self.qdiscs.append(qdisc | {"kind": kind, "options": options})

    def change(self, device: str, parent: str | None, kind: str, words: list[str]) -> None:
        on_device = (qdisc for qdisc in self.qdiscs if qdisc["dev"] == device)
        (qdisc,) = (q for q in on_device if q.get("parent") == parent and q["kind"] != "clsact")
        assert qdisc["kind"] == kind
        assert not (kind == "fq_codel" and "flows" in words)
        shown = netem_shown if kind == "netem" else lambda words, before: queue_shown(kind, words, before)
        qdisc["options"] = shown(words, qdisc["options"])

    def drop(self, device: str) -> None:
        self.qdiscs = [q for q in self.qdiscs if q["dev"] != device or q["kind"] == "clsact"]
        self.classes.pop(device, None)
        self.filters.pop(device, None)

    @staticmethod
    def htb(shape: dict[str, str]) -> bytes:
        rate = int(shape["rate"].removesuffix("bit")) // 8
        ticks = int(int(int(shape["burst"]) / rate * 1e6) * 15.625)
        spec = netlink.RATESPEC.pack(0, 1, 0, 0, 0, min(rate, 2**32 - 1))
        parms = htb.HTB_OPT.pack(spec, spec, ticks, ticks, 1514, 0, 0)
        options = attribute(htb.TCA_HTB_PARMS, parms)
        if rate >= 2**32:
            options += attribute(htb.TCA_HTB_RATE64, struct.pack("=Q", rate))
            options += attribute(htb.TCA_HTB_CEIL64, struct.pack("=Q", rate))
        body = netlink.TCMSG.pack(0, 7, 0x10001, 0xFFFFFFFF, 0)
        body += attribute(netlink.TCA_KIND, b"htb\0") + attribute(netlink.TCA_OPTIONS, options)
        done = netlink.NLMSGHDR.pack(netlink.NLMSGHDR.size + 4, netlink.NLMSG_DONE, 2, 1, 0) + bytes(4)
        return (
            netlink.NLMSGHDR.pack(netlink.NLMSGHDR.size + len(body), htb.RTM_NEWTCLASS, 2, 1, 0) + body + done
        )

    @staticmethod
    def police(words: list[str]) -> bytes:
        shape = dict(zip(words[::2], words[1::2], strict=True))
        assert shape["conform-exceed"] == "drop/ok"
        rate = int(shape["rate"].removesuffix("bit")) // 8
        ticks = int(int(int(shape["burst"]) / rate * 1e6) * 15.625)
        spec = netlink.RATESPEC.pack(3, 1, 0, 0, 0, min(rate, 2**32 - 1))
        parms = police.POLICE.pack(
            int(shape["index"]), 2, 0, ticks, int(shape["mtu"]), spec, bytes(12), 1, 1, 0
        )
        own = attribute(police.TCA_POLICE_TBF, parms)
        own += attribute(police.TCA_POLICE_RATE64, struct.pack("=Q", rate)) if rate >= 2**32 else b""
        action = attribute(police.TCA_ACT_KIND, b"police\0") + attribute(0x8000 | police.TCA_ACT_OPTIONS, own)
        options = attribute(police.TCA_MATCHALL_ACT, attribute(1, action))
        head = netlink.TCMSG.pack(0, 7, 0, police.EGRESS_HOOK, 0) + attribute(netlink.TCA_KIND, b"matchall\0")
        bodies = (head, head + attribute(netlink.TCA_OPTIONS, options))
        return b"".join(
            netlink.NLMSGHDR.pack(netlink.NLMSGHDR.size + len(body), police.RTM_NEWTFILTER, 2, 1, 0) + body
            for body in bodies
        )

    def found(self, devices: Any) -> Any:
        target = self.redirects.get(devices.ingress)
        action = {"mirred_action": "redirect", "to_dev": target if target in self.links else "*"}
        entry = {"kind": "matchall", "pref": 1, "options": {"actions": [action]}}
        filters = [entry] if target else []
        classes = self.classes.get(devices.ifb, b"")
        own = self.filters.get(devices.egress, [])
        _, policers = self.policers.get(devices.egress, (0, b""))
        return tc.parse(devices, list(self.links.values()), self.qdiscs, filters, classes, own, policers)

    def converge(self, devices: Any, asked: Any) -> None:
        for command in tc.plan(devices, asked, self.found(devices)):
            self.execute(command)


def attribute(kind: int, data: bytes) -> bytes:
    return netlink.RTATTR.pack(netlink.RTATTR.size + len(data), kind) + data + bytes(-len(data) % 4)
