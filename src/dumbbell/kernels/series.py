"""Patches: files, mailboxes of ``b4`` and ``git format-patch``, directories, commits of a git tree."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dumbbell.kernels.git import commit, git, local, repository_of, split
from dumbbell.kernels.problems import KernelError

_DIFF = re.compile(rb"^(diff --git |--- \S.*\n\+\+\+ |GIT binary patch)", re.MULTILINE)
_MAILBOX = re.compile(rb"From \S+ .*\d\d:\d\d.*\d{4}")  # its first line


@dataclass(frozen=True)
class Patch:
    """A patch, and its name in messages."""

    name: str
    content: bytes

    @property
    def text(self) -> str:
        """What identifies it: the file's text without white space at its end."""
        return self.content.decode(errors="replace").rstrip()


def patches(text: str, here: Path) -> list[Patch]:
    """The patches that a text names, in the order in which they are applied; KernelError without any."""
    path = local(text, here)
    if path.is_dir():
        files = sorted(path.glob("*.patch"))
        if not files:
            raise KernelError(f"{text}: the directory has no *.patch")
        found = [patch for file in files for patch in _of_file(file, f"{text.rstrip('/')}/{file.name}")]
    elif path.is_file():
        found = list(_of_file(path, text))
    else:
        found = _of_range(text, here)
    if not found:
        raise KernelError(f"{text} has no patch in it: no line `diff --git`, or `---` and `+++`")
    return found


def _of_file(file: Path, name: str) -> Iterator[Patch]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise KernelError(f"{name} cannot be read: {error.strerror}") from None
    if _MAILBOX.match(content):
        yield from _of_mailbox(content, name)
    elif _DIFF.search(content):
        yield Patch(name, content)


def _of_mailbox(content: bytes, name: str) -> Iterator[Patch]:
    """Each message that has a patch: a cover letter and answers have none."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        git(folder, "mailsplit", f"-o{folder}", stdin=content)
        for message in sorted(folder.glob("[0-9]*")):
            patch = folder / "patch"
            told = git(folder, "mailinfo", "--encoding=UTF-8", "text", str(patch), stdin=message.read_bytes())
            if _DIFF.search(found := patch.read_bytes()):
                subject = re.search(rb"^Subject: (.*)$", told, re.MULTILINE)
                title = subject[1].decode(errors="replace") if subject else f"message {int(message.name)}"
                yield Patch(f"{name}: {title}", found)


def _of_range(text: str, here: Path) -> list[Patch]:
    place, commits = split(text, here)
    first, dots, last = commits.partition("..")
    if not (dots and first and last) or last.startswith("."):
        raise KernelError(
            f"{text}: there is no such file or directory of patches, and commits of a git tree are TREE@A..B"
        )
    repository = repository_of(place, here)
    ends = "..".join(commit(repository, revision, place) for revision in (first, last))
    series = git(repository, "format-patch", "--stdout", "--no-stat", "--no-signature", "--no-renames", ends)
    if not series:
        raise KernelError(f"{text}: there is no commit between these")
    return list(_of_mailbox(series, text))
