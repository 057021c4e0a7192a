"""Write the table of agents' events in ``docs/data-model.md`` from ``events.yml`` (``make docs``)."""

from __future__ import annotations

import re
from pathlib import Path

from dumbbell.facts import declared

TABLE = re.compile(r"\| event \| when \| keys \| judged \|\n(\|.*\n)+")


def documented(text: str) -> str:
    """The document with the current table."""
    return TABLE.sub(lambda _: declared.table() + "\n", text)


if __name__ == "__main__":
    file = Path("docs/data-model.md")
    file.write_text(documented(file.read_text()))
