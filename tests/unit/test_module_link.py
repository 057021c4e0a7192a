"""link and the guard of the SSH session, on output of iproute2 6.1."""

import json
from ipaddress import IPv4Interface, IPv4Network
from typing import Any, get_args

import pytest
from conftest_modules import FIXTURES, ethtool, host, link
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.facts import state_document
from dumbbell.scenario.hosts import HostState

DUMP = json.loads((FIXTURES / "link" / "iproute2-6.1.json").read_text())
LEFT = next(each for each in DUMP["addresses"] if each["ifname"] == "left")


def test_a_real_dump_is_parsed() -> None:
    assert link.parse(LEFT, DUMP["routes"]) == {
        "name": "left",
        "up": True,
        "mtu": 1400,
        "txqueuelen": 500,
        "gso_max_segs": LEFT.get("gso_max_segs"),
        "addresses": ["198.18.1.1/24"],
        "routes": [
            {"to": "0.0.0.0/0", "via": "198.18.1.8"},
            {"to": "1.2.3.4/32", "via": "198.18.1.8"},
            {"to": "198.18.9.0/24", "via": "198.18.1.9"},
        ],
    }


@pytest.mark.parametrize(("kind", "limit"), [("pfifo", 500), ("bfifo", 707_000)])
def test_a_fifo_has_the_limit_that_the_kernel_would_give_it(kind: str, limit: int) -> None:
    """Of the device in the dump, made without a limit: 500 packets of 1400 bytes and a header."""
    found = link.parse(LEFT, []) | link.parse_qdisc(DUMP["qdiscs"][kind])
    asked = link.canonical({"name": "left", "qdisc": kind})
    assert (found["qdisc"], link.qdisc_limit(asked, found)) == (kind, limit)
    assert link.plan(asked, found) == []
    shorter = asked | {"txqueuelen": 50}
    assert link.mismatches(shorter, found)["limit of the qdisc"] == (limit // 10, limit)
    assert ["tc", "qdisc", "replace", "dev", "left", "root", kind, "limit", str(limit // 10)] in link.plan(
        shorter, found
    )


def test_a_qdisc_takes_the_place_of_another() -> None:
    found = link.parse(LEFT, []) | link.parse_qdisc(DUMP["qdiscs"]["pfifo_fast"])
    asked = link.canonical({"name": "left", "qdisc": "fq_codel"})
    assert link.plan(asked, found) == [["tc", "qdisc", "replace", "dev", "left", "root", "fq_codel"]]
    assert link.plan({**asked, "qdisc": "pfifo_fast"}, found) == []


def test_what_is_below_the_root_is_told_but_not_what_is_at_the_ingress() -> None:
    queues: list[dict[str, Any]] = [
        {"kind": "fq", "handle": "0:", "parent": f":{n}", "options": {}} for n in (1, 2)
    ]
    ingress: dict[str, Any] = {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "options": {}}
    dump = [{"kind": "mq", "handle": "0:", "root": True, "options": {}}, *queues, ingress]
    assert link.parse_qdisc(dump) == {"qdisc": "mq", "qdisc_options": {}, "qdisc_leaves": ["fq"]}


def test_the_scenario_language_and_the_module_know_the_same_qdiscs() -> None:
    (literal, _) = get_args(HostState.model_fields["qdisc"].annotation)
    assert get_args(literal) == link.QDISCS


addresses = st.builds(
    lambda ip, length: str(IPv4Interface((ip, length))), st.ip_addresses(v=4), st.integers(8, 32)
)
options = st.fixed_dictionaries(
    {}, optional={option: st.none() | st.booleans() for option in link.ROUTE_OPTIONS}
)
routes = st.builds(
    lambda ip, length, via, options: {
        "to": str(IPv4Network((ip, length), strict=False)),
        "via": str(via),
        **options,
    },
    st.ip_addresses(v=4),
    st.integers(0, 32),
    st.ip_addresses(v=4),
    options,
)
wishes = st.fixed_dictionaries(
    {"name": st.just("vec1")},
    optional={
        "up": st.booleans(),
        "mtu": st.integers(68, 9000),
        "txqueuelen": st.integers(0, 100_000),
        "gso_max_segs": st.integers(1, 65535),
        "addresses": st.lists(addresses, max_size=3),
        "routes": st.lists(routes, max_size=3, unique_by=lambda route: route["to"]),
        "qdisc": st.sampled_from(link.QDISCS),
    },
)
DEFAULT_QDISC = {"kind": "fq_codel", "handle": "0:", "root": True, "options": {}}


def execute(
    command: list[str], dump: dict[str, Any], table: list[dict[str, Any]], root: dict[str, Any] | None = None
) -> None:
    """What the kernel does with a command, in the words in which `ip -j` tells it."""
    match command:
        case ["ip", "link", "set", "dev", _, "up" | "down" as state]:
            dump["flags"] = ["UP"] if state == "up" else []
        case ["ip", "link", "set", "dev", _, key, value]:
            dump["txqlen" if key == "txqueuelen" else key] = int(value)
        case ["ip", "address", "add", address, "dev", _]:
            interface = IPv4Interface(address)
            dump["addr_info"].append({"local": str(interface.ip), "prefixlen": interface.network.prefixlen})
        case ["ip", "address", "del", address, "dev", _]:
            local = address.partition("/")[0]
            dump["addr_info"] = [each for each in dump["addr_info"] if each["local"] != local]
        case ["ip", "route", "del", to, "via", _, "dev", _]:
            bare = {"0.0.0.0/0": "default"}.get(to, to.removesuffix("/32"))
            table[:] = [route for route in table if route["dst"] != bare]
        case ["ip", "route", "replace", to, "via", via, "dev", _, *options]:
            bare = {"0.0.0.0/0": "default"}.get(to, to.removesuffix("/32"))
            table[:] = [route for route in table if route["dst"] != bare]
            words: dict[str, dict[str, Any]] = {"quickack": {"quickack": 1}, "features": {"features": "0x10"}}
            metrics = [word for option in options[::2] for word in words[option].items()]
            table.append({"dst": bare, "gateway": via} | ({"metrics": [dict(metrics)]} if metrics else {}))
        case ["tc", "qdisc", "replace", "dev", _, "root", kind, *limit] if root:
            if root["kind"] != kind or root["handle"] == "0:":  # else it changes what it is told
                root.update(kind=kind, handle="8001:", options={})
            root["options"] |= {"limit": int(limit[1])} if limit else {}
        case _:
            raise AssertionError(command)


@given(wishes, wishes)
def test_what_is_rendered_is_parsed_back(first: dict[str, Any], second: dict[str, Any]) -> None:
    dump: dict[str, Any] = {"ifname": "vec1", "flags": [], "mtu": 1500, "txqlen": 1000, "addr_info": []}
    table: list[dict[str, Any]] = []
    root: dict[str, Any] = dict(DEFAULT_QDISC)
    for wish in (first, second):
        asked = link.canonical(wish)
        found = link.parse(dump, table) | link.parse_qdisc([root])
        commands = link.plan(asked, found)
        assert bool(commands) == bool(link.mismatches(asked, found))
        for command in commands:
            execute(command, dump, table, root)
        assert link.predict(asked, found)["qdisc"] == root["kind"]
        found = link.parse(dump, table) | link.parse_qdisc([root])
        assert link.mismatches(asked, found) == {}
        assert link.plan(asked, found) == []


@given(wishes)
def test_what_has_come_is_removed_again(wish: dict[str, Any]) -> None:
    dump = json.loads(json.dumps(LEFT)) | {"gso_max_segs": 65535}
    table: list[dict[str, Any]] = [{"dst": "default", "gateway": "198.18.1.8"}]
    was = link.parse(dump, table)
    wish.pop("qdisc", None)  # a setting of its own, which the baseline returns
    for command in link.plan(link.canonical(wish | {"name": "left"}), was):
        execute(command, dump, table)
    for command in link.undo(was, link.parse(dump, table)):
        execute(command, dump, table)
    assert link.parse(dump, table) == was


ROUTE = {"to": "198.18.9.0/24", "via": "198.18.1.9"}


def test_an_option_of_a_route_is_set_and_taken_back() -> None:
    has = link.parse(LEFT, DUMP["routes"])
    asked = link.canonical({"routes": [ROUTE | {"quickack": True, "tcp_usec_ts": True}]})
    (command,) = link.plan(asked, has)
    make = ["ip", "route", "replace", "198.18.9.0/24", "via", "198.18.1.9", "dev", "left"]
    assert command == [*make, "quickack", "1", "features", "tcp_usec_ts"]
    will = link.predict(asked, has)
    assert link.mismatches(asked, will) == {}
    assert link.plan(link.canonical({"routes": [ROUTE]}), will) == []
    less = link.canonical({"routes": [ROUTE | {"tcp_usec_ts": False}]})
    assert link.plan(less, will) == [[*make, "quickack", "1"]]
    assert link.undo(has, will) == [make]


@pytest.mark.parametrize(
    "metrics",
    [
        {"features": "0x10", "quickack": 1},  # iproute2 6.1
        {"tcp_usec_ts": None, "quickack": 1},  # from 6.8 on
    ],
)
def test_options_are_read_in_the_words_of_any_iproute2(metrics: dict[str, Any]) -> None:
    assert link.route_options({"metrics": [metrics]}) == {"quickack": True, "tcp_usec_ts": True}


# Linux 6.18 took it, and iproute2 6.1 then told `features 0x10 quickack 1` of the route.
REQUEST = (
    "48000000180005050100000000000000"  # length, RTM_NEWROUTE, request with answer that makes or replaces
    "02100000fe03000100000000"  # IPv4, 16 bits of prefix, table main
    "080001000a080000" "080005000a090002" "0800040003000000"  # destination, gateway, device
    "14000800" "08000f0001000000" "08000c0010000000"  # metrics: quickack, features
)  # fmt: skip


def test_the_request_is_what_a_kernel_took() -> None:
    command = ["ip", "route", "replace", "10.8.0.0/16", "via", "10.9.0.2", "dev", "d0"]
    command += ["quickack", "1", "features", "tcp_usec_ts"]
    assert link.needs_netlink(command)
    assert link.route_request(command, ifindex=3).hex() == REQUEST
    assert not link.needs_netlink(command[:-2])


def test_the_queue_length_is_set_first_and_routes_last() -> None:
    asked = link.canonical(
        {
            "name": "left",
            "up": True,
            "mtu": 9000,
            "txqueuelen": 10,
            "addresses": ["10.0.0.1/24"],
            "routes": [{"to": "default", "via": "10.0.0.2"}],
        }
    )
    found = link.parse({**LEFT, "flags": []}, [])
    words = [" ".join(command) for command in link.plan(asked, found)]
    assert words == [
        "ip link set dev left txqueuelen 10",
        "ip link set dev left mtu 9000",
        "ip address add 10.0.0.1/24 dev left",
        "ip link set dev left up",
        "ip route replace 0.0.0.0/0 via 10.0.0.2 dev left",
    ]


def test_what_is_left_out_is_left_alone() -> None:
    found = link.parse(LEFT, DUMP["routes"])
    asked = link.canonical({"name": "left", "up": None, "mtu": None, "addresses": None, "routes": []})
    assert link.plan(asked, found) == []


@pytest.mark.parametrize(
    "route", [{"to": "10.0.0.1/24", "via": "10.0.0.1"}, {"to": "10.0.0.0/24", "via": "gateway"}]
)
def test_a_route_that_is_none_is_refused(route: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"does not appear|host bits"):
        link.canonical({"name": "left", "routes": [route]})


LINKS: list[dict[str, Any]] = [
    {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]},
    {"ifname": "eth0", "master": "bond0"},
    {"ifname": "eth1", "master": "bond0"},
    {"ifname": "eth2", "addr_info": [{"local": "198.18.1.1"}]},
    {"ifname": "bond0"},
    {"ifname": "bond0.7", "link": "bond0", "addr_info": [{"local": "192.0.2.1"}, {"local": "2001:db8::1"}]},
]


@pytest.mark.parametrize(
    ("connection", "devices"),
    [
        ("198.18.1.2 50000 198.18.1.1 22", {"eth2"}),
        ("192.0.2.9 50000 192.0.2.1 22", {"bond0.7", "bond0", "eth0", "eth1"}),
        ("2001:db8::9 50000 2001:db8::1 22", {"bond0.7", "bond0", "eth0", "eth1"}),
        ("::ffff:198.18.1.2 50000 ::ffff:198.18.1.1 22", {"eth2"}),
        ("198.18.1.2 50000 203.0.113.1 22", set()),
        (None, set()),
    ],
)
def test_the_session_is_carried_by(connection: str | None, devices: set[str]) -> None:
    assert host.management_devices(connection, LINKS) == devices


def test_the_session_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "198.18.1.2 50000 198.18.1.1 22")
    assert host.ssh_connection() == "198.18.1.2 50000 198.18.1.1 22"


def test_the_session_is_found_in_an_ancestor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(
        host, "_environments", lambda pid: iter([b"A=1\0B=2\0", b"SSH_CONNECTION=a 1 b 2\0C=3"])
    )
    assert host.ssh_connection() == "a 1 b 2"


def test_what_hosts_own_of_an_interface_is_what_the_controller_judges() -> None:
    assert set(link.SIZES) == set(state_document.SIZES)
    called = {{"features": "offloads"}.get(name, name): kind.one for name, kind in ethtool.GROUPS.items()}
    assert called == state_document.GROUPS
