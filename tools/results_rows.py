"""Rows of the tables of docs/results.md: numbers of the originals, and those of the same experiments here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.values import values
from dumbbell.run.content import RunSet
from dumbbell.run.directory import RunDir
from dumbbell.studies.cross_traffic import Row, UdpAndTcp
from dumbbell.studies.recovery import LossRecovery, ReductionLogs
from dumbbell.studies.source import Missing
from dumbbell.studies.source import Source as OnePoint
from dumbbell.studies.transfer import LongTransfer
from dumbbell.units import human

# Of the originals. Rates in Mbit/s, as printed there.
UDP_ALONE = ((50, 51), (100, 101), (300, 301), (500, 510), (800, 655))  # asked, actual
REJECTS = (  # UDP asked, sent again, dropped by the router, of them UDP, rejected because of timestamps
    ("50 Mbit/s", 23716, 415, "-", 22240),
    ("500 Mbit/s", 29407, 2017, "-", 19694),
    ("800 Mbit/s", 7892, 1282, "-", 5389),
)
PAIRS = {  # congestion control, RTT, pairs, of flows that start together: flow1, flow2
    ("cubic", "shortest", "different"): (442, 499),
    ("cubic", "10ms", "different"): (206, 198),
    ("cubic", "30ms", "different"): (154, 199),
    ("rapid", "shortest", "different"): (736, 2.84),
    ("rapid", "shortest", "same"): (461, 459),
    ("rapid", "10ms", "different"): (827, 9.36),
    ("rapid", "30ms", "different"): (86.5, 84.9),
}
TWO_FLOWS = [  # RTT, pairs, time between the starts
    (rtt, pairs, every)
    for every in ("0s", "10s")
    for rtt in ("shortest", "10ms", "30ms")
    for pairs in ("different", "same")
]
TWO_RAPID = [
    ("shortest", "different", "0s"),
    ("shortest", "same", "0s"),
    ("10ms", "different", "0s"),
    ("30ms", "different", "0s"),
    ("10ms", "different", "10s"),
    ("30ms", "different", "10s"),
]
QUEUES = ("buggy", "fifo")
LONG_TRANSFER = {
    "time": "8 h",
    "mean throughput": "918 Mbit/s",
    "cwnd, 1 % to 99 %": "about 0.4 to 1.2 MB",
    "kink of rate over cwnd; rate times least RTT": "at the bandwidth-delay product, 0.69 MB",
    "SendStall per second": "1.25 times the signals",
    "CongestionSignals per second": "not told in numbers",
    "FastRetran per second": "a quarter of the signals",
    "DupAcksIn per second": "just under 10",
    "SlowStart per second": "about 7",
    "Timeouts": "1",
    "RTT, 1 % to 99 %": "6 to 10 ms",
}

Cells = list[str]
P = TypeVar("P", bound=OnePoint)


@dataclass(frozen=True)
class Source:
    """Runs of one kind of testbed."""

    name: str
    results: Path

    def runs(self, scenario: str) -> list[Path]:
        """Directories of the ended runs of a scenario, the oldest first."""
        paths = sorted(self.results.glob(f"[0-9]*_{scenario}"))
        return [path for path in paths if all(run.finished for run in RunDir.open(path).executions)]

    def points(self, scenario: str, read: Callable[[Path], P]) -> Iterator[P]:
        """Valid points of a scenario's ended runs, each as it is read."""
        for run in self.runs(scenario):
            for point in map(read, RunSet.open(run).dirs):
                if point.verdict.get("state") in analysis.VALID:
                    yield point

    @cached_property
    def on_off(self) -> list[Row]:
        """Numbers of the valid points of on_off_udp."""
        return [row for point in self.points("on_off_udp", UdpAndTcp) if (row := point.row)]

    def pairs(self, scenario: str) -> pl.DataFrame:
        """:func:`values` of the valid points of a scenario of two flows, with what varies as columns."""
        tables = [values(run) for run in self.runs(scenario)]
        if not tables:
            return pl.DataFrame()
        rows = pl.concat(tables).filter(pl.col("verdict").is_in(analysis.VALID))
        varies = ("rtt", "pairs", "every", "queue")
        levels = {name: pl.col("point").str.extract(rf"\b{name}=(\S+)") for name in varies}
        # Where there is but one it is not said.
        return rows.with_columns(**levels).with_columns(pl.col("every").fill_null("0s"))


def udp_alone(source: Source) -> Iterator[Cells]:
    """UDP without TCP: asked and achieved, rank by rank of the original's five rates."""
    yield [f"{source.name}: {what}" for what in ("asked", "achieved")]
    for wanted, numbers in _by_load(source, ""):
        got = _median(numbers, "udp_bps")
        yield [human(wanted, "bps"), _achieved(wanted, got)]


def _achieved(asked_bps: float, got_bps: float) -> str:
    return f"{human(got_bps, 'bps')}, {got_bps / asked_bps - 1:+.2%}"


