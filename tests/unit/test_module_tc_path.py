"""tc_path: the real kernel's dumps are parsed, compared, and led to what is asked."""

import contextlib
import json
import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from conftest_modules import FIXTURES, tc
from hypothesis import given
from hypothesis import strategies as st

# From Linux 6.1.176 and iproute2 6.1.0: what was asked, the commands that led there, the dumps after.
DUMPS = json.loads((FIXTURES / "tc" / "linux-6.1-iproute2-6.1.json").read_text())
DEVICES = {
    "forward": tc.Devices("left", "right", "ifb_fwd"),
    "reverse": tc.Devices("right", "left", "ifb_rev"),
}
FORWARD = DEVICES["forward"]


def parse(dump: dict[str, Any]) -> Any:
    classes = bytes.fromhex(dump["classes"])
    return tc.parse(DEVICES[dump["direction"]], dump["links"], dump["qdiscs"], dump["filters"], classes)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: f"{dump['direction']}-{dump['asked']['rate_bps']}")
class TestRealDumps:
    def test_is_recognised_as_what_was_asked(self, dump: dict[str, Any]) -> None:
        devices, found, asked = DEVICES[dump["direction"]], parse(dump), tc.ask(**dump["asked"])
        assert tc.mismatches(devices, asked, found) == {}
        assert tc.plan(devices, asked, found) == []

    def test_measured_has_the_shape_asked(self, dump: dict[str, Any]) -> None:
        measured = tc.measured(parse(dump).direction)
        assert measured is not None
        assert measured == dump["after"]
        assert measured.keys() == dump["asked"].keys()
        assert measured["queue"] == dump["asked"]["queue"]
        assert measured["delay_us"] == pytest.approx(dump["asked"]["delay_us"], abs=1)
        assert measured["loss"] == pytest.approx(dump["asked"]["loss"], rel=2e-5)
        rate_bps = dump["asked"]["rate_bps"]
        assert measured["rate_bps"] == (rate_bps and pytest.approx(rate_bps, rel=1e-5))

    @pytest.mark.parametrize(
        ("change", "stage"),
        [
            ({"delay_us": 20_001}, "netem"),
            ({"loss": 0.25}, "netem"),
            ({"rate_bps": 99_998_000, "queue": {"kind": "pfifo", "limit_packets": 166}}, "bottleneck"),
            ({"rate_bps": 100_000_000, "queue": {"kind": "pfifo", "limit_packets": 165}}, "bottleneck"),
        ],
    )
    def test_a_change_is_seen_and_regrafts_its_stage(
        self, dump: dict[str, Any], change: dict[str, Any], stage: str
    ) -> None:
        devices, found, asked = DEVICES[dump["direction"]], parse(dump), tc.ask(**{**dump["asked"], **change})
        assert stage in tc.mismatches(devices, asked, found)
        device, kind = (devices.egress, "netem") if stage == "netem" else (devices.ifb, "htb")
        used = [qdisc["handle"] for qdisc in dump["qdiscs"] if qdisc["dev"] == device]
        grafts = [
            command for command in tc.plan(devices, asked, found) if kind in command and "root" in command
        ]
        assert [command[4] for command in grafts] == [device]
        assert grafts[0][grafts[0].index("handle") + 1] not in used

    def test_the_other_direction_is_not_touched(self, dump: dict[str, Any]) -> None:
        ingress, egress, ifb = devices = DEVICES[dump["direction"]]
        absent = tc.plan(devices, tc.ABSENT, parse(dump))
        changed = tc.plan(
            devices, tc.ask(5_000_000, 1, 0.1, {"kind": "pfifo", "limit_packets": 9}), parse(dump)
        )
        assert absent
        assert changed
        for command in absent + changed:
            words = " ".join(command)
            assert (
                ifb in words
                or f"{ingress} ingress" in words
                or f"{ingress} clsact" in words
                or f"{egress} root" in words
            )

    def test_absent_removes_all_of_it(self, dump: dict[str, Any]) -> None:
        devices = DEVICES[dump["direction"]]
        words = [" ".join(command) for command in tc.plan(devices, tc.ABSENT, parse(dump))]
        shaped = [f"tc filter del dev {devices.ingress} ingress", f"ip link del dev {devices.ifb}"]
        assert words == (shaped if dump["asked"]["rate_bps"] else []) + [
            f"tc qdisc del dev {devices.egress} root"
        ]


