"""A kernel that is asked for, with all that makes it: source, patches and options."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dumbbell.kernels import git
from dumbbell.kernels.problems import KernelError
from dumbbell.kernels.recipe import SERIES, Asked, Recipe
from dumbbell.kernels.series import Patch, patches

_ID_DIGITS = 8
_RELEASE = re.compile(r"linux-source-(\d+)\.(\d+)")


@dataclass(frozen=True)
class Kernel:
    """What is built, and where. ``home`` has sources, trees with objects and finished kernels."""

    asked: Asked
    home: Path
    source: str  # version of a Debian package, or id of a git tree
    tree: str  # what the repository of sources, or the user's, knows the source by
    alternate: Path | None  # objects of the user's repository
    patches: tuple[Patch, ...]
    options: tuple[str, ...]

    @classmethod
    def find(cls, asked: Asked, home: Path) -> Kernel:
        """Find source, patches and options; :class:`KernelError` names what is not there.

        Packages are those that apt knows; of a recipe's suite, that it knows by ``suites/SUITE/apt.conf``.
        """
        recipe, here = asked.recipe, asked.here
        alternate = None
        if recipe.is_tree:
            found = git.find(recipe.source, here, home / "sources.git", recipe.arch)
            source = tree = found.id
            release: tuple[int, int] | None = found.release
            alternate = found.objects if found.objects != home / "sources.git" / "objects" else None
        else:
            source = _package_version(recipe, home)
            # Debian's version as a tag, which cannot have every letter.
            tree = f"{recipe.source.partition('=')[0]}_{re.sub('[:~]', '_', source)}"
            named = _RELEASE.match(recipe.source)
            release = (int(named[1]), int(named[2])) if named else None
        first = [_of_release(release)] if asked.by_release and release else []
        entries = [(text, here) for text in (*first, *recipe.patches)]
        entries += [(text, Path.cwd()) for text in asked.patches]
        return cls(
            asked=asked,
            home=home,
            source=source,
            tree=tree,
            alternate=alternate,
            patches=tuple(patch for text, at in entries for patch in patches(text, at)),
            options=tuple(option for file in recipe.config for option in _options(here, file)),
        )

    @property
    def id(self) -> str:
        """Identifies everything that makes this kernel."""
        of = {
            "source": self.source,
            "arch": self.asked.recipe.arch,
            "base": self.asked.recipe.base,
            "options": list(self.options),
            "patches": [patch.text for patch in self.patches],
        }
        return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:_ID_DIGITS]

    @property
    def result(self) -> Path:
        """The directory of the finished kernel, which is there once it is built."""
        return self.home / f"{self.asked.name}-{self.id}"

    @property
    def failed(self) -> Path:
        """The file that says why it does not build, which is there once that was tried."""
        return self.home / f"{self.asked.name}-{self.id}.failed"

    @property
    def work(self) -> Path:
        """The directory of the tree with the objects of the last build of the same source."""
        return self.home / "trees" / self.asked.name

    def check_out(self) -> None:
        """Bring the tree in ``work`` to the patched source; KernelError names a patch that does not apply.

        Files that stay the same keep their times, so that make compiles only what depends on others.
        """
        sources = git.prepared(self.home / "sources.git")
        tree = self.work / "build"
        tree.mkdir(parents=True, exist_ok=True)
        new, index = (tree.with_name(f"build.{name}") for name in ("index.new", "index"))
        env = {"GIT_DIR": str(sources), "GIT_INDEX_FILE": str(new)}
        if self.alternate:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.alternate)
        try:
            git.git(sources, "read-tree", self.tree, env=env)
            for patch in self.patches:
                self._apply(patch, sources, env)
            patched = git.line(sources, "write-tree", env=env)
        finally:
            new.unlink(missing_ok=True)
        env |= {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(tree)}
        git.git(tree, "read-tree", "--reset", "-u", patched, env=env)

    def _apply(self, patch: Patch, sources: Path, env: dict[str, str]) -> None:
        content = patch.content if patch.content.endswith(b"\n") else patch.content + b"\n"
        try:
            git.git(sources, "apply", "--cached", "--whitespace=nowarn", "-", stdin=content, env=env)
        except KernelError as error:
            raise KernelError(f"{patch.name} does not apply to {self.asked.recipe.source}: {error}") from None


def _package_version(recipe: Recipe, home: Path) -> str:
    env = {"APT_CONFIG": str(home / "suites" / recipe.suite / "apt.conf")} if recipe.suite else {}
    command = ["apt-cache", "show", "--no-all-versions", recipe.source]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | env, check=False)
    if not (found := re.search("^Version: (.+)$", done.stdout, re.MULTILINE)):
        where = f"the suite {recipe.suite}" if recipe.suite else "the package sources of this machine"
        raise KernelError(
            f"{where} has no package {recipe.source}: apt-get update reads its lists, and `suite` in a "
            "recipe names another Debian suite"
        )
    return found[1]


def _of_release(release: tuple[int, int]) -> str:
    """The patches for virtual time of the newest release that is not newer, or of the oldest."""
    known = {tuple(map(int, folder.name.split("."))): folder for folder in SERIES.glob("[0-9]*.[0-9]*")}
    older = [of for of in sorted(known) if of <= release]
    return str(known[older[-1] if older else min(known)])


def _options(here: Path, file: str) -> list[str]:
    try:
        text = git.local(file, here).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is no text"
        raise KernelError(f"{file}: the options cannot be read: {reason}") from None
    return [line for line in text.rstrip().split("\n") if re.match("(# )?CONFIG_", line)]
