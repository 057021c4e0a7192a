"""Tables of published results beside those found here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from synthetic import REPOSITORY

from tools.results import TABLES, Found, measured, renewed
from tools.results_rows import Source

DOCUMENT, KEPT = REPOSITORY / "docs" / "results.md", REPOSITORY / "docs" / "results.json"
NOTHING: Found = {name: {} for name in TABLES}


def prose(text: str) -> str:
    """What is written by hand."""
    return re.sub(r"^(\|.*|No valid run yet\.|)\n", "", text, flags=re.MULTILINE)


def test_every_table_is_in_the_document_once() -> None:
    assert sorted(re.findall(r"<!-- table (\w+) -->", DOCUMENT.read_text())) == sorted(TABLES)


def test_the_tables_are_those_of_what_was_found() -> None:
    text = DOCUMENT.read_text()
    assert renewed(text, json.loads(KEPT.read_text())) == text


def test_what_was_found_has_as_many_cells_in_each_row() -> None:
    for name, parts in json.loads(KEPT.read_text()).items():
        for where, part in parts.items():
            beside, head = TABLES[name].beside, TABLES[name].first[0]
            wanted = len(part[0]) if beside else len(head) - 1
            assert {len(cells) for cells in part} == {wanted} != {0}, (name, where)


def test_what_is_said_about_the_tables_stays() -> None:
    text = DOCUMENT.read_text()
    without = renewed(text, NOTHING)
    assert prose(without) == prose(text)
    assert "| 800 Mbit/s | 655 Mbit/s, -18.1% |\n" in without
    assert "| shortest | different | together | 442 / 499, 1.00 |\n" in without


def test_what_was_found_before_stays_where_there_is_no_run(tmp_path: Path) -> None:
    before = NOTHING | {"udp_loss": {"lab": [["92.4 Mbit/s", "92.4 Mbit/s, +0.00%", "0 %"]]}}
    assert measured([Source("lab", tmp_path), Source("elsewhere", tmp_path)], before) == before


def test_each_kind_of_testbed_has_columns_or_rows() -> None:
    found = NOTHING | {
        "two_flows": {"lab": [["lab"], ["48 / 47, 1.00"]], "rack": [["rack"], ["-"], ["470 / 480, 1.00"]]},
        "udp_loss": {"lab": [["92.4 Mbit/s", "92.4 Mbit/s, +0.00%", "0 %"]]},
    }
    text = renewed(DOCUMENT.read_text(), found)
    assert "| RTT | pairs | start | original | lab | rack |\n" in text
    assert "| shortest | different | together | 442 / 499, 1.00 | 48 / 47, 1.00 | - |\n" in text
    assert "| shortest | same | together | - | - | 470 / 480, 1.00 |\n" in text
    assert "| lab | 92.4 Mbit/s | 92.4 Mbit/s, +0.00% | 0 % |\n" in text


def test_a_table_that_nobody_makes_is_named() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        renewed("<!-- table nonsense -->\n<!-- end -->\n", NOTHING)
