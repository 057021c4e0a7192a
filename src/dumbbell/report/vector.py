"""Figures as files for papers: PDF, SVG and PNG, as wide as one column or two.

Kaleido has figures drawn by a Chromium that is installed on this machine; nothing is downloaded. Text stays
text, in the size of a paper's: include the files unscaled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import textwrap
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

import plotly.graph_objects as go

Format = Literal["pdf", "svg", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)
PX_PER_INCH = 96  # of CSS
WIDTH_INCHES = {1: 3.5, 2: 7.16}  # of one column and of both, by IEEE's template; ACM's differ by 5 %
HEIGHT_INCHES = {1: 2.3, 2: 2.6}
TALL_PX = 400  # figures that are higher on a page are so here too
FONT_PX = 8 / 72 * PX_PER_INCH  # 8 pt
SMALL_PX = 0.92 * FONT_PX  # of legends and ticks
LEAST_PX = 5 / 72 * PX_PER_INCH  # 5 pt: what is smaller cannot be read
CHARACTER = 0.58  # the mean width of a character, for a height of 1
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
LEFT_PX, RIGHT_PX = 46, 16  # beside the axes
LEGEND_ROW_PX = 19
LEGEND_LINE_PX = 42  # beside a text of the legend: its line, and gaps
AROUND_PX = 60  # above and below an axis: legend, ticks, title
COLOURBAR_PX = 110  # beside a matrix: the scale of its colours, and titles
THINNER = 0.65  # lines and markers, than on a page
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ANSWER_S = 60  # for a browser to start, and for each figure; a busy machine needs a few
TRIES = 2  # a browser that starts on a busy machine hangs now and then


def for_paper(figure: go.Figure, columns: int = 1) -> go.Figure:
    """A copy of a figure in the size and with the texts of a paper."""
    made = go.Figure(figure)
    width = WIDTH_INCHES[columns] * PX_PER_INCH
    height = HEIGHT_INCHES[columns] * PX_PER_INCH
    on_page = figure.layout.height or height
    height = 1.25 * height if on_page >= TALL_PX else min(height, on_page)
    rows = _legend_rows(made, width - LEFT_PX - RIGHT_PX)
    made.update_layout(
        width=round(width),
        height=round(height + max(rows - 1, 0) * LEGEND_ROW_PX),
        font={"family": FONT, "size": FONT_PX, "color": "#000000"},
        margin={"l": LEFT_PX, "r": RIGHT_PX, "t": 4, "b": 36, "pad": 0},
        legend={"font": {"size": SMALL_PX}, "itemsizing": "trace", "y": 1.0},
        paper_bgcolor="#ffffff",
    )
    made.update_layout(legend_maxheight=made.layout.height)  # by default the half, and the rest is hidden
    made.update_xaxes(title_standoff=4, ticklen=3, title_font_size=FONT_PX, tickfont_size=SMALL_PX)
    made.update_yaxes(title_standoff=4, ticklen=3, title_font_size=FONT_PX, tickfont_size=SMALL_PX)
    made.for_each_yaxis(lambda axis: _fold(axis, height - AROUND_PX))
    made.update_annotations(font_size=FONT_PX * 0.85)
    made.for_each_trace(_thinner, selector={"type": "scatter"})
    made.for_each_trace(lambda trace: _smaller_cells(trace, width), selector={"type": "heatmap"})
    return made


def _legend_rows(figure: go.Figure, width: float) -> int:
    """How many rows a legend of this width (px) has."""
    names = {str(trace.name) for trace in figure.data if trace.showlegend is not False and trace.name}
    if figure.layout.showlegend is False or not names:
        return 0
    in_row = max(1, int(width / (_width_px(names) + LEGEND_LINE_PX)))
    return -(-len(names) // in_row)


def _width_px(texts: Iterable[str], size_px: float = SMALL_PX) -> float:
    """About the width of the longest text."""
    return max(map(len, texts), default=0) * CHARACTER * size_px


def _fold(axis: go.layout.YAxis, height_px: float) -> None:
    """Break the title of a vertical axis into lines that are no longer than the axis."""
    low, high = axis.domain or (0, 1)
    fits = int((high - low) * height_px / (CHARACTER * FONT_PX))
    title = (axis.title.text or "").replace("<br>", " ")
    axis.update(title_text="<br>".join(textwrap.wrap(title, max(fits, 1))), automargin=True)


def _smaller_cells(trace: go.Heatmap, width: float) -> None:
    """Texts that fit into their cells, or none."""
    room = width - _width_px(map(str, trace.y)) - COLOURBAR_PX
    texts = [text for row in trace.text for text in row]
    size = min(SMALL_PX, 0.9 * SMALL_PX * room / len(trace.x) / (_width_px(texts) or 1))
    trace.update(textfont_size=size, texttemplate=trace.texttemplate if size >= LEAST_PX else "")
    trace.colorbar.update(title_font_size=FONT_PX, tickfont_size=SMALL_PX, thickness=8)


def _thinner(trace: go.Scatter) -> None:
    """Lines and markers in proportion to the smaller figure."""
    if trace.line.width is not None:
        trace.line.width *= THINNER
    if trace.marker.size is not None:
        trace.marker.size *= THINNER


def browser() -> str | None:
    """The browser of this machine that draws figures."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def write(figures: Mapping[Path, go.Figure]) -> None:
    """Write figures to files of :data:`FORMATS`, by the ends of their names.

    RuntimeError, with what to do, without a browser that draws; ValueError for another format.
    """
    for path in figures:
        if path.suffix.removeprefix(".") not in FORMATS:
            raise ValueError(f"{path}: figures are written as {', '.join(FORMATS)}")
    if (found := browser()) is None:
        raise RuntimeError(
            "no Chromium is installed to draw figures as files: on Debian, apt install chromium. "
            f"Searched for {', '.join(BROWSERS)}"
        )
    for path in figures:
        path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=1) as thread:  # a notebook has an event loop already
        drawn = any(thread.submit(asyncio.run, _draw(figures, found)).result() for _ in range(TRIES))
    if not drawn:
        raise RuntimeError(
            f"{found} does not start, or hangs, so not all figures were drawn. It says why if you run: "
            f"{found} --headless --no-sandbox --dump-dom about:blank"
        )


