"""Nights: what is kept of them, and when somebody is told that something has changed."""

from __future__ import annotations

import fcntl
import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl
import pytest
from stand_in import Playbook
from synthetic import write_run

from dumbbell.compare.comparison import Comparison
from dumbbell.execution.collect import collect
from dumbbell.metrics.values import VALUES
from dumbbell.nightly import page, tell
from dumbbell.nightly.again import Remeasured
from dumbbell.nightly.changes import changes, confirmed, fresh
from dumbbell.nightly.history import History, Key, Series
from dumbbell.nightly.judge import Acknowledgement, Finding, NotMeasured, judge
from dumbbell.nightly.night import NightError, run_night, summary
from dumbbell.plan import Inventory, plan
from dumbbell.run.directory import STAMP, abort
from dumbbell.scenario import ScenarioError
from dumbbell.suite import Budget, Entry, Outcome, Suite, load
from playbooks import REPOSITORY

LEAST = 0.02
INVENTORY = REPOSITORY / "inventory" / "lab"
KERNEL = {"sender1 kernel": "6.12.1"}


def night(number: int) -> str:
    return f"202601{number:02}T020000Z"


def rows(name: str, *goodputs: float, verdict: str = "passed", metric: str = "goodput") -> pl.DataFrame:
    found = [
        (name, "abc", "load=10mbit", i, verdict, metric, "tcp", "bps", goodput)
        for i, goodput in enumerate(goodputs, 1)
    ]
    return pl.DataFrame(found, schema=VALUES, orient="row")


class Nights:
    """A history, and what measuring again would find."""

    def __init__(self, folder: Path) -> None:
        self.history = History(folder / "history.sqlite")
        self.level, self.asked, self.count = 100.0, 0, 0
        self.metric = "goodput"
        self.rng = np.random.default_rng(1)

    def values(self, n: int = 3) -> list[float]:
        return [float(x) for x in self.level * (1 + 0.005 * self.rng.standard_normal(n))]

    def again(self, _: Series) -> Sequence[float]:
        self.asked += 1
        return self.values(8)

    def passes(
        self, testbed: dict[str, str] = KERNEL, known: Sequence[Acknowledgement] = ()
    ) -> list[Finding]:
        self.count += 1
        name = night(self.count)
        self.history.add(name, testbed, "on_off_udp", rows(name, *self.values(), metric=self.metric))
        return list(judge(self.history, name, LEAST, known, self.again))


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def states(found: Sequence[Finding]) -> list[str]:
    return [finding.state for finding in found]


def test_nights_that_are_alike_say_nothing(nights: Nights) -> None:
    assert [nights.passes() for _ in range(15)] == [[]] * 15


def test_a_regression_is_found_confirmed_and_stays_open_until_it_is_undone(nights: Nights) -> None:
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 90.0
    told = [nights.passes() for _ in range(4)]
    first = next(i for i, found in enumerate(told) if found)
    (finding,) = told[first]
    assert (finding.state, finding.worse, finding.alarm) == ("new", True, True)
    assert finding.since == night(9)
    assert finding.effect == pytest.approx(-0.1, abs=0.01)
    assert nights.asked == 1
    assert [states(found) for found in told[first + 1 :]] == [["open"]] * (3 - first)
    assert all(finding.alarm for found in told for finding in found)
    nights.level = 100.0
    (finding,) = nights.passes()
    assert (finding.state, finding.alarm) == ("recovered", False)
    assert [nights.passes() for _ in range(10)] == [[]] * 10


