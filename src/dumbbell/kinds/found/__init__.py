"""The results of flows, by kind: files, checks and tables. Every module in this package is imported."""

from __future__ import annotations

import importlib
import pkgutil

from dumbbell.kinds.found.base import Found

FOUND: dict[str, Found] = {
    kind: found
    for module in pkgutil.iter_modules(__path__)
    if module.name not in ("base", "shared")
    for kind, found in importlib.import_module(f"{__name__}.{module.name}").FOUND.items()
}
