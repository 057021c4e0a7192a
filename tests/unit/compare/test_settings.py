"""What a comparison says of settings of hosts that differ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dumbbell.compare.sides import in_short
from dumbbell.report.pages.comparison import Comparison


def test_other_kernels_are_said(collected: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(collected, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["hosts"]["sender1"]["kernel"] = "6.18.0"
    (other / "manifest.json").write_text(json.dumps(manifest))
    (note,) = Comparison([collected], [other]).notes()
    assert note == "sender1 kernel: 6.12.0-synthetic in the first, 6.18.0 in the second"


def changed(run_dir: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose point was planned in another way."""
    shutil.copytree(run_dir, to)
    plan = json.loads((to / "plan.json").read_text())
    change(plan["points"][0])
    (to / "plan.json").write_text(json.dumps(plan))
    return to


def test_settings_that_differ_are_said(collected: Path, tmp_path: Path) -> None:
    def change(point: dict[str, Any]) -> None:
        point["path"]["forward"]["rate_bps"] = 100_010_000
        point["path"]["forward"]["loss"] = 0.0001
        point["phases"][1]["duration_ns"] = 60 * 10**9
        for host in ("sender1", "sender2"):
            point["hosts"][host]["state"]["sysctls"]["net.ipv4.tcp_sack"] = "0"
        point["phases"][1]["flows"][0]["server_port"] += 1

    other = changed(collected, tmp_path / "run", change)
    assert Comparison([collected], [other], ("a", "b")).notes() == [
        "duration of measurement: 30s in a, 1min in b",
        "forward rate of path: 100mbit in a, 100010kbit in b",
        "forward loss of path: 0.0 in a, 0.0001 in b",
        "sysctls net.ipv4.tcp_sack of sender1, sender2: none in a, 0 in b",
    ]


def test_settings_of_pings_that_differ_are_said(collected: Path, tmp_path: Path) -> None:
    def pinging(interval_ns: int) -> Callable[[dict[str, Any]], None]:
        ping = {"at_ns": 0, "kind": "ping", "name": "probe", "dst": "198.18.2.11", "count": 10}
        action = ping | {"interval_ns": interval_ns}
        return lambda point: point["phases"][1]["hosts"]["sender1"]["actions"].append(action)

    slow = changed(collected, tmp_path / "slow", pinging(10**9))
    fast = changed(collected, tmp_path / "fast", pinging(10**8))
    assert Comparison([slow], [fast], ("slow", "fast")).notes() == [
        "interval of ping probe: 1s in slow, 100ms in fast"
    ]


def setting(to: Path, host: str, name: str, value: str) -> None:
    """A run's host had another setting, all the time."""
    file = to / "raw" / host / "measurement/observed.json"
    observed = json.loads(file.read_text())
    for reading in observed.values():
        reading["settings"][name] = value
    file.write_text(json.dumps(observed))


def sysctl(value: str) -> Callable[[dict[str, Any]], None]:
    """All hosts are asked for a sysctl."""

    def change(point: dict[str, Any]) -> None:
        for host in point["hosts"].values():
            host["state"]["sysctls"]["net.ipv4.tcp_sack"] = value

    return change


def test_what_a_profile_left_behind_is_told_first(collected: Path, tmp_path: Path) -> None:
    """Profile a switches SACK off, b asks for nothing; somebody sets rp_filter between two runs of b."""
    a = changed(collected, tmp_path / "a", sysctl("0"))
    for host in ("sender1", "receiver1"):
        setting(a, host, "net.ipv4.tcp_sack", "0")
    assert Comparison([a], [collected, collected], ("a", "b")).unexplained == []
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    for host in ("sender1", "receiver1"):
        setting(other, host, "net.ipv4.conf.all.rp_filter", "1")
    setting(other, "router", "nftables", "5f2c")
    setting(other, "router", "net.ipv4.tcp_congestion_control", "bbr")
    both = Comparison([a], [collected, other], ("a", "b"))
    assert both.unexplained == [
        "receiver1, sender1 net.ipv4.conf.all.rp_filter: 0 in a, 1 of 2 of b; 1 in 1 of 2 of b",
        "router net.ipv4.tcp_congestion_control: cubic in a, 1 of 2 of b; bbr in 1 of 2 of b",
        "router nftables: none in a, 1 of 2 of b; 5f2c in 1 of 2 of b",
    ]
    text = both.text()
    assert text.startswith(
        "Settings of hosts that differ, and nothing explains it:\n- receiver1, sender1 net"
    )
    assert text.index("rp_filter") < text.index("goodput")
    assert "rp_filter" in both.table().data


