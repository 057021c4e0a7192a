"""The progress of a phase in one line, for people. Its numbers of flows are a preview, not a result."""

from __future__ import annotations

from tqdm import tqdm

from dumbbell.ingest.influx import Influx
from dumbbell.plan import Flow, Phase
from dumbbell.units import human

_LATELY_S = 8  # how recent a sample must be; samples arrive every few seconds
_COUNTERS = (  # the counter of delivered bytes, and the side that has it
    ("tcp_info", "bytes_acked", "sender"),
    ("udp", "received_bytes", "receiver"),
)
_MOST_NAMED = 8


def goodputs(influx: Influx, run_id: str) -> dict[str, float]:
    """Goodput (bps) over the last seconds, of every flow with samples in them."""
    found: dict[str, float] = {}
    for measurement, counter, side in _COUNTERS:
        rows = influx.query(
            f"SELECT mean(rate) AS rate FROM (SELECT non_negative_derivative({counter}, 1s) AS rate "
            f"FROM {measurement} WHERE run = $run AND side = '{side}' AND time > now() - {_LATELY_S}s "
            "GROUP BY flow, stream) GROUP BY flow, stream",
            run=run_id,
        )
        for row in rows:
            found[row["flow"]] = found.get(row["flow"], 0) + 8 * row["rate"]
    fetched = influx.query(
        "SELECT sum(received_bytes) AS bytes FROM http_fetch "
        f"WHERE run = $run AND side = 'receiver' AND time > now() - {_LATELY_S}s GROUP BY flow",
        run=run_id,
    )
    # Connections come and go, and their counters with them.
    return found | {row["flow"]: 8 * row["bytes"] / _LATELY_S for row in fetched}


def describe(phase: Phase, at_ns: int, rates_bps: dict[str, float] | str) -> str:
    """How many of the sampled flows that should be running are alive, and their goodput.

    ``rates_bps`` comes from ``goodputs``, or is the reason why it is not known.
    """
    if isinstance(rates_bps, str):
        return rates_bps
    due = [flow for flow in _sampled(phase) if flow.start_ns <= at_ns < flow.end_ns]
    alive = [flow.name for flow in due if flow.name in rates_bps]
    if not due:
        return "no flow"
    if not rates_bps:
        return "no samples lately"
    words = f"{len(alive)} of {len(due)} flows alive"
    if alive:
        words += f", {human(sum(rates_bps[name] for name in alive), 'bps')}"
    if 1 < len(alive) <= _MOST_NAMED:
        words += ": " + ", ".join(f"{name} {human(rates_bps[name], 'bps')}" for name in alive)
    return words


def line(title: str, phase: Phase, at_ns: int, flows: str, columns: int | None = None) -> str:
    """One line: title, time, a bar, and ``flows``; not longer than the terminal's columns.

    ``at_ns`` is the time since the phase's t0, negative before it.
    """
    if at_ns < 0:
        text = f"{title} {phase.phase}: starts in {-at_ns / 1e9:.0f} s"
        return text if columns is None else text[:columns]
    total_s, done_s = phase.duration_ns / 1e9, min(at_ns, phase.duration_ns) / 1e9
    done, total, left = (tqdm.format_interval(round(s)) for s in (done_s, total_s, total_s - done_s))
    bar = "" if columns is None else " |{bar:10}|"
    return str(
        tqdm.format_meter(
            done_s,
            total_s,
            0,
            ncols=columns,
            prefix=f"{title} {phase.phase}",
            bar_format=f"{{desc}}:{bar} {{times}}, {{flows}}",
            times=f"{done} of {total}, {left} left",
            flows=flows,
        )
    )


def _sampled(phase: Phase) -> list[Flow]:
    names = {name for part in phase.hosts.values() for name in part.sample.tcp}
    return [flow for flow in phase.flows if flow.kind == "udp" or flow.name in names]