def test_a_worse_change_is_told_beside_an_open_alarm(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    while not nights.passes():
        pass
    nights.level = 70.0
    told = [nights.passes() for _ in range(4)]
    assert all(found[0].state == "open" and found[0].before == pytest.approx(100, rel=0.01) for found in told)
    first = next(found for found in told if len(found) > 1)
    assert states(first) == ["open", "new"]
    assert (first[1].worse, first[1].alarm) == (True, True)
    assert first[1].effect == pytest.approx(70 / 90 - 1, abs=0.01)
    assert states(told[-1]) == ["open", "open"]
    nights.level = 90.0
    assert states(nights.passes()) == ["open", "recovered"]
    assert states(nights.passes()) == ["open"]
    nights.level = 100.0
    assert states(nights.passes()) == ["recovered"]
    assert [nights.passes() for _ in range(8)] == [[]] * 8


def test_a_night_that_is_judged_again_says_the_same(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 3), (70.0, 4), (100.0, 1), (110.0, 4)):
        nights.level = level
        for _ in range(count):
            told = nights.passes()
            again = list(judge(nights.history, night(nights.count), LEAST, [], nights.again))
            assert again == told


def test_all_of_several_alarms_end_where_the_first_began(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["open", "open"]
    nights.level = 100.0
    assert states(nights.passes()) == ["recovered", "recovered"]
    assert [nights.passes() for _ in range(8)] == [[]] * 8


@pytest.mark.parametrize("seed", range(5))
def test_an_open_alarm_is_not_told_again_as_another(nights: Nights, seed: int) -> None:
    nights.rng = np.random.default_rng(seed)
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    told = [states(nights.passes()) for _ in range(40)]
    first = told.index(["new"])
    assert told[first + 1 :] == [["open"]] * (39 - first)


def test_an_alarm_ends_where_all_is_better_than_it_was(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["open"]
    nights.level = 120.0
    assert states(nights.passes()) == ["recovered"]


def test_what_was_zero_can_be_zero_again(nights: Nights) -> None:
    nights.metric, nights.level = "retransmits", 0.0
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 0.02
    told = [states(nights.passes()) for _ in range(4)]
    assert told[-1] == ["open"]
    nights.level = 0.01
    assert states(nights.passes()) == ["open"]
    nights.level = 0.0
    assert states(nights.passes()) == ["recovered"]
    assert [nights.passes() for _ in range(4)] == [[]] * 4


def test_what_is_known_does_not_hide_what_is_worse(nights: Nights) -> None:
    known = Acknowledgement(
        point="abc",
        metric="goodput",
        since=date(2026, 1, 1),
        reason="a slower disk",
        expires=date(2026, 2, 1),
    )
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4)):
        nights.level = level
        told = [nights.passes(known=[known]) for _ in range(count)]
    assert states(told[-1]) == ["acknowledged", "open"]
    assert [finding.alarm for finding in told[-1]] == [False, True]


@pytest.mark.parametrize("least", [0.0, LEAST])
def test_exact_values_that_are_worse_than_an_open_alarm(nights: Nights, least: float) -> None:
    told = []
    for number, value in enumerate([5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 4.0, 5.0, 5.0], 1):
        name = night(number)
        nights.history.add(name, KERNEL, "x", rows(name, value))
        told.append(states(list(judge(nights.history, name, least, [], lambda _, v=value: [v], exact=True))))  # type: ignore[misc]
    assert told == [
        *([], [], ["new"], ["open"]),
        *(["open", "new"], ["open", "open"], ["open", "recovered"], ["recovered"], []),
    ]


