"""The large raw files of old points, packed into one archive. Tables, verdict, pages and small files stay."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dumbbell.run.packed import compare, pack, unpack
from dumbbell.run.record import read_json, write_json

ARCHIVE = "raw.tar.zst"
_RECORD = "raw.json"  # digest of the archive, its files, and their size
_LARGE = ("raw/*/*/spool*.lp*", "raw/*/*/*.pcap*", "raw/*/*/atou-*-trace.txt", "raw/*/*.tgz")


class Sizes(NamedTuple):
    """Bytes of the files, and of their archive."""

    files: int
    archive: int


def pack_raw(point_dir: Path) -> Sizes | None:
    """Pack the large files of a point that has a verdict, compare the archive with them, and remove them.

    None if there is nothing to pack. OSError if they cannot be packed; then all files are as they were.
    """
    archive = point_dir / ARCHIVE
    if not (point_dir / "verdict.json").exists():
        return None
    if not archive.exists():
        files = sorted({file for pattern in _LARGE for file in point_dir.glob(pattern) if file.is_file()})
        if not files:
            return None
        names = [str(file.relative_to(point_dir)) for file in files]
        part = archive.with_suffix(".part")
        digest = pack(point_dir, names, part)
        compare(part, point_dir)
        size = sum(file.stat().st_size for file in files)
        write_json(point_dir / _RECORD, {"sha256": digest, "bytes": size, "files": names})
        part.rename(archive)
    record = read_json(point_dir / _RECORD)
    left = [file for name in record["files"] if (file := point_dir / name).exists()]
    if not left:
        return None
    for file in left:  # also those that an interrupted call has left
        file.unlink()
    return Sizes(record["bytes"], archive.stat().st_size)


def unpack_raw(point_dir: Path) -> bool:
    """Put a point's large files back; False if they are not packed. OSError if the archive is damaged."""
    archive = point_dir / ARCHIVE
    if not archive.exists():
        return False
    unpack(archive, point_dir, read_json(point_dir / _RECORD)["sha256"])
    archive.unlink()
    (point_dir / _RECORD).unlink()
    return True


def why_packed(point_dir: Path) -> str:
    """What to do for a reader of large files that are packed; '' if they are not."""
    if not (point_dir / ARCHIVE).exists():
        return ""
    return f"the raw files of {point_dir} are packed; put them back: fab archive --run {point_dir} --unpack"
