"""A kernel by its recipe: which source, which patches, and what of it is compiled again.

The kernel is a small tree with the targets of kbuild that the role calls; apt, git, make and role are real.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbooks import ansible_playbook, unfolded

MAKEFILE = """
VERSION = 9
PATCHLEVEL = 9
release = 9.9.0$(shell sed -n 's/^CONFIG_LOCALVERSION="\\(.*\\)"/\\1/p' .config)
defconfig: ; echo CONFIG_A=y >.config
olddefconfig modules: ;
linux: a.o b.o ; cat $^ >$@
%.o: %.c ; cp $< $@ && echo $< >>../compiled
kernelrelease: ; @echo $(release)
modules_install: ; mkdir -p $(INSTALL_MOD_PATH)/lib/modules/$(release)
"""
FILES = {
    "Makefile": MAKEFILE,
    "Module.symvers": "",
    "a.c": "a\n",
    "b.c": "b\n",
    # That of 6.1 knows fewer options.
    "scripts/kconfig/merge_config.sh": '#!/bin/sh\n[ "$1 $2" = "-m .config" ] && cat "$3" >>"$2"\n',
    "tools/include/x.h": "",
    "arch/um/x.h": "",
    "arch/x86/x.h": "",
    "include/x.h": "",
    ".gitignore": "*.o\nlinux\n.config\n",
}
PATCH = """Says why.

--- a/{name}.c
+++ b/{name}.c
@@ -1 +1 @@
-{old}
+{new}
"""


def write_tree(folder: Path, **more: str) -> Path:
    for name, text in (FILES | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "scripts/kconfig/merge_config.sh").chmod(0o755)
    return folder


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    return subprocess.check_output(["git", *who, *arguments], cwd=folder, text=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A git tree of the user's."""
    folder = write_tree(tmp_path / "linux")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "9.9")
    return folder


