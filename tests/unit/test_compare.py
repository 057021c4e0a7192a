"""Two sets of runs side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumbbell import analysis
from dumbbell.analysis.statistics import holm, rank_test
from dumbbell.report.comparison import Comparison
from dumbbell.store.values import VALUES, values


def table(*of: Sequence[float], verdict: str = "passed", point: str = "rate=10mbit") -> pl.DataFrame:
    rows = [
        ("run", "id", point, i, verdict, f"metric{m}", "flow1", "bps", float(value))
        for m, metric in enumerate(of)
        for i, value in enumerate(metric)
    ]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def test_a_difference_that_many_repetitions_show() -> None:
    (row,) = analysis.compare(table(range(100, 110)), table(range(200, 210))).to_dicts()
    assert (row["n_a"], row["n_b"]) == (10, 10)
    assert (row["median_a"], row["median_b"]) == (104.5, 204.5)
    assert row["ratio"] == pytest.approx(204.5 / 104.5)
    assert row["low"] < row["ratio"] < row["high"]
    assert row["differ"] is True


def test_of_exact_values_one_is_enough() -> None:
    for other, differs in ((100, False), (100.5, True)):
        (row,) = analysis.compare(table([100]), table([other]), exact=True).to_dicts()
        assert row["differ"] is differs
    assert analysis.compare(table([100]), table([900]))["differ"].to_list() == [None]


def runs(*of: tuple[int, float]) -> pl.DataFrame:
    """Values of a metric, by repetition."""
    rows = [
        (f"run{i}", "id", "-", repetition, "passed", "goodput", "flow1", "bps", value)
        for i, (repetition, value) in enumerate(of)
    ]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        ([(1, 5.0), (1, 5.0)], [(1, 5.0)], False),  # the same plan was run once more
        ([(1, 5.0), (2, 7.0)], [(2, 7.0), (1, 5.0)], False),
        ([(1, 5.0), (2, 7.0)], [(1, 7.0), (2, 5.0)], True),
        ([(1, 5.0), (2, 7.0), (3, 9.0)], [(1, 5.0), (2, 7.0)], False),  # the third has nothing to meet
        ([(1, 5.0), (1, 6.0)], [(1, 5.0)], True),
        ([(1, 5.0)], [(2, 5.0)], None),
    ],
)
def test_exact_values_are_compared_by_repetition(
    a: list[tuple[int, float]], b: list[tuple[int, float]], differs: bool | None
) -> None:
    """A repetition has a seed of its own, and the same seed gives the same value however often it is run."""
    for one, other in ((a, b), (b, a)):
        (row,) = analysis.compare(runs(*one), runs(*other), exact=True).to_dicts()
        assert row["differ"] is differs


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([5.0, 6.0])), min_size=1), st.randoms())
def test_order_and_number_of_exact_values_do_not_matter(of: list[tuple[int, float]], random: Random) -> None:
    more = of + random.choices(of, k=3)
    random.shuffle(more)
    (row,) = analysis.compare(runs(*of), runs(*more), exact=True).to_dicts()
    assert row["differ"] is False


def test_the_detectable_change_is_of_the_corrected_test() -> None:
    first = [100, 101, 102, 103, 104]
    (alone,) = analysis.compare(table(first), table(first)).to_dicts()
    among_ten = analysis.compare(table(*[first] * 10), table(*[first] * 10)).to_dicts()
    assert alone["detectable"] == analysis.detectable([float(x) for x in first])
    assert among_ten[0]["detectable"] == pytest.approx(analysis.detectable(first, tests=10))
    assert among_ten[0]["detectable"] > 1.3 * alone["detectable"]


def test_the_same_is_not_shown_to_differ() -> None:
    (row,) = analysis.compare(table(range(100, 110)), table(range(100, 110))).to_dicts()
    assert row["ratio"] == 1
    assert row["p"] == 1
    assert row["differ"] is False


def test_few_repetitions_show_nothing_however_far_apart() -> None:
    (row,) = analysis.compare(table([1, 2, 3]), table([100, 200, 300])).to_dicts()
    assert row["differ"] is None
    # Five of each could show one difference (p at least 2/252), but not one of ten.
    assert analysis.compare(table(range(5)), table(range(9, 14)))["differ"].to_list() == [True]
    many = [range(5)] * 10, [range(9, 14)] * 10
    assert analysis.compare(table(*many[0]), table(*many[1]))["differ"].to_list() == [None] * 10


def test_a_table_for_a_mail_is_no_wider_than_one(collected: Path) -> None:
    text = Comparison([collected], [collected], ("linux-6.12", "linux-6.18")).mail()
    assert "1 of 1 runs of linux-6.12 and 1 of 1 runs of linux-6.18" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 78


def test_a_mail_tells_too_few_from_no_difference(collected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Comparison([collected], [collected], ("a", "b"))
    text = both.mail()
    assert all("?" in line for line in text.splitlines() if " flow1 " in line)
    assert "? too few repetitions" in " ".join(text.split())
    many = pl.concat([values(collected).with_columns(run=pl.lit(f"run{i}")) for i in range(20)])
    both = Comparison([collected], [collected], ("a", "b"))
    both.rows = analysis.compare(many, many)
    assert "?" not in both.mail()
    assert "others are not shown to differ" in " ".join(both.mail().split())


def test_only_valid_runs_count() -> None:
    assert analysis.compare(table([1, 2], verdict="invalid"), table([1, 2])).is_empty()


def test_points_are_matched_by_what_varies() -> None:
    a = pl.concat([table([1.0]), table([1.0], point="rate=20mbit")])
    b = pl.concat([table([2.0]), table([2.0], point="rate=30mbit")])
    assert analysis.compare(a, b)["point"].to_list() == ["rate=10mbit"]
    names = ("cubic", "reno")
    assert analysis.only_one_has(a, b, names) == ["only cubic has rate=20mbit", "only reno has rate=30mbit"]
    assert analysis.only_one_has(a, a.clear(), names) == []


def test_p_of_ranks_and_its_correction() -> None:
    # Of C(8, 4) = 70 ways to rank four of each the two extreme ones are as far apart: 2/70.
    assert rank_test([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1, 1]


def test_values_of_a_run_are_those_of_its_verdict(collected: Path) -> None:
    found = values(collected)
    assert set(found["metric"]) == {
        "utilisation",
        "jain_index",
        "goodput",
        "retransmits",
        "time_in_recovery",
        "rtt",
    }
    goodputs = found.filter(metric="goodput")
    flows = pl.read_parquet(collected / "flows.parquet").filter(phase="measurement")
    assert dict(goodputs.select("subject", "value").rows()) == dict(
        flows.select("name", "goodput_bps").rows()
    )


def test_what_is_said_of_two_runs(collected: Path) -> None:
    both = Comparison([collected], [collected])
    assert "goodput" in both.text()
    assert "too few repetitions" in both.text()
    assert both.notes() == []
    assert "too few repetitions" in both.table().data
    assert "goodput flow1" in both.figure().data


def test_of_two_runs_in_virtual_time_the_samples_that_differ_are_said(
    collected: Path, tmp_path: Path
) -> None:
    sides = []
    for name, digest in (("one", "aa"), ("same", "aa"), ("other", "bb")):
        sides.append(tmp_path / name)
        shutil.copytree(collected, sides[-1])
        manifest = json.loads((sides[-1] / "manifest.json").read_text())
        manifest["digests"] = {"tcp_info": digest, "qdisc": "cc"}
        (sides[-1] / "manifest.json").write_text(json.dumps(manifest))
    one, same, other = sides
    assert Comparison([one], [same]).notes() == ["-, repetition 1, in virtual time: all samples are the same"]
    assert "not shown to differ" in Comparison([one], [same]).text()
    assert Comparison([one], [other]).notes() == [
        "-, repetition 1, in virtual time: samples that differ: tcp_info"
    ]
    assert Comparison([one], [collected]).notes() == []
    assert Comparison([other, one], [same]).notes() == Comparison([one], [other]).notes()
    assert Comparison([one, same], [same]).notes() == Comparison([one], [same]).notes()


def test_other_kernels_are_said(collected: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(collected, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["hosts"]["sender1"]["kernel"] = "6.18.0"
    (other / "manifest.json").write_text(json.dumps(manifest))
    (note,) = Comparison([collected], [other]).notes()
    assert note == "sender1 kernel: 6.12.0-synthetic in the first, 6.18.0 in the second"


def changed(run_dir: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose point was planned in another way."""
    shutil.copytree(run_dir, to)
    plan = json.loads((to / "plan.json").read_text())
    change(plan["points"][0])
    (to / "plan.json").write_text(json.dumps(plan))
    return to


