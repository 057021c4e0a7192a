"""Problems of an inventory, each found in one that has no other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dumbbell.inventory.check import known_variables, problems

ROLES = known_variables(Path(__file__).parents[2] / "roles")
GROUPS = {"senders": ["s1"], "receivers": ["r1"], "routers": ["router"], "archives": ["a"]}
GROUPS |= {"testbed": ["s1", "r1", "router", "a"]}
SECRETS = {"influxdb_admin_password": None, "influxdb_writer_password": None}
STORE = {"influxdb_url": "http://192.0.2.3:8086", "influxdb_database": "dumbbell"} | SECRETS


def host(address: str, routes: list[dict[str, str]], **interfaces: str) -> dict[str, Any]:
    named = {side: {"device": f"eth-{side}", "address": each} for side, each in interfaces.items()}
    return {
        "ansible_host": address,
        "management_interface": "eno1",
        "experiment_interfaces": named,
        "experiment_routes": routes,
        **SECRETS,
    }


HOSTS = {
    "s1": host("192.0.2.11", [{"to": "198.18.2.0/24", "via": "198.18.1.1"}], left="198.18.1.11/24"),
    "r1": host("192.0.2.21", [{"to": "198.18.1.0/24", "via": "198.18.2.1"}], right="198.18.2.21/24"),
    "router": host("192.0.2.2", [], left="198.18.1.1/24", right="198.18.2.1/24")
    | {"sysctl_settings": {"net.ipv4.ip_forward": 1}},
    "a": host("192.0.2.3", []),
}

Change = Callable[[dict[str, Any]], Any]
PROBLEMS: dict[str, tuple[Change, str]] = {
    "management is not named": (lambda h: h["s1"].pop("management_interface"), "s1: management_interface is"),
    "management in the experiment": (
        lambda h: h["s1"].update(management_interface="eth-left"),
        "s1: eth-left carries SSH and must not be one of the experiment_interfaces",
    ),
    "no prefix length": (
        lambda h: h["s1"]["experiment_interfaces"]["left"].update(address="198.18.1.11"),
        "s1: experiment_interfaces.left.address: '198.18.1.11' is no address with prefix length",
    ),
    "an address twice": (
        lambda h: h["s1"]["experiment_interfaces"]["left"].update(address="198.18.1.1/24"),
        "router: experiment_interfaces.left is 198.18.1.1, which is the address of s1",
    ),
    "a wrong network": (
        lambda h: h["router"]["experiment_interfaces"]["left"].update(address="198.18.9.1/24"),
        "router: left is 198.18.9.0/24, but 198.18.1.0/24 on s1",
    ),
    "management in an experiment's network": (
        lambda h: h["a"].update(ansible_host="198.18.1.3"),
        "a: its management address 198.18.1.3 is in the network left",
    ),
    "a gateway elsewhere": (
        lambda h: h["s1"]["experiment_routes"][0].update(via="198.18.7.1"),
        "s1: experiment_routes: the gateway 198.18.7.1 is on the network of none",
    ),
    "no way to the peer": (
        lambda h: h["s1"].update(experiment_routes=[]),
        "s1: has neither a network nor one of experiment_routes in common with r1",
    ),
    "a router that does not forward": (
        lambda h: h["router"].pop("sysctl_settings"),
        "router: is a router, but sysctl_settings does not set net.ipv4.ip_forward to 1",
    ),
    "a router that does not forward IPv6": (
        lambda h: h["router"]["experiment_interfaces"]["left"].update(address="fd00:1::1/64"),
        "router: is a router, but sysctl_settings does not set net.ipv6.conf.all.forwarding to 1",
    ),
    "a router with a qdisc": (
        lambda h: h["router"].update(nic_qdisc="fq"),
        "router: is a router, whose interfaces carry the path: nic_qdisc is for other hosts",
    ),
    "a router with one side": (
        lambda h: h["router"]["experiment_interfaces"].pop("left"),
        "router: is a router, but its experiment_interfaces lack left",
    ),
    "an MTU that is none": (
        lambda h: h["s1"].update(nic_mtu="jumbo"),
        "s1: nic_mtu is 'jumbo': it is a whole number of bytes from 576 to 9216",
    ),
    "a router with smaller packets": (
        lambda h: [h[name].update(nic_mtu=9000) for name in ("s1", "r1")],
        "nic_mtu: s1 and r1 send each other packets of up to 9000 bytes (MTU), and router receives no more "
        "than 1500",
    ),
    "another name of an offload": (
        lambda h: h["s1"].update(nic_offloads={"generic-receive-offload": True}),
        "s1: nic_offloads: call generic-receive-offload gro, the name that scenarios have for it",
    ),
    "a misspelt variable of a role": (
        lambda h: h["s1"].update(nic_txquelen=1),
        "s1: no role knows the variable nic_txquelen; did you mean nic_txqueuelen?",
    ),
    "a misspelt variable of the inventory": (
        lambda h: h["s1"].update(management_interfaces="eno1"),
        "s1: no role knows the variable management_interfaces; did you mean management_interface?",
    ),
}  # fmt: skip


def test_a_good_inventory_has_none() -> None:
    assert problems(GROUPS, HOSTS, STORE, ROLES) == []
    jumbo = {name: of | {"nic_mtu": 9000, "nic_offloads": {"gro": True}} for name, of in HOSTS.items()}
    assert problems(GROUPS, jumbo, STORE, ROLES) == []


@pytest.mark.parametrize(("change", "reason"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_problem_is_named_with_its_host(change: Change, reason: str) -> None:
    hosts = copy.deepcopy(HOSTS)
    change(hosts)
    found = problems(GROUPS, hosts, STORE, ROLES)
    assert any(text.startswith(reason) for text in found), found


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        (GROUPS | {"senders": []}, "no host in the group senders"),
        (GROUPS | {"archives": ["a", "s1"]}, "one archive is needed, and the group archives has a, s1"),
        (
            GROUPS | {"routers": ["router", "s1"]},
            "one router is possible, and the group routers has router, s1: each emulates the whole path",
        ),
        (GROUPS | {"testbed": ["s1", "r1", "a"]}, "router: is in the group routers, but not in"),
    ],
)
def test_groups_are_checked(groups: dict[str, list[str]], reason: str) -> None:
    assert any(text.startswith(reason) for text in problems(groups, HOSTS, STORE, ROLES))


def test_a_store_may_be_left_out_by_saying_so() -> None:
    groups = {name: hosts for name, hosts in GROUPS.items() if name != "archives"}
    assert problems(groups, HOSTS, {"influxdb_url": None, "influxdb_database": None}, ROLES) == []
    missing = problems(groups, HOSTS, SECRETS, ROLES)
    assert [text.split(":")[0] for text in missing] == [
        "no host in the group archives",
        "influxdb_url is None; it says where samples are kept, as http",
        "influxdb_database is not named",
    ]


@pytest.mark.parametrize("url", ["192.0.2.3:8086", "http://"])
def test_a_store_needs_an_address(url: str) -> None:
    (found,) = problems(GROUPS, HOSTS, STORE | {"influxdb_url": url}, ROLES)
    assert found.startswith(f"influxdb_url is {url!r}")


def test_accounts_that_nobody_named_are_missing() -> None:
    hosts = {name: {k: v for k, v in of.items() if k not in SECRETS} for name, of in HOSTS.items()}
    store = {name: value for name, value in STORE.items() if name not in SECRETS}
    assert [text.split(":")[0] for text in problems(GROUPS, hosts, store, ROLES)] == [
        "influxdb_admin_password is missing, with which the controller reads samples",
        "influxdb_writer_password is missing, with which s1, r1, router, a write samples",
    ]
    token = {"influxdb_writer_token": None, "influxdb_admin_token": None}
    hosts = {name: of | token for name, of in hosts.items()}
    assert len(problems(GROUPS, hosts, store | token, ROLES)) == 2
    assert problems(GROUPS, hosts, store | token | {"influxdb_install": False}, ROLES) == []


def test_the_url_is_that_of_the_archive_unless_the_site_has_an_influxdb() -> None:
    (found,) = problems(GROUPS, HOSTS, STORE | {"influxdb_url": "http://192.0.2.9:8086"}, ROLES)
    assert found.startswith(
        "influxdb_url names 192.0.2.9, but InfluxDB is installed on a, whose ansible_host is 192.0.2.3"
    )
    for other in (
        {"influxdb_url": "https://archive.example:8086"},
        {"influxdb_url": "http://192.0.2.9:8086", "influxdb_install": False},
    ):
        assert problems(GROUPS, HOSTS, STORE | other, ROLES) == []
