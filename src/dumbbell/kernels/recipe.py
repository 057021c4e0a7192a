"""What is asked for: a recipe file, or a kernel named on a command line, with patches on top.

A command line takes ``BASE[,PATCHES...]``. BASE is a recipe file, a Debian source package, or a git tree
with a revision, ``TREE@REVISION``. PATCHES are files, mailboxes, directories, or commits of a git tree,
``TREE@A..B``. A recipe names source and patches in the same way.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import AfterValidator, Field

from dumbbell.kernels.git import local, split
from dumbbell.kernels.problems import KernelError
from dumbbell.places import REPOSITORY, known
from dumbbell.quantities import Strict
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.load import read_as

LIKE = REPOSITORY / "kernels" / "lab.yml"  # whose options a kernel gets that is no recipe
SERIES = REPOSITORY / "kernels" / "patches"  # with a directory for each release: what virtual time needs
NAME = r"[a-z0-9][a-z0-9+.-]*"  # of a package
_LONGEST_NAME = 40  # the kernel's release, with it and the id, has at most 64 letters
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")


def _plain(text: str) -> str:
    if any(ord(letter) < ord(" ") for letter in text):
        raise ValueError(f"{text!r} has a control character")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_plain)]


class Recipe(Strict):
    """A kernel's source, options and patches. Paths are relative to the recipe's file."""

    source: Text
    suite: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]*)?$")] = ""
    arch: Literal["um", "x86"] = "x86"
    base: list[Text] = Field(default=["defconfig"])
    config: list[Text] = Field(default=[])
    patches: list[Text] = Field(default=[])

    @property
    def is_tree(self) -> bool:
        """Whether the source is a git tree; otherwise it is a Debian package."""
        return "/" in self.source or self.source.startswith("~")

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.is_tree and self.suite:
            raise ValueError("`suite` is of a Debian package, and the source is a git tree: leave it out")
        if not (self.is_tree or _PACKAGE.fullmatch(self.source)):
            raise ValueError(
                f"the source {self.source!r} is neither a Debian package nor a git tree, which has a slash"
            )
        return self


@dataclass(frozen=True)
class Asked:
    """A kernel that is asked for. Paths of its recipe are relative to ``here``."""

    text: str  # as it was asked
    name: str  # of its package, and of the tree with its objects
    recipe: Recipe
    here: Path
    patches: tuple[str, ...] = ()  # on top of the recipe's, relative to the working directory
    is_recipe: bool = True  # nothing but a recipe file; its newest build gets its name
    by_release: bool = False  # gets the patches of its release from SERIES first


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file; :class:`KernelError` with line and column of each mistake."""
    try:
        return read_as(path, Recipe)[1]
    except ScenarioError as error:
        raise KernelError(str(error)) from None


def asked(text: str, like: Path = LIKE) -> Asked:
    """What a recipe's path or ``BASE[,PATCHES...]`` asks for; KernelError says what is wrong with it.

    A kernel that is no recipe gets architecture and options of the recipe ``like``.
    """
    base, *patches = (part.strip() for part in text.split(","))
    if not base or not all(patches):
        raise KernelError(
            f"{text!r} is no kernel: name a recipe, for example kernels/lab.yml, a Debian package, or a git "
            "tree with a revision, TREE@REVISION; patches after it, each after a comma"
        )
    if base.endswith((".yml", ".yaml")):
        path = known(local(base, Path()))
        if not path.is_file():
            raise KernelError(f"{base} is no file: name a recipe, for example kernels/lab.yml")
        name = path.stem
        if not re.fullmatch(NAME, name) or len(name) > _LONGEST_NAME:
            raise KernelError(
                f"{base}: a kernel's package is named after its recipe: lower case letters, digits, -, + and "
                f". only, at most {_LONGEST_NAME}"
            )
        of = Asked(text, name, read_recipe(path), path.parent.absolute(), tuple(patches))
        return replace(of, is_recipe=not patches)
    shared = read_recipe(like)
    try:
        recipe = Recipe.model_validate(shared.model_dump() | {"source": base, "suite": "", "patches": []})
    except pydantic.ValidationError as error:
        (reason, *_) = (item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise KernelError(f"{text!r} is no kernel: {reason}") from None
    config = [str(like.parent / file) for file in recipe.config]
    return Asked(
        text=text,
        name=_name(base),
        recipe=recipe.model_copy(update={"config": config}),
        here=Path.cwd(),
        patches=tuple(patches),
        is_recipe=False,
        by_release=recipe.arch == "um",
    )


def short(text: str) -> str:
    """A name of what is asked for that a directory can have: files and trees without where they are."""
    names = []
    for part in map(str.strip, text.split(",")):
        place, revision = split(part, Path.cwd())
        name = os.path.basename(os.path.abspath(os.path.expanduser(place))).removesuffix(".git")
        names.append(f"{name}@{revision.replace('/', '-')}" if revision else name)
    return "+".join(names)


def _name(base: str) -> str:
    """A package's name for a source: that of the package, or of the tree's directory."""
    place = split(base, Path.cwd())[0] if "/" in base or base.startswith("~") else base.partition("=")[0]
    last = place.rstrip("/").rpartition("/")[2].removesuffix(".git").lower()
    return re.sub(r"[^a-z0-9+.-]+", "-", last).lstrip("+.-")[:_LONGEST_NAME].rstrip("+.-") or "linux"
