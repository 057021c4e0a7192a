"""Alterations of a run directory, one at a time: everything that hosts left, removed or made another.

Each has the name of its input as the waivers know it, without hosts, flows and phases.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.facts import waivers
from dumbbell.facts.check import Check
from dumbbell.run.content import Run
from dumbbell.run.record import read_json
from dumbbell.validity import rows, verdict, whole

Tables = dict[str, pl.DataFrame]
OF_ONE_NAME = 1  # inputs of the same name, of several hosts and phases, that are altered
OWN_NAME = re.compile(
    r"^(ping|tcp-ping|tcp|iperf3|udp|http|atou|command|path|capture)-.*?"
    r"(-(?:client|server|sender|receiver|events|summary|trace))?\.(\w+)$"
)
TAGS = ("run", "point", "phase", "timescale", "t_ns")  # not judged, or made by the controller of unix_ns
# Keys of programs' own reports that are read.
READ = {
    "iperf3": ("start.cookie", "start.test_start.num_streams", "intervals", "end.sum_sent.seconds",
               "end.sum_sent.bytes", "end.sum_received.bytes"),
    "atou": ("config", "receiver_config", "elapsed_ns", "lost_lines", "pkts_in", "pkts_out", "enobufs",
             "path.socket_drops", "socket_drops", "arrived_segments", "acks_sent", "unsent_acks", "foreign"),
}  # fmt: skip


@dataclass
class Mutation:
    """One input that is another: of a file, or a column of a table."""

    name: str
    how: str  # removed, altered, added
    where: str
    file: Path | None = None
    content: bytes | None = None  # None: without the file
    table: Callable[[Tables], Tables] | None = None


@dataclass
class Outcome:
    """What verdicts became of them."""

    passed: list[str] = field(default_factory=list)
    waived: list[str] = field(default_factory=list)
    judged: int = 0

    @property
    def altered(self) -> int:
        """All of them."""
        return self.judged + len(self.passed) + len(self.waived)

    def __str__(self) -> str:
        counts = f"{self.judged} judged, {len(self.waived)} waived, {len(self.passed)} still passed"
        return f"{self.altered} inputs altered: {counts}"


def mutate(run_dir: Path) -> Outcome:
    """Judge a passed run again with each of its inputs altered.

    Several processes share the alterations, each with a copy of the run: it alters files in place.
    """
    run, tables = opened(run_dir)
    before = verdict.Verdict.of(verdict.judge(run, tables, None))
    assert before.state == "passed", before.reasons
    processes = os.cpu_count() or 1
    # Threads of polars do not survive a fork.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        parts = [pool.submit(_part, run_dir, number, processes) for number in range(processes)]
        outcomes = [part.result() for part in parts]
    return Outcome(
        [each for outcome in outcomes for each in outcome.passed],
        [each for outcome in outcomes for each in outcome.waived],
        sum(outcome.judged for outcome in outcomes),
    )


def opened(run_dir: Path) -> tuple[Run, Tables]:
    """A run and the tables of its spools."""
    run = Run.open(run_dir)
    run.read_spools()
    return run, {name: run.table(name) for name in run.measurements()}


def _part(run_dir: Path, number: int, of: int) -> Outcome:
    """What became of every ``of``-th alteration."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as scratch:
        run, tables = opened(shutil.copytree(run_dir, Path(scratch, run_dir.name)))
        for mutation in islice(_of_each_name(_mutations(run, tables)), number, None, of):
            name = f"{mutation.name} {mutation.how}"
            if waiver := waivers.waiver(mutation.name, mutation.how):
                outcome.waived.append(f"{name}: {waiver.reason}")
                continue
            try:
                failed = _is_found(run, tables, mutation)
            except Exception as error:  # a judge that ends with one is no judge
                outcome.passed.append(f"{name} ends in {error!r} ({mutation.where})")
                continue
            if failed:
                outcome.judged += 1
            else:
                outcome.passed.append(f"{name} ({mutation.where})")
    return outcome


def _of_each_name(mutations: Iterable[Mutation]) -> Iterator[Mutation]:
    made: Counter[tuple[str, str]] = Counter()
    for mutation in mutations:
        made[mutation.name, mutation.how] += 1
        if made[mutation.name, mutation.how] <= OF_ONE_NAME:
            yield mutation


def _is_found(run: Run, tables: Tables, mutation: Mutation) -> bool:
    """Whether any check fails: those first that are likely to, and none after the first that does."""
    with _in_place(mutation):
        again = Run(run.dir, run.plan, dict(run.spools))
        return not all(check.ok for check in _checks(again, tables, mutation))


