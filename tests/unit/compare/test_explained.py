"""Which differences between the settings of points a plan explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.plans import planned
from synthetic import inventory

from dumbbell.compare.observed import (
    DECIDED_BY,
    Difference,
    Seen,
    by_hosts,
    differences,
    of_the_testbed,
    unexplained,
)
from dumbbell.plan import Point, plan
from dumbbell.plan.document import State

POINT = planned()
SETTINGS = {
    "kernel release": "6.12.0",
    "kernel command line": "root=/dev/vda1",
    "net.core.default_qdisc": "pfifo_fast",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_sack": "1",
    "nftables": "none",
    "qdisc vec1 root": "pfifo_fast 0: bands 3",
    "vec1 feature tx-checksumming": "on",
    "vec1 mtu": "1500",
}
SCENARIO = """\
name: leak
title: Two profiles of one cubic flow
duration: 10s
path: {forward: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 10packets}}}
flows:
  flow: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}
profiles:
  a: {hosts: {testbed: {sysctls: {net.ipv4.tcp_sack: 0}}}}
  b: {}
  narrow: {path: {forward: {rate: 1mbit, delay: 5ms, queue: {kind: pfifo, limit: 10packets}}}}
  slow: {path: {forward: {rate: 5mbit, delay: 5ms, queue: {kind: pfifo, limit: 10packets}}}}
  bbr: {hosts: {senders: {modules: {tcp_bbr: {}}}}, flows: {flow: {congestion_control: bbr}}}
  plain: {hosts: {senders: {offloads: {tso: false, sg: false}}}}
  wide: {hosts: {testbed: {mtu: 9000}, senders: {qdisc: fq}}}
  old: {hosts: {testbed: {kernel: "6.1.0"}}}
  new: {hosts: {testbed: {kernel: "6.12.0"}}}
