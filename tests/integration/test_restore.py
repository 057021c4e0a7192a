"""What one command could not return is returned by the next restore, and holds up nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from playbooks import BIN, REPOSITORY

# It fails once, and then does as the real one: it writes the menu. How old the menu is, is told by no clock,
# which may be set meanwhile.
UPDATE_GRUB = """\
#!/bin/sh
rm {dir}/broken 2>/dev/null && {{ touch --date=2000-01-01 {dir}/grub.cfg; echo "no space left" >&2; exit 1; }}
echo made >{dir}/grub.cfg
touch --date=2100-01-01 {dir}/grub.cfg
"""
# Where nothing is but what the playbook writes; gone with the process.
APART = """\
set -e
mkdir -p /var/lib/dumbbell
for place in /var/lib/dumbbell /etc/default; do mount -t tmpfs none "$place"; done
mkdir /etc/default/grub.d
touch "$MENU"
exec "$@"
"""


def test_a_restore_that_failed_is_completed_by_the_next(tmp_path: Path) -> None:
    update = tmp_path / "bin/update-grub"
    update.parent.mkdir()
    update.write_text(UPDATE_GRUB.format(dir=tmp_path))
    update.chmod(0o755)
    (tmp_path / "broken").touch()
    (tmp_path / "hosts").write_text("as found")
    playbook = [str(BIN / "ansible-playbook"), "-i", "localhost,", "tests/integration/playbooks/restore.yml"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", APART, "sh", *playbook, "-e", f"dir={tmp_path}"],
        cwd=REPOSITORY,
        env=os.environ
        | {
            "ANSIBLE_NOCOLOR": "1",
            "MENU": f"{tmp_path}/grub.cfg",
            "PATH": f"{update.parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    first, second, third = json.loads((tmp_path / "returned.json").read_text())
    menu = f"menu {tmp_path}/grub.cfg"
    assert first["failed"]
    assert first["msg"].startswith(f"not returned: {menu}: was True, is False; `update-grub`: no space left")
    assert "hosts" not in first["msg"]
    assert (tmp_path / "hosts").read_text() == "as found"
    assert not (tmp_path / "etc").exists()
    # Data stays, with the directories around it.
    assert set(first["kept"]) == {f"directory {tmp_path}/runs", f"directory {tmp_path}/runs/of_others"}
    assert (tmp_path / "runs/of_others/data").read_text() == "changed"
    assert second["commands"] == ["update-grub"]
    assert list(second["after"]) == [menu]
    assert (tmp_path / "grub.cfg").read_text() == "made\n"
    assert (third["changed"], third["commands"]) == (False, [])
