"""``dumbbell`` as users call it. Its commands that are Python are those of test_fab.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.cli.playbooks import PLAYBOOKS


def dumbbell(*words: str, folder: Path = REPOSITORY) -> tuple[int, str]:
    """Exit status, and everything that was said."""
    done = subprocess.run(
        [Path(sys.executable).with_name("dumbbell"), *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_playbook_is_started_with_the_words_of_the_user() -> None:
    code, said = dumbbell("virtual", "one_flow", "--syntax-check", "-e", "world=full")
    assert code == 0, said
    assert said.splitlines()[0] == (
        "ansible-playbook playbooks/virtual.yml -i inventory/vtime -e scenario=scenarios/one_flow.yml "
        "--syntax-check -e world=full"
    )


@pytest.mark.parametrize("profile", [("-p", "short"), ("--profile=short",), ("-e", "profile=short")])
def test_a_profile_is_laid_over_the_scenario(profile: tuple[str, ...]) -> None:
    code, said = dumbbell("virtual", "web_fetches", *profile, "--syntax-check")
    assert code == 0, said
    words = said.splitlines()[0].split()
    assert words[4:6] == ["-e", "scenario=scenarios/web_fetches.yml"]
    assert words[words.index("profile=short") - 1] == "-e"


def test_the_exit_status_is_that_of_the_playbook() -> None:
    code, said = dumbbell("check", "-iinventory/vtime", "--list-hosts", "--nothing")
    assert said.startswith("ansible-playbook playbooks/check.yml -i inventory/vtime --list-hosts --nothing\n")
    assert code == 2, said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("plna", "one_flow"),
            2,
            "There is no command plna. The nearest is plan. dumbbell --help lists all.",
        ),
        (("plan", "-h"), 0, "Usage: dumbbell plan SCENARIO [OPTIONS]"),
        (("restore", "--help"), 0, "Usage: dumbbell restore [OPTIONS of ansible-playbook]"),
        (("--complete", "--", "dumbbell", "pro"), 0, "\nprovision\n"),
    ],
)
def test_what_is_told(words: tuple[str, ...], code: int, said: str) -> None:
    found = dumbbell(*words)
    assert (found[0], said in found[1]) == (code, True), found[1]


def test_playbooks_are_run_in_the_checkout(tmp_path: Path) -> None:
    assert dumbbell("run", folder=tmp_path) == (1, f"Playbooks are run in the checkout: cd {REPOSITORY}\n")


@pytest.mark.parametrize("command", PLAYBOOKS)
def test_each_playbook_is_there_and_takes_its_variable(command: str) -> None:
    text = (REPOSITORY / f"playbooks/{command.replace('-', '_')}.yml").read_text()
    variable = PLAYBOOKS[command].variable
    assert not variable or re.search(rf"{{{{[^}}]*\b{variable}\b", text)


def test_a_reader_of_the_help_may_leave() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(Path(sys.executable).with_name("dumbbell")), "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=REPOSITORY, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
