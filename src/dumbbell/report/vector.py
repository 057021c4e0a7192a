"""Figures as files for papers: PDF, SVG and PNG, as wide as one column or two.

Kaleido has figures drawn by a Chromium that is installed on this machine; nothing is downloaded. Text stays
text, in the size of a paper's: include the files unscaled.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import plotly.graph_objects as go

Format = Literal["pdf", "svg", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)
PX_PER_INCH = 96  # of CSS
WIDTH_INCHES = {1: 3.5, 2: 7.16}  # of one column and of both, by IEEE's template; ACM's differ by 5 %
HEIGHT_INCHES = {1: 2.3, 2: 2.6}
TALL_PX = 400  # figures that are higher on a page are so here too
FONT_PX = 8 / 72 * PX_PER_INCH  # 8 pt
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
LEGEND_ROW_PX = 15
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def for_paper(figure: go.Figure, columns: int = 1) -> go.Figure:
    """A copy of a figure in the size and with the texts of a paper."""
    made = go.Figure(figure)
    width = WIDTH_INCHES[columns] * PX_PER_INCH
    height = HEIGHT_INCHES[columns] * PX_PER_INCH
    if (figure.layout.height or 0) >= TALL_PX:
        height *= 1.25
    named = [trace for trace in made.data if trace.showlegend is not False and trace.name]
    shown = made.layout.showlegend is not False and bool(named)
    longest = max((len(str(trace.name)) for trace in named), default=0)
    in_row = max(1, int(width / (longest * 0.55 * FONT_PX + 42)))
    rows = -(-len({trace.name for trace in named}) // in_row) if shown else 0
    made.update_layout(
        width=round(width),
        height=round(height + max(rows - 1, 0) * LEGEND_ROW_PX),
        font={"family": FONT, "size": FONT_PX, "color": "#000000"},
        margin={"l": 46, "r": 8, "t": 4, "b": 36, "pad": 0},
        legend={"font": {"size": FONT_PX * 0.92}, "itemsizing": "trace", "y": 1.0},
        paper_bgcolor="#ffffff",
    )
    made.update_xaxes(title_standoff=4, ticklen=3, title_font_size=FONT_PX, tickfont_size=FONT_PX * 0.92)
    made.update_yaxes(title_standoff=4, ticklen=3, title_font_size=FONT_PX, tickfont_size=FONT_PX * 0.92)
    made.update_annotations(font_size=FONT_PX * 0.85)
    made.update_traces(line_width=1.1, selector={"type": "scatter", "mode": "lines"})
    made.update_traces(marker_size=4, selector={"type": "scatter", "mode": "markers"})
    made.update_traces(marker_size=4, line_width=1.1, selector={"type": "scatter", "mode": "lines+markers"})
    made.update_traces(
        colorbar={"title": {"font": {"size": FONT_PX}}, "tickfont": {"size": FONT_PX * 0.92}, "thickness": 8},
        textfont={"size": FONT_PX * 0.92},
        selector={"type": "heatmap"},
    )
    return made


def write(figures: Mapping[Path, go.Figure]) -> None:
    """Write figures to files of :data:`FORMATS`, by the ends of their names.

    RuntimeError, with what to install, without a browser; ValueError for another format.
    """
    for path in figures:
        if path.suffix.removeprefix(".") not in FORMATS:
            raise ValueError(f"{path}: figures are written as {', '.join(FORMATS)}")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RuntimeError(
            "no Chromium is installed to draw figures as files: on Debian, apt install chromium. "
            f"Searched for {', '.join(BROWSERS)}"
        )
    import kaleido  # noqa: PLC0415  only files of figures need it

    for path in figures:
        path.parent.mkdir(parents=True, exist_ok=True)
    kaleido.write_fig_from_object_sync(
        [
            {
                "fig": figure,
                "path": path,
                "opts": {"format": (kind := path.suffix[1:]), "scale": 4 if kind == "png" else 1},
            }
            for path, figure in figures.items()
        ],
        kopts={"path": browser, "mathjax": False, "enable_sandbox": False},
    )
