"""Commands, each in the module of its name.

``main`` is the program ``dumbbell``: ``commands`` has the tasks, which import bodies when they run, and
``playbooks`` the commands that start Ansible. ``suite`` and ``nightly`` are also run as
``python -m dumbbell.cli.NAME``: by make, and by the timer of a night.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def printing() -> Iterator[None]:
    """While something is printed: if its reader leaves, as ``head`` does, the process ends silently."""
    former = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGPIPE, former)


def tell(text: str) -> None:
    """Print a text."""
    with printing():
        print(text)
