"""tc_path: the real kernel's dumps are parsed, compared, and led to what is asked."""

import contextlib
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import FIXTURES, tc
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

# From Linux 6.1.176 and iproute2 6.1.0, HZ=100: what was asked, the commands that led there, the dumps after;
# for changes in place the same after each of them.
DUMPS = json.loads((FIXTURES / "tc" / "linux-6.1-iproute2-6.1.json").read_text())
DEVICES = {
    "forward": tc.Devices("left", "right", "ifb_fwd"),
    "reverse": tc.Devices("right", "left", "ifb_rev"),
}
FORWARD = DEVICES["forward"]
PFIFO = {"kind": "pfifo", "limit_packets": 166}
BARE = tc.parse(FORWARD, [], [], [], b"")


def ask(asked: dict[str, Any]) -> Any:
    return tc.ask(asked)


def ask_changes(asked: dict[str, Any], changes: list[dict[str, Any]]) -> Any:
    return tc.ask_changes(asked, changes)


def parse(dump: dict[str, Any], direction: str) -> Any:
    classes = bytes.fromhex(dump["classes"])
    devices = DEVICES[direction]
    return tc.parse(devices, dump["links"], dump["qdiscs"], dump["filters"], classes, dump["flow_filters"])


def named(dump: dict[str, Any]) -> str:
    return f"{dump['direction']}-{' '.join(dump['asked'])}"


