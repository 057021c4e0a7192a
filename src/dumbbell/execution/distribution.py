"""The distributions of hosts that are supported, by what /etc/os-release says (os-release(5))."""

from __future__ import annotations

import shlex

# Family, as in vars/distributions.yml, to its distributions and their releases.
SUPPORTED: dict[str, dict[str, tuple[str, ...]]] = {
    "debian": {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")},
    "redhat": {name: ("9",) for name in ("rhel", "rocky", "almalinux", "centos", "ol")},
}
NAMES = "Debian 12 and 13, Ubuntu 22.04 and 24.04, RHEL 9 and its rebuilds"


class Unsupported(Exception):
    """A distribution on which nothing is done; the message names it."""


def family_of(os_release: str) -> str:
    """The family of a host's distribution, by the text of its /etc/os-release; else :class:`Unsupported`."""
    known = dict(_assignments(os_release))
    name, release = known.get("ID", ""), known.get("VERSION_ID", "")
    for family, distributions in SUPPORTED.items():
        releases = distributions.get(name, ())
        major = release.partition(".")[0] if family == "redhat" else release
        if major in releases:
            return family
    found = known.get("PRETTY_NAME") or f"{name} {release}".strip() or "no /etc/os-release"
    raise Unsupported(f"found {found}; supported are {NAMES}")


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
