"""What points are run with. A worker must have the same checkout, and gets the world if it lacks it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from dumbbell.execution.made_of import digest_of as digest_of_files
from dumbbell.execution.made_of import files_below
from dumbbell.places import IS_WHEEL, PACKAGE
from dumbbell.run.packed import digest_of, pack

_AGENT = ".build/bin/dumbbell-agent"
# What a world's controller and programs are made of; the world itself has a digest of its own.
_OF_CHECKOUT = (
    "src",
    "plugins",
    "playbooks",
    "roles",
    "inventory",
    "vars",
    "ansible.cfg",
    "requirements.lock",
    _AGENT,
)
_PACKED = "packed"  # below .lab: archives of worlds, and marks of those that were unpacked


@dataclass(frozen=True)
class Needs:
    """What a worker must have. Paths are the same on all machines."""

    checkout: Path
    digest: str  # of the checkout
    lab: Path  # directory of worlds, images and kernels
    world: Path  # directory of the world's first files
    parts: tuple[tuple[str, str], ...]  # of the world's archive, below ``lab``: path and version
    archive: str  # digest of the world's archive
    python: str  # program that runs controllers

    @property
    def resource(self) -> str:
        """The name under which workers that have all of this offer their cores to Dask."""
        return f"dumbbell-{self.digest[:12]}-{self.archive[:12]}"

    @property
    def mark(self) -> Path:
        """The file that says that a machine has all parts of the world."""
        return self.lab / _PACKED / self.archive

    def mark_of(self, part: str, version: str) -> Path:
        """The file that says that a machine has a part; worlds of several kernels share most parts."""
        return self.lab / _PACKED / f"{hashlib.sha256(f'{part} {version}'.encode()).hexdigest()[:12]}.part"

    @classmethod
    def of(cls, world: Mapping[str, str], checkout: Path, *, keys: bool) -> tuple[Needs, Path]:
        """What points of this checkout and world need, and the world's archive, which is packed once.

        ``world`` is as :func:`dumbbell.virtual.runs.run` gets it; ``keys`` says whether the hosts' SSH keys
        are needed too, for full worlds.
        """
        folder, init = Path(world["dir"]), Path(world["init"])
        lab = folder.parents[1]
        found = [
            init,
            folder / "hosts",
            folder / "provisioned",
            Path(world["kernel"]).parent,
            _tree(init, lab),
        ]
        found += [lab / "ssh", *sorted((lab / "hosts").glob("*/ssh_host_*"))] if keys else []
        # Directories are named after what they are made of; hosts that are provisioned again are other files.
        parts = tuple((str(part.relative_to(lab)), str(part.stat().st_mtime_ns)) for part in found)
        names = [name for name, _ in parts]
        packed = lab / _PACKED
        packed.mkdir(exist_ok=True)
        archive = packed / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.tar.zst"
        with FileLock(f"{archive}.lock"):
            if not archive.exists():
                part = archive.with_suffix(".part")
                pack(lab, names, part)
                part.rename(archive)
        digest = digest_of(archive)
        needs = cls(checkout, digest_of_checkout(checkout), lab, folder, parts, digest, sys.executable)
        needs.mark.touch()
        return needs, archive


def digest_of_checkout(checkout: Path) -> str:
    """Digest of the names and contents of all files that worlds run, and of the version of Python."""
    tops = [PACKAGE, checkout / _AGENT] if IS_WHEEL else [checkout / name for name in _OF_CHECKOUT]
    files = [file for top in tops for file in ([top] if top.is_file() else files_below(top))]
    return hashlib.sha256(f"{sys.version}\n{digest_of_files(files, checkout)}".encode()).hexdigest()


def _tree(init: Path, lab: Path) -> Path:
    """The hosts' first files, which the world's program names."""
    trees = [path for path in lab.glob("image-*/") if f"/{path.name}\n" in init.read_text()]
    if len(trees) != 1:
        raise OSError(f"{init} names {len(trees)} of the images in {lab}; one is expected")
    return trees[0]
