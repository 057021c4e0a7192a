"""What a host is asked to be: the scenario over the inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils._internal._messages import Event, WarningSummary
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.execution.action import text_of
from dumbbell.execution.asked import asked_of
from dumbbell.execution.host_state import defaults

ROLES = Path(__file__).parents[2] / "roles"
DEVICE = "vec1"
SENDER = {
    "management_interface": "vec0",
    "experiment_interfaces": {"left": {"device": DEVICE, "address": "198.18.1.11/24"}},
    "experiment_routes": [{"to": "198.18.2.0/24", "via": "198.18.1.1"}],
}
ROUTER = {
    "management_interface": "vec0",
    "experiment_interfaces": {
        "left": {"device": "vec1", "address": "198.18.1.1/24"},
        "right": {"device": "vec2", "address": "198.18.2.1/24"},
    },
}
NOTHING: dict[str, Any] = {
    "kernel": None,
    "modules": {},
    "offloads": {},
    "txqueuelen": None,
    "mtu": None,
    "qdisc": None,
    "sysctls": {},
    "congestion_controls": [],
    "routes": None,
}


DEFAULTS = defaults(ROLES)


def variables(host: dict[str, Any] = SENDER, **inventory: Any) -> dict[str, Any]:
    return DEFAULTS | host | inventory


@pytest.mark.parametrize(
    ("inventory", "asked", "expected"),
    [
        ({}, {}, (1500, 1000, {"tso": False, "gso": False, "gro": False, "lro": False})),
        ({"nic_mtu": 9000, "nic_offloads": {"gro": True}}, {}, (9000, 1000, {"gro": True})),
        (
            {"nic_mtu": 9000, "nic_txqueuelen": 500, "nic_offloads": {"gro": True, "tso": True}},
            {"mtu": 1400, "txqueuelen": 0, "offloads": {"gro": False}},
            (1400, 0, {"gro": False, "tso": True}),
        ),
    ],
)
def test_the_inventory_holds_in_runs_but_for_what_the_scenario_asks(
    inventory: dict[str, Any], asked: dict[str, Any], expected: tuple[int, int, dict[str, bool]]
) -> None:
    of = asked_of(variables(**inventory), NOTHING | asked)["interfaces"][DEVICE]
    assert (of["mtu"], of["txqueuelen"], of["features"]) == expected


@pytest.mark.parametrize(
    ("qdisc", "inventory", "loaded"),
    [
        (None, {}, ["tcp_bbr"]),
        ("fq", {"modules_loaded": ["ifb"], "nic_qdisc": "rapid"}, ["ifb", "tcp_bbr"]),
        ("rapid", {"modules_loaded": ["ifb"]}, ["ifb", "tcp_bbr", "sch_rapid"]),
        (None, {"nic_qdisc": "rapid"}, ["tcp_bbr", "sch_rapid"]),
    ],
)
def test_the_module_of_a_host_s_qdisc_is_loaded_by_its_name(
    qdisc: str | None, inventory: dict[str, Any], loaded: list[str]
) -> None:
    """So that the build is read back that makes the gaps of a run."""
    asked = asked_of(variables(**inventory), NOTHING | {"qdisc": qdisc, "modules": {"tcp_bbr": {}}})
    assert list(asked["modules"]["loaded"]) == loaded


def test_routes_leave_by_the_interface_of_their_gateway_with_the_scenarios_options() -> None:
    asked = asked_of(variables(), NOTHING | {"routes": {"quickack": True}})
    assert asked["interfaces"][DEVICE]["routes"] == [
        {"to": "198.18.2.0/24", "via": "198.18.1.1", "quickack": True, "tcp_usec_ts": False}
    ]
    lost = [{"to": "198.18.2.0/24", "via": "203.0.113.1"}]
    with pytest.raises(ValueError, match=r"198\.18\.2\.0/24 has the gateway 203\.0\.113\.1"):
        asked_of(variables(experiment_routes=lost))


def test_a_run_has_the_path_of_its_scenario_or_none() -> None:
    way = {"rate_bps": 10**7, "queue": {"kind": "pfifo", "limit_packets": 9}}
    router = variables(ROUTER, path_forward=way, path_reverse=None, path_burst_us=5000)
    about = {"left": "vec1", "right": "vec2", "trim_us": 0, "burst_us": 5000}
    assert asked_of(router)["path"] == about | {"forward": way, "reverse": None}
    assert asked_of(router, NOTHING)["path"] == about | {"forward": None, "reverse": None}
    planned = {"forward": {"rate_bps": 1}, "reverse": {"rate_bps": 2}, "rtt_ns": 0}
    trimmed = asked_of(router, NOTHING, planned, 40)["path"]
    assert trimmed == about | {"forward": {"rate_bps": 1}, "reverse": {"rate_bps": 2}, "trim_us": 40}
    assert asked_of(variables(), NOTHING, planned)["path"] is None  # no router


def test_the_interface_that_carries_ssh_is_refused() -> None:
    with pytest.raises(ValueError, match="vec1 carries SSH"):
        asked_of(variables(management_interface="vec1"))


SYSCTLS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["0", "1"]))


@given(SYSCTLS, SYSCTLS)
def test_the_scenario_wins_setting_by_setting(inventory: dict[str, str], scenario: dict[str, str]) -> None:
    asked = asked_of(variables(sysctl_settings=inventory), NOTHING | {"sysctls": scenario})
    own = asked_of(variables())["sysctls"]
    assert asked["sysctls"] == {**own, **inventory, **scenario}
    assert asked.keys() == asked_of(variables()).keys()


def test_each_interface_keeps_its_neighbours_in_the_family_of_its_address() -> None:
    router = {
        "experiment_interfaces": {
            "left": {"device": "vec1", "address": "198.18.1.1/24"},
            "right": {"device": "vec2", "address": "2001:db8:2::1/64"},
        }
    }
    asked = asked_of(variables(router))["sysctls"]
    assert asked == {"net.ipv4.neigh.vec1.ucast_solicit": 100, "net.ipv6.neigh.vec2.ucast_solicit": 100}
    own = "net.ipv4.neigh.vec1.ucast_solicit"
    assert asked_of(variables(sysctl_settings={own: 5}))["sysctls"] == {own: 5}


def test_a_warning_is_told_as_its_text() -> None:
    record = WarningSummary(event=Event(msg="gso of vec1 is on"))
    assert [text_of(record), text_of("gso of vec1 is on")] == ["gso of vec1 is on"] * 2


def test_units_are_stopped_for_a_run_only_and_only_if_asked() -> None:
    units: dict[str, Any] = {"quiesce_units": ["irqbalance.service"]}
    enabled = units | {"quiesce_enabled": True}
    assert asked_of(variables(**enabled), NOTHING)["quiesced"] == ["irqbalance.service"]
    assert asked_of(variables(**enabled))["quiesced"] == []
    assert asked_of(variables(**units), NOTHING)["quiesced"] == []
