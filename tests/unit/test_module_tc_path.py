"""tc_path: the real kernel's dumps are parsed, compared, and led to what is asked."""

import json
from dataclasses import replace
from typing import Any

import pytest
from conftest_modules import FIXTURES, tc
from tc_kernel import BARE, DEVICES, FORWARD, PFIFO, ask, ask_changes

from plugins.module_utils.dumbbell_tc.direction import DelayLine
from plugins.module_utils.dumbbell_tc.parsing import parse_redirect

# From Linux 6.1.176 and iproute2 6.1.0, HZ=100: what was asked, the commands that led there, the dumps after;
# for changes in place the same after each of them.
DUMPS = json.loads((FIXTURES / "tc" / "linux-6.1-iproute2-6.1.json").read_text())


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
    asked = replace(asked, line=DelayLine((asked.line.bands[0] | {"limit_packets": 2562},)))
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
            parse_redirect([matchall, entry], "left", "ifb_fwd")


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
