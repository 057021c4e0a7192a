"""A kernel module that the hosts of some worlds have in addition, without being provisioned again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dumbbell.places import COLLECTION

ADDED = Path("/run/modules")  # in a world: laid over the kernel's modules by roles/lab/templates/world.sh.j2


def layer(source: Path, world: Mapping[str, Any], checkout: Path) -> Path:
    """Build a module for the kernel of a world; the files that it adds to ``/lib/modules/RELEASE``.

    ``world`` has ``kernel`` and ``provisioned``, as :func:`dumbbell.virtual.runs.run` takes them. What was
    built of the same source is used again. ValueError with the compiler's words if it does not build.
    """
    kernel = Path(world["kernel"]).parent
    release = (kernel / "release").read_text().strip()
    home, scripts = checkout / ".build", COLLECTION / "roles" / "modules" / "files"
    identity = _run(["sh", str(scripts / "source_id.sh"), str(source)])
    made = home / "modules" / "worlds" / f"{source.name}-{release}-{identity}"
    if made.exists():
        return made
    built = home / "modules" / f"{source.name}-{release}-{identity}.ko"
    _run(["sh", str(scripts / "build.sh"), *map(str, (source, release, built, home / "kernels"))])
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as work:
        place = Path(work, "lib", "modules", release)
        shutil.copytree(kernel / "modules", place, symlinks=True)
        # All hosts have the same ones; they stay where they are, and are in the lists of what there is.
        for updates in Path(world["provisioned"]).glob(f"*/usr/lib/modules/{release}/updates"):
            shutil.copytree(updates, place / "updates", dirs_exist_ok=True)
        (place / "updates").mkdir(exist_ok=True)
        shutil.copy(built, place / "updates" / f"{source.name}.ko")
        _run(["depmod", "--basedir", work, release])
        new = Path(work, "new")
        (new / "updates").mkdir(parents=True)
        shutil.copy(built, new / "updates" / f"{source.name}.ko")
        for file in place.glob("modules.*"):
            shutil.copy(file, new)
        if not made.exists():  # another run may have made it meanwhile
            new.rename(made)
    return made


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise ValueError(f"{command[-1] if command[0] == 'depmod' else command[2]}: {said}")
    return done.stdout.strip()
