"""What TCP Rapid computes: p-streams, and the available bandwidth of paths whose queues are simulated."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from rapid_library import EWMA, NEW, OLD, ONE, RAW, SEGMENT, SPIKE_EWMA, Plan, build, estimate, gaps

NS = 1_000_000_000
U32 = 2**32 - 1
RATE = 100e6 / 8 * SEGMENT / 1514  # of payload, bytes/s, on Ethernet of 100 Mbit/s


@pytest.fixture(scope="module")
def rapid(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("rapid"))


def plans(most: int = 1024) -> st.SearchStrategy[Plan]:
    return st.builds(Plan, st.integers(2, most), st.integers(1, 64), st.integers(ONE, 2 * ONE))


WHOLE = Plan(64, 16, round(1.07 * ONE))
rates = st.integers(125_000, 5_000_000_000)
segments = st.sampled_from([536, SEGMENT, 8948])


# --- p-streams --------------------------------------------------------------------------------------


@given(plans(), rates, segments)
def test_the_mean_rate_of_a_p_stream_is_the_connection_s(
    rapid: ctypes.CDLL, plan: Plan, rate: int, segment: int
) -> None:
    whole_ns = plan.packets * segment * NS // rate
    assume(whole_ns < 60 * NS)
    assert 0 <= whole_ns - sum(gaps(rapid, plan, rate, segment)) < plan.packets


@given(st.builds(Plan, st.integers(2, 1024), st.integers(1, 32), st.integers(ONE, round(1.25 * ONE))), rates)
def test_its_rates_rise_by_the_spread_factor(rapid: ctypes.CDLL, plan: Plan, rate: int) -> None:
    planned = gaps(rapid, plan, rate, 8948)
    levels = min(plan.levels, plan.packets)
    of_levels = [planned[-(-level * plan.packets // levels)] for level in range(levels)]
    assert sorted(set(planned), reverse=True) == sorted(set(of_levels), reverse=True)
    for slower, faster in pairwise(of_levels):
        assert faster <= slower
        assume(faster > 1000)
        assert slower / faster == pytest.approx(plan.spread / ONE, rel=2e-3)


def test_the_published_range_is_met(rapid: ctypes.CDLL) -> None:
    """64 packets at 16 rates, 1.07 apart, lie between 0.632 and 1.743 of the mean."""
    planned = gaps(rapid, WHOLE, RATE)
    mean_ns = SEGMENT / RATE * NS
    assert mean_ns / planned[0] == pytest.approx(0.632, abs=0.002)
    assert mean_ns / planned[-1] == pytest.approx(1.743, abs=0.006)


@pytest.mark.parametrize("packets", [2, 4, 8, 16, 32])
def test_slow_start_s_short_p_streams_probe_about_as_far(rapid: ctypes.CDLL, packets: int) -> None:
    short = rapid.rapid_short(ctypes.byref(WHOLE), packets)
    assert short.packets == packets
    highest = SEGMENT / RATE * NS / gaps(rapid, short, RATE)[-1]
    assert 1.6 < highest < 2.0


@given(rates, rates, st.tuples(st.integers(0, 10 * NS), st.integers(0, NS), st.integers(0, 10)))
def test_the_rate_moves_towards_the_estimate_and_never_past_it(
    rapid: ctypes.CDLL, rate: int, available: int, filters: tuple[int, int, int]
) -> None:
    after = rapid.rapid_update(rate, available, *filters)
    assert min(rate, available) <= after <= max(rate, available)


def test_the_rate_rises_with_tau_and_falls_by_eta(rapid: ctypes.CDLL) -> None:
    assert rapid.rapid_update(10_000_000, 20_000_000, 10**7, 2 * 10**8, 3) == pytest.approx(
        10_500_000, rel=1e-3
    )
    assert rapid.rapid_update(10_000_000, 20_000_000, 10**9, 2 * 10**8, 3) == 20_000_000
    assert rapid.rapid_update(10_000_000, 4_000_000, 1, 2 * 10**8, 3) == 8_000_000
    assert rapid.rapid_update(10_000_000, 4_000_000, 1, 2 * 10**8, 1) == 4_000_000


# --- a queue ----------------------------------------------------------------------------------------


@dataclass
class Queue:
    """First in, first out, at `rate` bytes/s of the probes' payload, with constant cross traffic of its own.

    It works in ns. `cross` is its share of the capacity, in packets of the probes' size unless said.
    """

    rate: float = RATE
    cross: float = 0.0
    cross_bytes: int = SEGMENT
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    poisson: bool = False
    free_ns: float = 0.0
    next_cross_ns: float = 0.0

    def _cross_until(self, time_ns: float) -> None:
        if not self.cross:
            return
        service = self.cross_bytes / self.rate * NS
        while self.next_cross_ns <= time_ns:
            self.free_ns = max(self.free_ns, self.next_cross_ns) + service
            gap = service / self.cross
            self.next_cross_ns += self.rng.expovariate(1 / gap) if self.poisson else gap

    def leaves(self, arrives_ns: float, size: int = SEGMENT) -> float:
        self._cross_until(arrives_ns)
        self.free_ns = max(self.free_ns, arrives_ns) + size / self.rate * NS
        return self.free_ns


def p_stream(
    rapid: ctypes.CDLL, queue: Queue, rate: float, start_ns: float, plan: Plan = WHOLE
) -> tuple[list[int], list[int], float]:
    """Sent and received gaps in whole microseconds, as timestamps give them, and when the next one starts."""
    sent, received, now = [], [], start_ns
    before = now, queue.leaves(now)
    for gap_ns in gaps(rapid, plan, rate):
        now += gap_ns
        this = now, queue.leaves(now)
        sent.append((int(this[0] // 1000) - int(before[0] // 1000)) * 1000)
        received.append((int(this[1] // 1000) - int(before[1] // 1000)) * 1000)
        before = this
    return sent, received, now


@given(st.floats(0.3, 3.0))
@example(0.6171875)  # only the last packets are faster than the path
def test_an_idle_path_s_capacity_is_found_by_one_p_stream(rapid: ctypes.CDLL, share: float) -> None:
    """If it lies between the probed rates, from 0.632 to 1.743 of the mean; else this is told.

    Rates are told smoothed, up to 1.57 of the mean.
    """
    found = estimate(rapid, p_stream(rapid, Queue(), share * RATE, 1e6)[:2])
    lowest, highest = 0.632 * share, 1.743 * share
    if highest < 0.97:
        assert found.excursion == 64
        assert found.available == pytest.approx(1.57 * share * RATE, rel=0.01)
    elif lowest > 1.03:
        assert found.excursion == 0
        assert found.available == pytest.approx(lowest * RATE, rel=0.02)
    elif lowest < 0.97:
        assert found.available == pytest.approx(RATE, rel=0.15)


@given(st.lists(st.floats(0.4, 2.5), min_size=2, max_size=2, unique=True))
def test_a_faster_path_is_never_told_to_be_slower(rapid: ctypes.CDLL, shares: list[float]) -> None:
    slower, faster = (
        estimate(rapid, p_stream(rapid, Queue(rate=share * RATE), RATE, 1e6)[:2]) for share in sorted(shares)
    )
    assert slower.available <= faster.available * 1.01  # timestamps are whole microseconds


def converge(rapid: ctypes.CDLL, queue: Queue, rate: float, streams: int, **how: int) -> list[float]:
    """Rates of a connection that goes on."""
    now, rates = 1e6, []
    for _ in range(streams):
        start = now
        sent, received, now = p_stream(rapid, queue, rate, now)
        available = estimate(rapid, [sent, received], **how).available
        rate = rapid.rapid_update(int(rate), int(available), int(now - start), 200_000_000, 3)
        rates.append(rate)
    return rates


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("cross", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("denoise", [EWMA, SPIKE_EWMA])
def test_a_connection_comes_to_what_cross_traffic_leaves(
    rapid: ctypes.CDLL, cross: float, poisson: bool, denoise: int
) -> None:
    queue = Queue(cross=cross, poisson=poisson)
    rates = converge(rapid, queue, 0.2 * RATE, 400, denoise=denoise)
    settled = sorted(rates[200:])
    assert settled[100] == pytest.approx((1 - cross) * RATE, rel=0.1)


@pytest.mark.parametrize("cross", [0.0, 0.5])
def test_noise_of_the_receiver_s_clock_is_borne(rapid: ctypes.CDLL, cross: float) -> None:
    """Of 20 us, which is a sixth of a packet's time on the path."""
    queue, rate, now, rng = Queue(cross=cross), 0.1 * RATE, 1e6, random.Random(2)
    rates = []
    for _ in range(300):
        sent, received, end = p_stream(rapid, queue, rate, now)
        late = [rng.gauss(0, 20_000) for _ in range(65)]
        noisy = [max(0, round(gap + late[i + 1] - late[i])) for i, gap in enumerate(received)]
        available = estimate(rapid, [sent, noisy], denoise=SPIKE_EWMA).available
        rate = rapid.rapid_update(int(rate), int(available), int(end - now), 200_000_000, 3)
        now = end
        rates.append(rate)
    assert sorted(rates[150:])[75] == pytest.approx((1 - cross) * RATE, rel=0.1)


