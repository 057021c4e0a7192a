"""Parts of pages: methods whose HTML notebooks show."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
from IPython.display import HTML
from markupsafe import Markup
from plotly.io import renderers
from plotly.io.base_renderers import MimetypeRenderer
from plotly.offline import get_plotlyjs

from dumbbell.report import html
from dumbbell.studies.source import Missing


def part(make: Callable[..., Markup]) -> Callable[..., HTML]:
    """Decorate a method that makes a part of a page; the message of :class:`Missing` replaces the part."""

    @functools.wraps(make)
    def made(*arguments: Any) -> HTML:
        page, *others = arguments
        name = getattr(page, "name", type(page).__name__.lower())
        html.save_figures_as(name, make.__name__, *map(str, others))
        try:
            text = make(*arguments)
        except Missing as missing:
            text = html.part("parts.html", "missing", sentence=str(missing))
        return HTML(text)  # type: ignore[no-untyped-call]

    return made


class _OnPage(MimetypeRenderer):  # type: ignore[misc]
    """Shows a figure that is the value of a cell as pages do."""

    def to_mimebundle(self, figure: dict[str, Any]) -> dict[str, str]:
        """HTML that needs plotly.js on its page."""
        html.save_figures_as("figure")
        return {"text/html": html.plot(go.Figure(figure))}


def setup() -> HTML:
    """Style sheet, script and plotly.js; needed once per page. Figures of Plotly are then shown by them."""
    renderers["dumbbell"] = _OnPage()
    renderers.default = "dumbbell"
    return HTML(html.part("parts.html", "setup", plotly=Markup(get_plotlyjs())))  # type: ignore[no-untyped-call]
