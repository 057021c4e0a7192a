"""Two flows of cubic or of Rapid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from dumbbell.metrics.values import values
from dumbbell.report.plots import OF_RUN
from dumbbell.studies.retransmissions import Retransmissions
from dumbbell.studies.source import Missing, Source
from tools.seeds.runs import Runs
from tools.seeds.shown import Cell, Number, Part, Picture, Table, shows

CUBIC = ("fairness_of_pairs", "hardware,original")
RAPID = ("rapid_pairs", "hardware")
ESTIMATES = ("rapid_pairs", "hardware,estimates")
TRIED = {
    "buffer, losses, arrivals": ("rapid_pairs", "hardware,paths"),
    "coalescing at the receiver": ("rapid_pairs", "hardware,coalesced"),
    "UDP at the start and at 10 s": ("rapid_pairs", "hardware,disturbed"),
    "other times between the starts": ("rapid_pairs", "hardware,offsets"),
}
WIDTH = "500ms"
TOGETHER = {"every": "0s"}
HEAD = [
    *("flow1 here", "flow2 here", "Jain's index", "flow1 in recovery", "flow2 in recovery"),
    *("sent again by flow1", "sent again by flow2", "rejected"),
]


def shares(point: Path) -> list[Cell]:
    """The numbers of :data:`HEAD` of a point: rates and shares after the warm-up, counts of all the time."""
    source = Retransmissions(point)
    found = values(point)

    def of(metric: str, subject: str, unit: str) -> Number:
        rows = found.filter(metric=metric, subject=subject)["value"]
        return Number(rows[0] if rows.len() else None, unit)

    total = source.rows("tcp_info", "flow", "total_retrans", where=pl.col("side") == "sender")
    again = [Number(total.filter(flow=flow)["total_retrans"].max()) for flow in ("flow1", "flow2")]  # type: ignore[arg-type]
    try:
        snmp = source.table("snmp").filter(name="TcpExtPAWSEstab")
        rejected = Number(int(snmp["delta"].sum()))
    except Missing:
        rejected = Number(None)
    return [
        *(of("goodput", flow, "bps") for flow in ("flow1", "flow2")),
        of("jain_index", "all flows", ""),
        *(of("time_in_recovery", flow, "share") for flow in ("flow1", "flow2")),
        *again,
        rejected,
    ]


def table(points: Mapping[str, list[Path]]) -> Table:
    """A row for each case, of its first point."""
    return Table(HEAD, {name: shares(paths[0]) for name, paths in points.items()}, "flows")


def picture(point: Path, what: str) -> Picture:
    """Goodput of both flows over time."""
    return Picture(OF_RUN["goodput"](Source(point), WIDTH), f"{what}; means over {WIDTH}.")


@shows("two_flows", "F1c")
def two_cubic(runs: Runs) -> Iterator[Part]:
    """Two cubic flows of different pairs."""
    yield picture(
        runs.points(*CUBIC, rtt="shortest", pairs="different")[0], "Two cubic flows of different pairs"
    )


@shows("two_flows", "F1r")
def two_rapid(runs: Runs) -> Iterator[Part]:
    """Two rapid flows of different pairs."""
    for queue in ("buggy", "fifo"):
        points = runs.points(*RAPID, rtt="shortest", pairs="different", queue=queue, **TOGETHER)
        yield picture(points[0], f"Two flows of Rapid of different pairs, their queues {queue}")


@shows("two_flows", "F2r")
def same_pair(runs: Runs) -> Iterator[Part]:
    """Two rapid flows of one pair."""
    points = runs.points(*RAPID, rtt="shortest", pairs="same", queue="buggy", **TOGETHER)
    yield picture(points[0], "Two flows of Rapid of one pair")


@shows("two_flows", "F1")
def shortest(runs: Runs) -> Iterator[Part]:
    """Shares at the shortest RTT."""
    points = {"cubic": runs.points(*CUBIC, rtt="shortest", pairs="different")}
    for pairs, name in (("different", "different pairs"), ("same", "same pair")):
        points[f"rapid, {name}"] = runs.points(*RAPID, rtt="shortest", pairs=pairs, queue="buggy", **TOGETHER)
    yield table(points)


@shows("two_flows", "F2c")
def cubic_of_one_pair(runs: Runs) -> Iterator[Part]:
    """Two cubic flows of one pair."""
    point = runs.points(*CUBIC, rtt="shortest", pairs="same")
    yield picture(point[0], "Two cubic flows of one pair")
    yield table({"cubic": point})


def by_control(runs: Runs, rtt: str) -> Iterator[Part]:
    """Shares at an RTT."""
    rapid = runs.points(*RAPID, rtt=rtt, pairs="different", queue="buggy", **TOGETHER)
    yield table({"cubic": runs.points(*CUBIC, rtt=rtt, pairs="different"), "rapid": rapid})


def apart(runs: Runs, rtt: str) -> Iterator[Part]:
    """Two flows of Rapid 10 s apart at an RTT."""
    points = runs.points(*RAPID, rtt=rtt, pairs="different", queue="buggy", every="10s")
    yield picture(points[0], "Two flows of Rapid, the first 10 s earlier")
    yield table({"rapid": points})


@shows("two_flows", "F7-throughput")
def of_estimates(runs: Runs) -> Iterator[Part]:
    """The flows whose estimates are shown."""
    point = runs.points(*ESTIMATES)
    yield picture(point[0], "Two flows of Rapid of different pairs, every p-stream traced")
    yield table({"rapid": point})


@shows("two_flows", "F7")
def estimates(runs: Runs) -> Iterator[Part]:
    """AB_est, and how often there were p-streams."""
    sampled = runs.points(*RAPID, rtt="shortest", pairs="different", queue="buggy", **TOGETHER)[0]
    yield Picture(
        OF_RUN["available"](Source(sampled)), "AB_est and R_avg of both flows for 60 s, each 100 ms."
    )
    source = Source(runs.points(*ESTIMATES)[0])
    yield Picture(OF_RUN["available"](source), "AB_est and R_avg of both flows, of every p-stream.")
    yield Picture(OF_RUN["pstreams"](source), "P-streams per second, and those that gave an estimate.")


@shows("two_flows", "F-same-host")
def same_host(runs: Runs) -> Iterator[Part]:
    """One pair or two, with the queue that is fair between flows of a host."""
    yield table(
        {
            name: runs.points(*RAPID, rtt="shortest", pairs=pairs, queue="buggy", **TOGETHER)
            for pairs, name in (("same", "same pair"), ("different", "different pairs"))
        }
    )


def by_rtt(runs: Runs, queue: str) -> Iterator[Part]:
    """Two flows of Rapid of different pairs at each RTT, with one order of their queues."""
    points = {
        rtt: runs.points(*RAPID, rtt=rtt, pairs="different", queue=queue, **TOGETHER)
        for rtt in ("shortest", "10ms", "30ms")
    }
    yield table(points)


for _item, _show in {
    "F3": partial(by_control, rtt="10ms"),
    "F4": partial(by_control, rtt="30ms"),
    "F5": partial(apart, rtt="10ms"),
    "F6": partial(apart, rtt="30ms"),
    "F-starves": partial(by_rtt, queue="buggy"),
    "F-order": partial(by_rtt, queue="fifo"),
}.items():
    shows("two_flows", _item)(_show)


@shows("two_flows", "F-tried")
def tried(runs: Runs) -> Iterator[Part]:
    """What else may have made the second flow starve, a row for each point."""
    rows: dict[str, list[Cell]] = {}
    for what, entry in TRIED.items():
        for point in runs.points(*entry):
            levels = [f"{name} {text}" for name, text in Source(point).plan.levels.items() if name != "queue"]
            rows[f"{what}: {', '.join(levels)}"] = shares(point)
    yield Table(HEAD, rows, "tried")
