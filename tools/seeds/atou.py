"""The experiments of atou, in runs and in its simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import polars as pl

from dumbbell import analysis, atou
from dumbbell.metrics.values import values
from dumbbell.plan import Flow
from dumbbell.report import figures
from dumbbell.studies.atou import flows_of_atou
from dumbbell.studies.source import Missing, Source
from tools.seeds.runs import Entry, Runs
from tools.seeds.shown import Cell, Excerpt, Number, Part, Picture, Table, shows

WIDTH_NS = 200_000_000  # goodput of a run: its samples do not lie on the edges of shorter bins
SHOWN = 8  # lines of an excerpt
Of = tuple[Flow, pl.DataFrame]


@dataclass(frozen=True)
class Compared:
    """Transfers of a run that an item compares, and the same in the simulator."""

    entry: Entry
    transfers: Mapping[str, Mapping[str, str]]  # levels by the name of the row
    simulated: tuple[str, Mapping[str, str]] | None = (
        None  # experiment, and its transfers by the name of the row
    )
    column: str = ""  # of the samples, what is drawn beside the goodput: snd_cwnd or srtt_us
    picture: bool = True

    def found(self, runs: Runs) -> dict[str, tuple[Path, Of]]:
        """Point and flow of each transfer, or Missing."""
        points = {name: runs.points(*self.entry, **levels)[0] for name, levels in self.transfers.items()}
        found = {}
        for name, point in points.items():
            own = [of for _, of in flows_of_atou([point])]
            if not own:
                raise Missing(f"The sender of {name} has not told of itself.")
            found[name] = (point, own[0])
        return found


def _levels(level: str, **names: str) -> dict[str, dict[str, str]]:
    return {name.replace("_", " "): {level: value} for name, value in names.items()}


DELAYED = ("atou_delayed_acks", "")
REORDERING = ("atou_reordering", "oc12")
COMPARED = {
    "ns-vegas": Compared(
        ("atou_vegas", "ns"),
        _levels("sender", Reno="reno", Vegas="vegas"),
        ("sawtooth", {"Reno": "Reno", "Vegas": "Vegas"}),
    ),
    "vegas-exit": Compared(
        ("atou_slow_start", "oc12"),
        {"standard Vegas": {"sender": "vegas_1_3_1"}, "limited slow start": {"sender": "gamma_1_limited"}},
        ("vegas_exit", {"standard Vegas": "standard Vegas", "limited slow start": "limited slow start"}),
        column="snd_cwnd",
    ),
    "lossy-start": Compared(
        ("atou_slow_start", "lossy_start"),
        {
            "standard slow start": {"sender": "standard"},
            "Vegas, gamma 2": {"sender": "gamma_2_limited"},
            "Vegas, gamma 60": {"sender": "gamma_60_limited"},
        },
        (
            "lossy_start",
            {name: name for name in ("standard slow start", "Vegas, gamma 2", "Vegas, gamma 60")},
        ),
        column="snd_cwnd",
    ),
    "figure-2": Compared(
        DELAYED,
        {
            "delack 0": {"delack": "0", "sender": "no_loss"},
            "delack 200": {"delack": "200", "sender": "no_loss"},
        },
        ("delayed_acks", {"delack 0": "no loss", "delack 200": "no loss, delayed ACKs"}),
    ),
    "figure-3a": Compared(
        ("atou_recovery", ""),
        _levels("sender", standard="standard", aggressive="aggressive"),
        ("aimd", {"standard": "standard", "aggressive": "aggressive"}),
        column="snd_cwnd",
    ),
    "figure-4": Compared(
        DELAYED,
        {
            "delack 0": {"delack": "0", "sender": "two_losses"},
            "delack 200": {"delack": "200", "sender": "two_losses"},
        },
        ("delayed_acks", {"delack 0": "two losses", "delack 200": "two losses, delayed ACKs"}),
        column="snd_cwnd",
    ),
    "figure-5": Compared(
        ("atou_segment_size", "jumbo"), {"1500 bytes": {"sender": "one"}, "9000 bytes": {"sender": "nine"}}
    ),
    "figure-6": Compared(
        ("atou_segment_size", ""),
        {"1472 bytes": {"sender": "one"}, "2944 bytes": {"sender": "two"}, "5888 bytes": {"sender": "four"}},
        ("segment_size", {name: name for name in ("1472 bytes", "2944 bytes", "5888 bytes")}),
    ),
    "figure-6a": Compared(
        ("atou_segment_size", ""),
        {"one": {"sender": "one"}, "ten": {"sender": "virtual_ten"}},
        ("virtual_mss", {"one": "one", "ten": "ten"}),
    ),
    "scalable": Compared(
        ("atou_recovery", "oc12"),
        {"Reno": {"sender": "standard"}, "Scalable": {"sender": "scalable"}},
        ("scalable", {"Reno": "Reno", "Scalable": "Scalable"}),
        column="snd_cwnd",
    ),
    "ssincr": Compared(
        ("atou_slow_start", "short,cern"),
        {"ssincr 1": {"sender": "standard"}, "ssincr 100": {"sender": "ssincr_100"}},
        ("ssincr", {"ssincr 1": "ssincr 1", "ssincr 100": "ssincr 100"}),
        column="snd_cwnd",
    ),
    "policed": Compared(
        ("atou_policed", "policer"),
        {"22 kB": {"rcvrwin": "15"}, "88 kB": {"rcvrwin": "60"}},
        ("policed", {"22 kB": "window 22 kB", "88 kB": "window 88 kB"}),
        picture=False,
    ),
    "cable": Compared(
        ("atou_reordering", "cable"),
        {name: {"dup_thresh": name} for name in ("3", "9")},
        ("cable", {"3": "dup thresh 3", "9": "dup thresh 9"}),
        picture=False,
    ),
    "reordering": Compared(
        REORDERING,
        {name: {"dup_thresh": name} for name in ("3", "19")},
        ("reordering", {"3": "dup thresh 3", "19": "dup thresh 19"}),
    ),
    "ack-limited": Compared(
        ("atou_ack_limited", ""),
        {
            f"delack {delack}, sack {sack}": {"delack": delack, "sack": sack}
            for delack in ("0", "200")
            for sack in ("0", "1")
        },
        ("ack_limited", {"delack 0, sack 1": "trimmed", "delack 200, sack 1": "trimmed and delayed"}),
        picture=False,
    ),
}
DEEP = Compared(
    ("atou_vegas", ""),
    {"reno": {"sender": "reno"}, "vegas": {"sender": "vegas"}},
    ("deep_buffers", {"reno": "standard", "vegas": "Vegas 50 80 400"}),
)


@lru_cache(maxsize=32)
def simulated(experiment: str) -> dict[str, atou.Simulated]:
    """The transfers of an experiment of the simulator, or Missing."""
    try:
        return atou.EXPERIMENTS[experiment].run()
    except atou.AtouError as error:
        raise Missing(f"{error}.") from None


def table(of: Compared, found: Mapping[str, tuple[Path, Of]]) -> Table:
    """A row for each transfer: its numbers in the run and in the simulator."""
    rows: dict[str, list[Cell]] = {}
    for name, (point, (flow, samples)) in found.items():
        known = values(point)
        goodput = known.filter(metric="goodput", subject=flow.name)["value"]
        events = (
            samples["signals_fast_retransmit"].max() if "signals_fast_retransmit" in samples.columns else None
        )
        rows[name] = [
            Number(goodput[0] if goodput.len() else None, "bps"),
            *(Number(samples[column].max()) for column in ("total_retrans",)),  # type: ignore[arg-type]
            Number(events),  # type: ignore[arg-type]
            Number(samples["total_rto"].max()),  # type: ignore[arg-type]
            Number(1000 * float(samples["srtt_us"].max() or 0), "ns"),  # type: ignore[arg-type]
        ]
        if of.simulated:
            experiment, names = of.simulated
            there = simulated(experiment).get(names.get(name, ""))
            rows[name] += [
                Number(there.goodput_bps if there else None, "bps"),
                Number(there.sender["rxmts"] if there else None),
                Number(there.receiver["duplicate_segments"] if there else None),
            ]
    head = ["mean", "sent again", "recoveries", "timeouts", "largest RTT"]
    if of.simulated:
        head += ["simulated: mean", "sent again, simulated", "of them needless"]
    return Table(head, rows, "transfer")


def over_time(found: Mapping[str, tuple[Path, Of]]) -> Picture:
    """Goodput each 0.2 s, and the average since the start."""
    series: dict[str, pl.DataFrame] = {}
    length_s = 0.0
    for name, (_, (flow, rows)) in found.items():
        rates = analysis.goodput(analysis.counters(rows), analysis.steps(0, flow.duration_ns, WIDTH_NS))
        series[name] = rates.select("t_ns", y=pl.col("goodput_bps") / 1e6)
        average = rows.filter(pl.col("t_ns") > WIDTH_NS).select(
            "t_ns", y=8e3 * pl.col("bytes_acked") / pl.col("t_ns")
        )
        series[f"{name}, average"] = average
        length_s = max(length_s, flow.duration_ns / 1e9)
    drawn = figures.lines(series, length_s, title="goodput (Mbit/s)", unit="Mbit/s")
    return Picture(drawn, "Goodput in each 0.2 s, and the average since the start.")


def state(found: Mapping[str, tuple[Path, Of]], column: str) -> Picture:
    """Windows or RTTs at each sample."""
    title, scale = {"snd_cwnd": ("cwnd (segments)", 1), "srtt_us": ("smoothed RTT (ms)", 1000)}[column]
    series = {name: rows.select("t_ns", y=pl.col(column) / scale) for name, (_, (_, rows)) in found.items()}
    length_s = max(flow.duration_ns for _, (flow, _) in found.values()) / 1e9
    return Picture(
        figures.lines(series, length_s, title=title, unit=""),
        f"{title[:1].upper()}{title[1:]} at each sample.",
    )


def _register(name: str, of: Compared) -> None:
    @shows("atou", name)
    def show(runs: Runs) -> Iterator[Part]:
        found = of.found(runs)
        yield table(of, found)
        if of.picture:
            yield over_time(found)
        if of.column:
            yield state(found, of.column)


for _name, _of in COMPARED.items():
    _register(_name, _of)


@shows("atou", "vegas-cwnd")
def deep_cwnd(runs: Runs) -> Iterator[Part]:
    """Windows with deep buffers, and Vegas' delta."""
    found = DEEP.found(runs)
    yield table(DEEP, found)
    yield state(found, "snd_cwnd")
    _, (flow, rows) = found["vegas"]
    delta = pl.col("snd_cwnd") * (pl.col("srtt_us") - pl.col("min_rtt_us")) / pl.col("srtt_us")
    series = {"delta": rows.select("t_ns", y=delta)}
    drawn = figures.lines(series, flow.duration_ns / 1e9, title="delta (segments)", unit="segments")
    yield Picture(drawn, "Vegas' delta, by window and RTTs of each sample.")


