"""Damage to files as disks, editors and networks do it, for the tests of readers."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from dumbbell.read.directory import make, told
from dumbbell.read.model import Malformed, Told

FILES = Path(__file__).parents[1] / "fixtures" / "read"
FIXTURES = sorted(path for path in FILES.iterdir() if path.suffix not in {".md", ".py"})
TOKENS = (
    *(b"0", b"-1", b"4294967296", b"99999999999999999999", b"1e400", b"NaN", b"null", b"{", b"}", b"[", b'"'),
    *(b"\0", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\n", b"\r\n", b"\t", b" ", b",", b":", b"/"),
    *(b"%", b"\xc3"),
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A copy with one to six damages: cut, moved, repeated, overwritten, or with a word of another file."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 64, 1000)), len(data) - at)
        match rng.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[at : at + size]
            case 3:
                data[at : at + size] = rng.randbytes(size)
            case 4:
                data[at : at + size] = rng.choice(TOKENS)
            case _:
                other = rng.randrange(len(data) + 1)
                data[at : at + size] = data[other : other + size]
    return bytes(data)


def read_damaged(name: str, seed: int, *, whole: bool) -> str:
    """Read a damaged fixture; returns the message if it is refused, else ''. ``whole``: write a directory.

    Any other exception is a fault of a reader.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "file")
        path.write_bytes(damaged((FILES / name).read_bytes(), random.Random(f"{name} {seed}")))
        try:
            if whole:
                make([path], Path(scratch, "results"))
            else:
                found: Told = told(path, Path(scratch))
                for table in ("tcp_info", "udp", "intervals"):
                    found.table(table).collect()
        except Malformed as refused:
            return str(refused)
        return ""
