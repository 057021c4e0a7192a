"""Archives of directories: what is packed comes out as it was, and a damaged one is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dumbbell.run.packed import pack, unpack


def tree(folder: Path) -> Path:
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "file").write_bytes(os.urandom(100_000))
    (folder / "a" / "file").chmod(0o640)
    (folder / "a" / "link").symlink_to("file")
    (folder / "b").write_text("b")
    (folder / "left").write_text("not asked for")
    return folder


def test_what_was_packed_comes_out_as_it_was(tmp_path: Path) -> None:
    root, archive, into = tree(tmp_path / "root"), tmp_path / "x.tar.zst", tmp_path / "into"
    digest = pack(root, ["a", "b"], archive)
    unpack(archive, into, digest)
    assert sorted(path.name for path in into.rglob("*")) == ["a", "b", "file", "link"]
    assert (into / "a/file").read_bytes() == (root / "a/file").read_bytes()
    assert (into / "a/file").stat().st_mode & 0o777 == 0o640
    assert (into / "a/link").readlink() == Path("file")
    assert pack(root, ["a", "b"], tmp_path / "again") == digest


def test_a_damaged_archive_is_refused_before_anything_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.zst"
    digest = pack(tree(tmp_path / "root"), ["a"], archive)
    archive.write_bytes(archive.read_bytes()[:-7])
    with pytest.raises(OSError, match="is damaged: its SHA-256 is"):
        unpack(archive, tmp_path / "into", digest)
    assert not (tmp_path / "into").exists()


def test_what_cannot_be_packed_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing_of_that_name"):
        pack(tmp_path, ["nothing_of_that_name"], tmp_path / "x.tar.zst")
