"""The search for a commit: git chooses, values decide. Only the measurement is not the real one."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumbbell.bisection import decide
from dumbbell.bisection.bisection import Bisection, NoDifference
from dumbbell.bisection.measure import Failed, Untestable
from dumbbell.bisection.search import Search
from dumbbell.bisection.told import page, text
from dumbbell.kernels import KernelError

COMMITS = 20
LOOKS = (2, 4, 8, 16)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", *who, *words], cwd=folder, text=True).strip()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of 21 commits, of which the first is good."""
    folder = tmp_path_factory.mktemp("tree")
    git(folder, "init", "--quiet", "--initial-branch=main")
    made = (
        f"commit refs/heads/main\ncommitter x <x@y> {number} +0000\ndata <<end\nchange {number}\nend\n"
        for number in range(COMMITS + 1)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input="".join(made), text=True, check=True)
    return folder


def commits_of(tree: Path) -> list[str]:
    return git(tree, "rev-list", "--reverse", "main").split()


@dataclass
class Stand:
    """Stands for builds and runs: a value by the commit's place, spread by commit and seed."""

    commits: list[str]
    first_bad: int
    effect: float = 0.95
    spread: float = 0.002
    broken: frozenset[int] = frozenset()
    built: list[int] = field(default_factory=list)
    measured: list[tuple[int, int]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def build(self, commit: str) -> None:
        self.before()
        place = self.commits.index(commit)
        self.built.append(place)
        if place in self.broken:
            raise Untestable("does not build: a.c:1: error")

    def values(self, commit: str, seeds: int) -> list[float]:
        self.before()
        place = self.commits.index(commit)
        self.measured.append((place, seeds))
        mean = 1e8 * (self.effect if place >= self.first_bad else 1)
        return [mean * (1 + random.Random(f"{place}/{seed}").gauss(0, self.spread)) for seed in range(seeds)]

    def reports(self, commit: str) -> list[str]:
        return []


def bisection(folder: Path, tree: Path, stand: Stand, said: list[str] | None = None) -> Bisection:
    folder.mkdir(exist_ok=True)
    search = Search.begin(folder / "bisect.git", tree, stand.commits[0], stand.commits[-1])
    asked = {"metric": "goodput", "of": None, "scenario": "x.yml", "tree": str(tree)}
    asked |= {"good": stand.commits[0], "bad": stand.commits[-1]}
    tell = (lambda _: None) if said is None else said.append
    return Bisection(folder, search, stand, asked=asked, looks=LOOKS, sure=0.95, tell=tell)


def find(folder: Path, tree: Path, stand: Stand) -> Bisection:
    made = bisection(folder, tree, stand)
    made.run(stand.commits[0], stand.commits[-1])
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("bisection")


FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(
    first_bad=st.integers(1, COMMITS),
    effect=st.sampled_from([0.9, 0.95, 1.03]),
    broken=st.frozensets(st.integers(1, COMMITS - 1), max_size=4),
)
def test_wherever_it_is_the_first_bad_commit_is_named(
    folders: Callable[[], Path], tree: Path, first_bad: int, effect: float, broken: frozenset[int]
) -> None:
    commits = commits_of(tree)
    stand = Stand(commits, first_bad, effect, broken=broken)
    made = find(folders(), tree, stand)
    named = sorted(commits.index(commit) for commit in made.found)
    assert first_bad in named
    # Only commits that cannot be tested may stand beside it.
    assert set(named) - {first_bad} <= broken | {max(named)}
    assert {commits.index(one.commit) for one in made.steps if one.word == "skip"} <= broken
    if not broken:
        assert named == [first_bad]
        assert made.effect is not None
        assert made.effect.interval.value == pytest.approx(effect, abs=0.006)
        assert made.error <= 0.05


@FEW
@given(first_bad=st.integers(1, COMMITS), stops=st.lists(st.integers(1, 12), max_size=4))
def test_an_interrupted_search_goes_on_and_names_the_same(
    folders: Callable[[], Path], tree: Path, first_bad: int, stops: list[int]
) -> None:
    folder, stand = folders(), Stand(commits_of(tree), first_bad)
    for stop in stops:
        left = iter(range(stop))

        def interrupt(left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise KeyboardInterrupt

        stand.before = interrupt
        try:
            find(folder, tree, stand)
        except KeyboardInterrupt:
            continue
    stand.before = lambda: None
    made = find(folder, tree, stand)
    assert made.found == [stand.commits[first_bad]]
    tested = [one.commit for one in made.steps]
    assert len(tested) == len(set(tested))
    whole = find(folders(), tree, Stand(stand.commits, first_bad))
    assert [(one.commit, one.word, one.values) for one in made.steps] == [
        (one.commit, one.word, one.values) for one in whole.steps
    ]


def test_nothing_else_is_built_if_the_ends_do_not_differ(folders: Callable[[], Path], tree: Path) -> None:
    stand = Stand(commits_of(tree), 12, effect=1)
    with pytest.raises(NoDifference) as caught:
        find(folders(), tree, stand)
    assert "do not differ in goodput: " in str(caught.value)
    assert "16 seeds each. Nothing else was built" in str(caught.value)
    assert sorted(set(stand.built)) == [0, COMMITS]


def test_an_end_that_does_not_build_ends_the_search(folders: Callable[[], Path], tree: Path) -> None:
    stand = Stand(commits_of(tree), 12, broken=frozenset([COMMITS]))
    with pytest.raises(Failed, match=r"the bad end [0-9a-f]{12} does not build"):
        find(folders(), tree, stand)


def test_seeds_are_added_while_they_are_needed(folders: Callable[[], Path], tree: Path) -> None:
    few = Stand(commits_of(tree), 12, spread=0.0005)
    find(folders(), tree, few)
    assert {seeds for _, seeds in few.measured} == {2}
    more = Stand(commits_of(tree), 12, spread=0.015)
    made = find(folders(), tree, more)
    assert made.found == [more.commits[12]]
    assert max(seeds for _, seeds in more.measured) > 2


def test_a_commit_that_stays_undecided_is_skipped(folders: Callable[[], Path], tree: Path) -> None:
    class Half(Stand):
        def values(self, commit: str, seeds: int) -> list[float]:
            values = super().values(commit, seeds)
            return [9.75e7 * value / 1e8 for value in values] if self.commits.index(commit) == 10 else values

    stand = Half(commits_of(tree), 12)
    made = find(folders(), tree, stand)
    skipped = next(one for one in made.steps if one.word == "skip")
    assert (stand.commits.index(skipped.commit), skipped.reason) == (
        10,
        "16 seeds do not show which end it is like",
    )
    assert made.found == [stand.commits[12]]


def test_the_end_has_commit_message_and_steps(folders: Callable[[], Path], tree: Path) -> None:
    made = find(folders(), tree, Stand(commits_of(tree), 7, broken=frozenset([10])))
    said = text(made)
    assert f"{made.found[0]} is the first bad commit: change 7" in said
    assert "It changed goodput by -5." in said
    assert "skip" in said
    assert "does not build: a.c:1: error" in said
    html = page(made).read_text()
    assert html.count("<tr>") == len(made.steps) + 1
    assert "first bad commit" in html
    assert git(made.search.folder, "bisect", "log") in said or "git bisect start" in html


def test_the_users_tree_is_left_alone(folders: Callable[[], Path], tree: Path) -> None:
    before = sorted(str(path) for path in tree.rglob("*") if "objects" not in path.parts)
    head = git(tree, "status")
    find(folders(), tree, Stand(commits_of(tree), 12))
    assert sorted(str(path) for path in tree.rglob("*") if "objects" not in path.parts) == before
    assert git(tree, "status") == head


def test_ends_that_git_cannot_search_between_are_refused(folders: Callable[[], Path], tree: Path) -> None:
    commits = commits_of(tree)
    with pytest.raises(KernelError, match="git bisect"):
        Search.begin(folders() / "bisect.git", tree, commits[-1], commits[0])


# --- decisions ----------------------------------------------------------------------------------------


def test_values_without_spread_are_decided_at_once() -> None:
    word, effect = decide.step([1, 1], [2, 2], [2, 2])
    assert (word, effect.error, effect.interval.value) == ("bad", 0, 2)
    assert decide.ends([1, 1], [1, 1]).error == 0.5


def test_zero_is_compared_by_difference() -> None:
    effect = decide.ends([0, 0.001, 0], [0.01, 0.011, 0.01])
    assert not effect.is_ratio
    assert effect.interval.value == pytest.approx(0.01)
    assert effect.error < 0.001


@given(st.integers(2, 9), st.integers(0, 40))
def test_looks_double_up_to_the_most(least: int, more: int) -> None:
    seen = list(decide.looks(least, least + more))
    assert seen[0] == least
    assert seen[-1] == least + more
    assert all(a < b <= 2 * a for a, b in pairwise(seen))


def test_the_error_is_what_it_says() -> None:
    """Of commits that are as the good end, so many are taken for bad as the level allows, and no more."""
    drawn = random.Random(1)
    wrong = 0
    for _ in range(2000):
        good, bad, candidate = ([drawn.gauss(mean, 1) for _ in range(3)] for mean in (100, 102, 100))
        word, effect = decide.step(good, bad, candidate)
        wrong += word == "bad" and effect.error <= 0.05
    assert wrong / 2000 <= 0.05
