"""What a bisection tells at its end, as text and as its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dumbbell.analysis.statistics import Interval
from dumbbell.bisection.bisection import Bisection, Step, change, change_of
from dumbbell.metrics.registry import METRICS, title
from dumbbell.plan import clock
from dumbbell.report import html
from dumbbell.units import human
from dumbbell.words import columns

HEAD = (
    "step",
    "commit",
    "is",
    "against good (95 %)",
    "mean",
    "seeds",
    "wrong with p",
    "build",
    "runs",
    "subject",
)


def answer(of: Bisection) -> Iterator[str]:
    """Which commit it is, its effect, and how sure that is; a sentence each."""
    metric = " of ".join(filter(None, (title(of.asked["metric"]), of.asked["of"])))
    if len(of.found) == 1:
        yield f"{of.found[0]} is the first bad commit: {of.search.subject(of.found[0])}"
        if effect := of.effect:
            yield f"It changed {metric} by {change_of(effect)}, against the commit before."
    else:
        yield f"One of these {len(of.found)} commits is the first bad one; those between were skipped."
        yield from (f"{commit} {of.search.subject(commit)}" for commit in of.found)
    yield (
        f"That any of the answers is wrong has a probability of at most {of.error:.2g}, if the seeds' values "
        "are normally distributed."
    )


def rows(of: Bisection) -> Iterator[tuple[str, ...]]:
    """Cells of the table of the steps, as :data:`HEAD` has them."""
    unit = METRICS[of.asked["metric"]].unit if of.asked["metric"] in METRICS else ""
    tested = 0
    for one in of.steps:
        tested += not one.is_end
        yield (
            "end" if one.is_end else str(tested),
            one.short,
            one.word,
            _change(one),
            human(sum(one.values) / len(one.values), unit) if one.values else "-",
            str(len(one.values)),
            f"{one.error:.2g}" if one.change is not None and one.word != "skip" else "-",
            clock(round(one.build_s) * 10**9),
            clock(round(one.measure_s) * 10**9),
            f"{one.subject} ({one.reason})" if one.reason else one.subject,
        )


def text(of: Bisection) -> str:
    """All of it for a terminal or a mail: the answer, the commit, the table of the steps."""
    lines = columns([HEAD, *rows(of)])
    commits = [of.search.message(commit) for commit in of.found[:1] if len(of.found) == 1]
    return "\n".join([*answer(of), "", *(line for of in commits for line in (of, "")), *lines])


def page(of: Bisection) -> Path:
    """Write ``index.html`` in the bisection's directory; return its path."""
    target = of.folder / "index.html"
    target.write_text(
        html.page(
            "bisection.html",
            title="Bisection",
            asked=of.asked,
            answer=list(answer(of)) if of.found else [],
            messages=[of.search.message(commit) for commit in of.found],
            head=(*HEAD, "reports"),
            rows=[(cells, one.reports) for cells, one in zip(rows(of), of.steps, strict=True)],
            log=of.search.log,
        )
    )
    return target


def _change(one: Step) -> str:
    if one.change is None or one.low is None or one.high is None:
        return "-"
    return change(Interval(one.change, one.low, one.high), is_ratio=one.is_ratio)
