"""The kernel for testing modules finds their mistakes, and finds none where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
import uml

pytestmark = pytest.mark.kernels

FOUND = {
    "use_after_free": "BUG: KASAN: slab-use-after-free in faulty_init",
    "leak": "unreferenced object",
    "order_of_locks": "possible circular locking dependency detected",
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uml.build_module(Path(__file__).parent / "faulty", tmp_path_factory.mktemp("module"), uml.DEBUG)


def load(module: Path, work: Path, mistake: str) -> None:
    """It is loaded twice without a mistake before: after a load nothing has ceased to be looked at."""
    (work / module.name).write_bytes(module.read_bytes())
    steps = ["insmod ./faulty.ko", "rmmod faulty"] * 2 + [f"insmod ./faulty.ko mistake={mistake}"]
    uml.run("\n".join(steps), work, virtual=True, kernel=uml.DEBUG)


@pytest.mark.parametrize("mistake", FOUND)
def test_a_mistake_is_found(module: Path, tmp_path: Path, mistake: str) -> None:
    with pytest.raises(AssertionError, match=FOUND[mistake]):
        load(module, tmp_path, mistake)


def test_nothing_else_is(module: Path, tmp_path: Path) -> None:
    load(module, tmp_path, "none")
