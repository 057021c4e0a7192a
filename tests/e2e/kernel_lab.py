"""A lab with a host of each machine kind, whose kernels and modules a test chooses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import Lab
from ruamel.yaml import YAML

from playbooks import REPOSITORY, ansible_playbook, unfolded

# Disks and keys of its own.
LAB = REPOSITORY / ".lab" / "kernel-tests"
ADDRESSES = {"uml1": "198.19.10.11", "qemu1": "198.19.10.12"}
TIMEOUT_S = 3600
BOOT_S = 240
COLLECTORS_NEED = "nftables"


@dataclass
class Result:
    """What a playbook said, with runs of white space as one space, and changes by host."""

    code: int
    said: str
    changed: dict[str, int]


@dataclass
class KernelLab:
    """The hosts, and the inventory as it stands."""

    folder: Path
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def playbook(self, name: str, *arguments: str) -> Result:
        """Run a playbook as users do, with the variables of `hosts` in the inventory."""
        inventory = self.folder / "hosts.json"
        inventory.write_text(json.dumps(self.inventory(), indent=2))
        code, said = ansible_playbook("--inventory", inventory, name, *arguments, timeout_s=TIMEOUT_S)
        recap = [line.split() for line in said.rpartition("PLAY RECAP")[2].splitlines() if "ok=" in line]
        changed = {words[0]: int(next(w for w in words if w.startswith("changed="))[8:]) for words in recap}
        return Result(code, unfolded(said), changed)

    def inventory(self) -> dict[str, Any]:
        known = f"-o UserKnownHostsFile={LAB}/ssh/known_hosts -o StrictHostKeyChecking=yes"
        connection = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": f"{LAB}/ssh/id_ed25519",
            "ansible_ssh_common_args": known,
            "management_interface": "vec0",
            "experiment_interfaces": {},
            "kernel_boot_method": "lab",
            "kernel_boot_timeout": BOOT_S,
            "modules_build_method": "controller",
            "modules_build_dir": f"{REPOSITORY}/.build/modules",
            "modules_kernels_dir": f"{REPOSITORY}/.build/kernels",
        }
        hosts = {name: {"ansible_host": ADDRESSES[name], **own} for name, own in self.hosts.items()}
        return {
            "all": {
                "vars": {
                    "lab_name": "kernlab",
                    "lab_dir": str(LAB),
                    "lab_controller_address": "198.19.10.1/24",
                    "lab_image_packages": [*lab_image_packages(), COLLECTORS_NEED],
                },
                "children": {
                    "testbed": {"hosts": hosts, "vars": connection},
                    "controllers": {"hosts": {"localhost": {"ansible_connection": "local"}}},
                },
            }
        }

    def name_kernels(self, kernels: dict[str, str]) -> None:
        """Change the one line of each host."""
        for host, kernel in kernels.items():
            self.hosts[host]["kernel_image"] = kernel

    def ssh(self, host: str, command: str, stdin: bytes = b"", timeout_s: float = 120) -> str:
        return Lab(ADDRESSES, LAB).ssh(host, command, stdin, timeout_s).strip()

    def releases(self) -> dict[str, str]:
        return {host: self.ssh(host, "uname -r") for host in self.hosts}


def lab_image_packages() -> list[str]:
    """What the image of a lab has by default."""
    defaults = YAML(typ="safe").load(REPOSITORY / "roles" / "lab" / "defaults" / "main.yml")
    return list(defaults["lab_image_packages"])


def release(kernel: str) -> str:
    """What `uname -r` says of a kernel that the lab has made ready."""
    if kernel.endswith(".yml"):
        (deb,) = (REPOSITORY / ".build" / "kernels" / Path(kernel).stem).glob("linux-image-*.deb")
        return deb.name.removeprefix("linux-image-").partition("_")[0]
    return (LAB / "kernels" / kernel / "release").read_text().strip()
