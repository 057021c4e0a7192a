"""From a scenario and an inventory to ``plan.json``: hosts, actions, addresses and ports, at offsets from t0.

The contract is ``docs/data-model.md``. The same scenario, seed and inventory give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dumbbell import model, units
from dumbbell.model import KeyPath, Problem, ScenarioError, ScenarioFile

PACKET_BYTES = 1514  # Ethernet header and 1500 bytes: what the bottleneck's queue counts
FIRST_SERVER_PORT = 5201
FIRST_CLIENT_PORT = 40001
SERVER_LEAD_NS = 5_000_000_000  # servers listen this long before the first flow
PING_COUNT = 21  # the first also waits for ARP and is dropped
PING_INTERVAL_NS = 100_000_000
RATE_FLOW = "calibration_rate"
RATE_STREAMS = 4  # enough that the bottleneck's queue never runs empty
RATE_NS = 5_000_000_000
RATE_WINDOW_NS = 1_000_000_000  # the best one counts: TCP leaves a bottleneck idle at times
SETTLE_NS = 500_000_000  # for the last replies of a step, and for its queue to drain


# --- inventory ------------------------------------------------------------------------------------


class Interface(BaseModel):
    """An interface that carries experiment traffic; ``address`` in CIDR notation."""

    model_config = ConfigDict(extra="forbid")
    device: str
    address: str


class InventoryHost(BaseModel):
    """What the planner needs to know of a host."""

    model_config = ConfigDict(extra="forbid")
    management_interface: str | None = None
    experiment_interfaces: dict[str, Interface] = {}


class Inventory(BaseModel):
    """Groups and hosts, as Ansible knows them. Not strict: Ansible's strings are subclasses of str."""

    model_config = ConfigDict(extra="forbid")
    groups: dict[str, list[str]]
    hosts: dict[str, InventoryHost]

    def groups_of(self, host: str) -> list[str]:
        """Names of the groups that contain this host, sorted."""
        return sorted(group for group, members in self.groups.items() if host in members)


# --- plan.json ------------------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Queue(_Part):
    """A queue with its limit resolved: packets for pfifo, bytes for bfifo."""

    kind: Literal["pfifo", "bfifo"]
    limit_packets: int | None = Field(default=None, exclude_if=lambda v: v is None)
    limit_bytes: int | None = Field(default=None, exclude_if=lambda v: v is None)


class Direction(_Part):
    """One direction of the path that the router is asked for."""

    rate_bps: int
    delay_us: int
    loss: float
    queue: Queue


class PlannedPath(_Part):
    """Both directions and the round-trip time that they add up to."""

    rtt_ns: int
    forward: Direction
    reverse: Direction

    @property
    def bottleneck_bps(self) -> int:
        """Rate of the forward direction, which carries the data."""
        return self.forward.rate_bps


class State(_Part):
    """State that a host is brought to before traffic."""

    offloads: dict[str, bool]
    txqueuelen: int | None
    sysctls: dict[str, str]
    congestion_controls: list[str]


class Host(_Part):
    """A host of the testbed."""

    groups: list[str]
    state: State


class Flow(_Part):
    """A flow with addresses and ports known in advance; times are offsets from t0."""

    name: str
    kind: Literal["iperf3_tcp", "iperf3_udp"]
    src_host: str
    dst_host: str
    src: str
    dst: str
    server_port: int
    client_port: int
    streams: int
    start_ns: int
    duration_ns: int
    congestion_control: str | None
    rate_bps: int | None

    @property
    def end_ns(self) -> int:
        """Offset at which the flow stops sending."""
        return self.start_ns + self.duration_ns


class FlowAction(_Part):
    """Start one end of a flow of the phase."""

    at_ns: int
    kind: Literal["iperf3_server", "iperf3_client"]
    flow: str


class PingAction(_Part):
    """Measure the idle round-trip time."""

    at_ns: int
    kind: Literal["ping"]
    name: str
    dst: str
    count: int
    interval_ns: int


Action = Annotated[FlowAction | PingAction, Field(discriminator="kind")]


class Sample(_Part):
    """What an agent samples: sockets of these flows, and its queues."""

    tcp: list[str] = []
    qdisc: bool = False


