"""tc_path: the real kernel's dumps are parsed, compared, and led to what is asked."""

import contextlib
import json
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
from tc_kernel import DEVICES, FORWARD, Kernel, ask, ask_changes, netem

# From Linux 6.1.176 and iproute2 6.1.0, HZ=100: what was asked, the commands that led there, the dumps after;
# for changes in place the same after each of them.
DUMPS = json.loads((FIXTURES / "tc" / "linux-6.1-iproute2-6.1.json").read_text())
PFIFO = {"kind": "pfifo", "limit_packets": 166}
BARE = tc.parse(FORWARD, [], [], [], b"")


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
