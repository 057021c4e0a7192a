"""A rapid flow beside UDP that comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import polars as pl

from dumbbell import analysis
from dumbbell.ingest.capture import Capture
from dumbbell.report import figures
from dumbbell.studies.cross_traffic import UdpAndTcp
from dumbbell.studies.source import Missing
from dumbbell.units import human
from tools.seeds.runs import Runs
from tools.seeds.shown import Cell, Excerpt, Number, Part, Picture, Table, shows

CUBIC = ("on_off_udp", "hardware,short")
RAPID = ("rapid_beside_udp", "short,hardware")
EXHIBIT = ("rapid_beside_udp", "hardware,exhibit")
OTHERS = ("rapid_beside_udp", "hardware,others")
USEC_TS = ("rapid_beside_udp", "hardware,usec_ts")
WIDTH_NS = 500_000_000
AROUND = 2  # lines of the excerpt before and after the segment that was overtaken

Reader = TypeVar("Reader", analysis.Echoes, analysis.Paws)
COUNTED = ("sent again", "dropped by router", "rejected", "came twice")


def of_points(paths: Iterable[Path]) -> list[UdpAndTcp]:
    """Points by the rate of their UDP."""
    return sorted(
        map(UdpAndTcp, paths), key=lambda point: point.row.numbers["asked_bps"] or 0 if point.row else 0
    )


def load(point: UdpAndTcp) -> str:
    """The rate asked of UDP, in words."""
    row = point.row
    if row is None:
        raise Missing(f"{point.dir.name} has no samples of UDP.")
    return human(row.numbers["asked_bps"], "bps")


@shows("beside_udp", "U0")
def alone(runs: Runs) -> Iterator[Part]:
    """UDP alone."""
    rows = {}
    for point in of_points(runs.points(*CUBIC, baseline="udp_alone")):
        assert point.row
        asked, got = (point.row.numbers[name] for name in ("asked_bps", "udp_bps"))
        off = None if got is None or not asked else got / asked - 1
        rows[load(point)] = [Number(got, "bps"), Number(off, "share")]
    yield Table(["achieved here", "more than asked"], rows)


@shows("beside_udp", "U1")
def cubic(runs: Runs) -> Iterator[Part]:
    """Goodput of cubic."""
    yield over_time(of_points(runs.points(*CUBIC)), "cubic")


@shows("beside_udp", "U2")
def rapid(runs: Runs) -> Iterator[Part]:
    """Goodput of Rapid."""
    yield over_time(of_points(runs.points(*RAPID, queue="buggy")), "Rapid")


def over_time(points: list[UdpAndTcp], control: str) -> Picture:
    """Goodput of the TCP flow over time, a line for each rate of the UDP."""
    series = {}
    for point in points:
        rates = point.goodputs(WIDTH_NS).filter(flow="tcp")
        series[f"UDP of {load(point)}"] = rates.select("t_ns", y=pl.col("goodput_bps") / 1e6)
    drawn = figures.lines(series, points[0].x_max_s, title="goodput (Mbit/s)", unit="Mbit/s")
    return Picture(
        drawn,
        f"Goodput of {control}, means over {human(WIDTH_NS, 'ns')}; UDP is on in 10-20 s, 30-40 s, 50-60 s.",
    )


@shows("beside_udp", "U2-claim")
def shares(runs: Runs) -> Iterator[Part]:
    """Goodput of both while UDP is on, and while it is off."""
    rows: dict[str, list[Number]] = {}
    for points in (of_points(runs.points(*CUBIC)), of_points(runs.points(*RAPID, queue="buggy"))):
        for point in points:
            assert point.row
            numbers = point.row.numbers
            shown = [Number(numbers[name], "bps") for name in ("tcp_on_bps", "tcp_off_bps", "udp_bps")]
            rows.setdefault(load(point), []).extend([*shown, Number(numbers["loss"], "share")])
    head = [
        f"{control}, {what}"
        for control in ("cubic", "rapid")
        for what in ("UDP on", "UDP off", "UDP", "UDP lost")
    ]
    yield Table(head, rows, "UDP")


def counted(point: UdpAndTcp) -> list[Number]:
    """The numbers of :data:`COUNTED` of a point."""
    budget = point.budget
    counts = (budget.retransmits, budget.drops + point.dropped_udp, budget.rejects, budget.duplicates)
    return [Number(count) for count in counts]


@shows("beside_udp", "U3")
def rejects(runs: Runs) -> Iterator[Part]:
    """What netstat and the router counted, at all rates."""
    rows = {load(point): counted(point) for point in of_points(runs.points(*RAPID, queue="buggy"))}
    yield Table([f"buggy, {name}" for name in COUNTED], rows)


@shows("beside_udp", "U3-claim")
def rejects_by_period(runs: Runs) -> Iterator[Part]:
    """Rejects while UDP was on and while it was off."""
    rows = {}
    for point in of_points(runs.points(*RAPID, queue="buggy")):
        *each, _ = point.sums(point.counted("TcpExtPAWSEstab", "receiver"))
        on = [asked > 0 for asked in point.spans["asked_bps"]]
        sums = (
            sum(of for of, is_on in zip(each, on, strict=True) if is_on is wanted) for wanted in (True, False)
        )
        rows[load(point)] = [Number(round(total)) for total in sums]
    yield Table(["rejected, UDP on", "rejected, UDP off"], rows, "UDP")


@shows("beside_udp", "U4")
def echoes(runs: Runs) -> Iterator[Part]:
    """Echoes of timestamps in the captures on both sides of the bottleneck."""
    rows = {}
    for name, _, found in captured(runs, analysis.Echoes):
        rows[name] = [Number(found.echoes), Number(found.unmatched)]
    yield Table(["echoes", "of timestamps that had not been sent"], rows, "captured at")


@shows("beside_udp", "U5")
def overtaken(runs: Runs) -> Iterator[Part]:
    """The lines of a capture around the first segment that was overtaken and rejected."""
    for name, capture, paws in captured(runs, analysis.Paws):
        if paws.first:
            yield Excerpt("\n".join(map(capture.text, _around(capture, paws.first))))
            counts = (paws.segments, paws.again, paws.backwards, paws.rejected.total())
            steps = ", ".join(f"{step}: {count}" for step, count in paws.steps.most_common(3))
            head = ["segments", "sent again", "older timestamp than one before", "rejected"]
            cells: list[Cell] = [*(Number(count) for count in counts), steps]
            yield Table([*head, "ticks older: segments"], {name: cells}, "captured at")
            return
    raise Missing("no capture has a segment that was overtaken and rejected.")


def captured(runs: Runs, kind: Callable[[], Reader]) -> Iterator[tuple[str, Capture, Reader]]:
    """Each capture with a reader that got all of its segments; Missing if one cannot be read."""
    for point in map(UdpAndTcp, runs.points(*EXHIBIT)):
        for name, path in point.captures():
            reader = kind()
            try:
                capture = Capture.open(path)
                for segments in capture.segments():
                    reader.feed(segments)
            except (OSError, ValueError) as error:
                raise Missing(f"{error}.") from None
            yield name, capture, reader


def _around(capture: Capture, first: analysis.Overtaken) -> list[int]:
    """Offsets of segments with data: two up to that which overtook, and two from the overtaken one on."""
    places = [
        segments.filter(pl.col("payload_bytes") > 0)["at"]
        for segments in capture.segments()
        if segments["at"].max() >= first.by_at - 2**16 and segments["at"].min() <= first.at + 2**16  # type: ignore[operator]
    ]
    near = pl.concat(places).to_list()
    before = [at for at in near if at <= first.by_at][-AROUND:]
    return before + [at for at in near if at >= first.at][:AROUND]


@shows("beside_udp", "U6")
def fifo(runs: Runs) -> Iterator[Part]:
    """Rapid with its queue in order."""
    yield _counts(runs.points(*RAPID, queue="fifo"))


@shows("beside_udp", "U7")
def others(runs: Runs) -> Iterator[Part]:
    """Other congestion controls with the buggy queue."""
    for control in ("bbr", "cubic"):
        yield _counts(runs.points(*OTHERS, congestion_control=control), f"{control}, UDP")


@shows("beside_udp", "U8")
def restamp(runs: Runs) -> Iterator[Part]:
    """Rapid with new timestamps."""
    yield _counts(runs.points(*RAPID, queue="restamp"))


@shows("beside_udp", "U9")
def usec_ts(runs: Runs) -> Iterator[Part]:
    """Rapid with timestamps in microseconds."""
    yield _counts(runs.points(*USEC_TS))


def _counts(paths: Iterable[Path], of: str = "UDP") -> Table:
    rows = {}
    for point in of_points(paths):
        assert point.row
        rates = [Number(point.row.numbers[name], "bps") for name in ("tcp_on_bps", "tcp_off_bps")]
        rows[load(point)] = [*counted(point), *rates]
    return Table([*COUNTED, "TCP, UDP on", "TCP, UDP off"], rows, of)
