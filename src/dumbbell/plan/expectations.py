"""The expectations of a scenario: each bound with its flows and its window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dumbbell.metrics.registry import METRICS, Metric
from dumbbell.plan import windows
from dumbbell.plan.document import Expectation, Flow
from dumbbell.plan.path import PlannedPath
from dumbbell.plan.places import Refuse
from dumbbell.scenario import KeyPath, Scenario
from dumbbell.scenario.expand import concerns
from dumbbell.words import listed


def expectation(
    asked: Any,
    flows: list[str],
    window_ns: windows.Window,
    low: float | None = None,
    high: float | None = None,
) -> Expectation:
    """What is asked of these flows in a window, and its bounds."""
    return Expectation(
        metric=asked.metric,
        flows=flows,
        window_ns=window_ns,
        until_done=(METRICS[asked.metric].until_done and asked.window is None) or None,
        percentile=getattr(asked, "percentile", None),
        min=low,
        max=high,
    )


@dataclass(frozen=True)
class Expectations:
    """Resolves the bounds of one case."""

    scenario: Scenario
    _refuse: Refuse
    levels: Mapping[str, str]
    baseline: str | None
    names: Mapping[str, list[str]]  # names of resolved flows and pings, by the scenario's name
    spans: Mapping[str, tuple[int, int]]  # start and end of each
    pings: Sequence[str]

    def resolve(self, path: PlannedPath | None, flows: Sequence[Flow]) -> Iterator[Expectation]:
        """All expectations that apply to this case."""
        for i, asked in enumerate(self.scenario.expect):
            if self._concerns(asked.when):
                yield from self._expectation(("expect", i), asked, path, flows)

    def _concerns(self, when: Mapping[str, Any]) -> bool:
        levels = {name: wanted for name, wanted in when.items() if name != "baseline"}
        return when.get("baseline") == self.baseline and concerns(levels, self.levels)

    def _expectation(
        self, key: KeyPath, asked: Any, path: PlannedPath | None, flows: Sequence[Flow]
    ) -> Iterator[Expectation]:
        metric = METRICS[asked.metric]
        known = metric.known(flows, self.pings)
        names = [name for name in self.spans if name in known]
        if asked.flows is not None:
            names = []
            for j, name in enumerate(asked.flows):
                own = self.names.get(name, [name] if name in self.spans else [])
                if not own:
                    listing = listed([*self.names, *self.spans])
                    self._refuse((*key, "flows", j), f"no flow {name} runs here; there are {listing}")
                elif not known.issuperset(own):
                    self._refuse((*key, "flows", j), f"{asked.metric} of {name} is not known")
                names += own
            if not known.issuperset(names) or not names:
                return
        if not names:
            self._refuse((*key, "metric"), f"{asked.metric} is not known of any flow here")
            return
        concerned = [f for f in flows if f.name in names]
        if metric.needs_path and path is None:
            self._refuse((*key, "metric"), "the scenario has no path to be utilised")
        elif metric.shared and len(windows.ways(concerned)) > 1:
            self._refuse((*key, "metric"), "these flows go both ways: name those of one direction in `flows`")
        for window, own in self._windows(key, asked, metric, names).items():
            yield expectation(asked, own, window, asked.min, asked.max)

    def _windows(
        self, key: KeyPath, asked: Any, metric: Metric, names: Sequence[str]
    ) -> dict[windows.Window, list[str]]:
        """Flows by the window of an expectation: the given one, or the common life, or each flow's own."""
        if asked.window is not None:
            window = (asked.window.start, asked.window.end)
            self._check_window((*key, "window"), metric, names, window)
            return {window: list(names)}
        found: dict[windows.Window, list[str]] = {}
        for group in [names] if metric.shared else [[name] for name in names]:
            own = windows.default_window([self.spans[name] for name in group], self.scenario.warm_up)
            if own is None and len(group) > 1:
                who = ", ".join(group)
                reason = f"there is no time after the warm-up at which all of {who} run: give a window"
                self._refuse(key, reason)
            elif own is None:
                self._refuse(key, f"{group[0]} does not run after the warm-up: give a window")
            else:
                found.setdefault(own, []).extend(group)
        return found

    def _check_window(
        self, key: KeyPath, metric: Metric, names: Sequence[str], window: windows.Window
    ) -> None:
        """Refuse a window outside of the life of a flow, for metrics that need samples of it."""
        absent = [n for n in names if self.spans[n][0] >= window[1] or self.spans[n][1] <= window[0]]
        if metric.sampled or (metric.least_flows > 1 and len(absent) == len(names)):
            for name in absent:
                start, end = (at / 1e9 for at in self.spans[name])
                self._refuse(
                    key,
                    f"{name} runs in {start:g}-{end:g} s: {metric.name} of it is not known before or after",
                )