@pytest.mark.parametrize("dump", DUMPS, ids=named)
class TestRealDumps:
    def test_is_recognised_as_what_was_asked(self, dump: dict[str, Any]) -> None:
        devices, found = DEVICES[dump["direction"]], parse(dump, dump["direction"])
        asked, *_ = ask_changes(dump["asked"], [c["change"] for c in dump.get("changes", [])])
        assert tc.mismatches(devices, asked, found) == {}
        assert tc.plan(devices, asked, found) == []

    def test_the_commands_recorded_on_the_kernel_are_those_rendered_now(self, dump: dict[str, Any]) -> None:
        devices = DEVICES[dump["direction"]]
        before = replace(BARE, hooked=not any("clsact" in command for command in dump["commands"]))
        asked, *later = ask_changes(dump["asked"], [c["change"] for c in dump.get("changes", [])])
        assert [" ".join(command) for command in tc.plan(devices, asked, before)] == dump["commands"]
        roots = tc.handles(asked, before)
        for change, state in zip(dump.get("changes", []), later, strict=True):
            rendered = [" ".join(command) for command in tc.render_change(devices, state, roots)]
            assert rendered == change["commands"]

    def test_each_change_in_place_led_to_its_state(self, dump: dict[str, Any]) -> None:
        changes = dump.get("changes", [])
        devices = DEVICES[dump["direction"]]
        _, *later = ask_changes(dump["asked"], [change["change"] for change in changes])
        for change, state in zip(changes, later, strict=True):
            assert tc.mismatches(devices, state, parse(change, dump["direction"])) == {}

    def test_the_report_has_the_shape_asked(self, dump: dict[str, Any]) -> None:
        asked = dump["asked"]
        measured = tc.measured(parse(dump, dump["direction"]).direction)
        assert measured is not None
        assert measured == dump["after"]
        for name, value in asked.items():
            if name == "queue":
                assert measured["queue"]["kind"] == value["kind"]
                for inner in value.keys() - {"kind", "average_packet_bytes", "burst_packets"}:
                    want = value[inner]
                    want = want if isinstance(want, str) else pytest.approx(want, rel=2e-5, abs=2)
                    assert measured["queue"][inner] == want
            elif isinstance(value, dict):
                assert {k: measured[name][k] for k in value} == pytest.approx(value, rel=2e-5)
            elif isinstance(value, float | int) and name not in {"burst_us", "keep_order"}:
                assert measured[name] == pytest.approx(value, rel=2e-5, abs=1 if name.endswith("_us") else 0)
        for extra in measured.keys() - asked.keys():
            assert not measured[extra] or extra == "reorder_gap"

    @pytest.mark.parametrize(
        ("change", "stage"),
        [
            ({"delay_us": 20_003}, "netem"),
            ({"loss": 0.26, "loss_gemodel": None, "loss_state": None}, "netem"),
            ({"delay_us": 20_001, "jitter_us": 1000, "reorder": None}, "netem"),
            ({"duplicate": 0.2, "flows": None}, "netem"),
            ({"flows": [{"dst": "198.18.9.9", "delay_us": 1}], "duplicate": None}, "netem"),
            ({"rate_bps": 99_998_000, "queue": {"kind": "pfifo", "limit_packets": 166}}, "bottleneck"),
            ({"rate_bps": 100_000_000, "queue": {"kind": "pfifo", "limit_packets": 165}}, "bottleneck"),
            ({"rate_bps": 100_000_000, "queue": {"kind": "fq_codel", "target_us": 5004}}, "bottleneck"),
            ({"rate_bps": 100_000_000, "queue": {"kind": "red", "limit_bytes": 250_001}}, "bottleneck"),
        ],
    )
    def test_a_change_is_seen_and_regrafts_its_stage(
        self, dump: dict[str, Any], change: dict[str, Any], stage: str
    ) -> None:
        devices, found = DEVICES[dump["direction"]], parse(dump, dump["direction"])
        asked = dict(dump["asked"]) | change
        if asked.get("reorder") is None:
            asked = {name: value for name, value in asked.items() if not name.startswith("reorder")}
        if asked.get("duplicate") is None:
            asked.pop("duplicate_correlation", None)
        if "loss" in change:
            asked.pop("loss_correlation", None)
        direction = ask(asked)
        wrong = tc.mismatches(devices, direction, found)
        assert any(name.startswith((stage, "flows" if stage == "netem" else stage)) for name in wrong)
        device = devices.egress if stage == "netem" else devices.ifb
        used = [qdisc["handle"] for qdisc in dump["qdiscs"] if qdisc["dev"] == device]
        grafts = [
            command
            for command in tc.plan(devices, direction, found)
            if command[:3] == ["tc", "qdisc", "replace"] and device in command
        ]
        assert len(grafts) == 1
        assert grafts[0][grafts[0].index("handle") + 1] not in used

    def test_the_other_direction_is_not_touched(self, dump: dict[str, Any]) -> None:
        ingress, egress, ifb = devices = DEVICES[dump["direction"]]
        found = parse(dump, dump["direction"])
        other = {"rate_bps": 5_000_000, "delay_us": 1, "loss": 0.1, "queue": PFIFO}
        flows = [{"dst": "198.18.9.9", "delay_us": 1}]
        for asked in (tc.ABSENT, ask(other), ask(other | {"flows": flows})):
            commands = tc.plan(devices, asked, found)
            assert commands
            for command in commands:
                words = " ".join(command)
                own = (f"{ingress} ingress", f"{ingress} clsact", f"{egress} root", f"{egress} parent")
                assert ifb in words or any(place in words for place in own)

    def test_absent_removes_all_of_it(self, dump: dict[str, Any]) -> None:
        devices, found = DEVICES[dump["direction"]], parse(dump, dump["direction"])
        words = [" ".join(command) for command in tc.plan(devices, tc.ABSENT, found)]
        shaped = [f"tc filter del dev {devices.ingress} ingress", f"ip link del dev {devices.ifb}"]
        delayed = [f"tc qdisc del dev {devices.egress} root"]
        asked = found.direction
        assert words == (shaped if asked.bottleneck else []) + (delayed if asked.line else [])


