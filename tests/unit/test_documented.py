"""Every command of the documentation has a kind, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from ansible.cli.playbook import PlaybookCLI
from documented import KINDS, LANGUAGES, REPOSITORY, Block, blocks, counts, pages, programs, table
from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser import Parser
from ruamel.yaml import YAML

from dumbbell.cli import commands
from dumbbell.cli.playbooks import PLAYBOOKS
from dumbbell.places import known

BLOCKS = [block for page in pages() for block in blocks(page)]
OF_COMMANDS = [block for block in BLOCKS if block.kind]
CONTEXTS = {context.name: context for context in Collection.from_module(commands).to_contexts()}
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
# Of the shell and of the machine: their arguments are not checked.
OTHERS = {
    *(".", "ansible-galaxy", "ansible-vault", "cp", "date", "echo", "eval", "export", "grep", "insmod"),
    *("iperf3", "mkdir", "mv", "openssl", "pip", "python3", "readlink", "sed", "sleep", "ss", "ssh"),
    *("ssh-copy-id", "ssh-keygen", "ssh-keyscan", "tc", "tr", "umask"),
}
# Where programs in Go have their flags.
GO = {"dumbbell-collect": "cmd/dumbbell-collect", "atou": "cmd/atou"}
FOLDERS = [entry.name for entry in REPOSITORY.glob("[a-z]*") if entry.is_dir() and entry.name != "results"]
NAMED = re.compile(rf"(?<![\w./~-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*\w")
# What a reader makes, or puts in its place.
OF_THE_READER = re.compile(r"\bmine\b|^[A-Z_]+$")


def test_every_block_has_a_language_and_commands_a_kind() -> None:
    kinds = rf"sh ({'|'.join(KINDS)})( exits \d+)?"
    known_infos = re.compile("|".join([kinds, *map(re.escape, LANGUAGES)]))
    wrong = [f"{block.where}: ```{block.info}" for block in BLOCKS if not known_infos.fullmatch(block.info)]
    assert wrong == [], f"blocks begin with ```sh and one of {', '.join(KINDS)}, or with another language"


def test_the_page_of_commands_is_up_to_date() -> None:
    # In a process of its own: Invoke gives the help of a task's options once.
    written = "from tools.command_docs import PAGE, documented; print(documented(PAGE.read_text()), end='')"
    done = subprocess.run(
        [sys.executable, "-c", written], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == (REPOSITORY / "docs/commands.md").read_text(), "run make docs"


def test_how_many_commands_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = counts()
    with capsys.disabled():
        print(f"\nCommands of the documentation\n{table(found)}")
    assert sum(count["anywhere"] for count in found.values()) > 0


@pytest.mark.parametrize("block", OF_COMMANDS, ids=lambda block: block.where)
def test_commands_name_what_exists(block: Block) -> None:
    assert [problem for command in block.commands() for problem in problems(command)] == []


def test_commands_in_sentences_name_what_exists() -> None:
    wrong = []
    for page in pages():
        for span in re.findall(
            r"(?<!`)`((?:dumbbell|fab|make) [a-z][^`\n]*)`", (REPOSITORY / page).read_text()
        ):
            program, name, *words = span.split()
            if program == "make":
                there = name in TARGETS
            else:
                flags = CONTEXTS[name].flags if name in CONTEXTS else ()
                asked = {word.partition("=")[0] for word in words if word.startswith("--")}
                there = name in PLAYBOOKS or (name in CONTEXTS and all(flag in flags for flag in asked))
            wrong += [] if there else [f"{page}: {span}"]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("dumbbell plna one_flow", "dumbbell plna: there is no such command"),
        ("fab run one_flow", "fab run: there is no such command"),
        ("fab plan one_flow --pont x", "fab plan: No idea what '--pont' is!"),
        ("dumbbell run one_flow -p tiny --chek", "dumbbell run: unrecognized arguments: --chek"),
        ("fab plan one_flow --profile tiny", "one_flow has no profile tiny"),
        ("ansible-playbook playbooks/rnu.yml", "playbooks/rnu.yml: there is no such file"),
        ("ansible-playbook playbooks/run.yml -e senario=x", "no playbook or role has a variable senario"),
        ("make dmeo", "make dmeo: there is no such target"),
        ("make demo SCENARIOS=x", "make demo: the Makefile has no SCENARIOS"),
        ("python -m dumbbell.cli.suit", "dumbbell.cli.suit: there is no such module"),
        ("python -m dumbbell.cli.suite x --rseults y", "dumbbell.cli.suite: there is no --rseults"),
        ("dumbbell-collect tcp --prot 1", "dumbbell-collect: there is no --prot"),
        ("echo x | ls", "ls: no class of programs has it"),
    ],
)
def test_what_does_not_exist_is_found(command: str, problem: str) -> None:
    assert [each for each in problems(command) if problem in each], list(problems(command))


def problems(command: str) -> Iterator[str]:
    """What is wrong with a command, as far as that can be said without running it."""
    for name in NAMED.findall(command):
        if not OF_THE_READER.search(name) and not [*REPOSITORY.glob(name.removesuffix("/..."))]:
            yield f"{name}: there is no such file"
    for program, *words in programs(command):
        if program in CHECKS:
            yield from CHECKS[program](program, words)
        elif program in GO:
            source = "".join(file.read_text() for file in (REPOSITORY / GO[program]).glob("*.go"))
            yield from unknown_flags(program, words, source)
        elif program not in OTHERS:
            yield f"{program}: no class of programs has it"


def of_dumbbell(program: str, words: list[str]) -> Iterator[str]:
    name, *rest = words
    if name.startswith("--"):
        return
    if name in CONTEXTS:
        try:
            (context,) = Parser(contexts=[*CONTEXTS.values()]).parse_argv(words)
        except ParseError as error:
            yield f"{program} {name}: {error}"
            return
        values = {key: argument.value for key, argument in context.args.items()}
        if "scenario" in values:
            sides = [values[key] for key in ("a", "b") if values.get(key)]
            yield from of_scenario(values["scenario"], [values["profile"], *sides])
    elif name in PLAYBOOKS and program == "dumbbell":
        profile = [rest.pop(at + 1) for at in range(len(rest) - 1, -1, -1) if rest[at] == "-p"]
        rest = [word for word in rest if word != "-p"]
        value = rest.pop(0) if rest and not rest[0].startswith("-") else None
        if PLAYBOOKS[name].variable == "scenario" and value:
            yield from of_scenario(value, profile)
        yield from of_playbook(f"{program} {name}", [f"playbooks/{name.replace('-', '_')}.yml", *rest])
    else:
        yield f"{program} {name}: there is no such command"


def of_scenario(name: str, profiles: Sequence[str | None]) -> Iterator[str]:
    file = known(name, "scenarios")
    if OF_THE_READER.search(name):
        return
    if not file.exists():
        yield f"{name}: there is no such scenario"
        return
    there = YAML(typ="safe").load(file).get("profiles", {})
    for profile in filter(None, profiles):
        if profile not in there:
            yield f"{Path(name).stem} has no profile {profile}"


def of_playbook(program: str, words: list[str]) -> Iterator[str]:
    parser = PlaybookCLI([program])
    parser.init_parser()
    try:
        asked, unknown = parser.parser.parse_known_args(words)
    except SystemExit:
        yield f"{program}: ansible-playbook does not take {' '.join(words)}"
        return
    if unknown:
        yield f"{program}: unrecognized arguments: {' '.join(unknown)}"
    files = [*REPOSITORY.glob("playbooks/*.yml"), *REPOSITORY.glob("roles/*/*/*.yml")]
    variables = set(re.findall(r"\w+", "".join(file.read_text() for file in files)))
    given = dict(word.split("=", 1) for word in asked.extra_vars)
    for name in given.keys() - variables:
        yield f"{program}: no playbook or role has a variable {name}"
    if "scenario" in given:
        yield from of_scenario(given["scenario"], [given.get("profile")])


def of_make(program: str, words: list[str]) -> Iterator[str]:
    for word in words:
        name, given, _ = word.partition("=")
        if given and f"$({name})" not in MAKEFILE:
            yield f"{program} {words[0]}: the Makefile has no {name}"
        elif not given and word not in TARGETS:
            yield f"{program} {word}: there is no such target"


def of_python(_: str, words: list[str]) -> Iterator[str]:
    if words[0] == "-c":
        compile(words[1], "documentation", "exec")
        return
    found = find_spec(words[1])
    if found is None or found.origin is None:
        yield f"{words[1]}: there is no such module"
    else:
        yield from unknown_flags(words[1], words[2:], Path(found.origin).read_text())


def of_tests(program: str, words: list[str]) -> Iterator[str]:
    for word in words:
        if "/" in word and not (REPOSITORY / word.removesuffix("...")).exists():
            yield f"{program} {word}: there is no such directory"


def unknown_flags(program: str, words: list[str], source: str) -> Iterator[str]:
    for word in words:
        flag = word.partition("=")[0].lstrip("-")
        if word.startswith("--") and f'"{flag}"' not in source and f'"--{flag}"' not in source:
            yield f"{program}: there is no --{flag}"


CHECKS: dict[str, Callable[[str, list[str]], Iterator[str]]] = {
    **dict.fromkeys(("dumbbell", "fab"), of_dumbbell),
    **dict.fromkeys(("pytest", "go"), of_tests),
    "ansible-playbook": of_playbook,
    "make": of_make,
    "python": of_python,
}
