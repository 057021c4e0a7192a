"""Ten minutes of strangers at all ports of a run: nothing of it changes but their number in the verdict."""

from __future__ import annotations

import subprocess
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from lab import Lab
from runs import Kept
from waiting import run_until_measuring

from dumbbell.plan import Plan

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SCENARIO = Path(__file__).with_name("strangers.yml")
BESIEGE = Path(__file__).with_name("besiege.py")
SECONDS = 570  # in which they come: a little less than the run takes
ASKED = 10_000  # connections of each port, as besiege.py asks
TIMEOUT_S = 1200
# Whose packets do not share the path with those of the flows.
STRANGERS = {"sender1": "sender2", "receiver1": "receiver2"}
TOLERANCE = 0.02
NDT_TOLERANCE = 0.2  # it takes all of the path, and is measured over 10 s


@dataclass(frozen=True)
class Besieged(Kept):
    """A run, and the memory of the agents on its hosts while it measured, in kB."""

    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ports(self) -> dict[str, tuple[str, list[int]]]:
        """Address and ports of each host that has servers."""
        found: dict[str, tuple[str, list[int]]] = {}
        plan = Plan.model_validate_json((self.dir / "plan.json").read_bytes())
        for flow in plan.points[0].phase("measurement").flows:
            found.setdefault(flow.server_host, (flow.server, []))[1].append(flow.server_port)
        return found

    def goodputs(self) -> dict[str, float]:
        flows = pl.read_parquet(self.dir / "flows.parquet").filter(phase="measurement")
        return dict(flows.select("name", "goodput_bps").iter_rows())


def measured(lab: Lab, folder: Path, *, besieged: bool) -> Besieged:
    memory: dict[str, list[int]] = defaultdict(list)

    def meet(playbook: subprocess.Popen[str]) -> None:
        over = threading.Event()
        run = Besieged((folder / "results" / "latest").resolve())

        def watch(host: str) -> None:
            resident = "grep VmRSS /proc/$(pgrep --oldest --exact dumbbell-agent)/status"
            while not over.wait(10):
                found = lab.run(host, resident)  # there is none any more once it has ended
                if found.returncode == 0:
                    memory[host].append(int(found.stdout.split()[1]))

        try:
            with ThreadPoolExecutor() as beside:
                watched = [beside.submit(watch, host) for host in run.ports]
                strange = [
                    beside.submit(
                        lab.ssh,
                        STRANGERS[host],
                        f"python3 - {SECONDS} {address} {' '.join(map(str, ports))}",
                        BESIEGE.read_bytes(),
                        2 * SECONDS,
                    )
                    for host, (address, ports) in run.ports.items()
                    if besieged
                ]
                playbook.wait(timeout=TIMEOUT_S)
                over.set()
                for watcher in watched:
                    watcher.result()
                for stranger in strange:
                    stranger.result()
        finally:
            over.set()

    run_dir, said, _ = run_until_measuring(SCENARIO, folder, meet)
    assert "Traceback" not in said
    return Besieged(run_dir, memory)


@pytest.fixture(scope="module")
def quiet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Besieged:
    return measured(lab, tmp_path_factory.mktemp("quiet"), besieged=False)


@pytest.fixture(scope="module")
def besieged(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Besieged:
    return measured(lab, tmp_path_factory.mktemp("besieged"), besieged=True)


def test_the_run_passes(besieged: Besieged) -> None:
    assert (besieged.state, besieged.json("verdict.json")["reasons"]) == ("passed", [])


def test_no_number_of_a_flow_changes(quiet: Besieged, besieged: Besieged) -> None:
    before, after = quiet.goodputs(), besieged.goodputs()
    assert before.keys() == after.keys() == {"tcp", "loads", "datagrams", "web", "paced", "ndt"}
    for name, goodput in before.items():
        assert after[name] == pytest.approx(goodput, rel=NDT_TOLERANCE if name == "ndt" else TOLERANCE), name


def test_memory_is_flat(quiet: Besieged, besieged: Besieged) -> None:
    for host in STRANGERS:
        before, after = quiet.memory[host], besieged.memory[host]
        assert len(after) > SECONDS / 30
        assert max(after) < max(before) + 2048, host  # kB


def test_strangers_are_counted(quiet: Besieged, besieged: Besieged) -> None:
    for run, asked in ((quiet, 0), (besieged, ASKED)):
        checks = [check for check in run.json("verdict.json")["checks"] if check["name"] == "strangers"]
        assert all(check["ok"] for check in checks), checks
        found = {check["subject"]: check["measured"] for check in checks}
        for host, (_, ports) in run.ports.items():
            came = found[f"{host} measurement"]
            assert came >= asked * len(ports) if asked else came == 0
