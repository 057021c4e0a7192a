"""Commands of the documentation that need the lab or virtual time, page by page, as a reader types them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from documented import REPOSITORY, follow, pages_with
from lab import Lab

pytestmark = pytest.mark.long

MINE = REPOSITORY / "mine"  # what pages have the reader write
TIMEOUT_S = 3600 * 3


@pytest.fixture
def _mine() -> Iterator[None]:
    """Nothing of the reader's before and after a page."""
    if MINE.exists():
        pytest.fail(f"{MINE} is there: pages write into it. Move it away", pytrace=False)
    yield
    shutil.rmtree(MINE, ignore_errors=True)


def check(page: str, kind: str) -> None:
    """Follow a page in the checkout, with its commands that run anywhere."""
    code, said = follow(page, "anywhere", kind, folder=REPOSITORY, timeout_s=TIMEOUT_S)
    assert code == 0, said[-4000:]


@pytest.mark.e2e
@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize("page", pages_with("lab"))
def test_in_the_lab(page: str, lab: Lab) -> None:
    check(page, "lab")


@pytest.mark.virtual
@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize("page", pages_with("virtual"))
def test_in_virtual_time(page: str) -> None:
    check(page, "virtual")
