"""``fab stop``: end a run on its hosts."""

from __future__ import annotations

import shlex
from pathlib import Path

from dumbbell.cli.status import opened


def command(run: Path, inventory: str) -> str:
    """The command of a shell that ends a run."""
    run_dir = shlex.quote(str(opened(run).dir))
    return f"ansible-playbook -i {shlex.quote(inventory)} playbooks/stop.yml -e run={run_dir}"
