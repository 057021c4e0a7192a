"""What a recipe and a command line ask for."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from synthetic import REPOSITORY

from dumbbell.kernels import Asked, KernelError, Recipe, asked
from dumbbell.kernels.git import split
from dumbbell.kernels.recipe import read_recipe

SHIPPED = sorted(REPOSITORY.glob("kernels/*.yml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_are_read(path: Path) -> None:
    of = asked(str(path))
    assert (of.name, of.here, of.is_recipe) == (path.stem, path.parent, True)


def test_a_recipe_with_patches_on_top_is_no_longer_the_recipe() -> None:
    of = asked("kernels/lab.yml, a.mbox,./series")
    assert (of.name, of.patches, of.is_recipe) == ("lab", ("a.mbox", "./series"), False)


@pytest.mark.parametrize(
    ("text", "name", "source"),
    [
        ("linux-source-6.12", "linux-source-6.12", "linux-source-6.12"),
        ("linux-source-6.12=6.12.9-1~deb12u1", "linux-source-6.12", "linux-source-6.12=6.12.9-1~deb12u1"),
        ("./net_next@v6.18", "net-next", "./net_next@v6.18"),
        ("/src/Linux@topic/one", "linux", "/src/Linux@topic/one"),
        ("https://host/linux.git@v6.18", "linux", "https://host/linux.git@v6.18"),
        (
            "ssh://git@host/next/linux-next.git@v6.18",
            "linux-next",
            "ssh://git@host/next/linux-next.git@v6.18",
        ),
    ],
)
def test_a_package_or_a_tree_has_the_options_of_the_lab(
    text: str, name: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    of = asked(text)
    assert (of.name, of.recipe.source, of.is_recipe) == (name, source, False)
    assert of.recipe.arch == "um"
    assert [Path(file).name for file in of.recipe.config] == ["uml.config", "testbed.config"]
    assert all(Path(file).is_file() for file in of.recipe.config)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is no kernel: name a recipe, for example kernels/lab.yml"),
        ("kernels/lab.yml,", "is no kernel"),
        ("none.yml", "none.yml is no file: name a recipe"),
        ("Linux 6", "neither a Debian package nor a git tree, which has a slash"),
    ],
)
def test_what_is_no_kernel_is_said(text: str, reason: str) -> None:
    with pytest.raises(KernelError) as caught:
        asked(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("arch: um\n", "x.yml:1:1: source: missing"),
        ("source: linux-source-9\nbranch: next\n", "x.yml:2:1: branch: unknown key"),
        ("source: linux-source-9\narch: arm\n", "x.yml:2:1: arch: 'arm' is not one of 'um' or 'x86'"),
        ("source: ./linux\nsuite: forky\n", "`suite` is of a Debian package"),
        ("source: linux-source-9\npatches: one.patch\n", "x.yml:2:1: patches: "),
        ("- source\n", "a mapping of keys to values is expected"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_named_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(KernelError) as caught:
        read_recipe(tmp_path / "x.yml")
    assert reason in str(caught.value)


def test_the_tree_is_the_first_part_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    assert split("./a@b", tmp_path) == ("./a@b", "")
    assert split("./a@b@v1", tmp_path) == ("./a@b", "v1")
    assert split("./a@b@HEAD@{1}", tmp_path) == ("./a@b", "HEAD@{1}")
    assert split("./none@v1", tmp_path) == ("./none", "v1")
    assert split("https://x@host/y", tmp_path) == ("https://x@host/y", "")
    assert split("https://x@host", tmp_path) == ("https://x@host", "")


WORDS = st.text() | st.sampled_from(["@", ",", "..", "/", "~", "linux-source-6.12", "x.yml", "\0", "://"])


@example("~.yml")
@given(st.lists(WORDS, max_size=6).map("".join))
def test_any_text_is_a_kernel_or_a_mistake(text: str) -> None:
    of: Asked | KernelError
    try:
        of = asked(text)
    except KernelError as error:
        of = error
    if isinstance(of, KernelError):
        assert str(of)
    else:
        assert of.name[0].isalnum()
        assert 0 < len(of.name) <= 40
        assert f"{of.name}-12345678" == os.path.basename(f"/{of.name}-12345678")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*Recipe.model_fields, "branch"])


@given(
    st.dictionaries(KEYS, VALUES | st.sampled_from(["./linux", "linux-source-6.12", "um", "x86"])) | VALUES
)
def test_any_document_is_a_recipe_or_a_mistake_with_its_place(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.yml")
        with path.open("w") as file:
            YAML(typ="safe").dump(value, file)
        recipe: Recipe | KernelError
        try:
            recipe = read_recipe(path)
        except KernelError as error:
            recipe = error
    if isinstance(recipe, KernelError):
        assert str(recipe).startswith(f"{path}:")
    else:
        assert recipe.source == value["source"]
