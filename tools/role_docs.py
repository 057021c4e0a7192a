"""Write the tables of variables in the roles' READMEs, and the table of roles (``make docs``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

LIST = Path("docs/roles.md")
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


def roles_in(folder: Path) -> list[Path]:
    """All roles of a folder, by name."""
    return sorted(path.parent.parent for path in folder.glob("*/meta/argument_specs.yml"))


def listed(text: str, roles: Path) -> str:
    """The page of all roles, with the current table at its end: the first sentence of each README."""
    rows = ["| role | |\n", "|---|---|\n"]
    for role in roles_in(roles):
        _, about, _ = (role / "README.md").read_text().split("\n\n", 2)
        sentence = " ".join(about.split()).partition(". ")[0].removesuffix(".")
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence)
        rows.append(f"| [{role.name}](../roles/{role.name}/README.md) | {plain} |\n")
    return text.partition(rows[0])[0] + "".join(rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for each in roles_in(folder):
        (each / "README.md").write_text(documented(each))
    LIST.write_text(listed(LIST.read_text(), folder))
