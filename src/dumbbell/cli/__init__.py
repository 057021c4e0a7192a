"""Commands, each in the module of its name.

``fabfile.py`` has those of ``fab``, and imports them when they run. ``suite`` and ``nightly`` are also run as
``python -m dumbbell.cli.NAME``: by make, and by the timer of a night.
"""

from __future__ import annotations

import signal


def tell(text: str) -> None:
    """Print a text. If its reader leaves before the end, as ``head`` does, the process ends silently."""
    former = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        print(text, flush=True)
    finally:
        signal.signal(signal.SIGPIPE, former)
