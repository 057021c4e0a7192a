"""What is kept of nights, and where another testbed begins."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from dumbbell.nightly import page
from dumbbell.nightly.history import History, Series
from dumbbell.nightly.judge import NotMeasured, judge
from nightly.nights import KERNEL, LEAST, Nights, night, rows


def test_another_testbed_begins_another_series(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 50.0
    assert [nights.passes({"sender1 kernel": "6.18.0"}) for _ in range(8)] == [[]] * 8
    assert len({series.key.fingerprint for series in nights.history.series()}) == 2


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


def test_what_is_no_number_is_not_kept(nights: Nights) -> None:
    nights.history.add(night(1), KERNEL, "x", rows("run", float("nan"), float("inf"), 5.0))
    assert [series.medians for series in nights.history.series()] == [(5.0,)]
