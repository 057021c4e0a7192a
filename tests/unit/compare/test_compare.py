from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumbbell import analysis
from dumbbell.analysis.statistics import holm, rank_test
from dumbbell.metrics.registry import PERCENTILES
from dumbbell.metrics.values import VALUES, values
from dumbbell.report.pages.comparison import Comparison


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


@pytest.mark.parametrize("metric", ["goodput", "rtt", "rtt p95", "jain_index"])
def test_one_metric_alone_is_as_among_all(collected: Path, metric: str) -> None:
    of_all = values(collected, PERCENTILES).filter(metric=metric)
    assert of_all.height
    assert values(collected, PERCENTILES, metric).equals(of_all)


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
    assert "the same values" in Comparison([one], [same]).text()
    longer = pl.read_parquet(other / "tcp_info.parquet").with_columns(pl.col("srtt_us") + 1)
    longer.write_parquet(other / "tcp_info.parquet")
    assert "other values" in Comparison([one], [other]).text()
    assert Comparison([one], [other]).notes() == [
        "-, repetition 1, in virtual time: samples that differ: tcp_info"
    ]
    assert Comparison([one], [collected]).notes() == []
    assert Comparison([other, one], [same]).notes() == Comparison([one], [other]).notes()
    assert Comparison([one, same], [same]).notes() == Comparison([one], [same]).notes()


def test_the_side_that_lacks_valid_runs_is_named_with_the_reason(collected: Path, tmp_path: Path) -> None:
    invalid = tmp_path / "20260101T000000Z_x"
    shutil.copytree(collected, invalid)
    reasons = ["sender1-receiver1: idle RTT is 20.8 ms, asked 20 ms ± 400 µs", "more"]
    (invalid / "verdict.json").write_text(json.dumps({"state": "invalid", "reasons": reasons, "checks": []}))
    none = Comparison([invalid], [collected], ("old", "new"))
    why = f"0 of 1 runs of old are valid: {invalid} is invalid: {reasons[0]}"
    assert none.notes() == [why]
    assert why in none.text()
    some = Comparison([invalid, collected], [collected], ("old", "new"))
    assert some.notes() == [f"1 of 2 runs of old are valid: {invalid} is invalid: {reasons[0]}"]
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


def test_further_sets_are_compared_with_the_first(collected: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(collected, tmp_path / "other"))
    several = Comparison([collected], [other], ("a", "b", "c"), others=[[collected, other]])
    assert several.head()[3:] == ("a", "b", "ratio", "95 % interval", "", "c", "ratio", "95 % interval", "")
    two = Comparison([collected], [other], ("a", "b"))
    assert several.rows.filter(side="b").drop("side").equals(two.rows.drop("side"))
    assert [line[:6] for line in several.cells()] == [line[:6] for line in two.cells()]
    assert {line[8] for line in several.cells() if line[1] == "goodput"} == {
        line[4].replace("(1)", "(2)") for line in two.cells() if line[1] == "goodput"
    }
