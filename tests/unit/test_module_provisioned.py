"""Whether a host is as its last provisioning left it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest_modules import baseline, provisioned

Setting = baseline.Setting
PACKAGES = ("dpkg",)


def execute(command: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Host:
    """A record of a file and a directory that a provisioning made."""

    def __init__(self, root: Path) -> None:
        self.place, self.file, self.directory = root / "record", root / "agent.conf", root / "runs"
        kinds = {"file": self.file, "directory": self.directory}
        made = [Setting(kind, str(path)) for kind, path in kinds.items()]
        baseline.record([*made, Setting("sysctl", "net.x")], lambda _: None, self.place)
        self.file.write_text("one")
        self.directory.mkdir()
        provisioned.record("inputs", PACKAGES, execute, self.place)

    def differs(self, inputs: str = "inputs", packages: tuple[str, ...] = PACKAGES) -> list[str]:
        found = provisioned.differs(inputs, packages, execute, self.place)
        return [name.replace(f"{self.place.parent}/", "") for name in found]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_is_as_it_was_left(host: Host) -> None:
    assert host.differs() == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda host: host.file.write_text("two"), "file agent.conf"),
        (lambda host: host.file.chmod(0o600), "file agent.conf"),
        (lambda host: host.file.unlink(), "file agent.conf"),
        (lambda host: host.directory.rmdir(), "directory runs"),
        (
            lambda host: (host.place / "provisioned.json").unlink(),
            "no provisioning of it has come to its end",
        ),
        (lambda host: baseline.save({}, host.place), "no provisioning of it has come to its end"),
    ],
)
def test_what_somebody_changed_is_named(host: Host, change: Callable[[Host], object], name: str) -> None:
    change(host)
    assert host.differs() == [name]


def test_a_provisioning_that_is_made_from_something_else_is_not_the_same(host: Host) -> None:
    assert host.differs(inputs="others") == ["what provisioning is made from"]


def test_a_package_that_is_asked_and_was_not_there_is_named(host: Host) -> None:
    assert host.differs(packages=("dpkg", "apt")) == ["package apt"]
    provisioned.record("inputs", ("dpkg", "apt", "not-there"), execute, host.place)
    assert host.differs(packages=("dpkg",)) == ["package apt"]