@shows("atou", "vegas-rtt")
def deep_rtt(runs: Runs) -> Iterator[Part]:
    """RTTs with deep buffers."""
    found = DEEP.found(runs)
    yield table(DEEP, found)
    yield state(found, "srtt_us")


def reordered(runs: Runs, threshold: str) -> Iterator[Part]:
    """Reordering and goodput with a dup_thresh."""
    found = Compared(REORDERING, {threshold: {"dup_thresh": threshold}}).found(runs)
    _, (flow, rows) = found[threshold]
    rates = analysis.goodput(analysis.counters(rows), analysis.steps(0, flow.duration_ns, WIDTH_NS))
    series = {
        "goodput (Mbit/s)": rates.select("t_ns", y=pl.col("goodput_bps") / 1e6),
        "duplicate ACKs between two samples": rows.select("t_ns", y=pl.col("dup_acks_in").diff()),
    }
    drawn = figures.lines(series, flow.duration_ns / 1e9, title="Mbit/s, ACKs", unit="")
    yield Picture(
        drawn, f"dup_thresh {threshold}: duplicate ACKs tell of packets that others have overtaken."
    )


def excerpt(runs: Runs, name: str, sender: str, since: int = 0, shown: int = SHOWN) -> Iterator[Part]:
    """Lines of a file of the transfer whose ACKs are not delayed."""
    text = _raw(runs, DELAYED, name, delack="0", sender=sender)
    yield Excerpt("\n".join(text.splitlines()[since : since + shown]))


