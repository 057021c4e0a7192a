"""The library that User-Mode Linux is started with: registers of a process are written whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "roles" / "lab" / "files" / "xstate.c"
# Reads the extended registers of a stopped process into as many bytes as User-Mode Linux has for them, writes
# them back, and reads them again.
WRITES = """
import ctypes, os, signal
TRACEME, DETACH, GETREGSET, SETREGSET, XSTATE = 0, 17, 0x4204, 0x4205, 0x202
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
child = os.fork()
if not child:
    ptrace(TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
def transfer(request):
    buffer = ctypes.create_string_buffer(before, 2696)
    iov = Iovec(ctypes.addressof(buffer), 2696)
    if ptrace(request, child, XSTATE, ctypes.addressof(iov)):
        return os.strerror(ctypes.get_errno())
    return buffer.raw
before = b""
before = transfer(GETREGSET)
written = transfer(SETREGSET)
same = transfer(GETREGSET) == before
ptrace(DETACH, child, None, None)
os.waitpid(child, 0)
print("written" if written == before and same else written)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("xstate") / "xstate.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", built, SOURCE], check=True
    )
    return built


def test_a_part_of_the_registers_is_completed(library: Path) -> None:
    """Without the library this fails on processors with AMX: Bad address."""
    environment = os.environ | {"LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", WRITES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "written\n", done.stdout + done.stderr