class PhaseHost(_Part):
    """What a host does in a phase, in order of time."""

    actions: list[Action] = []
    sample: Sample = Sample()


class Phase(_Part):
    """A part of the run that is armed and started on its own."""

    phase: Literal["calibration", "measurement"]
    duration_ns: int
    sampling_interval_ns: int
    flows: list[Flow]
    hosts: dict[str, PhaseHost]


class Validity(_Part):
    """Tolerances between what was asked and what was measured."""

    rtt_tolerance: float
    rate_tolerance: float
    clock_offset_ns: int
    start_error_ns: int
    missed_samples: float


class Expectation(_Part):
    """A bound on a metric."""

    metric: model.Metric
    min: float | None
    max: float | None


class Plan(_Part):
    """The whole of ``plan.json``."""

    schema_version: Literal[1] = 1
    scenario: str
    title: str
    point: str
    seed: int
    path: PlannedPath | None
    hosts: dict[str, Host]
    phases: list[Phase]
    validity: Validity
    expect: list[Expectation]

    def phase(self, name: Literal["calibration", "measurement"]) -> Phase:
        """The phase of this name."""
        return next(phase for phase in self.phases if phase.phase == name)

    def to_json(self) -> bytes:
        """Canonical bytes: keys in the order of the contract, hosts and sysctls sorted."""
        return (json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n").encode()


# --- planning -------------------------------------------------------------------------------------


def plan(scenario_path: Path, inventory: Inventory) -> Plan:
    """Resolve a scenario on an inventory; :class:`ScenarioError` names every line that cannot be met."""
    return _Planner(model.load(scenario_path), inventory).plan()


class _Planner:
    def __init__(self, file: ScenarioFile, inventory: Inventory) -> None:
        self.file = file
        self.scenario = file.scenario
        self.inventory = inventory
        self.problems: list[Problem] = []

    def plan(self) -> Plan:
        path = self._path()
        flows = self._flows()
        hosts = self._hosts(flows)
        if self.problems:
            raise ScenarioError(self.problems)

        validity = self.scenario.validity
        phases = [self._calibration(path, flows, list(hosts)), self._measurement(flows, list(hosts))]
        resolved = Plan(
            scenario=self.scenario.name,
            title=self.scenario.title,
            point="",
            seed=self.scenario.seed,
            path=path,
            hosts=hosts,
            phases=phases,
            validity=Validity(
                rtt_tolerance=validity.rtt_tolerance,
                rate_tolerance=validity.rate_tolerance,
                clock_offset_ns=validity.clock_offset,
                start_error_ns=validity.start_error,
                missed_samples=validity.missed_samples,
            ),
            expect=[Expectation(metric=e.metric, min=e.min, max=e.max) for e in self.scenario.expect],
        )
        # The title is prose: two runs that differ only in it are the same point.
        configuration = json.dumps(resolved.model_dump(exclude={"title", "point"}), sort_keys=True)
        return resolved.model_copy(update={"point": hashlib.sha256(configuration.encode()).hexdigest()[:12]})

    def _refuse(self, key: KeyPath, reason: str) -> None:
        self.problems.append(self.file.problem(key, reason))

    # path

    def _path(self) -> PlannedPath | None:
        asked = self.scenario.path
        if asked is None:
            return None
        if not self.inventory.groups.get("routers"):
            self._refuse(("path",), "needs a host in the group routers, and the inventory has none")
        rtt_ns = asked.forward.delay + asked.reverse.delay
        return PlannedPath(
            rtt_ns=rtt_ns,
            forward=self._direction("forward", asked.forward, rtt_ns),
            reverse=self._direction("reverse", asked.reverse, rtt_ns),
        )

    def _direction(self, name: str, asked: model.Direction, rtt_ns: int) -> Direction:
        limit, per_packet = asked.queue.limit, asked.queue.kind == "pfifo"
        amount = limit.amount
        if limit.unit == "bdp":
            bdp_bytes = amount * asked.rate * rtt_ns / (8 * 10**9)
            amount = bdp_bytes / PACKET_BYTES if per_packet else bdp_bytes
        resolved = math.ceil(amount)
        if resolved < (1 if per_packet else PACKET_BYTES):
            text, unit = units.render_limit(limit), "packets" if per_packet else "bytes"
            self._refuse(
                ("path", name, "queue", "limit"),
                f"{text} is {resolved} {unit}, less than one packet of {PACKET_BYTES} bytes",
            )
        queue = (
            Queue(kind="pfifo", limit_packets=resolved)
            if per_packet
            else Queue(kind="bfifo", limit_bytes=resolved)
        )
        return Direction(rate_bps=asked.rate, delay_us=asked.delay // 1000, loss=asked.loss, queue=queue)

    # flows

    def _flows(self) -> list[Flow]:
        """Flows with ports: servers count up per receiver, clients count up per sender, so no two clash."""
        server_ports: Counter[str] = Counter()
        client_ports: Counter[str] = Counter()
        flows = []
        for i, asked in enumerate(self.scenario.flows):
            src_host = self._endpoint(("flows", i, "from"), asked.src)
            dst_host = self._endpoint(("flows", i, "to"), asked.dst)
            if src_host is None or dst_host is None:
                continue
            if src_host == dst_host:
                self._refuse(("flows", i, "to"), f"both ends are {dst_host}")
                continue
            flows.append(
                Flow(
                    name=asked.name,
                    kind=asked.kind,
                    src_host=src_host,
                    dst_host=dst_host,
                    src=self._address(src_host),
                    dst=self._address(dst_host),
                    server_port=FIRST_SERVER_PORT + server_ports[dst_host],
                    client_port=FIRST_CLIENT_PORT + client_ports[src_host],
                    streams=asked.streams,
                    start_ns=asked.start,
                    duration_ns=asked.duration,
                    congestion_control=asked.congestion_control if isinstance(asked, model.TcpFlow) else None,
                    rate_bps=asked.rate if isinstance(asked, model.UdpFlow) else None,
                )
            )
            server_ports[dst_host] += 1
            client_ports[src_host] += asked.streams
        return flows

    def _endpoint(self, key: KeyPath, text: str) -> str | None:
        """Host that ``senders[0]`` or ``sender1`` stands for, if it can carry a flow."""
        groups, hosts = self.inventory.groups, self.inventory.hosts
        host, reason = text, ""
        if match := re.fullmatch(r"(.+)\[(\d+)\]", text):
            members = groups.get(match[1], [])
            if int(match[2]) < len(members):
                host = members[int(match[2])]
            elif match[1] in groups:
                reason = f"the group {match[1]} has {len(members)} hosts: {_list(members)}"
            else:
                reason = f"the inventory has no group {match[1]}; it has {_list(groups)}"
        if not reason and host not in hosts:
            reason = f"the inventory has no host {host}; it has {_list(hosts)}"
        elif not reason and host not in groups.get("testbed", []):
            reason = f"{host} is not in the group testbed"
        elif not reason and (count := len(hosts[host].experiment_interfaces)) != 1:
            reason = f"{host} has {count} experiment interfaces; the end of a flow has exactly one"
        if reason:
            self._refuse(key, reason)
            return None
        return host

    def _address(self, host: str) -> str:
        (interface,) = self.inventory.hosts[host].experiment_interfaces.values()
        return str(ip_interface(interface.address).ip)

    # hosts

    def _hosts(self, flows: Sequence[Flow]) -> dict[str, Host]:
        testbed = self.inventory.groups.get("testbed", [])
        for name in self.scenario.hosts:
            if name not in self.inventory.groups and name not in testbed:
                self._refuse(
                    ("hosts", name), "is neither a group of the inventory nor a host of the group testbed"
                )
        return {
            host: Host(groups=self.inventory.groups_of(host), state=self._state(host, flows))
            for host in sorted(testbed)
            if self.inventory.hosts[host].experiment_interfaces
        }

    def _state(self, host: str, flows: Sequence[Flow]) -> State:
        """Merged state: large groups first, the host itself last, so that the more special word counts."""
        groups = sorted(self.inventory.groups_of(host), key=lambda g: (-len(self.inventory.groups[g]), g))
        offloads: dict[str, bool] = {}
        sysctls: dict[str, str] = {}
        txqueuelen: int | None = None
        for name in (*groups, host):
            if (asked := self.scenario.hosts.get(name)) is not None:
                offloads.update({str(feature): on for feature, on in asked.offloads.items()})
                sysctls |= {key: str(value) for key, value in asked.sysctls.items()}
                txqueuelen = txqueuelen if asked.txqueuelen is None else asked.txqueuelen
        used = {
            f.congestion_control for f in flows if host in (f.src_host, f.dst_host) and f.congestion_control
        }
        return State(
            offloads=dict(sorted(offloads.items())),
            txqueuelen=txqueuelen,
            sysctls=dict(sorted(sysctls.items())),
            congestion_controls=sorted(used),
        )

    # phases

    def _calibration(self, path: PlannedPath | None, flows: Sequence[Flow], hosts: Sequence[str]) -> Phase:
        """Idle RTT of one pair after the other, then the rate of the path from the first pair."""
        actions: list[tuple[str, FlowAction | PingAction]] = []
        load: list[Flow] = []
        samples: dict[str, Sample] = {}
        now = 0
        for src, dst in dict.fromkeys((flow.src_host, flow.dst_host) for flow in flows):
            ping = PingAction(
                at_ns=now,
                kind="ping",
                name=f"{src}-{dst}",
                dst=self._address(dst),
                count=PING_COUNT,
                interval_ns=PING_INTERVAL_NS,
            )
            actions.append((src, ping))
            now += PING_COUNT * PING_INTERVAL_NS + SETTLE_NS
        if path is not None:
            first = flows[0]
            load.append(
                Flow(
                    name=RATE_FLOW,
                    kind="iperf3_tcp",
                    src_host=first.src_host,
                    dst_host=first.dst_host,
                    src=first.src,
                    dst=first.dst,
                    server_port=FIRST_SERVER_PORT,
                    client_port=FIRST_CLIENT_PORT,
                    streams=RATE_STREAMS,
                    start_ns=now,
                    duration_ns=RATE_NS,
                    congestion_control="reno",  # every kernel has it
                    rate_bps=None,
                )
            )
            samples = {host: Sample(tcp=[RATE_FLOW]) for host in (first.src_host, first.dst_host)}
            now += RATE_NS + SETTLE_NS
        actions += _ends(load)
        return self._phase("calibration", now, flows=load, hosts=hosts, actions=actions, samples=samples)

    def _measurement(self, flows: Sequence[Flow], hosts: Sequence[str]) -> Phase:
        routers = self.inventory.groups.get("routers", [])
        samples = {
            host: Sample(
                tcp=[f.name for f in flows if f.kind == "iperf3_tcp" and host in (f.src_host, f.dst_host)],
                qdisc=host in routers,
            )
            for host in hosts
        }
        return self._phase(
            "measurement",
            self.scenario.duration,
            flows=flows,
            hosts=hosts,
            actions=list(_ends(flows)),
            samples=samples,
        )

    def _phase(
        self,
        name: Literal["calibration", "measurement"],
        duration_ns: int,
        *,
        flows: Sequence[Flow],
        hosts: Sequence[str],
        actions: Sequence[tuple[str, FlowAction | PingAction]],
        samples: dict[str, Sample],
    ) -> Phase:
        return Phase(
            phase=name,
            duration_ns=duration_ns,
            sampling_interval_ns=self.scenario.sampling.interval,
            flows=list(flows),
            hosts={
                host: PhaseHost(
                    actions=sorted((a for h, a in actions if h == host), key=lambda a: a.at_ns),
                    sample=samples.get(host, Sample()),
                )
                for host in hosts
                if any(h == host for h, _ in actions) or samples.get(host, Sample()) != Sample()
            },
        )


def _ends(flows: Sequence[Flow]) -> Iterator[tuple[str, FlowAction | PingAction]]:
    for flow in flows:
        yield flow.dst_host, FlowAction(at_ns=-SERVER_LEAD_NS, kind="iperf3_server", flow=flow.name)
        yield flow.src_host, FlowAction(at_ns=flow.start_ns, kind="iperf3_client", flow=flow.name)


def _list(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"
