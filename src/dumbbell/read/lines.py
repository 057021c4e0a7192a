"""Files opened for reading in bounded memory: bytes or lines, also of gzip."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from dumbbell.read.model import Malformed

LINE_BYTES = 1 << 22  # the longest line: iperf3 writes one for each interval of all streams
HEAD_BYTES = 1 << 16  # what a file's kind is found by
_GZIP = b"\x1f\x8b"
PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\xfd7zXZ": "xz -d", b"BZh": "bzip2 -d", b"PK\x03\x04": "unzip"}


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if it is of gzip.

    OSError if it cannot be read; :class:`Malformed` if it is packed in another way, or if gzip is damaged.
    """
    with path.open("rb") as file:
        begin = file.read(8)
        file.seek(0)
        for magic, command in PACKED.items():
            if begin.startswith(magic):
                raise Malformed(path, "byte 0", "the file is packed", f"Unpack it: {command} {path}")
        if not begin.startswith(_GZIP):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            try:
                yield cast("BinaryIO", unpacked)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise Malformed(
                    path, f"byte {file.tell()}", f"gzip is damaged: {error}", "Copy it again"
                ) from None


def head(path: Path) -> bytes:
    """The first bytes."""
    with opened(path) as file:
        return file.read(HEAD_BYTES)


def lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Numbers, from 1, and lines, without their ends; bytes that are not UTF-8 are replaced."""
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise Malformed(
                path, f"line {number}", f"it is longer than {LINE_BYTES} bytes", "No tool writes such lines"
            )
        yield number, line.decode(errors="replace").rstrip("\r\n")
