"""One flow for eight hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from dumbbell import analysis
from dumbbell.report import figures
from dumbbell.report.figures import transfer
from dumbbell.studies.cross_traffic import UdpAndTcp
from dumbbell.studies.source import Missing
from dumbbell.studies.transfer import LongTransfer
from tools.seeds.runs import Entry, NotRun, Runs
from tools.seeds.shown import Cell, Number, Part, Picture, Table, shows

UDP = ("udp_loss", "minute")
GIGABIT = ("eight_hour_transfer", "gigabit")
EIGHT_HOURS = ("eight_hour_transfer", "100mbit")
IPERF3 = ("eight_hour_transfer", "gigabit,iperf3,ten_minutes")
STALLS = ("eight_hour_transfer", "stalls")
QUEUES = ("eight_hour_transfer", "txqueuelen")
LIMIT = "100"  # packets of the sender's queue of the flow that stalls and is shown
SIGNALS = ("SendStall", "CongestionSignals", "FastRetran", "DupAcksIn", "SlowStart")
TEN_MINUTES_S = 600
CELLS = (360, 150)  # of a figure of points, across and up
DRAWN = "of those that lie on each other one is drawn"


# The tables of eight hours take seconds to read, and twenty items show them.
@lru_cache(maxsize=4)
def opened(point: Path) -> LongTransfer:
    """A point."""
    return LongTransfer(point)


def long(runs: Runs) -> Iterator[tuple[str, LongTransfer]]:
    """What was run of the transfers that are shown for the original's direction, with words for them."""
    named: list[tuple[str, Entry, dict[str, str]]] = [
        ("8 h at 1 Gbit/s", GIGABIT, {}),
        ("8 h at 100 Mbit/s", EIGHT_HOURS, {"direction": "forward"}),
        ("10 min at 1 Gbit/s with a sender's queue that overflows", STALLS, {"limit": LIMIT}),
    ]
    found = False
    for name, entry, levels in named:
        try:
            points = runs.points(*entry, **levels)
        except NotRun:
            continue
        found = True
        yield name, opened(points[0])
    if not found:
        raise NotRun("No long transfer was run yet.")


def each(item: str, draw: Callable[[LongTransfer], tuple[object, str]]) -> None:
    """Show a figure of each transfer as an item; what one lacks is told in place of it."""

    @shows("eight_hours", item)
    def show(runs: Runs) -> Iterator[Part]:
        lacking = []
        for name, of in long(runs):
            try:
                figure, caption = draw(of)
            except Missing as missing:
                lacking.append(f"{name}: {missing}")
                continue
            yield Picture(
                figure,
                f"{name[:1].upper()}{name[1:]}. {caption}".rstrip() + "".join(f" {why}" for why in lacking),
            )
            lacking.clear()
        if lacking:
            raise Missing(" ".join(lacking))


def reported(of: LongTransfer) -> tuple[object, str]:
    """Rates of each second, as the receiving program reports them."""
    try:
        found = of.iperf3_rates
        series = {f"iperf3, {end}": rates for (end, _), rates in found.items()}
    except Missing:
        rows = of.table("tcp_intervals").filter(flow=of.flow.name)
        series = {
            str(side): own.select("t_ns", y=pl.col("bytes") * 8 / 1e6)
            for (side,), own in rows.group_by("side", maintain_order=True)
        }
    means = ", ".join(f"{name} {mean(rates['y']):.4g} Mbit/s" for name, rates in series.items())
    drawn = figures.lines(series, of.x_max_s, title="throughput (Mbit/s)", unit="Mbit/s")
    return drawn, f"Reports of each second; means: {means}."


def mean(values: pl.Series) -> float:
    """A mean; not a number of nothing."""
    return float(np.mean(values.to_numpy()))


def windows(of: LongTransfer, until_s: float = float("inf")) -> tuple[object, str]:
    """Window over time."""
    until_s = min(until_s, of.x_max_s)
    rows = of.samples.filter(pl.col("t_ns") <= until_s * 1e9)
    return transfer.windows(rows, until_s), ""


def spread(rows: pl.DataFrame) -> pl.DataFrame:
    """One point ``[x, y]`` of each cell of a figure that has any: so a few are seen beside many."""
    cells = [
        (pl.col(column) / pl.col(column).max() * number).round().alias(f"cell_{column}")
        for column, number in zip(("x", "y"), CELLS, strict=True)
    ]
    return rows.with_columns(cells).unique(["cell_x", "cell_y"], keep="first", maintain_order=True)


def window_and_rate(which: str) -> Callable[[LongTransfer], tuple[object, str]]:
    """Rate against window of some samples."""

    def draw(of: LongTransfer) -> tuple[object, str]:
        rows = of.windows_and_rates(which)
        kink = analysis.kink(rows["x"], rows["y"]) if which == "all" else None
        told = f"{rows.height} samples{f' {which}' * (which != 'all')}; {DRAWN}."
        if kink:
            bdp = analysis.bdp_bytes(kink.y * 1e6, of.min_rtt_ns) / 1e6
            told += f" Two straight lines meet at {kink.x:.3g} MB and {kink.y:.4g} Mbit/s;"
            told += f" rate times least RTT is {bdp:.3g} MB."
        return transfer.cwnd_and_rate(spread(rows), which, kink), told

    return draw


