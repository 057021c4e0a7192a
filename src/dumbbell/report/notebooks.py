"""Pages from executed notebooks: each is one HTML file without external resources."""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbconvert
from filelock import FileLock
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from markupsafe import Markup
from nbclient import NotebookClient
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from dumbbell.report import html
from dumbbell.run.directory import RunDir
from dumbbell.studies.source import Source

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
RUN_REPORT = NOTEBOOKS / "run_report.py"
READ_REPORT = NOTEBOOKS / "read_report.py"  # of a directory that dumbbell.read made


class _ThisPython(AsyncKernelManager):
    """Runs the notebook with this interpreter, whichever kernels the user has installed."""

    transport = "ipc"  # TCP would be open to every user of this machine

    @property
    def kernel_spec(self) -> KernelSpec:
        """ipykernel of this environment."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        # Polars' allocator (jemalloc) returns free memory at once: less memory for a little more time.
        env = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
        return KernelSpec(argv=argv, env=env, display_name="Python 3", language="python")


def render(run_dir: Path, notebook: Path = RUN_REPORT) -> Path:
    """Execute a notebook on a run directory and save its output there; returns the file's path.

    The page of either report is ``report.html``, others have the name of their notebook. A page has no
    code cells, contains plotly.js once, and needs no network.
    """
    run_dir = run_dir.resolve()
    title = Source(run_dir).manifest.get("title") or run_dir.name
    target = run_dir / ("report.html" if notebook in (RUN_REPORT, READ_REPORT) else f"{notebook.stem}.html")
    return render_notebook(notebook, {"run_dir": str(run_dir)}, target, title)


def render_points(run: RunDir) -> None:
    """Write ``report.html`` of each point judged since its page was made, several at a time.

    Another process that does the same is awaited.
    """
    with FileLock(run.dir / ".pages.lock"):
        late = [execution.dir for execution in run.executions if _is_late(execution.dir)]
        with ThreadPoolExecutor(os.cpu_count()) as beside:  # each runs its notebook in a process of its own
            list(beside.map(render, late))


def _is_late(point_dir: Path) -> bool:
    """Whether a point needs a new page. An aborted point has no tables for one."""
    page, verdict = point_dir / "report.html", point_dir / "verdict.json"
    if not (point_dir / "manifest.json").exists() or not verdict.exists():
        return False
    return not page.exists() or page.stat().st_mtime_ns < verdict.stat().st_mtime_ns


def render_notebook(notebook: Path, parameters: dict[str, Any], target: Path, title: str) -> Path:
    """Execute a notebook with parameters and write its output, without its code, to ``target``."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    with tempfile.TemporaryDirectory() as scratch:
        jupytext.write(jupytext.read(notebook), source := Path(scratch, "in.ipynb"))
        cells = parameterize_notebook(load_notebook_node(str(source)), parameters)
        # papermill would write the notebook to disk twice per cell, with all its figures.
        client = NotebookClient(cells, resources={"metadata": {"path": scratch}})
        # Jupyter's sockets go there too: their paths in the usual place may be too long.
        client.km = _ThisPython(connection_file=str(Path(scratch, "kernel.json")))
        client.execute()
    exporter = nbconvert.HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True
    )
    body, _ = exporter.from_notebook_node(cells)
    target.write_text(html.page("notebook.html", title=title, body=Markup(body)))
    return target


if __name__ == "__main__":
    render_points(RunDir.open(Path(sys.argv[1])))
