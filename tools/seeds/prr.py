"""Windows after a loss, and web pages over a lossy path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import polars as pl

from dumbbell import analysis
from dumbbell.report import figures
from dumbbell.studies.recovery import ReductionLogs
from dumbbell.studies.source import Missing, Source
from dumbbell.units import human
from tools.seeds.runs import Runs
from tools.seeds.shown import Cell, Number, Part, Picture, Table, shows

CWND = ("one_flow_and_its_queue", "arms")
FETCHES = ("web_fetches", "faithful,thousand")
REDUCTIONS = ("recovery_arms", "short")
LOSSES = {"1 %": "1.99%", "3 %": "5.91%"}  # as the page calls them, and as its code sets them, each way
WITHOUT, WITH = "rh", ("ssrb", "prr")  # rules of Linux 3.0, 3.2 and today
WORDS = {"rh": "Rate halving (3.0)", "ssrb": "PRR of 3.2", "prr": "PRR of today"}
SIZES = {"768B": 768, "7680B": 7680, "76800B": 76800, "768kB": 768000}
QUEUES = ("50packets", "100packets")
ZOOM_S = 2.5

OfRule = Callable[[Runs, str], Iterator[Part]]


def without_and_with(without: str, with_: str) -> Callable[[OfRule], OfRule]:
    """Decorate what shows a rule: as an item without proportional rate reduction, and one with both kinds."""

    def register(show: OfRule) -> OfRule:
        shows("prr", without)(lambda runs: show(runs, WITHOUT))
        shows("prr", with_)(lambda runs: chain.from_iterable(show(runs, rule) for rule in WITH))
        return show

    return register


@without_and_with("G1", "G2")
def cwnd(runs: Runs, rule: str) -> Iterator[Part]:
    """cwnd over time, and around a reduction."""
    rows: dict[str, list[Cell]] = {}
    for queue in QUEUES:
        source = Source(runs.points(*CWND, congestion_control=f"reno_{rule}", limit=queue)[0])
        log = source.table("recovery").filter(side="sender").sort("t_ns")
        found = analysis.reductions(log)
        threshold = pl.when(pl.col("snd_ssthresh") < 2**31 - 1).then("snd_ssthresh")
        series = {
            "pipe": log.select("t_ns", y="pipe"),
            "ssthresh": log.select("t_ns", y=threshold),
            "cwnd": log.select("t_ns", y="snd_cwnd"),
        }
        name = f"{WORDS[rule]}, queue of {human(int(queue.removesuffix('packets')))} packets"
        drawn = figures.lines(
            {"cwnd": series["cwnd"]}, source.x_max_s, title="cwnd (segments)", unit="segments"
        )
        yield Picture(drawn, f"{name}; cwnd at each ACK.")
        told = analysis.summary_of_reductions(found)
        rows[f"{queue.removesuffix('packets')} packets"] = [
            Number(told.reductions),
            Number(log["snd_cwnd"].max()),  # type: ignore[arg-type]
            Number(analysis.percentile(told.cwnd_left, 50)),
            Number(analysis.percentile(told.length_ns, 50), "ns"),
            Number(told.timeouts),
        ]
        later = found.drop_nulls("end_ns").tail(1)
        if later.height:
            since_s = later["begin_ns"][0] / 1e9 - ZOOM_S / 5
            near = {
                what: of.filter(pl.col("t_ns").is_between(since_s * 1e9, (since_s + ZOOM_S) * 1e9))
                for what, of in series.items()
            }
            drawn = figures.lines(near, since_s + ZOOM_S, title="segments", unit="segments", least_s=since_s)
            yield Picture(drawn, f"{name}; the last reduction.")
    yield Table(
        ["reductions", "largest cwnd", "cwnd - ssthresh at the end (median)", "length (median)", "timeouts"],
        rows,
        f"{WORDS[rule]}, queue",
    )


def times(runs: Runs, rule: str, loss: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Completed fetches of each size, by :func:`analysis.fetches`, with ``slow``: by the original's rule."""
    for size, count in SIZES.items():
        points = runs.points(*FETCHES, congestion_control=f"cubic_{rule}", loss=LOSSES[loss], size=size)
        done = analysis.fetches(Source(points[0]).table("http_fetch")).filter("done")
        yield f"{count} B", done.with_columns(slow=analysis.beyond_two_sigma(done["completion_ns"], "min"))


