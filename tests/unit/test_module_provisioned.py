"""Whether a host is as its roles left it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import baseline, clock, provisioned

Setting = baseline.Setting
PACKAGES = ("chrony",)
MADE_OF = {"role agent": "1", "kernel": "6.12"}
UNIT = {"chrony": ("active", "enabled"), "telegraf": ("active", "enabled")}


class Host:
    """What roles made; of units and packages it tells what is said here."""

    def __init__(self, root: Path) -> None:
        self.place, self.file, self.directory = root / "record", root / "etc/agent.conf", root / "runs"
        self.units, self.packages = dict(UNIT), {"chrony": "ii 4.3"}
        self.user = "daemon"
        made = [
            Setting("file", str(self.file)),
            Setting("directory", str(self.directory)),
            Setting("user", self.user),
            *(Setting("service", name) for name in UNIT),
        ]
        baseline.record([*made, Setting("sysctl", "net.x")], lambda _: None, self.place)
        self.file.parent.mkdir()
        self.file.write_text("one")
        self.directory.mkdir()
        self.record()

    def record(self) -> None:
        provisioned.record(MADE_OF, PACKAGES, self.execute, self.place)

    def execute(self, command: list[str]) -> tuple[int, str, str]:
        """As systemctl and dpkg-query tell."""
        tool, *_ = command
        if tool == "systemctl":
            states = [self.units[name] for name in command[3:]]
            said = [f"ActiveState={active}\nUnitFileState={enabled}\n" for active, enabled in states]
            return 0, "\n".join(said), ""
        assert tool == "dpkg-query"
        lines = [f"{name} {self.packages[name]}\n" for name in command[3:] if name in self.packages]
        return 0, "".join(lines), ""

    def differs(
        self, made_of: dict[str, str] | None = None, packages: tuple[str, ...] = PACKAGES
    ) -> list[str]:
        found = provisioned.differs(made_of or MADE_OF, packages, self.execute, self.place)
        return [name.replace(f"{self.place.parent}/", "") for name in found]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_is_as_it_was_left(host: Host) -> None:
    assert host.differs() == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda host: host.file.write_text("two"), "file etc/agent.conf"),
        (lambda host: host.file.chmod(0o600), "file etc/agent.conf"),
        (lambda host: host.file.unlink(), "file etc/agent.conf"),
        (lambda host: host.file.parent.chmod(0o700), "directory etc"),
        (lambda host: host.directory.rmdir(), "directory runs"),
        (lambda host: host.directory.chmod(0o700), "directory runs"),
        (lambda host: host.units.update(telegraf=("inactive", "enabled")), "service telegraf"),
        (lambda host: host.units.update(telegraf=("active", "disabled")), "service telegraf"),
        (lambda host: host.packages.clear(), "package chrony"),
        (lambda host: host.packages.update(chrony="rc 4.3"), "package chrony"),
        (lambda host: host.packages.update(chrony="ii 4.4"), "package chrony"),
        (lambda host: provisioned.forget(host.place), "no provisioning of it has come to its end"),
        (lambda host: baseline.save({}, host.place), "no provisioning of it has come to its end"),
        (
            lambda host: (host.place / "provisioned.json").write_text("{"),
            "no provisioning of it has come to its end",
        ),
    ],
)
def test_what_somebody_changed_is_named(host: Host, change: Callable[[Host], object], name: str) -> None:
    change(host)
    assert host.differs() == [name]


def test_a_user_who_was_removed_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> Any:
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwnam", gone)
    assert host.differs() == ["user daemon"]


@pytest.mark.parametrize(
    ("made_of", "name"),
    [
        (MADE_OF | {"role agent": "2"}, "role agent"),
        (MADE_OF | {"role telegraf": "1"}, "role telegraf"),
        (MADE_OF | {"kernel": "6.13"}, "kernel"),
        ({"kernel": "6.12"}, "role agent"),
    ],
)
def test_what_it_would_be_made_of_now_is_named(host: Host, made_of: dict[str, str], name: str) -> None:
    assert host.differs(made_of) == [name]


def test_a_package_that_was_not_asked_before_is_named_whether_it_is_there_or_not(host: Host) -> None:
    assert host.differs(packages=("chrony", "kmod")) == ["package kmod"]
    host.packages["kmod"] = "ii 30"
    assert host.differs(packages=("chrony", "kmod")) == ["package kmod"]
    host.packages["systemd-timesyncd"] = "ii 252"  # which nobody asks for
    assert host.differs() == []


def test_a_package_that_is_given_back_later_is_compared_although_nobody_asks_for_it(host: Host) -> None:
    baseline.record([Setting("package", "systemd-timesyncd")], lambda _: True, host.place)
    host.record()
    assert host.differs() == []
    host.packages["systemd-timesyncd"] = "ii 252"
    assert host.differs() == ["package systemd-timesyncd"]


def test_units_that_systemd_does_not_tell_of_are_no_proof(host: Host) -> None:
    host.execute = lambda command: (1, "", "Failed to connect to bus")  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"how chrony, telegraf are: Failed to connect to bus"):
        host.differs()


def test_programs_of_this_machine_tell_what_is_asked() -> None:
    """The words of the real dpkg-query."""

    def execute(command: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    found = provisioned._read([], ("dpkg", "not-there"), execute)
    assert found[Setting("package", "dpkg")].startswith("ii ")
    assert found[Setting("package", "not-there")] is None


ASKED = {
    "server": "archive",
    "source": "chrony",
    "offset_max_ns": 1_000_000,
    "root_dispersion_max_ns": 1_000_000,
    "cmdline": "",
}
TRACKING = "C6120003,198.18.0.3,9,1.0,{offset},0.0,0.0,0.0,0.0,0.0,0.0001,{dispersion},4.0,{leap}"


@pytest.mark.parametrize(
    ("offset", "dispersion", "leap", "follows"),
    [
        ("0.0000123", "0.0002", "Normal", True),
        ("-0.0011", "0.0002", "Normal", False),
        ("0.0000123", "0.0011", "Normal", False),
        ("0.0000123", "0.0002", "Not synchronised", False),
    ],
)
def test_a_clock_follows_if_it_is_near_enough(offset: str, dispersion: str, leap: str, follows: bool) -> None:
    said = TRACKING.format(offset=offset, dispersion=dispersion, leap=leap)
    found = clock.read(ASKED, 0, lambda _: (0, said, ""))
    assert clock.follows(found, ASKED) is follows


def test_a_clock_whose_daemon_does_not_answer_does_not_follow() -> None:
    found = clock.read(ASKED, 0, lambda _: (1, "506 Cannot talk to daemon", ""))
    assert found["offset_ns"] is None
    assert not clock.follows(found, ASKED)