def test_the_commands_recorded_on_the_kernel_are_those_rendered_now() -> None:
    first = DUMPS[0]
    asked = tc.ask(**first["asked"])
    bare = tc.parse(FORWARD, [], [], [], b"")
    assert [" ".join(command) for command in tc.plan(FORWARD, asked, bare)] == first["commands"]


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        (
            {"limit": 5000, "delay": {"delay": 0.01, "jitter": 0, "correlation": 0}, "ecn": False, "gap": 0},
            True,
        ),
        (
            {
                "limit": 5000,
                "delay": {"delay": 0.01, "jitter": 0.001, "correlation": 0},
                "ecn": False,
                "gap": 0,
            },
            False,
        ),
        ({"limit": 5000, "rate": {"rate": 125000}, "ecn": False, "gap": 0}, False),
        ({"limit": 5000, "reorder": {"reorder": 0.1, "correlation": 0}, "ecn": False, "gap": 1}, False),
        ({"limit": 5000, "loss-random": {"loss": 0.1, "correlation": 0.5}, "ecn": False, "gap": 0}, False),
        ({"limit": 5000, "seed": 1234, "ecn": False, "gap": 0}, True),
    ],
)
def test_a_netem_that_does_more_is_not_taken_for_ours(options: dict[str, Any], plain: bool) -> None:
    assert (tc.parse_netem({"kind": "netem", "options": options}) is not None) == plain


def test_filters_of_others_are_refused() -> None:
    matchall = {"protocol": "all", "pref": 5, "kind": "matchall", "chain": 0}
    drop = {**matchall, "options": {"handle": 1, "actions": [{"order": 1, "kind": "gact"}]}}
    elsewhere = {**matchall, "options": {"actions": [{"mirred_action": "redirect", "to_dev": "ifb_rev"}]}}
    for entry in (drop, elsewhere):
        with pytest.raises(ValueError, match=r"left has ingress filters .* matchall \(pref 5\)"):
            tc.parse_redirect([matchall, entry], "left", "ifb_fwd")


def test_a_redirect_to_a_deleted_ifb_is_made_anew() -> None:
    dump = DUMPS[0]
    found = replace(
        parse(dump), redirect="*", ifb="absent", direction=replace(parse(dump).direction, bottleneck=None)
    )
    words = [" ".join(command) for command in tc.plan(FORWARD, tc.ask(**dump["asked"]), found)]
    assert words[:2] == ["tc filter del dev left ingress", "ip link add name ifb_fwd type ifb"]
    assert words[-1].endswith("mirred egress redirect dev ifb_fwd")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10**6, 0, 0.0, None), "go together"),
        ((None, 0, 0.0, {"kind": "pfifo", "limit_packets": 1}), "go together"),
        ((10**6, -1, 0.0, {"kind": "pfifo", "limit_packets": 1}), "negative"),
        ((10**6, 0, 1.01, {"kind": "pfifo", "limit_packets": 1}), "no probability"),
        ((10**6, 0, 0.0, {"kind": "pfifo", "limit_packets": 0}), "no room"),
        ((7, 0, 0.0, {"kind": "pfifo", "limit_packets": 1}), "less than one byte"),
    ],
)
def test_what_no_path_can_be_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tc.ask(*arguments)


# A kernel in miniature: executes what `plan` renders and dumps what tc prints, with its roundings.


