"""Packages import only those below them, as pyproject.toml lists them."""

from __future__ import annotations

import pytest
from importlinter.cli import lint_imports

from playbooks import REPOSITORY


def test_imports_go_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert lint_imports(cache_dir=None, no_cache=True) == 0  # what is printed names each import that does not
