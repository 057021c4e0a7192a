"""The program ``dumbbell``."""

from __future__ import annotations

import os
from difflib import get_close_matches
from importlib.metadata import version
from inspect import getdoc
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.program import Program
from invoke.tasks import Task

from dumbbell.cli import commands, playbooks, printing
from dumbbell.cli.arguments import in_checkout
from dumbbell.places import REPOSITORY


class Dumbbell(Program):
    """Invoke's program with the commands that are Python; those that are playbooks it lists and completes."""

    def __init__(self) -> None:
        namespace = Collection.from_module(commands)
        for name, playbook in playbooks.PLAYBOOKS.items():
            namespace.add_task(_listed(playbook.does), name)
        super().__init__(version("dumbbell"), namespace, "Dumbbell", "dumbbell", binary_names=["dumbbell"])

    def print_help(self) -> None:
        """All commands; Invoke would begin with twenty options of its own."""
        with printing():
            print("Usage: dumbbell COMMAND [...]           dumbbell COMMAND --help tells of its options\n")
            self.list_tasks()
            print('Completion: eval "$(dumbbell --print-completion-script bash)", or zsh, or fish\n')

    def print_task_help(self, name: str) -> None:
        """One command: what it takes, does, and which options it has."""
        if name in playbooks.PLAYBOOKS:
            print(playbooks.usage(name))
            return
        context = self.parser.contexts[name]
        taken = "".join(f" {argument.name.upper()}" for argument in context.positional_args)
        print(f"Usage: dumbbell {name}{taken} [OPTIONS]\n\n{getdoc(self.collection[name])}\n")
        self.print_columns(context.help_tuples())

    def parse_tasks(self) -> None:
        """Start a playbook; Exit with the nearest command in place of one that there is not."""
        name, *words = self.core.unparsed or [""]
        known = self.collection.task_names
        if name and name not in known:
            near = "".join(f" The nearest is {each}." for each in get_close_matches(name, known, 1))
            raise Exit(f"There is no command {name}.{near} dumbbell --help lists all.", 2)
        if {"-h", "--help"} & {*words}:  # which Invoke would take for a positional argument
            self.parser = self._make_parser()
            self.print_task_help(name)
            raise Exit
        if name in (*commands.START_PLAYBOOKS, *playbooks.PLAYBOOKS):
            in_checkout()
        if name in playbooks.PLAYBOOKS:  # with the words as they were typed: Invoke has split -vv
            playbooks.start(name, self.argv[self.argv.index(name) + 1 :])
        super().parse_tasks()


def _listed(does: str) -> Task[Any]:
    def body(_: Context) -> None: ...

    body.__doc__ = does
    return Task(body)


def main() -> None:
    """Entry point."""
    if not Path("ansible.cfg").is_file():
        os.environ.setdefault("ANSIBLE_CONFIG", str(REPOSITORY / "ansible.cfg"))
    Dumbbell().run()
