"""An A/B: its design is written before the first run, and its rounds are run until all of them are valid."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from dumbbell.compare.answer import Chosen, chosen, primary
from dumbbell.compare.design import (
    MOST_ROUNDS,
    PILOT,
    SCHEMA_VERSION,
    Arm,
    Design,
    Round,
    least_rounds,
    rounds,
)
from dumbbell.kernels import build, check, find, short
from dumbbell.metrics.values import measurable
from dumbbell.plan import Inventory, Plan, plan
from dumbbell.run.record import read_json
from dumbbell.scenario import load
from dumbbell.suite import STATUS, Entry, about, at_once, ended, find_run, real_ns, run_entry
from dumbbell.units import human
from dumbbell.versions import refuse_newer
from dumbbell.words import known_are, listed

DESIGN = "ab.json"
ATTEMPTS = 3  # of a round
LEAST, MOST = 0.02, 30  # by default: the smallest difference that matters, and rounds
FEWEST_SIDES = 2


class AbError(Exception):
    """An A/B cannot begin or go on; the message says why, and what to do."""


@dataclass(frozen=True)
class Asked:
    """What a user asks of an A/B; None where the scenario or a default decides.

    Its sides are profiles, or ``kernels`` of virtual time on which at most one profile is run.
    """

    scenario: Path
    profiles: Sequence[str]
    inventory: Path
    kernels: Sequence[str] = ()
    metric: str | None = None
    of: str | None = None
    least: float | None = None
    rounds: int | None = None
    most: int | None = None
    seed: int | None = None

    @property
    def sides(self) -> list[str]:
        """Names of the sides: those of the profiles, or of the kernels."""
        return [short(kernel) for kernel in self.kernels] or [*self.profiles]

    @property
    def arms(self) -> list[tuple[str | None, str | None]]:
        """Profile and kernel of each side."""
        if not self.kernels:
            return [(profile, None) for profile in self.profiles]
        return [(next(iter(self.profiles), None), kernel) for kernel in self.kernels]


def design(asked: Asked) -> Design:
    """Decide everything before the first run, and build its kernels.

    AbError, ScenarioError, InventoryError, KernelError or DoesNotBuild if it is not possible.
    """
    inventory = Inventory.read(asked.inventory)
    _refuse_sides(asked, inventory)
    arms = dict(zip(asked.sides, asked.arms, strict=True))
    plans = {side: plan(asked.scenario, inventory, profile) for side, (profile, _) in arms.items()}
    declared = load(asked.scenario, asked.arms[0][0]).scenario.primary
    if declared is not None:
        asked = replace(
            asked,
            metric=asked.metric or declared.metric,
            of=asked.of or (declared.of if asked.metric in {None, declared.metric} else None),
            least=declared.least if asked.least is None else asked.least,
        )
    metric, of = _primary(asked, plans)
    pilot = 0 if asked.rounds else PILOT
    number = asked.rounds or asked.most or MOST
    if asked.rounds and asked.most:
        raise AbError("--rounds sets how many rounds are run, and --most how many at most: give one of them")
    fewest = least_rounds(len(plans), pilot) + bool(pilot)
    if number < fewest:
        option = "--most" if pilot else "--rounds"
        raise AbError(
            f"{number} rounds of {len(plans)} sides cannot show a difference at 5 %, however large it is: "
            f"ask for at least {option} {fewest}"
        )
    if number > MOST_ROUNDS:
        raise AbError(f"{number} rounds were asked for; at most {MOST_ROUNDS} can be run")
    seed = next(iter(plans.values())).seed if asked.seed is None else asked.seed
    return Design(
        scenario=str(asked.scenario),
        inventory=str(asked.inventory),
        sides={
            side: Arm(
                profile=profile,
                kernel=kernel,
                built=None if kernel is None else build(kernel).result.name,
                plan=plans[side].digest,
            )
            for side, (profile, kernel) in arms.items()
        },
        metric=metric,
        of=of,
        least=LEAST if asked.least is None else asked.least,
        pilot=pilot,
        rounds=rounds(asked.sides, number, seed),
        chosen=asked.rounds,
    )


def _refuse_sides(asked: Asked, inventory: Inventory) -> None:
    kernels = asked.kernels
    if kernels and len(asked.profiles) > 1:
        raise AbError(
            f"sides are profiles or kernels: {listed(asked.profiles)}, and {listed(kernels)} were named. "
            "A profile that all kernels run is --profile NAME"
        )
    named = kernels or asked.profiles
    if len(named) < FEWEST_SIDES:
        raise AbError(
            "name at least two sides: two profiles of the scenario, or two kernels, each with --kernel; "
            + (f"only {named[0]} was named" if named else "none was named")
        )
    for name, times in Counter(asked.sides).items():
        if times > 1:
            same = [text for text, side in zip(named, asked.sides, strict=True) if side == name]
            raise AbError(
                f"{times} sides have the name {name}: {listed(same)}. Name each side once"
                + (", and kernels by files or trees of different names" if kernels else "")
            )
    if kernels and not inventory.virtual:
        raise AbError(
            f"{asked.inventory}: --kernel is of virtual time (--inventory inventory/vtime); on hosts give "
            "each kernel a profile (hosts.X.kernel) and name the profiles"
        )
    for kernel in kernels:  # all of them, before the first is built
        check(kernel)


def _primary(asked: Asked, plans: Mapping[str, Plan]) -> tuple[str, str]:
    """The primary metric, and what it is of."""
    known: dict[str, list[str]] = {}
    for point in next(iter(plans.values())).points:
        for name, subjects in measurable(point).items():
            known[name] = list(dict.fromkeys([*known.get(name, ()), *subjects]))
    all_of_them = "; ".join(f"{name} of {', '.join(subjects)}" for name, subjects in known.items())
    if asked.metric is None:
        raise AbError(
            "say before the first run which metric decides: --metric METRIC --of FLOW, or `primary` in the "
            f"scenario. It has {all_of_them}"
        )
    if asked.metric not in known:
        raise AbError(f"this scenario has no metric {asked.metric}{known_are(asked.metric, known)}")
    subjects = known[asked.metric]
    if asked.of is None and len(subjects) > 1:
        raise AbError(f"{asked.metric} is known of {listed(subjects)}: choose one with --of")
    of = asked.of or subjects[0]
    for side, planned in plans.items():
        if not any(of in measurable(point).get(asked.metric, ()) for point in planned.points):
            raise AbError(f"{asked.metric} of {of} is not measured in {side}{known_are(of, subjects)}")
    return asked.metric, of


def begun(folder: Path, asked: Asked) -> Design:
    """The design of an A/B in a directory; a new one is written there.

    AbError if it was begun with other options, or if its scenario is another now; NewerError if a
    newer Dumbbell has begun it.
    """
    path = folder / DESIGN
    refuse_newer(path, SCHEMA_VERSION)
    try:
        found = Design.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        found = design(asked)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, found)
        return found
    except ValidationError as error:
        raise AbError(f"{path} cannot be read: {error.errors()[0]['msg']}. Choose another --name") from None
    _refuse_others(folder, found, asked)
    _refuse_changed(folder, found)
    return found


def _write(folder: Path, of: Design) -> None:
    part = folder / f"{DESIGN}.part"
    part.write_text(of.model_dump_json(indent=1) + "\n")
    part.replace(folder / DESIGN)


def _refuse_others(folder: Path, of: Design, asked: Asked) -> None:
    """A resumed A/B goes on as it was designed, whatever it has found so far."""
    was = {
        "sides": _named((arm.profile, arm.kernel) for arm in of.sides.values()),
        "scenario": of.scenario,
        "--inventory": of.inventory,
        "--metric": of.metric,
        "--of": of.of,
        "--least": of.least,
        "--rounds": None if of.pilot else of.chosen,
        "--most": len(of.rounds) if of.pilot else None,
        "--seed": of.rounds[0].seed,
    }
    now = (
        _named(asked.arms),
        *map(str, (asked.scenario, asked.inventory)),
        *(asked.metric, asked.of, asked.least, asked.rounds, asked.most, asked.seed),
    )
    other = [
        f"{name} {'not given' if value is None else value}, now {given}"
        for (name, value), given in zip(was.items(), now, strict=True)
        if given is not None and given != value
    ]
    if other:
        raise AbError(
            f"{folder} is an A/B that was begun with other options: {'; '.join(other)}. Leave them out to go "
            "on with it, or begin another: --name NAME"
        )


def _named(arms: Iterable[tuple[str | None, str | None]]) -> str:
    return ", ".join(" with ".join(filter(None, (kernel, profile))) for profile, kernel in arms)


def _refuse_changed(folder: Path, of: Design) -> None:
    inventory = Inventory.read(Path(of.inventory))
    for side, arm in of.sides.items():
        if plan(Path(of.scenario), inventory, arm.profile).digest != arm.plan:
            raise AbError(
                f"the plan of {side} is no longer what {folder} was begun with: {of.scenario}, the inventory "
                "or Dumbbell has changed. Undo that to go on, or begin another: --name NAME"
            )
        if arm.kernel is not None and (now := find(arm.kernel).result.name) != arm.built:
            raise AbError(
                f"{arm.kernel} is no longer the kernel that {folder} was begun with: it was {arm.built}, and "
                f"is {now}. Set its branch, files or patches back to go on, or begin another: --name NAME"
            )


def announced(of: Design) -> str:
    """What will be run, and about how long that takes."""
    runs, most, round_ns = f"{len(of.sides)} runs each", len(of.rounds), _round_ns(of)
    if of.chosen:
        how = f"{of.chosen} rounds of {runs}: about {about(of.chosen * round_ns)}."
    else:
        how = (
            f"First a pilot: {of.pilot} rounds of {runs}, about {about(of.pilot * round_ns)}. It decides how "
            f"many rounds there are, at most {most}: about {about(most * round_ns)}."
        )
    return (
        f"Does {of.metric} of {of.of} differ between {', '.join(of.sides)}? Differences below "
        f"{human(of.least, 'share')} do not matter.\n{how}"
    )


def _round_ns(of: Design) -> float:
    """About how long a round takes."""
    inventory = Inventory.read(Path(of.inventory))
    plans = (plan(Path(of.scenario), inventory, arm.profile) for arm in of.sides.values())
    return sum(map(real_ns, plans)) / at_once(inventory)


def run(folder: Path, of: Design, say: Callable[[str], None]) -> tuple[Design, dict[str, list[Path]]]:
    """Run all rounds that have no result. Returns the design, and the runs of each side in order of rounds.

    AbError if a round cannot be had, or if the scenario changes meanwhile.
    """
    rounds_ = _Rounds(folder, of)
    if of.chosen is None:
        pilot = rounds_.run(of.rounds[: of.pilot])
        numbers = [[rounds_.primary(run_dir) for run_dir in runs.values()] for runs in pilot]
        found: Chosen = chosen(of, numbers)
        left = found.number - of.pilot
        say(f"{found.told} The {left} that are left take about {about(left * _round_ns(of))}.")
        of = of.model_copy(update={"chosen": found.number})
        _write(folder, of)
    each = rounds_.run(of.rounds[: of.number])
    return of, {side: [runs[side] for runs in each] for side in of.sides}


class _Rounds:
    """Runs rounds one after the other, or in virtual time as many runs as there are cores."""

    def __init__(self, folder: Path, of: Design) -> None:
        self._folder, self._design = folder, of
        self._inventory = Inventory.read(Path(of.inventory))
        self._begun: dict[tuple[Round, str], Future[tuple[Path, str]]] = {}  # runs, by their side
        self._stopped = threading.Event()
        self._failed: BaseException | None = None  # the first error of a run

    def run(self, asked: Sequence[Round]) -> list[dict[str, Path]]:
        """The run directory of each side, for each round."""
        # The first alone: in virtual time it makes what the worlds of all others begin with.
        done, others = [self._valid(one) for one in asked[:1]], asked[1:]
        with ThreadPoolExecutor(at_once(self._inventory)) as side_by_side:
            try:
                if self._inventory.virtual:
                    self._begin(others, side_by_side)
                done += map(self._valid, others)
            except BaseException as error:
                self._stopped.set()
                raise self._failed or error from None
        return done

    def _begin(self, asked: Sequence[Round], side_by_side: Executor) -> None:
        """Begin all runs of rounds: in virtual time nothing depends on their order."""

        def run(one: Round, side: str, place: Path) -> tuple[Path, str]:
            try:
                return self._side(one, side, place / side)
            except BaseException as error:  # it ends all others
                self._failed = self._failed or error
                self._stopped.set()
                raise

        for first in asked:
            place, attempt = self._next(first)
            one = first.again(attempt)
            for side in one.sides if attempt <= ATTEMPTS else ():
                self._begun[one, side] = side_by_side.submit(run, one, side, place)

    def _next(self, first: Round) -> tuple[Path, int]:
        """Where a round is run, and the number of its next attempt."""
        place = self._folder / "rounds" / f"{first.number:03d}"
        return place, 1 + len([*place.parent.glob(f"{place.name}_attempt*")])

    def primary(self, run_dir: Path) -> list[float]:
        """The values of a run that :meth:`run` has returned."""
        found = primary(run_dir, self._design)
        if found is None:
            raise AbError(f"{run_dir} has no {self._design.metric} of {self._design.of} any more")
        return found

    def _valid(self, first: Round) -> dict[str, Path]:
        """Run a round until all of its runs are valid. One that is not is kept, and replaced as a whole."""
        why = ""
        place, attempt = self._next(first)
        while attempt <= ATTEMPTS:
            one, why = first.again(attempt), ""
            found: dict[str, Path] = {}
            for side in one.sides:
                begun = self._begun.pop((one, side), None)
                if why and begun is None:
                    break
                found[side], trouble = (
                    self._side(one, side, place / side) if begun is None else begun.result()
                )
                why = why or trouble
            if not why:
                return found
            if self._stopped.is_set():
                raise AbError("it was stopped")
            place.rename(place.with_name(f"{place.name}_attempt{attempt}"))
            place, attempt = self._next(first)
        raise AbError(
            f"round {first.number} was not valid in {ATTEMPTS} attempts, the last because of "
            f"{why or 'them'}. Their runs are in {place}_attempt*: put right what they say, remove these "
            "directories, and give the same command again"
        )

    def _side(self, one: Round, side: str, results: Path) -> tuple[Path, str]:
        """The run of a side, and why it is not valid; empty if it is."""
        of, arm = self._design, self._design.sides[side]
        wanted = plan(Path(of.scenario), self._inventory, arm.profile, one.seed)
        found = find_run(results, wanted)
        if found is None or not ended(found):
            if self._stopped.is_set():
                raise AbError("it was stopped")
            _refuse_changed(self._folder, of)
            run_entry(
                Entry(scenario=of.scenario, profile=arm.profile),
                Path(of.inventory),
                results,
                virtual=self._inventory.virtual,
                begun=found,
                seed=one.seed,
                kernel=arm.kernel,
            )
            found = find_run(results, wanted)
        results.mkdir(parents=True, exist_ok=True)
        if found is None:
            return results, f"{side}: its run did not begin"
        run_dir = results / found.dir.name
        verdict = read_json(run_dir / "verdict.json") or {"state": "aborted", "reasons": ["no verdict"]}
        if verdict["state"] not in STATUS:
            return run_dir, f"{side}: {verdict['state']}: {'; '.join(verdict['reasons'][:1])}"
        try:
            lacks = primary(run_dir, of) is None
        except (OSError, ValueError) as error:
            return run_dir, f"{side}: {error}"
        return run_dir, f"{side}: it has no {of.metric} of {of.of}" if lacks else ""


def replaced(folder: Path) -> list[str]:
    """Rounds that were not valid and were replaced, with the reason of each, in words."""
    told = []
    for place in sorted((folder / "rounds").glob("*_attempt*")):
        verdicts = [(path, read_json(path) or {}) for path in sorted(place.glob("*/[0-9]*/verdict.json"))]
        bad = [(path, of) for path, of in verdicts if of.get("state") not in STATUS]
        why = "it lacked a run or a number"
        if bad:
            path, of = bad[0]
            why = f"{path.parent.parent.name} {of.get('state')}: {'; '.join(of.get('reasons', [])[:1])}"
        told.append(f"round {int(place.name[:3])} was replaced: {why}")
    return told
