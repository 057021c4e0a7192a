"""Complete a run directory: write tables, manifest, events and verdict, and missing rows into InfluxDB."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.execution.calibrated import REUSED
from dumbbell.facts.check import Check
from dumbbell.ingest import spool
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.kinds.found import FOUND
from dumbbell.metrics.flows import flows_table
from dumbbell.places import IS_WHEEL, REPOSITORY
from dumbbell.run.content import Run
from dumbbell.run.raw import why_packed
from dumbbell.run.record import read_json, read_jsonl, write_json
from dumbbell.validity.hosts import TROUBLE
from dumbbell.validity.rows import devices
from dumbbell.validity.verdict import Stored, Verdict, judge

_POLL_S = 0.5
_DATED = ("run", "unix_ns", "mono_ns")  # columns that depend on the date; t_ns, the time since t0, does not
_OCTETS = ("IpExtInOctets", "IpExtOutOctets")  # of all interfaces; the controller's messages contain dates


def collect(
    run_dir: Path, influx: InfluxTarget | None, troubles: Sequence[str] = (), wait_s: float = 30
) -> Verdict:
    """Read the files under ``raw/``; write tables, manifest, events and verdict; return the verdict.

    ``troubles`` are errors of the run; a run with any is invalid, also when it is collected again.
    Rows that InfluxDB lacks after ``wait_s`` seconds are written to it from the spools. Collecting
    again gives the same result. Raises OSError or ValueError only if there is no usable ``plan.json``, or if
    the raw files are packed.
    """
    if why := why_packed(run_dir):
        raise ValueError(why)
    run = Run.open(run_dir)
    before = read_json(run_dir / "verdict.json") or {"checks": []}
    known = [check["measured"] for check in before["checks"] if check["name"] == TROUBLE]
    run.read_spools()
    tables = {name: run.table(name) for name in run.measurements()}
    stored = None if influx is None else _store(run, tables, influx, wait_s)
    of_kinds, unread = _of_kinds(run)
    checks = judge(run, tables, stored, list(dict.fromkeys([*known, *troubles, *unread])))
    verdict = Verdict.of(checks)

    flows = flows_table(run, tables)
    for name, table in (tables | of_kinds | {"flows": flows}).items():
        table.write_parquet(run_dir / f"{name}.parquet")
    _merge_events(run)
    write_json(run_dir / "manifest.json", _manifest(run, tables, stored, checks))
    write_json(run_dir / "verdict.json", verdict.model_dump())
    return verdict


def _of_kinds(run: Run) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Tables that some kinds of flows have, and what of them could not be read."""
    parts: dict[str, list[pl.DataFrame]] = {}
    unread = []
    for phase in run.point.phases:
        for flow in phase.flows:
            try:
                own = FOUND[flow.kind].tables(run, phase, flow)
            except (OSError, ValueError) as error:
                unread.append(f"{flow.name}: its trace cannot be read: {error}")
                continue
            for name, rows in own.items():
                parts.setdefault(name, []).append(rows)
    return {name: pl.concat(rows) for name, rows in parts.items()}, unread


