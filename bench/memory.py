"""Memory of a process and of all that it has started."""

from __future__ import annotations

import psutil


def tree_mb(pid: int) -> float:
    """Megabytes of a process and its descendants; what they share is counted once (PSS)."""
    try:
        whole = psutil.Process(pid)
        return sum(map(_pss, [whole, *whole.children(recursive=True)])) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0  # it has ended meanwhile
