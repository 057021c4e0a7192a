"""Pages and their parts, filled into the templates beside this file. Texts are escaped there."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dumbbell.units import human

# File name under which the toolbar saves a figure: that of the run and of the part that shows it.
_saved_as: ContextVar[str] = ContextVar("_saved_as", default="figure")


def page(template: str, **values: Any) -> str:
    """A whole document."""
    return _templates.get_template(template).render(values)


def part(template: str, macro: str, **values: Any) -> Markup:
    """A part of a page: what a macro of a template makes of the values."""
    made: Markup = getattr(_templates.get_template(template).module, macro)(**values)
    return made


def save_figures_as(*words: str) -> None:
    """Name the files of figures that are plotted from here on."""
    _saved_as.set(re.sub(r"[^\w.-]+", "_", "_".join(words)))


def _plot(figure: go.Figure) -> Markup:
    """A figure as HTML that needs plotly.js on its page."""
    return Markup(
        figure.to_html(
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
    )


_templates = Environment(
    loader=PackageLoader("dumbbell.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(human=human, plot=_plot)
