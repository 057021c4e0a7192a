"""A small git tree that is taken for a kernel's."""

from __future__ import annotations

import subprocess
from pathlib import Path

FILES = {
    "Makefile": "VERSION = 9\nPATCHLEVEL = 8\nSUBLEVEL = 7\n",
    "arch/um/Kconfig": "config A\n",
    "arch/x86/Kconfig": "config A\n",
    "net/a.c": "one\ntwo\nthree\n",
    "net/b.c": "b\n",
}


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", *who, *words], cwd=folder, text=True).strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit(folder: Path, message: str, **files: str) -> str:
    write(folder, {name.replace("__", "/").replace("_c", ".c"): text for name, text in files.items()})
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def make(folder: Path) -> Path:
    """A repository with one commit, tagged v9.8."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, FILES)
    commit(folder, "the first")
    git(folder, "tag", "v9.8")
    return folder
