"""What commands print may be piped into a program that does not read all of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dumbbell.cli import tell


def test_a_reader_that_leaves_ends_the_process_without_a_word() -> None:
    line = f"{sys.executable} -c 'from dumbbell.cli import tell; tell(\"text \" * 10**6)' | head -c 4"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGPIPE, b"text", b"")


def test_other_pipes_that_break_are_errors_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    former = signal.getsignal(signal.SIGPIPE)
    tell("text")
    assert capsys.readouterr().out == "text\n"
    assert signal.getsignal(signal.SIGPIPE) == former == signal.SIG_IGN
