"""The hosts that are supported, by what they answer: ``MACHINE=``, of uname(1), and os-release(5)."""

from __future__ import annotations

import platform
import shlex

# Family, as in vars/distributions.yml, to its distributions and their releases.
SUPPORTED: dict[str, dict[str, tuple[str, ...]]] = {
    "debian": {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")},
    "redhat": {name: ("9",) for name in ("rhel", "rocky", "almalinux", "centos", "ol")},
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as uname -m and as Go call them
NAMES = "Debian 12 and 13, Ubuntu 22.04 and 24.04, RHEL 9 and its rebuilds"


class Unsupported(Exception):
    """A host on which nothing is done; the message says what was found."""


def family_of(answer: str) -> str:
    """The family of a host's distribution; else :class:`Unsupported`."""
    known = dict(_assignments(answer))
    name, release = known.get("ID", ""), known.get("VERSION_ID", "")
    for family, distributions in SUPPORTED.items():
        releases = distributions.get(name, ())
        major = release.partition(".")[0] if family == "redhat" else release
        if major in releases:
            return family
    found = known.get("PRETTY_NAME") or f"{name} {release}".strip() or "no /etc/os-release"
    raise Unsupported(f"found {found}; supported are {NAMES}")


def programs_for(answer: str, here: str = platform.machine()) -> str:
    """The directory below .build that has programs for a host; else :class:`Unsupported`.

    ``make build`` makes those for the architecture of the controller, ``here``.
    """
    machine = dict(_assignments(answer)).get("MACHINE", "")
    if machine not in ARCHITECTURES:
        raise Unsupported(f"found {machine or 'no uname'}; supported are {' and '.join(ARCHITECTURES)}")
    return "bin" if machine == here else f"linux-{ARCHITECTURES[machine]}"


def _assignments(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            try:
                found.append((name, "".join(shlex.split(value))))
            except ValueError:  # a quote that is not closed
                continue
    return found
