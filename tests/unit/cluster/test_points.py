"""Points on workers of a cluster, whose worlds are shell scripts: none is lost, and none counts twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from dask_processes import Processes, processes
from distributed import Client

from dumbbell.cluster import ClusterError
from dumbbell.cluster import points as of_points
from dumbbell.cluster.needs import Needs, digest_of_checkout
from dumbbell.cluster.points import Points
from dumbbell.cluster.worker import died_of
from dumbbell.virtual.world import World, run

# Each world takes a core of its own: beside other tests of worlds these would wait for them. On a busy
# machine they take minutes.
pytestmark = [pytest.mark.virtual, pytest.mark.long]

OWN = "for word; do case $word in world=*) world=${word#world=} ;; esac; done"
ENDS = "echo 3 >$world/beat; echo 0 >$world/status"


class Site:
    """A checkout with the files of a world, whose kernel is a script."""

    def __init__(self, folder: Path, script: str) -> None:
        self.checkout, self.run, self.lab = folder / "checkout", folder / "results/run", folder / "lab"
        (self.checkout / "src").mkdir(parents=True)
        (self.checkout / "src/of_dumbbell.py").write_text("VERSION = 1\n")
        self.world = self.lab / "worlds/w"
        (self.world / "provisioned").mkdir(parents=True)
        (self.lab / "image-1").mkdir()
        (self.lab / "image-1/file").write_text("of a host")
        kernels = self.lab / "kernels/k"
        kernels.mkdir(parents=True)
        self.kernel, self.init = kernels / "linux", self.world / "init"
        self.kernel.write_text(f"#!/bin/sh\n{OWN}\nshared={folder}\n{script}\n")
        self.kernel.chmod(0o755)
        self.init.write_text("tree=/run/lab/image-1\n")
        (self.world / "hosts").touch()

    def needs(self) -> tuple[Needs, Path]:
        of = {"dir": str(self.world), "kernel": str(self.kernel), "init": str(self.init)}
        return Needs.of(of, self.checkout, keys=False)

    def worlds(self, number: int) -> list[World]:
        made = []
        for name in (f"{n:03d}" for n in range(1, number + 1)):
            folder = self.run / "points" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plan.json").write_text(name)
            made.append(
                World(
                    dir=folder / "world",
                    kernel=self.kernel,
                    lab=self.lab,
                    init=self.init,
                    command=["true"],
                    checkout=self.checkout,
                    writable={Path("/run/results/run/points", name): folder},
                    readable={Path("/run/results/run"): self.run},
                    start_unix_ns=10**18,
                    light={},
                    expected_s=float(name),
                )
            )
        return made


@contextmanager
def executor(site: Site, cluster: Processes, said: list[str]) -> Iterator[Points]:
    needs, archive = site.needs()
    with Client(cluster.address, set_as_default=False) as client:
        yield Points(client, needs, archive, said.append)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path / "cluster") as found:
        yield found


def test_points_come_home_from_workers_and_leave_nothing_there(tmp_path: Path, cluster: Processes) -> None:
    site = Site(tmp_path, f"cat links/4/plan.json >links/4/result; {ENDS}")
    for name in ("w1", "w2"):
        cluster.worker(name)
    said: list[str] = []
    with executor(site, cluster, said) as points:
        ended = list(points.map(run, worlds := site.worlds(5)))
    assert [(of.status, of.virtual_s, of.reason) for of in ended] == [(0, 3, "")] * 5
    for world in worlds:
        assert (world.dir.parent / "result").read_text() == world.dir.parent.name
        assert (world.dir / "console.log").exists()
    assert sorted(path.name for path in (site.run / "points").iterdir()) == [
        "001",
        "002",
        "003",
        "004",
        "005",
    ]
    assert not [*cluster.folder.glob("w?/**/point.*")]
    assert said[-1].startswith("cluster: 5 of 5 points have ended, 0 run on 2 workers; http://")


def test_the_longest_begins_first(tmp_path: Path, cluster: Processes) -> None:
    site = Site(tmp_path, f"cat links/4/plan.json >>$shared/order; {ENDS}")
    cluster.worker("w1")
    with executor(site, cluster, []) as points:
        list(points.map(run, site.worlds(4)))
    assert (tmp_path / "order").read_text() == "004003002001"


def test_a_point_whose_worker_dies_runs_elsewhere_and_counts_once(tmp_path: Path, cluster: Processes) -> None:
    """Its worker is the parent of its kernel."""
    site = Site(tmp_path, f"if mkdir $shared/killed; then kill -9 $PPID; exit; fi; {ENDS}")
    for name in ("w1", "w2"):
        cluster.worker(name)
    said: list[str] = []
    with executor(site, cluster, said) as points:
        ended = list(points.map(run, site.worlds(6)))
    assert [of.reason for of in ended] == [""] * 6
    assert [line for line in said if re.search(r"worker w[12] on .* is gone; what it ran begins again", line)]


def test_a_point_that_kills_workers_is_given_up_after_two(tmp_path: Path, cluster: Processes) -> None:
    kills = "if [ $(cat links/4/plan.json) = 002 ]; then kill -9 $PPID; exit; fi"
    site = Site(tmp_path, f"{kills}; {ENDS}")
    for name in ("w1", "w2", "w3"):
        cluster.worker(name)
    with executor(site, cluster, []) as points:
        first, second, third = points.map(run, site.worlds(3))
    assert (first.reason, third.reason) == ("", "")
    assert second.status is None
    assert second.reason.startswith("given up, because workers died while they ran it: worker w")
    assert second.reason.count(" (log /") == 2
    assert not cluster.running["w1"].poll() or not cluster.running["w2"].poll()


def test_a_world_that_fails_says_on_which_worker_and_its_console_is_home(
    tmp_path: Path, cluster: Processes
) -> None:
    site = Site(tmp_path, "echo of no use; exit 3")
    cluster.worker("w1")
    with executor(site, cluster, []) as points:
        (ended,) = points.map(run, worlds := site.worlds(1))
    console = worlds[0].dir / "console.log"
    assert ended.reason.startswith(f"the world's kernel ended with 3; see {console} (it ran on worker w1 on ")
    assert ended.reason.endswith(f"(log {cluster.folder / 'w1.log'}))")
    assert console.read_text() == "of no use\n"


@pytest.fixture
def impatient(tmp_path: Path, cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose only worker is waited for a second if it is refused."""
    monkeypatch.setattr(of_points, "_PATIENCE_S", 1)
    cluster.worker("w1")
    return Site(tmp_path, ENDS)