def test_an_improvement_is_told_once_and_is_what_is_expected_from_then_on(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 110.0
    told = [finding for _ in range(10) for finding in nights.passes()]
    assert [(finding.state, finding.worse) for finding in told] == [("new", False)]
    nights.level = 100.0
    assert [(f.state, f.worse) for _ in range(4) for f in nights.passes()][:1] == [("new", True)]


def test_what_is_not_there_when_it_is_measured_again_is_no_alarm(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    nights.again = lambda _: [100.1, 99.8, 100.3, 99.9, 100.0, 100.2, 99.7, 100.4]  # type: ignore[method-assign]
    told = [state for _ in range(3) for state in states(nights.passes())]
    assert told
    assert set(told) == {"not confirmed"}
    assert nights.history.alarms() == []


def test_another_testbed_begins_another_series(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 50.0
    assert [nights.passes({"sender1 kernel": "6.18.0"}) for _ in range(8)] == [[]] * 8
    assert len({series.key.fingerprint for series in nights.history.series()}) == 2


def test_what_is_known_is_no_alarm_until_it_expires(nights: Nights) -> None:
    known = Acknowledgement(
        point="abc",
        metric="goodput",
        since=date(2026, 1, 1),
        reason="a slower disk",
        expires=date(2026, 1, 12),
    )
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    told = [states(nights.passes(known=[known])) for _ in range(6)]
    assert {state for found in told[:4] for state in found} == {"acknowledged"}
    assert told[4] == ["open"]


def test_invalid_points_are_not_kept(nights: Nights) -> None:
    nights.history.add(night(1), KERNEL, "x", rows("run", 1.0, verdict="invalid"))
    assert nights.history.series() == []


def test_a_series_is_the_median_of_each_night(nights: Nights) -> None:
    for i, goodputs in enumerate(((3.0, 1.0, 2.0), (5.0, 4.0)), 1):
        nights.history.add(night(i), KERNEL, "x", rows(f"run{i}", *goodputs))
    (series,) = nights.history.series()
    assert (series.nights, series.medians, series.runs) == (
        (night(1), night(2)),
        (2.0, 4.5),
        ("run1", "run2"),
    )
    assert nights.history.testbed(series.key.fingerprint) == KERNEL


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


def test_few_nights_say_nothing() -> None:
    assert changes([1.0, 1.0, 2.0, 2.0], LEAST) == []


def test_an_old_change_is_no_news() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998] + [2.0, 2.001, 1.999, 2.0] * 5
    assert [change.index for change in changes(values, LEAST)] == [6]
    assert fresh(values, LEAST) is None


def test_what_is_measured_again_must_go_the_same_way() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.9, 0.901]
    (change,) = changes(values, LEAST)
    assert confirmed(values, change, [0.9, 0.899, 0.901, 0.9, 0.902, 0.898, 0.9, 0.9], LEAST)
    assert not confirmed(values, change, [1.1, 1.101, 1.1, 1.102, 1.099, 1.1, 1.1, 1.1], LEAST)
    assert not confirmed(values, change, [1.0, 0.999, 1.001, 1.0, 1.0, 1.0, 0.998, 1.0], LEAST)


def test_exact_values_need_neither_many_nights_nor_chance() -> None:
    values = [5.0, 5.0, 4.0]
    assert fresh(values, LEAST) is None
    change = fresh(values, LEAST, exact=True)
    assert change is not None
    assert (change.index, change.before, change.after) == (2, 5.0, 4.0)
    assert confirmed(values, change, [4.0], LEAST, exact=True)
    assert not confirmed(values, change, [5.0], LEAST, exact=True)
    assert fresh([5.0, 5.0, 4.95], LEAST, exact=True) is None  # too little to matter


def test_few_values_confirm_nothing() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.9, 0.901]
    (change,) = changes(values, LEAST)
    assert not confirmed(values, change, [0.9], LEAST)


TOLD: dict[str, Any] = {
    "night": night(9),
    "suite": "nightly",
    "status": 1,
    "runs": [
        {"scenario": f"scenarios/{name}.yml", "profile": profile, "state": state, "reasons": reasons}
        | {"directory": "1" if state == "passed" else None}
        for name, profile, state, reasons in (
            ("a", "short", "passed", []),
            ("b", None, "aborted", ["it is off"]),
            ("c", None, "not run", ["no time"]),
        )
    ],
    "findings": [
        {
            **{"fingerprint": "f", "point": "abc", "metric": "goodput", "subject": "tcp"},
            **{"scenario": "on_off_udp", "label": "load=10 mbit, queue=a", "unit": "bps", "state": "new"},
            **{"worse": True, "alarm": True, "since": night(9)},
            **{"before": 1e8, "after": 9e7, "effect": -0.1, "reason": ""},
        }
    ],
}


