"""What is kept of an inventory, and when Ansible is asked again."""

import shutil
from pathlib import Path

import pytest

from dumbbell import inventory
from dumbbell.inventory import Inventory

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the lab's inventory, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)
    copy = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventory/lab", copy)
    return copy


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every inventory that Ansible itself was asked for."""
    paths: list[Path] = []
    listed = Inventory._listed

    def count(path: Path) -> Inventory:
        paths.append(path)
        return listed(path)

    monkeypatch.setattr(inventory.Inventory, "_listed", count)
    return paths


def test_ansible_is_asked_once(lab: Path, asked: list[Path]) -> None:
    first = Inventory.read(lab)
    assert Inventory.read(lab) == first
    assert len(asked) == 1


def test_a_changed_file_is_read_again(lab: Path, asked: list[Path]) -> None:
    before = Inventory.read(lab)
    hosts = lab / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("sender2", "sender9"))
    after = Inventory.read(lab)
    assert "sender2" in before.hosts
    assert "sender9" in after.hosts
    assert len(asked) == 2


def test_variables_beside_a_file_count(lab: Path, asked: list[Path]) -> None:
    path = lab / "hosts.yml"
    Inventory.read(path)
    (lab / "group_vars/testbed.yml").write_text("lab_machine: vtime\n")
    assert Inventory.read(path).virtual
    assert len(asked) == 2


def test_variables_behind_a_link_count(lab: Path, asked: list[Path]) -> None:
    (lab / "group_vars").rename(lab.parent / "elsewhere")
    (lab / "group_vars").symlink_to(lab.parent / "elsewhere")
    Inventory.read(lab)
    (lab.parent / "elsewhere/testbed.yml").write_text("lab_machine: vtime\n")
    assert Inventory.read(lab).virtual
    assert len(asked) == 2


@pytest.mark.parametrize("kind", ["script", "plugin"])
def test_what_may_answer_otherwise_is_always_asked(lab: Path, asked: list[Path], kind: str) -> None:
    if kind == "script":
        script = lab / "more.sh"
        script.write_text("#!/bin/sh\necho '{}'\n")
        script.chmod(0o755)
    else:
        (lab / "constructed.yml").write_text("plugin: ansible.builtin.constructed\nstrict: false\n")
    Inventory.read(lab)
    Inventory.read(lab)
    assert len(asked) == 2


def test_no_secret_is_kept(lab: Path, tmp_path: Path) -> None:
    (lab / "group_vars/all/secret.yml").write_text("influxdb_password: hunter2\n")
    Inventory.read(lab)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    assert "hunter2" not in kept.read_text()


def test_a_cache_that_is_broken_is_not_read(lab: Path, tmp_path: Path, asked: list[Path]) -> None:
    first = Inventory.read(lab)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_text(kept.read_text()[:40])
    assert Inventory.read(lab) == first
    assert len(asked) == 2
