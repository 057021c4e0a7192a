"""Time what is made of an eight-hour run, beside pandas: bench/analysis.json."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.memory import tree_mb
from tools.bench import Row, publish

TARGET = Path("bench/analysis.json")
PANDAS = Path(".build/pandas").resolve()
FLOWS = ("one", "two")
PAIRS = 5
LOOK_S = 0.5  # looking is not free: the kernel adds up all pages of a process

COLLECT = """
import sys
from pathlib import Path
from dumbbell.execution.collect import collect
collect(Path(sys.argv[1]), None)
"""
# Two pages at a time, as there are two cores.
WHOLE_REPORT = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from dumbbell.report.notebooks import NOTEBOOKS, render, render_notebook
run_dir = Path(sys.argv[1])
def transfer(flow):
    parameters, page = {{"run_dir": str(run_dir), "flow": flow}}, run_dir / f"{{flow}}.html"
    render_notebook(NOTEBOOKS / "eight_hour_transfer.py", parameters, page, flow)
with ThreadPoolExecutor(2) as two:
    pages = [two.submit(transfer, flow) for flow in {FLOWS}]
    pages += [two.submit(render, run_dir), two.submit(render, run_dir, NOTEBOOKS / "fairness.py")]
for page in pages:
    page.result()
"""
# The same by both: every field of every sample, and the share of time in each congestion state.
BY_DUMBBELL = """
import sys
import polars as pl
from dumbbell.analysis import state_shares
shares = state_shares(pl.read_parquet(sys.argv[1] + "/tcp_info.parquet"))
print(*(f"{flow} {state} {share:.6f}" for flow, _, state, share in shares.iter_rows()), sep="\\n")
"""
BY_PANDAS = """
import sys
import pandas as pd
table = pd.read_parquet(sys.argv[1] + "/tcp_info.parquet")
sending = table[(table["side"] == "sender") & table["stream"].notna()].sort_values(["flow", "stream", "t_ns"])
of_each = sending.groupby(["flow", "stream"])
lasted = of_each["t_ns"].diff().groupby([sending["flow"], sending["stream"]]).shift(-1).fillna(0)
names = {0: "Open", 1: "Disorder", 2: "CWR", 3: "Recovery", 4: "Loss"}
by_state = lasted.groupby([sending["flow"], sending["stream"], sending["ca_state"].map(names)]).sum()
shares = by_state / by_state.groupby(level=[0, 1]).transform("sum")
print(*(f"{flow} {state} {share:.6f}" for (flow, _, state), share in shares.sort_index().items()), sep="\\n")
"""


def run(program: str, run_dir: Path, **environment: str) -> tuple[float, float, str]:
    """Seconds and peak megabytes (PSS) that a program and all that it starts need, and what it says.

    CalledProcessError if it fails.
    """
    command = [sys.executable, "-c", program, str(run_dir)]
    began, peak = time.monotonic(), 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment) as it:
        while it.poll() is None:
            peak = max(peak, tree_mb(it.pid))
            time.sleep(LOOK_S)
        took = time.monotonic() - began
        said = it.stdout.read() if it.stdout else ""
    if it.returncode:
        raise subprocess.CalledProcessError(it.returncode, command)
    return took, peak, said


def measure(run_dir: Path) -> Iterator[Row]:
    """All rows, of a run directory that has come home."""
    took, peak, _ = run(COLLECT, run_dir)
    yield Row("collect from the spools", took, "s")
    yield Row("collect from the spools: peak", peak, "MB")
    took, peak, _ = run(WHOLE_REPORT, run_dir)
    yield Row("load, statistics and four pages", took, "s", target="<= 30")
    yield Row("load, statistics and four pages: peak", peak, "MB", target="<= 1500")
    pairs = []
    for _ in range(PAIRS):
        own = run(BY_DUMBBELL, run_dir)
        other = run(BY_PANDAS, run_dir, PYTHONPATH=str(PANDAS))
        if own[2] != other[2]:
            raise ValueError(f"the two do not agree:\n{own[2]}and\n{other[2]}")
        pairs.append((own, other))
    for i, unit in enumerate(("s", "MB")):
        yield Row.median(f"load and state shares: dumbbell, {unit}", [own[i] for own, _ in pairs], unit)
        ratios = [other[i] / own[i] for own, other in pairs]
        yield Row.median(f"load and state shares: pandas / dumbbell, {unit}", ratios, "x")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch, "run")
        subprocess.run([sys.executable, Path(__file__).with_name("eight_hours.py"), run_dir], check=True)
        publish(list(measure(run_dir)), TARGET)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
