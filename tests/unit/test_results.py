"""What ``dumbbell.open`` gives: tables, figures and displays of runs and of sweeps."""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from choreographer.channels import ChannelClosedError, Pipe
from synthetic import REPOSITORY

import dumbbell
from dumbbell.metrics.values import values
from dumbbell.report import figures, latex, vector
from dumbbell.report.pages.summary import render_summary
from dumbbell.report.plots import OF_RUN, OF_SET
from dumbbell.results import Run, RunSet
from dumbbell.studies.source import Missing
from dumbbell.units import quantity


def opened(path: Path) -> RunSet:
    found = dumbbell.open(path)
    assert isinstance(found, RunSet)
    return found


def test_one_run(collected: Path) -> None:
    run = dumbbell.open(collected)
    assert isinstance(run, Run)
    assert run.flows["name"].to_list() == ["flow1", "flow2"]
    assert run.values.equals(values(collected))
    rates = run.goodput("1s")
    assert rates.columns == ["flow", "t_ns", "dt_ns", "goodput_bps"]
    assert set(rates["dt_ns"]) == {10**9}
    assert run.samples("srtt_us").columns == ["flow", "host", "side", "stream", "t_ns", "srtt_us"]
    events = run.events()
    assert events["unix_ns"].is_sorted()
    assert "flow_first_data" in events["event"]


def test_rtts_of_the_table_of_flows_are_those_of_the_metric(collected: Path) -> None:
    run = dumbbell.open(collected)
    assert isinstance(run, Run)
    for flow in run.flows.iter_rows(named=True):
        (rtt,) = run.values.filter(metric="rtt", subject=flow["name"])["value"]
        assert flow["rtt_p50_ns"] == pytest.approx(rtt)
        assert flow["rtt_p50_ns"] <= flow["rtt_p95_ns"]


def test_to_pandas(collected: Path, swept: Path) -> None:
    import pandas  # noqa: PLC0415  it takes long to load

    for found in (dumbbell.open(collected), dumbbell.open(swept)):
        for table in ("flows", "values", "goodput", "samples", "events", "qdisc"):
            made = found.to_pandas(table)
            assert isinstance(made, pandas.DataFrame)
            assert len(made)
    assert list(dumbbell.open(collected).to_pandas()["name"]) == ["flow1", "flow2"]


def test_a_set(swept: Path) -> None:
    runs = opened(swept)
    assert len(runs) == runs.index.height == len(list(runs))
    assert runs.levels == {"beside": ["cubic", "reno"], "queue": ["0.5bdp", "2bdp"]}
    assert {*runs.index["baseline"]} == {None, "alone"}
    short = runs.where(queue="0.5bdp", beside="reno")
    assert {*short.flows["level_queue"]} == {"0.5bdp"}
    assert {*short.flows["level_beside"]} == {"reno"}
    assert isinstance(short[0], Run)
    with pytest.raises(
        ValueError, match="colour does not vary between these points; there are beside, queue"
    ):
        runs.where(colour="red")
    (value,) = values(short.dirs[0]).filter(metric="goodput", subject="first")["value"]
    place = short.index["place"][0]
    assert short.values.filter(metric="goodput", subject="first", place=place)["value"].to_list() == [value]


def test_samples_of_a_set_are_read_late(swept: Path) -> None:
    samples = opened(swept).samples("srtt_us")
    assert isinstance(samples, pl.LazyFrame)
    found = samples.group_by("place").agg(pl.len()).collect()
    assert found.height == len(opened(swept))


def test_several_runs_and_a_directory_of_runs(swept: Path, collected: Path) -> None:
    both = dumbbell.open(swept, collected)
    assert isinstance(both, RunSet)
    assert len(both) == len(opened(swept)) + 1
    assert len(opened(swept.parent)) == len(opened(swept))
    with pytest.raises(FileNotFoundError, match="is no directory of a run, and has none"):
        dumbbell.open(swept / "points" / "001" / "raw")


@pytest.mark.parametrize("name", OF_SET)
def test_every_figure_of_a_set(name: str, swept: Path) -> None:
    drawn = opened(swept).plot[name]()
    assert isinstance(drawn, go.Figure)
    assert drawn.data