def netem(**options: Any) -> Any:
    """A path found whose netem tc shows with these options."""
    shown = {"limit": 2562, "delay": {"delay": 0.01, "jitter": 0, "correlation": 0}, "ecn": False, "gap": 0}
    root = {"kind": "netem", "handle": "1:", "dev": "right", "root": True, "options": shown | options}
    return tc.parse(FORWARD, [], [root], [], b"")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, {}),
        ({"seed": 1234}, {}),
        ({"rate": {"rate": 125000, "packetoverhead": 0}}, {"netem netem_rate_bps": (0, 10**6)}),
        ({"rate": {"rate": 125000, "packetoverhead": 26}}, {"netem unknown.rate.packetoverhead": (None, 26)}),
        ({"ecn": True}, {"netem unknown.ecn": (None, True)}),
        ({"slot": {"distribution": 1e-4, "jitter": 0}}, {"netem unknown.slot.distribution": (None, 1e-4)}),
        ({"reorder": {"reorder": 0.1, "correlation": 0}, "gap": 1}, {"netem reorder": (0.0, 0.1)}),
        ({"delay": {"delay": 0.01, "jitter": 1e-3, "correlation": 0}}, {"netem jitter_us": (0, 1000)}),
        ({"loss-random": {"loss": 0.1, "correlation": 0.5}}, {"netem loss_correlation": (0.0, 0.5)}),
        ({"brand-new": 7}, {"netem unknown.brand-new": (None, 7)}),
    ],
)
def test_what_a_netem_does_beyond_what_is_asked_is_named(
    options: dict[str, Any], wrong: dict[str, Any]
) -> None:
    asked = ask({"delay_us": 10_000})
    asked = replace(asked, line=tc.DelayLine((asked.line.bands[0] | {"limit_packets": 2562},)))
    found = netem(**options)
    assert tc.mismatches(FORWARD, asked, found).items() >= wrong.items()
    assert bool(tc.plan(FORWARD, asked, found)) == bool(wrong)


def test_a_foreign_rate_and_a_deleted_qdisc_are_seen_in_the_report() -> None:
    found = netem(rate={"rate": 125000, "packetoverhead": 0, "cellsize": 0, "celloverhead": 0}, ecn=True)
    report: Any = tc.report(FORWARD, found)
    assert report["netem_rate_bps"] == 10**6
    assert report["unknown"] == {"ecn": True}

    dump = next(dump for dump in DUMPS if dump["direction"] == "forward" and dump["after"]["rate_bps"])
    qdiscs = [q for q in dump["qdiscs"] if not (q["dev"] == "ifb_fwd" and q.get("root"))]
    report = tc.report(FORWARD, parse(dump | {"qdiscs": qdiscs, "classes": ""}, "forward"))
    assert report["rate_bps"] is None
    assert report["unknown"] == {"ifb_fwd": "no bottleneck, up"}


def test_a_distribution_is_told_by_the_handle() -> None:
    asked = {"delay_us": 10_000, "jitter_us": 1000}
    normal = ask(asked | {"distribution": "normal"})
    (graft,) = tc.plan(FORWARD, normal, BARE)
    jitter = {"delay": 0.01, "jitter": 1e-3, "correlation": 0}
    limit = normal.line.bands[0]["limit_packets"]
    shown = {"limit": limit, "delay": jitter, "ecn": False, "gap": 0}
    for handle, same in ((graft[graft.index("handle") + 1], True), ("1:", False), ("8001:", False)):
        root = {"kind": "netem", "handle": handle, "dev": "right", "root": True, "options": shown}
        found = tc.parse(FORWARD, [], [root], [], b"")
        assert ("netem distribution" in tc.mismatches(FORWARD, normal, found)) != same


def test_filters_of_others_are_refused() -> None:
    matchall = {"protocol": "all", "pref": 5, "kind": "matchall", "chain": 0}
    drop = {**matchall, "options": {"handle": 1, "actions": [{"order": 1, "kind": "gact"}]}}
    elsewhere = {**matchall, "options": {"actions": [{"mirred_action": "redirect", "to_dev": "ifb_rev"}]}}
    for entry in (drop, elsewhere):
        with pytest.raises(ValueError, match=r"left has ingress filters .* matchall \(pref 5\)"):
            tc.parse_redirect([matchall, entry], "left", "ifb_fwd")


def test_a_redirect_to_a_deleted_ifb_is_made_anew() -> None:
    dump = DUMPS[0]
    found = parse(dump, "forward")
    found = replace(
        found,
        redirect="*",
        ifb="absent",
        ifb_handle=None,
        direction=replace(found.direction, bottleneck=None),
    )
    words = [" ".join(command) for command in tc.plan(FORWARD, ask(dump["asked"]), found)]
    assert words[:2] == ["tc filter del dev left ingress", "ip link add name ifb_fwd type ifb"]
    assert words[-1].endswith("mirred egress redirect dev ifb_fwd")