def test_settings_that_differ_are_said(collected: Path, tmp_path: Path) -> None:
    def change(point: dict[str, Any]) -> None:
        point["path"]["forward"]["rate_bps"] = 100_010_000
        point["path"]["forward"]["loss"] = 0.0001
        point["phases"][1]["duration_ns"] = 60 * 10**9
        for host in ("sender1", "sender2"):
            point["hosts"][host]["state"]["sysctls"]["net.ipv4.tcp_sack"] = "0"
        point["phases"][1]["flows"][0]["server_port"] += 1

    other = changed(collected, tmp_path / "run", change)
    assert Comparison([collected], [other], ("a", "b")).notes() == [
        "duration of measurement: 30s in a, 1min in b",
        "forward rate of path: 100mbit in a, 100010kbit in b",
        "forward loss of path: 0.0 in a, 0.0001 in b",
        "sysctls net.ipv4.tcp_sack of sender1, sender2: none in a, 0 in b",
    ]


def test_settings_of_pings_that_differ_are_said(collected: Path, tmp_path: Path) -> None:
    def pinging(interval_ns: int) -> Callable[[dict[str, Any]], None]:
        ping = {"at_ns": 0, "kind": "ping", "name": "probe", "dst": "198.18.2.11", "count": 10}
        action = ping | {"interval_ns": interval_ns}
        return lambda point: point["phases"][1]["hosts"]["sender1"]["actions"].append(action)

    slow = changed(collected, tmp_path / "slow", pinging(10**9))
    fast = changed(collected, tmp_path / "fast", pinging(10**8))
    assert Comparison([slow], [fast], ("slow", "fast")).notes() == [
        "interval of ping probe: 1s in slow, 100ms in fast"
    ]