@pytest.mark.parametrize("name", OF_RUN)
def test_every_figure_of_a_run_or_what_it_lacks(name: str, collected: Path) -> None:
    run = dumbbell.open(collected)
    if name in ("time_sequence", "available", "pstreams"):
        with pytest.raises(Missing, match=r"sampling.trace|No sender of Rapid"):
            run.plot[name]()
    else:
        assert run.plot[name]().data


def test_figures_show_what_the_values_are(swept: Path) -> None:
    runs = opened(swept)
    goodput = runs.of_metric("goodput").filter(pl.col("baseline").is_null())
    heat = runs.plot.heatmap("goodput", x="beside", y="queue").data[0]
    for column, beside in enumerate(heat.x):
        for row, queue in enumerate(heat.y):
            own = goodput.filter(level_beside=beside, level_queue=queue)["value"].median()
            assert heat.z[row][column] == pytest.approx(own / 1e6)  # type: ignore[operator]
    assert (heat.zmin, heat.zmax) == (0, max(map(max, heat.z)))  # colours do not exaggerate
    curve = runs.plot.curve("rtt", x="queue", by=["beside", "flow"])
    assert [trace.name for trace in curve.data] == [
        f"{beside}, {flow}" for beside in ("cubic", "reno") for flow in ("first", "second")
    ]
    assert list(curve.data[0].x) == [0.5, 2]
    shares = runs.plot.shares().data[0]
    reno = dict(zip(shares.x, shares.z[list(shares.y).index("reno")], strict=True))["cubic"]
    cubic = dict(zip(shares.x, shares.z[list(shares.y).index("cubic")], strict=True))["reno"]
    assert reno + cubic == pytest.approx(1)
    harm = runs.plot.harm().data[0]
    assert 0.3 < harm.z[list(harm.y).index("cubic")][list(harm.x).index("reno")] < 0.7  # of two equal flows


def test_flows_that_ran_in_turn_share_nothing(swept: Path, tmp_path: Path) -> None:
    in_turn = shutil.copytree(swept, tmp_path / "in_turn")
    for path in in_turn.rglob("flows.parquet"):
        flows = pl.read_parquet(path)
        second = pl.col("name") == "second"
        ended_ns = pl.col("start_ns").max() + pl.col("duration_ns").max()
        later = pl.when(second).then(ended_ns).otherwise("start_ns")
        flows.with_columns(start_ns=later).write_parquet(path)
    with pytest.raises(Missing, match="share a direction at the same time"):
        opened(in_turn).plot.shares()
    with pytest.raises(Missing, match="Harm needs"):
        opened(in_turn).plot.harm()


def test_a_figure_without_its_axis_says_so(collected: Path, swept: Path) -> None:
    with pytest.raises(Missing, match="colour does not vary between these points; there vary beside, queue"):
        opened(swept).plot.curve(x="colour")
    with pytest.raises(Missing, match="has the metric speed; they have utilisation"):
        opened(swept).plot.curve("speed")
    alone = RunSet.open(collected)
    with pytest.raises(Missing, match="No quantity varies between these points"):
        alone.plot.curve()
    with pytest.raises(Missing, match="Harm needs points with one flow alone"):
        alone.plot.harm()
    with pytest.raises(AttributeError, match="there is no figure pie of it; there are curve"):
        _ = alone.plot.pie


def test_displays(collected: Path, swept: Path, tmp_path: Path) -> None:
    shown = dumbbell.open(collected)._repr_html_()
    assert "PASSED" in shown
    assert shown.count("<polyline") == 2
    assert "<script" not in shown
    shown = opened(swept)._repr_html_()
    assert f"{len(opened(swept))} points" in shown
    assert "<b>queue</b>: 0.5bdp, 2bdp" in shown
    (tmp_path / "plan.json").write_text("{}")
    assert "no readable plan.json" in dumbbell.open(tmp_path)._repr_html_()


def test_the_summary_has_figures_of_rtt_and_retransmits(swept: Path) -> None:
    page = render_summary(swept).read_text()
    over = ("Goodput by queue", "RTT by queue", "Retransmits by queue", "Goodput against delay")
    also = ("Shares of controls beside each other", "Harm of controls", "Distribution of RTT", "Convergence")
    for title in (*over, *also):
        assert f"<h2>{title}</h2>" in page
    assert page.count("plotly-graph-div") == 8
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
    for title in ("Goodput by point", "Median RTT by point", "Segments sent again by point"):
        assert f"<h2>{title}</h2>" in page


