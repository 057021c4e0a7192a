"""Points on four workers whose machines break: none is lost, none counts twice, and samples are equal."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_processes import Processes, processes
from runs import Kept

from playbooks import REPOSITORY, ansible_playbook, start_playbook, unfolded

pytestmark = [pytest.mark.virtual, pytest.mark.long]

SCENARIO = Path(__file__).with_name("cluster.yml")
POINTS = 4
TIMEOUT_S = 2400
LAB = REPOSITORY / ".lab"
INVENTORY = ("-i", "inventory/vtime")
PLAYBOOK = (*INVENTORY, "playbooks/virtual.yml")


def begin(results: Path, cluster: Processes) -> subprocess.Popen[str]:
    asked = ("-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}", "-e", f"cluster={cluster.address}")
    return start_playbook(*PLAYBOOK, *asked)


def points(results: Path) -> list[Kept]:
    return [Kept(path) for path in sorted((results / "latest/points").iterdir())]


def digests(results: Path) -> list[dict[str, str]]:
    return [point.json("manifest.json")["digests"] for point in points(results)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Digests of all points, run without a cluster."""
    results = tmp_path_factory.mktemp("local")
    asked = ("-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}")
    code, said = ansible_playbook(*PLAYBOOK, *asked, timeout_s=TIMEOUT_S)
    assert code == 0, said[-3000:]
    return digests(results)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path / "cluster") as found:
        yield found


def of_its_own(script: str, *arguments: str | Path) -> list[str]:
    """A command's beginning: it gets a machine of its own, as far as the script mounts one."""
    within = f'{script}\nshift {len(arguments)}; exec "$@"'
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        within,
        "sh",
        *map(str, arguments),
    ]


def older_checkout(folder: Path) -> list[str]:
    sources = shutil.copytree(REPOSITORY / "src", folder / "older")
    (sources / "dumbbell/chance.py").write_text("# what it was before\n")
    return of_its_own('mount --bind "$1" "$2"', sources, REPOSITORY / "src")


def without_worlds() -> list[str]:
    return of_its_own('mount -t tmpfs tmpfs "$1"', LAB)


def with_small_disk(directory: Path, size: str) -> list[str]:
    directory.mkdir(parents=True)
    return of_its_own('mount -t tmpfs -o size="$2" tmpfs "$1"', directory, size)


def within(cluster: Processes, name: str, directory: Path) -> Path:
    """A directory as the worker sees it."""
    return Path(f"/proc/{cluster.running[name].pid}/root{directory}")


def wait_until(holds: Callable[[], bool], playbook: subprocess.Popen[str], what: str) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not holds():
        assert playbook.poll() is None, f"it ended before {what}: {playbook.communicate()[0][-3000:]}"
        assert time.monotonic() < until, what
        time.sleep(0.2)


def fill(disk: Path) -> None:
    with (disk / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - (1 << 20))


def measures(cluster: Processes, name: str) -> bool:
    """Whether a worker runs a point whose virtual time passes."""
    return any(within(cluster, name, cluster.folder / name).glob("**/point.*/**/world/beat"))


def ended(playbook: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = playbook.communicate(timeout=TIMEOUT_S)
    return playbook.returncode, unfolded(said)


def test_workers_that_break_lose_no_point(
    local: list[dict[str, str]], cluster: Processes, tmp_path: Path
) -> None:
    """Of four workers one is killed, one's disk gets full, one has an older checkout, one lacks the world."""
    small = cluster.folder / "small"
    cluster.worker("small", within=with_small_disk(small, "600m"), directory=small)
    cluster.worker("killed")
    cluster.worker("older", within=older_checkout(tmp_path))
    cluster.worker("empty", within=without_worlds())
    cluster.wait()
    playbook = begin(tmp_path / "results", cluster)
    wait_until(lambda: measures(cluster, "killed"), playbook, "a point ran on the first worker")
    cluster.kill("killed")
    wait_until(lambda: measures(cluster, "small"), playbook, "a point ran on the worker with a small disk")
    fill(within(cluster, "small", small))
    code, said = ended(playbook)
    assert code == 0, said[-3000:]
    assert digests(tmp_path / "results") == local
    assert [point.state for point in points(tmp_path / "results")] == ["passed"] * POINTS
    assert "worker older on " in said
    assert f"its checkout {REPOSITORY} has the digest " in said
    assert "worker killed on " in said
    assert "is gone; what it ran begins again elsewhere" in said
    assert "worker small on " in said
    assert "its disk is full" in said
    assert "1 workers get the world" in said
    assert f"cluster: {POINTS} of {POINTS} points have ended" in said


def test_without_its_scheduler_a_run_stops_and_is_resumed(
    local: list[dict[str, str]], tmp_path: Path
) -> None:
    results = tmp_path / "results"
    with processes(tmp_path / "first") as first:
        for number in range(4):
            first.worker(f"w{number}")
        playbook = begin(results, first)
        wait_until(
            lambda: any(results.glob("latest/points/*/world/status")), playbook, "a point had come home"
        )
        first.kill("scheduler")
        code, said = ended(playbook)
    assert code != 0
    assert (
        f"no longer answers. What has come home is kept. To go on: playbooks/virtual.yml -e run={results}"
        in said
    )
    home = {path: path.stat().st_mtime_ns for path in results.glob("latest/points/*/world/status")}
    assert 0 < len(home) < POINTS
    with processes(tmp_path / "second") as second:
        for number in range(4):
            second.worker(f"w{number}")
        run = (results / "latest").resolve()
        asked = ("-e", f"run={run}", "-e", f"cluster={second.address}")
        code, said = ansible_playbook(*PLAYBOOK, *asked, timeout_s=TIMEOUT_S)
    assert code == 0, said[-3000:]
    assert digests(results) == local
    assert {path: path.stat().st_mtime_ns for path in home} == home
