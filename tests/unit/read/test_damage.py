"""Readers of files that are damaged: each is read, or refused with a place and an advice."""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from read.mutate import FIXTURES, read_damaged

NAMES = [path.name for path in FIXTURES]


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 10**9))
def test_damaged_file_is_read_or_refused(name: str, seed: int) -> None:
    refused = read_damaged(name, seed, whole=False)
    assert not refused or refused.count(", ") >= 1, "the message has a place"


@settings(deadline=None, max_examples=8)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 10**9))
def test_directory_of_a_damaged_file_is_written_or_refused(name: str, seed: int) -> None:
    read_damaged(name, seed, whole=True)


@pytest.mark.long
def test_damaged_files_for_minutes() -> None:
    """For READ_FUZZ_MINUTES, by default 5; a failure names the file and the seed that fail."""
    until = time.monotonic() + 60 * float(os.environ.get("READ_FUZZ_MINUTES", "5"))
    tried, refused, slowest_s = 0, 0, 0.0
    while time.monotonic() < until:
        name, seed = random.choice(NAMES), random.randrange(10**9)
        begun = time.process_time()
        try:
            refused += bool(read_damaged(name, seed, whole=tried % 20 == 0))
        except Exception as error:
            pytest.fail(f"read_damaged({name!r}, {seed}, whole={tried % 20 == 0}): {error!r}")
        slowest_s = max(slowest_s, time.process_time() - begun)
        tried += 1
    print(f"{tried} files, {refused} refused, the slowest took {slowest_s:.2f} s of processor time")
    assert 0 < refused < tried
    assert slowest_s < 10, "a damaged file took too long"
