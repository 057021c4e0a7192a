"""A host's BMC switches it off and on, by simulators of Redfish and IPMI."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playbooks import ansible_playbook, unfolded

PLAYBOOK = "tests/integration/playbooks/bmc.yml"
USER, PASSWORD = "operator", "power"


def play(folder: Path, cycle: bool, **bmc: Any) -> tuple[int, str]:
    """Ask a BMC, or let it switch its host off and on; the exit code and what was said."""
    host = {f"kernel_bmc_{name}": value for name, value in bmc.items()}
    inventory = folder / "hosts.json"
    inventory.write_text(
        json.dumps({"testbed": {"hosts": {"silent": {"ansible_host": "192.0.2.1", **host}}}})
    )
    code, said = ansible_playbook("-i", inventory, PLAYBOOK, "-e", f"cycle={cycle}")
    return code, unfolded(said)


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@pytest.fixture
def ipmi(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """The port of OpenIPMI's simulator, and the file to which it writes what its chassis does."""
    done = tmp_path / "chassis.log"
    chassis = tmp_path / "chassis"
    chassis.write_text(f'#!/bin/sh\nshift\n[ "$1" = set ] && echo "$@" >>{done}\necho power:1\n')
    chassis.chmod(0o755)
    port = free_port(socket.SOCK_DGRAM)
    (tmp_path / "lan.conf").write_text(
        f"""name "silent"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{chassis} 0x20"
  user 2 true "{USER}" "{PASSWORD}" admin 10 none md2 md5 straight
"""
    )
    (tmp_path / "mc.emu").write_text(
        "mc_setbmc 0x20\n"
        "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n"
        "mc_enable 0x20\n"
    )
    simulator = subprocess.Popen(
        ["ipmi_sim", "-n", "-c", tmp_path / "lan.conf", "-f", tmp_path / "mc.emu", "-s", tmp_path],
        stdout=(tmp_path / "said").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield port, done
    finally:
        simulator.kill()
        simulator.wait()


def test_ipmi_switches_off_and_on(ipmi: tuple[int, Path], tmp_path: Path) -> None:
    port, chassis = ipmi
    bmc = {"protocol": "ipmi", "address": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD}
    code, said = play(tmp_path, False, **bmc)
    assert code == 0, said
    assert not chassis.exists()
    code, said = play(tmp_path, True, **bmc)
    assert code == 0, said
    assert "power" in chassis.read_text()


def test_ipmi_with_another_password_is_refused(ipmi: tuple[int, Path], tmp_path: Path) -> None:
    port, chassis = ipmi
    bmc = {"protocol": "ipmi", "address": "127.0.0.1", "port": port, "user": USER, "password": "another"}
    code, said = play(tmp_path, True, **bmc)
    assert code != 0
    assert "another" not in said
    assert not chassis.exists()
