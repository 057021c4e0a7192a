"""Files and directories as one archive (tar, zstd). The SHA-256 of the archive names its content."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import zstandard


def pack(root: Path, names: Iterable[str], archive: Path, empty: Iterable[str] = ()) -> str:
    """Pack files and directories below ``root``, and directories without their content (``empty``).

    Owners, modes and links are kept. Returns the archive's digest. OSError if something cannot be read.
    """
    command = ["tar", "--create", "--sort=name", "--numeric-owner", "--directory", str(root)]
    if empty := list(empty):
        command += ["--no-recursion", *empty, "--recursion"]
    command += names
    with (
        archive.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tar,
    ):
        assert tar.stdout is not None
        assert tar.stderr is not None
        zstandard.ZstdCompressor(write_checksum=True).copy_stream(tar.stdout, file)
        said = tar.stderr.read().decode(errors="replace").strip()
    if tar.returncode:
        raise OSError(f"{root} cannot be packed: {said}")
    return digest_of(archive)


def unpack(archive: Path, into: Path, digest: str) -> None:
    """Unpack an archive into a directory, which is made. OSError unless it has this digest."""
    if (found := digest_of(archive)) != digest:
        raise OSError(f"{archive} is damaged: its SHA-256 is {found[:12]}, and should be {digest[:12]}")
    into.mkdir(parents=True, exist_ok=True)
    _read(archive, "--extract", "--preserve-permissions", "--directory", str(into))


def compare(archive: Path, root: Path) -> None:
    """OSError unless all that an archive has is the same below ``root``."""
    _read(archive, "--compare", "--directory", str(root))


def _read(archive: Path, *options: str) -> None:
    with (
        archive.open("rb") as file,
        subprocess.Popen(
            ["tar", "--numeric-owner", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as tar,
    ):
        assert tar.stdin is not None
        assert tar.stderr is not None
        why: Exception | None = None
        try:
            zstandard.ZstdDecompressor().copy_stream(file, tar.stdin)
            tar.stdin.close()
        except (BrokenPipeError, zstandard.ZstdError) as error:
            tar.kill()
            why = error
            with suppress(BrokenPipeError):
                tar.stdin.close()
        said = tar.stderr.read().decode(errors="replace").strip()
    if why or tar.returncode:
        raise OSError(f"{archive} cannot be read: {said or why or 'its files differ'}")


def digest_of(archive: Path) -> str:
    """The SHA-256 of a file, as hex."""
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
