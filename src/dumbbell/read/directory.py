"""The directory that is made of files: tables, manifest and verdict, as those of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from dumbbell.kinds.found.read import INTERVALS
from dumbbell.metrics.flows import COUNTED, flows_table
from dumbbell.metrics.measure import MEASURED_FROM
from dumbbell.read import capture, iperf3, mlab, ss, web100
from dumbbell.read import flows as of_files
from dumbbell.read.lines import head
from dumbbell.read.model import Malformed, Told
from dumbbell.run.content import Run
from dumbbell.run.directory import new_dir
from dumbbell.run.record import write_json

READERS: tuple[ModuleType, ...] = (capture, iperf3, mlab, web100, ss)
KINDS = (
    "a report of iperf3 (--json, --json-stream), a log of ss -tin with times, a capture (pcap, pcapng), an "
    "archive of M-Lab's tcp-info, or variables of web100 as CSV"
)


def told(path: Path, scratch: Path) -> Told:
    """What a file tells. OSError if it cannot be read, :class:`Malformed` if it is damaged or unknown."""
    reader = reader_of(path)
    found = Told(path, reader.KIND, scratch)
    reader.read(found)
    return found


def reader_of(path: Path) -> ModuleType:
    """Which reader is for a file. OSError if it cannot be read, :class:`Malformed` if there is none."""
    begin = head(path)
    if not begin.strip():
        raise Malformed(path, "byte 0", "the file is empty", "Write it again")
    for reader in READERS:
        if reader.is_kind(begin):
            return reader
    start = begin[:40].decode(errors="backslashreplace").splitlines()[0]
    raise Malformed(path, "byte 0", f"no known kind of file begins with {start!r}", f"Give {KINDS}")


def make(paths: Sequence[Path], results: Path, most_flows: int = of_files.MOST_FLOWS) -> Path:
    """Read files that tell of the same time, and write a directory like that of a run; returns its path.

    OSError if a file cannot be read, or the directory not be written; :class:`Malformed` for a file that is
    damaged or of no known kind.
    """
    with tempfile.TemporaryDirectory(prefix="dumbbell-read-") as scratch:
        files = [told(path, Path(scratch)) for path in dict.fromkeys(paths)]
        found, others = of_files.found(files, most_flows)
        if not found:
            raise Malformed(files[0].path, "its end", "no connection in it has a sample", f"Give {KINDS}")
        title = f"Read from {', '.join(file.path.name for file in files)}"
        plan, t0_ns = of_files.plan(found, title, of_files.interval_ns(found))
        run_dir = new_dir(results.absolute(), plan.scenario)
        (run_dir / "plan.json").write_bytes(plan.to_json())
        for table in ("tcp_info", "udp"):
            of_files.rows(found, table, t0_ns, run_dir.name).sink_parquet(run_dir / f"{table}.parquet")
        run = Run.open(run_dir)
        run.table("http_fetch").write_parquet(run_dir / "http_fetch.parquet")
        # Counters of tcp_info and udp tell more than intervals; goodput is from one of them.
        counted = pl.concat(
            pl.scan_parquet(run_dir / f"{table}.parquet")
            .filter(pl.any_horizontal(pl.col(columns).is_not_null()))
            .select("flow")
            for table, columns in (
                ("tcp_info", ["bytes_acked", "bytes_received"]),
                ("udp", ["received_bytes"]),
            )
        ).unique()
        intervals = of_files.delivered(found, t0_ns)
        intervals.join(counted.collect(), on="flow", how="anti").write_parquet(run_dir / INTERVALS)
    tables = {name: pl.scan_parquet(run_dir / f"{name}.parquet") for name in COUNTED}
    needed = [name for name in tables["tcp_info"].collect_schema() if name in MEASURED_FROM]
    needed += ["phase", "congestion_control", "data_segs_out", "total_retrans"]
    tables["tcp_info"] = tables["tcp_info"].select([*dict.fromkeys(needed)])
    flows_table(run, {name: table.collect() for name, table in tables.items()}).write_parquet(
        run_dir / "flows.parquet"
    )
    write_json(run_dir / "manifest.json", _manifest(run, files, others, t0_ns))
    write_json(run_dir / "verdict.json", {"state": "read", "reasons": [], "checks": []})
    return run_dir


def _manifest(run: Run, files: Sequence[Told], others: int, t0_ns: int) -> dict[str, Any]:
    dated = all(file.dated for file in files)
    return {
        "schema_version": 1,
        "run": run.dir.name,
        "scenario": run.plan.scenario,
        "title": run.plan.title,
        "point": run.point.id,
        "repetition": 1,
        "levels": {},
        "t0_unix_ns": {"measurement": t0_ns if dated else None},
        "versions": {"dumbbell": version("dumbbell")},
        "files": [
            {
                "path": str(file.path),
                "kind": file.kind,
                "tool": file.tool or None,
                "connections": len(file.ends),
                "dated": file.dated,
                "not_told": file.not_told,
                "left_out": file.skipped,
            }
            for file in files
        ],
        "other_flows": others,
    }
