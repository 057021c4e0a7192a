"""How the path's own delay is found, and when the search for it ends."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.execution import steps
from dumbbell.execution.on_host import PointOnHost
from dumbbell.execution.own_delay import Asked, Trim, attempt
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach

ASKED = Asked(
    rtt_ns=20_000_000, jitters=False, jitter_us=0, tolerance=0.02, max_us=2000, attempts=3
)  # 400 us
WITHIN_US = ASKED.tolerance * ASKED.rtt_ns / 2000


def ping(*rtts_ms: float) -> str:
    return "\n".join(
        f"64 bytes from 198.18.2.21: icmp_seq={n} ttl=63 time={rtt:.3f} ms"
        for n, rtt in enumerate(rtts_ms, 1)
    )


def test_a_path_that_is_as_asked_is_measured_once_and_left_alone() -> None:
    trim = attempt(None, [ping(20.1, 20.3)], ASKED)
    assert trim.own_us == pytest.approx(100)
    assert (trim.trim_us, trim.attempts, trim.changed, trim.again) == (0, 1, False, False)


def test_an_own_delay_is_subtracted_and_measured_once_more() -> None:
    first = attempt(None, [ping(20.9, 20.6), ping(20.8, 20.8)], ASKED)
    assert (first.trim_us, first.changed, first.again) == (350, True, True)  # half the mean of 0.6 and 0.8 ms
    second = attempt(first, [ping(20.0), ping(20.1)], ASKED)
    assert (second.trim_us, second.attempts, second.changed, second.again) == (350, 2, False, False)


def test_pings_that_agree_need_no_second_measurement() -> None:
    agree, busy = ping(20.6, *[20.7] * 9, 24.0), ping(20.6, *[20.7] * 4, *[21.5] * 6)
    trim = attempt(None, [agree, agree], ASKED)
    assert trim.own_us == pytest.approx(600)
    assert (trim.trim_us, trim.attempts, trim.changed, trim.again) == (300, 1, True, False)
    assert attempt(None, [agree, busy], ASKED).again
    assert attempt(None, [ping(*[20.6] * 9)], ASKED).again  # too few to tell


def test_what_a_busy_host_adds_is_given_back() -> None:
    first = attempt(None, [ping(21.6)], ASKED)
    second = attempt(first, [ping(19.0)], ASKED)  # it is 1 ms too short under a correction of 2 * 0.8
    assert (first.trim_us, second.trim_us, second.changed) == (800, 300, True)


def test_a_correction_that_is_too_small_to_be_made_leaves_the_one_that_is_in_force() -> None:
    former = Trim(own_us=1000, trim_us=500, attempts=1)
    after = attempt(former, [ping(19.9)], ASKED)
    assert (after.trim_us, after.changed) == (500, False)
    # What it is measured under is what counts.
    assert attempt(former, [ping(20.5)], ASKED).own_us == 1000


def test_with_jitter_the_median_counts() -> None:
    jitters = Asked(**{**vars(ASKED), "jitters": True})
    assert attempt(None, [ping(15.0, 21.0, 29.0)], jitters).trim_us == 500


def test_what_jitter_does_by_chance_is_not_the_paths_own_delay() -> None:
    jitters = replace(ASKED, jitters=True, jitter_us=3000)
    median_is = [ping(*[rtt] * 11, *[15.0] * 10) for rtt in (22.0, 24.0)]
    assert attempt(None, [median_is[0]], jitters).trim_us == 0  # 21 echoes: +-3.2 ms
    assert attempt(None, [median_is[1]], jitters).trim_us == 2000
    assert attempt(None, [median_is[0]], replace(jitters, jitter_us=300)).trim_us == 1000


@given(
    own_us=st.floats(-3000, 9000),
    noise_us=st.lists(st.floats(0, 5000), min_size=ASKED.attempts, max_size=ASKED.attempts),
)
def test_it_ends_as_soon_as_nothing_changes_and_never_subtracts_more_than_allowed(
    own_us: float, noise_us: list[float]
) -> None:
    emulated_us = 0
    trim: Trim | None = None
    for made, noise in enumerate(noise_us, 1):
        rtt_us = 20_000 + own_us - 2 * emulated_us + noise
        trim = attempt(trim, [ping(rtt_us / 1000)], ASKED)
        assert trim.attempts == made
        assert 0 <= trim.trim_us <= ASKED.max_us
        assert trim.changed == (trim.trim_us != emulated_us)
        emulated_us = trim.trim_us
        if not trim.again:
            break
    assert trim is not None
    assert not trim.again
    assert made == ASKED.attempts or not trim.changed
    if max(noise_us[:made]) == 0 and 0 <= own_us <= 2 * ASKED.max_us:
        assert abs(own_us - 2 * emulated_us) <= WITHIN_US + 2


HOSTS = ("router", "sender1", "receiver1")


def trimmed(host: str, run_dir: Path, others: Trim | None = None) -> dict[str, Any]:
    """What a host decides in the first attempt, if the others have already given these answers to it."""
    path = {"rtt_ns": ASKED.rtt_ns, "jitters": False, "forward": {}, "reverse": {}}
    plan = {"path": path, "validity": {"rtt_tolerance": ASKED.tolerance}}
    answers: dict[str, dict[str, Any]] = {
        "run_stated": {name: {"trims": True} for name in HOSTS},
        "run_pinged": {"sender1": {"said": ping(20.4)}},
        "run_trimmed": {name: {"trim": asdict(others)} for name in HOSTS if name != host and others},
    }
    point = PlannedPoint({"run_id": "r", "plan": plan})
    reach = cast(Reach, None)  # nothing is done to the host
    on = PointOnHost(point, host, HOSTS, reach, lambda name: answers.get(name, {}), print)
    trim: dict[str, Any] = steps.trim(on, str(run_dir), ASKED.max_us, ASKED.attempts)["trim"]
    return trim


@pytest.mark.parametrize("host", HOSTS)
def test_all_hosts_decide_alike_whoever_answers_first(host: str, tmp_path: Path) -> None:
    first = Trim(own_us=400, trim_us=200, attempts=1, changed=True, again=True)
    assert trimmed("sender1", tmp_path) == pytest.approx(asdict(first))
    assert trimmed(host, tmp_path, others=first) == pytest.approx(asdict(first))