class Kernel:
    """Devices left and right without qdiscs; knows the commands that are rendered, and no others."""

    def __init__(self) -> None:
        self.links: dict[str, dict[str, Any]] = {}
        for device in ("left", "right"):
            self.add_link(device, "veth")
        self.qdiscs: list[dict[str, Any]] = []
        self.classes: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}

    def add_link(self, name: str, kind: str) -> None:
        self.links[name] = {"ifname": name, "flags": [], "linkinfo": {"info_kind": kind}}

    def execute(self, command: list[str]) -> None:
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
            case ["tc", "qdisc", "replace", "dev", device, "root", "handle", handle, kind, *options]:
                assert handle not in [qdisc["handle"] for qdisc in self.qdiscs if qdisc["dev"] == device]
                self.drop(device)
                dumped = self.netem(*options) if kind == "netem" else {"default": hex(int(options[1], 16))}
                self.qdiscs.append(
                    {"kind": kind, "handle": handle, "dev": device, "root": True, "options": dumped}
                )
            case [
                "tc",
                "qdisc",
                "add",
                "dev",
                device,
                "parent",
                parent,
                "handle",
                handle,
                kind,
                "limit",
                limit,
            ]:
                options_of_leaf = {"limit": int(limit)}
                self.qdiscs.append(
                    {
                        "kind": kind,
                        "handle": handle,
                        "dev": device,
                        "parent": parent,
                        "options": options_of_leaf,
                    }
                )
            case ["tc", "class", "add", "dev", device, "parent", _, "classid", _, "htb", *shape]:
                self.classes[device] = self.htb(dict(zip(shape[::2], shape[1::2], strict=True)))
            case ["tc", "qdisc", "add", "dev", device, "clsact"]:
                self.qdiscs.append({"kind": "clsact", "handle": "ffff:", "dev": device, "options": {}})
            case ["tc", "filter", "del", "dev", device, "ingress"]:
                del self.redirects[device]
            case [
                "tc",
                "filter",
                "add",
                "dev",
                device,
                "ingress",
                "pref",
                "1",
                "matchall",
                *_,
                "dev",
                target,
            ]:
                assert device not in self.redirects
                self.redirects[device] = target
            case _:
                raise AssertionError(command)

    def drop(self, device: str) -> None:
        self.qdiscs = [q for q in self.qdiscs if q["dev"] != device or q["kind"] == "clsact"]
        self.classes.pop(device, None)

    @staticmethod
    def netem(*options: str) -> dict[str, Any]:
        given = dict(zip(options[::2], options[1::2], strict=True))
        ticks = int(int(given["delay"].removesuffix("us")) * 15.625)
        loss = round(float(given["loss"].removesuffix("%")) / 100 * (2**32 - 1)) / (2**32 - 1)
        dumped: dict[str, Any] = {"limit": int(given["limit"]), "ecn": False, "gap": 0}
        if ticks:
            dumped["delay"] = {
                "delay": float(f"{int(ticks / 15.625) / 1e6:g}"),
                "jitter": 0,
                "correlation": 0,
            }
        if loss:
            dumped["loss-random"] = {"loss": float(f"{loss:g}"), "correlation": 0}
        return dumped

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
        return tc.parse(devices, list(self.links.values()), self.qdiscs, filters, classes)

    def converge(self, devices: Any, asked: Any) -> None:
        for command in tc.plan(devices, asked, self.found(devices)):
            self.execute(command)


def attribute(kind: int, data: bytes) -> bytes:
    return tc.RTATTR.pack(tc.RTATTR.size + len(data), kind) + data + bytes(-len(data) % 4)


queues = st.one_of(
    st.builds(lambda n: {"kind": "pfifo", "limit_packets": n}, st.integers(1, 2**31)),
    st.builds(lambda n: {"kind": "bfifo", "limit_bytes": n}, st.integers(1, 2**31)),
)
bottlenecks = st.one_of(st.just((None, None)), st.tuples(st.integers(64_000, 400 * 10**9), queues))
paths = st.builds(
    lambda bottleneck, delay_us, loss, us: tc.ask(bottleneck[0], delay_us, loss, bottleneck[1], us),
    bottlenecks,
    st.integers(0, 10_000_000),
    st.floats(0, 1),
    st.integers(0, 100_000),
)
states = st.one_of(st.just(tc.ABSENT), paths)


@given(st.lists(st.tuples(st.sampled_from(["forward", "reverse"]), states), min_size=1, max_size=6))
def test_what_is_rendered_is_parsed_back_from_any_state(steps: list[tuple[str, Any]]) -> None:
    kernel, asked_last = Kernel(), {"forward": tc.ABSENT, "reverse": tc.ABSENT}
    for direction, asked in steps:
        kernel.converge(DEVICES[direction], asked)
        asked_last[direction] = asked
        for each, devices in DEVICES.items():
            found = kernel.found(devices)
            assert tc.mismatches(devices, asked_last[each], found) == {}
            assert tc.plan(devices, asked_last[each], found) == []


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
    pfifo = tc.ask(10**6, 10, 0.0, {"kind": "pfifo", "limit_packets": 9})
    bfifo = tc.ask(10**6, 10, 0.0, {"kind": "bfifo", "limit_bytes": 9000})
    assert set(tc.probes(pfifo, tc.ABSENT)) == {"netem", "htb", "ifb", "matchall with mirred", "pfifo"}
    assert set(tc.probes(bfifo, pfifo)) == {"bfifo"}
    assert tc.probes(pfifo, pfifo) == {}


@given(st.binary(max_size=200))
def test_no_bytes_hang_the_netlink_parser(junk: bytes) -> None:
    with contextlib.suppress(struct.error, KeyError):
        assert len(list(tc.parse_htb_classes(junk))) <= len(junk)
