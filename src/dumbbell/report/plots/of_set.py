"""Figures of several points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import plotly.graph_objects as go
import polars as pl

from dumbbell import analysis
from dumbbell.metrics import registry
from dumbbell.plan.windows import ways
from dumbbell.report import figures
from dumbbell.report.figures import Axis
from dumbbell.report.plots.kinds import Draw, figure_of_set
from dumbbell.run.catalogue import LEVEL
from dumbbell.studies.points import Points, in_order
from dumbbell.studies.sharing import BIN_NS
from dumbbell.studies.source import Missing
from dumbbell.units import SCALES, quantity

LINES = 8  # most lines of a figure, unless it is said what they are to be
SAMPLED = 200  # most points whose samples a summary page reads: each takes some hundredths of a second
TWO = 2  # values from which on a quantity varies
By = str | Sequence[str] | None


@figure_of_set
def curve(points: Points, metric: str = "goodput", x: str = "", by: By = None) -> go.Figure:
    """A metric over one level: medians with their 95 % intervals (bootstrap), a line for each ``by``.

    ``by`` names levels, ``flow`` or ``congestion_control``. By default lines are of all other levels and
    flows; if those are more than eight, without the levels that have the most values.
    """
    level = _level(points, x)
    rows, title, unit = _rows(points, metric)
    series = {}
    for name, own in _split(points, rows, by, [level]):
        cells = []
        for (text,), cell in own.group_by(LEVEL + level, maintain_order=True):
            found = analysis.median_interval(cell["value"].to_list())
            low, high = (found.low, found.high) if found else (None, None)
            cells.append((text, cell["value"].median(), low, high))
        schema = {"level": pl.String} | dict.fromkeys(("value", "low", "high"), pl.Float64)
        order = pl.col("level").replace_strict(_places(points, level), return_dtype=pl.Int64)
        series[name] = pl.DataFrame(cells, schema, orient="row").drop_nulls("level").sort(order)
    return figures.curves(series, _axis(points, level), title=title, unit=unit)


@figure_of_set
def heatmap(points: Points, metric: str = "goodput", x: str = "", y: str = "") -> go.Figure:
    """The median of a metric for each pair of values of two levels, over flows and repetitions."""
    column = _level(points, x, but=[y])
    row = _level(points, y, but=[column])
    rows, title, unit = _rows(points, metric)
    cells = {
        (str(one), str(other)): float(cell["value"].median())  # type: ignore[arg-type]
        for (one, other), cell in rows.group_by(LEVEL + column, LEVEL + row)
    }
    return figures.heat_map(cells, _axis(points, column), _axis(points, row), title=title, unit=unit)


@figure_of_set
def goodput_delay(points: Points, by: By = None) -> go.Figure:
    """Goodput against the median RTT of each flow of each point, with their medians and middle halves."""
    goodputs, y_title, _ = _rows(points, "goodput")
    rtts, x_title, _ = _rows(points, "rtt")
    key = ["place", "subject"]
    both = goodputs.rename({"value": "y"}).join(rtts.select(*key, x="value"), on=key, how="inner")
    if both.is_empty():
        raise Missing("No flow has both a goodput and a round-trip time.")
    sets = dict(_split(points, both, by, []))
    return figures.tradeoff(sets, x_title=x_title, y_title=y_title)


@figure_of_set
def distribution(points: Points, metric: str = "rtt", by: By = None) -> go.Figure:
    """The distribution of a metric (CDF): of ``rtt`` over all samples, of others over flows and points."""
    rows, title, unit = _rows(points, metric)
    if metric != "rtt":
        sets = {name: own["value"] for name, own in _split(points, rows, by, [])}
        return figures.distributions(sets, title=title, unit=unit)
    windows = points.flows.select("place", "window_start_ns", "window_end_ns", flow="name").lazy()
    samples = points.scan("tcp_info", "flow", "side", "t_ns", "srtt_us").filter(pl.col("side") == "sender")
    samples = samples.join(windows, on=["place", "flow"])
    samples = samples.filter(pl.col("t_ns").is_between("window_start_ns", "window_end_ns"))
    late = {}
    for name, own in _split(points, rows, by, []):
        of = own.select("place", flow="subject").unique().lazy()
        late[name] = samples.join(of, on=["place", "flow"], how="semi").select(y=pl.col("srtt_us") / 1000)
    return figures.distributions(
        {name: of.collect()["y"] for name, of in late.items()}, title="smoothed RTT (ms)", unit="ms"
    )


@figure_of_set
def box(points: Points, metric: str = "goodput", x: str = "", by: By = None) -> go.Figure:
    """A metric over one level, as boxes over flows and repetitions."""
    level = _level(points, x)
    rows, title, _ = _rows(points, metric)
    sets = {
        name: {str(text): cell["value"] for (text,), cell in own.group_by(LEVEL + level)}
        for name, own in _split(points, rows, by, [level])
    }
    return figures.boxes(sets, _axis(points, level), title=title)


@figure_of_set
def convergence(points: Points, by: By = None) -> go.Figure:
    """Jain's index since the last flow began: the median over points, from the least to the most."""
    parts = []
    for place, source in zip(points.index["place"], points, strict=True):
        if source.verdict.get("state") not in analysis.VALID:
            continue
        try:
            rates, flows = source.goodputs(BIN_NS), max(ways(source.planned_flows).values(), key=len)
        except Missing:
            continue
        shares = analysis.fairness(rates, {flow.name: flow.life_ns for flow in flows})
        since_ns = max(flow.start_ns for flow in flows)
        shares = shares.filter(pl.col("flows") == len(flows), pl.col("t_ns") >= since_ns)
        x = (pl.col("t_ns") - since_ns) / 1e9
        parts.append(shares.select(pl.lit(place, pl.Int64).alias("place"), x=x, value="jain_index"))
    rows = pl.concat(parts) if parts else pl.DataFrame({"place": []})
    if rows.is_empty():
        raise Missing("At no valid point do several flows run at once.")
    rows = rows.join(points.index, on="place").filter(pl.col("baseline").is_null())
    value = pl.col("value")
    series = {
        name: own.group_by("x").agg(y=value.median(), low=value.min(), high=value.max()).sort("x")
        for name, own in _split(points, rows, by, [])
    }
    drawn = figures.bands(series, x_title="time since the last flow began (s)", y_title="Jain's index")
    return drawn.update_yaxes(range=[0, 1.05])