def test_a_program_is_given_the_night(tmp_path: Path) -> None:
    got: list[bytes] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        post = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--data-binary", "@-", url]
        assert tell.notify(post, json.dumps(TOLD)) == ""
        server.shutdown()
    assert [json.loads(body) for body in got] == [TOLD]
    assert tell.notify(["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", url], "x").startswith(
        "nobody was told: curl says: curl: (7)"
    )
    assert "nobody was told" in tell.notify([str(tmp_path / "missing")], "x")


def test_annotations_are_line_protocol() -> None:
    (line,) = tell.rows(TOLD)
    tags = "suite=nightly,scenario=on_off_udp,point=abc,metric=goodput,subject=tcp,state=new"
    what = "goodput of tcp, load=10 mbit, queue=a of on_off_udp: 100 Mbit/s to 90 Mbit/s, -10.0%"
    assert line == (
        f'annotation,{tags} title="goodput new",text="new: {what} since 20260109T020000Z"'
        " 1767924000000000000\n"
    )


def test_what_was_zero_has_no_relative_change() -> None:
    was_zero = {"metric": "retransmits", "unit": "share", "before": 0.0, "effect": None}
    said = page.sentence({**TOLD["findings"][0], **was_zero})
    assert "retransmits of tcp" in said
    assert "%, " not in said


def test_junit_has_a_case_for_each_run_and_finding() -> None:
    suite = ET.fromstring(page.junit(TOLD))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [case.get("name") for case in suite] == [
        "scenarios/a.yml short",
        "scenarios/b.yml",
        "scenarios/c.yml",
        "load=10 mbit, queue=a goodput tcp",
    ]


def test_the_page_shows_a_boundary_between_testbeds(nights: Nights, tmp_path: Path) -> None:
    for testbed in ({"sender1 kernel": "6.12"}, {"sender1 kernel": "6.18"}):
        for _ in range(3):
            nights.passes(testbed)
    text = page.render(tmp_path, nights.history).read_text()
    assert text.count("<svg") == 1
    assert "Another testbed since 2026-01-04: sender1 kernel 6.12 to 6.18" in text


def test_another_setting_of_a_host_is_another_testbed(collected: Path, tmp_path: Path) -> None:
    """A default of a network card is told by its name, and raises no alarm."""
    with closing(History(tmp_path / "history.sqlite")) as history:
        for number in range(1, 7):
            run_dir = Path(shutil.copytree(collected, tmp_path / night(number)))
            file = run_dir / "raw/router/measurement/observed.json"
            if number > 3:
                old, new = (f'"vec1 feature tx-checksumming": "{on}"' for on in ("on", "off"))
                text = file.read_text()
                assert old in text
                file.write_text(text.replace(old, new))
            assert history.record(night(number), run_dir) == []
            assert list(judge(history, night(number), LEAST, [], no_more)) == []
        found = page.render(tmp_path, history).read_text()
    boundary = "Another testbed since 2026-01-04: router vec1 feature tx-checksumming on to off."
    assert boundary in found
    assert "router settings" not in found


def no_more(_: Series) -> Sequence[float]:
    raise NotMeasured("there is no testbed")


def test_a_history_from_before_settings_were_kept_goes_on(nights: Nights, tmp_path: Path) -> None:
    nights.passes()
    nights.history._db.execute("DROP TABLE settings")
    nights.history.close()
    nights.history = History(tmp_path / "history.sqlite")
    nights.passes({**KERNEL, "sender1 settings": "0123456789ab"})
    old, new = (series.key.fingerprint for series in nights.history.series())
    assert nights.history.differ(old, new) == [("sender1 settings", None, "0123456789ab")]


