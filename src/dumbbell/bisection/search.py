"""The search: ``git bisect`` in a repository of its own, which borrows the objects of the user's tree."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dumbbell.kernels import git
from dumbbell.kernels.problems import KernelError

Word = Literal["good", "bad", "skip"]
_ENDED = re.compile(r"^# (?:first bad commit|possible first bad commit): \[([0-9a-f]+)\]", re.MULTILINE)


@dataclass(frozen=True)
class Search:
    """A bisection between two commits. Nothing of it is in the user's tree."""

    folder: Path  # the bare repository

    @classmethod
    def begin(cls, folder: Path, tree: Path, good: str, bad: str) -> Search:
        """Begin, or go on with the one that is there; KernelError if git cannot search between the two.

        ``good`` and ``bad`` are ids of commits of the user's ``tree``.
        """
        search = cls(folder)
        if (folder / "BISECT_LOG").exists():
            return search
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        git.git(folder.parent, "init", "--quiet", "--bare", folder.name)
        objects, shallow = (
            Path(git.line(tree, "rev-parse", "--path-format=absolute", "--git-path", name))
            for name in ("objects", "shallow")
        )
        (folder / "objects/info/alternates").write_text(f"{objects}\n")
        if shallow.exists():
            shutil.copy(shallow, folder / "shallow")
        git.git(folder, "update-ref", "--no-deref", "HEAD", good)  # git begins only where HEAD is a commit
        try:
            git.git(folder, "bisect", "start", "--no-checkout", bad, good)
        except KernelError:
            shutil.rmtree(folder)
            raise
        return search

    @property
    def commit(self) -> str:
        """The commit that git wants to be tested."""
        return git.line(self.folder, "rev-parse", "BISECT_HEAD")

    @property
    def log(self) -> str:
        """As ``git bisect log`` prints it; ``git bisect replay`` takes it."""
        return (self.folder / "BISECT_LOG").read_text().strip()

    @property
    def found(self) -> list[str]:
        """The first bad commit; several if skipped commits lie between; none until the search ends."""
        return _ENDED.findall(self.log)

    @property
    def steps(self) -> int:
        """About how many steps are left, by git's estimate."""
        between = ("refs/bisect/bad", "--not", "--glob=refs/bisect/good-*")
        told = git.line(self.folder, "rev-list", "--bisect-vars", *between)
        return int(re.findall(r"bisect_steps=(\d+)", told)[0])

    def mark(self, word: Word) -> None:
        """Say what the commit is; git then chooses the next."""
        try:
            git.git(self.folder, "bisect", word)
        except KernelError:
            if not self.found:  # git fails too when only skipped commits are left
                raise

    def parents(self, commit: str) -> list[str]:
        """The commits before a commit."""
        return git.line(self.folder, "rev-parse", f"{commit}^@").split()

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        return git.line(self.folder, "log", "-1", "--format=%s", commit)

    def message(self, commit: str) -> str:
        """A commit's author, date and message, and the files that it changes."""
        return git.line(self.folder, "show", "--stat", "--format=medium", commit)
