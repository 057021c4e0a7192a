"""What is kept of nights, and where another testbed begins."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dumbbell.compare.observed import Change
from dumbbell.nightly import page
from dumbbell.nightly.history import History
from dumbbell.nightly.identity import Identity, identity, in_words
from dumbbell.nightly.judge import NotMeasured, judge
from nightly.nights import FIXTURES, KERNEL, LEAST, Nights, night, rows

BED = {"sender1 machine": "old", "sender1 kernel": "6.12"}


def test_another_testbed_begins_another_series(nights: Nights) -> None:
    for _ in range(8):
        nights.passes(BED)
    nights.level = 50.0
    assert [nights.passes({**BED, "sender1 machine": "new"}) for _ in range(8)] == [[]] * 8
    assert len({series.key.fingerprint for series in nights.history.series()}) == 2


def test_another_kernel_or_commit_goes_on_with_the_series(nights: Nights) -> None:
    for conditions in (BED, {**BED, "sender1 kernel": "7.2"}, {**BED, "controller checkout": "abc"}):
        nights.passes(conditions)
    (series,) = nights.history.series()
    assert len(series.nights) == 3
    assert [len(set(of)) for of in (series.tested, series.instrument)] == [2, 2]
    assert nights.history.conditions(series.tested[1]) == {"sender1 kernel": "7.2"}


def settings(kernel: str, **of: str) -> dict[str, dict[str, str]]:
    return {"sender1": {"kernel release": kernel, "vec1 firmware": "1"} | of}


def test_defaults_of_a_kernel_are_known_from_its_first_night(nights: Nights) -> None:
    """Another kernel may have others; the same kernel has the same, or somebody has set them."""
    for number, kernel, of in (
        (1, "6.12", {"net.ipv4.tcp_ecn": "2"}),
        (2, "7.2", {"net.ipv4.tcp_ecn": "5"}),
        (3, "6.12", {"net.ipv4.tcp_ecn": "2"}),
        (4, "7.2", {"net.ipv4.tcp_ecn": "0"}),  # somebody has set it
        (5, "6.12", {"net.ipv4.tcp_ecn": "2"}),
        (6, "6.12", {"net.ipv4.tcp_ecn": "2", "vec1 firmware": "2"}),
    ):
        found = identity({"sender1 kernel": kernel}, settings(kernel, **of))
        nights.history.add(night(number), found, "x", rows(f"run{number}", 1e8))
    series = nights.history.series()
    assert [of.nights for of in series] == [
        tuple(map(night, (1, 2, 3))),
        tuple(map(night, (4, 5))),
        (night(6),),
    ]
    one, two, three = (of.key for of in series)
    assert nights.history.differ(one, two) == [("sender1 net.ipv4.tcp_ecn", "5", "0")]
    assert nights.history.differ(two, three) == [("sender1 vec1 firmware", "1", "2")]


def test_a_setting_that_an_earlier_dumbbell_took_for_the_site_s_begins_no_series(nights: Nights) -> None:
    line = "mem=4G ro init=/worlds/{}/init seccomp=auto"

    def had(mtu: str) -> Identity:
        own = {"vec1 firmware": "1", "kernel command line": line.format(2), "sit0 mtu": mtu}
        return identity(BED, {"sender1": own})

    today = had("1480")
    assert today.defaults["sender1"] == {"kernel command line": "mem=4G ro seccomp=auto", "sit0 mtu": "1480"}
    of_site = {**today.site["sender1"], "kernel command line": line.format(1), "sit0 mtu": "1480"}
    former = replace(today, site={"sender1": of_site}, defaults={"sender1": {}})
    for number, found in enumerate((former, today, today, had("1400")), 1):
        nights.history.add(night(number), found, "x", rows(f"run{number}", 1.0))
    one, other = nights.history.series()
    assert (one.nights, other.nights) == ((night(1), night(2), night(3)), (night(4),))
    assert nights.history.differ(one.key, other.key) == [("sender1 sit0 mtu", "1480", "1400")]


def test_conditions_of_hosts_that_are_the_same_are_told_once() -> None:
    found = [Change(f"{host} kernel", "6.12", "7.2") for host in ("a", "b")]
    assert (
        in_words([*found, Change("warm-up", None, "5 s")]) == "a, b kernel 6.12 to 7.2; warm-up none to 5 s"
    )


def test_of_many_conditions_the_first_are_told() -> None:
    found = [Change(f"a nic vec{i}", None, "x") for i in range(8)]
    assert in_words(found).endswith("a nic vec4 none to x; 3 more")
    assert in_words(found[:6]).endswith("a nic vec5 none to x")


def test_a_history_of_the_former_format_goes_on(collected: Path, tmp_path: Path) -> None:
    """Of six nights: another commit in the third, another kernel in the fourth, another card in the sixth."""
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as former:
        former.executescript((FIXTURES / "nights" / "history-1.sql").read_text())
    with closing(History(tmp_path / "history.sqlite")) as history:
        series = [of for of in history.series() if (of.key.metric, of.key.subject) == ("goodput", "flow1")]
        assert [of.nights for of in series] == [tuple(map(night, range(1, 6))), (night(6),)]
        one, other = series
        kernels = [history.conditions(of)["sender1 kernel"] for of in one.tested]
        assert kernels == ["6.12.0-synthetic"] * 3 + ["7.2.12-synthetic"] * 2
        assert [history.conditions(of)["controller checkout"] for of in one.instrument] == [
            *["aaaaaaa"] * 2,
            *["bbbbbbb"] * 3,
        ]
        changed = ("sender1 nic vec1", None, "mlx5_core 16.35")
        assert history.differ(one.key, other.key) == [changed]
        (alarm,) = history.alarms()
        assert (alarm.key, alarm.since, alarm.before, alarm.closed) == (one.key, night(2), 5e7, None)
        assert history.record(night(7), collected) == []
        again = [of for of in history.series() if of.key == one.key]
        assert [of.nights for of in again] == [(*one.nights, night(7))]
    History(tmp_path / "history.sqlite").close()


def test_a_history_of_a_later_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(ValueError, match=r"history\.sqlite has version 99, and this Dumbbell reads up to 2"):
        History(tmp_path / "history.sqlite")


def test_invalid_points_are_not_kept(nights: Nights) -> None:
    nights.history.add(night(1), identity(KERNEL, {}), "x", rows("run", 1.0, verdict="invalid"))
    assert nights.history.series() == []


def test_a_series_is_the_median_of_each_night(nights: Nights) -> None:
    for i, goodputs in enumerate(((3.0, 1.0, 2.0), (5.0, 4.0)), 1):
        nights.history.add(night(i), identity(KERNEL, {}), "x", rows(f"run{i}", *goodputs))
    (series,) = nights.history.series()
    assert (series.nights, series.medians, series.runs) == (
        (night(1), night(2)),
        (2.0, 4.5),
        ("run1", "run2"),
    )
    assert nights.history.conditions(series.tested[0]) == KERNEL


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


def no_more(*_: object) -> Sequence[tuple[float, float]]:
    raise NotMeasured("there is no testbed")


def test_what_is_no_number_is_not_kept(nights: Nights) -> None:
    nights.history.add(night(1), identity(KERNEL, {}), "x", rows("run", float("nan"), float("inf"), 5.0))
    assert [series.medians for series in nights.history.series()] == [(5.0,)]
