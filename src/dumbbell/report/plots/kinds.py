"""The names of figures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import plotly.graph_objects as go

Draw = Callable[..., go.Figure]
_Draw = TypeVar("_Draw", bound=Draw)

OF_RUN: dict[str, Draw] = {}  # of a Source
OF_SET: dict[str, Draw] = {}  # of Points


def figure_of_run(draw: _Draw) -> _Draw:
    """Register a figure of one point, by the name of its function."""
    OF_RUN[draw.__name__] = draw
    return draw


def figure_of_set(draw: _Draw) -> _Draw:
    """Register a figure of several points, by the name of its function."""
    OF_SET[draw.__name__] = draw
    return draw


class Plots:
    """Figures of a run or of a set: ``run.plot.goodput()``. Its representation lists them."""

    def __init__(self, data: Any, kinds: Mapping[str, Draw]) -> None:
        self._data, self._kinds = data, kinds

    def __getattr__(self, name: str) -> Draw:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Draw:
        if name not in self._kinds:
            raise AttributeError(f"there is no figure {name} of it; there are {', '.join(self._kinds)}")
        bound = functools.update_wrapper(functools.partial(self._kinds[name], self._data), self._kinds[name])
        del bound.__wrapped__  # its signature has the run, which is given
        return bound

    @property
    def names(self) -> list[str]:
        """All that can be called."""
        return list(self._kinds)

    def __dir__(self) -> list[str]:
        return self.names

    def __repr__(self) -> str:
        return "\n".join(f"{call}: {what}" for call, what in self.described)

    @property
    def described(self) -> list[tuple[str, str]]:
        """Each figure as it is called, without the run, and the first line of what it shows."""
        found = []
        for name, draw in self._kinds.items():
            arguments = [str(a).split(":")[0] for a in list(inspect.signature(draw).parameters.values())[1:]]
            found.append((f"{name}({', '.join(arguments)})", (draw.__doc__ or "").partition("\n")[0]))
        return found
