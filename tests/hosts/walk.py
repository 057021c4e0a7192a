"""Follow docs/physical-testbed.md, by its own commands, on hosts of the lab as an installer leaves them."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pexpect
from documented import blocks

from playbooks import REPOSITORY, ansible_playbook, unfolded

PAGE = "docs/physical-testbed.md"
LAB = REPOSITORY / ".lab" / "hosts-tests"
NAME = "dbhosts"
CONTROLLER = "198.19.20.1/24"
# Debian release, who configures the network, and networks beside the one for management.
HOSTS: dict[str, tuple[str, str, str, list[str]]] = {
    "router": ("198.19.20.2", "bookworm", "ifupdown", ["left", "right"]),
    "archive": ("198.19.20.3", "trixie", "networkd", []),
    "sender": ("198.19.20.11", "trixie", "networkd", ["left"]),
    "receiver": ("198.19.20.21", "bookworm", "ifupdown", ["right"]),
}
ADDRESSES = {name: address for name, (address, *_) in HOSTS.items()}
MEMORY = {"archive": "768M"}
NICS = ("enp0s16", "enp0s17", "enp0s18")  # management first
TIMEOUT_S = 3600

# The addresses of the page, and those here, where the page lists them.
PAGE_LIST = "192.0.2.{2,3,11,12,13,21,22,23}"
PAGE_HOSTS = "192.0.2.2,192.0.2.3,192.0.2.11,192.0.2.12,192.0.2.21,192.0.2.22,"
PAGE_HOST = "192.0.2.11"  # of a command "for each host"


def commands() -> list[str]:
    """Every command of the page, in order."""
    return [command for block in blocks(PAGE) if block.kind for command in block.commands()]


def lab_inventory() -> dict[str, Any]:
    """The hosts, as the lab boots them."""
    hosts = {}
    for i, (name, (address, release, network, sides)) in enumerate(HOSTS.items()):
        hosts[name] = {
            "ansible_host": address,
            "lab_installed": release,
            "lab_installed_network": network,
            "lab_core": i,
            "lab_memory": MEMORY.get(name, "640M"),
            "management_interface": NICS[0],
            # The lab needs of each NIC only the network to which it is plugged.
            "experiment_interfaces": {
                side: {"device": nic} for side, nic in zip(sides, NICS[1:], strict=False)
            },
        }
    common = {
        "lab_name": NAME,
        "lab_dir": str(LAB),
        "lab_controller_address": CONTROLLER,
        "lab_machine": "qemu",
        "lab_nice": int(os.environ.get("LAB_NICE", "-15")),
    }
    return {
        "all": {
            "vars": common,
            "children": {
                "testbed": {"hosts": hosts},
                "controllers": {"hosts": {"localhost": {"ansible_connection": "local"}}},
            },
        }
    }


@dataclass
class Walk:
    """A person at the controller, with a home and an inventory directory of their own."""

    home: Path
    inventory: Path
    password: str
    environment: dict[str, str] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)

    def adapted(self, block: str) -> str:
        """A block of the page with this testbed's addresses and inventory."""
        tails = ",".join(address.rpartition(".")[2] for address in ADDRESSES.values())
        network = CONTROLLER.rpartition(".")[0]
        block = block.replace(PAGE_LIST, f"{network}.{{{tails}}}")
        block = block.replace(PAGE_HOSTS, "".join(f"{address}," for address in ADDRESSES.values()))
        return block.replace("inventory/mine", shlex.quote(str(self.inventory)))

    def run(self, block: str, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
        """Run a block on a terminal, with the password where it is asked; the exit code and what was said."""
        said = io.StringIO()
        shell = pexpect.spawn(
            "bash",
            ["-euo", "pipefail", "-c", self.adapted(block)],
            cwd=str(REPOSITORY),
            env={**os.environ, "HOME": str(self.home), "ANSIBLE_NOCOLOR": "1", **self.environment},
            encoding="utf-8",
            codec_errors="replace",
            timeout=timeout_s,
            searchwindowsize=200,
            dimensions=(50, 200),
        )
        shell.logfile_read = said
        while shell.expect([r"(?i)password[^\n]*: ?$", r"(?i)passphrase[^\n]*: ?$", pexpect.EOF]) < 2:
            shell.sendline(self.password if "assword" in str(shell.match.group()) else "")
        shell.close()
        return shell.exitstatus if shell.exitstatus is not None else 1, said.getvalue()

    def follow(self, containing: str, for_host: str = "") -> tuple[int, str]:
        """Run the one command of the page that matches a pattern, for a host if it is one for each."""
        (command,) = [each for each in commands() if re.search(containing, each)]
        self.followed.add(command)
        return self.run(command.replace(PAGE_HOST, ADDRESSES[for_host]) if for_host else command)

    def ssh(self, host: str, command: str) -> str:
        """Output of a command as root, which is possible once the keys are there."""
        done = subprocess.run(
            [
                *("ssh", "-F", "none", "-i", self.home / ".ssh" / "testbed", "-o", "BatchMode=yes"),
                *(
                    "-o",
                    f"UserKnownHostsFile={self.inventory}/known_hosts",
                    "-o",
                    "StrictHostKeyChecking=yes",
                ),
                *(f"root@{ADDRESSES[host]}", command),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{host}: {command}: {done.stderr}"
        return done.stdout


def write_lab(folder: Path) -> Path:
    """The lab's inventory."""
    LAB.mkdir(mode=0o700, parents=True, exist_ok=True)
    inventory = folder / "lab.json"
    inventory.write_text(json.dumps(lab_inventory(), indent=2))
    return inventory


def boot(inventory: Path) -> None:
    code, said = ansible_playbook("--inventory", inventory, "playbooks/lab_up.yml", timeout_s=TIMEOUT_S)
    assert code == 0, unfolded(said)[-4000:]


def down(inventory: Path) -> None:
    code, said = ansible_playbook("--inventory", inventory, "playbooks/lab_down.yml", timeout_s=TIMEOUT_S)
    assert code == 0, unfolded(said)[-4000:]
