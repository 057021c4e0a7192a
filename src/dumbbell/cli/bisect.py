"""``fab bisect``: which commit of a kernel changed a metric, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dumbbell.bisection import decide
from dumbbell.bisection.bisection import Bisection, NoDifference, read
from dumbbell.bisection.measure import Failed, InVirtualTime, Sought
from dumbbell.bisection.search import Search
from dumbbell.bisection.told import page, text
from dumbbell.cli import tell
from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import shared
from dumbbell.inventory import InventoryError
from dumbbell.kernels import KernelError, git
from dumbbell.scenario import ScenarioError
from dumbbell.suite import NO_STATEMENT, interrupted

LEAST_SEEDS = 2  # of fewer, nothing is known of the spread


def bisect(
    sought: Sought,
    tree: str,
    ends: tuple[str, str],
    *,
    seeds: int,
    most: int,
    sure: float,
    inventory: Path,
    results: Path,
    cluster: str = "",
) -> None:
    """Search below ``results``, or go on; print the commit and the steps. SystemExit where there is none."""
    if not (LEAST_SEEDS <= seeds <= most and 0 < sure < 1):
        raise SystemExit(
            f"--seeds {seeds} --most {most} --sure {sure}: seeds are at least {LEAST_SEEDS} and at most "
            "--most, and --sure is between 0 and 1"
        )
    try:
        repository = git.repository_of(tree, Path.cwd())
        place = str(repository.resolve())
        good, bad = (git.commit(repository, end, tree) for end in ends)
        if good == bad:
            raise KernelError(f"--good {ends[0]} and --bad {ends[1]} are the same commit, {good}")
        for end, named in zip((good, bad), ends, strict=True):
            git.release(repository, f"{end}^{{tree}}", f"{tree}@{named}", "um")
        folder = results / f"bisect_{sought.scenario.stem}_{sought.metric}_{good[:7]}_{bad[:7]}"
        looks = list(decide.looks(seeds, most))
        measure = InVirtualTime(folder, place, sought, inventory, looks)
        asked = _asked(sought, place, (good, bad), seeds=seeds, most=most, sure=sure)
        asked["plans"] = [wanted.digest for *_, wanted in measure.batches]
        _refuse_another(folder, asked)
        search = Search.begin(folder / "bisect.git", repository, good, bad)
        bisection = Bisection(folder, search, measure, asked=asked, looks=looks, sure=sure, tell=tell)
        try:
            with shared(cluster, inventory):
                bisection.run(good, bad)
        finally:
            page(bisection)
        tell(f"\n{text(bisection)}\n\n{folder}/index.html")
    except (
        ClusterError,
        KernelError,
        ScenarioError,
        InventoryError,
        NoDifference,
        Failed,
        OSError,
        ValueError,
    ) as error:
        tell(str(error))
        raise SystemExit(NO_STATEMENT) from None
    except KeyboardInterrupt:
        raise SystemExit(interrupted()) from None


def _asked(
    sought: Sought, tree: str, ends: tuple[str, str], *, seeds: int, most: int, sure: float
) -> dict[str, Any]:
    return {
        "tree": tree,
        "good": ends[0],
        "bad": ends[1],
        "scenario": str(sought.scenario),
        "profile": sought.profile,
        "point": sought.point,
        "metric": sought.metric,
        "of": sought.of,
        "seeds": seeds,
        "most": most,
        "sure": sure,
    }


def _refuse_another(folder: Path, asked: dict[str, Any]) -> None:
    """ValueError if the directory is of a search that was asked for otherwise, or of a newer Dumbbell."""
    kept = read(folder).get("asked")
    if kept is not None and kept != asked:
        other = ", ".join(name for name in asked if kept.get(name) != asked[name])
        raise ValueError(
            f"{folder} is of another search: {other} differ. Ask for the same again, or remove the directory "
            "to begin anew"
        )