@pytest.mark.parametrize("denoise", [EWMA, SPIKE_EWMA])
def test_it_follows_when_half_of_the_path_is_taken_and_given_back(rapid: ctypes.CDLL, denoise: int) -> None:
    queue, rate, now = Queue(), 0.9 * RATE, 1e6
    reached = []
    for cross in (0.0, 0.5, 0.0):
        queue.cross, queue.next_cross_ns = cross, now
        for _ in range(300):
            sent, received, end = p_stream(rapid, queue, rate, now)
            available = estimate(rapid, [sent, received], denoise=denoise).available
            rate = rapid.rapid_update(int(rate), int(available), int(end - now), 200_000_000, 3)
            now = end
        reached.append(rate / RATE)
    assert reached == pytest.approx([1, 0.5, 1], rel=0.1)


# --- disturbed p-streams ----------------------------------------------------------------------------


def undisturbed(rapid: ctypes.CDLL) -> tuple[list[int], list[int]]:
    """At a rate of 3/4 of the path: it turns in the midst."""
    return p_stream(rapid, Queue(), 0.75 * RATE, 1e6)[:2]


@given(st.sets(st.integers(0, 63), max_size=16), st.sampled_from([EWMA, SPIKE_EWMA]))
def test_samples_that_are_pruned_matter_little(rapid: ctypes.CDLL, pruned: set[int], denoise: int) -> None:
    sent, received = undisturbed(rapid)
    kept = [i for i in range(64) if i not in pruned]
    found = estimate(rapid, [[of[i] for i in kept] for of in (sent, received)], denoise=denoise)
    assert found.available == pytest.approx(RATE, rel=0.2)


