"""atou's simulator from Python, and the experiments of the original's page as it is asked for them.

A transfer takes a fraction of a second, whatever it simulates. The page is Dunigan's (ORNL, 2000-2004).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dumbbell.places import HOME

Json = dict[str, Any]

INTERVAL_NS = 100_000_000  # between samples, as the page's figures have it
_SAMPLES = {
    **dict.fromkeys(("t_ns", "bytes_acked", "snd_cwnd", "snd_ssthresh"), pl.Int64),
    **dict.fromkeys(("srtt_us", "min_rtt_us", "rtt_us", "data_segs_out", "total_retrans"), pl.Int64),
    **dict.fromkeys(("dup3s", "total_rto", "queue_packets"), pl.Int64),
}


class AtouError(Exception):
    """The simulator is not there, or refuses what it is asked; the message is what it says."""


@dataclass(frozen=True)
class Simulated:
    """What became of a transfer: counts by the names of ``atou send --json``, samples by those of tcp_info.

    ``samples`` are ``[t_ns, bytes_acked, snd_cwnd, snd_ssthresh, srtt_us, min_rtt_us, rtt_us, data_segs_out,
    total_retrans, dup3s, total_rto, queue_packets]``, one each :data:`INTERVAL_NS`; windows in segments.
    """

    goodput_bps: float
    elapsed_ns: int
    sender: Json
    receiver: Json
    forward: Json  # counts of the path
    back: Json
    samples: pl.DataFrame


@dataclass(frozen=True)
class Path:
    """A path and its two directions' keys beside the delay, which is half of ``rtt_ms`` each."""

    rtt_ms: float
    forward: Json = field(default_factory=dict)
    back: Json = field(default_factory=dict)


