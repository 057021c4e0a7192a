"""What is recorded before a change, and the commands that return it, on dumps of iproute2 6.1."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import baseline
from hypothesis import given
from hypothesis import settings as config
from hypothesis import strategies as st

Setting = baseline.Setting
NETEM = {"kind": "netem", "handle": "1:", "root": True, "options": {"limit": 2954}}
NOOP = {"kind": "noop", "handle": "0:", "root": True, "options": {}}
FQ = {"kind": "fq", "handle": "8001:", "root": True, "options": {"limit": 10000}}
CLSACT = {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "options": {}}


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("ip link set dev vec1 mtu 9000", [("link", "vec1"), ("qdisc", "vec1")]),
        ("ip link add name ifb_fwd type ifb", [("link", "ifb_fwd"), ("qdisc", "ifb_fwd")]),
        ("ip route replace 10.0.0.0/8 via 10.0.0.1 dev vec1", [("link", "vec1"), ("qdisc", "vec1")]),
        ("tc filter add dev vec1 ingress pref 1 matchall", [("qdisc", "vec1")]),
        ("ethtool -K vec1 tso off", [("features", "vec1")]),
        ("ethtool -G vec1 rx 512", [("rings", "vec1")]),
        ("sysctl -w net.ipv4.ip_forward=1", [("sysctl", "net.ipv4.ip_forward")]),
        ("modprobe ifb numifbs=2", [("module", "ifb")]),
        ("modprobe --remove ifb", []),
    ],
)
def test_a_command_is_known_by_what_it_changes(command: str, settings: list[tuple[str, str]]) -> None:
    assert baseline.touched(command.split()) == settings


def test_a_write_to_a_file_is_known() -> None:
    assert baseline.touched(["sh", "-c", "echo 0-3 >/proc/irq/9/smp_affinity_list"]) == [
        ("sysfs", "/proc/irq/9/smp_affinity_list")
    ]


@pytest.mark.parametrize("command", [["reboot"], ["sh", "-c", "rm -rf /"], ["ethtool", "-p", "vec1"]])
def test_a_command_that_cannot_be_undone_is_said(command: list[str]) -> None:
    with pytest.raises(ValueError, match="cannot be undone"):
        baseline.touched(command)


settings = st.builds(Setting, st.sampled_from(["link", "sysctl", "qdisc"]), st.text(max_size=9))
values = st.dictionaries(settings, st.none() | st.integers() | st.lists(st.text()), max_size=9)


@config(deadline=None)  # a file is synced to the disk
@given(values)
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, found: dict[Any, Any]) -> None:
    place = tmp_path_factory.mktemp("host") / "baseline"
    baseline.save(found, place)
    assert baseline.load(place) == found


def test_a_setting_is_recorded_once_and_for_root_alone(tmp_path: Path) -> None:
    place, mtu, forward = tmp_path / "baseline", Setting("link", "vec1"), Setting("sysctl", "ip_forward")
    assert baseline.record([mtu], lambda _: 1500, place) == [mtu]
    assert baseline.record([mtu, forward], lambda _: 9000, place) == [forward]
    assert baseline.load(place) == {mtu: 1500, forward: 9000}
    assert stat.S_IMODE((place / "settings.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert sorted(file.name for file in place.iterdir()) == ["settings.json"]


def test_a_file_is_kept_and_copied_back(tmp_path: Path) -> None:
    place, file = tmp_path / "baseline", tmp_path / "chrony.conf"
    file.write_text("pool site\n")
    file.chmod(0o640)
    setting, new = Setting("file", str(file)), Setting("file", str(tmp_path / "new"))

    def read(setting: Any) -> Any:
        return baseline.read(setting, lambda command: (1, "", ""))

    baseline.record([setting, new], read, place)
    file.write_text("server archive\n")
    Path(new.subject).touch()
    was = baseline.load(place)
    commands = baseline.undo(was, {each: read(each) for each in was}, place)
    kept = str(baseline.copy_of(str(file), place))
    assert Path(kept).read_text() == "pool site\n"
    assert commands == [
        ["cp", "--preserve=all", kept, str(file)],
        ["rm", new.subject],
        ["systemctl", "daemon-reload"],
    ]


def words(was: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    return [" ".join(command) for command in baseline.undo_qdiscs("vec1", was, now)]


def test_qdiscs_are_returned() -> None:
    assert words([], [NETEM, CLSACT]) == ["tc qdisc del dev vec1 clsact", "tc qdisc del dev vec1 root"]
    assert words([FQ], [NETEM]) == ["tc qdisc replace dev vec1 root handle 8001: fq limit 10000"]
    assert words([NOOP], [NETEM]) == ["tc qdisc del dev vec1 root"]
    assert words([NOOP], []) == [
        "tc qdisc replace dev vec1 root handle 1: pfifo",
        "tc qdisc del dev vec1 root",
    ]
    assert words([CLSACT, FQ], [CLSACT, FQ]) == []


def test_the_kernels_own_qdiscs_are_no_setting() -> None:
    own = {"kind": "pfifo_fast", "handle": "0:", "dev": "vec1", "root": True, "refcnt": 2, "options": {}}
    assert baseline.own_qdiscs([own]) == []
    assert baseline.own_qdiscs([NETEM | {"dev": "vec1", "refcnt": 2}]) == [NETEM]


def test_devices_and_modules_that_came_go_last() -> None:
    was: dict[Any, Any] = {
        Setting("link", "ifb_fwd"): None,
        Setting("qdisc", "ifb_fwd"): [],
        Setting("sysctl", "net.ipv4.ip_forward"): "0",
        Setting("features", "vec1"): {"rx-gro": True},
        Setting("module", "dummy"): None,
        Setting("module", "sch_netem"): None,
        Setting("module", "veth"): True,
        baseline.MODULES: ["tcp_bbr"],
    }
    now: dict[Any, Any] = {
        Setting("link", "ifb_fwd"): {"name": "ifb_fwd"},
        Setting("qdisc", "ifb_fwd"): [NETEM],
        Setting("sysctl", "net.ipv4.ip_forward"): "1",
        Setting("features", "vec1"): {"rx-gro": False},
        Setting("module", "dummy"): True,
        Setting("module", "sch_netem"): True,
        Setting("module", "veth"): None,
        baseline.MODULES: ["ifb", "sch_netem"],
    }
    assert [" ".join(command) for command in baseline.undo(was, now)] == [
        "sysctl -w net.ipv4.ip_forward=0",
        "ethtool -K vec1 rx-gro on",
        "ip link del dev ifb_fwd",
        "modprobe -r -a dummy sch_netem ifb",
    ]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (None, {"enabled": "enabled", "active": "active"}, ["systemctl stop x", "systemctl disable x"]),
        (
            {"enabled": "disabled", "active": "active"},
            {"enabled": "enabled", "active": "active"},
            ["systemctl disable x"],
        ),
    ],
)
def test_services_are_returned(was: Any, now: Any, expected: list[str]) -> None:
    setting = Setting("service", "x")
    assert [" ".join(command) for command in baseline.undo({setting: was}, {setting: now})] == expected
