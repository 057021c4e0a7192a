"""Published experiments: what the originals show is listed whole, and each has a place and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from synthetic import REPOSITORY

from dumbbell.plan import Inventory, Plan
from dumbbell.report import vector
from dumbbell.studies.source import Missing
from dumbbell.suite import load
from tools.seeds import __main__ as command
from tools.seeds import beside_udp, eight_hours, originals, page, pictures
from tools.seeds.originals import Check, Original, Seed
from tools.seeds.runs import NotRun, Runs
from tools.seeds.shown import SHOWS, Number, Table

# Counted by hand in the originals' texts.
COUNTED = {
    "atou": {"figure": 16, "exhibit": 5, "claim": 4},
    "beside_udp": {"table": 2, "figure": 2, "exhibit": 1, "claim": 3, "added": 4},
    "eight_hours": {"table": 1, "figure": 21, "claim": 5, "added": 1},
    "prr": {"figure": 6, "claim": 6},
    "two_flows": {"table": 3, "figure": 7, "claim": 2, "added": 3},
}


@pytest.fixture(scope="module")
def seeds() -> dict[str, Seed]:
    return originals.load(REPOSITORY / originals.FOLDER)


@pytest.fixture(scope="module")
def plans() -> dict[str, Runs]:
    """The runs of all suites, none of which was made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        inventory = Inventory.read(command.INVENTORY)
        return {
            name: Runs.of(load(command.SUITES / f"{name}.yml"), inventory, Path("none")) for name in COUNTED
        }


def test_all_that_the_originals_show_is_listed_and_answered(seeds: dict[str, Seed]) -> None:
    found = {}
    for name, seed in seeds.items():
        kinds = [item.kind for item in seed.items]
        found[name] = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        assert len({item.id for item in seed.items}) == len(seed.items)
        assert all(item.original.text or item.original.rows for item in seed.items)
    assert found == COUNTED
    assert set(SHOWS) == {(name, item.id) for name, seed in seeds.items() for item in seed.items}


@pytest.fixture
def run_of(collected: Path, collected_atou: Path, on_off: Path) -> dict[str, Path]:
    """A point for each original, or for those that have none of their own."""
    return {"": collected, "atou": collected_atou, "beside_udp": next(on_off.glob("points/*"))}


class Asked(Runs):
    """Asks the plans for what items ask, and answers with the points of another run."""

    def points(self, scenario: str, profile: str = "", **levels: str | None) -> list[Path]:
        wanted = {"baseline": None, **levels}
        points = self.plans[scenario, profile].points
        planned: list[dict[str, str | None]] = [{"baseline": of.baseline, **of.levels} for of in points]
        kept = [of for of in planned if all(of.get(name) == level for name, level in wanted.items())]
        assert kept, f"{scenario} {profile} has no point with {levels}; it has {planned}"
        return [self.results] * len(kept)


@pytest.mark.parametrize("name", COUNTED)
def test_items_ask_for_points_that_are_planned(
    name: str, plans: dict[str, Runs], seeds: dict[str, Seed], run_of: dict[str, Path]
) -> None:
    """Of a run of another kind most have their numbers, or say what is missing."""
    asked = Asked(run_of.get(name, run_of[""]), plans[name].plans)
    made = page.Page(seeds[name], asked)
    only_of_their_run = ("M1", "M2", "M3", "txqueuelen")
    shown = {item.id: made.shown(item) for item in seeds[name].items if item.id not in only_of_their_run}
    assert all(shown.values())
    lacking = [item for item, text in shown.items() if text and "Nothing to show" in text]
    most = {"atou": 5, "beside_udp": 4, "eight_hours": 8, "prr": 10, "two_flows": 1}
    assert len(lacking) <= most[name], lacking
    for check in seeds[name].checks:
        assert check.item in {item.id for item in seeds[name].items}
        asked.points(*check.run, **check.point)