@figure_of_set
def shares(points: Points) -> go.Figure:
    """The share of two flows' goodput that a control (row) gets beside another (column): the median."""
    found: dict[tuple[str, str], list[float]] = {}
    for _, own in _beside(points, "goodput"):
        for (one, mine), (other, theirs) in _pairs(own):
            if mine + theirs:
                found.setdefault((other, one), []).append(mine / (mine + theirs))
    if not found:
        raise Missing("At no valid point do flows share a direction at the same time.")
    return _matrix(found, "share of both flows' goodput", "shares")


@figure_of_set
def harm(points: Points, metric: str = "goodput") -> go.Figure:
    """The harm that a control (column) does to another (row), by what that has alone: the median.

    Ware et al., "Beyond Jain's Fairness Index", HotNets 2019: of what is better the more there is,
    (alone - beside) / alone; of other metrics (beside - alone) / beside. Points with one flow, such as those
    of a baseline, or of another run that is opened too, say what a control has alone.
    """
    alone: dict[tuple[object, ...], list[float]] = {}
    places = [(key, own) for key, own in _beside(points, metric, baselines=True)]
    fixed = _not_of_controls(points)
    for _, own in places:
        if own.height == 1:
            row = own.row(0, named=True)
            alone.setdefault((row["congestion_control"], *(row[name] for name in fixed)), []).append(
                row["value"]
            )
            alone.setdefault((row["congestion_control"],), []).append(row["value"])
    more_is_better = registry.METRICS[metric].worse == "less"
    found: dict[tuple[str, str], list[float]] = {}
    for _, own in places:
        levels = own.row(0, named=True)
        if levels["baseline"] is not None:
            continue
        for (one, mine), (other, _) in _pairs(own):
            of = alone.get((one, *(levels[name] for name in fixed))) or alone.get((one,))
            if of:
                solo = float(pl.Series(of).median())  # type: ignore[arg-type]
                less, most = (solo - mine, solo) if more_is_better else (mine - solo, mine)
                found.setdefault((other, one), []).append(max(less / most, 0.0) if most else 0.0)
    if not found:
        raise Missing(
            "Harm needs points with one flow alone, beside points with several: give the scenario baselines, "
            "or open a run of one flow too."
        )
    return _matrix(found, f"harm ({registry.title(metric)})", "harm")


