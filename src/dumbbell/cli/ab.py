"""``fab ab``: run profiles, or one on several kernels, in turn, and say by how much they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dumbbell.cli import tell
from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import shared
from dumbbell.compare.answer import Answer
from dumbbell.experiment import AbError, Asked, announced, begun, replaced, run
from dumbbell.inventory import InventoryError
from dumbbell.kernels import DoesNotBuild, KernelError
from dumbbell.report.pages.ab import render
from dumbbell.scenario import ScenarioError
from dumbbell.suite import NO_STATEMENT, UNEXPLAINED, interrupted
from dumbbell.units import parse_ratio


class Options(NamedTuple):
    """Options as they were typed; None if they were not."""

    metric: str | None = None
    of: str | None = None
    least: str | None = None
    rounds: str | None = None
    most: str | None = None
    seed: str | None = None


def ab(
    scenario: Path,
    profiles: Sequence[str],
    inventory: Path,
    options: Options,
    *,
    kernels: Sequence[str] = (),
    profile: str | None = None,
    accept: Sequence[str] = (),
    name: str | None = None,
    cluster: str = "",
) -> None:
    """Run the rounds below results/, write ab.html, and print the answer; SystemExit if there is none."""
    try:
        if profile and not kernels:
            raise AbError(f"--profile {profile} is what all kernels run, and no --kernel was named")
        asked = Asked(
            scenario=scenario,
            profiles=[*profiles, *filter(None, [profile])],
            kernels=kernels,
            inventory=inventory,
            metric=options.metric,
            of=options.of,
            least=_least(options.least),
            rounds=_number("--rounds", options.rounds),
            most=_number("--most", options.most),
            seed=_number("--seed", options.seed, least=0),
        )
        sides = dict.fromkeys((*asked.profiles, *asked.sides))
        folder = Path("results", name or "_".join(["ab", scenario.stem, *sides]))
        design = begun(folder, asked)
        tell(announced(design))
        with shared(cluster, inventory):
            design, runs = run(folder, design, tell)
        answer = Answer(design, runs, accept)
        notes = replaced(folder)
        tell("\n" + "\n".join([answer.mail(), *(f"- {note}" for note in notes)]))
        tell(f"\n{render(folder, answer, notes)}")
    except (
        AbError,
        ClusterError,
        ScenarioError,
        InventoryError,
        KernelError,
        DoesNotBuild,
        OSError,
        ValueError,
    ) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(interrupted()) from None
    if answer.unexplained:
        raise SystemExit(UNEXPLAINED)
    if all(row.effect.low is None for row in answer.primary):
        raise SystemExit(NO_STATEMENT)


def _number(option: str, text: str | None, least: int = 1) -> int | None:
    if text is None:
        return None
    if not str(text).isdecimal() or int(text) < least:
        raise AbError(f"{option} {text}: write a whole number from {least}")
    return int(text)


def _least(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = parse_ratio(text)
    except ValueError as error:
        raise AbError(f"--least: {error}") from None
    if not found:
        raise AbError("--least 0%: no number of rounds shows that; write what matters, such as 2%")
    return found
