"""Pages from executed notebooks: each is one HTML file without external resources."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jupytext
import nbconvert
import nbformat
from filelock import FileLock
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from markupsafe import Markup
from traitlets.config import Config

from dumbbell.report import html
from dumbbell.run.directory import RunDir
from dumbbell.studies.source import Source

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
RUN_REPORT = NOTEBOOKS / "run_report.py"
READ_REPORT = NOTEBOOKS / "read_report.py"  # of a directory that dumbbell.read made


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
        if len(late) == 1:
            render(late[0])
        else:
            _render_beside(late, os.cpu_count() or 1)


def _render_beside(points: Sequence[Path], processes: int) -> None:
    """Share the pages among processes: loading what draws takes one of them longer than a page."""
    shares = [share for first in range(processes) if (share := points[first::processes])]
    # Polars' allocator (jemalloc) returns free memory at once: less memory for a little more time.
    environment = os.environ | {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    command = [sys.executable, "-m", "dumbbell.report.notebooks", "--point"]
    running = [subprocess.Popen([*command, *map(str, share)], env=environment) for share in shares]
    for process in running:
        process.wait()
    for process in running:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)


def _is_late(point_dir: Path) -> bool:
    """Whether a point needs a new page. An aborted point has no tables for one."""
    page, verdict = point_dir / "report.html", point_dir / "verdict.json"
    if not (point_dir / "manifest.json").exists() or not verdict.exists():
        return False
    return not page.exists() or page.stat().st_mtime_ns < verdict.stat().st_mtime_ns


def render_notebook(notebook: Path, parameters: dict[str, Any], target: Path, title: str) -> Path:
    """Execute a notebook with parameters and write its output, without its code, to ``target``."""
    made = jupytext.read(notebook)
    _execute(made.cells, parameters)
    exporter = nbconvert.HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True
    )
    body, _ = exporter.from_notebook_node(made)
    target.write_text(html.page("notebook.html", title=title, body=Markup(body)))
    return target


def _execute(cells: Sequence[nbformat.NotebookNode], parameters: dict[str, Any]) -> None:
    """Execute cells in this process, as Jupyter does; a kernel of its own would load everything again."""
    config = Config(HistoryManager={"enabled": False})  # it would write to the user's home
    shell: Any = InteractiveShell(config=config, user_module=ModuleType("notebook"))  # type: ignore[no-untyped-call]
    # A figure of Plotly would send itself to a front end, which is not there, in place of being formatted.
    shell.display_formatter.ipython_display_formatter.enabled = False
    for cell in cells:
        if cell.cell_type != "code":
            continue
        with capture_output():  # it prints results too
            done = shell.run_cell(cell.source)
        done.raise_error()
        if done.result is not None:
            data, metadata = shell.display_formatter.format(done.result)
            output = {"output_type": "display_data", "data": data, "metadata": metadata}
            cell.outputs = [nbformat.from_dict(output)]  # type: ignore[no-untyped-call]
        if "parameters" in cell.metadata.get("tags", ()):
            shell.push(parameters)


def _main(arguments: Sequence[str]) -> None:
    """``RUN``: the pages of a run's points; ``--point POINT...``: the page of each of these points."""
    if arguments[0] == "--point":
        for point in arguments[1:]:
            render(Path(point))
    else:
        render_points(RunDir.open(Path(arguments[0])))


if __name__ == "__main__":
    _main(sys.argv[1:])
