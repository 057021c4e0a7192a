"""What runs on hosts is for the oldest Python of a supported distribution: 3.9 of RHEL 9."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FILES = [*(REPOSITORY / "plugins").glob("module*/**/*.py"), REPOSITORY / "roles/agent/files/dumbbell.fact"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            assert not node.keywords, f"line {node.lineno}: strict is of Python 3.10"


def test_a_match_would_be_refused() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass\n", feature_version=(3, 9))