def _checks(run: Run, tables: Tables, mutation: Mutation) -> Iterator[Check]:
    if mutation.table is not None:
        tables = mutation.table(tables)
        host, phase, *_ = mutation.where.split()
        yield rows.of_host(run, tables, next(p for p in run.point.phases if p.phase == phase), host)
    else:
        yield from (check for part in whole.OF_FILES for check in part(run))
        if mutation.file is not None and mutation.file.name.startswith("spool"):
            run.read_spools()
            tables = {name: run.table(name) for name in run.measurements()}
    yield from verdict.asked(run, tables, None)
    yield from (check for part in whole.OF_ROWS for check in part(run, tables))


@contextmanager
def _in_place(mutation: Mutation) -> Iterator[None]:
    if mutation.file is None:
        yield
        return
    before = mutation.file.read_bytes()
    try:
        if mutation.content is None:
            mutation.file.unlink()
        else:
            mutation.file.write_bytes(mutation.content)
        yield
    finally:
        mutation.file.write_bytes(before)


def _mutations(run: Run, tables: Tables) -> Iterator[Mutation]:
    for host in _of_each_kind(run):
        folder = run.raw(host)
        yield from _document(folder / "state.json", "state.json", host)
        for phase in run.point.phases:
            for file in sorted(run.raw(host, phase.phase).glob("*")):
                if file.is_file():
                    yield from _file(file, f"{host} {phase.phase}")
    for name, table in tables.items():
        elsewhere = _elsewhere(run, table)
        if others := table.filter(elsewhere).height:
            without = partial(_without_rows, name, elsewhere)
            yield Mutation(f"rows {name} of other interfaces", "removed", f"{others} rows", table=without)
        yield from _columns(name, table.filter(~elsewhere))


def _of_each_kind(run: Run) -> list[str]:
    """The first host of each group: others leave the same."""
    found: dict[tuple[str, ...], str] = {}
    for host, planned in run.point.hosts.items():
        found.setdefault(tuple(planned.groups), host)
    return list(found.values())