def test_shipped_pages_have_all_items_with_their_originals_and_a_verdict(seeds: dict[str, Seed]) -> None:
    for name, seed in seeds.items():
        text = (REPOSITORY / page.FOLDER / f"{name}.md").read_text()
        shown, found = page.blocks(text), page.verdicts(text)
        assert [*shown] == [*(item.id for item in seed.items), page.CHECKS]
        for item in seed.items:
            assert item.original.text in shown[item.id]
            for row, cells in item.original.rows.items():
                assert f"| {' | '.join([row, *cells])} |" in shown[item.id]
            assert found[item.id] in page.VERDICTS
            if page.NOT_RUN in shown[item.id]:
                assert found[item.id] == "Not judged", f"{name}: {item.id}"


def test_the_shipped_summary_is_that_of_the_pages(seeds: dict[str, Seed]) -> None:
    pages = {name: (REPOSITORY / page.FOLDER / f"{name}.md").read_text() for name in seeds}
    readme = (REPOSITORY / command.README).read_text()
    assert page.blocks(readme)[page.SUMMARY] == page.summary(seeds, pages)


SEED = Seed.model_validate(
    {
        "name": "some",
        "title": "Some",
        "by": "someone",
        "about": "It.",
        "items": [
            {
                "id": "U0",
                "kind": "table",
                "where": "there",
                "shows": "UDP",
                "original": {
                    "head": ["asked", "got"],
                    "rows": {"5 Mbit/s": ["6 Mbit/s"], "9 Mbit/s": ["1 Mbit/s"]},
                },
            },
            {"id": "M", "kind": "claim", "where": "there", "shows": "more", "original": {"text": "More."}},
        ],
        "checks": [
            {
                "what": f"datagrams {number}",
                "item": "U0",
                "row": "15 Mbit/s",
                "column": "came",
                "run": ["on_off", ""],
                "point": {"load": "15mbit", "baseline": "udp_alone"},
                "sql": "SELECT MAX(received_packets) FROM udp WHERE side = 'receiver'",
            }
            for number in range(3)
        ],
    }
)


def some_of(runs: Runs) -> Iterator[Table]:
    rows = {}
    for point in beside_udp.of_points(runs.points("on_off", baseline="udp_alone")):
        came = point.rows("udp").filter(side="receiver")["received_packets"].max()
        assert isinstance(came, int)
        rows[beside_udp.load(point)] = [Number(came)]
    yield Table(["came"], rows)


def nothing_of(_runs: Runs) -> Iterator[Table]:
    raise Missing("it is nowhere.")
    yield


