"""Tables of published results beside those found here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.results import TABLES, Source, renewed

DOCUMENT = REPOSITORY / "docs" / "results.md"


def prose(text: str) -> str:
    """What is written by hand."""
    return re.sub(r"^(\|.*|No valid run yet\.|)\n", "", text, flags=re.MULTILINE)


def test_every_table_is_in_the_document_once() -> None:
    assert sorted(re.findall(r"<!-- table (\w+) -->", DOCUMENT.read_text())) == sorted(TABLES)


def test_what_is_said_about_the_tables_stays(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    without = renewed(text, [Source("lab", tmp_path)])
    assert prose(without) == prose(text)
    assert renewed(without, [Source("lab", tmp_path)]) == without
    assert "| 800 Mbit/s | 655 Mbit/s, -18.1% | - | - |" in without


def test_a_table_that_nobody_makes_is_named() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        renewed("<!-- table nonsense -->\n<!-- end -->\n", [])
