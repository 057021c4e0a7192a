"""What a kernel is made of: its source, its patches, its id, and the tree that is compiled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from dumbbell.kernels import Kernel, KernelError, asked
from dumbbell.kernels.series import patches
from recipes.trees import commit, git, make

PATCH = "Says why.\n\n--- a/net/{file}.c\n+++ b/net/{file}.c\n@@ -1 +1 @@\n-{old}\n+{new}\n"


class Place:
    """A directory with a kernel's tree, and recipes beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linux = make(folder / "linux")
        self.home = folder / "kernels"

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def find(self, text: str) -> Kernel:
        return Kernel.find(asked(text), self.home)

    def recipe(self, text: str) -> Kernel:
        return self.find(self.write("mine.yml", f"arch: um\n{text}\n"))

    def built(self, text: str) -> str:
        """The file that is patched, as it would be compiled."""
        kernel = self.recipe(text)
        kernel.check_out()
        return (kernel.work / "build/net/b.c").read_text()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def test_the_id_is_that_of_recipes_of_packages_since_ever(place: Place) -> None:
    place.write("x.config", "# Why.\nCONFIG_A=y\n\n# CONFIG_B is not set\n")
    one = place.write("one.patch", PATCH.format(file="b", old="b", new="c") + "\n\n")
    kernel = place.recipe("source: ./linux\nconfig: [x.config]\npatches: [one.patch]")
    made_of = {
        "source": git(place.linux, "rev-parse", "HEAD^{tree}"),
        "arch": "um",
        "base": ["defconfig"],
        "options": ["CONFIG_A=y", "# CONFIG_B is not set"],
        "patches": [Path(one).read_text().rstrip()],
    }
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    assert kernel.result == place.home / f"mine-{digest[:8]}"


def test_a_revision_is_a_commit_and_without_one_the_files_count_as_they_are(place: Place) -> None:
    commit(place.linux, "second", net__b_c="second\n")
    (place.linux / "net/b.c").write_text("edited\n")
    (place.linux / "net/new.c").write_text("new\n")
    assert place.built("source: ./linux@v9.8") == "b\n"
    assert place.built("source: ./linux@main") == "second\n"
    assert place.built("source: ./linux") == "edited\n"
    assert git(place.linux, "status", "--short") == "M net/b.c\n?? net/new.c"  # as it was


def test_files_that_stay_the_same_keep_their_times(place: Place) -> None:
    place.built("source: ./linux@v9.8")
    tree = place.home / "trees/mine/build"
    before = (tree / "net/a.c").stat().st_mtime_ns
    one = place.write("one.patch", PATCH.format(file="b", old="b", new="c"))
    assert place.built(f"source: ./linux@v9.8\npatches: [{one}]") == "c\n"
    assert (tree / "net/a.c").stat().st_mtime_ns == before


def test_a_url_is_fetched(place: Place) -> None:
    url = place.linux.as_uri()
    assert place.built(f"source: {url}@v9.8") == "b\n"
    sha = commit(place.linux, "second", net__b_c="second\n")
    assert place.built(f"source: {url}@main") == "second\n"
    place.linux.rename(place.folder / "gone")
    assert place.built(f"source: {url}@{sha}") == "second\n"  # it is there


def test_commits_of_a_tree_are_a_series(place: Place) -> None:
    git(place.linux, "checkout", "--quiet", "-b", "topic")
    commit(place.linux, "net: b, first", net__b_c="first\n")
    commit(place.linux, "net: b, second", net__b_c="second\n")
    assert place.built("source: ./linux@v9.8\npatches: ['./linux@v9.8..topic']") == "second\n"
    on_top = place.find("./linux@v9.8,./linux@main..topic~1")
    assert [patch.name for patch in on_top.patches][-1] == "./linux@main..topic~1: net: b, first"