"""


@pytest.fixture
def points(tmp_path: Path) -> Callable[[str], Point]:
    """The point of a profile of the scenario."""
    (tmp_path / "leak.yml").write_text(SCENARIO)

    def of(profile: str) -> Point:
        return plan(tmp_path / "leak.yml", inventory(1, 1), profile).points[0]

    return of


def seen(
    label: str,
    point: Point,
    host: str = "sender1",
    trim_us: int = 250,
    *,
    settings: Mapping[str, str | None] | None = None,
) -> Seen:
    """A point of which one host was seen, with other settings than all others."""
    own = {name: value for name, value in {**SETTINGS, **(settings or {})}.items() if value is not None}
    return Seen(label, point, {host: own}, {host: trim_us})


def found(*of: Seen) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, one.because) for one in differences(of)]


def test_a_setting_that_a_profile_asks_for_is_explained(points: Callable[[str], Point]) -> None:
    without = seen("a", points("a"), settings={"net.ipv4.tcp_sack": "0"})
    assert found(without, seen("b", points("b")), seen("b", points("b"))) == [
        ("net.ipv4.tcp_sack", ("sysctls",))
    ]


def test_a_sysctl_explains_what_the_kernel_sets_with_it(points: Callable[[str], Point]) -> None:
    point = points("b").model_copy(deep=True)
    point.hosts["sender1"].state.sysctls.update(
        {"net.ipv4.conf.all.forwarding": "1", "net.ipv4.tcp_congestion_control": "reno"}
    )
    followed = {
        "net.ipv4.conf.vec1.forwarding": "1",
        "net.ipv4.ip_forward": "1",
        "net.ipv4.tcp_allowed_congestion_control": "reno",
    }
    told = found(seen("1", points("b")), seen("2", point, settings=followed))
    assert told == [(name, ("sysctls",)) for name in followed]
    other = {"net.ipv4.conf.vec1.accept_local": "1"}
    assert found(seen("1", points("b")), seen("2", point, settings=other)) == [(*other, ())]


def test_what_the_point_before_left_is_named(points: Callable[[str], Point]) -> None:
    """Profile a sets a sysctl, b does not ask for it; b has it off after a, and on before."""
    left = seen("b 2", points("b"), settings={"net.ipv4.tcp_sack": "0"})
    a = seen("a", points("a"), settings={"net.ipv4.tcp_sack": "0"})
    (one,) = differences([seen("b 1", points("b")), a, left])
    assert one.because == ()
    assert str(one) == "sender1 net.ipv4.tcp_sack: 1 in b 1; 0 in b 2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("net.ipv4.conf.all.rp_filter", "1"),
        ("net.ipv4.tcp_congestion_control", "bbr"),
        ("nftables", "5f2c"),
        ("service irqbalance", "running"),
        ("vec1 feature tx-checksumming", "off"),
        ("qdisc vec1 root", "fq 8001: limit 10000p"),
        ("vec1 firmware", "4.2"),
        ("vec1 mtu", "9000"),
        ("kernel release", "6.18.0"),
        ("kernel command line", "mitigations=off"),
        ("module tcp_cubic beta", "900"),
        ("route 198.18.2.0/24", "via 198.18.1.254 dev vec1"),
        ("qdisc vec1 root", None),
    ],
)
def test_what_nobody_asked_for_is_not_explained(
    points: Callable[[str], Point], name: str, value: str | None
) -> None:
    """Neither between points of the same plan, nor between those that differ in another thing."""
    for profile in ("a", "b"):
        other = seen("other", points("b"), settings={name: value})
        one = seen("one", points(profile))
        told = dict(found(one, other))
        assert told[name] == ()
        assert differences([one, other])[0].name == name


def test_a_router_explains_its_queues_by_its_path(points: Callable[[str], Point]) -> None:
    queues = {"qdisc vec1 root": "htb 1:", "class vec1 1:1": "rate 1Mbit", "ifb0 mtu": "1500"}
    one = seen("one", points("narrow"), "router", settings=queues)
    other = seen("other", points("slow"), "router")
    assert {because for _, because in found(one, other)} == {("path",)}
    same = seen("other", points("narrow"), "router")
    assert {because for _, because in found(one, same)} == {()}
    # Only a router has a path.
    ends = [seen("one", points("narrow"), settings=queues), seen("other", points("slow"))]
    assert {because for _, because in found(*ends)} == {()}


def test_the_delay_that_was_left_out_of_the_path_explains_its_queue(points: Callable[[str], Point]) -> None:
    one = seen("one", points("b"), "router", settings={"qdisc vec1 root": "netem delay 4750us"})
    queue = {"qdisc vec1 root": "netem delay 4700us"}
    assert found(one, seen("two", points("b"), "router", 300, settings=queue)) == [
        ("qdisc vec1 root", ("path",))
    ]
    assert found(one, seen("two", points("b"), "router", settings=queue)) == [("qdisc vec1 root", ())]
    # It differs from run to run, and says nothing about the testbed.
    assert "qdisc vec1 root" not in of_the_testbed(one, "router")
    assert "qdisc vec1 root" in of_the_testbed(seen("one", points("b")), "sender1")


def test_modules_that_another_point_asked_for_stay_loaded(points: Callable[[str], Point]) -> None:
    loaded = {
        "module tcp_bbr x": "1",
        "module sch_rapid gain": "2",
        "module ifb numifbs": "2",
        "ifb0 mtu": "1500",
        "qdisc ifb0 root": "noqueue 0:",
        "net.ipv6.conf.ifb0.mtu": "1500",
    }
    before, after = seen("1", points("b")), seen("3", points("b"), settings=loaded)
    with_bbr = seen("2", points("bbr"), settings=loaded)
    assert found(before, with_bbr, after) == [("module tcp_bbr x", ("modules",))]
    assert of_the_testbed(before, "sender1") == of_the_testbed(after, "sender1")
    # A control that may be used is not left over.
    default = {"net.ipv4.tcp_congestion_control": "bbr"}
    assert "module tcp_bbr x" in of_the_testbed(seen("4", points("b"), settings=loaded | default), "sender1")
    other = seen("5", points("bbr"), settings=loaded | {"module tcp_bbr x": "2"})
    assert found(with_bbr, other) == [("module tcp_bbr x", ())]


def test_addresses_that_an_ifb_draws_are_compared_with_nothing(points: Callable[[str], Point]) -> None:
    drawn = {"ifb_fwd address fe80::1:2:3:4/64": "scope link", "route fe80::1:2:3:4/128 table local": "local"}
    router = seen("1", points("b"), "router"), seen("2", points("b"), "router", settings=drawn)
    assert found(*router) == []
    own = {"vec1 address 198.18.1.99/24": "scope global"}
    assert len(found(router[0], seen("2", points("b"), "router", settings=own))) == 1


def test_modules_of_the_path_are_of_the_router(points: Callable[[str], Point]) -> None:
    rate = {"module sch_htb htb_rate_est": "1"}
    assert found(seen("1", points("b")), seen("2", points("b"), settings=rate)) == []
    routers = seen("1", points("b"), "router"), seen("2", points("b"), "router", settings=rate)
    assert found(*routers) == [("module sch_htb htb_rate_est", ())]


def test_an_empty_value_is_told_from_none(points: Callable[[str], Point]) -> None:
    (one,) = differences([seen("1", points("b")), seen("2", points("b"), settings={"cpus isolated": ""})])
    assert str(one) == 'sender1 cpus isolated: none in 1; "" in 2'


def test_offloads_and_mtu_explain_what_follows_from_them(points: Callable[[str], Point]) -> None:
    b = seen("b", points("b"))
    features = {"vec1 feature tx-scatter-gather": "off", "vec1 gso_max_size": "1"}
    assert {because for _, because in found(b, seen("x", points("plain"), settings=features))} == {
        ("offloads",)
    }
    wide = {"vec1 mtu": "9000", "net.ipv6.conf.vec1.mtu": "9000", "qdisc vec1 root": "fq quantum 18028"}
    told = dict(found(b, seen("x", points("wide"), settings=wide)))
    assert told == {
        "net.ipv6.conf.vec1.mtu": ("mtu",),
        "qdisc vec1 root": ("mtu", "qdisc"),
        "vec1 mtu": ("mtu",),
    }


def test_another_kernel_explains_what_kernels_decide(points: Callable[[str], Point]) -> None:
    old = {
        "kernel release": "6.1.0",
        "kernel command line": "root=/dev/vda1 old",
        "mitigation retbleed": "Vulnerable",
        "net.ipv4.tcp_plb_enabled": None,
        "vec1 feature tx-checksumming": "off",
        "vec1 channels combined": "2",
        "vec1 tx-0 xps_cpus": "3",
        "vec1 threaded": "0",
        "irq affinity vec1": "0 1",
        "pstate driver": "passive",
        "sit0 txqueuelen": "1000",
    }
    site = {"nftables": "5f2c", "service irqbalance": "running", "vec1 mtu": "9000"}
    pair = seen("old", points("old"), settings=old | site), seen("new", points("new"))
    told = dict(found(*pair))
    assert {name for name, because in told.items() if because == ("kernel",)} == {*old} - {
        "net.ipv4.tcp_plb_enabled"
    }
    assert {name for name, because in told.items() if not because} == site.keys()
    # A kernel that nobody asked for explains the same, but not itself.
    told = dict(found(seen("b", points("b"), settings=old), seen("b", points("b"))))
    assert [name for name, because in told.items() if not because] == ["kernel release"]
    assert told["mitigation retbleed"] == ("kernel",)


def test_every_key_of_a_hosts_state_explains_something() -> None:
    """A key that a plan learns must be told here: what it changes would be unexplained."""
    assert {row.what for row in DECIDED_BY} == {*State.model_fields, "path"}


def test_points_are_compared_by_their_hosts(points: Callable[[str], Point]) -> None:
    assert differences([seen("1", points("b")), seen("2", points("b"), "receiver1")]) == []
    assert differences([]) == []


@given(st.permutations(["1", "2", "3", "4"]), st.lists(st.sampled_from("xyz"), min_size=4, max_size=4))
def test_the_order_of_points_does_not_matter(order: list[str], values: list[str]) -> None:
    of = {
        label: seen(label, POINT, settings={"x": value}) for label, value in zip("1234", values, strict=True)
    }
    one, other = differences(list(of.values())), differences([of[label] for label in order])
    assert [(d.name, {v: sorted(ls) for v, ls in d.values.items()}) for d in one] == [
        (d.name, {v: sorted(ls) for v, ls in d.values.items()}) for d in other
    ]
    assert len(one) == (len(set(values)) > 1)


def test_names_and_globs_are_accepted() -> None:
    found = [Difference("h", name, {"0": ["a"], "1": ["b"]}, ()) for name in ("net.ipv4.x", "nftables")]
    found.append(Difference("h", "vec1 mtu", {"0": ["a"], "1": ["b"]}, ("mtu",)))
    assert [one.name for one in unexplained(found)] == ["net.ipv4.x", "nftables"]
    assert [one.name for one in unexplained(found, ["net.*"])] == ["nftables"]
    assert unexplained(found, ["nftables", "net.ipv4.x"]) == []


def test_a_difference_tells_of_hosts_points_and_values() -> None:
    values = {"0": ["a", "a", "b"], "1": ["b"]}
    both = [Difference(host, "x", values, ()) for host in ("router", "sender1")]
    assert by_hosts(both) == ["router, sender1 x: 0 in a, 1 of 2 of b; 1 in 1 of 2 of b"]
    many = Difference("router", "x", {"0": list("abcdef"), "1": ["g"]}, ())
    assert many.told == "x: 0 in a, b, c and 3 more; 1 in g"
    assert many.json == {"host": "router", "setting": "x", "values": {"0": list("abcdef"), "1": ["g"]}}
