"""atou beside its kernel's TCP: one congestion control, one path, the same packets lost, in virtual time."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import uml
from ruamel.yaml import YAML

from dumbbell import atou
from dumbbell.atou import Json
from playbooks import REPOSITORY

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
ATOU = REPOSITORY / ".build" / "bin" / "atou"
SCENARIO = YAML(typ="safe").load(REPOSITORY / "scenarios" / "atou_beside_tcp.yml")
SECONDS = 30
# 100 Mbit/s, 70 ms and a queue of a BDP. In virtual time the packets of a burst arrive at once, and TCP
# has one ACK for up to a window of them, unlike atou's receiver: the bottleneck takes them apart.
PATH = {"rate": 100, "delay": 35, "queue": 578, "burst": 1600}
SEEDS = {"0%": ["1"], "0.1%": ["1", "2", "3"], "1%": ["1", "2", "3"]}  # without loss nothing is drawn
DIFFERENCE = {"reno": 0.10, "highspeed": 0.15, "scalable": 0.15, "vegas": 0.15}
PAYLOAD = {"tcp": 1448, "atou": 1472}  # bytes of a full packet


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("atou")


def booted(
    own: Path, arm: str, path: Mapping[str, object], seed: str, ends: Sequence[Json], **given: object
) -> Json:
    """What a flow says of itself that was alone in a kernel: iperf3's end, or atou's sender."""
    own.mkdir()
    for name, keys in zip(("sender", "receiver"), ends, strict=True):
        (own / f"{name}.conf").write_text("".join(f"{key} {value}\n" for key, value in keys.items()))
    given = {"loss": "", "atou": ATOU} | dict(path) | {"arm": arm} | given
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in given.items()]
    lines += [(HERE / name).read_text() for name in ("recovery_path.sh", "atou.sh")]
    uml.run("\n".join(lines), own, virtual=True, seed=seed, timeout_s=1800)
    if arm == "tcp":
        return dict(json.loads((own / "iperf3.json").read_text())["end"])
    found = dict(json.loads((own / "sender.json").read_text()))
    assert found["path"]["socket_drops"] == found["enobufs"] == 0
    return found


def transferred(work: Path, arm: str, control: str, loss: str, seed: str) -> Json:
    """What a flow has come to: ``{packets_s, retransmits}``, of atou ``timeouts`` too.

    A kernel's seed is its loss's too, and which packets of a flow are lost depends on it alone.
    """
    sender = SCENARIO["matrix"]["atou"][control] | {"host": "10.0.3.2", "maxtime": SECONDS}
    ends = sender, SCENARIO["flows"]["atou"]["receiver"]
    path = PATH | ({} if loss == "0%" else {"loss": f"loss {loss}"})
    own = work / f"{arm}_{control}_{loss}_{seed}"
    found = booted(own, arm, path, seed, ends, control=control, seconds=SECONDS)
    if arm == "tcp":
        goodput = found["sum_received"]["bytes"] / found["sum_sent"]["seconds"]
        return {"packets_s": goodput / PAYLOAD[arm], "retransmits": found["sum_sent"]["retransmits"]}
    return {
        "packets_s": found["goodput_bps"] / 8 / PAYLOAD[arm],
        "retransmits": found["rxmts"],
        "timeouts": found["timeouts"],
    }


@pytest.mark.parametrize("loss", SEEDS)
@pytest.mark.parametrize("control", DIFFERENCE)
def test_goodput_is_tcps(
    work: Path, control: str, loss: str, record_property: Callable[[str, object], None]
) -> None:
    """In packets: TCP's timestamps take from its payload what atou's header has within its own."""
    ratios = []
    for seed in SEEDS[loss]:
        tcp, own = (transferred(work, arm, control, loss, seed) for arm in ("tcp", "atou"))
        record_property(f"tcp, seed {seed}", tcp)
        record_property(f"atou, seed {seed}", own)
        ratios.append(own["packets_s"] / tcp["packets_s"])
    assert statistics.median(ratios) == pytest.approx(1, abs=DIFFERENCE[control])


@pytest.mark.parametrize("delack", [0, 40])
def test_vegas_is_as_simulated(work: Path, delack: int) -> None:
    """It looks at tenths of a millisecond: where it leaves slow start, on which its goodput depends."""
    sender = {"mss": 1472, "sndbuf": 8_000_000, "rcvbuf": 4_000_000, "vegas": 1}
    receiver = {"rcvbuf": 4_000_000, "delack": delack}
    path = {"rate": 20, "delay": 25, "queue": 40, "burst": 1600}
    live = booted(work / f"vegas_{delack}", "atou", path, "1", (sender | {"host": "10.0.3.2"}, receiver))
    # Of the kernel's rate, frames of 1514 bytes, the simulator's has packets.
    forward = {"rate_bps": 20_000_000 * 1500 // 1514, "queue": 40}
    simulated = atou.simulate(atou.Path(50, forward), sender, receiver)
    assert live["goodput_bps"] == pytest.approx(simulated.goodput_bps, rel=0.05)
