"""From a scenario and an inventory to a plan: hosts, actions, addresses and ports, at offsets from t0."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Literal

from dumbbell import model
from dumbbell.model import KeyPath, Problem, ScenarioError, ScenarioFile
from dumbbell.plan.document import (
    Expectation,
    Flow,
    FlowAction,
    Host,
    Phase,
    PhaseHost,
    PingAction,
    Plan,
    Sample,
    State,
    Validity,
)
from dumbbell.plan.inventory import Inventory
from dumbbell.plan.path import PlannedPath, resolve_path

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
        if self.scenario.path is None:
            return None
        if not self.inventory.groups.get("routers"):
            self._refuse(("path",), "needs a host in the group routers, and the inventory has none")
        return resolve_path(self.scenario.path, self._refuse)

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