def tcp_beside_udp(source: Source) -> Iterator[Cells]:
    """One flow beside UDP, by rates as shares of the bottleneck's."""
    for control in sorted({row.congestion_control for row in source.on_off} - {""}):
        for wanted, numbers in _by_load(source, control):
            shown = {"udp_bps": "bps", "loss": "share", "tcp_on_bps": "bps", "tcp_off_bps": "bps"}
            medians = [human(_median(numbers, name), unit) for name, unit in shown.items()]
            yield [control, human(wanted, "bps"), *medians]


def rejects(source: Source) -> Iterator[Cells]:
    """What TCP sent again beside UDP, and why."""
    scenarios = ("on_off_udp", "rapid_beside_udp")
    points = [point for name in scenarios for point in source.points(name, UdpAndTcp)]
    for point in sorted((one for one in points if one.has_both and one.row), key=_asked_bps):
        (flow,), _ = point.ends
        queue = point.plan.hosts[flow.src_host].state.modules.get("sch_rapid", {}).get("queue")
        budget, udp = point.budget, point.dropped_udp
        counts = (budget.retransmits, budget.drops + udp, udp, budget.rejects)
        yield [
            ", ".join(filter(None, (flow.congestion_control or "TCP", queue))),
            human(_asked_bps(point), "bps"),
            *(f"{count:.0f}" for count in counts),
        ]


def _asked_bps(point: UdpAndTcp) -> float:
    return (point.row.numbers["asked_bps"] if point.row else None) or 0


def _by_load(source: Source, control: str) -> list[tuple[float, list[Mapping[str, Any]]]]:
    """Numbers of the points with this congestion control, '' for UDP alone, by the rate asked of UDP."""
    found: dict[float, list[Mapping[str, Any]]] = {}
    for row in source.on_off:
        if row.congestion_control == control:
            found.setdefault(row.numbers["asked_bps"] or 0, []).append(row.numbers)
    return sorted(found.items())


def two_flows(source: Source) -> Iterator[Cells]:
    """Two cubic flows: what each got, Jain's index, and the time in recovery."""
    rows = source.pairs("fairness_of_pairs")
    yield [source.name]
    for case in TWO_FLOWS:
        yield [_two(rows, *case)]


def two_rapid(source: Source) -> Iterator[Cells]:
    """Two flows of Rapid, by the order of their senders' queues."""
    rows = source.pairs("rapid_pairs")
    yield [f"{source.name}: {queue}" for queue in QUEUES]
    for case in TWO_RAPID:
        yield [_two(rows, *case, queue=queue) for queue in QUEUES]


def original(control: str, rtt: str, pairs: str, every: str) -> Cells:
    """What the original found for two flows; "-" where it does not say."""
    rates = PAIRS.get((control, rtt, pairs)) if every == "0s" else None
    told = f"{rates[0]} / {rates[1]}, {_jain(rates):.2f}" if rates else "-"
    return [rtt, pairs, "together" if every == "0s" else "10 s apart", told]


def _two(rows: pl.DataFrame, rtt: str, pairs: str, every: str, **more: str) -> str:
    if rows.is_empty():
        return "-"
    rows = rows.filter(rtt=rtt, pairs=pairs, every=every, **more)

    def median(metric: str, subject: str) -> float | None:
        found = rows.filter(metric=metric, subject=subject)["value"].median()
        return found if isinstance(found, float) else None

    first, second = median("goodput", "flow1"), median("goodput", "flow2")
    if first is None or second is None:
        return "-"
    losing = [median("time_in_recovery", flow) for flow in ("flow1", "flow2")]
    told = " / ".join(human(share, "share") for share in losing)
    jain = median("jain_index", "all flows")
    return f"{first / 1e6:.4g} / {second / 1e6:.4g}, {jain:.2f}; in recovery {told}"


def long_transfer(source: Source) -> Iterator[Cells]:
    """One flow for long, each direction: what the original says in words or figures."""
    found = [
        {"": f"{source.name}, {transfer.flow.direction}"} | dict(_of_transfer(transfer))
        for transfer in source.points("eight_hour_transfer", LongTransfer)
    ]
    if found:
        yield from ([numbers.get(name, "-") for numbers in found] for name in ("", *LONG_TRANSFER))


