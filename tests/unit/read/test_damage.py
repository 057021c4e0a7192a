"""Readers of files that are damaged: each is read, or refused with a place and an advice."""

from __future__ import annotations

import os
import random
import resource
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumbbell.read.directory import READERS, reader_of
from read.mutate import FIXTURES, read_damaged

NAMES = [path.name for path in FIXTURES]
MOST_MIB = 512


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
@pytest.mark.parametrize("kind", sorted({name.KIND for name in READERS}))
def test_damaged_files_for_minutes(kind: str) -> None:
    """Each reader for READ_FUZZ_MINUTES, by default 2; a failure names the file and the seed that fail."""
    names = [path.name for path in FIXTURES if kind == reader_of(path).KIND]
    until = time.monotonic() + 60 * float(os.environ.get("READ_FUZZ_MINUTES", "2"))
    tried, refused, slowest_s, before_kib = 0, 0, 0.0, _memory_kib()
    while time.monotonic() < until:
        name, seed = random.choice(names), random.randrange(10**9)
        begun = time.process_time()
        try:
            refused += bool(read_damaged(name, seed, whole=tried % 20 == 0))
        except Exception as error:
            pytest.fail(f"read_damaged({name!r}, {seed}, whole={tried % 20 == 0}): {error!r}")
        slowest_s = max(slowest_s, time.process_time() - begun)
        tried += 1
    grown_mib = (_memory_kib() - before_kib) / 1024
    print(
        f"{kind}: {tried} files, {refused} refused, the slowest took {slowest_s:.2f} s of processor time, "
        f"memory grew by {grown_mib:.0f} MiB"
    )
    assert 0 < refused < tried
    assert slowest_s < 10, "a damaged file took too long"
    assert grown_mib < MOST_MIB, "a damaged file took too much memory"


def _memory_kib() -> int:
    """The most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
