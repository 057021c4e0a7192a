from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from captured import write_captured
from hypothesis import settings
from lab import INFLUXDB_PORT, SECRET, Lab
from synthetic import REPOSITORY, write_points, write_run

from dumbbell.execution.collect import collect
from dumbbell.run.directory import RunDir
from dumbbell.validity.points import summarise
from playbooks import ansible_playbook

BUILD_TIMEOUT_S = 3600
SWEEP = """
name: sweep
title: Two flows, of which one varies, over two queues
duration: 4s
order: listed
matrix:
  beside: [cubic, reno]
  queue: [0.5bdp, 2bdp]
baselines: {alone: [first]}
path:
  forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: $queue}}
flows:
  first: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}
  second: {kind: iperf3_tcp, from: "senders[1]", to: "receivers[1]", congestion_control: $beside}
"""

WIDE = """
name: wide
title: Two flows over controls and queues
duration: 4s
order: listed
repetitions: 2
matrix:
  control: [cubic, reno, bbr]
  queue: [0.5bdp, 1bdp, 2bdp, 4bdp]
path:
  forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: $queue}}
flows:
  first: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}
  second: {kind: iperf3_tcp, from: "senders[1]", to: "receivers[1]", congestion_control: $control}
"""

# An example of a busy machine may take long.
settings.register_profile("dumbbell", deadline=None)
settings.load_profile("dumbbell")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--run",
        action="append",
        default=[],
        type=Path,
        help="directory of a passed run whose inputs are altered",
    )


@pytest.fixture
def run_given(request: pytest.FixtureRequest) -> list[Path]:
    """Runs that were made elsewhere; usually none."""
    return list(request.config.getoption("--run"))


@pytest.fixture(scope="session")
def _synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("results") / "run"
    write_run(run_dir)
    return run_dir


@pytest.fixture(scope="session")
def _changing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("results") / "changing"
    write_run(run_dir, REPOSITORY / "tests" / "e2e" / "changing_path.yml")
    return run_dir


@pytest.fixture
def changing(_changing: Path, tmp_path: Path) -> Path:
    """Another, whose path changes and whose flows have delays of their own."""
    return Path(shutil.copytree(_changing, tmp_path / "run"))


@pytest.fixture
def run_dir(_synthetic: Path, tmp_path: Path) -> Path:
    """A synthetic run directory, as it comes home; a test may damage it."""
    return Path(shutil.copytree(_synthetic, tmp_path / "run"))


@pytest.fixture(scope="session")
def collected(_synthetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with all that is made of it, to be read only."""
    run_dir = Path(shutil.copytree(_synthetic, tmp_path_factory.mktemp("collected") / "run"))
    collect(run_dir, None)
    return run_dir


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a capture at a sender."""
    return write_captured(tmp_path_factory.mktemp("captured"))


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of several points, with all that is made of it."""
    return write_sweep(tmp_path_factory.mktemp("swept"), "sweep", SWEEP)


@pytest.fixture(scope="session")
def on_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cubic and reno beside UDP of 5 and 15 Mbit/s, and of that UDP alone."""
    run_dir = tmp_path_factory.mktemp("results") / "20260101T000000Z_on_off"
    whole = write_points(run_dir, REPOSITORY / "tests/unit/fixtures/on_off.yml")
    (run_dir / "plan.json").write_bytes(whole.to_json())
    for point in sorted((run_dir / "points").iterdir()):
        assert collect(point, None).state == "passed"
    return run_dir


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another, of 24 points."""
    return write_sweep(tmp_path_factory.mktemp("wide"), "wide", WIDE)


def write_sweep(folder: Path, name: str, text: str) -> Path:
    (scenario := folder / f"{name}.yml").write_text(text)
    run_dir = folder / "results" / f"20260101T000000Z_{name}"
    whole = write_points(run_dir, scenario)
    (run_dir / "plan.json").write_bytes(whole.to_json())
    for point in (run_dir / "points").iterdir():
        collect(point, None)
    summarise(RunDir.open(run_dir))
    return run_dir


@pytest.fixture(scope="session")
def _atou(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("results") / "atou"
    write_run(run_dir, REPOSITORY / "scenarios" / "atou_recovery.yml")
    return run_dir


@pytest.fixture
def atou(_atou: Path, tmp_path: Path) -> Path:
    """Another, whose flow is of atou."""
    return Path(shutil.copytree(_atou, tmp_path / "run"))


@pytest.fixture(scope="session")
def collected_atou(_atou: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with all that is made of it, to be read only."""
    run_dir = Path(shutil.copytree(_atou, tmp_path_factory.mktemp("collected") / "atou"))
    collect(run_dir, None)
    return run_dir


@pytest.fixture(scope="session")
def simulator() -> None:
    """That of atou, made anew where its sources have changed."""
    command = ["make", ".build/bin/atou"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab of Ansible's inventory, which ``make provision`` has brought up."""
    lab = Lab.of_inventory()
    addresses = lab.addresses
    wanted = [(name, 22) for name in addresses] + [("archive", INFLUXDB_PORT)]
    silent = [why for name, port in wanted if (why := unreachable(name, addresses[name], port))]
    if not SECRET.exists():
        silent.append("InfluxDB has no accounts yet")
    if silent:
        pytest.fail(f"The lab is not up: run make provision. {'; '.join(silent)}", pytrace=False)
    return lab


@pytest.fixture(scope="module")
def own_kernel(lab: Lab) -> Iterator[Lab]:
    """The lab on the project's own kernel; afterwards it has a distribution's again."""

    def provision(kernel: str) -> None:
        code, said = ansible_playbook(
            "playbooks/provision.yml", "-e", f"kernel_image={kernel}", timeout_s=BUILD_TIMEOUT_S
        )
        assert code == 0, said[-4000:]

    provision("kernels/lab.yml")
    yield lab
    provision("user-mode-linux")


def unreachable(name: str, address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), timeout=10).close()
    except OSError as error:
        return f"{name} ({address} port {port}): {error}"
    return ""
