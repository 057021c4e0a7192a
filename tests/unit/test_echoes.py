"""Echoes of TCP's timestamps in a capture."""

from __future__ import annotations

from pathlib import Path

from captures import Segment, frame, stamps, write

from dumbbell import analysis
from dumbbell.ingest.capture import Capture


def echoed(tmp_path: Path, *tsecrs: int) -> tuple[int, int]:
    """Echoes, and unmatched ones, where timestamps 100, 101, 102 are sent and one is echoed after each."""
    segments = []
    for number, tsecr in enumerate(tsecrs):
        there, back = ("10.0.0.1", 1000, "10.0.0.2", 2000), ("10.0.0.2", 2000, "10.0.0.1", 1000)
        at = number * 10**6
        segments.append(
            Segment(at, *there, seq=number * 100, ack=1, payload=100, options=stamps(100 + number, 50))
        )
        segments.append(Segment(at + 1, *back, seq=1, ack=number * 100 + 100, options=stamps(50, tsecr)))
    write(tmp_path / "capture.pcap", [(of.unix_ns, frame(of)) for of in segments])
    found = analysis.Echoes()
    for block in Capture.open(tmp_path / "capture.pcap").segments(block_bytes=200):
        found.feed(block)
    return found.echoes, found.unmatched


def test_echoes_of_timestamps_that_were_sent_match(tmp_path: Path) -> None:
    # The first segment echoes one that was sent before the capture.
    assert echoed(tmp_path, 100, 101, 102) == (6, 1)
    assert echoed(tmp_path, 100, 100, 100) == (6, 1)


def test_echoes_of_others_do_not(tmp_path: Path) -> None:
    assert echoed(tmp_path, 100, 102, 102)[1] == 2  # before it was sent
    assert echoed(tmp_path, 100, 7, 102)[1] == 2
