"""The package alone, on a machine that has no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from synthetic import REPOSITORY

RENDER = """
import sys
from pathlib import Path
import dumbbell
from dumbbell.report.notebooks import NOTEBOOKS, render
from dumbbell.report.pages.index import render_index
run = Path(sys.argv[1])
print(dumbbell.__file__, NOTEBOOKS, sep="\\n")
print(render(run), render(run, NOTEBOOKS / "fairness.py"), render_index(run.parent), sep="\\n")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which the wheel is installed, without what it depends on."""
    uv = shutil.which("uv")
    assert uv, "make setup installs uv"
    built = tmp_path_factory.mktemp("wheel")
    python = ("--python", sys.executable)
    build = (uv, "build", "--wheel", "--quiet", "--offline", "--no-build-isolation", *python)
    subprocess.run([*build, "--out-dir", built, REPOSITORY], check=True)
    (wheel,) = built.glob("*.whl")
    install = (uv, "pip", "install", "--quiet", "--offline", "--no-deps", *python)
    subprocess.run([*install, "--target", built / "installed", wheel], check=True)
    return built / "installed"


def ran(installed: Path, folder: Path, *words: str | Path) -> tuple[int, str]:
    """Exit status and output of a program of the package in a directory."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_run_directory_is_reported_on_without_the_repository(
    collected: Path, installed: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(collected, tmp_path / "20260101T000000Z_two_flow_fairness")
    code, said = ran(installed, tmp_path, sys.executable, "-P", "-c", RENDER, run_dir)
    assert code == 0, said
    package, notebooks, *pages = map(Path, said.split())
    assert package.is_relative_to(installed)
    assert notebooks.is_relative_to(installed)
    for page in pages[:2]:
        assert "plotly-graph-div" in page.read_text()
    assert "runs <b>1</b>" in pages[2].read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "Show the plan of a scenario"),
        (["plan", "one_flow"], 0, "One cubic flow through the emulated path"),
        (["plan", "one_flow", "-i", "inventory/vtime"], 0, "in virtual time"),
        (["run", "one_flow", "--syntax-check"], 0, "ansible-playbook dumbbell.testbed.run -e scenario=/"),
        (["check", "one_flow", "-i", "inventory/vtime", "--list-hosts"], 0, "receiver2"),
        (["provision", "--list-tasks"], 0, "Run the roles"),
        (["restore", "--syntax-check"], 0, "playbooks/restore.yml"),
        (["virtual", "none"], 2, "none:1:1: cannot be read"),
        (["virtual", "one_flow"], 2, "/.build/bin/dumbbell-agent: dumbbell build"),
        (["kernel-build", "none.yml"], 2, "none.yml is no file: name a recipe"),
        (["nightly"], 0, "scenarios/two_flow_fairness.yml"),
        (["nightly", "--suite", "suites/tiny.yml", "-i", "inventory/vtime"], 0, "scenarios/"),
        (["ab", "one_flow", "a", "b"], 1, "the scenario has no profile a"),
        (["bisect", "one_flow", "none", "a", "b"], 2, "none"),
        (["evaluate", "none/tcp_mine"], 2, "none/tcp_mine is no directory of a module"),
        (["build", "--program", "none"], 2, "No rule to make target"),
        (["live"], 1, "results/latest"),
    ],
)
def test_commands_in_an_empty_directory(
    words: list[str], code: int, said: str, installed: Path, tmp_path: Path
) -> None:
    found = ran(installed, tmp_path, installed / "bin" / "dumbbell", *words)
    assert (found[0], said in found[1]) == (code, True), found[1]


def test_a_new_scenario_names_the_schema_of_the_package(installed: Path, tmp_path: Path) -> None:
    code, said = ran(installed, tmp_path, installed / "bin" / "dumbbell", "new", "mine")
    assert code == 0, said
    header = (tmp_path / "mine.yml").read_text().partition("\n")[0]
    schema = Path(header.removeprefix("# yaml-language-server: $schema="))
    assert schema.is_relative_to(installed)
    assert schema.read_bytes() == (REPOSITORY / "schemas/scenario.schema.json").read_bytes()


def test_what_commands_name_is_in_the_wheel(installed: Path) -> None:
    folders = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    shipped = folders["wheel"]["force-include"]
    # A link is shipped as the directory or file to which it leads.
    asked = [*shipped, "roles", "plugins", "playbooks", "vars"]
    tracked = subprocess.check_output(["git", "ls-files", *asked], cwd=REPOSITORY, text=True).splitlines()
    collection = Path("ansible_collections/dumbbell/testbed")
    lacking = [
        file
        for file in tracked
        if not any((installed / "dumbbell/shipped" / place).exists() for place in (file, collection / file))
    ]
    assert tracked
    assert lacking == []
