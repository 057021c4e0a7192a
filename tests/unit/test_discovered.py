"""The inventory that is proposed for hosts of which only the NICs are known."""

from __future__ import annotations

from typing import Any

from dumbbell.inventory.discovered import proposed


def nic(speed_mbps: int | None = 10_000, **other: Any) -> dict[str, Any]:
    known = {"carrier": None if speed_mbps is None else True, "driver": "ixgbe", "kind": None, "master": None}
    return known | {"speed_mbps": speed_mbps, "addresses": []} | other


def host(name: str, **nics: dict[str, Any]) -> dict[str, Any]:
    found = {"eno1": nic(1000, addresses=["192.0.2.11/24"]), **nics}
    return {
        "name": name,
        "nics": found,
        "management": ["eno1"],
        "configured_by": {"eno1": ["ifupdown (/etc/network/interfaces)"]},
        "neighbours": {"eno1": ["192.0.2.1"]},
    }


HOSTS = {
    "192.0.2.11": host("a.example.org", eth1=nic(None), eth2=nic(25_000)),
    "192.0.2.21": host("b", eth1=nic()),
    "192.0.2.2": host("r", eth1=nic(), eth2=nic(), eth3=nic(None)),
    "192.0.2.3": host("store"),
}


def test_hosts_are_proposed_by_their_nics() -> None:
    groups = proposed(HOSTS)
    assert {name: list(hosts) for name, hosts in groups.items()} == {
        "senders": ["a"],
        "receivers": ["b"],
        "routers": ["r"],
        "archives": ["store"],
    }
    assert groups["senders"]["a"]["experiment"] == {"left": {"device": "eth2", "address": "198.18.1.11/24"}}
    assert groups["senders"]["a"]["routes"] == [{"to": "198.18.2.0/24", "via": "198.18.1.1"}]
    assert groups["receivers"]["b"]["experiment"] == {
        "right": {"device": "eth1", "address": "198.18.2.21/24"}
    }
    assert groups["routers"]["r"]["experiment"] == {
        "left": {"device": "eth1", "address": "198.18.1.1/24"},
        "right": {"device": "eth2", "address": "198.18.2.1/24"},
    }
    assert groups["archives"]["store"]["experiment"] == {}


def test_a_person_reads_what_each_nic_is() -> None:
    lines = proposed(HOSTS)["senders"]["a"]["nics"]
    assert lines["eno1"] == (
        "ixgbe, link, 1000 Mbit/s, carries SSH, 192.0.2.11/24, "
        "configured by ifupdown (/etc/network/interfaces), neighbours 192.0.2.1"
    )
    assert lines["eth1"] == "ixgbe, down, so that speed and carrier are not known"


def test_few_hosts_leave_groups_empty() -> None:
    groups = proposed({"b": HOSTS["192.0.2.21"]})
    assert {name: list(hosts) for name, hosts in groups.items()} == {
        "senders": ["b"],
        "receivers": [],
        "routers": [],
        "archives": [],
    }
    assert groups["senders"]["b"]["routes"] == []


def test_hosts_that_share_a_name_keep_that_of_the_command_line() -> None:
    groups = proposed({"192.0.2.11": host("debian"), "192.0.2.12": host("debian", eth1=nic())})
    assert list(groups["archives"]) == ["192.0.2.11"]
    assert list(groups["senders"]) == ["192.0.2.12"]
