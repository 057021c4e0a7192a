"""The archive of the collection, installed where there is no checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from ansible.module_utils.common.yaml import yaml_load

from playbooks import BIN, REPOSITORY, switched_off, unfolded

COLLECTION = REPOSITORY / "ansible_collections/dumbbell/testbed"
PLAYBOOKS = sorted(file.stem for file in (REPOSITORY / "playbooks").glob("*.yml"))
SITE = """
- name: Configure the testbed
  ansible.builtin.import_playbook: dumbbell.testbed.provision
"""
ROLE = """
- name: Packages
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Install what is there
      ansible.builtin.include_role:
        name: dumbbell.testbed.packages
      vars:
        packages_present: [coreutils]
        packages_recorded: PACKAGES_RECORDED
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the collection below ``collections``, and an inventory."""
    make = ("make", "--no-print-directory", "--old-file=setup", "collection")
    subprocess.run(make, cwd=REPOSITORY, env=_environment(), check=True)
    (archive,) = (REPOSITORY / ".build").glob("dumbbell-testbed-*.tar.gz")
    made = tmp_path_factory.mktemp("installed")
    install = ("ansible-galaxy", "collection", "install", "--offline", "--collections-path", "collections")
    assert ran(made, *install, archive)[0] == 0
    switched_off(made / "inventory")
    return made


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}


def ran(place: Path, *words: str | Path) -> tuple[int, str]:
    """Exit status and output of one of Ansible's programs in a directory, which has no ansible.cfg."""
    done = subprocess.run(
        words,
        cwd=place,
        env=_environment() | {"ANSIBLE_COLLECTIONS_PATH": str(place / "collections")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_is_found_with_all_that_it_names(place: Path, name: str) -> None:
    asked = ("ansible-playbook", "--inventory", "inventory", "--syntax-check", f"dumbbell.testbed.{name}")
    code, said = ran(place, *asked)
    assert code == 0, said
    assert str(place / "collections") in said


def test_a_playbook_of_three_lines_provisions(place: Path) -> None:
    (place / "site.yml").write_text(SITE)
    code, said = ran(place, "ansible-playbook", "--inventory", "inventory", "--list-tasks", "site.yml")
    assert code == 0, said
    assert "Run the roles" in said
    code, said = ran(place, "ansible-playbook", "-i", "inventory", "site.yml")
    assert code != 0
    assert "sender1, sender2, receiver1, receiver2, router, archive do not answer by SSH" in unfolded(said)


@pytest.mark.parametrize(
    ("recorded", "said"), [("false", "changed=0 "), ("maybe", "argument 'packages_recorded' is of type str")]
)
def test_a_role_checks_its_arguments_and_works_in_check_mode(place: Path, recorded: str, said: str) -> None:
    (place / "role.yml").write_text(ROLE.replace("PACKAGES_RECORDED", recorded))
    code, told = ran(place, "ansible-playbook", "--check", "role.yml")
    assert (code == 0, said in unfolded(told)) == (recorded == "false", True), told


@pytest.mark.parametrize("kind", ["module", "lookup", "filter", "callback"])
def test_plugins_are_documented(place: Path, kind: str) -> None:
    listed = json.loads(ran(place, "ansible-doc", "--list", "--json", "-t", kind, "dumbbell.testbed")[1])
    assert listed
    code, said = ran(place, "ansible-doc", "--json", "-t", kind, *listed)
    assert code == 0, said
    assert json.loads(said).keys() == listed.keys()


def test_another_version_of_the_package_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "collections", tmp_path / "collections")
    manifest = tmp_path / "collections/ansible_collections/dumbbell/testbed/MANIFEST.json"
    told = json.loads(manifest.read_text())
    told["collection_info"]["version"] = "9.8.7"
    manifest.write_text(json.dumps(told))
    code, said = ran(tmp_path, "ansible-playbook", "dumbbell.testbed.validate_inventory")
    assert code != 0
    assert "The collection dumbbell.testbed 9.8.7 needs the Python package dumbbell 9.8.7" in said
    assert "Traceback" not in said


def test_collection_and_package_have_one_version() -> None:
    package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert yaml_load((COLLECTION / "galaxy.yml").read_text())["version"] == package["version"]
    (ansible,) = (need for need in package["dependencies"] if need.startswith("ansible-core"))
    asked = yaml_load((COLLECTION / "meta/runtime.yml").read_text())["requires_ansible"]
    assert asked.replace(".0,", ",").removesuffix(".0") == ansible.removeprefix("ansible-core")
