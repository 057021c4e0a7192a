"""modules/tcp_recovery in a kernel of its own, in virtual time, beside that kernel's own reductions."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import uml

from dumbbell import analysis
from dumbbell.ingest import spool
from playbooks import REPOSITORY

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
MODULE = REPOSITORY / "modules" / "tcp_recovery"
MODES = {"prr": 0, "3517": 1, "rh": 2, "ssrb": 3}  # of net.ipv4.tcp_cwnd_reduction_mode
BURSTS = "loss gemodel 0.05% 5%"
PROBE = re.compile(
    r" (?P<at>[0-9.]+): tcp_probe: .* snd_nxt=0x(?P<snd_nxt>\w+) snd_una=0x(?P<snd_una>\w+)"
    r" snd_cwnd=(?P<snd_cwnd>\d+) ssthresh=(?P<ssthresh>\d+) "
)
SENDER = {"flow": "0", "side": "sender", "stream": "0"}


def booted(work: Path, script: str, kernel: str, **given: object) -> str:
    """What a script of this directory said over recovery_path.sh, in a kernel with the module at hand."""
    built = work.parent / f"of_{kernel}"
    if not built.exists():
        uml.build_module(MODULE, built, kernel)
    work.mkdir()
    shutil.copy(built / "tcp_recovery.ko", work)
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in given.items()]
    lines += [(HERE / name).read_text() for name in ("recovery_path.sh", script)]
    return uml.run("\n".join(lines), work, virtual=True, kernel=kernel, seed="1", timeout_s=3600)


def traced(work: Path, control: str, loss: str = "") -> dict[str, pl.DataFrame]:
    """What was traced of ten seconds of a flow of a control."""
    own = work / re.sub(r"[^a-z0-9]+", "_", f"{control} {loss}")
    if not own.exists():
        given = {"control": control, "mode": "", "loss": loss, "seconds": 10}
        booted(own, "recovery.sh", "lab", collect=REPOSITORY / ".build/bin/dumbbell-collect", **given)
    read = spool.read(own / "traced.lp")
    assert not read.damage
    same = {name: pl.lit(value) for name, value in SENDER.items()}
    return {name: table.with_columns(t_ns="unix_ns", **same) for name, table in read.tables.items()}


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recovery")


def overshoot(work: Path, control: str) -> dict[str, Any]:
    """The first reduction of a flow: slow start has overflown the queue, and lost much of a window."""
    first = analysis.reductions(traced(work, control)["recovery"]).row(0, named=True)
    assert (first["kind"], first["next_state"]) == ("Recovery", "Open")
    return first


@pytest.mark.parametrize("rule", ["prr", "3517", "ssrb"])
@pytest.mark.parametrize("parent", ["reno", "cubic"])
def test_a_reduction_ends_at_ssthresh(work: Path, parent: str, rule: str) -> None:
    found = analysis.reductions(traced(work, f"{parent}_{rule}")["recovery"])
    ended = found.filter(kind="Recovery", next_state="Open")
    # The ACK that ends it may already be one of congestion avoidance.
    assert ended.height > 1
    assert set(ended["cwnd_after"] - ended["ssthresh"]) <= {0, 1}


@pytest.mark.parametrize("parent", ["reno", "cubic"])
def test_rate_halving_ends_below_ssthresh(work: Path, parent: str) -> None:
    first = overshoot(work, f"{parent}_rh")
    assert first["cwnd_after"] < first["ssthresh"] - 5


@pytest.mark.parametrize("parent", ["reno", "cubic"])
def test_only_rfc_3517_falls_silent(work: Path, parent: str) -> None:
    """After a loss from a full queue: as much as cwnd fell by has to arrive before it sends."""
    silent: dict[str, float] = {}
    for rule in MODES:
        found = analysis.reductions(traced(work, f"{parent}_{rule}")["recovery"])
        single = found.filter(pl.col("pipe_before") > pl.col("ssthresh"), next_state="Open")
        silent[rule] = analysis.percentile(single["silence_ns"] / single["srtt_ns"], 50) or 0.0
    expected = {"reno": 0.5, "cubic": 0.3}[parent]  # of a round trip: what ssthresh takes off
    assert silent.pop("3517") == pytest.approx(expected, abs=0.1)
    assert all(share < 0.1 for share in silent.values()), silent


LOSSES = {"": 5, "loss 2%": 15, BURSTS: 5}  # seconds: with many losses a sender receives few segments


def probes(work: Path, control: str, mode: int, loss: str) -> pl.DataFrame:
    """What TCP had at each segment that a sender received, since its connection began.

    Nothing else is traced: each event takes a nanosecond of virtual time.
    """
    own = work / re.sub(r"[^a-z0-9]+", "_", f"{control} {mode} {loss} alone")
    given = {"control": control, "mode": mode, "loss": loss, "seconds": LOSSES[loss], "collect": ""}
    booted(own, "recovery.sh", "recovery", **given)
    rows = pl.DataFrame([match.groupdict() for match in PROBE.finditer((own / "probes.txt").read_text())])
    hexadecimal = pl.col("snd_nxt", "snd_una").str.to_integer(base=16)
    rows = rows.with_columns(hexadecimal, pl.col("at", "snd_cwnd", "ssthresh").cast(pl.Float64))
    return rows.with_columns(pl.col("at", "snd_nxt", "snd_una") - pl.col("at", "snd_nxt", "snd_una").first())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rule", MODES)
@pytest.mark.parametrize("parent", ["reno", "cubic"])
def test_the_module_does_what_the_kernel_does(work: Path, parent: str, rule: str, loss: str) -> None:
    """ACK by ACK, with the same losses: a socket with the rule, and the parent in a namespace with it."""
    arms = ((f"{parent}_{rule}", 0), (parent, MODES[rule]))
    module, kernel = (probes(work, control, mode, loss) for control, mode in arms)
    assert module.height > 500
    assert module["ssthresh"].n_unique() > 2
    assert module.rows() == kernel.rows()


def test_loads_unloads_and_changes_under_traffic(work: Path) -> None:
    controls = " ".join(f"{parent}_{rule}" for parent in ("reno", "cubic") for rule in sorted(MODES))
    given = {"times": 1000, "controls": controls, "changes": HERE / "changes.py"}
    said = booted(work / "changes", "changes.sh", uml.DEBUG, loss="loss 2%", **given)
    loaded, refused, sent, cwnd = map(int, re.findall(r"\d+", said))
    assert (loaded, refused) == (1000, 1000)
    assert sent > 10_000_000
    assert cwnd < 10_000