SHAPED = {"rate_bps": 10**6, "queue": {"kind": "pfifo", "limit_packets": 9}}
DELAYED = {"delay_us": 10_000}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rate_bps": 10**6}, "go together"),
        ({"queue": PFIFO}, "go together"),
        (SHAPED | {"delay_us": -1}, "delay_us -1 is negative"),
        (SHAPED | {"burst_us": -1}, "burst_us -1 is negative"),
        (SHAPED | {"loss": 1.01}, "loss 1.01 is no probability"),
        (SHAPED | {"rate_bps": 7}, "less than one byte"),
        (SHAPED | {"queue": {"kind": "pfifo", "limit_packets": 0}}, "no room"),
        (SHAPED | {"queue": {"kind": "pfifo"}}, "a pfifo needs limit_packets"),
        (SHAPED | {"queue": {"kind": "codel", "flows": 8}}, "a codel has no flows; it has limit_packets, "),
        (SHAPED | {"queue": {"kind": "sfq"}}, "sfq is not one of pfifo"),
        (SHAPED | {"queue": {"kind": "red", "limit_bytes": 9000, "max_bytes": 9001}}, "red needs min_bytes"),
        (DELAYED | {"loss": 0.1, "loss_gemodel": {"p": 0.1, "r": 0.2}}, "loss and loss_gemodel are models"),
        (DELAYED | {"loss_gemodel": {"r": 0.2}}, "loss_gemodel has no effect without loss_gemodel.p"),
        ({"jitter_us": 1}, "jitter_us has no effect without delay_us"),
        ({"reorder": 0.1}, "reorder has no effect without delay_us"),
        (DELAYED | {"delay_correlation": 0.1}, "delay_correlation has no effect without jitter_us"),
        (DELAYED | {"reorder_gap": 3}, "reorder_gap has no effect without reorder"),
        (DELAYED | {"jitter_us": 1, "distribution": "cauchy"}, "cauchy is not one of normal, "),
        (DELAYED | {"reorder": 0.1, "keep_order": True}, "contradict"),
        (DELAYED | {"flows": [{"dst": "198.18.2.1", "delay_us": 1}], "duplicate": 0.1}, "exclude"),
        (DELAYED | {"flows": [{"delay_us": 1}]}, "a flow needs one of protocol, src, "),
        (DELAYED | {"flows": [{"dst": "198.18.2.1", "delay_us": 0}]}, "must be positive"),
        (DELAYED | {"flows": [{"dst_port": 80, "delay_us": 1}]}, "need its protocol"),
        (DELAYED | {"flows": [{"dst": "198.18.2.300", "delay_us": 1}]}, "198.18.2.300"),
        (DELAYED | {"flows": [{"src": "::1", "dst": "198.18.2.3", "delay_us": 1}]}, "different families"),
        (DELAYED | {"flows": [{"dst": "::1", "delay_us": i} for i in range(1, 17)]}, "16 different delays"),
    ],
)
def test_what_no_path_can_be_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ask(asked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"queue": {"kind": "bfifo", "limit_bytes": 9000}},
            "the kind of the queue cannot change from fq_codel",
        ),
        ({"queue": {"kind": "fq_codel", "flows": 8}}, "the queue's flows cannot change from 1024 to 8"),
        ({"distribution": "normal"}, "the distribution cannot change from None to normal"),
        ({"flows": [{"dst": "198.18.2.1", "delay_us": 1}]}, "the flows cannot change"),
        ({"loss": 2.0}, "no probability"),
    ],
)
def test_a_change_that_cannot_be_made_in_place_is_refused(change: dict[str, Any], words: str) -> None:
    asked = {"rate_bps": 10**6, "delay_us": 10, "queue": {"kind": "fq_codel"}}
    with pytest.raises(ValueError, match=re.escape(words)):
        ask_changes(asked, [{"at_ns": 0, "delay_us": 20}, {"at_ns": 1} | change])


