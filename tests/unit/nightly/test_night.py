"""A night runs its suite to the end, whatever becomes of a run."""

from __future__ import annotations

import fcntl
import json
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stand_in import Playbook
from synthetic import REPOSITORY, write_run

from dumbbell.compare.comparison import Comparison
from dumbbell.execution.collect import collect
from dumbbell.kernels import KernelError
from dumbbell.nightly.again import InTurn, kernels
from dumbbell.nightly.history import History, Key, Series
from dumbbell.nightly.judge import NotMeasured
from dumbbell.nightly.night import NightError, run_night, summary
from dumbbell.plan import Inventory, plan
from dumbbell.run.directory import STAMP
from dumbbell.run.record import abort
from dumbbell.scenario import ScenarioError
from dumbbell.suite import Budget, Entry, Outcome, Suite, load
from nightly.nights import FAIRNESS, INVENTORY, night


def test_one_night_runs_at_a_time(tmp_path: Path) -> None:
    suite = load(REPOSITORY / "suites" / "nightly.yml")
    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NightError, match="is under way"):
            run_night(suite, INVENTORY, tmp_path)


def test_what_cannot_be_planned_begins_no_night(tmp_path: Path) -> None:
    suite = Suite(name="bad", title="", runs=[Entry(scenario=str(tmp_path / "missing.yml"))])
    with pytest.raises(ScenarioError, match=r"missing\.yml"):
        run_night(suite, INVENTORY, tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["lock"]


ONE_RUN = Suite(name="x", title="y", runs=[Entry(scenario=str(FAIRNESS))])


def test_a_night_in_virtual_time_may_be_on_another_kernel(playbook: Playbook, tmp_path: Path) -> None:
    kernel = str(REPOSITORY / "kernels" / "lab.yml")
    run_night(ONE_RUN, REPOSITORY / "inventory" / "vtime", tmp_path, kernel=kernel)
    assert [(asked["playbook"], asked["kernel"]) for asked in playbook.asked] == [
        ("playbooks/virtual.yml", kernel)
    ]


@pytest.mark.parametrize(
    ("inventory", "kernel", "error", "reason"),
    [
        ("lab", "kernels/lab.yml", NightError, "--kernel is of virtual time"),
        ("vtime", "kernels/none.yml", KernelError, r"kernels/none\.yml"),
    ],
)
def test_a_kernel_that_cannot_be_had_begins_no_night(
    tmp_path: Path, inventory: str, kernel: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        run_night(ONE_RUN, REPOSITORY / "inventory" / inventory, tmp_path, kernel=kernel)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def begun_ago(**ago: float) -> str:
    return f"{datetime.now(UTC) - timedelta(**ago):{STAMP}}"


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_a_home_may_be_given_from_the_checkout_on(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "home" / "nights" / begun_ago(hours=1) / f"{night(1)}_two_flow_fairness"
    shutil.copytree(measured, run_dir)  # nothing of the night is left to run
    monkeypatch.chdir(tmp_path)
    (told,) = summary(run_night(ONE_RUN, INVENTORY, Path("home")))["runs"]
    assert (told["directory"], told["state"]) == (run_dir.name, "passed")


def test_a_night_ends_whatever_becomes_of_one_of_its_runs(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    other = tmp_path / "other.yml"
    other.write_text(FAIRNESS.read_text().replace("name: two_flow_fairness", "name: other"))
    (measured_other := tmp_path / "measured").mkdir()
    wanted = plan(other, Inventory.read(INVENTORY)).to_json().decode()
    suite = Suite(name="x", title="y", runs=[Entry(scenario=str(path)) for path in (other, FAIRNESS)])
    shutil.copytree(measured, measured_other, dirs_exist_ok=True)
    (measured_other / "udp.parquet").write_text("")
    playbook.leaves("other", {"plan.json": wanted}, copy=measured_other)
    playbook.leaves("two_flow_fairness", {}, copy=measured)
    ran = run_night(suite, INVENTORY, tmp_path / "home")
    assert [outcome.state for outcome in ran.outcomes] == ["invalid", "passed"]
    assert "has no numbers: " in ran.outcomes[0].reasons[-1]
    assert ran.status == 2
    assert (ran.dir / "night.json").exists()
    with closing(History(tmp_path / "home" / "history.sqlite")) as history:
        assert {series.scenario for series in history.series()} == {"two_flow_fairness"}
    assert not (tmp_path / "home" / "under_way").exists()


PINGS = """\
name: pings
title: Pings alone
duration: 20s
path:
  forward: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  probe: {kind: ping, from: "senders[0]", to: "receivers[0]", interval: 100ms}
"""


def test_a_night_of_pings_alone_keeps_their_rtt(playbook: Playbook, tmp_path: Path) -> None:
    (scenario := tmp_path / "pings.yml").write_text(PINGS)
    write_run(made := tmp_path / "made", scenario)
    collect(made, None)
    wanted = plan(scenario, Inventory.read(INVENTORY)).to_json().decode()
    playbook.leaves("pings", {"plan.json": wanted}, copy=made)
    suite = Suite(name="x", title="y", runs=[Entry(scenario=str(scenario))])
    ran = run_night(suite, INVENTORY, tmp_path / "home")
    assert [(outcome.state, outcome.reasons) for outcome in ran.outcomes] == [("passed", ())]
    with closing(History(tmp_path / "home" / "history.sqlite")) as history:
        series = history.series()
    assert [(of.key.metric, of.key.subject, of.unit) for of in series] == [
        (metric, "probe", "ns") for metric in ("rtt", "rtt p95", "rtt p99")
    ]
    assert list(series[0].medians) == pytest.approx([10_140_000], rel=0.01)
    assert series[0].medians <= series[1].medians <= series[2].medians
    run_dir = ran.outcomes[0].run_dir
    assert run_dir is not None
    both = Comparison([run_dir], [run_dir])
    assert both.rows.select("metric", "subject", "n_a", "ratio").rows() == [("rtt", "probe", 1, 1.0)]
    assert both.notes() == []


@pytest.mark.parametrize("content", ["", "5", "[]", '{"points": 1}', '{"state": "passed", "reasons": 3}'])
def test_a_night_ends_whatever_a_verdict_says(
    measured: Path, playbook: Playbook, tmp_path: Path, content: str
) -> None:
    playbook.leaves("two_flow_fairness", {"verdict.json": content}, copy=measured)
    ran = run_night(ONE_RUN, INVENTORY, tmp_path / "home")
    assert [outcome.state for outcome in ran.outcomes] == ["aborted"]
    assert ran.status == 2


def test_a_night_that_was_broken_off_goes_on_only_for_a_while(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    old, recent = begun_ago(days=9), begun_ago(hours=19)
    nights_dir = tmp_path / "nights"
    for name in (old, recent):
        (nights_dir / name).mkdir(parents=True)
    playbook.leaves("two_flow_fairness", {}, copy=measured)
    assert run_night(ONE_RUN, INVENTORY, tmp_path).id == recent
    (run,) = json.loads((nights_dir / old / "night.json").read_text())["runs"]
    assert (run["state"], run["reasons"]) == ("not run", ["the night was broken off"])
    assert names(nights_dir) == [old, recent]


def test_a_night_is_new_where_the_last_was_broken_off_long_ago(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    old = begun_ago(hours=21)
    shutil.copytree(measured, tmp_path / "nights" / old / f"{old}_two_flow_fairness")
    playbook.leaves("two_flow_fairness", {}, copy=measured)
    ran = run_night(ONE_RUN, INVENTORY, tmp_path)
    assert ran.id > begun_ago(minutes=10)
    assert playbook.left == 0
    (run,) = json.loads((tmp_path / "nights" / old / "night.json").read_text())["runs"]
    assert (run["state"], run["directory"]) == ("passed", f"{old}_two_flow_fairness")


@pytest.mark.parametrize("damage", ["aborted", "without a table", "with a broken plan"])
def test_a_point_keeps_no_other_of_its_sweep_from_being_recorded(
    measured: Path, playbook: Playbook, tmp_path: Path, damage: str
) -> None:
    sweep = tmp_path / "sweep.yml"
    sweep.write_text(FAIRNESS.read_text().replace("name: two_flow_fairness", "name: sweep\nrepetitions: 2"))
    points = plan(sweep, Inventory.read(INVENTORY))
    shutil.copytree(measured, first := tmp_path / "made" / "points" / "001")
    shutil.copytree(measured, second := tmp_path / "made" / "points" / "002")
    if damage == "aborted":
        abort(second, ["no host"])
        (second / "tcp_info.parquet").unlink()
    elif damage == "without a table":
        (second / "udp.parquet").unlink()
    else:
        (second / "plan.json").write_text("{")
    state = "aborted" if damage == "aborted" else "passed"
    files = {"plan.json": points.to_json().decode()}
    files["verdict.json"] = json.dumps({"state": state, "reasons": ["why"], "points": []})
    playbook.leaves("sweep", files, copy=first.parents[1])
    suite = Suite(name="x", title="y", runs=[Entry(scenario=str(sweep))])
    ran = run_night(suite, INVENTORY, tmp_path / "home")
    assert [outcome.state for outcome in ran.outcomes] == ["aborted" if damage == "aborted" else "invalid"]
    with closing(History(tmp_path / "home" / "history.sqlite")) as history:
        goodputs = [series for series in history.series() if series.key.metric == "goodput"]
    assert [series.nights for series in goodputs] == [(ran.id,), (ran.id,)]


KERNELS = ({"sender1 kernel": "6.12.0-synthetic"}, {"sender1 kernel": "7.2.12"})


def of_a_run(run_dir: Path) -> Series:
    key = Key("testbed", plan(FAIRNESS, Inventory.read(INVENTORY)).points[0].id, "goodput", "flow1")
    of_a_night = ((night(1),), (1.0,), (str(run_dir),), ({1: 1.0},), ("tested",), ("instrument",))
    return Series(key, "two_flow_fairness", "-", "bps", *of_a_night)


def test_an_ab_runs_a_point_in_turn_and_ends_with_the_kernel_of_now(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    wanted = plan(FAIRNESS, Inventory.read(INVENTORY))
    outcome = Outcome(ONE_RUN.runs[0], "passed", (), tmp_path / "run")

    def in_turn(limit_ns: int | None) -> InTurn:
        return InTurn(INVENTORY, tmp_path, [(outcome, wanted)], Budget(limit_ns))

    with pytest.raises(
        NotMeasured, match=r"it takes about 30 min 20 s, and 1 min are left of the budget of 1 min"
    ):
        in_turn(60 * 10**9)(of_a_run(tmp_path / "run"), *KERNELS)
    with pytest.raises(NotMeasured, match="no longer in the suite"):
        in_turn(None)(of_a_run(tmp_path / "another"), *KERNELS)
    assert playbook.asked == []
    for _ in range(16):
        playbook.leaves("two_flow_fairness", {}, copy=measured)
    pairs = in_turn(None)(of_a_run(tmp_path / "run"), *KERNELS)
    assert len(pairs) == 8
    assert all(before == after > 0 for before, after in pairs)
    point = wanted.points[0].id
    assert {asked["point"] for asked in playbook.asked} == {point}
    profiles = [asked["profile"] for asked in playbook.asked]
    assert profiles == ["night_now", "night_before", "night_before", "night_now"] * 4
    for profile, kernel in (("night_now", "7.2.12"), ("night_before", "6.12.0-synthetic")):
        (same,) = plan(Path(playbook.asked[0]["scenario"]), Inventory.read(INVENTORY), profile).points
        assert (same.id, same.hosts["sender1"].state.kernel) == (point, kernel)


def test_an_ab_whose_hosts_lack_the_former_kernel_leaves_them_with_that_of_now(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    outcome = Outcome(ONE_RUN.runs[0], "passed", (), tmp_path / "run")
    wanted = plan(FAIRNESS, Inventory.read(INVENTORY))
    playbook.leaves("two_flow_fairness", {}, copy=measured)
    lacking = json.dumps({"state": "aborted", "reasons": ["sender1 has no kernel 6.12.0-synthetic"]})
    for _ in range(3):
        playbook.leaves("two_flow_fairness", {"verdict.json": lacking})
    playbook.leaves("two_flow_fairness", {}, copy=measured)
    in_turn = InTurn(INVENTORY, tmp_path, [(outcome, wanted)], Budget(None))
    with pytest.raises(NotMeasured, match=r"was not valid: sender1 has no kernel 6\.12\.0-synthetic"):
        in_turn(of_a_run(tmp_path / "run"), *KERNELS)
    profiles = [asked["profile"] for asked in playbook.asked]
    assert profiles == ["night_now", *["night_before"] * 3, "night_now"]


def test_only_kernels_can_be_had_again() -> None:
    before, now = KERNELS
    assert kernels(before, now) == {"sender1": ("6.12.0-synthetic", "7.2.12")}
    with pytest.raises(NotMeasured, match="sender1 iperf3 cannot be had as it was; only kernels can"):
        kernels({**before, "sender1 iperf3": "3.12"}, {**now, "sender1 iperf3": "3.18"})
    with pytest.raises(NotMeasured, match="sender1 module tcp_rapid"):
        kernels({"sender1 module tcp_rapid": "a"}, {"sender1 module tcp_rapid": "b"})
