"""The Python package `dumbbell`, which the collection's plugins use on the controller."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ansible.errors import AnsibleCollectionUnsupportedVersionError
from ansible.module_utils.common.yaml import yaml_load


def require() -> None:
    """An error of Ansible unless its Python has the package, in the version of the collection."""
    wanted = _version(Path(__file__).parents[2])
    try:
        found = version("dumbbell")
    except PackageNotFoundError:
        found = ""
    if found != wanted:
        # The only error that Ansible does not replace by one that says that there is no such action.
        raise AnsibleCollectionUnsupportedVersionError(
            f"The collection dumbbell.testbed {wanted} needs the Python package dumbbell {wanted} beside "
            f"ansible-core, and found {found or 'none'}: pip install dumbbell-{wanted}-py3-none-any.whl"
        )


def below(place: str, paths: Iterable[str]) -> list[str]:
    """Absolute paths of relative ones below a place of dumbbell.places."""
    require()
    from dumbbell import places  # noqa: PLC0415  without the package, the line above says so

    return [str(getattr(places, place) / path) for path in paths]


def _version(collection: Path) -> str:
    """As the archive of the collection says, or else the tree that archives are built of."""
    manifest = collection / "MANIFEST.json"
    if manifest.exists():
        return str(json.loads(manifest.read_bytes())["collection_info"]["version"])
    return str(yaml_load((collection / "galaxy.yml").read_bytes())["version"])
