"""What is recorded before a change, and the commands that return it, on dumps of iproute2 6.1."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import baseline, restore
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
        ("modprobe ifb numifbs=2", [("module", "ifb"), ("parameters", "ifb")]),
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
    commands = restore.undo(was, {each: read(each) for each in was}, place)
    kept = str(baseline.copy_of(str(file), place))
    assert Path(kept).read_text() == "pool site\n"
    assert commands == [
        ["cp", "--preserve=all", kept, str(file)],
        ["rm", new.subject],
        ["systemctl", "daemon-reload"],
    ]


def undone(was: dict[Any, Any], now: dict[Any, Any]) -> list[str]:
    return [" ".join(command) for command in restore.undo(was, now) + restore.purge(was, now)]


def nothing(command: list[str]) -> tuple[int, str, str]:
    return 1, "", ""


def test_a_module_s_file_its_source_and_its_registration_go_when_it_is_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "DKMS", tmp_path / "dkms")
    file = "/lib/modules/6.12-lab/updates/tcp_mine.ko"
    source = tmp_path / "src/tcp_mine-1a2b"
    recorded = [
        Setting("dkms", "tcp_mine/1a2b"),
        Setting("tree", str(source)),
        Setting("file", file),
        Setting("module", "tcp_mine"),
        baseline.MODULES,
    ]
    place = tmp_path / "baseline"
    baseline.record(recorded, lambda s: [] if s == baseline.MODULES else baseline.read(s, nothing), place)
    was = baseline.load(place)
    assert [was[setting] for setting in recorded] == [None, None, None, None, []]

    source.mkdir(parents=True)
    (tmp_path / "dkms/tcp_mine/1a2b").mkdir(parents=True)
    now = {setting: baseline.read(setting, nothing) for setting in recorded[:2]}
    now |= {recorded[2]: {"sha256": "1"}, recorded[3]: True, baseline.MODULES: ["tcp_mine"]}
    assert undone(was, now) == [
        "modprobe -r -a tcp_mine",
        f"rm {file}",
        "dkms remove --all tcp_mine/1a2b",
        f"rm -r {source}",
        "depmod 6.12-lab",
    ]


def test_kernels_that_were_installed_go_and_a_clock_daemon_that_was_replaced_comes_back_first() -> None:
    def dpkg(command: list[str]) -> tuple[int, str, str]:
        installed = {"systemd-timesyncd": "ii ", "linux-image-6.1": "rc "}
        found = installed.get(command[-1])
        return (0, f"{command[-1]} {found}4.3\n", "") if found else (1, "", "no packages found")

    kernel, daemon = Setting("package", "linux-image-6.1"), Setting("package", "systemd-timesyncd")
    chrony, iperf3 = Setting("package", "chrony"), Setting("package", "iperf3")
    services = {
        Setting("service", "chrony"): None,
        Setting("service", "systemd-timesyncd"): {"enabled": "enabled", "active": "active"},
    }
    was = {each: baseline.read(each, dpkg) for each in (kernel, daemon, chrony, iperf3)} | services
    was[Setting("user", "iperf3")] = None
    assert [was[each] for each in (kernel, daemon, chrony)] == ["configuration", True, None]
    now = {
        kernel: True,
        daemon: "configuration",
        chrony: "configuration",  # timesyncd has removed it
        iperf3: True,
        Setting("user", "iperf3"): True,
        Setting("service", "chrony"): {"enabled": "enabled", "active": "active"},
        Setting("service", "systemd-timesyncd"): None,
    }
    assert undone(was, now) == [
        "apt-get --yes --no-install-recommends install systemd-timesyncd",
        "systemctl stop chrony",
        "systemctl disable chrony",
        "systemctl enable systemd-timesyncd",
        "systemctl daemon-reload",
        "systemctl restart systemd-timesyncd",
        "dpkg --remove linux-image-6.1",
        "dpkg --purge chrony iperf3",
        "userdel iperf3",
    ]


def test_grub_s_menu_is_made_again_until_it_is_younger_than_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "GRUB", tmp_path / "default")
    menu, own = tmp_path / "grub.cfg", tmp_path / "default/grub.d/dumbbell.cfg"
    own.parent.mkdir(parents=True)
    (tmp_path / "default/grub").write_text("GRUB_TIMEOUT=5\n")
    setting, config = Setting("menu", str(menu)), Setting("file", str(own))

    def read() -> dict[Any, Any]:
        return {each: baseline.read(each, nothing) for each in (config, setting)}

    assert read()[setting] is None  # a host without GRUB
    menu.write_text("menuentry\n")
    was = read()
    assert was == {config: None, setting: True}
    own.write_text("GRUB_DEFAULT=saved\n")
    menu.touch()
    assert undone(was, read()) == [f"rm {own}", "update-grub", "systemctl daemon-reload"]
    # The file went and update-grub failed: what is left on record is the menu.
    own.unlink()
    os.utime(own.parent, ns=(0, menu.stat().st_mtime_ns + 1))
    assert [each for each in was if restore.differs(each, was[each], read()[each])] == [setting]
    assert undone({setting: True}, {setting: read()[setting]}) == ["update-grub"]
    menu.touch()
    os.utime(own.parent, ns=(0, menu.stat().st_mtime_ns))
    assert undone({setting: True}, {setting: read()[setting]}) == []


def test_the_kernel_that_ran_is_known() -> None:
    assert baseline.read(Setting("kernel", ""), lambda command: (0, "6.1.0-9-amd64\n", "")) == "6.1.0-9-amd64"
    assert str(Setting("kernel", "")) == "kernel"
    assert undone({Setting("kernel", ""): "6.1"}, {Setting("kernel", ""): "6.12"}) == []


def words(was: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    return [" ".join(command) for command in restore.undo_qdiscs("vec1", was, now)]


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
    assert [" ".join(command) for command in restore.undo(was, now)] == [
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
    assert [" ".join(command) for command in restore.undo({setting: was}, {setting: now})] == expected


def test_a_device_that_was_not_up_since_the_boot_has_the_kernels_qdisc() -> None:
    noop, made = [dict(baseline.NOOP)], [{"kind": "fq", "handle": "1:", "root": True, "options": {}}]
    qdisc = Setting("qdisc", "vec1")
    assert not restore.differs(qdisc, [], noop)
    assert restore.differs(qdisc, noop, [])
    assert restore.differs(qdisc, made, noop)


def test_a_unit_that_a_run_stopped_is_started() -> None:
    unit = Setting("unit", "irqbalance.service")
    commands = restore.undo({unit: "active"}, {unit: "inactive"})
    assert commands == [["systemctl", "start", "irqbalance.service"]]
    assert restore.undo({unit: "active"}, {unit: None}) == []  # it was removed


# As systemd 252 prints for a unit that is active, one that it does not know, and one that has failed.
SHOWN = """\
LoadState=loaded
ActiveState=active

LoadState=not-found
ActiveState=inactive

LoadState=loaded
ActiveState=failed
"""


def test_whether_units_are_active_is_read() -> None:
    found = baseline.activities(["a.timer", "b.timer", "c.service"], lambda command: (0, SHOWN, ""))
    assert found == {"a.timer": "active", "b.timer": None, "c.service": "inactive"}


def test_a_feature_that_could_not_be_changed_when_it_was_recorded_is_no_difference() -> None:
    features = Setting("features", "vec1")
    was = {"generic-receive-offload": True}
    assert not restore.differs(features, was, was | {"tx-tcp-segmentation": False})
    assert restore.differs(features, was, {"generic-receive-offload": False})
