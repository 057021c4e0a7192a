"""The rules by which modules/tcp_recovery reduces a window, against the texts that define them."""

from __future__ import annotations

import ctypes
import subprocess
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import REPOSITORY

SOURCE = REPOSITORY / "modules/tcp_recovery"
PRR, RFC3517, HALVING, SSRB = range(4)
RULES = [PRR, RFC3517, HALVING, SSRB]
SHIM = """
#include "reduction.h"
u32 window_after(enum reduction_rule rule, const struct reduction *r)
{
	return reduction_cwnd(rule, r);
}

u32 window_at_end(enum reduction_rule rule, u32 cwnd, u32 ssthresh)
{
	return reduction_end(rule, cwnd, ssthresh);
}
"""


class Reduction(ctypes.Structure):
    """`struct reduction`."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("cwnd", "ssthresh", "pipe", "prior_cwnd", "prr_delivered")),
        *((name, ctypes.c_uint32) for name in ("prr_out", "delivered", "min_cwnd")),
        ("second_ack", ctypes.c_bool),
        ("safe_ack", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("reduction") / "reduction.so"
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare"]
    compile_it = ["gcc", *warnings, "-shared", "-fPIC", f"-I{SOURCE}", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compile_it, input=SHIM, text=True, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.window_after.restype = loaded.window_at_end.restype = ctypes.c_uint32
    return loaded


@dataclass
class Ack:
    """What a sender knows after an ACK in a reduction, in segments."""

    cwnd: int
    ssthresh: int
    pipe: int
    prior_cwnd: int
    prr_delivered: int
    prr_out: int
    delivered: int
    min_cwnd: int = 0
    second_ack: bool = False
    safe_ack: bool = False

    def __post_init__(self) -> None:
        self.min_cwnd = self.min_cwnd or self.ssthresh // 2

    def after(self, rules: ctypes.CDLL, rule: int) -> int:
        return int(rules.window_after(rule, ctypes.byref(Reduction(**vars(self)))))


# --- the texts ------------------------------------------------------------------------------------


def rfc_9937(ack: Ack) -> int:
    """Section 6.2, with a segment for SMSS: PRR-CRB, or PRR-SSRB if the ACK is safe."""
    if ack.pipe > ack.ssthresh:
        sndcnt = ceil(Fraction(ack.prr_delivered * ack.ssthresh, ack.prior_cwnd)) - ack.prr_out
    else:
        sndcnt = max(ack.prr_delivered - ack.prr_out, ack.delivered)
        if ack.safe_ack:
            sndcnt += 1
        sndcnt = min(ack.ssthresh - ack.pipe, sndcnt)
    if ack.prr_out == 0 and sndcnt <= 0:
        sndcnt = 1
    return ack.pipe + max(sndcnt, 0)


def rfc_6937(ack: Ack) -> int:
    """Section 3, with the slow-start reduction bound whatever the ACK."""
    if ack.pipe > ack.ssthresh:
        sndcnt = ceil(Fraction(ack.prr_delivered * ack.ssthresh, ack.prior_cwnd)) - ack.prr_out
    else:
        limit = max(ack.prr_delivered - ack.prr_out, ack.delivered) + 1
        sndcnt = min(ack.ssthresh - ack.pipe, limit)
    return ack.pipe + max(sndcnt, 1 if ack.prr_out == 0 else 0)


def rfc_6675(ack: Ack) -> int:
    """Section 5: (4.2) cwnd is ssthresh, and (4.3) the first lost segment is sent whatever pipe is."""
    return ack.ssthresh if ack.prr_out else max(ack.ssthresh, ack.pipe + 1)


def rate_halving(ack: Ack) -> int:
    """One segment less for every second ACK while cwnd is above the least, and pipe is followed down."""
    less = 1 if ack.second_ack and ack.cwnd > ack.min_cwnd else 0
    return min(ack.cwnd - less, ack.pipe + 1)


TEXTS = {PRR: rfc_9937, RFC3517: rfc_6675, HALVING: rate_halving, SSRB: rfc_6937}


@st.composite
def acks(draw: st.DrawFn, largest: int = 2**20) -> Ack:
    prior = draw(st.integers(1, largest))
    delivered = draw(st.integers(1, 64))
    ssthresh = draw(st.integers(2, max(2, prior)))
    return Ack(
        cwnd=draw(st.integers(1, largest)),
        ssthresh=ssthresh,
        pipe=draw(st.integers(0, prior)),
        prior_cwnd=prior,
        prr_delivered=delivered + draw(st.integers(0, largest)),
        prr_out=draw(st.just(0) | st.integers(0, largest)),
        delivered=delivered,
        min_cwnd=draw(st.sampled_from([ssthresh // 2, ssthresh])),
        second_ack=draw(st.booleans()),
        safe_ack=draw(st.booleans()),
    )


@pytest.mark.parametrize("rule", RULES)
@given(ack=acks())
def test_a_rule_is_what_its_text_says(rules: ctypes.CDLL, rule: int, ack: Ack) -> None:
    assert ack.after(rules, rule) == TEXTS[rule](ack)


@pytest.mark.parametrize("rule", RULES)
@given(ack=acks())
def test_no_rule_holds_back_the_first_retransmission(rules: ctypes.CDLL, rule: int, ack: Ack) -> None:
    ack.prr_out = 0
    ack.cwnd = max(ack.cwnd, ack.pipe + 2)  # as it is when a reduction begins
    assert ack.after(rules, rule) > ack.pipe


@given(ack=acks())
def test_proportional_reduction_never_sends_beyond_its_threshold(rules: ctypes.CDLL, ack: Ack) -> None:
    """Below ssthresh not more than up to it, and above it not more than was delivered."""
    sent = ack.after(rules, PRR) - ack.pipe
    if ack.pipe > ack.ssthresh:
        assert sent <= max(ack.prr_delivered - ack.prr_out, 1)
    else:
        assert sent <= max(ack.ssthresh - ack.pipe, 1)


def test_products_of_large_windows_do_not_overflow(rules: ctypes.CDLL) -> None:
    ack = Ack(2**31, 2**30, 2**30 + 1, 2**31, 2**31 - 1, 2**30 - 5, 1)
    assert ack.after(rules, PRR) == rfc_9937(ack) == 2**30 + 1 + 5


# --- whole recoveries -----------------------------------------------------------------------------


@dataclass
class Sender:
    """A sender that has just sent a window, of which some segments are lost; an ACK for each that arrives.

    A segment is taken to be lost when three later ones have arrived, or, sent again, never again.
    """

    window: int
    lost: set[int]
    rule: int
    rules: ctypes.CDLL
    sends: list[int] = field(default_factory=list)  # after each ACK of the recovery
    pipes: list[int] = field(default_factory=list)  # before it sends
    windows: list[int] = field(default_factory=list)
    reference: list[int] = field(default_factory=list)

    def run(self) -> None:
        wire: deque[tuple[int, bool]] = deque((n, n not in self.lost) for n in range(self.window))
        highest, una, arrived, marked, again = self.window, 0, set[int](), set[int](), set[int]()
        cwnd, ssthresh = self.window, max(self.window // 2, 2)
        reducing, prr_delivered, prr_out, count = False, 0, 0, 0
        while una < self.window and wire:
            number, arrives = wire.popleft()
            if not arrives:
                continue
            arrived.add(number)
            first = una
            while una in arrived:
                una += 1
            holes = set(range(una, max(arrived))) - arrived - marked
            newly = {n for n in holes if sum(m > n for m in arrived) >= 3}
            marked |= newly
            if not reducing and marked:
                reducing = True
            if not reducing:
                wire.append((highest, True))  # limited transmit
                highest += 1
                continue
            prr_delivered, count = prr_delivered + 1, 1 - count
            outstanding = {n for n in range(una, highest)} - arrived
            pipe = len(outstanding) - len((marked - again) & outstanding)
            safe = una > first and not newly
            ack = Ack(cwnd, ssthresh, pipe, self.window, prr_delivered, prr_out, 1, 0, count == 0, safe)
            cwnd = ack.after(self.rules, self.rule)
            self.reference.append(TEXTS[self.rule](ack))
            self.windows.append(cwnd)
            self.pipes.append(pipe)
            sent = 0
            while pipe + sent < cwnd:
                if due := sorted((marked - again) - arrived):
                    again.add(due[0])
                    wire.append((due[0], True))
                else:
                    wire.append((highest, True))
                    highest += 1
                sent += 1
            prr_out += sent
            self.sends.append(sent)
        self.end = int(self.rules.window_at_end(self.rule, cwnd, ssthresh))
        self.ssthresh = ssthresh


@st.composite
def losses(draw: st.DrawFn) -> tuple[int, set[int]]:
    window = draw(st.integers(8, 60))
    # The last three arrive, or nothing would tell of a loss.
    return window, draw(st.sets(st.integers(0, window - 4), min_size=1, max_size=window - 4))


@pytest.mark.parametrize("rule", RULES)
@given(lost=losses())
def test_a_recovery_as_its_text_says(rules: ctypes.CDLL, rule: int, lost: tuple[int, set[int]]) -> None:
    sender = Sender(*lost, rule, rules)
    sender.run()
    assert sender.windows == sender.reference
    assert sender.sends[0] >= 1


def of_one_loss(rules: ctypes.CDLL, rule: int, window: int = 40) -> Sender:
    sender = Sender(window, {0}, rule, rules)
    sender.run()
    return sender


def test_proportional_reduction_spreads_what_it_sends(rules: ctypes.CDLL) -> None:
    """One loss of 40: one segment for every second ACK, and pipe comes down to ssthresh."""
    sender = of_one_loss(rules, PRR)
    assert max(sender.sends) == 1
    assert sender.pipes[-1] == pytest.approx(sender.ssthresh, abs=1)
    assert sender.end == sender.ssthresh


def test_rfc_3517_is_silent_for_half_a_window(rules: ctypes.CDLL) -> None:
    sender = of_one_loss(rules, RFC3517)
    quiet = sender.sends[1:].index(1)
    assert sender.sends[0] == 1
    assert quiet == pytest.approx(sender.window / 2, abs=3)
    assert set(sender.sends[1 + quiet :]) == {1}
    assert sender.end == sender.ssthresh


def test_rate_halving_ends_below_ssthresh_after_a_burst_of_losses(rules: ctypes.CDLL) -> None:
    sender = Sender(40, set(range(0, 30)), HALVING, rules)
    sender.run()
    assert max(sender.sends) == 1
    assert sender.end < sender.ssthresh


def test_after_a_burst_of_losses_proportional_reduction_grows_back_to_ssthresh(rules: ctypes.CDLL) -> None:
    sender = Sender(40, set(range(0, 30)), PRR, rules)
    sender.run()
    assert min(sender.pipes) < sender.ssthresh
    assert sender.end == sender.ssthresh
    bound = Sender(40, set(range(0, 30)), SSRB, rules)
    bound.run()
    assert sum(bound.sends[:5]) >= sum(sender.sends[:5])


def test_rfc_3517_sends_a_burst_when_pipe_has_collapsed(rules: ctypes.CDLL) -> None:
    sender = Sender(40, set(range(0, 30)), RFC3517, rules)
    sender.run()
    assert max(sender.sends) > 2