def test_what_is_accepted_is_told_among_the_notes(collected: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    setting(other, "router", "nftables", "5f2c")
    setting(other, "router", "service irqbalance", "running")
    some = Comparison([collected], [other], ("a", "b"), ["nft*"])
    assert some.unexplained == ["router service irqbalance: absent in a; running in b"]
    assert some.notes() == ["accepted: router nftables: none in a; 5f2c in b"]
    all_of_it = Comparison([collected], [other], ("a", "b"), ["nftables", "service *"])
    assert all_of_it.unexplained == []
    assert not all_of_it.text().startswith("Settings of hosts")


def test_settings_that_come_with_a_kernel_stand_apart(collected: Path, tmp_path: Path) -> None:
    def kernel(point: dict[str, Any]) -> None:
        point["hosts"]["sender1"]["state"]["kernel"] = "6.18.0"

    other = changed(collected, tmp_path / "new", kernel)
    for name in ("kernel release", "mitigation spectre_v2", "net.ipv4.tcp_plb_enabled"):
        setting(other, "sender1", name, "6.18.0")
    both = Comparison([collected], [other], ("old", "new"))
    assert both.unexplained == []
    assert (
        "settings that come with the kernels, of sender1: kernel release, mitigation spectre_v2, "
        "net.ipv4.tcp_plb_enabled"
    ) in both.notes()


def test_many_settings_of_an_interface_are_told_in_short() -> None:
    many = [f"sit0 feature {i}" for i in range(6)]
    sysctls = [f"net.ipv4.neigh.sit0.{i}" for i in range(7)]
    assert in_short(["kernel release", *many, "vec1 threaded", *sysctls, "net.ipv4.tcp_rmem"]) == [
        "kernel release",
        "6 settings of sit0",
        "vec1 threaded",
        "7 settings of net.ipv4.neigh.sit0.*",
        "net.ipv4.tcp_rmem",
    ]


def test_settings_that_are_gone_are_not_taken_for_equal(collected: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    (other / "raw/router/measurement/observed.json").unlink()
    both = Comparison([collected], [other], ("a", "b"))
    with pytest.raises(ValueError, match=r"b: settings of router not known: observed\.json cannot be read"):
        both.text()


def test_runs_that_kept_no_settings_are_counted(collected: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(collected, tmp_path / "old"))
    plan = json.loads((older / "plan.json").read_text())
    (older / "plan.json").write_text(json.dumps(plan | {"schema_version": 1}))
    assert Comparison([older], [collected], ("a", "b")).notes() == [
        "1 of 1 valid runs of a kept no settings of hosts"
    ]


def test_sides_of_virtual_time_may_run_on_other_kernels_but_each_on_one(
    collected: Path, tmp_path: Path
) -> None:
    def on(kernel: str, name: str, *, virtual: bool = True) -> Path:
        to = Path(shutil.copytree(collected, tmp_path / name))
        plan = json.loads((to / "plan.json").read_text()) | ({"virtual": True} if virtual else {})
        (to / "plan.json").write_text(json.dumps(plan))
        for host in ("sender1", "receiver1"):
            setting(to, host, "kernel release", kernel)
        return to

    old, new = on("6.12.0-x", "old"), on("7.2.0-x", "new")
    assert Comparison([old], [new], ("a", "b")).unexplained == []
    (told,) = Comparison([new], [new, on("6.12.0-x", "again")], ("a", "b")).unexplained
    assert told == ("receiver1, sender1 kernel release: 7.2.0-x in 1 of 2 of b; 6.12.0-x in 1 of 2 of b")
    real = [on("6.12.0-x", "real_old", virtual=False), on("7.2.0-x", "real_new", virtual=False)]
    assert Comparison(real[:1], real[1:], ("a", "b")).unexplained