class Shown(NamedTuple):
    """A figure with its title and its caption, for a page."""

    title: str
    caption: str
    drawn: go.Figure


def overview(points: Points) -> Iterator[Shown]:
    """The figures of a sweep's summary page; those over samples only of at most :data:`SAMPLED` points."""
    varying = [name for name, texts in points.levels.items() if len(texts) >= TWO]
    known = {*points.values["metric"]}
    if not varying:
        return
    x = _level(points, "")
    for metric in ("goodput", "rtt", "retransmits", "completion_time"):
        if metric not in known:
            continue
        title = registry.title(metric)
        yield Shown(
            f"{title[0].upper()}{title[1:]} by {x.replace('_', ' ')}",
            "Medians over repetitions with their 95 % intervals (bootstrap), of valid points, no baselines.",
            curve(points, metric),
        )
        if len(varying) == TWO and all(len(points.levels[name]) > TWO for name in varying):
            caption = "The median over flows and repetitions, of valid points without baselines."
            yield Shown(f"Median {title} of all flows", caption, heatmap(points, metric))
    others: list[tuple[str, str, Draw]] = [
        (
            "Goodput against delay",
            "Goodput and median RTT of each flow at each valid point; their medians with the middle half.",
            goodput_delay,
        )
    ]
    if points.values["congestion_control"].drop_nulls().n_unique() >= TWO:
        others += [
            (
                "Shares of controls beside each other",
                "The share of two flows' goodput that a control (row) gets beside another (column), median.",
                shares,
            ),
            (
                "Harm of controls",
                "Which part of what a control (row) has alone is taken by another (column): the median.",
                harm,
            ),
        ]
    if len(points) <= SAMPLED:
        others += [
            ("Distribution of RTT", "Of all samples of senders, of valid points.", distribution),
            (
                "Convergence",
                "Jain's index since the last flow began: the median over points, from the least to the most.",
                convergence,
            ),
        ]
    for title, caption, draw in others:
        try:
            yield Shown(title, caption, draw(points))
        except Missing:
            continue


# --- levels and groups ----------------------------------------------------------------------------


def _level(points: Points, name: str, but: Sequence[str] = ()) -> str:
    """The level of an axis: as asked for, or the first that varies, quantities first; or Missing."""
    levels = points.levels
    if name and name not in levels:
        raise Missing(f"{name} does not vary between these points; there vary {', '.join(levels) or 'none'}.")
    varying = [known for known, texts in levels.items() if len(texts) >= TWO and known not in but]
    if not name and not varying:
        others = f" beside {', '.join(filter(None, but))}" if any(but) else ""
        raise Missing(f"No quantity varies between these points{others}, so there is no axis for it.")
    sized = [known for known in varying if all(map(quantity, levels[known]))]
    return name or [*sized, *varying][0]


def _axis(points: Points, level: str) -> Axis:
    texts = points.levels[level]
    found = [quantity(text) for text in texts]
    same = all(found) and len({of[1] for of in found if of}) == 1
    return Axis(level.replace("_", " "), texts, [of[0] for of in found if of] if same else None)


def _places(points: Points, level: str) -> dict[str, int]:
    return {text: place for place, text in enumerate(points.levels[level])}


