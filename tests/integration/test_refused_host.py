"""A host of an unsupported distribution is refused by name before anything is done to any host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from playbooks import BIN, REPOSITORY, unfolded

FEDORA = 'ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42 (Forty Two)"\n'
# Another distribution's file in place of this machine's; gone with the process.
APART = 'mount --bind "$OTHER" /etc/os-release && exec "$@"'


def provision(inventory: Path, *command: str, **environment: str) -> str:
    playbook = [str(BIN / "ansible-playbook"), "-i", str(inventory), "playbooks/provision.yml", "--check"]
    done = subprocess.run(
        [*command, *playbook],
        cwd=REPOSITORY,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode != 0
    return unfolded(done.stdout + done.stderr)


def test_it_is_refused_by_name(tmp_path: Path) -> None:
    other = tmp_path / "os-release"
    other.write_text(FEDORA)
    hosts = (REPOSITORY / "inventory/lab/hosts.yml").read_text()
    groups = tmp_path / "group_vars"
    groups.mkdir()
    (groups / "all.yml").write_text("{influxdb_url: null, influxdb_database: null}\n")
    (groups / "routers.yml").write_text("sysctl_settings: {net.ipv4.ip_forward: 1}\n")
    (groups / "testbed.yml").write_text(
        "ansible_connection: local\nmanagement_interface: lo\nexperiment_interfaces: {}\n"
    )
    for name, to, via in (("senders", 2, 1), ("receivers", 1, 2)):
        (groups / f"{name}.yml").write_text(
            f"experiment_routes: [{{to: 198.18.{to}.0/24, via: 198.18.{via}.1}}]\n"
        )
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(hosts)
    said = provision(inventory, "unshare", "--mount", "sh", "-c", APART, "sh", OTHER=str(other))
    assert "nothing was changed:" in said
    assert (
        "receiver1: found Fedora Linux 42 (Forty Two); supported are Debian 12 and 13, Ubuntu 22.04 and "
        "24.04, RHEL 9 and its rebuilds"
    ) in said
    assert "PLAY [Kernel" not in said
    assert "changed=0" in said
