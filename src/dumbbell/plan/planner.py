"""From a scenario and an inventory to a plan: every point, in the order of execution."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dumbbell.inventory import Inventory
from dumbbell.plan.case import CaseResolver
from dumbbell.plan.document import SCHEMA_VERSION, Plan, Point
from dumbbell.scenario import KeyPath, Problem, ScenarioCase, ScenarioError, ScenarioFile, load
from dumbbell.scenario.hosts import READ_GAPS
from dumbbell.scenario.load import among


def plan(
    scenario_path: Path,
    inventory: Inventory,
    profile: str | None = None,
    seed: int | None = None,
    repetitions: int | None = None,
) -> Plan:
    """Resolve a scenario on an inventory; :class:`ScenarioError` lists every line that cannot be met.

    ``seed`` and ``repetitions`` are used in place of the scenario's.
    """
    asked = {"seed": seed, "repetitions": repetitions}
    over = {name: value for name, value in asked.items() if value is not None}
    return _Planner(load(scenario_path, profile, over), inventory).plan(profile)


@dataclass(frozen=True)
class _Variant:
    """A case, or a baseline of it."""

    case: ScenarioCase
    baseline: str | None
    levels: Mapping[str, str]


class _Planner:
    def __init__(self, file: ScenarioFile, inventory: Inventory) -> None:
        self.file = file
        self.scenario = file.scenario
        self.inventory = inventory
        self.refused: dict[Problem, list[Mapping[str, str]]] = {}
        # Set in all points, since nothing undoes it before the next one.
        self.timestamps = any(
            getattr(flow, "congestion_control", None) in READ_GAPS
            for case in file.cases
            for flow in case.scenario.flows.values()
        )

    def plan(self, profile: str | None) -> Plan:
        variants = self._variants()
        points: list[Point] = []
        for repetition in range(1, self.scenario.repetitions + 1):
            block = list(variants)
            if self.scenario.order == "random":
                random.Random(f"{self.scenario.seed}/order/{repetition}").shuffle(block)
            points += [self._point(name, variants[name], repetition) for name in block]
        return Plan(
            schema_version=SCHEMA_VERSION,
            scenario=self.scenario.name,
            title=self.scenario.title,
            profile=profile,
            seed=self.scenario.seed,
            virtual=self.inventory.virtual or None,
            acknowledged={str(name): why for name, why in self.scenario.acknowledge.items()} or None,
            points=points,
        )

    def _variants(self) -> dict[str, _Variant]:
        """The cases and baselines by the hash of their configuration; shared baselines are run once.

        Kernels, which all points of a run share, are not part of it: the same point can run on another one.
        """
        found: dict[str, _Variant] = {}
        ids: dict[str, str] = {}
        settings: list[tuple[ScenarioCase, set[tuple[str, str]]]] = []
        for case in self.file.cases:
            for baseline in (None, *case.scenario.baselines):
                variant = _Variant(case, baseline, case.levels)
                point = self._resolved(variant, repetition=1)
                if point is None:
                    continue
                settings.append((case, _settings(point)))
                name = self._hash(point)
                ids.setdefault(name, self._hash(_without_kernels(point)))
                if (same := found.get(name)) is None:
                    found[name] = variant
                elif baseline is None:
                    name = next(n for n, v in case.levels.items() if same.levels[n] != v)
                    reason = f"{same.levels[name]} and {case.levels[name]} make the same point"
                    self._refuse(self.file.varies[name], reason, case)
                else:
                    shared = {n: v for n, v in same.levels.items() if case.levels[n] == v}
                    found[name] = _Variant(same.case, baseline, shared)
        self._refuse_leftovers(settings)
        self._refuse_several_kernels()
        if self.refused:
            raise ScenarioError(among(p, at, self.file.cases) for p, at in self.refused.items())
        return {ids[name]: variant for name, variant in found.items()}

    def _resolved(self, variant: _Variant, repetition: int) -> Point | None:
        resolver = CaseResolver(
            variant.case.scenario,
            self.inventory,
            varies=self.file.tree.value,
            levels=variant.levels,
            baseline=variant.baseline,
            repetition=repetition,
            timestamps=self.timestamps,
        )
        point = resolver.resolve()
        for key, reason in resolver.refusals:
            self._refuse(key, reason, variant.case)
        return point

    def _refuse_leftovers(self, settings: Sequence[tuple[ScenarioCase, set[tuple[str, str]]]]) -> None:
        """Refuse settings that only some points have and nothing undoes: later points would have them too."""
        somewhere = set().union(*(asked for _, asked in settings))
        for case, asked in settings:
            for host, name in sorted(somewhere - asked):
                reason = (
                    f"{name} of {host} is asked for only in other points, which would leave it as they set it"
                )
                self._refuse(("hosts",), reason, case)

    def _refuse_several_kernels(self) -> None:
        """Refuse several kernels: a run boots its hosts only before its first point."""
        first = {(name, asked.kernel) for name, asked in self.scenario.hosts.items()}
        for case in self.file.cases:
            for name, _ in {(name, asked.kernel) for name, asked in case.scenario.hosts.items()} - first:
                reason = "it varies, but hosts boot once, before all points: give each kernel a profile"
                self._refuse(("hosts", name, "kernel"), reason, case)

    def _refuse(self, key: KeyPath, reason: str, case: ScenarioCase) -> None:
        at = self.refused.setdefault(self.file.tree.problem(key, reason), [])
        if case.levels not in at:
            at.append(case.levels)

    def _point(self, name: str, variant: _Variant, repetition: int) -> Point:
        point = self._resolved(variant, repetition)
        assert point is not None  # possible in the first repetition, and only random draws differ
        return point.model_copy(update={"id": name})

    def _hash(self, point: Point) -> str:
        """The hash of the state of hosts and of the measurement.

        Names of values and expectations are not part of it, nor is the calibration: nights go on in the same
        series when the path is checked in another way.
        """
        done = point.model_dump(include={"baseline", "path", "hosts"})
        done["phases"] = [point.phase("measurement").model_dump()]
        text = json.dumps([self.scenario.name, done], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_kernels(point: Point) -> Point:
    hosts = {
        name: host.model_copy(update={"state": host.state.model_copy(update={"kernel": None})})
        for name, host in point.hosts.items()
    }
    return point.model_copy(update={"hosts": hosts})


def _settings(point: Point) -> set[tuple[str, str]]:
    """Host and name of every setting of a point that nothing undoes before the next point."""
    return {
        (host, name)
        for host, asked in point.hosts.items()
        for name in (
            *(f"sysctls.{sysctl}" for sysctl in asked.state.sysctls),
            *(f"offloads.{offload}" for offload in asked.state.offloads),
            *(f"modules.{module}" for module in asked.state.modules),
            *(f"modules.{module}.{name}" for module, of in asked.state.modules.items() for name in of),
            *(["qdisc"] if asked.state.qdisc else []),
        )
    }