def _of_transfer(transfer: LongTransfer) -> Iterator[tuple[str, str]]:
    rows, signals = transfer.samples, transfer.signals
    seconds = float(rows["dt_ns"].sum()) / 1e9
    rate_bps = float((rows["goodput_bps"] * rows["dt_ns"]).sum()) / 1e9 / seconds
    yield "time", f"{seconds / 60:.0f} min"
    yield "mean throughput", human(rate_bps, "bps")
    least, most = (_percentile(rows["cwnd_bytes"], p) / 1e6 for p in (1, 99))
    yield "cwnd, 1 % to 99 %", f"{least:.2f} to {most:.2f} MB"
    both = rows.filter(pl.col("throughput_bps").is_not_null())
    if kink := analysis.kink(both["cwnd_bytes"] / 1e6, both["throughput_bps"] / 1e6):
        bdp = analysis.bdp_bytes(kink.y * 1e6, transfer.min_rtt_ns) / 1e6
        yield "kink of rate over cwnd; rate times least RTT", f"{kink.x:.2f} MB; {bdp:.2f} MB"
    for name in ("SendStall", "CongestionSignals", "FastRetran", "DupAcksIn", "SlowStart"):
        total = signals[name].sum() if signals[name].null_count() < signals.height else None
        yield f"{name} per second", "-" if total is None else f"{float(total) / seconds:.2g}"
    yield "Timeouts", human(int(signals["Timeouts"].sum()))
    yield "RTT, 1 % to 99 %", " to ".join(human(_percentile(rows["srtt_ns"], p), "ns") for p in (1, 99))


def udp_loss(source: Source) -> Iterator[Cells]:
    """UDP at nearly the path's rate."""
    for point in source.points("udp_loss", UdpAndTcp):
        if row := point.row:
            asked, got = row.numbers["asked_bps"] or 0, row.numbers["udp_bps"] or 0
            yield [human(asked, "bps"), _achieved(asked, got), human(row.numbers["loss"], "share")]


def web_fetches(source: Source) -> Iterator[Cells]:
    """Times of fetches with and without a retransmission, by what the server's kernel counted."""
    for recovery in sorted(source.points("web_fetches", LossRecovery), key=_control_loss_and_size):
        path, (flow,) = recovery.plan.path, recovery.plan.phase("measurement").flows
        assert path is not None
        told = analysis.latency(analysis.fetches(recovery.table("http_fetch")))
        loss = human(path.forward.loss, "share") + " each way" * bool(path.reverse.loss)
        half = told.percentiles[50]
        yield [
            str(flow.congestion_control),
            loss,
            f"{flow.fetch_bytes} B",
            str(told.fetches),
            human(told.retransmitted.value if told.retransmitted else None, "share"),
            human(told.clean.mean(), "ns"),
            human(told.lossy.mean(), "ns"),
            human(half.value if half else None, "ns"),
        ]


def _control_loss_and_size(recovery: LossRecovery) -> tuple[str, float, float, int]:
    path, (flow,) = recovery.plan.path, recovery.plan.phase("measurement").flows
    assert path is not None
    return flow.congestion_control or "", path.reverse.loss, path.forward.loss, flow.fetch_bytes or 0


def queue_and_cwnd(source: Source) -> Iterator[Cells]:
    """Recoveries of the flow that fills a slow path's queue."""
    for recovery in sorted(source.points("one_flow_and_its_queue", LossRecovery), key=_queue_packets):
        path, found = recovery.plan.path, recovery.found.drop_nulls("end_ns")
        assert path is not None
        before, after = (_percentile(found[name], 50) for name in ("cwnd_before", "cwnd_after"))
        yield [
            f"{path.forward.queue.limit_packets} packets",
            str(found.height),
            f"{before:g}",
            f"{after:g}",
            f"{after / before:.2f}",
            human(_percentile(found["end_ns"] - found["begin_ns"], 50), "ns"),
            str(found["kind"].str.contains("Loss").sum()),
        ]


def reductions(source: Source) -> Iterator[Cells]:
    """How the rules of modules/tcp_recovery reduce windows, by what the path loses."""
    for run in source.runs("recovery_arms"):
        with suppress(Missing):
            rows = ReductionLogs(run).rows.sort("loss", "congestion_control", maintain_order=True)
            for (loss, control), of in rows.group_by("loss", "congestion_control", maintain_order=True):
                told = analysis.summary_of_reductions(of)
                yield [
                    str(loss),
                    str(control),
                    str(told.reductions),
                    _quartiles(told.pipe_over),
                    _quartiles(told.pipe_left),
                    _quartiles(told.cwnd_left),
                    _quartiles(told.silence_rtts),
                    human(_percentile(told.length_ns, 50), "ns"),
                    str(told.timeouts),
                ]


def _quartiles(values: pl.Series) -> str:
    low, middle, high = (f"{_percentile(values.drop_nulls(), percent):.3g}" for percent in (25, 50, 75))
    return f"{middle} ({low} to {high})"


def _queue_packets(recovery: LossRecovery) -> int:
    path = recovery.plan.path
    assert path is not None
    return path.forward.queue.limit_packets or 0


def _percentile(values: pl.Series, percent: float) -> float:
    found = analysis.percentile(values, percent)
    return float("nan") if found is None else found


def _jain(rates: Sequence[float]) -> float:
    return analysis.jain_index(list(rates)) or 0


def _median(numbers: Sequence[Mapping[str, Any]], name: str) -> float:
    known = [float(row[name]) for row in numbers if row[name] is not None]
    return statistics.median(known) if known else float("nan")