def own_rows(run: Run, tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Rows that InfluxDB has under this run's id. Rows of a reused calibration belong to another point."""
    if not (run.dir / REUSED).exists():
        return tables
    return {
        name: table.filter(pl.col("phase") != "calibration") if "phase" in table.columns else table
        for name, table in tables.items()
    }


def _store(
    run: Run, tables: dict[str, pl.DataFrame], target: InfluxTarget, wait_s: float
) -> dict[str, Stored]:
    """Wait until InfluxDB has every row; after the timeout write the spools to it."""
    own = own_rows(run, tables)
    spooled = {name: table.height for name, table in own.items() if table.height}
    spooled.setdefault("tcp_info", 0)
    before: dict[str, int] = {}
    try:
        with Influx(target) as influx:

            def complete() -> bool:
                before.update(influx.counts(spooled, run.id))
                return before == spooled

            if _wait_until(complete, wait_s):
                return {name: Stored(spooled=n, stored=n) for name, n in spooled.items()}
            influx.write(batch for path in run.spool_paths for batch in spool.batches(path))
            after = influx.counts(spooled, run.id)
    except InfluxError as error:
        return {name: Stored(spooled=n, stored=None, error=str(error)) for name, n in spooled.items()}
    return {
        name: Stored(spooled=n, stored=after[name], backfilled=after[name] - before[name])
        for name, n in spooled.items()
    }


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition holds before the timeout; asked at least once. InfluxError counts as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= deadline
        try:
            if condition():
                return True
        except InfluxError:
            if late:
                raise
        if late:
            return False
        time.sleep(_POLL_S)


def _merge_events(run: Run) -> None:
    """Rewrite ``events.jsonl``: the controller's own events and those of all agents, in order of time."""
    path = run.dir / "events.jsonl"
    own = [event for event in read_jsonl(path) if "host" not in event]
    events = sorted((*own, *run.agent_events), key=lambda event: event.get("unix_ns", 0))
    path.write_text("".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events))


def _manifest(
    run: Run, tables: dict[str, pl.DataFrame], stored: dict[str, Stored] | None, checks: list[Check]
) -> dict[str, Any]:
    plan, point = run.plan, run.point
    facts = [
        {key: getattr(check, key) for key in ("subject", "name", "requested", "measured", "unit", "ok")}
        for check in checks
    ]
    for phase in point.phases:
        for host, part in phase.hosts.items():
            event = run.event("sampler", host=host, phase=phase.phase)
            if event and part.sample.anything:
                facts.append(
                    {
                        "subject": host,
                        "name": "sampling interval",
                        "requested": phase.sampling_interval_ns,
                        "measured": event.get("achieved_interval_ns"),
                        "unit": "ns",
                        "ok": None,  # not a check; the share of missed samples is
                    }
                )
    inventory = json.dumps(
        {host: planned.groups for host, planned in point.hosts.items()}
        | {f.name: [f.src, f.dst] for phase in point.phases for f in phase.flows},
        sort_keys=True,
    )
    return {
        "schema_version": 1,
        "run": run.id,
        "scenario": plan.scenario,
        "title": plan.title,
        "point": point.id,
        "repetition": point.repetition,
        "levels": point.levels,
        "baseline": point.baseline,
        "seed": plan.seed,
        "t0_unix_ns": {phase.phase: run.t0_unix_ns(phase.phase) for phase in point.phases},
        "inventory_fingerprint": hashlib.sha256(inventory.encode()).hexdigest()[:12],
        "versions": {"dumbbell": version("dumbbell"), "checkout": _checkout()},
        "hosts": {
            host: {"groups": planned.groups} | (run.states[host] or {})
            for host, planned in point.hosts.items()
        },
        "rows": {
            "spooled": {name: table.height for name, table in tables.items()},
            "lost": sum(spool.rows_lost for spool in run.spools.values() if spool),
            "influxdb": None if stored is None else {name: s.model_dump() for name, s in stored.items()},
        },
        "digests": _digests(run, tables) if plan.virtual else None,
        "facts": facts,
    }


def _checkout() -> str | None:
    """The controller's commit, with ``-dirty`` if files differ from it; None without a git checkout."""
    if IS_WHEEL:
        return None
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _digests(run: Run, tables: dict[str, pl.DataFrame]) -> dict[str, str]:
    """Digest of each table, without dates, and without byte counts of the management network."""
    own = {device for host in run.states for device in devices(run, host)}
    of_experiment = {"link": pl.col("dev").is_in(own), "snmp": ~pl.col("name").is_in(_OCTETS)}
    return {
        name: _digest(table.filter(of_experiment.get(name, pl.lit(True))) if table.height else table)
        for name, table in tables.items()
    }


def _digest(table: pl.DataFrame) -> str:
    """Digest of all rows without their dates: equal if the samples of two runs are equal."""
    found = hashlib.sha256()
    for rows in table.drop(_DATED, strict=False).iter_slices():
        found.update(rows.write_csv().encode())
    return found.hexdigest()[:16]