@without_and_with("L1", "L2")
def latency(runs: Runs, rule: str) -> Iterator[Part]:
    """Latency by size at 1 %."""
    loss = "1 %"
    rows: dict[str, list[Cell]] = {}
    guessed: dict[str, list[pl.Series]] = {"few or no losses": [], "with losses": []}
    counted: dict[str, list[pl.Series]] = {"nothing sent again": [], "something sent again": []}
    for name, done in times(runs, rule, loss):
        again = pl.col("retransmits") > 0
        kept = [done.filter(which) for which in (~pl.col("slow"), pl.col("slow"), ~again, again)]
        fast, slow, clean, lossy = (of["completion_ns"] for of in kept)
        for sets, parts in ((guessed, (fast, slow)), (counted, (clean, lossy))):
            for own, part in zip(sets.values(), parts, strict=True):
                own.append(part)
        rows[name] = [
            *(Number(done.height), mean(done["completion_ns"])),
            *(Number(slow.len()), mean(fast), mean(slow)),
            *(Number(lossy.len()), mean(clean), mean(lossy)),
            Number(kept[1].filter(again).height),
        ]
    each_way = LOSSES[loss].replace("%", " %")
    what = f"{WORDS[rule]}, {loss} ({each_way} each way)"
    for sets, by in ((guessed, "the original's rule"), (counted, "what the server's kernel counted")):
        drawn = figures.bars([*rows], sets, title="completion time (ms)", scale=1e6)
        yield Picture(drawn, f"{what}: fetches divided by {by}; bars are means, with standard deviations.")
    head = [
        *("fetches", "mean of all", "outliers", "mean of others", "mean of outliers"),
        *("sent again", "mean without", "mean with", "outliers with something sent again"),
    ]
    yield Table(head, rows, what)


def mean(ns: pl.Series) -> Number:
    """A mean time; not known of nothing."""
    return Number(ns.mean(), "ns")  # type: ignore[arg-type]


@without_and_with("X1", "X2")
def losses(runs: Runs, rule: str) -> Iterator[Part]:
    """Latency by size at two losses."""
    rows: dict[str, list[Cell]] = {}
    names: list[str] = []
    sets: dict[str, list[pl.Series]] = {}
    for loss in LOSSES:
        for name, done in times(runs, rule, loss):
            outliers = done.filter("slow")["completion_ns"]
            if name not in names:
                names.append(name)
            sets.setdefault(loss, []).append(outliers)
            rows.setdefault(name, []).extend([mean(done["completion_ns"]), mean(outliers)])
    drawn = figures.bars(names, sets, title="completion time of outliers (ms)", scale=1e6)
    yield Picture(
        drawn,
        f"{WORDS[rule]}: outliers, as the original's code draws them; means, with standard deviations.",
    )
    head = [f"{loss}, mean of {of}" for loss in LOSSES for of in ("all", "outliers")]
    yield Table(head, rows, WORDS[rule])


