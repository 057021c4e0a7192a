"""Git trees of kernels: where they are, their revisions, and the trees that these name.

Nothing is written to a user's repository but objects of the files as they stand, as ``git add`` makes them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dumbbell.kernels.problems import KernelError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_VERSION = re.compile(r"^VERSION = (\d+)\s*\nPATCHLEVEL = (\d+)", re.MULTILINE)


def git(place: Path, *words: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """What git prints in a directory; KernelError with its own words."""
    done = subprocess.run(
        ["git", *words],
        cwd=place,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(env or {})},
        check=False,
    )
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise KernelError(f"git {words[0]} in {place}: {said or f'status {done.returncode}'}")
    return done.stdout


def line(place: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """The line that git prints."""
    return git(place, *words, env=env).decode(errors="replace").strip()


def split(text: str, here: Path) -> tuple[str, str]:
    """Place and revision of ``TREE@REVISION``, '' for no revision.

    A directory's name and a revision may both have an @: the first part that is a directory is the tree.
    """
    if _URL.match(text):
        path = text.find("/", text.index("://") + len("://"))
        at = text.rfind("@", path) if path >= 0 else -1
        return (text, "") if at < 0 else (text[:at], text[at + 1 :])
    places = [i for i, letter in enumerate(text) if letter == "@"]
    for i in (*places, len(text)):
        if i and local(text[:i], here).is_dir():
            return text[:i], text[i + 1 :]
    return text.partition("@")[0] or text, text.partition("@")[2]


def local(place: str, here: Path) -> Path:
    """A directory or file of the machine, relative to ``here``."""
    try:
        return here / Path(place).expanduser()
    except RuntimeError:  # no such user's home
        return here / place


@dataclass(frozen=True)
class Tree:
    """A tree of files in a git repository. ``id`` names the tree, ``objects`` is where its objects are."""

    id: str
    objects: Path
    said: str  # which one it is, in messages
    release: tuple[int, int]  # version and patch level of the kernel


def find(text: str, here: Path, sources: Path, arch: str) -> Tree:
    """The kernel of ``TREE@REVISION``, or of a tree's files as they stand; KernelError if there is none.

    What a URL names is fetched to the repository ``sources``.
    """
    place, revision = split(text, here)
    if _URL.match(place):
        repository = prepared(sources)
        found = _fetched(place, revision, repository)
    else:
        repository = repository_of(place, here)
        found = commit(repository, revision, place) + "^{tree}" if revision else _as_it_stands(repository)
    objects = Path(line(repository, "rev-parse", "--path-format=absolute", "--git-path", "objects"))
    found = line(repository, "rev-parse", found)
    return Tree(found, objects, text, release(repository, found, text, arch))


def repository_of(place: str, here: Path) -> Path:
    """The directory of a user's git tree."""
    folder = local(place, here)
    if not folder.is_dir():
        raise KernelError(f"{place}: there is no such directory; a git tree is a path or a URL")
    try:
        line(folder, "rev-parse", "--git-dir")
    except KernelError as error:
        raise KernelError(
            f"{place} is no git repository ({error}); `git init` and a commit make one"
        ) from None
    return folder


def commit(repository: Path, revision: str, place: str) -> str:
    """The commit that a revision names."""
    try:
        return line(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
    except KernelError:
        names = line(
            repository, "for-each-ref", "--count=8", "--sort=-creatordate", "--format=%(refname:short)"
        )
        known = f"its newest branches and tags: {', '.join(names.split())}" if names else "it has no branch"
        raise KernelError(f"{place} has no revision {revision!r}; {known}") from None


def release(repository: Path, tree: str, said: str, arch: str) -> tuple[int, int]:
    """Version and patch level of a kernel's tree; KernelError if it is no kernel for ``arch``."""
    try:
        makefile = git(repository, "cat-file", "blob", f"{tree}:Makefile").decode(errors="replace")
    except KernelError:
        makefile = ""
    found = _VERSION.search(makefile)
    lacking = [] if found else ["VERSION and PATCHLEVEL in its Makefile"]
    if not git(repository, "ls-tree", tree, f"arch/{arch}"):
        lacking.append(f"arch/{arch}")
    if lacking or not found:
        raise KernelError(f"{said} is no tree of a kernel: it lacks {' and '.join(lacking)}")
    return int(found[1]), int(found[2])


def prepared(sources: Path) -> Path:
    """The repository of all sources, made if it is not there."""
    if not sources.is_dir():
        sources.parent.mkdir(parents=True, exist_ok=True)
        git(sources.parent, "init", "--quiet", "--bare", str(sources))
    return sources


def _fetched(url: str, revision: str, sources: Path) -> str:
    if not revision:
        raise KernelError(f"{url}: name a revision of it, {url}@REVISION")
    if not re.fullmatch("[0-9a-f]{40}", revision) or not _has(sources, revision):
        try:
            git(sources, "fetch", "--quiet", "--depth=1", "--no-tags", url, revision)
        except KernelError as error:
            raise KernelError(f"{url}@{revision} cannot be fetched: {error}") from None
        revision = line(sources, "rev-parse", "FETCH_HEAD")
    return f"{revision}^{{tree}}"


def _has(repository: Path, revision: str) -> bool:
    try:
        git(repository, "cat-file", "-e", f"{revision}^{{tree}}")
    except KernelError:
        return False
    return True


def _as_it_stands(repository: Path) -> str:
    """The tree of the files, changes that are not committed included."""
    top = Path(line(repository, "rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder, "index")
        own = Path(line(repository, "rev-parse", "--path-format=absolute", "--git-path", "index"))
        if own.exists():
            shutil.copy2(own, index)
        env = {"GIT_INDEX_FILE": str(index)}
        git(top, "add", "--all", ".", env=env)
        return line(top, "write-tree", env=env)
