"""Where Dumbbell's own files are, and where it keeps what it makes."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent
_SHIPPED = PACKAGE / "shipped"  # only wheels have it
IS_WHEEL = _SHIPPED.is_dir()
# The checkout, or a wheel's part of it, in which nothing is written.
REPOSITORY = _SHIPPED if IS_WHEEL else PACKAGE.parents[1]
# Ansible's part of it: roles, plugins and playbooks.
COLLECTION = REPOSITORY / "ansible_collections" / "dumbbell" / "testbed"
# Has .build, .lab and results: the checkout, or of a wheel the directory in which the program was started.
HOME = Path.cwd() if IS_WHEEL else REPOSITORY


def known(path: str | Path, folder: str = "") -> Path:
    """A file as the user named it: one that is here, or one of Dumbbell's, as the scenario ``one_flow``.

    The path itself if there is none, for an error to name.
    """
    places = (Path(path), REPOSITORY / path, REPOSITORY / folder / f"{path}.yml")
    return next((place for place in places if place.exists()), Path(path))


def playbook(command: str) -> str:
    """The name of a command's playbook for ``ansible-playbook``; that of a checkout is relative to it."""
    name = command.replace("-", "_")
    return f"dumbbell.testbed.{name}" if IS_WHEEL else f"playbooks/{name}.yml"
