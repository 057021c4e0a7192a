"""``fab stop``: end a run on its hosts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from dumbbell.cli.status import opened
from dumbbell.places import playbook


def command(run: Path, inventory: Path) -> str:
    """The command of a shell that ends a run."""
    run_dir = shlex.quote(str(opened(run).dir))
    program = shlex.quote(str(Path(sys.executable).with_name("ansible-playbook")))
    return f"{program} -i {shlex.quote(str(inventory))} {playbook('stop')} -e run={run_dir}"