def test_a_change_keeps_what_it_does_not_name() -> None:
    asked = {"rate_bps": 10**6, "delay_us": 10_000, "loss_gemodel": {"p": 0.1, "r": 0.2}, "queue": PFIFO}
    first, second, third = ask_changes(asked, [{"at_ns": 1, "rate_bps": 10**7}, {"at_ns": 2, "loss": 0.5}])
    assert (second.bottleneck.rate_bps, second.line) == (10**7, first.line)
    assert third.bottleneck == second.bottleneck
    assert (third.line.bands[0]["loss"], third.line.bands[0]["loss_gemodel.p"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("asked", "offloads", "words"),
    [
        (SHAPED, {"left": ["gro"], "right": []}, ["gro of left are on: limit_packets count super-packets"]),
        (SHAPED, {"left": [], "right": []}, []),
        ({"delay_us": 1}, {"left": ["gro"], "right": ["tso"]}, []),
        (
            {"delay_us": 1, "reorder": 0.1},
            {"left": ["gro"], "right": ["tso"]},
            ["gro of left and tso of right"],
        ),
        (DELAYED | {"jitter_us": 100}, {}, ["jitter_us reorders packets"]),
        (DELAYED | {"jitter_us": 100, "keep_order": True}, {}, []),
        (DELAYED | {"jitter_us": 10_001, "keep_order": True}, {}, ["delays are cut at 0"]),
        (SHAPED | {"queue": {"kind": "bfifo", "limit_bytes": 1513}}, {}, ["holds no packet of 1514 bytes"]),
        (SHAPED | {"queue": {"kind": "pie", "limit_packets": 1}}, {}, ["is full after 12112 us, before its"]),
        (SHAPED | {"queue": {"kind": "codel", "limit_packets": 1}}, {}, []),
    ],
)
def test_what_is_likely_not_meant_is_warned_about(
    asked: dict[str, Any], offloads: dict[str, Any], words: list[str]
) -> None:
    said = tc.warnings(ask(asked), offloads)
    assert len(said) == len(words)
    for one, part in zip(said, words, strict=True):
        assert part in one


@given(st.integers(1, 40), st.integers(10_000, 10**7))
def test_red_gets_thresholds_that_tc_takes(packets: int, rate_bps: int) -> None:
    limit = packets * 1514
    bottleneck = ask({"rate_bps": rate_bps, "queue": {"kind": "red", "limit_bytes": limit}}).bottleneck
    assert bottleneck
    queue = bottleneck.queue
    assert 0 < queue["min_bytes"] < queue["max_bytes"] <= limit
    # tc refuses a burst shorter than min / avpkt.
    assert queue["burst_packets"] + 1 - queue["min_bytes"] / queue["average_packet_bytes"] >= 1


# A kernel in miniature: executes what `plan` and `render_change` give, and dumps what tc shows, rounded as tc
# does. Its grammar is that of tc's manual pages, not that of the table under test.

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

    def add_link(self, name: str, kind: str) -> None:
        self.links[name] = {"ifname": name, "flags": [], "linkinfo": {"info_kind": kind}}

    def execute(self, command: list[str]) -> None:  # noqa: PLR0912
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
        spec = tc.RATESPEC.pack(0, 1, 0, 0, 0, min(rate, 2**32 - 1))
        parms = tc.HTB_OPT.pack(spec, spec, ticks, ticks, 1514, 0, 0)
        options = attribute(tc.TCA_HTB_PARMS, parms)
        if rate >= 2**32:
            options += attribute(tc.TCA_HTB_RATE64, struct.pack("=Q", rate))
            options += attribute(tc.TCA_HTB_CEIL64, struct.pack("=Q", rate))
        body = tc.TCMSG.pack(0, 7, 0x10001, 0xFFFFFFFF, 0)
        body += attribute(tc.TCA_KIND, b"htb\0") + attribute(tc.TCA_OPTIONS, options)
        done = tc.NLMSGHDR.pack(tc.NLMSGHDR.size + 4, tc.NLMSG_DONE, 2, 1, 0) + bytes(4)
        return tc.NLMSGHDR.pack(tc.NLMSGHDR.size + len(body), tc.RTM_NEWTCLASS, 2, 1, 0) + body + done

    def found(self, devices: Any) -> Any:
        target = self.redirects.get(devices.ingress)
        action = {"mirred_action": "redirect", "to_dev": target if target in self.links else "*"}
        entry = {"kind": "matchall", "pref": 1, "options": {"actions": [action]}}
        filters = [entry] if target else []
        classes = self.classes.get(devices.ifb, b"")
        own = self.filters.get(devices.egress, [])
        return tc.parse(devices, list(self.links.values()), self.qdiscs, filters, classes, own)

    def converge(self, devices: Any, asked: Any) -> None:
        for command in tc.plan(devices, asked, self.found(devices)):
            self.execute(command)


def attribute(kind: int, data: bytes) -> bytes:
    return tc.RTATTR.pack(tc.RTATTR.size + len(data), kind) + data + bytes(-len(data) % 4)


shares = st.floats(0, 1)
limits = st.integers(1, 2**31)
times = st.integers(0, 10_000_000)


def optional(**values: Any) -> Any:
    return st.fixed_dictionaries({}, optional=values)


def queue(kind: str, must: dict[str, Any], may: dict[str, Any]) -> Any:
    return st.fixed_dictionaries({"kind": st.just(kind)} | must, optional=may)


aqm = {"limit_packets": limits, "target_us": times, "ecn": st.booleans()}
queues = st.one_of(
    queue("pfifo", {"limit_packets": limits}, {}),
    queue("bfifo", {"limit_bytes": limits}, {}),
    queue("codel", {}, aqm | {"interval_us": times}),
    queue(
        "fq_codel", {}, aqm | {"interval_us": times, "quantum_bytes": limits, "memory_limit_bytes": limits}
    ),
    queue("pie", {}, aqm | {"tupdate_us": times}),
    queue("cake", {}, {"limit_bytes": limits, "flowmode": st.sampled_from(["flows", "flowblind"])}),
    queue("red", {"limit_bytes": st.integers(100, 2**31)}, {"probability": shares, "ecn": st.booleans()}),
)
losses = st.one_of(
    optional(loss=shares),
    st.fixed_dictionaries(
        {"loss_gemodel": st.fixed_dictionaries({"p": st.floats(1e-3, 1)}, optional={"r": shares})}
    ),
    st.fixed_dictionaries(
        {"loss_state": st.fixed_dictionaries({"p13": st.floats(1e-3, 1)}, optional={"p14": shares})}
    ),
)
delays = st.one_of(
    st.fixed_dictionaries({"delay_us": times}),
    st.fixed_dictionaries(
        {"delay_us": st.integers(1, 10**7), "jitter_us": st.integers(1, 10**6)},
        optional={
            "delay_correlation": shares,
            "distribution": st.sampled_from(["normal", "pareto", "paretonormal"]),
            "keep_order": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {"delay_us": st.integers(1, 10**7), "reorder": st.floats(1e-3, 1)},
        optional={"reorder_correlation": shares, "reorder_gap": st.integers(1, 9)},
    ),
)
others = optional(
    corrupt=shares,
    slot=st.fixed_dictionaries({"min_us": st.integers(1, 10**6)}, optional={"packets": st.integers(0, 99)}),
)
flow: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"dst": st.just("2001:db8::1"), "delay_us": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {
            "dst": st.sampled_from(["198.18.2.21", "198.18.2.22/32"]),
            "delay_us": st.integers(1, 9),
        },
        optional={"protocol": st.sampled_from(["tcp", "udp"]), "src": st.just("198.18.0.0/15")},
    ),
)
flows = st.lists(flow, max_size=4)
bottlenecks = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"rate_bps": st.integers(64_000, 400 * 10**9), "queue": queues},
        optional={"burst_us": st.integers(0, 100_000)},
    ),
)


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