@given(st.integers(2, 4), st.integers(40, 400), st.integers(0, 10))
def test_packets_that_were_held_up_are_levelled(
    rapid: ctypes.CDLL, every: int, late_us: int, first: int
) -> None:
    """An interrupt a few packets apart, which delivers what waits: their mean gaps are as before."""
    sent, received = undisturbed(rapid)
    at = [0]
    for gap_ns in received:
        at.append(at[-1] + gap_ns)
    held = list(at)
    for i in range(first + 1, 64, 4 * every):
        for j in range(i, min(i + every, 65)):
            held[j] = max(at[j], at[i] + late_us * 1000)
    for i in range(1, 65):
        held[i] = max(held[i], held[i - 1])
    spiky = [after - before for before, after in pairwise(held)]
    found = estimate(rapid, [sent, spiky], denoise=SPIKE_EWMA)
    assert 0.6 * RATE < found.available < 1.2 * RATE


def test_pairs_count_as_what_they_are(rapid: ctypes.CDLL) -> None:
    """Of delayed ACKs, which tell of every second segment."""
    sent, received = undisturbed(rapid)
    paired = [[sum(of[i : i + 2]) for i in range(0, 64, 2)] for of in (sent, received)]
    # As many segments make the memory.
    found = estimate(rapid, [*paired, [2 * SEGMENT] * 32], alpha_shift=2)
    assert found.available == pytest.approx(estimate(rapid, [sent, received]).available, rel=0.05)


def test_only_an_excursion_that_lasts_counts_by_the_newer_rule(rapid: ctypes.CDLL) -> None:
    sent = [120_000 - 1000 * i for i in range(64)]
    received = [gap + (20_000 if 20 <= i < 30 else 0) for i, gap in enumerate(sent)]
    old, new = (estimate(rapid, [sent, received], rule=rule, denoise=RAW) for rule in (OLD, NEW))
    assert (old.excursion, new.excursion) == (20, 64)
    assert old.available == SEGMENT * NS // sent[19]
    assert new.available == SEGMENT * NS // sent[63]
    assert estimate(rapid, [sent, received], rule=OLD, denoise=RAW, excursion=11).excursion == 64


@pytest.mark.parametrize("fewest", [1, 4, 8])
def test_an_excursion_has_a_least_length(rapid: ctypes.CDLL, fewest: int) -> None:
    sent = [120_000 - 1000 * i for i in range(64)]
    for grown in (fewest - 1, fewest):
        received = [gap + (20_000 if i >= 64 - grown else 0) for i, gap in enumerate(sent)]
        found = estimate(rapid, [sent, received], denoise=RAW, excursion=fewest)
        assert found.excursion == (64 - grown if grown == fewest else 64)


def test_received_gaps_have_a_floor_if_asked(rapid: ctypes.CDLL) -> None:
    drained = estimate(rapid, [[80_000] * 16, [10_000] * 16], denoise=RAW, floor=1)
    assert drained.received_ns == [70_000] * 16


how = st.fixed_dictionaries(
    {
        "rule": st.integers(0, 1),
        "denoise": st.integers(0, 3),
        "excursion": st.integers(0, 2000),
        "epsilon_ns": st.integers(0, U32),
        "spike_ns": st.integers(0, U32),
        "alpha_shift": st.integers(0, 31),
        "floor": st.integers(0, 1),
    }
)


@given(
    st.lists(
        st.tuples(st.integers(0, U32), st.integers(0, U32), st.integers(1, 65535)), min_size=1, max_size=1024
    ),
    how,
)
@example([(0, 0, 1)], {"rule": 0})
@example([(U32, 0, 65535)] * 1024, {"denoise": SPIKE_EWMA, "floor": 1})
def test_whatever_arrives_is_borne(
    rapid: ctypes.CDLL, samples: list[tuple[int, int, int]], how: dict[str, int]
) -> None:
    found = estimate(rapid, list(zip(*samples, strict=True)), **how)
    assert 0 <= found.excursion <= len(samples)
    slowest = min(size * NS // max(sent, 1) for sent, _, size in samples)
    fastest = max(size * NS // max(sent, 1) for sent, _, size in samples)
    if how.get("denoise") == RAW:
        assert slowest <= found.available <= fastest