def test_quantities_of_levels() -> None:
    assert [quantity(text) for text in ("20ms", "2bdp", "1%", "4", "100mbit", "short", "20parsec")] == [
        (2e7, "ns"),
        (2, "BDP"),
        (1, "%"),
        (4, ""),
        (1e8, "bps"),
        None,
        None,
    ]


def test_the_documentation_is_true(
    swept: Path, collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    for name, folder in (("SWEEP", swept), ("RUN", collected)):
        shutil.copytree(folder, tmp_path / "results" / name)
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(
        str(REPOSITORY / "docs/notebooks.md"), module_relative=False, optionflags=flags, encoding="utf-8"
    )
    assert found.attempted > 10
    assert found.failed == 0


def test_to_import_dumbbell_loads_no_table_or_plot() -> None:
    loaded = (
        "import sys, dumbbell; print(sorted({'polars', 'plotly', 'numpy', 'scipy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_medians_and_their_tables(swept: Path) -> None:
    runs = opened(swept)
    medians = runs.medians(["goodput", "rtt"])
    assert medians.height == 2 * 2 * 2 + 2  # levels and flows, and the baseline over both queues
    assert medians["goodput_bps_low"].null_count() == medians.height  # each was run once
    row = medians.filter(level_beside="reno", level_queue="2bdp", flow="second").row(0, named=True)
    (goodput,) = runs.where(beside="reno", queue="2bdp").values.filter(metric="goodput", subject="second")[
        "value"
    ]
    assert row["goodput_bps"] == goodput
    assert row["congestion_control"] == "reno"
    text = latex.table(medians.with_columns(flow=pl.lit("a_b & 50%")), "Two flows_")
    assert r"\caption{Two flows\_}" in text
    assert (
        r"beside & queue & baseline & flow & congestion control & repetitions & "
        r"goodput (Mbit/s) & rtt (ms) \\" in text
    )
    assert rf"reno & 2bdp & -- & a\_b \& 50\% & reno & 1 & {goodput / 1e6:.4g} &" in text


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
def test_figures_are_files_for_papers(collected: Path, tmp_path: Path) -> None:
    drawn = vector.for_paper(dumbbell.open(collected).plot.goodput())
    vector.write({tmp_path / f"x.{kind}": drawn for kind in vector.FORMATS})
    whole = (tmp_path / "x.pdf").read_bytes()
    assert whole.startswith(b"%PDF-")
    assert re.search(rb"/MediaBox *\[0 0 252 ", whole)  # 3.5 inches
    assert b"/FontFile2" in whole
    assert b"/Subtype /Image" not in whole  # vectors
    assert "<text" in (tmp_path / "x.svg").read_text()
    (size,) = re.findall(rb"IHDR(.{8})", (tmp_path / "x.png").read_bytes()[:32], re.DOTALL)
    assert int.from_bytes(size[:4], "big") == 3.5 * 384


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="poppler-utils is not installed")
def test_a_figure_is_where_its_page_is(collected: Path, tmp_path: Path) -> None:
    drawn = vector.for_paper(dumbbell.open(collected).plot.goodput())
    vector.write({tmp_path / f"x.{kind}": drawn for kind in ("pdf", "svg")})
    asked = re.search(r'class="xtitle" x="([\d.]+)" y="([\d.]+)"', (tmp_path / "x.svg").read_text())
    assert asked  # the middle of the title, and its base line
    command = ["pdftotext", "-bbox", str(tmp_path / "x.pdf"), "-"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = re.findall(r'xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)" yMax="([\d.]+)">(\S+)</word>', told)
    place = {word: [float(edge) * 96 / 72 for edge in edges] for *edges, word in words}
    (left, above, _, _), (_, _, right, below) = place["time"], place["(s)"]
    assert (left + right) / 2 == pytest.approx(float(asked[1]), abs=1)
    assert above < float(asked[2]) < below


def fake_browser(folder: Path, script: str) -> Path:
    (program := folder / "chromium").write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_what_lacks_to_draw_files_is_said(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = dumbbell.open(collected).plot.goodput()
    with pytest.raises(ValueError, match="figures are written as pdf, svg, png"):
        vector.write({tmp_path / "x.eps": drawn})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="on Debian, apt install chromium"):
        vector.write({tmp_path / "x.pdf": drawn})
    fake = fake_browser(tmp_path, "exit 127")
    with pytest.raises(RuntimeError, match=f"{fake} does not start, .* {fake} --headless"):
        vector.write({tmp_path / "x.pdf": drawn})


def test_a_browser_that_ends_while_it_is_asked_keeps_no_thread(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(pipe: Pipe, _obj: object) -> None:
        pipe.close()
        raise ChannelClosedError

    fake = fake_browser(tmp_path, "exit 127")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(Pipe, "write_json", closed)
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match=f"{fake} does not start"):
        vector.write({tmp_path / "x.pdf": dumbbell.open(collected).plot.goodput()})
    for thread in set(threading.enumerate()) - before:
        thread.join(0 if thread.daemon else 10)  # Python ends when those that are no daemons do
        assert thread.daemon or not thread.is_alive()


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
def test_a_browser_that_hangs_is_ended_and_another_started(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = dumbbell.open(collected).plot.goodput()
    fake_browser(
        tmp_path,
        f'[ -e {tmp_path}/tried ] && exec {vector.browser()} "$@"\ntouch {tmp_path}/tried\nexec sleep 3600',
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(vector, "ANSWER_S", 10)
    vector.write({tmp_path / "x.svg": drawn})
    assert "<svg" in (tmp_path / "x.svg").read_text()


LEVELS = [f"{ms}ms" for ms in (1, 2, 5, 10, 20, 50, 100, 200)]


def made_curves(flows: int, title: str) -> go.Figure:
    rows = pl.DataFrame({"level": LEVELS, "value": range(8), "low": range(8), "high": range(8)})
    axis = figures.Axis("delay", LEVELS, [float(text[:-2]) for text in LEVELS])
    return figures.curves({f"a_long_name, flow{i}": rows for i in range(flows)}, axis, title=title, unit="ms")


def test_a_legend_of_a_paper_hides_nothing() -> None:
    one, many = (vector.for_paper(made_curves(flows, "RTT (ms)")).layout for flows in (2, 8))
    assert many.height - one.height == 6 * vector.LEGEND_ROW_PX  # names this long have a row each
    assert many.legend.maxheight == many.height


def test_titles_are_no_longer_than_their_axis(collected: Path) -> None:
    folded = vector.for_paper(made_curves(2, "95th percentile of completion time (ms)")).layout.yaxis.title
    assert folded.text == "95th percentile of<br>completion time (ms)"
    drawn = vector.for_paper(dumbbell.open(collected).plot.queue()).layout
    assert (drawn.yaxis.title.text, drawn.yaxis2.title.text) == ("queue (packets)", "drops<br>(packets)")


def test_texts_of_cells_fit_or_are_left_out() -> None:
    def cells(count: int) -> go.Heatmap:
        axis = figures.Axis("x", [str(i) for i in range(count)])
        values = {(column, row): 1234.5 for column in axis.texts for row in axis.texts}
        return vector.for_paper(figures.heat_map(values, axis, axis, title="t", unit="")).data[0]

    assert cells(3).text[0][0] == "1234"
    assert cells(3).textfont.size == pytest.approx(vector.SMALL_PX)
    assert vector.LEAST_PX <= cells(12).textfont.size < vector.SMALL_PX
    assert cells(30).texttemplate == ""


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([0.25, 0.5, 1, 2, 4], "log"),
        ([0.5, 1, 2], "linear"),
        ([10, 20, 30, 40, 50, 60, 70, 80, 90, 100], "linear"),
        ([0, 1, 100], "category"),  # 0 and 1 would be one upon the other
        (None, "category"),
    ],
)
def test_the_kind_of_an_axis_of_levels(numbers: list[float] | None, kind: str) -> None:
    texts = [f"{number:g}" for number in numbers or (1, 2)]
    assert figures.Axis("x", texts, numbers).kind == kind
