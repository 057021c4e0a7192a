"""Sysctls: their files, and a canonical form of their values."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path("/proc/sys")


def path(name: str) -> PurePosixPath:
    """File of a sysctl below /proc/sys. As in sysctl(8), a slash in a name stands for a dot in the file's.

    ValueError on names that would leave the tree.
    """
    parts = name.translate(str.maketrans("./", "/.")).split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise ValueError(f"{name!r} is not the name of a sysctl")
    return PurePosixPath(*parts)


def canonical(value: Any) -> str:
    """A value with single spaces, because the kernel writes tabs; booleans are 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    return " ".join(str(value).split())


def read(name: str) -> str | None:
    """Value of a sysctl in its canonical form; None if this kernel does not have it."""
    file = ROOT / path(name)
    return canonical(file.read_text()) if file.exists() else None


OF_THE_KERNEL = "net.ipv4.tcp_allowed_congestion_control"  # shared by all network namespaces of a kernel


def is_fixed(name: str) -> bool:
    """Whether a host that is a namespace of a shared kernel can only read a sysctl."""
    file = ROOT / path(name)
    return file.exists() and not file.stat().st_mode & 0o222
