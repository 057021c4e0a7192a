"""Write the tables of commands in ``docs/commands.md`` from the commands themselves (``make docs``)."""

from __future__ import annotations

import re
from inspect import getdoc
from pathlib import Path

from invoke.collection import Collection
from invoke.parser.context import ParserContext

from dumbbell.cli import commands
from dumbbell.cli.playbooks import PLAYBOOKS

PAGE = Path("docs/commands.md")
PLAYBOOKS_TABLE = "| playbook | |\n|---|---|\n"


def documented(text: str) -> str:
    """The page with the current commands."""
    contexts = {str(context.name): context for context in Collection.from_module(commands).to_contexts()}
    parts = [text.partition(PLAYBOOKS_TABLE)[0], PLAYBOOKS_TABLE]
    for name, playbook in sorted(PLAYBOOKS.items()):
        variable = f" [{playbook.variable.upper()}]" if playbook.variable else ""
        parts.append(f"| `dumbbell {name}{variable}` | {playbook.does} |\n")
    parts += [_section(contexts[name]) for name in sorted(contexts)]
    return "".join(parts)


def _section(context: ParserContext) -> str:
    names = {str(argument.name).upper(): argument.kind is list for argument in context.positional_args}
    taken = "".join(f" [{name}]" if optional else f" {name}" for name, optional in names.items())
    does = getdoc(getattr(commands, str(context.name))) or ""
    does = re.sub(r"\bdocs/(\w+\.md)", r"[\1](\1)", does.replace("``", "`"))
    rows = [f"| `{names}` | {text} |\n" for names, text in context.help_tuples()]
    head = f"\n## {context.name}\n\n`dumbbell {context.name}{taken}`\n\n{does}\n\n"
    return f"{head}| option | |\n|---|---|\n{''.join(rows)}"


if __name__ == "__main__":
    PAGE.write_text(documented(PAGE.read_text()))
