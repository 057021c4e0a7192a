"""The pages that users read, in a real browser: what they look like, on paper too, and what they save.

Screenshots and PDFs are kept for people to look at in .build/pages; they are compared with nothing.
"""

from __future__ import annotations

import asyncio
import base64
import csv
import html
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from choreographer import Browser
from choreographer.browser_async import Tab
from synthetic import REPOSITORY
from test_notebooks import parameters

from dumbbell.metrics.registry import METRICS
from dumbbell.report import vector
from dumbbell.report.notebooks import NOTEBOOKS, render_notebook
from dumbbell.report.pages.index import render_index
from dumbbell.report.pages.summary import render_summary
from dumbbell.studies.points import Points
from dumbbell.units import human

CHROMIUM = vector.browser()
KEPT = REPOSITORY / ".build/pages"
TIMEOUT_S = 300  # of all that Chromium does for a page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# Presses every button that saves something, and leaves in the page what would have been saved, and as what.
PRESS = """<script>addEventListener('load', async () => {
  const saved = [], blobs = new Map(), make = URL.createObjectURL;
  URL.createObjectURL = blob => { const url = make(blob); blobs.set(url, blob); return url; };
  drawAll();
  const wanted = document.querySelectorAll('button.csv, .js-plotly-plot').length;
  const all = new Promise(done => {
    HTMLAnchorElement.prototype.click = function () {
      if (saved.push([this.download, this.href]) === wanted) done();
    };
  });
  for (const button of document.querySelectorAll('button.csv, .modebar-btn[data-title*="PNG"]'))
    button.dispatchEvent(new MouseEvent('click', {bubbles: true}));
  await all;
  const read = async ([name, url]) => {
    const blob = blobs.get(url) ?? await (await fetch(url)).blob();
    if (blob.type === 'text/csv') return {name, text: await blob.text()};
    return {name, width: new DataView(await blob.arrayBuffer()).getUint32(16)};  // of a PNG's header
  };
  const found = document.createElement('pre');
  found.id = 'saved';
  found.textContent = JSON.stringify(await Promise.all(saved.map(read)));
  document.body.append(found);
});</script>"""