async def _draw(figures: Mapping[Path, go.Figure], program: str) -> bool:
    """Have a browser draw figures; False if it ends before, which it is made to if it takes too long."""
    # Only files of figures need them.
    import choreographer.errors  # noqa: PLC0415
    import kaleido  # noqa: PLC0415

    logging.getLogger("choreographer").setLevel(logging.CRITICAL)  # of a browser that ends, write() tells
    page = kaleido.PageGenerator(mathjax=False)
    page.header += "<style>@page { margin: 0 }</style>"  # a printed page has some, which would cut the figure
    asked: list[Any] = [
        {
            "fig": figure,
            "path": path,
            "opts": {"format": (kind := path.suffix[1:]), "scale": 4 if kind == "png" else 1},
        }
        for path, figure in figures.items()
    ]
    drawing = kaleido.Kaleido(path=program, page_generator=page, enable_sandbox=False)
    # What waits for a browser fails when the browser ends, which leads a group of processes.
    deadline = asyncio.get_running_loop().call_later(
        ANSWER_S * (1 + len(asked)), lambda: os.killpg(drawing.subprocess.pid, signal.SIGKILL)
    )
    try:
        await drawing.open()
        await drawing.write_fig_from_object(asked, cancel_on_error=True)
    except (
        choreographer.errors.BrowserClosedError,
        choreographer.errors.BrowserFailedError,
        choreographer.errors.ChannelClosedError,
        asyncio.CancelledError,
        TimeoutError,
    ):
        return False
    finally:
        await drawing.close()  # a thread of one that did not open would keep this program from ending
        deadline.cancel()
    return True
