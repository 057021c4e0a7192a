"""What package managers say, and the commands that they are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest_modules import packages

# Of apt 2.6 on Debian 12, which has systemd-timesyncd; procps is there in an older version.
SIMULATED = """\
Remv systemd-timesyncd [252.39-1~deb12u2]
Inst sensible-utils (0.0.17+nmu1 Debian:12.15/oldstable [all])
Inst libedit2 (3.1-20221030-2 Debian:12.15/oldstable [amd64])
Inst chrony (4.3-2+deb12u3 Debian:12.15/oldstable [amd64])
Inst libc6:i386 (2.36-9+deb12u14 Debian:12.15/oldstable [i386])
Inst procps [2:4.0.2-2] (2:4.0.2-3 Debian:12.15/oldstable [amd64])
Conf chrony (4.3-2+deb12u3 Debian:12.15/oldstable [amd64])
"""
DPKG = "chrony ii 4.3-2+deb12u3\nsystemd-timesyncd rc 252.39-1~deb12u2\niperf3 un \nsudo hi 1.9\n"
RPM = "chrony ii 4.6.1-1.el9\npackage iperf3 is not installed\n"
HELD = """\
E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 11893 (unattended-upgr)
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
"""
GONE = "Reading package lists...\nBuilding dependency tree...\nE: Unable to locate package nosuch\n"


def test_what_an_installation_adds_and_removes() -> None:
    new, removed = packages.changed_by(SIMULATED)
    assert new == ["sensible-utils", "libedit2", "chrony", "libc6"]
    assert removed == ["systemd-timesyncd"]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            DPKG,
            {"chrony": "ii 4.3-2+deb12u3", "systemd-timesyncd": "rc 252.39-1~deb12u2"}
            | {"iperf3": "un ", "sudo": "hi 1.9"},
        ),
        (RPM, {"chrony": "ii 4.6.1-1.el9"}),
    ],
)
def test_states_of_packages(said: str, found: dict[str, str]) -> None:
    assert packages.states(["chrony"], lambda command: (1, said, "")) == found
    assert packages.presence("chrony", lambda command: (1, said, "")) is True
    assert packages.presence("iperf3", lambda command: (1, said, "")) is None


def test_what_is_left_of_packages() -> None:
    found = {
        name: packages.presence(name, lambda command: (0, DPKG, "")) for name in ("sudo", "systemd-timesyncd")
    }
    assert found == {"sudo": True, "systemd-timesyncd": "configuration"}  # sudo is on hold


def answers(*errors: str) -> Iterator[tuple[int, str, str]]:
    return iter([(100 if error else 0, "", error) for error in errors])


def test_a_lock_is_awaited_and_its_holder_named_in_one_line() -> None:
    said = answers(HELD, HELD, "")
    assert packages.patiently(lambda command: next(said), [], wait_s=60, pause_s=0) == (0, "", "")
    code, _, error = packages.patiently(lambda command: (100, "", HELD), [], wait_s=0)
    assert code == 100
    assert error == (
        "waited 0 minutes: Could not get lock /var/lib/dpkg/lock-frontend. "
        "It is held by process 11893 (unattended-upgr)"
    )


def test_other_errors_are_not_repeated_and_are_one_line() -> None:
    said = answers(GONE)
    code, _, error = packages.patiently(lambda command: next(said), [], wait_s=60)
    assert (code, error) == (100, "E: Unable to locate package nosuch")