class Builds:
    """Recipes and what is built of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernels = folder / "kernels"

    def patch(self, name: str, old: str, new: str, file: str = "") -> str:
        path = self.folder / (file or f"{name}.patch")
        path.parent.mkdir(exist_ok=True)
        path.write_text(PATCH.format(name=name, old=old, new=new))
        return path.name

    def play(self, recipe: str, *arguments: str, name: str = "mine") -> tuple[int, str]:
        (self.folder / f"{name}.yml").write_text(f"arch: um\n{recipe}\n")
        code, said = ansible_playbook(
            *("playbooks/kernel_build.yml", "-e", f"kernel={self.folder}/{name}.yml"),
            *("-e", f"kernel_build_dir={self.kernels}", "-e", '{"kernel_build_packages": ["git"]}'),
            *arguments,
        )
        return code, unfolded(said)

    def build(self, recipe: str, *arguments: str, name: str = "mine") -> tuple[str, list[str]]:
        """What the kernel was linked of, and which files were compiled for it."""
        compiled = self.kernels / "trees" / name / "compiled"
        compiled.unlink(missing_ok=True)
        code, said = self.play(recipe, *arguments, name=name)
        assert code == 0, said[-3000:]
        (package,) = (self.kernels / name).glob("linux-image-*.deb")
        unpacked = self.folder / "unpacked"
        subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        linked = (unpacked / "usr/bin/linux.uml").read_text()
        shutil.rmtree(unpacked)
        return linked, sorted(compiled.read_text().split()) if compiled.exists() else []


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def test_only_what_a_patch_changes_is_compiled_again(builds: Builds, source: Path) -> None:
    one, other = builds.patch("a", "a", "patched"), builds.patch("b", "b", "changed")
    asked = "source: ./linux\n"
    assert builds.build(asked) == ("a\nb\n", ["a.c", "b.c"])
    assert builds.build(f"{asked}patches: [{one}]") == ("patched\nb\n", ["a.c"])
    assert builds.build(f"{asked}patches: [{one}, {other}]") == ("patched\nchanged\n", ["b.c"])
    assert builds.build(f"{asked}patches: [{other}]") == ("a\nchanged\n", ["a.c"])
    # What was built is there: nothing to do but to give it its name.
    assert builds.build(asked) == ("a\nb\n", [])
    # Changes that are not committed are part of the source.
    (source / "b.c").write_text("edited\n")
    assert builds.build(asked) == ("a\nedited\n", ["b.c"])
    assert len(list(builds.kernels.glob("mine-*"))) == 5


def test_nothing_is_built_or_written_the_second_time(builds: Builds, source: Path) -> None:
    builds.build("source: ./linux")
    code, said = builds.play("source: ./linux")
    assert code == 0
    assert "changed=0 " in said


def test_patches_of_a_directory_are_applied_by_name(builds: Builds, source: Path) -> None:
    builds.patch("a", "first", "second", "series/0002-then.patch")
    builds.patch("a", "a", "first", "series/0001-begin.patch")
    assert builds.build("source: ./linux\npatches: [series]")[0] == "second\nb\n"


def test_a_patch_that_does_not_apply_is_named_and_leaves_the_tree(builds: Builds, source: Path) -> None:
    builds.build("source: ./linux")
    wrong = builds.patch("b", "other", "changed", "wrong.patch")
    code, said = builds.play(f"source: ./linux\npatches: [{builds.patch('a', 'a', 'patched')}, {wrong}]")
    assert code != 0
    assert "wrong.patch does not apply to ./linux: " in said
    assert "error: patch failed: b.c:1" in said
    assert (builds.kernels / "trees/mine/build/a.c").read_text() == "a\n"


def test_why_a_kernel_does_not_build_is_kept_and_it_is_tried_again(builds: Builds, source: Path) -> None:
    code, said = builds.play("source: ./linux\nbase: [none]")
    assert code != 0
    assert "mine.yml does not build: " in said
    (failed,) = builds.kernels.glob("mine-*.failed")
    assert "No rule to make target 'none'" in failed.read_text()
    builds.build("source: ./linux")
    assert [path.name for path in builds.kernels.glob("mine-*.failed")] == [failed.name]


def test_a_tree_and_a_series_need_no_recipe(builds: Builds, source: Path) -> None:
    like = builds.folder / "like.yml"
    like.write_text("source: linux-source-9.9\narch: x86\n")
    mine = builds.patch("a", "a", "patched")
    wanted = ("-e", f"kernel={source}@HEAD,{builds.folder}/{mine}", "-e", f"kernel_build_like={like}")
    code, said = ansible_playbook(
        *("playbooks/kernel_build.yml", *wanted, "--check", "-e", f"kernel_build_dir={builds.kernels}"),
        *("-e", '{"kernel_build_packages": ["git"]}'),
    )
    assert code == 0, said[-3000:]
    code, said = ansible_playbook("playbooks/kernel_build.yml", "-e", f"kernel={source}@next")
    assert code != 0
    assert f"{source} has no revision 'next'" in unfolded(said)


def test_a_file_that_was_edited_in_the_tree_is_restored(builds: Builds, source: Path) -> None:
    builds.build("source: ./linux")
    (builds.kernels / "trees/mine/build/b.c").write_text("by hand\n")
    patched = builds.patch("a", "a", "patched")
    assert builds.build(f"source: ./linux\npatches: [{patched}]") == ("patched\nb\n", ["a.c", "b.c"])


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("source: ./linux\nsuite: next", "`suite` is of a Debian package"),
        ("source: ./linux\nbranch: next", "mine.yml:3:1: branch: unknown key"),
        ("suite: next", "mine.yml:1:1: source: missing"),
    ],
)
def test_a_recipe_that_cannot_be_built_is_refused(
    builds: Builds, source: Path, recipe: str, reason: str
) -> None:
    code, said = builds.play(recipe)
    assert code != 0
    assert reason in said
    assert not builds.kernels.exists()


# --- a suite that the machine does not have ----------------------------------------------------------


def write_suite(archive: Path, suite: str, keys: str) -> None:
    """Sign the packages in pool/SUITE as a suite of Debian's."""
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    packages = archive / "dists" / suite / "main" / f"binary-{architecture}" / "Packages"
    packages.parent.mkdir(parents=True, exist_ok=True)
    scanned = subprocess.check_output(["dpkg-scanpackages", "--multiversion", f"pool/{suite}"], cwd=archive)
    packages.write_bytes(scanned)
    release = archive / "dists" / suite / "Release"
    place = packages.relative_to(release.parent)
    digest = subprocess.check_output(["sha256sum", packages], text=True).split()[0]
    release.write_text(
        f"Origin: Debian\nLabel: Debian\nSuite: {suite}\nCodename: {suite}\n"
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\n"
        f"Architectures: {architecture}\nComponents: main\nSHA256:\n {digest} {len(scanned)} {place}\n"
    )
    sign = ["gpg", "--homedir", keys, "--batch", "--yes", "--clearsign", "--output", "InRelease", "Release"]
    subprocess.run(sign, cwd=release.parent, check=True, capture_output=True)


