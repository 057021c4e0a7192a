"""An A/B from its design to its answer, with runs that a stand-in for ansible-playbook leaves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from experiments import LAB, Ab, flat

from dumbbell.compare.design import rounds
from dumbbell.plan import Inventory, plan
from dumbbell.suite import UNEXPLAINED


@pytest.fixture
def ab(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ab:
    return Ab(collected, tmp_path, monkeypatch)


SIX = rounds(("a", "b"), 6, 1)


def test_a_difference_is_told_first_with_its_interval(ab: Ab) -> None:
    for i, one in enumerate(SIX):
        ab.leaves_round(one, faster=1.04 + 0.002 * i)
    status, said = ab.run()
    assert (status, ab.playbook.left) == (0, 0)
    assert ab.order == [(side, str(one.seed)) for one in SIX for side in one.sides]
    assert re.search(
        r"With b, goodput of flow1 is 4\.[0-9] % higher than with a, which is better "
        r"\(4\.0 % to 5\.0 %; 95 % interval, 6 rounds\)\.",
        flat(said),
    )
    assert "sysctls net.ipv4.tcp_sack of" in said
    assert max(map(len, said.partition("metric")[2].splitlines())) < 120
    page = (ab.results / "ab.html").read_text()
    assert "which is better" in page
    assert page.index("which is better") < page.index("<h2>Metrics</h2>")
    (link,) = {found for found in re.findall(r'href="(rounds/001/a/[^"]+)"', page)}
    assert (ab.results / link).parent.is_dir()
    # The same command tells it again, and runs nothing.
    assert ab.run()[0] == 0
    assert len(ab.order) == 12


def test_no_difference_that_matters_is_told_apart_from_no_decision(ab: Ab) -> None:
    for i, one in enumerate(SIX):
        ab.leaves_round(one, faster=1 + 0.002 * (-1) ** i)
    status, said = ab.run()
    assert status == 0
    assert "No difference of 2 % or more: with b, goodput of flow1 is between 0.20 % lower" in flat(said)
    ab.results.rename(ab.results.with_name("first"))
    for i, one in enumerate(SIX):
        ab.leaves_round(one, faster=1 + 0.05 * (-1) ** i)
    status, said = ab.run()
    assert status == 0
    assert "Not decided: with b, goodput of flow1 is between" in flat(said)
    assert re.search(r"begin another A/B with --rounds \d+ --seed 7 --name NAME", flat(said))


def test_a_pilot_decides_how_many_rounds_there_are(ab: Ab) -> None:
    for i, one in enumerate(rounds(("a", "b"), 10, 1)):
        ab.leaves_round(one, faster=1 + 0.001 * i)
    status, said = ab.run(rounds=None)
    assert (status, ab.playbook.left) == (0, 0)
    assert "First a pilot: 4 rounds" in said
    assert "10 rounds show a difference of 2 % in about 80 % of all cases." in said
    assert re.search(r"The 6 that are left take about \d+ min", said)
    assert json.loads((ab.results / "ab.json").read_text())["chosen"] == 10


def test_of_a_noisy_pilot_the_difference_that_can_be_shown_is_told(ab: Ab) -> None:
    for i, one in enumerate(rounds(("a", "b"), 10, 1)):
        ab.leaves_round(one, faster=1 + 0.5 * (-1) ** i)
    status, said = ab.run(rounds=None, most="10")
    assert (status, ab.playbook.left) == (0, 0)
    assert "More than 1000 rounds would be needed to show a difference of 2 %: choose" in flat(said)
    assert re.search(r"\d+ rounds would show a difference of 2 %; 10 are run, as --most allows", said)


def test_a_round_that_is_not_valid_is_replaced_whole(ab: Ab) -> None:
    first, *others = SIX
    ab.leaves(first, first.sides[0])
    ab.leaves(first, first.sides[1], state="invalid")
    ab.leaves_round(first.again(2))
    for one in others:
        ab.leaves_round(one)
    status, said = ab.run()
    assert (status, ab.playbook.left) == (0, 0)
    assert ab.order[:4] == [(side, seed) for seed in ("1", "1001") for side in first.sides]
    assert f"round 1 was replaced: {first.sides[1]} invalid: why not" in said
    assert "6 rounds" in said


def test_a_round_without_a_valid_attempt_ends_it_and_it_goes_on(ab: Ab) -> None:
    first = SIX[0]
    for attempt in (1, 2, 3):
        ab.leaves(first.again(attempt), first.sides[0], state="invalid")
    status, _ = ab.run()
    assert f"round 1 was not valid in 3 attempts, the last because of {first.sides[0]}: invalid" in str(
        status
    )
    assert not (ab.results / "ab.html").exists()
    for place in (ab.results / "rounds").glob("001_attempt*"):
        shutil.rmtree(place)
    for one in SIX:
        ab.leaves_round(one)
    assert ab.run()[0] == 0


def test_an_interrupted_ab_goes_on_where_it_was_in_its_own_order(ab: Ab) -> None:
    for one in SIX[:2]:
        ab.leaves_round(one)
    third = SIX[2]
    ab.leaves(third, third.sides[0])
    planned = plan(ab.scenario, Inventory.read(LAB), third.sides[1], third.seed)
    ab.playbook.leaves(planned.scenario, {"plan.json": planned.to_json().decode()})  # and then it was killed
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(ab, 6)
    begun = len(ab.order)
    ab.playbook.home.joinpath("wanted.json").write_text("[]")
    ab.leaves(third, third.sides[1])  # the run that was begun is resumed
    for one in SIX[3:]:
        ab.leaves_round(one)
    assert ab.run()[0] == 0
    assert [asked["playbook"] for asked in ab.playbook.asked[begun:]] == [
        "playbooks/resume.yml", *["playbooks/run.yml"] * 6
    ]  # fmt: skip
    assert ab.playbook.asked[begun]["run"].startswith(str(ab.results / "rounds/003" / third.sides[1]))


def interrupted_after(ab: Ab, number: int) -> None:
    """Run it, and press Ctrl-C when so many runs were begun."""
    from dumbbell import experiment, suite  # noqa: PLC0415

    entry = suite.run_entry

    def run_entry(*arguments: Any, **options: Any) -> None:
        entry(*arguments, **options)
        if len(ab.playbook.asked) == number:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "run_entry", run_entry)
        status, _ = ab.run()
    assert status == 130
    raise KeyboardInterrupt


def test_settings_that_nobody_asked_for_take_the_place_of_the_answer(ab: Ab) -> None:
    settings = {"net.ipv4.conf.all.rp_filter": "1", "nftables": "5f2c"}
    for one in SIX:
        ab.leaves_round(one, settings=settings)
    status, said = ab.run()
    assert status == UNEXPLAINED
    assert "- sender1 net.ipv4.conf.all.rp_filter: 0 in a; 1 in b\n" in said
    assert "- sender1 nftables: none in a; 5f2c in b\n" in said
    assert "goodput of flow1 is" not in said
    assert "5f2c" in (ab.results / "ab.html").read_text()
    # The runs are there and count.
    assert ab.run(accept="nftables")[0] == UNEXPLAINED
    status, said = ab.run(accept="nftables,net.ipv4.conf.*")
    assert (status, "No difference of 2 %" in said) == (0, True)
    assert "accepted: sender1 nftables: none in a; 5f2c in b" in said


def test_several_sides_are_compared_with_the_first(ab: Ab) -> None:
    for i, one in enumerate(rounds(("a", "b", "c"), 7, 1)):
        for side in one.sides:
            ab.leaves(one, side, faster={"a": 1.0, "b": 1.05 + 0.001 * i, "c": 1.005 + 0.0001 * i}[side])
    status, said = ab.run("a", "b", "c", rounds="7")
    assert (status, ab.playbook.left) == (0, 0)
    assert "With b, goodput of flow1 is 5.3 % higher than with a" in flat(said)
    assert "With c, goodput of flow1 is 0.53 % higher than with a, which is better (" in flat(said)
    assert "Differences below 2 % do not matter." in flat(said).partition("With c,")[2]
    assert "97.5 % interval" in flat(said)


@pytest.mark.parametrize(
    ("sides", "options", "said"),
    [
        (("a", "d"), {}, "the scenario has no profile d"),
        (("a", "a"), {}, "2 sides have the name a: a, a. Name each side once"),
        ((), {"metric": None, "of": None}, "say before the first run which metric decides: --metric METRIC"),
        ((), {"metric": "goodputs"}, "this scenario has no metric goodputs, did you mean goodput?"),
        ((), {"of": None}, "goodput is known of flow1, flow2: choose one with --of"),
        ((), {"of": "flow3"}, "goodput of flow3 is not measured in a, did you mean flow"),
        ((), {"rounds": "5"}, "5 rounds of 2 sides cannot show a difference at 5 %, however large it is: ask "
         "for at least --rounds 6"),
        ((), {"rounds": None, "most": "9"}, "ask for at least --most 10"),
        ((), {"rounds": "many"}, "--rounds many: write a whole number from 1"),
        ((), {"rounds": "8", "most": "9"}, "give one of them"),
        ((), {"least": "2"}, "--least: '2' is not a share: write a number and one of %, as in 1%"),
        ((), {"least": "0%"}, "no number of rounds shows that"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_run(
    ab: Ab, sides: tuple[str, ...], options: dict[str, Any], said: str
) -> None:
    status, _ = ab.run(*sides, **options)
    assert said in str(status)
    assert ab.order == []
    assert not ab.results.exists()


def test_an_ab_goes_on_only_as_it_was_begun(ab: Ab) -> None:
    ab.leaves_round(SIX[0])
    ab.playbook.leaves_nothing()
    ab.playbook.leaves_nothing()
    ab.playbook.leaves_nothing()
    assert "round 2 was not valid in 3 attempts" in str(ab.run()[0])
    status, _ = ab.run(rounds="8", metric="rtt")
    assert str(status) == (
        "results/ab_x_a_b is an A/B that was begun with other options: --metric goodput, now rtt; --rounds "
        "6, now 8. Leave them out to go on with it, or begin another: --name NAME"
    )
    begun = len(ab.order)
    ab.scenario.write_text(ab.scenario.read_text().replace("net.ipv4.tcp_sack: 0", "net.ipv4.tcp_sack: 1"))
    status, _ = ab.run(rounds=None, metric=None, of=None)
    assert "the plan of a is no longer what results/ab_x_a_b was begun with" in str(status)
    assert len(ab.order) == begun


def test_the_scenario_may_say_what_decides(ab: Ab) -> None:
    primary = "primary: {metric: rtt p95, of: flow2, least: 5%}\n"
    ab.scenario.write_text(primary + ab.scenario.read_text())
    for one in SIX:
        ab.leaves_round(one)
    status, said = ab.run(metric=None, of=None)
    assert status == 0
    assert "Does rtt p95 of flow2 differ between a, b? Differences below 5 % do not matter." in said
    assert "No difference of 5 % or more: with b, RTT p95 of flow2" in flat(said)