def test_the_side_that_lacks_valid_runs_is_named_with_the_reason(collected: Path, tmp_path: Path) -> None:
    invalid = tmp_path / "20260101T000000Z_x"
    shutil.copytree(collected, invalid)
    reasons = ["sender1-receiver1: idle RTT is 20.8 ms, asked 20 ms ± 400 µs", "more"]
    (invalid / "verdict.json").write_text(json.dumps({"state": "invalid", "reasons": reasons, "checks": []}))
    none = Comparison([invalid], [collected], ("old", "new"))
    why = f"0 of 1 runs of old are valid: {invalid} is invalid: {reasons[0]}"
    assert none.notes() == [why]
    assert why in " ".join(none.mail().split())
    some = Comparison([invalid, collected], [collected], ("old", "new"))
    assert some.notes() == [f"1 of 2 runs of old are valid: {invalid} is invalid: {reasons[0]}"]
    assert "1 of 2 runs of old and 1 of 1 runs of new" in " ".join(some.mail().split())
    assert Comparison([], [collected], ("old", "new")).notes() == ["no run of old came to a verdict"]


def test_a_run_without_tables_or_verdict_is_in_the_way_of_no_other(collected: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(collected, tmp_path / "broken"))
    (broken / "verdict.json").write_text(json.dumps({"state": "invalid", "reasons": ["lost"], "checks": []}))
    (broken / "udp.parquet").unlink()
    under_way = Path(shutil.copytree(collected, tmp_path / "under_way"))
    (under_way / "verdict.json").unlink()
    alone = Comparison([collected], [collected])
    for run_dir, fate in (
        (broken, "is invalid: lost"),
        (under_way, "has no verdict"),
        (tmp_path / "none", "is no directory of a run"),
    ):
        both = Comparison([collected, run_dir], [collected])
        assert both.rows.equals(alone.rows)
        assert both.notes() == [f"1 of 2 runs of the first are valid: {run_dir} {fate}"]


def test_a_directory_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"plan\.json"):
        values(tmp_path)