def total(*names: str) -> Callable[[LongTransfer], tuple[object, str]]:
    """Signals in total over time, and their growth."""

    def draw(of: LongTransfer) -> tuple[object, str]:
        if absent := [name for name in names if not of.told(name)]:
            raise Missing(f"{', '.join(absent)} is not known.")
        series = {name: of.total(name) for name in names}
        grown = []
        for name, rows in series.items():
            line = analysis.slope(rows["t_ns"] / 1e9, rows["y"])
            steady = f", {line.slope:.3g} a second (R² {line.r2:.3f})" if line else ""
            grown.append(f"{name} {rows['y'][-1]}{steady}")
        return transfer.totals(series, of.x_max_s), f"{'; '.join(grown)}. Source: {of.signals['source'][0]}."

    return draw


def by_second(x: str, y: str) -> Callable[[LongTransfer], tuple[object, str]]:
    """One signal against another in each second."""

    def draw(of: LongTransfer) -> tuple[object, str]:
        if absent := [name for name in (x, y) if not of.told(name)]:
            raise Missing(f"{', '.join(absent)} is not known.")
        seconds = of.by_second(x, y)
        most = " and ".join(f"{seconds[column].max()!s} {name}" for column, name in (("x", x), ("y", y)))
        return transfer.second_by_second(spread(seconds), x, y), f"At most {most} in a second; {DRAWN}."

    return draw


def packets(of: LongTransfer) -> tuple[object, str]:
    """Packets sent between two samples."""
    sent = of.samples["sent_packets"]
    return figures.histogram(sent, title="packets sent between two samples"), f"{sent.count()} intervals."


def rtt_distribution(of: LongTransfer) -> tuple[object, str]:
    """Distribution of the smoothed RTT."""
    values = of.samples["srtt_ns"] / 1e6
    told = ", ".join(f"{p} % {analysis.percentile(values, p):.4g} ms" for p in (1, 50, 99))
    return figures.histogram(values, title="smoothed round-trip time (ms)"), f"{told}."


each("P1", reported)
each(
    "P2",
    lambda of: (
        transfer.throughput(of.samples, of.x_max_s),
        "Bytes sent over time between two samples, 100 ms apart.",
    ),
)
each("P3", windows)
each("P4", lambda of: windows(of, TEN_MINUTES_S))
each("P5", window_and_rate("all"))
each("P6", window_and_rate("with stalls"))
each("P7", window_and_rate("without stalls"))
each("P8", window_and_rate("without signals"))
each("P9", total("SendStall"))
each("P10", total("CongestionSignals", "SendStall"))
each("P11", total("FastRetran"))
each("P12", total("Timeouts"))
each("P13", total("DupAcksIn"))
each("P15", total("SlowStart"))
each("P16", by_second("SlowStart", "SendStall"))
each("P17", packets)
each("P18", lambda of: (transfer.rtts(of.samples, of.x_max_s), ""))
each("P19", rtt_distribution)
each("P20", total("OtherReductions", "Timeouts"))
each("P22", by_second("DupAcksIn", "FastRetran"))


@shows("eight_hours", "P14")
def other_reductions(runs: Runs) -> Iterator[Part]:
    """Reductions by other causes, and what is known of timeouts."""
    names = ("Timeouts", "AbruptTimeouts", "SubsequentTimeouts", "CurTimeoutCount")
    rows = {}
    for name, of in long(runs):
        told = of.graded(names).get((of.flow.name, "0"), {})
        reductions = Number(int(of.signals["OtherReductions"].sum()))
        rows[name] = [reductions, *(Number(told.get(each_, (None, ""))[0]) for each_ in names)]
    yield Table(["OtherReductions (by samples)", *names], rows, "transfer")


@shows("eight_hours", "P21")
def taken_back(runs: Runs) -> Iterator[Part]:
    """Reductions that were taken back (CongestionOverCount), by the counters of the sender's host."""
    found = {name: of.taken_back for name, of in long(runs)}
    head = list(next(iter(found.values())))
    yield Table(
        head, {name: [Number(of[column]) for column in head] for name, of in found.items()}, "transfer"
    )


@shows("eight_hours", "numbers")
def numbers(runs: Runs) -> Iterator[Part]:
    """The page's numbers, of each transfer."""
    columns = {name: in_numbers(of) for name, of in long(runs)}
    yield _in_rows(columns)


@shows("eight_hours", "reverse")
def reverse(runs: Runs) -> Iterator[Part]:
    """The other direction."""
    of = opened(runs.points(*EIGHT_HOURS, direction="reverse")[0])
    yield _in_rows({"8 h at 100 Mbit/s, reverse": in_numbers(of)})
    for draw in (reported, windows, window_and_rate("all")):
        yield Picture(*draw(of))