parameters = st.builds(
    merged,
    bottlenecks,
    delays,
    losses,
    others,
    st.one_of(optional(duplicate=shares), st.builds(lambda flows: {"flows": flows}, flows)),
)
paths = st.builds(ask, parameters)
states = st.one_of(st.just(tc.ABSENT), paths)


@given(st.lists(st.tuples(st.sampled_from(["forward", "reverse"]), states), min_size=1, max_size=5))
def test_what_is_rendered_is_parsed_back_from_any_state(steps: list[tuple[str, Any]]) -> None:
    kernel, asked_last = Kernel(), {"forward": tc.ABSENT, "reverse": tc.ABSENT}
    for direction, asked in steps:
        kernel.converge(DEVICES[direction], asked)
        asked_last[direction] = asked
        for each, devices in DEVICES.items():
            found = kernel.found(devices)
            assert tc.mismatches(devices, asked_last[each], found) == {}
            assert tc.plan(devices, asked_last[each], found) == []


@given(parameters, st.lists(st.builds(merged, delays, losses, others), max_size=4))
def test_changes_in_place_lead_to_their_states(asked: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    asked = {name: value for name, value in asked.items() if name != "distribution"}
    # What the change before asked for and does not go with this one is taken back.
    nothing = {"jitter_us": 0, "delay_correlation": 0.0, "reorder": 0.0, "reorder_correlation": 0.0}
    nothing |= {"reorder_gap": 0, "keep_order": False, "loss_correlation": 0.0}
    changes = [{k: v for k, v in (nothing | change).items() if k != "distribution"} for change in changes]
    first, *later = ask_changes(asked, changes)
    kernel = Kernel()
    roots = tc.handles(first, kernel.found(FORWARD))
    kernel.converge(FORWARD, first)
    for state in later:
        for command in tc.render_change(FORWARD, state, roots):
            kernel.execute(command)
        assert tc.mismatches(FORWARD, state, kernel.found(FORWARD)) == {}
    for command in tc.render_change(FORWARD, first, roots):
        kernel.execute(command)
    assert tc.mismatches(FORWARD, first, kernel.found(FORWARD)) == {}


@given(states, states)
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(one: Any, other: Any) -> None:
    kernel = Kernel()
    kernel.converge(FORWARD, one)
    found = kernel.found(FORWARD)
    assert bool(tc.plan(FORWARD, other, found)) == bool(tc.mismatches(FORWARD, other, found))


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 10_000_000))
def test_the_delay_line_holds_all_that_the_bottleneck_lets_through(rate_bps: int, delay_us: int) -> None:
    smallest = math.floor(rate_bps / 8 * delay_us / 1e6 / 64)
    assert tc.netem_limit(rate_bps, delay_us) > min(smallest, 2**31 - 2)


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 100_000))
def test_burst_is_a_full_packet_at_least_and_lasts_as_long_as_asked(rate_bps: int, burst_us: int) -> None:
    least = max(1514, (rate_bps // 8) * burst_us / 1e6)
    assert least - 1 <= tc.burst_bytes(rate_bps, tc.burst_ticks(rate_bps, burst_us)) <= least * 1.001 + 4000


def test_only_what_is_not_in_use_yet_is_probed() -> None:
    asked = ask(SHAPED | DELAYED)
    assert set(tc.probes(asked, BARE)) == {"bottleneck", "redirection", "delay line"}
    kernel = Kernel()
    kernel.converge(FORWARD, asked)
    assert tc.probes(asked, kernel.found(FORWARD)) == {}
    longer = ask(SHAPED | {"delay_us": 20_000})
    assert set(tc.probes(longer, kernel.found(FORWARD))) == {"delay line"}


def test_an_attribute_that_the_kernel_ignores_is_found_by_the_probe() -> None:
    asked = ask(DELAYED | {"seed": 42})
    kernel = Kernel()
    kernel.add_link("lo", "loopback")
    unseeded = ask(DELAYED).line
    assert unseeded
    for command in tc.render_line(unseeded, "lo", "1:"):
        kernel.execute(command)
    assert tc.probe_differences(asked, kernel.qdiscs) == {"netem seed": (42, None)}
    kernel.qdiscs[0]["options"]["seed"] = 42
    assert tc.probe_differences(asked, kernel.qdiscs) == {}


def options_of_the_module() -> Iterator[tuple[str, Any]]:
    source = (Path(__file__).parents[2] / "plugins" / "modules" / "tc_path.py").read_text()
    documentation = source.partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
    for name, option in YAML(typ="safe").load(documentation)["options"].items():
        yield name, option
        for inner, suboption in option.get("suboptions", {}).items():
            yield f"{name}.{inner}", suboption


def test_every_attribute_is_documented_as_an_option_of_the_module() -> None:
    documented = {name: option["type"] for name, option in options_of_the_module()}
    for kind in tc.KINDS:
        prefix = "" if kind == "netem" else "queue."
        for name, spec in tc.arguments(kind).items():
            assert documented[prefix + name] == spec["type"]
            for inner, inside in spec.get("options", {}).items():
                assert documented[f"{name}.{inner}"] == inside["type"]


@given(st.binary(max_size=200))
def test_no_bytes_hang_the_netlink_parser(junk: bytes) -> None:
    with contextlib.suppress(struct.error, KeyError):
        assert len(list(tc.parse_htb_classes(junk))) <= len(junk)
