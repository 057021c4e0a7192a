"""Roles run again where, and only where, something is not as they left it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from dumbbell.execution.made_of import INVENTORY
from playbooks import BIN, REPOSITORY

# Where nothing is recorded but what the playbook records; gone with the process.
APART = """\
set -e
mkdir -p /var/lib/dumbbell
mount -t tmpfs none /var/lib/dumbbell
exec "$@"
"""
NEVER = "no provisioning of it has come to its end"


def test_what_is_not_as_roles_left_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "etc/agent.conf"
    file.parent.mkdir()
    file.write_text("as left")
    playbook = [
        str(BIN / "ansible-playbook"),
        "-i",
        "localhost,",
        "tests/integration/playbooks/provisioned.yml",
    ]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", APART, "sh", *playbook, "-e", f"dir={tmp_path}"],
        cwd=REPOSITORY,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "differs.json").read_text()) == [
        [NEVER],
        [],
        [INVENTORY],
        [f"file {file}"],
        [NEVER],
        [],
        [NEVER],
    ]