def browse(page: Path, *options: str) -> str:
    """What headless Chromium writes to its output; no host but this one has a name for it."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    budget = ("--virtual-time-budget=30000", "--window-size=1280,6000")
    done = subprocess.run(
        [*command, offline, *budget, *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout


# How many figures a page has drawn, once it has drawn those that are seen.
DRAWN = """new Promise(done => {
  const frames = () => requestAnimationFrame(() => requestAnimationFrame(
    () => done(document.querySelectorAll('.js-plotly-plot').length)));
  if (document.readyState === 'complete') frames(); else addEventListener('load', frames);
})"""


@asynccontextmanager
async def tab(height: int) -> AsyncIterator[Tab]:
    """A tab of this height in pixels, in a Chromium that reaches no other host."""
    chromium = Browser(path=str(CHROMIUM), headless=True, enable_sandbox=False, proxy_server="127.0.0.1:9")
    async with chromium:
        made = await chromium.create_tab("about:blank")
        size = {"width": 1280, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await made.send_command("Emulation.setDeviceMetricsOverride", size)
        await made.send_command("Emulation.setScrollbarsHidden", {"hidden": True})
        yield made


async def show(page: Path, at: Tab) -> int:
    """Open a page, and await that it is drawn; how many figures it has drawn."""
    await at.send_command("Page.navigate", {"url": page.as_uri()})
    where = json.dumps(page.as_uri())
    asked = {
        "expression": f"location.href == {where} ? {DRAWN} : null",
        "awaitPromise": True,
        "returnByValue": True,
    }
    while True:
        found = await at.send_command("Runtime.evaluate", asked)
        if (figures := found.get("result", {}).get("result", {}).get("value")) is not None:
            return int(figures)


@pytest.fixture(scope="module")
def pages(collected: Path, wide: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every notebook's page and the index, by name."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(collected, folder / "20260101T000000Z_two_flow_fairness")
    made = {
        notebook.stem: render_notebook(
            notebook,
            parameters(notebook, wide if notebook.stem == "sweep" else collected),
            folder / f"{notebook.stem}.html",
            "A run",
        )
        for notebook in sorted(NOTEBOOKS.glob("*.py"))
    }
    summary = shutil.copytree(wide, folder / wide.name)
    return made | {"index": render_index(folder), "summary": render_summary(summary)}


def test_pages_can_be_seen_and_printed(pages: dict[str, Path]) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    asyncio.run(keep(pages))


async def keep(pages: dict[str, Path]) -> None:
    """Write what each page looks like on a screen and on paper."""
    as_printed = {"printBackground": True, "preferCSSPageSize": True}
    async with tab(6000) as shown:
        for name, page in pages.items():
            async with asyncio.timeout(TIMEOUT_S):
                await show(page, shown)
                for command, options, kept in (
                    ("Page.captureScreenshot", {}, KEPT / f"{name}.png"),
                    ("Page.printToPDF", as_printed, KEPT / f"{name}.pdf"),
                ):
                    kept.unlink(missing_ok=True)
                    done = await shown.send_command(command, options)
                    kept.write_bytes(base64.b64decode(done["result"]["data"]))
                    assert kept.stat().st_size > 10_000


def test_figures_and_tables_are_saved_as_they_are_shown(
    pages: dict[str, Path], collected: Path, tmp_path: Path
) -> None:
    text = pages["run_report"].read_text()
    awkward = 'a "quoted", divided\n and broken\ttext'
    table = f"<table><tr><th>{awkward}</th><th>x</th></tr><tr><td>≥ 90 %</td><td></td></tr></table>"
    text = text.replace("</h1>", f'</h1><div class="table"><button class="csv"></button>{table}</div>')
    (page := tmp_path / "page.html").write_text(text.replace("</body>", f"{PRESS}</body>"))
    shown = browse(page, "--dump-dom")
    found = re.search(r'<pre id="saved">(.*?)</pre>', shown, re.DOTALL)
    assert found, "the page saved nothing"
    saved = json.loads(html.unescape(found[1]))

    tables = {one["name"]: list(csv.reader(one["text"].splitlines())) for one in saved if "text" in one}
    first, *others = [one for one in saved if "text" in one]
    assert first["text"] == '"a ""quoted"", divided and broken text",x\r\n≥ 90 %,\r\n'
    assert len(others) == text.count('<button class="csv" title=')
    run = "20260101T000000Z-two_flow_fairness-synthetic"
    variables = tables[f"{run}_Connections_by_the_names_of_RFC_4898.csv"]
    assert variables[0] == ["variable", "flow1", "flow2"]
    told = pl.read_parquet(collected / "web100.parquet").filter(
        phase="measurement", side="sender", grade="exact"
    )
    assert ["SegsRetrans", *map(human, told.sort("flow")["SegsRetrans"])] in variables
    assert all(len({len(row) for row in table}) == 1 for table in tables.values())

    figures = {one["name"]: one for one in saved if "width" in one}
    assert set(figures) == {f"{run}_{name}.png" for name in ("goodput", "fairness", "cwnd", "srtt", "queue")}
    assert all(one["width"] > 3000 for one in figures.values())


OPENED_S = 2  # within this time a page of a thousand points is there


async def opened(page: Path) -> tuple[float, int]:
    """Seconds that the thread which makes a page works until it is drawn, and how many figures it has drawn.

    Those are seconds of its own, as Chromium counts them: others on this machine do not make them more.
    """
    async with asyncio.timeout(TIMEOUT_S), tab(900) as shown:
        await shown.send_command("Performance.enable", {"timeDomain": "threadTicks"})
        figures = await show(page, shown)
        metrics = (await shown.send_command("Performance.getMetrics"))["result"]["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"), figures


def tables_of_a_thousand() -> tuple[pl.DataFrame, pl.DataFrame, list[dict[str, Any]]]:
    """Flows and values of made-up points, two flows at each, and the points as a verdict has them."""
    flows, values, points = [], [], []
    for place, (rate, queue, delay, repetition) in enumerate(
        itertools.product(range(10, 110, 10), range(1, 11), (5, 10, 20, 40, 80), (1, 2))
    ):
        levels = {"rate": f"{rate}mbit", "queue": f"{queue}bdp", "delay": f"{delay}ms"}
        about = {"run": f"many_{place}", "repetition": repetition}
        points.append(
            about | {"directory": f"points/{place}", "baseline": None, "levels": levels, "state": "passed"}
        )
        row = about | {"place": place, "baseline": None, "verdict": "passed"}
        row |= {f"level_{name}": text for name, text in levels.items()}
        for name, control, share in (("first", "cubic", 0.5), ("second", "reno", 0.45)):
            found = {
                "goodput": 1e6 * rate * share,
                "rtt": 2e6 * delay * (1 + queue),
                "retransmits": share / 1e3,
            }
            of = {"goodput_bps": found["goodput"], "rtt_p50_ns": found["rtt"], "retransmits": share / 1e3}
            planned = {"name": name, "direction": "forward", "start_ns": 0, "duration_ns": 10**10}
            flows.append(row | of | planned)
            values += [
                row
                | {"metric": metric, "subject": name, "congestion_control": control}
                | {"unit": METRICS[metric].unit, "value": value}
                for metric, value in found.items()
            ]
    texts = {"baseline": pl.String}
    return pl.DataFrame(flows, schema_overrides=texts), pl.DataFrame(values, schema_overrides=texts), points


def test_a_page_of_a_thousand_points_opens_at_once(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows, values, points = tables_of_a_thousand()
    about = ("place", "run", "repetition", "verdict", "baseline", "level_rate", "level_queue", "level_delay")
    many = Points([tmp_path] * len(points))
    many.__dict__.update(flows=flows, values=values, index=flows.select(about).unique(maintain_order=True))
    monkeypatch.setattr(Points, "open", lambda _: many)  # the tables that a thousand directories would give
    flows.write_parquet(tmp_path / "flows.parquet")
    shutil.copy(wide / "plan.json", tmp_path)
    (tmp_path / "verdict.json").write_text(json.dumps({"state": "passed", "reasons": [], "points": points}))
    page = render_summary(tmp_path)
    assert "1000 of 1000 points passed" in page.read_text()
    seconds, figures = asyncio.run(opened(page))
    assert 0 < figures < page.read_text().count("plotly-graph-div")  # others wait until somebody looks
    assert seconds < OPENED_S