def _rows(points: Points, metric: str) -> tuple[pl.DataFrame, str, str]:
    """Values of a metric as they are shown, without those of baselines; the axis' title; and the unit."""
    rows = points.of_metric(metric)
    scale, unit = SCALES.get(rows["unit"][0], (1.0, rows["unit"][0]))
    title = registry.title(metric)
    rows = rows.filter(pl.col("baseline").is_null()).with_columns(pl.col("value") / scale)
    if rows.is_empty():
        raise Missing(f"Only points of a baseline have {title}.")
    return rows, f"{title} ({unit})" if unit else title, unit


def _split(
    points: Points, rows: pl.DataFrame, by: By, but: Sequence[str]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Rows in groups, each with its name. ``but`` are levels that an axis shows."""
    levels = [
        LEVEL + name
        for name, texts in points.levels.items()
        if len(texts) >= TWO and name not in but and LEVEL + name in rows.columns
    ]
    if by is None:
        # As many as there may be: levels with the most values are left out first.
        fewest = sorted(levels, key=lambda name: rows[name].n_unique())
        flows = [[name] for name in ("subject", "congestion_control") if name in rows.columns]
        sets = [
            [*(name for name in levels if name in fewest[:most]), *flow]
            for most in range(len(levels), -1, -1)
            for flow in (*flows, [])
        ]
        columns = next(each for each in sets if not each or rows.select(each).n_unique() <= LINES)
    else:
        known = {"flow": "subject", "congestion_control": "congestion_control", "baseline": "baseline"}
        columns = []
        for name in [by] if isinstance(by, str) else by:
            column = known.get(name, LEVEL + name) if LEVEL + name not in rows.columns else LEVEL + name
            if column not in rows.columns:
                raise Missing(f"{name} neither varies nor is flow or congestion_control.")
            columns.append(column)
    columns = [name for name in columns if rows[name].n_unique() > 1]
    if not columns:
        yield "all", rows
        return
    order = [_order(points, rows, name) for name in columns]
    sorted_ = rows.sort(order, nulls_last=True, maintain_order=True)
    for key, own in sorted_.group_by(columns, maintain_order=True):
        yield ", ".join(str(part) for part in key if part is not None), own


def _order(points: Points, rows: pl.DataFrame, column: str) -> pl.Expr:
    texts = in_order(rows[column].drop_nulls().unique(maintain_order=True))
    return pl.col(column).replace_strict({text: i for i, text in enumerate(texts)}, default=None)


def _not_of_controls(points: Points) -> list[str]:
    """Columns of levels that are not names of congestion controls."""
    controls = {*points.values["congestion_control"].drop_nulls()}
    return [LEVEL + name for name, texts in points.levels.items() if not {*texts} <= controls]


def _beside(
    points: Points, metric: str, *, baselines: bool = False
) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    """Rows of a metric of the flows of one direction of a valid point, with their planned times."""
    rows = points.of_metric(metric).drop_nulls("congestion_control")
    if not baselines:
        rows = rows.filter(pl.col("baseline").is_null())
    flows = points.flows.select("place", "direction", "start_ns", "duration_ns", subject="name")
    rows = rows.join(flows, on=["place", "subject"], how="inner", maintain_order="left")
    yield from rows.group_by("place", "direction", maintain_order=True)


def _pairs(own: pl.DataFrame) -> Iterator[tuple[tuple[str, float], tuple[str, float]]]:
    """Pairs of flows that run at the same time, in both orders: control and value of each."""
    ends = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    flows = own.select("congestion_control", "value", "start_ns", ends).iter_rows()
    for (*one, start_ns, end_ns), (*other, other_start_ns, other_end_ns) in permutations(flows, 2):
        if max(start_ns, other_start_ns) < min(end_ns, other_end_ns):
            yield (one[0], one[1]), (other[0], other[1])


def _matrix(found: dict[tuple[str, str], list[float]], title: str, scale: str) -> go.Figure:
    cells = {pair: float(pl.Series(values).median()) for pair, values in found.items()}  # type: ignore[arg-type]
    names = sorted({name for pair in cells for name in pair})
    columns, rows = Axis("beside", names), Axis("flow", names)
    return figures.heat_map(cells, columns, rows, title=title, unit="", scale=scale)  # type: ignore[arg-type]
