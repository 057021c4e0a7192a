"""Commands of the documentation: found in its pages, checked, and followed.

A block of commands begins with ```` ```sh KIND ````, after which may follow ``exits STATUS``.
``python tests/documented.py`` counts the commands of each page by kind.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
KINDS = {
    "anywhere": "run on any machine: tests/integration/test_followed.py",
    "lab": "run in the lab: tests/e2e/test_followed_in_worlds.py",
    "virtual": "run in virtual time: tests/e2e/test_followed_in_worlds.py",
    "hosts": "need real hosts: tests/hosts follows those of docs/physical-testbed.md",
    "checked": "take hours, or need what only the reader has",
}
LANGUAGES = ("c", "elisp", "ini", "json5", "lua", "python", "text", "toml", "yaml", "{eval-rst}")
BLOCK = re.compile(r"^(?P<indent> *)```(?P<info>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: what stands after its fence, and its text."""

    page: str
    line: int
    info: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`; '' if the block has no commands."""
        language, *words = self.info.split()
        return words[0] if language == "sh" else ""

    @property
    def status(self) -> int:
        """With which its last command exits."""
        return int(found[1]) if (found := re.search(r" exits (\d+)$", self.info)) else 0

    def commands(self) -> Iterator[str]:
        """Each whole command, which may have several lines."""
        command = ""
        for line in self.text.splitlines():
            command += f"{line}\n"
            whole = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False)
            if whole.returncode == 0 and not line.endswith("\\"):
                if command.strip():
                    yield command
                command = ""
        assert not command, f"{self.where}: bash cannot read {command!r}"


def pages() -> list[str]:
    """Every page of the documentation, by its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(page for page in listed.stdout.splitlines() if not page.startswith("tests/"))


def blocks(page: str) -> list[Block]:
    """Fenced blocks of a page, in order."""
    text = (REPOSITORY / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["info"], found["text"])
        for found in BLOCK.finditer(text)
    ]


def pages_with(kind: str) -> list[str]:
    """Those with commands of a kind."""
    return [page for page in pages() if any(block.kind == kind for block in blocks(page))]


def script(page: str, *kinds: str) -> str:
    """What bash is to run to follow a page's blocks of some kinds; it ends at the first that fails."""
    parts = ["set -euo pipefail"]
    for block in blocks(page):
        if block.kind in kinds:
            parts += [f"echo {shlex.quote(f'--- {block.where}')} >&2", block.text]
            if block.status:
                parts[-1] = f"status=0\n{{\n{block.text}}} || status=$?\ntest $status = {block.status}"
    return "\n".join(parts)


def follow(
    page: str, *kinds: str, folder: Path, timeout_s: float, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """Follow a page's blocks of some kinds in a folder; the exit status and what was said."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script(page, *kinds)],
        cwd=folder,
        env=os.environ | {"PATH": path} | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def programs(command: str) -> list[list[str]]:
    """Programs that a command starts, each with its arguments, without what is the shell's."""
    found: list[list[str]] = [[]]
    for line in command.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for token in [*lexer, ";"]:
            if set(token) <= set(";|&()"):
                found.append([])
            else:
                found[-1].append(token)
    return [program for simple in found if (program := _program(simple))]


def _program(simple: list[str]) -> list[str]:
    """A simple command without what the shell takes of it."""
    left: list[str] = []
    redirected = False
    for word in simple:
        if redirected or set(word) <= set("<>"):
            redirected = not redirected
        elif left or not (word in {"do", "done", "while"} or re.match(r"\w+=", word)):
            left.append(word)
    return [] if left[:1] == ["for"] else left


def counts() -> dict[str, Counter[str]]:
    """How many commands of each kind every page has."""
    found = {}
    for page in pages():
        found[page] = Counter[str]()
        for block in blocks(page):
            found[page][block.kind] += len([*block.commands()]) if block.kind else 0
    return found


def table(found: dict[str, Counter[str]]) -> str:
    """The counts of pages with commands, and their sums."""
    rows = {page: count for page, count in found.items() if count.total()}
    rows["all"] = sum(rows.values(), Counter())
    lines = ["".join(f"{kind:>9}" for kind in KINDS)]
    for page, count in rows.items():
        lines.append("".join(f"{count[kind] or '':>9}" for kind in KINDS) + f"  {page}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(counts()))
