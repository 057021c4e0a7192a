"""The hosts of the virtual lab as tests reach them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dumbbell.ingest.influx import Influx, InfluxTarget
from playbooks import BIN, REPOSITORY

LAB = REPOSITORY / ".lab"
SECRET = LAB / "secrets" / "influxdb_admin"
INFLUXDB_PORT = 8086


@dataclass(frozen=True)
class Lab:
    """Addresses of a lab's hosts by name, and where its keys are."""

    addresses: dict[str, str]
    dir: Path = LAB

    @classmethod
    def of_inventory(cls) -> Self:
        """The lab of Ansible's inventory."""
        listed = subprocess.run(
            [BIN / "ansible-inventory", "--list"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        hosts = json.loads(listed.stdout)["_meta"]["hostvars"]
        return cls({name: found["ansible_host"] for name, found in hosts.items() if "ansible_host" in found})

    def run(
        self, host: str, command: str, stdin: bytes = b"", timeout_s: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """A command on a host; the host's key must be the one that the lab gave it."""
        return subprocess.run(
            [
                *("ssh", "-F", "none", "-i", self.dir / "ssh" / "id_ed25519"),
                *("-o", f"UserKnownHostsFile={self.dir}/ssh/known_hosts", "-o", "StrictHostKeyChecking=yes"),
                *("-o", "BatchMode=yes", "-o", "ConnectTimeout=60", f"root@{self.addresses[host]}", command),
            ],
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )

    def ssh(self, host: str, command: str, stdin: bytes = b"", timeout_s: float = 120) -> str:
        """Output of a command that succeeds."""
        done = self.run(host, command, stdin, timeout_s)
        assert done.returncode == 0, f"{host}: {command}: {done.stderr.decode()}"
        return done.stdout.decode()

    def holder(self, host: str) -> str:
        """Id of the run that has a host; '' for none."""
        lock = "/var/lib/dumbbell/runs/lock.json"
        found = self.ssh(host, f"test ! -e {lock} || cat {lock}")
        return str(json.loads(found)["run_id"]) if found else ""

    def influx(self) -> Influx:
        """The InfluxDB of the host `archive`."""
        url = f"http://{self.addresses['archive']}:{INFLUXDB_PORT}"
        return Influx(InfluxTarget(url, "dumbbell", "admin", SECRET.read_text().strip()))