def _file(file: Path, where: str) -> Iterator[Mutation]:
    name = OWN_NAME.sub(r"\1\2.\3", file.name)
    yield Mutation(name, "removed", where, file, None)
    yield Mutation(name, "emptied", where, file, b"")
    if file.name == "events.jsonl":
        yield from _events(file, where)
    elif file.name.startswith("spool"):
        lines = file.read_bytes().splitlines(keepends=True)
        for i in sorted({0, len(lines) // 2, len(lines) - 1}):
            yield Mutation("spool.lp line", "removed", where, file, b"".join(lines[:i] + lines[i + 1 :]))
    elif file.suffix == ".json":
        yield from _document(file, name, where)
    elif file.name.startswith("ping-"):
        lines = file.read_bytes().splitlines(keepends=True)
        for i in sorted(
            {0, 1, 2, len(lines) // 2, len(lines) - 6, len(lines) - 5, len(lines) - 2, len(lines) - 1}
        ):
            yield Mutation("ping.txt line", "removed", where, file, b"".join(lines[:i] + lines[i + 1 :]))
            for other in (
                rb"icmp_seq=(\d+)",
                rb"ttl=(\d+)",
                rb"time=([0-9.]+)",
                rb"^\[(\d+)",
                rb"from ([0-9.]+)",
            ):
                if re.search(other, lines[i]):
                    altered = re.sub(other, lambda m: m[0].replace(m[1], b"7" + m[1]), lines[i])
                    yield Mutation(
                        "ping.txt line",
                        "altered",
                        where,
                        file,
                        b"".join([*lines[:i], altered, *lines[i + 1 :]]),
                    )


def _events(file: Path, where: str) -> Iterator[Mutation]:
    lines = file.read_text().splitlines()
    seen: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        seen.setdefault(json.loads(line)["event"], []).append(i)
    for event, numbers in seen.items():
        for i in sorted({numbers[0], numbers[len(numbers) // 2], numbers[-1]}):
            rest = [*lines[:i], *lines[i + 1 :]]
            yield Mutation(f"event {event}", "removed", where, file, _lines(rest))
            yield Mutation(
                f"event {event}", "altered", where, file, _lines([*lines[:i], lines[i][:-5], *lines[i + 1 :]])
            )
            yield Mutation(f"event {event}", "added", where, file, _lines([*lines, lines[i]]))
            own = json.loads(lines[i])
            for key in own:
                less = {k: v for k, v in own.items() if k != key}
                other = own | {key: _other(own[key])}
                for how, changed in (("removed", less), ("altered", other)):
                    content = _lines([*lines[:i], json.dumps(changed), *lines[i + 1 :]])
                    yield Mutation(f"event {event}.{key}", how, where, file, content)
    times = {key: json.loads(lines[-1])[key] for key in ("unix_ns", "mono_ns")}
    exit_code = {"event": "process_exit", "action": "ping", "code": 1, "stderr": "no route"}
    for bad in (exit_code, {"event": "spool_mended", "torn_bytes": 0}, {"event": "failed", "reason": "x"}):
        content = _lines([*lines[:-1], json.dumps(times | bad), lines[-1]])
        yield Mutation(f"event {bad['event']}", "added", where, file, content)


def _lines(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _document(file: Path, name: str, where: str) -> Iterator[Mutation]:
    content = read_json(file)
    if not isinstance(content, dict):
        return
    program = file.name.partition("-")[0]
    for key, own in _places(content):
        if file.name == "plan.json" and len(key) > 2:
            continue
        dotted = ".".join("[]" if isinstance(part, int) else part for part in key)
        if program in READ and not any(dotted == k or k.startswith(dotted + ".") for k in READ[program]):
            continue
        if program in READ and isinstance(own, dict):
            continue
        for how, changed in (("removed", _without(content, key)), ("altered", _with(content, key, own))):
            if changed is not None:
                yield Mutation(f"{name} {dotted}", how, where, file, json.dumps(changed).encode())


def _places(content: Any, key: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every key of a document; of a list its first element and its last."""
    items: Any = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        items = [(i, content[i]) for i in sorted({0, len(content) - 1})] if content else ()
    for part, value in items:
        yield (*key, part), value
        if not (key and key[0] == "intervals"):
            yield from _places(value, (*key, part))


def _parent(content: Any, key: tuple[Any, ...]) -> tuple[Any, Any]:
    whole = copy.deepcopy(content)
    inside = whole
    for part in key[:-1]:
        inside = inside[part]
    return whole, inside


def _without(content: Any, key: tuple[Any, ...]) -> Any:
    whole, inside = _parent(content, key)
    del inside[key[-1]]
    return whole


def _with(content: Any, key: tuple[Any, ...], own: Any) -> Any:
    if isinstance(own, dict | list) and own:
        return None  # its parts are altered
    whole, inside = _parent(content, key)
    inside[key[-1]] = _other(own)
    return whole


def _other(value: Any) -> Any:
    """Something else of the same type, far away."""
    match value:
        case bool():
            return not value
        case int() | float():
            return 10 * value + 10**10
        case str():
            return value + "x"
        case None:
            return 1
        case list():
            return [*value, "x"]
    return {"x": 1}


def _elsewhere(run: Run, table: pl.DataFrame) -> pl.Expr:
    """Rows of interfaces that are not the experiment's."""
    if "dev" not in table.columns:
        return pl.lit(value=False)
    own = [(pl.col("host") == host) & pl.col("dev").is_in(rows.devices(run, host)) for host in run.states]
    return pl.col("dev").is_not_null() & ~pl.any_horizontal(own)


def _without_rows(name: str, gone: pl.Expr, tables: Tables) -> Tables:
    return tables | {name: tables[name].filter(~gone)}


def _columns(name: str, table: pl.DataFrame) -> Iterator[Mutation]:
    """Each column of the rows of one host and one kind of them: empty, or with one value that is far away."""
    if not table.height:
        return
    of = [key for key in ("phase", "side", "kind", "source", "grade") if key in table.columns]
    for key, group in table.group_by(of, maintain_order=True):
        host = group["host"].sort()[0]
        label = " ".join(map(str, key[1:]))
        kinds = " ".join([name, label]).strip()
        own = pl.all_horizontal(
            pl.col("host") == host, *(pl.col(k) == v for k, v in zip(of, key, strict=True))
        )
        where = f"{host} {key[0]} {label}"
        yield Mutation(f"rows {name}", "removed", where, table=partial(_without_rows, name, own))
        mine = table.filter(own)
        at = mine.sort("unix_ns")["unix_ns"][mine.height // 2]
        for column in table.columns:
            if column in TAGS or column in of or mine[column].null_count() == mine.height:
                continue
            yield Mutation(f"column {kinds}.{column}", "removed", where, table=_emptied(name, column, own))
            if mine[column].dtype.is_numeric():
                one = own & (pl.col("unix_ns") == at)
                yield Mutation(f"column {kinds}.{column}", "altered", where, table=_far(name, column, one))


def _emptied(name: str, column: str, own: pl.Expr) -> Callable[[Tables], Tables]:
    def change(tables: Tables) -> Tables:
        empty = pl.when(~own).then(pl.col(column)).alias(column)
        return tables | {name: tables[name].with_columns(empty)}

    return change


def _far(name: str, column: str, own: pl.Expr) -> Callable[[Tables], Tables]:
    def change(tables: Tables) -> Tables:
        further = 10 * pl.col(column).clip(upper_bound=10**15) + 10**10
        far = pl.when(own).then(further).otherwise(pl.col(column)).alias(column)
        return tables | {name: tables[name].with_columns(far)}

    return change