def add_source_package(archive: Path, suite: str, version: str, text: str) -> None:
    """linux-source-9.9 as Debian has it, with `text` in a.c."""
    place = archive / "pool" / suite
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        write_tree(root / "linux-source-9.9", **{"a.c": text})
        (root / "deb/usr/src").mkdir(parents=True)
        (root / "deb/DEBIAN").mkdir()
        (root / "deb/DEBIAN/control").write_text(
            f"Package: linux-source-9.9\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@localhost>\n"
            "Description: x\n"
        )
        tar = root / "deb/usr/src/linux-source-9.9.tar.xz"
        subprocess.run(["tar", "-cJf", tar, "-C", root, "linux-source-9.9"], check=True)
        subprocess.run(["dpkg-deb", "--build", root / "deb", place], check=True, capture_output=True)


@pytest.fixture
def keys() -> Iterator[str]:
    """Home of a key; its agent's socket needs a short path."""
    with tempfile.TemporaryDirectory(prefix="keys") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet"]
        subprocess.run(
            [*gpg, "--passphrase", "", "--quick-gen-key", "archive"], check=True, capture_output=True
        )
        subprocess.run([*gpg, "--output", f"{home}/keys.gpg", "--export"], check=True)
        yield home
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


@pytest.fixture
def archive(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of two suites, of which the machine has `stable` among its sources."""
    archive, machine = tmp_path / "archive", tmp_path / "machine"
    add_source_package(archive, "stable", "9.9.0-1", "stable\n")
    add_source_package(archive, "next", "9.9.1-1~x", "next\n")
    for suite in ("stable", "next"):
        write_suite(archive, suite, keys)
    (machine / "lists/partial").mkdir(parents=True)
    (machine / "cache/archives/partial").mkdir(parents=True)
    (machine / "sources.list").write_text(f"deb [signed-by={keys}/keys.gpg] file:{archive} stable main\n")
    (machine / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{machine}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::Lists "{machine}/lists";\nDir::Cache "{machine}/cache";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(machine / "apt.conf"))
    subprocess.run(["apt-get", "update", "--error-on=any"], check=True, capture_output=True)
    return archive


def test_a_suite_that_the_machine_does_not_have_comes_from_its_mirror(
    builds: Builds, archive: Path, keys: str
) -> None:
    asked, keyring = "source: linux-source-9.9", ("-e", f"kernel_build_keyring={keys}/keys.gpg")
    assert builds.build(asked)[0] == "stable\nb\n"
    before = {path: path.stat().st_mtime_ns for path in archive.parent.glob("machine/**/*")}
    linked, _ = builds.build(f"{asked}\nsuite: next", *keyring)
    assert linked == "next\nb\n"
    assert {path: path.stat().st_mtime_ns for path in archive.parent.glob("machine/**/*")} == before
    # A newer package changes nothing until the lists are read again.
    add_source_package(archive, "next", "9.9.2-1", "newer\n")
    write_suite(archive, "next", keys)
    assert builds.build(f"{asked}\nsuite: next", *keyring)[0] == "next\nb\n"
    shutil.rmtree(builds.kernels / "suites/next")
    assert builds.build(f"{asked}\nsuite: next", *keyring) == ("newer\nb\n", ["a.c"])


def test_packages_that_the_keys_did_not_sign_are_refused(builds: Builds, archive: Path) -> None:
    code, said = builds.play("source: linux-source-9.9\nsuite: next")
    assert code != 0
    assert "NO_PUBKEY" in said
