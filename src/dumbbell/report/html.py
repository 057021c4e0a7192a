"""Fills pages and their parts into the templates beside this file. The templates escape texts."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dumbbell.units import human

# The file name under which the toolbar saves a figure: the run's and the part's.
_saved_as: ContextVar[str] = ContextVar("_saved_as", default="figure")


def page(template: str, **values: Any) -> str:
    """A whole document."""
    return _templates.get_template(template).render(values)


def part(template: str, macro: str, **values: Any) -> Markup:
    """A part of a page: the result of a template's macro."""
    made: Markup = getattr(_templates.get_template(template).module, macro)(**values)
    return made


def save_figures_as(*words: str) -> None:
    """Set the file name of figures plotted from now on."""
    _saved_as.set(re.sub(r"[^\w.-]+", "_", "_".join(words)))


def plot(figure: go.Figure) -> Markup:
    """A figure as HTML that needs the script of pages and plotly.js; it is drawn when it comes into view."""
    config = {
        "displaylogo": False,
        "responsive": True,
        "displayModeBar": "hover",
        # The last one would upload the data to Plotly's servers.
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "sendChartToCloud"],
        # As wide as it is shown; three dots per pixel are enough for print.
        "toImageButtonOptions": {"format": "png", "filename": _saved_as.get(), "scale": 3},
    }
    drawing = Markup(figure.to_json())  # Plotly escapes <, > and /
    return part(
        "drawing.html", "drawing", place=f"figure-{uuid4()}", figure=figure, json=drawing, config=config
    )


_templates = Environment(
    loader=PackageLoader("dumbbell.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(human=human, plot=plot)
