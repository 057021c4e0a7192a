"""What TCP Rapid computes, as a library of its own and its types for ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "modules" / "tcp_rapid"
ONE = 1024  # RAPID_ONE
RAW, MEAN, EWMA, SPIKE_EWMA = range(4)
OLD, NEW = range(2)
SEGMENT = 1448


class Plan(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("packets", "levels", "spread")]


class Estimator(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint32)
        for name in ("rule", "denoise", "excursion", "epsilon_ns", "spike_ns", "alpha_shift", "floor")
    ]


class Samples(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_uint32),
        *((name, ctypes.POINTER(ctypes.c_uint32)) for name in ("sent_ns", "received_ns", "bytes")),
    ]


class Found(ctypes.Structure):
    _fields_ = [("available", ctypes.c_uint64), ("excursion", ctypes.c_uint32)]


def build(folder: Path) -> ctypes.CDLL:
    """Compile it as the kernel does, but that undefined behaviour ends the program."""
    library = folder / "rapid.so"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    traps = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(
        ["gcc", *flags, *traps, "-o", library, SOURCE / "plan.c", SOURCE / "estimate.c"], check=True
    )
    made = ctypes.CDLL(str(library))
    made.rapid_update.restype = ctypes.c_uint64
    made.rapid_update.argtypes = [ctypes.c_uint64] * 4 + [ctypes.c_uint32]
    made.rapid_gaps.argtypes = [
        ctypes.POINTER(Plan),
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_uint32),
    ]
    made.rapid_short.restype = Plan
    made.rapid_estimate.restype = Found
    return made


def vector(values: Sequence[int]) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * len(values))(*values)


def gaps(rapid: ctypes.CDLL, plan: Plan, rate: float, segment: int = SEGMENT) -> list[int]:
    into = vector([0] * plan.packets)
    rapid.rapid_gaps(plan, int(rate), segment, into)
    return list(into)


@dataclass
class Estimate:
    available: float
    excursion: int
    sent_ns: list[int]
    received_ns: list[int]


def estimate(rapid: ctypes.CDLL, vectors: Sequence[Sequence[int]], **how: int) -> Estimate:
    """Of sent and received gaps in ns, and bytes; without these, of whole segments."""
    asked = {
        "rule": NEW,
        "denoise": EWMA,
        "excursion": 4,
        "epsilon_ns": 1000,
        "spike_ns": 30_000,
        "alpha_shift": 3,
    }
    sent, received, sizes = map(vector, (*vectors, [SEGMENT] * len(vectors[0]))[:3])
    samples = Samples(len(sent), sent, received, sizes)
    found = rapid.rapid_estimate(
        ctypes.byref(Estimator(**(asked | {"floor": 0} | how))), ctypes.byref(samples)
    )
    return Estimate(found.available, found.excursion, list(sent), list(received))