def losses(runs: Runs, sender: str) -> Iterator[Part]:
    """Several losses within one window."""
    entry = ("atou_recovery", "events")
    text = _raw(runs, entry, "events.txt", sender=sender)
    yield Excerpt("\n".join(text.splitlines()[:SHOWN]))
    source = Source(runs.points(*entry, sender=sender)[0])
    lost = [int(number) for number in (source.planned_flows[0].sender or {})["droplist"].split(",")]
    sent = source.table("atou_trace").filter(pl.col("kind") != "ack", pl.col("segment").is_in(lost))
    again = sent.group_by("segment").agg(pl.col("t_ns").max())["t_ns"].to_list()
    cells = [Number(len(lost)), Number(max(again) - min(again) if again else None, "ns")]
    yield Table(["losses", "from the first to the last retransmission"], {sender: cells}, "recovery")


def _raw(runs: Runs, entry: Entry, name: str, **levels: str) -> str:
    point = runs.points(*entry, **levels)[0]
    flow = Source(point).planned_flows[0]
    path = point / "raw" / flow.src_host / "measurement" / f"atou-{flow.name}-{name}"
    try:
        return path.read_text()
    except OSError as error:
        raise Missing(f"{path.name} cannot be read: {error.strerror}.") from None


@shows("atou", "beside-tcp")
def beside_tcp(runs: Runs) -> Iterator[Part]:
    """Goodput of both, alone and beside each other."""
    rows: dict[str, list[Cell]] = {}
    flows = ("tcp", "atou", "tcp_beside", "atou_beside")
    for point in runs.points("atou_beside_tcp", "short"):
        levels, known = Source(point).plan.levels, values(point)
        found = {
            metric: [known.filter(metric=metric, subject=flow)["value"] for flow in flows]
            for metric in ("goodput", "retransmits")
        }
        rows[", loss ".join(levels[name] for name in ("tcp", "loss") if name in levels)] = [
            *(Number(of[0] if of.len() else None, "bps") for of in found["goodput"]),
            *(Number(of[0] if of.len() else None, "share") for of in found["retransmits"][:2]),
        ]
    head = [
        "TCP alone",
        "atou alone",
        "TCP beside atou",
        "atou beside TCP",
        "TCP, sent again",
        "atou, sent again",
    ]
    yield Table(head, rows, "control")


for _item, _show in {
    "summary": partial(excerpt, name="summary.txt", sender="no_loss", shown=2 * SHOWN),
    "trace": partial(excerpt, name="trace.txt", sender="no_loss", since=500),
    "events": partial(excerpt, name="events.txt", sender="two_losses"),
    "newreno": partial(losses, sender="newreno"),
    "sack": partial(losses, sender="sack"),
    "reordering-3": partial(reordered, threshold="3"),
    "reordering-19": partial(reordered, threshold="19"),
}.items():
    shows("atou", _item)(_show)
