"""The keys of flows in a scenario, by kind. Every module in this package is imported."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from dumbbell.kinds.asked.base import BaseFlow, Kind

_MODULES = [
    importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
    if module.name != "base"
]
KINDS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
ASKED = {kind.name: kind.asked for kind in KINDS.values() if kind.asked is not None}

if TYPE_CHECKING:
    Flow = BaseFlow
else:
    Flow = Annotated[
        Union[tuple(dict.fromkeys(ASKED.values()))],  # noqa: UP007  it is made here
        Field(discriminator="kind"),
    ]
