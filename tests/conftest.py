from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from lab import INFLUXDB_PORT, SECRET, Lab
from synthetic import write_run

from playbooks import BIN, REPOSITORY


@pytest.fixture(scope="session")
def _synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("results") / "run"
    write_run(run_dir)
    return run_dir


@pytest.fixture
def run_dir(_synthetic: Path, tmp_path: Path) -> Path:
    """A synthetic run directory, as it comes home; a test may damage it."""
    return Path(shutil.copytree(_synthetic, tmp_path / "run"))


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab of Ansible's inventory, which ``make provision`` has brought up."""
    listed = subprocess.run(
        [BIN / "ansible-inventory", "--list"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    hosts = json.loads(listed.stdout)["_meta"]["hostvars"]
    addresses = {name: found["ansible_host"] for name, found in hosts.items() if "ansible_host" in found}
    wanted = [(name, 22) for name in addresses] + [("archive", INFLUXDB_PORT)]
    silent = [why for name, port in wanted if (why := unreachable(name, addresses[name], port))]
    if not SECRET.exists():
        silent.append("InfluxDB has no accounts yet")
    if silent:
        pytest.fail(f"The lab is not up: run make provision. {'; '.join(silent)}", pytrace=False)
    return Lab(addresses)


def unreachable(name: str, address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), timeout=10).close()
    except OSError as error:
        return f"{name} ({address} port {port}): {error}"
    return ""