def simulate(
    path: Path,
    sender: Mapping[str, Any],
    receiver: Mapping[str, Any],
    *,
    seed: int = 1,
    untrimmed: bool = False,
) -> Simulated:
    """Simulate a transfer of these keys of atou's configurations over a path; AtouError if it cannot be."""
    delay_ns = round(path.rtt_ms * 1e6 / 2)
    request = {
        "sender": {"debug": 0} | dict(sender),
        "receiver": dict(receiver),
        "forward": {"delay_ns": delay_ns} | path.forward,
        "back": {"delay_ns": delay_ns} | path.back,
        "untrimmed": untrimmed,
        "seed": seed,
        "interval_ns": INTERVAL_NS,
    }
    made = HOME / ".build" / "bin" / "atou"
    program = str(made) if made.exists() else shutil.which("atou")
    if program is None:
        raise AtouError(f"There is no {made} and no atou among the programs: make build")
    ran = subprocess.run(
        [program, "simulate"], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise AtouError(ran.stderr.strip())
    answer = json.loads(ran.stdout)
    samples = pl.DataFrame(answer.pop("samples"), schema=_SAMPLES)
    return Simulated(samples=samples, **answer)


@dataclass(frozen=True)
class Transfer:
    """One of an experiment's transfers, and what the original had (Mbit/s), where the page says."""

    sender: Json
    receiver: Json = field(default_factory=dict)
    untrimmed: bool = False
    original_mbps: float | None = None


@dataclass(frozen=True)
class Experiment:
    """Transfers over one path that the page compares."""

    title: str
    path: Path
    transfers: Mapping[str, Transfer]
    column: str = "snd_cwnd"  # of the samples, what its second figure shows

    def run(self) -> dict[str, Simulated]:
        """Simulate all of its transfers."""
        return {
            name: simulate(self.path, asked.sender, asked.receiver, untrimmed=asked.untrimmed)
            for name, asked in self.transfers.items()
        }


def _each(common: Json, receiver: Json | None = None, **transfers: tuple[Json, float | None]) -> Json:
    return {
        name.replace("_", " "): Transfer(common | own, receiver or {}, original_mbps=original)
        for name, (own, original) in transfers.items()
    }


_NERSC = Path(70, {"rate_bps": 100_000_000, "queue": 1000})
_OC12_BPS = 599_000_000  # of its 622 Mbit/s, what SONET leaves
_SACK = {"sack": 1}
_VEGAS = {"rcvrwin": 2000, "highspeed": 1, "vegas": 1, "vegas_rtt": "max"}
_LOSSES = [5000, 12000]


def _segments(mss: int) -> Json:
    """The same window, bytes and places of losses in segments of another size."""
    places = [1472 * segment // mss for segment in _LOSSES]
    return {
        "mss": mss,
        "rcvrwin": 300 * 1472 // mss,
        "maxpkts": 60_000_000 // mss,
        "maxtime": 60,
        "droplist": places,
    }


# In the order of the page. What it does not say (rates, queues, the RTT to the cable modem) is chosen: the
# path holds the window where the page has no losses, and does not where it has some.
EXPERIMENTS: dict[str, Experiment] = {
    "delayed_acks": Experiment(
        "NERSC to ORNL: start, and two losses, with and without delayed ACKs (figures 2 and 4)",
        _NERSC,
        {
            "no loss": Transfer({}),
            "two losses": Transfer({"droplist": _LOSSES}),
            "no loss, delayed ACKs": Transfer({}, {"delack": 200}),
            "two losses, delayed ACKs": Transfer({"droplist": _LOSSES}, {"delack": 200}),
        },
    ),
    "aimd": Experiment(
        "NERSC to ORNL: recovery from a loss by 0.5 and 1, by 0.9 and 10 (figure 3a)",
        _NERSC,
        _each(
            {"rcvrwin": 600, "droplist": [5000]},
            standard=({}, None),
            aggressive=({"multiplier": 0.9, "increment": 10}, None),
        ),
    ),
    "segment_size": Experiment(
        "NERSC to ORNL: segments of one, two and four packets for the same bytes, two losses (figure 6)",
        _NERSC,
        {
            f"{mss} bytes": Transfer(_segments(mss), original_mbps=original)
            for mss, original in ((1472, 50), (2944, 55), (5888, 58))
        },
    ),
    "virtual_mss": Experiment(
        "NERSC to ORNL: a virtual segment of ten (figure 6a)",
        _NERSC,
        _each({"droplist": _LOSSES}, one=({}, None), ten=({"initsegs": 10, "increment": 10}, None)),
    ),
    "scalable": Experiment(
        "ORNL to LBL: Reno and Scalable TCP after a loss",
        Path(80, {"rate_bps": _OC12_BPS, "queue": 4000}),
        _each({"rcvrwin": 1500, "droplist": [20000]}, Reno=({}, None), Scalable=({"scalable": 1}, None)),
    ),
    "ssincr": Experiment(
        "ORNL to CERN: slow start by 1 and by 100 segments an ACK",
        Path(200, {"rate_bps": _OC12_BPS, "queue": 4000}),
        _each({"rcvrwin": 1000}, ssincr_1=({}, None), ssincr_100=({"ssincr": 100}, None)),
    ),
    "vegas_exit": Experiment(
        "PSC to ORNL: Vegas 1/3/1, leaving slow start for congestion avoidance and for limited slow start",
        Path(77, {"rate_bps": _OC12_BPS, "queue": 2000}),
        _each(_VEGAS, standard_Vegas=({}, 36), limited_slow_start=({"vegas_floyd": 1}, 232)),
    ),
    "lossy_start": Experiment(
        "PSC to ORNL: a queue that slow start overflows",
        Path(77, {"rate_bps": 250_000_000, "queue": 600}),
        {
            "standard slow start": Transfer(
                {"rcvrwin": 2000, "highspeed": 1} | _SACK, _SACK, original_mbps=198
            ),
            "limited slow start": Transfer({"rcvrwin": 2000, "highspeed": 1, "floyd": 1} | _SACK, _SACK),
            "Vegas, gamma 2": Transfer(
                _VEGAS | {"vegas_floyd": 1, "gamma": 2} | _SACK, _SACK, original_mbps=219
            ),
            "Vegas, gamma 60": Transfer(
                _VEGAS | {"vegas_floyd": 1, "gamma": 60} | _SACK, _SACK, original_mbps=229
            ),
        },
    ),
    "deep_buffers": Experiment(
        "ORNL to PSC from a host of 100 Mbit/s: buffers twice as deep as the path needs",
        Path(77, {"rate_bps": 100_000_000}),
        _each(
            {"rcvrwin": 1500},
            standard=({}, 85),
            Vegas_50_80_400=(
                {"vegas": 1, "alpha": 50, "beta": 80, "gamma": 400, "thresh_init": 0, "vegas_rtt": "max"},
                85,
            ),
        ),
        column="srtt_us",
    ),
    "sawtooth": Experiment(
        "ns: Reno and Vegas over 1.6 Mbit/s and 100 ms with delayed ACKs; 75 and 100 % of the path",
        Path(100, {"rate_bps": 1_600_000, "queue": 4}),
        _each({"rcvrwin": 100, "maxtime": 60}, {"delack": 200}, Reno=({}, 1.2), Vegas=({"vegas": 1}, 1.6)),
    ),
    "policed": Experiment(
        "UT to ORNL: policed to 50 Mbit/s behind a burst",
        Path(
            4.3,
            {"rate_bps": 100_000_000, "queue": 100, "police_bps": 50_000_000, "police_burst": 250_000},
        ),
        _each({}, window_22_kB=({"rcvrwin": 15}, 41), window_88_kB=({"rcvrwin": 60}, None)),
    ),
    "cable": Experiment(
        "ORNL to a cable modem: 60 % of the packets displaced by up to 30 places",
        Path(
            100,
            {"rate_bps": 6_000_000, "queue": 50, "reorder": 0.6, "displace_min": 1, "displace": 30}
            | {"hold_ns": 100_000_000},
        ),
        _each({"rcvrwin": 100}, dup_thresh_3=({}, 0.7), dup_thresh_9=({"dup_thresh": 9}, 1.7)),
    ),
    "reordering": Experiment(
        # The page has 47 of them in 9 recoveries: they come in fives.
        "LBNL to ORNL: 0.3 % of the packets displaced by 7 places, five together",
        Path(80, {"rate_bps": _OC12_BPS, "queue": 4000, "reorder": 0.003, "displace": 7, "cluster": 5}),
        _each(
            {"rcvrwin": 2000} | _SACK,
            {"sack": 1, "delack": 200},
            dup_thresh_3=({}, 18),
            dup_thresh_19=({"dup_thresh": 19}, 218),
        ),
    ),
    "ack_limited": Experiment(
        "ORNL to a cable modem: ACKs with 128 kbit/s for themselves",
        Path(100, {"rate_bps": 6_000_000, "queue": 100}, {"rate_bps": 128_000, "queue": 50}),
        {
            "untrimmed ACKs": Transfer({"rcvrwin": 100} | _SACK, _SACK, untrimmed=True),
            "trimmed": Transfer({"rcvrwin": 100} | _SACK, _SACK),
            "trimmed and delayed": Transfer({"rcvrwin": 100} | _SACK, _SACK | {"delack": 200}),
        },
    ),
}


def compared(experiments: Sequence[str] = ()) -> pl.DataFrame:
    """All transfers of the experiments of these names, by default of all.

    ``[experiment, transfer, original_mbps, mbps, retransmits, duplicates, events, timeouts, min_rtt_ms,
    mean_rtt_ms]``: ``events`` are recoveries, ``duplicates`` of the retransmits were not needed.
    """
    rows = [
        {
            "experiment": name,
            "transfer": transfer,
            "original_mbps": experiment.transfers[transfer].original_mbps,
            "mbps": found.goodput_bps / 1e6,
            "retransmits": found.sender["rxmts"],
            "duplicates": found.receiver["duplicate_segments"],
            "events": found.sender["dup3s"],
            "timeouts": found.sender["timeouts"],
            "min_rtt_ms": found.sender["min_rtt_ns"] / 1e6,
            "mean_rtt_ms": found.sender["avg_rtt_ns"] / 1e6,
        }
        for name, experiment in EXPERIMENTS.items()
        if not experiments or name in experiments
        for transfer, found in experiment.run().items()
    ]
    return pl.DataFrame(rows)
