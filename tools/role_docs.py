"""Write the tables of variables in the roles' READMEs from argument_specs and defaults (``make docs``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HEADING = "| variable | default | |\n|---|---|---|\n"
TABLE = re.compile(r"\| variable \| default \| \|\n(\|.*\n)+")
MOST = 40  # most characters of a default in a table


def options(role: Path) -> dict[str, dict[str, Any]]:
    """Variables of all entry points of a role, in their order."""
    specs = YAML(typ="safe").load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {name: option for entry in specs.values() for name, option in entry.get("options", {}).items()}


def defaults(role: Path) -> dict[str, Any]:
    """Defaults of a role, as they are written."""
    file = role / "defaults/main.yml"
    return (YAML(typ="safe").load(file.read_text()) if file.exists() else None) or {}


def table(role: Path) -> str:
    """The role's variables as a Markdown table."""
    given = defaults(role)
    rows = []
    for name, option in options(role).items():
        default = "required" if option.get("required") else ""
        if name in given:
            text = _text(given[name])
            default = (
                f"`{text}`" if len(text) <= MOST and "{{" not in text else "[defaults](defaults/main.yml)"
            )
        description = option["description"]
        words = " ".join(description if isinstance(description, list) else [description])
        words = re.sub(r"[CVOM]\(([^)]*)\)", r"`\1`", words).replace("|", "\\|")
        rows.append(f"| `{name}` | {default} | {words} |\n")
    return HEADING + "".join(rows)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or value is True or value is False
        else str(value) or '""'
    )


def documented(role: Path) -> str:
    """The role's README with the current table, in its place or at the end."""
    text = (role / "README.md").read_text()
    wanted = table(role)
    if TABLE.search(text):
        return TABLE.sub(lambda _: wanted, text)
    return f"{text.rstrip()}\n\n{wanted}"


if __name__ == "__main__":
    for folder in sorted(path.parent.parent for path in Path(sys.argv[1]).glob("*/meta/argument_specs.yml")):
        (folder / "README.md").write_text(documented(folder))
