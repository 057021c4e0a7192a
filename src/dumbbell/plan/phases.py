"""The two phases of a point, with the actions of every host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dumbbell.inventory import Inventory
from dumbbell.plan.actions import Action, CaptureAction, FlowAction, PathAction, PhaseHost, Sample
from dumbbell.plan.calibration import Calibration, Pair
from dumbbell.plan.document import SERVER_LEAD_NS, Flow, Host, Phase
from dumbbell.plan.path import PlannedPath, change_name
from dumbbell.plan.places import Places
from dumbbell.plan.ports import Ports
from dumbbell.scenario import Scenario

CALIBRATION_INTERVAL_NS = 100_000_000  # the longest interval at which the router's counters are read
CAPTURE_LEAD_NS = 1_000_000_000  # tcpdump needs this to get ready

Ends = tuple[str, str]
Actions = list[tuple[str, Action]]


@dataclass(frozen=True)
class Phases:
    """Makes the phases of one case."""

    scenario: Scenario
    inventory: Inventory
    places: Places
    ephemeral: dict[str, tuple[int, int]]  # ports that the kernels of hosts choose from

    def calibration(
        self, path: PlannedPath | None, flows: Sequence[Flow], hosts: Sequence[str], ends: Iterable[Ends]
    ) -> Phase:
        """The phase that measures the idle path. ``ends`` are the pairs of hosts that exchange data."""
        pairs = [
            Pair(src, dst, self.places.address(src), self.places.address(dst), self.places.direction(src))
            for src, dst in ends
        ]
        calibration = Calibration(path, pairs, flows, Ports(self.ephemeral))
        routers = self.inventory.groups.get("routers", [])
        return self._phase(
            "calibration",
            calibration.duration_ns,
            flows=calibration.flows,
            hosts=hosts,
            actions=[*calibration.actions, *_ends(calibration.flows)],
            samples={host: Sample(qdisc=True) for host in routers if path is not None},
        )

    def measurement(
        self,
        path: PlannedPath | None,
        flows: Sequence[Flow],
        hosts: Mapping[str, Host],
        others: Actions,
        sampled: Collection[str],
    ) -> Phase:
        """The phase in which the flows run, beside ``others``; the sockets of ``sampled`` are sampled."""
        routers = self.inventory.groups.get("routers", [])
        changes = [(host, action) for host in routers for action in _changes(path)]
        actions: Actions = [*_ends(flows), *others, *changes]
        if self.scenario.sampling.capture:
            actions += [(host, capture) for host in routers for capture in self._captures(host)]
        # The qdisc rapid reports the order in which it sends.
        counting = [host for host, of in hosts.items() if of.state.qdisc == "rapid"]
        samples = {}
        for host in {*routers, *(host for host, _ in actions)}:
            tcp = [f.name for f in flows if f.name in sampled and host in f.sampled_on]
            samples[host] = Sample(
                tcp=tcp,
                qdisc=(fast := host in routers or host in counting),
                queues=None if fast else True,
                link=True,
                snmp=True,
                cpu=True,
                clock=True,
                trace=self.scenario.sampling.trace,
                ebpf=self.scenario.sampling.ebpf and bool(tcp),
            )
        end_ns = self.scenario.duration + self.scenario.cool_down
        phase = self._phase(
            "measurement", end_ns, flows=flows, hosts=list(hosts), actions=actions, samples=samples
        )
        if path is not None and changes:
            own_delay_us = max((flow.delay_us or 0 for flow in flows), default=0)
            for host in routers:
                phase.hosts[host].restore_ns = path.drained_ns(end_ns, own_delay_us)
        return phase

    def _captures(self, router: str) -> Iterator[CaptureAction]:
        for interface in self.inventory.hosts[router].experiment_interfaces.values():
            yield CaptureAction(at_ns=-CAPTURE_LEAD_NS, kind="capture", name=interface.device)

    def _phase(
        self,
        name: Literal["calibration", "measurement"],
        duration_ns: int,
        *,
        flows: Sequence[Flow],
        hosts: Sequence[str],
        actions: Sequence[tuple[str, Action]],
        samples: dict[str, Sample],
    ) -> Phase:
        interval = self.scenario.sampling.interval
        return Phase(
            phase=name,
            duration_ns=duration_ns,
            sampling_interval_ns=interval
            if name == "measurement"
            else min(interval, CALIBRATION_INTERVAL_NS),
            flows=list(flows),
            hosts={
                host: PhaseHost(
                    actions=sorted((a for h, a in actions if h == host), key=lambda a: a.at_ns),
                    sample=samples.get(host, Sample()),
                )
                for host in hosts
                if any(h == host for h, _ in actions) or samples.get(host, Sample()).anything
            },
        )


def _ends(flows: Sequence[Flow]) -> Iterator[tuple[str, FlowAction]]:
    for flow in flows:
        if kind := flow.of_kind.actions:
            server, client = kind
            yield flow.server_host, FlowAction(at_ns=-SERVER_LEAD_NS, kind=server, flow=flow.name)
            yield flow.client_host, FlowAction(at_ns=flow.start_ns, kind=client, flow=flow.name)


def _changes(path: PlannedPath | None) -> Iterator[PathAction]:
    for name, way in path.ways if path else []:
        for i, at_ns in enumerate(way.made_ns, start=1):
            yield PathAction(at_ns=at_ns, kind="path", name=change_name(name, i))