def test_a_page_is_written_from_runs_and_keeps_what_is_not_run(
    on_off: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHOWS, ("some", "U0"), some_of)
    monkeypatch.setitem(SHOWS, ("some", "M"), nothing_of)
    plan = Plan.read(on_off / "plan.json")
    before = page.Page(SEED, Runs(tmp_path, {("on_off", ""): plan})).written("")
    assert page.blocks(before)["U0"] == (
        "| asked | original: got |\n| --- | --- |\n| 5 Mbit/s | 6 Mbit/s |\n| 9 Mbit/s | 1 Mbit/s |\n\n"
        "Not run yet.\n"
    )
    assert page.verdicts(before) == {"U0": "Not judged", "M": "Not judged"}
    judged = before.replace("**Not judged.**", "**Differs.** It is another path.", 1)
    made = page.Page(SEED, Runs(on_off.parent, {("on_off", ""): plan}))
    after = made.written(judged)
    assert page.verdicts(after)["U0"] == "Differs"
    assert page.blocks(after)["M"] == "Original: More.\n\nNothing to show: it is nowhere.\n"
    head, _, *rows = page.blocks(after)["U0"].splitlines()
    assert head == "| asked | original: got | came |"
    cells = {row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ")[1:] for row in rows}
    assert cells["9 Mbit/s"] == ["1 Mbit/s", "-"]
    assert cells["5 Mbit/s"][0] == "6 Mbit/s"
    assert cells["15 Mbit/s"][0] == "-"
    # By the query it is what the page has.
    _, _, check, *_ = page.blocks(after)[page.CHECKS].splitlines()
    number, query = check.split(" | ")[2:4]
    assert number == query == cells["15 Mbit/s"][1]
    # Without the run all stays.
    assert page.Page(SEED, Runs(tmp_path, {("on_off", ""): plan})).written(after) == after


def test_only_runs_of_this_plan_that_have_ended_count(on_off: Path, tmp_path: Path) -> None:
    plan = Plan.read(on_off / "plan.json")
    runs = Runs(on_off.parent, {("on_off", ""): plan})
    assert len(runs.points("on_off", baseline="udp_alone")) == 2
    assert len(runs.points("on_off", load="5mbit")) == 2
    with pytest.raises(Missing, match="No valid point of on_off  has load 7mbit"):
        runs.points("on_off", load="7mbit")
    with pytest.raises(NotRun, match="on_off was not run yet"):
        Runs(tmp_path, runs.plans).points("on_off")
    ((_, points, took_s),) = runs.took_s()
    assert (points, took_s) == (len(plan.points), 0)
    ((_, _, not_run),) = Runs(tmp_path, runs.plans).took_s()
    assert not_run is None


def test_a_table_beside_an_original() -> None:
    table = Table(["here"], {"b": [Number(2e6, "bps")], "c": ["x"]}, "")
    assert table.number("b", "here") == 2e6
    original = Original(head=["of", "there"], rows={"a": ["1"], "b": ["2"]})
    assert table.beside(original).splitlines() == [
        "| of | original: there | here |",
        "| --- | --- | --- |",
        "| a | 1 | - |",
        "| b | 2 | 2 Mbit/s |",
        "| c | - | x |",
    ]


def test_what_is_said_before_a_run(plans: dict[str, Runs], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    *said, total = command.expected({"prr": load(command.SUITES / "prr.yml")}, plans)
    assert said[0] == "prr:"
    assert said[1].startswith("  scenarios/one_flow_and_its_queue.yml arms: 6 points, about ")
    assert total.startswith("Together about ")


def test_points_of_a_figure_are_spread() -> None:
    many = pl.DataFrame({"x": [1.0] * 1000 + [0.5], "y": [2.0] * 1000 + [0.1]})
    assert eight_hours.spread(many).select("x", "y").rows() == [(1.0, 2.0), (0.5, 0.1)]


def test_markers_become_dots_of_one_path() -> None:
    style = 'style="opacity: 0.45; stroke-width: 0px; fill: rgb(0, 114, 178); fill-opacity: 1;"'
    point = '<path class="point" transform="translate({})" d="M2,0A2,2 0 1,1 0,-2A2,2 0 0,1 2,0Z" {}/>'
    others = f'<g class="points"><path class="other" d="M0,0" {style}/></g>'
    svg = (
        f'<svg><g class="points">{point.format("1.5,2", style)}{point.format("3,4", style)}</g>{others}</svg>'
    )
    assert pictures.dots(svg) == (
        '<svg><path d="M1.5,2h0M3,4h0" style="fill: none; stroke: rgb(0, 114, 178); stroke-opacity: 0.45; '
        f'stroke-width: 4px; stroke-linecap: round;"/>{others}</svg>'
    )


@pytest.mark.skipif(vector.browser() is None, reason="Chromium is not installed")
def test_pictures_are_small(tmp_path: Path) -> None:
    many = list(range(20_000))
    figure = go.Figure(
        [
            go.Scatter(x=many, y=[n % 97 for n in many], mode="lines"),
            go.Scatter(x=many, y=[n % 89 for n in many], mode="markers", marker={"size": 4, "opacity": 0.45}),
        ]
    )
    pictures.write({tmp_path / "one.svg": figure})
    svg = (tmp_path / "one.svg").read_text()
    assert len(svg) < 120_000
    assert svg.count("h0M") > 3_000
    assert 'class="point"' not in svg


def test_a_check_is_a_query_of_one_number(collected: Path) -> None:
    check = Check.model_validate(SEED.checks[0].model_dump() | {"sql": "SELECT COUNT(*) FROM tcp_info"})
    assert page.queried(collected, check.sql) == pl.read_parquet(collected / "tcp_info.parquet").height
    assert json.loads((collected / "verdict.json").read_text())["state"] == "passed"