def every(runs: Runs) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Words for rule and loss, the size, and the fetches of each bar."""
    for loss in LOSSES:
        for rule in (WITHOUT, *WITH):
            for name, done in times(runs, rule, loss):
                yield f"{WORDS[rule]}, {loss}", name, done


@shows("prr", "outliers")
def outliers(runs: Runs) -> Iterator[Part]:
    """How well the rule finds fetches in which something was sent again."""
    rows: dict[str, list[Cell]] = {}
    for which, name, done in every(runs):
        told = done.drop_nulls("retransmits")
        found = analysis.confusion(told["slow"], told["retransmits"] > 0)
        lossy = found["true_positive"] + found["false_negative"]
        share = Number(found["true_positive"] / lossy if lossy else None, "share")
        rows[f"{which}, {name}"] = [share, *(Number(count) for count in found.values())]
    names = ("slow, sent again", "slow, nothing again", "not slow, sent again", "not slow, nothing again")
    yield Table(["of those with something sent again it finds", *names], rows, "fetches")


@shows("prr", "slower")
def slower(runs: Runs) -> Iterator[Part]:
    """Times with something sent again over times without."""
    rows: dict[str, list[Cell]] = {}
    head = []
    for which, name, done in every(runs):
        if which not in head:
            head.append(which)
        again = pl.col("retransmits") > 0
        lossy, clean = (mean(done.filter(of)["completion_ns"]).value for of in (again, ~again))
        rows.setdefault(name, []).append(Number(lossy / clean if lossy and clean else None))
    yield Table(head, rows, "times as long")


@shows("prr", "M1")
def at_begin(runs: Runs) -> Iterator[Part]:
    """pipe and ssthresh as a reduction begins."""
    head = [
        "reductions",
        "pipe below ssthresh",
        "at it",
        "above it",
        "pipe - ssthresh, 25 %",
        "median",
        "75 %",
    ]
    rows = {}
    for name, of in _reductions(runs):
        told = analysis.summary_of_reductions(of)
        shares = [Number(share, "share") for share in told.signs]
        rows[name] = [Number(told.reductions), *shares, *_quartiles(told.pipe_over)]
    yield Table(head, rows, "loss, rule")


@shows("prr", "M2")
def at_end(runs: Runs) -> Iterator[Part]:
    """cwnd, pipe and ssthresh as a reduction ends."""
    head = [f"{of} - ssthresh, {which}" for of in ("cwnd", "pipe") for which in ("25 %", "median", "75 %")]
    rows = {}
    for name, of in _reductions(runs):
        told = analysis.summary_of_reductions(of)
        rows[name] = [*_quartiles(told.cwnd_left), *_quartiles(told.pipe_left)]
    yield Table(head, rows, "loss, rule")
    logs = ReductionLogs(runs.run(*REDUCTIONS).dir)
    for loss in logs.losses:
        try:
            yield Picture(
                figures.pipes(logs.longest(loss)),
                f"pipe over ssthresh in the reduction that delivered most; loss {loss}.",
            )
        except Missing:
            continue


@shows("prr", "M3")
def in_recovery(runs: Runs) -> Iterator[Part]:
    """Lengths, silences, what was sent at once, and timeouts."""
    head = [
        "length, median",
        "95 %",
        "silence (RTTs), median",
        "sent at one ACK, most",
        "timeouts",
        "share of time",
    ]
    rows = {}
    for name, of in _reductions(runs):
        told = analysis.summary_of_reductions(of)
        rows[name] = [
            *(Number(analysis.percentile(told.length_ns, percent), "ns") for percent in (50, 95)),
            Number(analysis.percentile(told.silence_rtts, 50)),
            Number(told.most_sent),
            Number(told.timeouts),
            Number(float(told.length_ns.sum()) / 30e9, "share"),
        ]
    yield Table(head, rows, "loss, rule")


def _reductions(runs: Runs) -> Iterator[tuple[str, pl.DataFrame]]:
    for names, of in ReductionLogs(runs.run(*REDUCTIONS).dir).groups:
        yield ", ".join(names), of


def _quartiles(values: pl.Series) -> list[Number]:
    return [Number(analysis.percentile(values.drop_nulls(), percent)) for percent in (25, 50, 75)]


@shows("prr", "M4")
def youtube(_runs: Runs) -> Iterator[Part]:
    """Traffic that is not to be had."""
    raise Missing("There is no such traffic here.")
    yield  # as of all others
