"""Two sets of runs side by side."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in import Playbook
from synthetic import REPOSITORY

from dumbbell import analysis
from dumbbell.analysis.statistics import holm, rank_test
from dumbbell.metrics.values import VALUES, values
from dumbbell.plan import Inventory, plan
from dumbbell.report.pages.comparison import Comparison
from dumbbell.suite import UNEXPLAINED


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


def setting(to: Path, host: str, name: str, value: str) -> None:
    """A run's host had another setting, all the time."""
    file = to / "raw" / host / "measurement/observed.json"
    observed = json.loads(file.read_text())
    for reading in observed.values():
        reading["settings"][name] = value
    file.write_text(json.dumps(observed))


def sysctl(value: str) -> Callable[[dict[str, Any]], None]:
    """All hosts are asked for a sysctl."""

    def change(point: dict[str, Any]) -> None:
        for host in point["hosts"].values():
            host["state"]["sysctls"]["net.ipv4.tcp_sack"] = value

    return change


def test_what_a_profile_left_behind_is_told_first(collected: Path, tmp_path: Path) -> None:
    """Profile a switches SACK off, b asks for nothing; somebody sets rp_filter between two runs of b."""
    a = changed(collected, tmp_path / "a", sysctl("0"))
    for host in ("sender1", "receiver1"):
        setting(a, host, "net.ipv4.tcp_sack", "0")
    assert Comparison([a], [collected, collected], ("a", "b")).unexplained == []
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    for host in ("sender1", "receiver1"):
        setting(other, host, "net.ipv4.conf.all.rp_filter", "1")
    setting(other, "router", "nftables", "5f2c")
    setting(other, "router", "net.ipv4.tcp_congestion_control", "bbr")
    both = Comparison([a], [collected, other], ("a", "b"))
    assert both.unexplained == [
        "receiver1, sender1 net.ipv4.conf.all.rp_filter: 0 in a, 1 of 2 of b; 1 in 1 of 2 of b",
        "router net.ipv4.tcp_congestion_control: cubic in a, 1 of 2 of b; bbr in 1 of 2 of b",
        "router nftables: none in a, 1 of 2 of b; 5f2c in 1 of 2 of b",
    ]
    text = both.text()
    assert text.startswith(
        "Settings of hosts that differ, and nothing explains it:\n- receiver1, sender1 net"
    )
    assert text.index("rp_filter") < text.index("goodput")
    assert "rp_filter" in both.table().data
    assert "--accept" in both.no_verdict()
    assert "goodput" not in both.no_verdict()


def test_what_is_accepted_is_told_among_the_notes(collected: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    setting(other, "router", "nftables", "5f2c")
    setting(other, "router", "service irqbalance", "running")
    some = Comparison([collected], [other], ("a", "b"), ["nft*"])
    assert some.unexplained == ["router service irqbalance: absent in a; running in b"]
    assert some.notes() == ["accepted: router nftables: none in a; 5f2c in b"]
    all_of_it = Comparison([collected], [other], ("a", "b"), ["nftables", "service *"])
    assert all_of_it.unexplained == []
    assert not all_of_it.mail().startswith("Settings of hosts")


def test_settings_that_come_with_a_kernel_stand_apart(collected: Path, tmp_path: Path) -> None:
    def kernel(point: dict[str, Any]) -> None:
        point["hosts"]["sender1"]["state"]["kernel"] = "6.18.0"

    other = changed(collected, tmp_path / "new", kernel)
    for name in ("kernel release", "mitigation spectre_v2", "net.ipv4.tcp_plb_enabled"):
        setting(other, "sender1", name, "6.18.0")
    both = Comparison([collected], [other], ("old", "new"))
    assert both.unexplained == []
    assert (
        "settings that come with the kernels, of sender1: kernel release, mitigation spectre_v2, "
        "net.ipv4.tcp_plb_enabled"
    ) in both.notes()


def test_settings_that_are_gone_are_not_taken_for_equal(collected: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(collected, tmp_path / "b"))
    (other / "raw/router/measurement/observed.json").unlink()
    both = Comparison([collected], [other], ("a", "b"))
    with pytest.raises(ValueError, match=r"b: settings of router not known: observed\.json cannot be read"):
        both.text()


def test_runs_that_kept_no_settings_are_counted(collected: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(collected, tmp_path / "old"))
    plan = json.loads((older / "plan.json").read_text())
    (older / "plan.json").write_text(json.dumps(plan | {"schema_version": 1}))
    assert Comparison([older], [collected], ("a", "b")).notes() == [
        "1 of 1 valid runs of a kept no settings of hosts"
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


AB = """\
profiles:
  a: {hosts: {testbed: {sysctls: {net.ipv4.tcp_sack: 0}}}}
  b: {}
"""


def load_fabfile() -> Any:
    spec = importlib.util.spec_from_file_location("fabfile", REPOSITORY / "fabfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def leaking(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """``fab ab`` of two profiles, of which b meets settings that are not those of a; status and output."""
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text()
    (tmp_path / "leak.yml").write_text(text.partition("profiles:")[0] + AB)
    playbook = Playbook.install(tmp_path / "bin", monkeypatch)
    lab = REPOSITORY / "inventory" / "lab"

    def run(settings: Mapping[str, str], *, accept: str = "") -> tuple[int, str]:
        for profile in "ab":
            own = Path(shutil.copytree(collected, tmp_path / f"left_{profile}", dirs_exist_ok=True))
            for name, value in settings.items() if profile == "b" else [("net.ipv4.tcp_sack", "0")]:
                setting(own, "sender1", name, value)
            planned = plan(tmp_path / "leak.yml", Inventory.read(lab), profile)
            playbook.leaves(planned.scenario, {"plan.json": planned.to_json().decode()}, own)
        said = io.StringIO()
        with redirect_stdout(said):
            try:
                load_fabfile().ab.body(None, "leak.yml", "a", "b", 1, str(lab), accept)
            except SystemExit as end:
                return int(end.code or 0), said.getvalue()
        return 0, said.getvalue()

    return run


def test_ab_of_what_the_profiles_ask_for(leaking: Callable[..., tuple[int, str]]) -> None:
    status, said = leaking({})
    assert (status, "goodput" in said) == (0, True)
    assert "sysctls net.ipv4.tcp_sack of" in said


def test_ab_gives_no_verdict_on_what_nobody_asked_for(leaking: Callable[..., tuple[int, str]]) -> None:
    settings = {"net.ipv4.conf.all.rp_filter": "1", "nftables": "5f2c"}
    status, said = leaking(settings)
    assert status == UNEXPLAINED
    assert "- sender1 net.ipv4.conf.all.rp_filter: 0 in a; 1 in b\n" in said
    assert "- sender1 nftables: none in a; 5f2c in b\n" in said
    assert "goodput" not in said
    # The runs are there and count.
    assert leaking(settings, accept="nftables")[0] == UNEXPLAINED
    status, said = leaking(settings, accept="nftables,net.ipv4.conf.*")
    assert (status, "goodput" in said) == (0, True)
    assert "accepted: sender1 nftables: none in a; 5f2c in b" in said