@pytest.mark.parametrize("encoded", [False, True])
def test_a_mailbox_is_a_series_and_its_letters_without_patches_are_left_out(
    place: Place, encoded: bool
) -> None:
    git(place.linux, "checkout", "--quiet", "-b", "topic")
    commit(place.linux, "net: b für alle", net__b_c="first = é\n")
    commit(place.linux, "net: b, second", net__b_c="second = 1\n")
    series = git(place.linux, "format-patch", "--stdout", "--cover-letter", "main..topic")
    if encoded:
        head, _, rest = series.rpartition("8bit\n\n")
        body, second, last = rest.partition("\nFrom ")
        quoted = body.replace("=", "=3D").replace("é", "=C3=A9")
        series = f"{head}quoted-printable\n\n{quoted}{second}{last}"
    box = place.write("topic.mbox", series + "\n")
    assert [patch.name for patch in patches(box, place.folder)] == [
        f"{box}: net: b für alle",
        f"{box}: net: b, second",
    ]
    assert place.built("source: ./linux@v9.8\npatches: [topic.mbox]") == "second = 1\n"


def test_a_directory_is_a_series_by_name(place: Place) -> None:
    place.write("series/0002-then.patch", PATCH.format(file="b", old="first", new="second"))
    place.write("series/0001-begin.patch", PATCH.format(file="b", old="b", new="first"))
    place.write("series/0000-cover-letter.patch", "Subject: [PATCH 0/2] Why\n\nBecause.\n")
    assert place.built("source: ./linux\npatches: [series]") == "second\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("./none@v1", "./none: there is no such directory; a git tree is a path or a URL"),
        ("./linux@v9.9", "./linux has no revision 'v9.9'; its newest branches and tags: "),
        ("./linux@--help", "./linux has no revision '--help'"),
        ("./linux@v9.8:net", "./linux has no revision 'v9.8:net'"),
        ("./plain", "./plain is no git repository"),
        (
            "./other",
            "./other is no tree of a kernel: it lacks VERSION and PATCHLEVEL in its Makefile and arch/um",
        ),
        ("file:///none", "file:///none: name a revision of it, file:///none@REVISION"),
        ("file:///none/x@v1", "file:///none/x@v1 cannot be fetched"),
        ("linux-source-0.0", "no package linux-source-0.0"),
    ],
)
def test_a_source_that_is_no_kernel_is_refused(place: Place, source: str, reason: str) -> None:
    (place.folder / "plain").mkdir()
    (place.folder / "other").mkdir()
    git(place.folder / "other", "init", "--quiet")
    commit(place.folder / "other", "no kernel", readme="x\n")
    with pytest.raises(KernelError) as caught:
        place.recipe(f"source: {source}")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (
            "none.mbox",
            "none.mbox: there is no such file or directory of patches, and commits of a git tree are",
        ),
        ("empty", "empty: the directory has no *.patch"),
        ("prose.patch", "prose.patch has no patch in it"),
        ("./linux@v9.8..v9.8", "./linux@v9.8..v9.8: there is no commit between these"),
        ("./linux@v9.8..next", "./linux has no revision 'next'"),
        ("./linux@v9.8...main", "commits of a git tree are TREE@A..B"),
    ],
)
def test_what_is_no_series_is_said(place: Place, series: str, reason: str) -> None:
    (place.folder / "empty").mkdir()
    place.write("prose.patch", "From there on it goes well.\n")
    with pytest.raises(KernelError) as caught:
        place.recipe(f"source: ./linux\npatches: ['{series}']")
    assert reason in str(caught.value)


def test_a_patch_that_does_not_apply_is_named_with_its_file_and_leaves_the_tree(place: Place) -> None:
    place.built("source: ./linux")
    place.write("right.patch", PATCH.format(file="b", old="b", new="c"))
    place.write("wrong.patch", PATCH.format(file="a", old="other", new="c"))
    with pytest.raises(KernelError) as caught:
        place.built("source: ./linux\npatches: [right.patch, wrong.patch]")
    assert "wrong.patch does not apply to ./linux: " in str(caught.value)
    assert "patch failed: net/a.c:1" in str(caught.value)
    assert (place.home / "trees/mine/build/net/b.c").read_text() == "b\n"


def test_patches_of_the_release_come_first_for_virtual_time(place: Place) -> None:
    names = [patch.name for patch in place.find("./linux@v9.8").patches]
    assert names == sorted(names)
    assert all("/kernels/patches/7.2/" in name for name in names)  # the newest that is not newer than 9.8
    git(place.linux, "checkout", "--quiet", "v9.8")
    commit(place.linux, "older", Makefile="VERSION = 6\nPATCHLEVEL = 18\n")
    older = place.find("./linux@HEAD")
    assert {Path(patch.name).parent.name for patch in older.patches} == {"6.12"}
    assert older.result.name == f"linux-{older.id}"
