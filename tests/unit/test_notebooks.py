"""Every notebook, executed on a run as Jupyter executes it for users."""

from __future__ import annotations

import ast
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dumbbell.metrics.values import values
from dumbbell.report.notebooks import NOTEBOOKS, render_notebook
from dumbbell.report.pages.atou import AtouRun
from dumbbell.report.pages.recovery import Recovery
from dumbbell.report.pages.run import Report
from dumbbell.report.pages.sharing import Sharing
from dumbbell.report.pages.transfer import Transfer
from dumbbell.units import human


def parameters(notebook: Path, collected: Path) -> dict[str, Any]:
    """What the notebook's parameters cell asks for, of this run."""
    cell = re.search(r'# %% tags=\["parameters"\]\n(.*?)\n\n', notebook.read_text(), re.DOTALL)
    assert cell, f"{notebook.name} has no cell of parameters"
    known = {"run_dir": str(collected), "first": [str(collected)], "second": [str(collected)]}
    known |= {"inventory": "inventory/nowhere"}
    asked = {
        node.targets[0].id
        for node in ast.parse(cell[1]).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return {name: value for name, value in known.items() if name in asked}


EXPLORE = NOTEBOOKS / "explore.py"
SWEEP = NOTEBOOKS / "sweep.py"
OF_RUNS = sorted(set(NOTEBOOKS.glob("*.py")) - {EXPLORE, SWEEP})


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("notebook", OF_RUNS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_figures(notebook: Path, collected: Path, tmp_path: Path) -> None:
    page = render_notebook(
        notebook, parameters(notebook, collected), tmp_path / "page.html", "A run"
    ).read_text()
    assert "plotly-graph-div" in page
    assert "Traceback" not in page


def test_from_a_sweep_to_its_figures(wide: Path, tmp_path: Path) -> None:
    page = render_notebook(SWEEP, {"run_dir": str(wide)}, tmp_path / "page.html", "A sweep").read_text()
    assert page.count("plotly-graph-div") == SWEEP.read_text().count("runs.plot.")
    assert "24 points" in page
    assert "Traceback" not in page


def test_the_figures_of_atou(collected_atou: Path, tmp_path: Path) -> None:
    run = AtouRun(collected_atou)
    (goodput,) = values(collected_atou).filter(metric="goodput")["value"]
    assert human(goodput, "bps") in run.numbers().data
    for made in (run.goodput(), run.cwnd(), run.srtt()):
        assert "sender=" in made.data  # the name of its line is the point's
        assert "plotly-graph-div" in made.data


def test_recoveries_of_atou_are_those_of_any_sender(collected_atou: Path) -> None:
    recovery = Recovery(collected_atou)
    assert recovery.flow.name == "atou"
    assert re.search(r"\d+ recoveries of atou, by samples of ca_state", recovery.recoveries().data)
    assert "plotly-graph-div" in recovery.around().data


def test_a_run_without_atou_says_so(collected: Path) -> None:
    run = AtouRun(collected)
    for made in (run.numbers(), run.goodput(), run.cwnd()):
        assert "This run has no flow of atou" in made.data


def test_to_explore_without_influxdb_is_three_sentences(collected: Path, tmp_path: Path) -> None:
    page = render_notebook(
        EXPLORE, parameters(EXPLORE, collected), tmp_path / "page.html", "Runs"
    ).read_text()
    assert page.count("nowhere: there is no such inventory") == 3
    assert "Traceback" not in page


def test_a_transfer_without_samples_says_so(collected: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes((collected / "plan.json").read_bytes())
    transfer = Transfer(tmp_path)
    for made in (
        transfer.instantaneous(),
        transfer.cwnd_and_rate(),
        transfer.cumulative("SendStall"),
        transfer.budget(),
    ):
        assert "has no readable tcp_info.parquet" in made.data
    assert "Neither end of iperf3" in transfer.iperf3().data


def test_an_unknown_flow_is_named(collected: Path) -> None:
    assert "no TCP flow nobody; it has flow1, flow2" in Transfer(collected, "nobody").rtt_over_time().data


def test_what_cannot_be_told_is_not_zero(collected: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(collected, tmp_path / "run"))
    pl.read_parquet(file := run_dir / "tcp_info.parquet").drop("rcv_ooopack").write_parquet(file)
    transfer = Transfer(run_dir, "flow2")
    assert "DupAcksIn cannot be told from this run" in transfer.cumulative("DupAcksIn").data
    assert "DupAcksIn cannot be told" in transfer.per_second("DupAcksIn", "FastRetran").data
    assert "miss what happens between two" in transfer.budget().data


def test_shares_of_flows(collected: Path) -> None:
    sharing = Sharing(collected)
    table = unescape(sharing.flows().data)
    for flow in (
        pl.read_parquet(collected / "flows.parquet").filter(phase="measurement").iter_rows(named=True)
    ):
        assert human(flow["goodput_bps"], "bps") in table
    assert "Jain's index of all flows 0.8" in table  # as in its verdict
    assert re.search("never|s after the last flow began", sharing.convergence().data)


def test_runs_are_found_from_the_checkout_too(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "latest").symlink_to(collected)
    (here := tmp_path / "src" / "notebooks").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert Report("results/latest").plan.hosts
    assert Report("results/older").dir == Path("results/older")
