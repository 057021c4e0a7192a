"""What ``--cluster`` means: a cluster that is started, or one that is there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumbbell.cluster import ADDRESS, ClusterError
from dumbbell.inventory import Inventory
from dumbbell.quantities import Strict
from dumbbell.scenario.load import read_as

if TYPE_CHECKING:
    from distributed import Client

    from dumbbell.cluster.points import Points

KINDS = "ssh:HOSTS.yml, slurm:PARTITION, slurm:PARTITION:JOBS, or tcp://SCHEDULER:8786"
_JOBS = 10  # of a partition, by default
_FAILURES = 1000  # of workers, before Dask gives up a task: it counts tasks that only waited there
_ANSWER_S = 30
# Of a job of a batch system, unless dask-jobqueue is configured otherwise: a world needs a core and 4 GB.
_JOB = {"cores": 1, "processes": 1, "memory": "6GB"}


class SSHHosts(Strict):
    """Machines that are reached by SSH, without a password. ``docs/scale.md`` says what they need."""

    hosts: list[str]
    scheduler: str | None = None  # by default the first host
    user: str | None = None
    worlds: int | None = None  # at once on each host; by default one for each core
    directory: str | None = None  # where workers keep points that run; by default below /tmp


@contextmanager
def points(
    asked: str, world: Mapping[str, str], checkout: Path, *, keys: bool, say: Callable[[str], None]
) -> Iterator[Points]:
    """An executor of worlds on the cluster that is asked for. ClusterError if it cannot be had.

    ``world`` is as :func:`dumbbell.virtual.runs.run` gets it; ``keys``: full worlds need the hosts' SSH keys.
    """
    with connected(asked) as client:
        from dumbbell.cluster.needs import Needs  # noqa: PLC0415
        from dumbbell.cluster.points import Points  # noqa: PLC0415

        needs, archive = Needs.of(world, checkout, keys=keys)
        yield Points(client, needs, archive, say)


@contextmanager
def shared(asked: str, inventory: Path) -> Iterator[None]:
    """Have all playbooks that this process starts use one cluster; '' asks for none.

    ClusterError if it cannot be had, or if the inventory is of real time.
    """
    if not asked:
        yield
        return
    if not Inventory.read(inventory).virtual:
        raise ClusterError(f"--cluster runs points of virtual time, and {inventory} is of real time")
    with connected(asked) as client:
        before = os.environ.get(ADDRESS)
        os.environ[ADDRESS] = client.scheduler.address
        try:
            yield
        finally:
            os.environ.pop(ADDRESS)
            if before is not None:
                os.environ[ADDRESS] = before


@contextmanager
def connected(asked: str) -> Iterator[Client]:
    """A client of the cluster that is asked for, as :data:`KINDS` has it; it ends with what was started."""
    kind, _, which = asked.partition(":")
    starts = {"ssh": _ssh, "slurm": _slurm}
    if kind not in {*starts, "tcp", "tls"} or not which:
        raise ClusterError(f"--cluster {asked}: write {KINDS}")
    try:
        import dask  # noqa: PLC0415
        from distributed import Client  # noqa: PLC0415
    except ImportError:
        raise ClusterError("Dask is not installed: pip install dumbbell[cluster]") from None
    with ExitStack() as stack, dask.config.set({"distributed.scheduler.allowed-failures": _FAILURES}):
        try:
            cluster = stack.enter_context(starts[kind](which)) if kind in starts else asked
            client = stack.enter_context(Client(cluster, timeout=_ANSWER_S, set_as_default=False))
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"--cluster {asked} cannot be had: {error}") from None
        yield client


def _ssh(file: str) -> Any:
    from distributed import SSHCluster  # noqa: PLC0415

    wanted = ssh_hosts(Path(file))
    worker: dict[str, Any] = {"nthreads": wanted.worlds, "local_directory": wanted.directory}
    return SSHCluster(
        [wanted.scheduler or wanted.hosts[0], *wanted.hosts],
        remote_python=sys.executable,
        connect_options={"username": wanted.user} if wanted.user else {},
        worker_options={name: value for name, value in worker.items() if value is not None},
    )


def ssh_hosts(path: Path) -> SSHHosts:
    """Read a file of machines; ScenarioError with everything that is wrong in it."""
    return read_as(path, SSHHosts)[1]


def _slurm(which: str) -> Any:
    import dask  # noqa: PLC0415
    from dask_jobqueue import SLURMCluster  # noqa: PLC0415

    partition, _, number = which.partition(":")
    jobs = int(number) if number.isdecimal() else 0 if number else _JOBS
    if not jobs:
        raise ClusterError(f"--cluster slurm:{which}: {number} is no number of jobs")
    if shutil.which("sbatch") is None:
        raise ClusterError(f"--cluster slurm:{which}: this machine has no sbatch, which asks Slurm for jobs")
    configured = dask.config.get("jobqueue.slurm", {})
    job = {name: value for name, value in _JOB.items() if configured.get(name) is None}
    cluster = SLURMCluster(queue=partition, **job)
    cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)  # a job whose time is over is followed by another
    return cluster
