"""The site of the documentation: it is built without a warning, no link is dead, and it needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documented import REPOSITORY, pages

NETWORK = ("http", "https", "mailto")


class Page(HTMLParser):
    """What a page links, what a browser loads for it, and which places it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.places |= {given["id"]} if "id" in given else set()
        self.loaded |= {given["src"]} if "src" in given else set()
        if "href" in given:
            (self.loaded if tag == "link" else self.links).add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make site`` does."""
    (recipe,) = re.findall(r"^\tpython (-m sphinx .*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    built = tmp_path_factory.mktemp("site")
    arguments = recipe.replace(".build/", f"{built}/")
    done = subprocess.run(
        [sys.executable, *arguments.split()], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return built / "site"


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html")}


def dead(parsed: dict[Path, Page]) -> Iterator[str]:
    for file, page in parsed.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme in NETWORK:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            if not target.is_file() or (place and target in parsed and place not in parsed[target].places):
                yield f"{file}: {link}"


def test_no_link_is_dead(parsed: dict[Path, Page]) -> None:
    assert [*dead(parsed)] == []


def test_every_page_is_there(site: Path, parsed: dict[Path, Page]) -> None:
    own = [page for page in pages() if not page.startswith("ansible_collections/")]  # those are for Galaxy
    assert {site / Path(page).with_suffix(".html") for page in own} <= parsed.keys()


def test_nothing_is_loaded_from_the_network(parsed: dict[Path, Page]) -> None:
    assert {
        link for page in parsed.values() for link in page.loaded if urlsplit(link).scheme in NETWORK
    } == set()


def test_words_are_found(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert all(f'"{word}"' in index for word in ("ssthresh", "bufferbloat"))


def test_a_linked_scenario_is_shown(parsed: dict[Path, Page], site: Path) -> None:
    shown = site / "files" / "scenarios" / "one_flow.yml.html"
    assert "iperf3_tcp" in shown.read_text()
    tutorial = site / "docs" / "tutorials" / "first_testbed.html"
    assert "../../files/scenarios/one_flow.yml.html" in parsed[tutorial].links
