"""Damage to files as disks, editors and networks do it, for the tests of readers."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from dumbbell.read.directory import make, told
from dumbbell.read.model import Malformed, Told

FILES = Path(__file__).parents[1] / "fixtures" / "read"
FIXTURES = sorted(path for path in FILES.iterdir() if path.name not in {"README.md", "known.csv"})
TOKENS = (
    *(b"0", b"-1", b"4294967296", b"99999999999999999999", b"1e400", b"NaN", b"null", b"{", b"}", b"[", b'"'),
    *(b"\0", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\n", b"\r\n", b"\t", b" ", b",", b":", b"/"),
    *(b"%", b"\xc3"),
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A copy with one to six damages: cut, moved, repeated, overwritten, or with a word of another file.

    In half of the copies nothing moves: what is binary is then still read to its end.
    """
    data = bytearray(content)
    in_place = rng.random() < 0.5
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 64, 1000)), len(data) - at)
        other = rng.randrange(len(data) + 1)
        match rng.randrange(3 if in_place else 6):
            case 0:
                data[at : at + size] = rng.randbytes(size)
            case 1:
                word = rng.choice(TOKENS)
                data[at : at + (len(word) if in_place else size)] = word
            case 2:
                word = bytes(data[other : other + size])
                data[at : at + (len(word) if in_place else size)] = word
            case 3:
                del data[at:]
            case 4:
                del data[at : at + size]
            case _:
                data[at:at] = data[at : at + size]
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
