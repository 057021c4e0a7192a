"""What parts of pages are made of: a sentence in place of what is missing, figures with captions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextvars import ContextVar
from html import escape
from typing import Any

import plotly.graph_objects as go
from IPython.display import HTML
from plotly.offline import get_plotlyjs

from dumbbell.report import html

# File name under which the toolbar saves a figure: that of the run and of the part that shows it.
_saved_as: ContextVar[str] = ContextVar("_saved_as", default="figure")


class Missing(Exception):
    """A part of the report cannot be made; the message is the sentence that stands in its place."""


def part(make: Callable[..., str]) -> Callable[..., HTML]:
    """A method that makes a part of a page; the sentence of :class:`Missing` stands in its place."""

    @functools.wraps(make)
    def made(*arguments: Any) -> HTML:
        page, *others = arguments
        words = (getattr(page, "name", type(page).__name__.lower()), make.__name__, *map(str, others))
        _saved_as.set(re.sub(r"[^\w.-]+", "_", "_".join(words)))
        try:
            return HTML(make(*arguments))  # type: ignore[no-untyped-call]
        except Missing as missing:
            text = f'<p class="missing">{escape(str(missing))}</p>'
            return HTML(text)  # type: ignore[no-untyped-call]

    return made


def setup() -> HTML:
    """Style sheet, script and plotly.js: once a page."""
    text = f"{html.assets()}<script>{get_plotlyjs()}</script>"
    return HTML(text)  # type: ignore[no-untyped-call]


def show(figure: go.Figure, caption: str) -> str:
    """A figure with what it shows and from which counters."""
    body = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={
            "displaylogo": False,
            "responsive": True,
            "displayModeBar": "hover",
            # The last would upload the data to Plotly's servers.
            "modeBarButtonsToRemove": ["lasso2d", "select2d", "sendChartToCloud"],
            # As wide as it is shown; three dots for each of the screen's are enough for print.
            "toImageButtonOptions": {"format": "png", "filename": _saved_as.get(), "scale": 3},
        },
    )
    return f"<figure>{body}<figcaption>{caption}</figcaption></figure>"
