"""Changes to the directory of a run, for tests of the checks that have to find them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic import T0_UNIX_NS, write_spool

from dumbbell.execution.collect import collect
from dumbbell.run.record import read_jsonl
from dumbbell.validity.verdict import Verdict

Damage = Callable[[Path], None]

WHOLE = {  # checks of what is there at all, which have tests of their own
    *("state", "files", "t0", "agents of one version", "events", "replies", "reports", "rows", "covered"),
    *("drops elsewhere", "asked loss", "lost elsewhere"),
}


def reasons(verdict: Verdict) -> list[str]:
    """Why a run that a test has made another is not valid, but for what it then lacks beside that."""
    return [f"{c.subject}: {c.reason}" for c in verdict.checks if not c.ok and c.name not in WHOLE]


def assert_invalid(run_dir: Path, reason: str) -> None:
    """The run is invalid, and one of the reasons begins like this."""
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert any(said.startswith(reason) for said in verdict.reasons), verdict.reasons


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_events(path: Path, kind: str, **changed: Any) -> None:
    events = [e | (changed if e["event"] == kind else {}) for e in read_jsonl(path)]
    path.write_text("".join(json.dumps(e) + "\n" for e in events))


def state(host: str, change: Callable[[Any], None]) -> Damage:
    return lambda run_dir: edit(run_dir / "raw" / host / "state.json", change)


def events(host: str, kind: str, **changed: Any) -> Damage:
    return lambda run_dir: edit_events(run_dir / "raw" / host / "measurement/events.jsonl", kind, **changed)


def said(host: str, kind: str, **attributes: Any) -> Damage:
    """The agent of a host tells of one thing more, before the flows begin."""

    def change(run_dir: Path) -> None:
        with (run_dir / "raw" / host / "measurement/events.jsonl").open("a") as file:
            file.write(
                json.dumps({"unix_ns": T0_UNIX_NS["measurement"] - 1, "event": kind} | attributes) + "\n"
            )

    return change


def together(*changes: Damage) -> Damage:
    def change_all(run_dir: Path) -> None:
        for change in changes:
            change(run_dir)

    return change_all


def removed(path: str) -> Damage:
    return lambda run_dir: (run_dir / path).unlink()


def text(path: str, old: str, new: str) -> Damage:
    def change(run_dir: Path) -> None:
        before = (run_dir / path).read_text()
        assert old in before
        (run_dir / path).write_text(before.replace(old, new))

    return change


def expectation(metric: str, **bound: Any) -> Damage:
    """The scenario's expectations, but for this one bound on both flows where both run."""
    window = {"flows": ["flow1", "flow2"], "window_ns": [5 * 10**9, 30 * 10**9]}
    expected = [{"metric": metric, "min": None, "max": None} | window | bound]
    return lambda run_dir: edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=expected))


ARRIVED = "raw/receiver1/calibration/udp-calibration_rate-receiver.json"


def slow(run_dir: Path) -> None:
    """Of ten packets of the calibration, eight arrive."""
    edit(run_dir / ARRIVED, lambda r: r.update(received_packets=round(0.8 * r["received_packets"])))


def edit_spool(
    run_dir: Path, host: str, field: str, change: Callable[[int], int], phase: str = "measurement"
) -> None:
    """Change an integer field in every row of a host's phase."""
    pattern = re.compile(rf"(?<=[ ,]{field}=)\d+")
    edit_rows(run_dir, host, phase, lambda row: pattern.sub(lambda n: str(change(int(n[0]))), row))


def edit_rows(run_dir: Path, host: str, phase: str, change: Callable[[str], str]) -> None:
    """Change the rows of a host's phase; what becomes empty is left out."""
    spool = run_dir / "raw" / host / phase / "spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    write_spool(spool, filter(None, map(change, rows)))


def held(pattern: str, old: str, new: str, *, after_s: float = 0.0, phase: str = "measurement") -> Damage:
    """What the router's samples say of a qdisc, from a time on."""

    def alter(run_dir: Path) -> None:
        spool = run_dir / "raw/router" / phase / "spool.lp"
        rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        since = T0_UNIX_NS[phase] + after_s * 1e9
        found = [i for i, row in enumerate(rows) if pattern in row and int(row.split()[-1]) >= since]
        assert found
        for i in found:
            rows[i] = re.sub(old, new, rows[i])
        write_spool(spool, rows)

    return alter


def asked(host: str, **state: Any) -> Damage:
    """The plan asks for one thing more of a host."""
    return lambda run_dir: edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["hosts"][host]["state"].update(state)
    )


def unanswered(count: int, ping: str = "calibration/ping-sender1-receiver1.txt") -> Damage:
    """So many of the echo requests, from the tenth on, had no reply."""

    def change(run_dir: Path) -> None:
        file = run_dir / "raw/sender1" / ping
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:10] + lines[10 + count :]))

    return change


def lossy(**loss: Any) -> Damage:
    """The path is asked, and was seen, to lose packets forward."""
    return together(
        lambda run_dir: edit(
            run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(loss)
        ),
        state("router", lambda s: s["path"]["forward"].update(loss)),
    )


def gap(host: str, flow: str, since_s: float, until_s: float) -> Damage:
    """One end of a flow was not sampled for a time."""
    start, end = (T0_UNIX_NS["measurement"] + round(1e9 * at) for at in (since_s, until_s))

    def left(row: str) -> str:
        out = row.startswith(f"tcp_info,flow={flow},") and start <= int(row.rsplit(maxsplit=1)[-1]) < end
        return "" if out else row

    return lambda run_dir: edit_rows(run_dir, host, "measurement", left)


def drops(run_dir: Path) -> dict[str, Any]:
    return {c.subject: c.measured for c in collect(run_dir, None).checks if c.name == "unexpected drops"}
