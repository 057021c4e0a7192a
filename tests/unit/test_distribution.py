"""Which distributions are supported, by their /etc/os-release."""

from __future__ import annotations

import pytest

from dumbbell.execution.distribution import Unsupported, family_of, programs_for

# As the hosts have it, less the lines that nobody reads.
DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
DEBIAN_13 = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n'
UBUNTU_22 = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'
UBUNTU_24 = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'
RHEL_9 = 'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.6"\nPRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\n'
ROCKY_9 = (
    'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.3"\nPRETTY_NAME="Rocky Linux 9.3 (Blue Onyx)"\n'
)
CENTOS_9 = 'ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="9"\nPRETTY_NAME="CentOS Stream 9"\n'
FEDORA = 'ID=fedora\nVERSION_ID=42\nVERSION_CODENAME=""\nPRETTY_NAME="Fedora Linux 42 (Forty Two)"\n'


@pytest.mark.parametrize(
    ("text", "family"),
    [
        *((text, "debian") for text in (DEBIAN_12, DEBIAN_13, UBUNTU_22, UBUNTU_24)),
        *((text, "redhat") for text in (RHEL_9, ROCKY_9, CENTOS_9)),
        (DEBIAN_12.replace("\n", "\r\n"), "debian"),  # a raw connection may have a terminal
    ],
)
def test_families(text: str, family: str) -> None:
    assert family_of(text) == family


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FEDORA, "found Fedora Linux 42 (Forty Two); supported are Debian 12 and 13, Ubuntu 22.04 and 24.04"),
        (RHEL_9.replace("9.6", "8.10"), "found Red Hat Enterprise Linux 8.10 (Plow);"),
        ('ID=debian\nPRETTY_NAME="Debian GNU/Linux forky/sid"\n', "found Debian GNU/Linux forky/sid;"),
        ('ID=ubuntu\nVERSION_ID="25.04\n', "found ubuntu;"),
        ("", "found no /etc/os-release;"),
    ],
)
def test_others_are_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(Unsupported) as refused:
        family_of(text)
    assert str(refused.value).startswith(found)


@pytest.mark.parametrize(
    ("machine", "here", "programs"),
    [
        ("x86_64", "x86_64", "bin"),
        ("aarch64", "x86_64", "linux-arm64"),
        ("aarch64", "aarch64", "bin"),
        ("x86_64", "aarch64", "linux-amd64"),
        ("aarch64\r", "x86_64", "linux-arm64"),
    ],
)
def test_programs_are_those_of_the_host_s_architecture(machine: str, here: str, programs: str) -> None:
    assert programs_for(f"MACHINE={machine}\n{DEBIAN_13}", here) == programs


@pytest.mark.parametrize(
    ("answer", "found"), [(f"MACHINE=riscv64\n{DEBIAN_13}", "found riscv64;"), (DEBIAN_13, "found no uname;")]
)
def test_other_architectures_are_refused_by_name(answer: str, found: str) -> None:
    with pytest.raises(Unsupported) as refused:
        programs_for(answer, "x86_64")
    assert str(refused.value) == f"{found} supported are x86_64 and aarch64"