def test_a_worker_with_another_checkout_is_refused_by_name(impatient: Site, cluster: Processes) -> None:
    site = impatient
    needs, archive = site.needs()
    (site.checkout / "src/of_dumbbell.py").write_text("VERSION = 2\n")
    with (
        Client(cluster.address, set_as_default=False) as client,
        pytest.raises(ClusterError, match="no worker of the cluster can run points") as caught,
    ):
        list(Points(client, needs, archive, print).map(run, site.worlds(1)))
    old, new = needs.digest[:12], digest_of_checkout(site.checkout)[:12]
    assert "worker w1 on " in str(caught.value)
    assert f"its checkout {site.checkout} has the digest {new}, and this one {old}" in str(caught.value)


def test_a_lacking_world_is_sent_once(tmp_path: Path, cluster: Processes) -> None:
    site = Site(tmp_path, f"cat {tmp_path}/lab/image-1/file; {ENDS}")
    for name in ("w1", "w2"):
        cluster.worker(name)
    needs, archive = site.needs()
    needs.mark.unlink()
    (site.lab / "image-1/file").write_text("of another world")
    said: list[str] = []
    with Client(cluster.address, set_as_default=False) as client:
        ended = list(Points(client, needs, archive, said.append).map(run, worlds := site.worlds(2)))
    assert [of.reason for of in ended] == ["", ""]
    assert [(world.dir / "console.log").read_text() for world in worlds] == ["of a host"] * 2
    assert len([line for line in said if "get the world" in line]) == 1
    assert {path.suffix for path in needs.mark.parent.iterdir()} == {"", ".lock", ".part", ".zst"}


def test_a_damaged_world_is_refused(impatient: Site, cluster: Processes) -> None:
    needs, archive = impatient.needs()
    with (
        Client(cluster.address, set_as_default=False) as client,
        pytest.raises(ClusterError, match=r"could not get the world: .* is damaged"),
    ):
        list(Points(client, replace(needs, archive="0" * 64), archive, print).map(run, impatient.worlds(1)))


def test_without_a_scheduler_results_are_kept_and_the_next_call_runs_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_points, "_SAY_S", 0)
    script = f"plan=$(cat links/4/plan.json); echo $plan >>$shared/ran; {ENDS}; [ $plan = 002 ] || exit 0"
    site = Site(tmp_path, f"{script}; while ! [ -e $shared/go ]; do sleep 0.1; done")
    with processes(tmp_path / "first") as first:
        first.worker("w1")

        def say(line: str) -> None:
            if "1 of 3" in line:
                first.kill("scheduler")

        needs, archive = site.needs()
        worlds = site.worlds(3)
        with Client(first.address, set_as_default=False) as client:
            points = Points(client, needs, archive, say)
            with pytest.raises(ClusterError, match=r"no longer answers.*-e run="):
                list(points.map(run, worlds))
    home = [world for world in worlds if (world.dir / "status").exists()]
    assert [world.dir.parent.name for world in home] == ["003"]
    (tmp_path / "go").touch()
    with processes(tmp_path / "second") as second:
        second.worker("w1")
        with executor(site, second, []) as points:
            assert [of.reason for of in points.map(run, worlds)] == [""] * 3
    assert (tmp_path / "ran").read_text().split() == ["003", "002", "002", "001"]


def test_deaths_are_those_of_workers_that_began_and_did_not_leave() -> None:
    events = [(0, {"began": "w1"}), (1, {"began": "w2"}), (2, {"left": "w2"}), (3, {"began": "w3"})]
    assert died_of(events) == ["w1", "w3"]
    assert died_of([]) == []
