"""What virtual time does not support, and how long a plan takes in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dumbbell.kinds.asked.command import CommandFlow
from dumbbell.plan.document import Host, Point
from dumbbell.plan.path import PACKET_BYTES, PlannedPath
from dumbbell.scenario import KeyPath, Scenario

Problem = tuple[KeyPath, str]

# Measured on a core of the machine in docs/virtual-time.md.
FULL_S = 75.0  # to boot a full world, and for all of Ansible's work in it
LIGHT_S = 15.0  # the same of a light world
PACKET_S = 100e-6
GATHERED = 0.1  # the share of that where senders merge packets
SELDOM = 0.05  # the share of that of flows of kind tcp, which enter the kernel about once a second
SAMPLE_S = 1.2e-3  # one sample of one host

# They busy-wait on the clock, and each reading takes 256 ns of virtual time.
SPINNING = frozenset({"iperf", "nuttcp", "trafgen"})

# Only full worlds have these: a service of systemd provides them, or a task of Ansible installs them.
_FULL_SAMPLES = {"trace": "traces", "ebpf": "eBPF"}
_FULL_KINDS = frozenset({"ndt7_download", "ndt7_upload", "atou"})


def only_full(points: Iterable[Point]) -> list[str]:
    """What points ask for that only full worlds have, in words; empty if light worlds can run them."""
    phases = [phase for point in points for phase in point.phases]
    samples = [part.sample for phase in phases for part in phase.hosts.values()]
    found = [words for name, words in _FULL_SAMPLES.items() if any(getattr(of, name) for of in samples)]
    kinds = {flow.kind for phase in phases for flow in phase.flows}
    return found + [f"flows of kind {kind}" for kind in sorted(kinds & _FULL_KINDS)]


def real_s(points: Sequence[Point]) -> float:
    """About how long a core needs for points, in seconds; flows without a rate fill their path."""
    world_s = FULL_S if only_full(points) else LIGHT_S
    return sum(world_s + _flows_s(point) for point in points)


def _flows_s(point: Point) -> float:
    seconds = 0.0
    packet_bytes = point.path.packet_bytes if point.path else PACKET_BYTES
    for phase in point.phases:
        for way, path in point.path.ways if point.path else []:
            flows = [flow for flow in phase.flows if flow.direction == way]
            measuring = phase.phase == "measurement"
            path_bps = path.mean_rate_bps(0, phase.duration_ns) if measuring else path.rate_bps
            asked = [flow.duration_ns / 1e9 * (flow.rate_bps or path_bps) for flow in flows]
            fits = min(1, phase.duration_ns / 1e9 * path_bps / sum(asked)) if sum(asked) else 0
            for flow, bits in zip(flows, asked, strict=True):
                share = GATHERED if point.hosts[flow.src_host].state.offloads.get("gso") else 1
                share *= SELDOM if flow.kind == "tcp" else 1
                seconds += fits * bits / 8 / packet_bytes * PACKET_S * share
        samples = sum(part.sample.anything for part in phase.hosts.values())
        seconds += samples * SAMPLE_S * phase.duration_ns / phase.sampling_interval_ns
    return seconds


def problems(scenario: Scenario, path: PlannedPath | None, hosts: Mapping[str, Host]) -> Iterator[Problem]:
    """The keys of a scenario that cannot be met where hosts share one kernel and work takes no time."""
    yield from _path(path)
    yield from _kernel(scenario, hosts)
    for name, flow in scenario.flows.items():
        if isinstance(flow, CommandFlow):
            for program in {argv[0].rpartition("/")[2] for argv in (flow.server, flow.client) if argv}:
                if program in SPINNING:
                    reason = (
                        f"{program} waits by reading the clock, which hardly moves meanwhile in virtual time"
                    )
                    yield ("flows", name), reason


def _path(path: PlannedPath | None) -> Iterator[Problem]:
    if path is None:
        yield ("path",), "is needed in virtual time: it never passes on a link without a rate and a delay"
        return
    for way, asked in path.ways:
        if not asked.delay_us:
            yield ("path", way), "needs a delay in virtual time, which never passes on a link without one"


def _kernel(scenario: Scenario, hosts: Mapping[str, Host]) -> Iterator[Problem]:
    for name, of in scenario.hosts.items():
        if of.kernel is not None:
            yield ("hosts", name, "kernel"), "hosts of virtual time share one kernel, and none boots another"
    everywhere = [of.state.modules for of in hosts.values()]
    for module in dict.fromkeys(module for modules in everywhere for module in modules):
        first, *others = (modules.get(module) for modules in everywhere)
        if any(other != first for other in others):
            reason = f"hosts of virtual time share one kernel: ask {module} of all (testbed), or of none"
            key = next(name for name, of in scenario.hosts.items() if module in of.modules)
            yield ("hosts", key, "modules"), reason