def _in_rows(columns: dict[str, dict[str, Number]]) -> Table:
    names = next(iter(columns.values()))
    return Table([*columns], {name: [of[name] for of in columns.values()] for name in names}, "number")


def megabytes(value: float | None) -> Number:
    """A size (bytes) as the original has it."""
    return Number(None if value is None else value / 1e6, "MB")


def in_numbers(of: LongTransfer) -> dict[str, Number]:
    """The numbers of a transfer, by the names of the original's table."""
    rows, signals = of.samples, of.signals
    seconds = float(rows["dt_ns"].sum()) / 1e9
    cwnd = rows["cwnd_bytes"]
    found = {
        "time": Number(float(rows["t_ns"].max()), "ns"),  # type: ignore[arg-type]
        "mean throughput": Number(float((rows["goodput_bps"] * rows["dt_ns"]).sum()) / 1e9 / seconds, "bps"),
        "least cwnd (1 %)": megabytes(analysis.percentile(cwnd, 1)),
        "largest cwnd (99 %)": megabytes(analysis.percentile(cwnd, 99)),
    }
    both = rows.filter(pl.col("throughput_bps").is_not_null())
    kink = analysis.kink(both["cwnd_bytes"] / 1e6, both["throughput_bps"] / 1e6)
    found["kink of rate over cwnd"] = megabytes(kink.x * 1e6 if kink else None)
    bdp = analysis.bdp_bytes(kink.y * 1e6, of.min_rtt_ns) if kink else None
    found["bandwidth-delay product"] = megabytes(bdp)
    for name in SIGNALS:
        total_ = float(signals[name].sum()) if of.told(name) else None
        found[f"{name} per second"] = Number(None if total_ is None else total_ / seconds)
        if name == "FastRetran":
            found["Timeouts"] = Number(int(signals["Timeouts"].sum()))
    for percent in (1, 99):
        found[f"RTT ({percent} %)"] = Number(analysis.percentile(rows["srtt_ns"], percent), "ns")
    return found


@shows("eight_hours", "udp")
def udp(runs: Runs) -> Iterator[Part]:
    """UDP at nearly the path's rate."""
    point = UdpAndTcp(runs.points(*UDP)[0])
    if not (row := point.row):
        raise Missing("The UDP was not sampled.")
    packets_ = point.rows("udp").filter(side="receiver")["received_packets"].max()
    rate = float(packets_) / point.x_max_s  # type: ignore[arg-type]
    rows: dict[str, list[Cell]] = {
        "datagrams per second": [Number(rate)],
        "share lost": [Number(row.numbers["loss"], "share")],
    }
    yield Table(["here"], rows, "UDP")


@shows("eight_hours", "budget")
def budget(runs: Runs) -> Iterator[Part]:
    """Signals and their causes."""
    names = ("CongestionSignals", "SendStall", "FastRetran", "Timeouts", "unexplained")
    rows = {}
    for name, of in long(runs):
        found = analysis.budget(of.signals).to_dicts()[0]
        rows[name] = [Number(found[column]) for column in names]
    yield Table(names, rows, "transfer")


@shows("eight_hours", "dup-acks")
def dup_acks(runs: Runs) -> Iterator[Part]:
    """Round trips per event of three duplicate ACKs."""
    rows = {}
    for name, of in long(runs):
        if not of.told("DupAcksIn"):
            continue
        total_, fast, seconds, rtt_s = of.duplicate_acks
        every = 3 * seconds / rtt_s / total_ if total_ else None
        rows[name] = [Number(total_), Number(fast), Number(1 / rtt_s), Number(every)]
    yield Table(
        ["duplicate ACKs", "fast retransmits", "round trips per second", "round trips per three"],
        rows,
        "transfer",
    )


@shows("eight_hours", "txqueuelen")
def queues(runs: Runs) -> Iterator[Part]:
    """Stalls by the length of the sender's queue, where TCP waits for it and where it does not."""
    head = ["SendStall", "per second", "FastRetran", "goodput", "largest cwnd"]
    for entry, level, of in (
        (STALLS, "limit", "a queue for which TCP does not wait, packets"),
        (QUEUES, "txqueuelen", "this kernel's (TCP small queues), packets"),
    ):
        rows: dict[str, list[Cell]] = {}
        for point in runs.points(*entry):
            found = LongTransfer(point)
            numbers_ = in_numbers(found)
            rows[str(found.plan.levels[level])] = [
                Number(int(found.signals["SendStall"].sum())),
                numbers_["SendStall per second"],
                Number(int(found.signals["FastRetran"].sum())),
                numbers_["mean throughput"],
                numbers_["largest cwnd (99 %)"],
            ]
        yield Table(head, dict(sorted(rows.items(), key=lambda row: int(row[0]))), of)
    iperf3 = opened(runs.points(*IPERF3)[0])
    yield Picture(*reported(iperf3))