@pytest.fixture
def playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playbook:
    return Playbook.install(tmp_path / "bin", monkeypatch)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and verdict of a point of FAIRNESS in the lab."""
    run_dir = tmp_path_factory.mktemp("measured") / "run"
    write_run(run_dir, FAIRNESS)
    collect(run_dir, None)
    (run_dir / "plan.json").write_bytes(plan(FAIRNESS, Inventory.read(INVENTORY)).to_json())
    return run_dir


FAIRNESS = REPOSITORY / "scenarios" / "two_flow_fairness.yml"
ONE_RUN = Suite(name="x", title="y", runs=[Entry(scenario=str(FAIRNESS))])


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
        (series,) = history.series()
    assert (series.key.metric, series.key.subject, series.unit) == ("rtt", "probe", "ns")
    assert list(series.medians) == pytest.approx([10_140_000], rel=0.01)
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


def test_what_is_no_number_is_not_kept(nights: Nights) -> None:
    nights.history.add(night(1), KERNEL, "x", rows("run", float("nan"), float("inf"), 5.0))
    assert [series.medians for series in nights.history.series()] == [(5.0,)]


def of_a_run(run_dir: Path) -> Series:
    key = Key("testbed", plan(FAIRNESS, Inventory.read(INVENTORY)).points[0].id, "goodput", "flow1")
    return Series(key, "two_flow_fairness", "-", "bps", (night(1),), (1.0,), (str(run_dir),))


def test_points_are_measured_again_within_the_budget(
    measured: Path, playbook: Playbook, tmp_path: Path
) -> None:
    wanted = plan(FAIRNESS, Inventory.read(INVENTORY))
    outcome = Outcome(ONE_RUN.runs[0], "passed", (), tmp_path / "run")

    def again(limit_ns: int | None) -> Remeasured:
        return Remeasured(INVENTORY, tmp_path, [(outcome, wanted)], Budget(limit_ns))

    with pytest.raises(
        NotMeasured, match=r"it takes about 2 min, and \d+ \w+ are left of the budget of 1 min"
    ):
        again(60 * 10**9)(of_a_run(tmp_path / "run"))
    with pytest.raises(NotMeasured, match="no longer in the suite"):
        again(None)(of_a_run(tmp_path / "another"))
    assert playbook.asked == []
    for _ in range(3):
        playbook.leaves("two_flow_fairness", {}, copy=measured)
    with pytest.raises(NotMeasured, match="not valid"):
        again(None)(of_a_run(tmp_path / "run"))
    assert len(playbook.asked) == 8
    point = wanted.points[0].id
    assert {asked["point"] for asked in playbook.asked} == {point}
    assert {asked["results_dir"] for asked in playbook.asked} == {str(tmp_path / "again" / point)}


def test_what_was_not_measured_again_is_not_confirmed_and_does_not_end(nights: Nights) -> None:
    def refused(_: Series) -> Sequence[float]:
        raise NotMeasured("no time")

    measure = nights.again
    for _ in range(8):
        nights.passes()
    nights.level, nights.again = 90.0, refused  # type: ignore[method-assign]
    told = [finding for _ in range(3) for finding in nights.passes()]
    assert {(finding.state, finding.reason) for finding in told} == {
        ("not confirmed", "it was not measured again: no time")
    }
    nights.again = measure  # type: ignore[method-assign]
    assert states(nights.passes()) == ["new"]
    nights.level, nights.again = 100.0, refused  # type: ignore[method-assign]
    (finding,) = nights.passes()
    assert (finding.state, finding.reason) == ("open", "it was not measured again: no time")


def test_a_series_that_cannot_be_judged_keeps_no_other_from_it(nights: Nights) -> None:
    def broken(_: Series) -> Sequence[float]:
        raise OSError("disk")

    nights.again = broken  # type: ignore[method-assign]
    for level in (100.0,) * 8 + (90.0,) * 3:
        nights.level = level
        told = nights.passes()
    assert [(finding.state, finding.reason) for finding in told] == [("not confirmed", "OSError: disk")]
