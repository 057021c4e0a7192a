"""Rows in batches, as an agent writes them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path

SAMPLES_A_BATCH = 10


def write_spool(path: Path, rows: Iterable[str]) -> None:
    """Rows in batches as the agent writes them."""
    left = iter(rows)
    with path.open("wb") as spool:
        for number in count(1):
            if not (batch := list(islice(left, SAMPLES_A_BATCH))):
                return
            spool.write(batch_bytes(number, batch))


def batch_bytes(number: int, rows: list[str]) -> bytes:
    """One batch with its closing line."""
    body = "".join(row + "\n" for row in rows).encode()
    return body + b"# batch=%d rows=%d crc32=%08x\n" % (number, len(rows), zlib.crc32(body))
