"""The hosts of the virtual lab as tests reach them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dumbbell.store.influx import Influx, InfluxTarget
from playbooks import REPOSITORY

LAB = REPOSITORY / ".lab"
SECRET = LAB / "secrets" / "influxdb_admin"
INFLUXDB_PORT = 8086


@dataclass(frozen=True)
class Lab:
    """Addresses of a lab's hosts by name, and where its keys are."""

    addresses: dict[str, str]
    dir: Path = LAB

    def ssh(self, host: str, command: str) -> str:
        """Output of a command on a host; the host's key must be the one that the lab gave it."""
        done = subprocess.run(
            [
                *("ssh", "-F", "none", "-i", self.dir / "ssh" / "id_ed25519"),
                *("-o", f"UserKnownHostsFile={self.dir}/ssh/known_hosts", "-o", "StrictHostKeyChecking=yes"),
                *("-o", "BatchMode=yes", "-o", "ConnectTimeout=60", f"root@{self.addresses[host]}", command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{host}: {command}: {done.stderr}"
        return done.stdout

    def influx(self) -> Influx:
        """The InfluxDB of the host `archive`."""
        url = f"http://{self.addresses['archive']}:{INFLUXDB_PORT}"
        return Influx(InfluxTarget(url, "dumbbell", "admin", SECRET.read_text().strip()))
