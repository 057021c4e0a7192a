"""One case of a scenario on an inventory: path, hosts, flows with ports, and each host's actions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from dumbbell import units
from dumbbell.inventory import Inventory, narrow_router
from dumbbell.kinds.asked import KINDS
from dumbbell.kinds.asked import Flow as AskedFlow
from dumbbell.kinds.asked.base import Given, Programs, Refused
from dumbbell.kinds.asked.ping import PingFlow
from dumbbell.plan import virtual
from dumbbell.plan.actions import (
    CommandAction,
    PingAction,
)
from dumbbell.plan.connect import connect_ns
from dumbbell.plan.document import SERVER_LEAD_NS, Flow, Host, Point, Validity
from dumbbell.plan.expectations import Expectations
from dumbbell.plan.hosts import Hosts
from dumbbell.plan.path import (
    ETHERNET_BYTES,
    PACKET_BYTES,
    OwnDelay,
    PlannedPath,
    Way,
    datagram_headers_bytes,
)
from dumbbell.plan.phases import Actions, Ends, Phases
from dumbbell.plan.places import Places
from dumbbell.plan.ports import FIRST_CLIENT_PORT, FIRST_SERVER_PORT, Ports
from dumbbell.plan.resolve import own_delay_problem, resolve_path
from dumbbell.scenario import KeyPath, Scenario


class CaseResolver:
    """Resolves a case; afterwards ``refusals`` lists what cannot be met, each with its key."""

    def __init__(
        self,
        scenario: Scenario,
        inventory: Inventory,
        *,
        varies: Any,
        levels: Mapping[str, str],
        baseline: str | None,
        repetition: int,
        timestamps: bool,
    ) -> None:
        self.scenario = scenario
        self.inventory = inventory
        self.levels = levels
        self.baseline = baseline
        self.repetition = repetition
        self.refusals: list[tuple[KeyPath, str]] = []
        self.places = Places(scenario, inventory, self._refuse)
        self.hosts = Hosts(
            scenario, inventory, self.places, self._refuse, varies=varies, timestamps=timestamps
        )
        self.names: dict[str, list[str]] = {}  # names of resolved flows, by the scenario's name
        self.pings: list[tuple[str, PingAction]] = []
        self.commands: list[tuple[str, CommandAction]] = []
        self.spans: dict[str, tuple[int, int]] = {}  # start and end of resolved flows
        self.pairs: dict[Ends, None] = {}  # that exchange data, in the order of the file
        self.delays: dict[Way, set[int]] = {}  # flows' own delays

    def resolve(self) -> Point | None:
        """The point, or None if something was refused."""
        self.places.check_roles()
        ephemeral = self.hosts.ephemeral()
        self.ports = Ports(ephemeral)
        flows = self._flows()
        hosts = self.hosts.resolve(flows)
        path = self._path(flows, hosts)
        if self.refusals:
            return None
        if self.inventory.virtual:
            self.refusals += virtual.problems(self.scenario, path, hosts)
        pings = [ping.name for _, ping in self.pings]
        bounds = Expectations(
            self.scenario, self._refuse, self.levels, self.baseline, self.names, self.spans, pings
        )
        expect = list(bounds.resolve(path, flows))
        self._check_sources(flows)
        if self.refusals:
            return None
        phases = Phases(self.scenario, self.inventory, self.places, ephemeral)
        sampled = {
            own for name, names in self.names.items() if self.scenario.flows[name].sampled for own in names
        }
        others: Actions = [*self.pings, *self.commands]
        validity = self.scenario.validity
        return Point(
            id="",
            repetition=self.repetition,
            levels=dict(self.levels),
            baseline=self.baseline,
            path=path,
            hosts=hosts,
            phases=[
                phases.calibration(path, flows, list(hosts), self.pairs),
                phases.measurement(path, flows, hosts, others, sampled),
            ],
            validity=Validity(
                rtt_tolerance=validity.rtt_tolerance,
                rtt_wait_ns=validity.rtt_wait,
                rate_tolerance=validity.rate_tolerance,
                arrival_tolerance=validity.arrival_tolerance,
                clock_offset_ns=validity.clock_offset,
                start_error_ns=validity.start_error,
                unexpected_drops=validity.unexpected_drops,
                missed_samples=validity.missed_samples,
                cpu_saturated=validity.cpu_saturated,
                ping_replies=validity.ping_replies,
            ),
            expect=expect,
            warm_up_ns=self.scenario.warm_up or None,
        )

    def _refuse(self, key: KeyPath, reason: str) -> None:
        self.refusals.append((key, reason))

    # path

    def _path(self, flows: Sequence[Flow], hosts: Mapping[str, Host]) -> PlannedPath | None:
        if self.scenario.path is None:
            return None
        if not self.inventory.groups.get("routers"):
            self._refuse(("path",), "needs a host in the group routers, and the inventory has none")
        delays: dict[Way, list[OwnDelay]] = {"forward": [], "reverse": []}
        for flow in flows:
            delays[flow.direction] += flow.own_delays
        routers = [host for host in self.inventory.groups["routers"] if host in hosts]
        mtus = {host: of.state.mtu or units.MTU_BYTES for host, of in hosts.items()}
        if problem := narrow_router(self.pairs, routers, mtus):
            self._refuse(
                ("path",), f"{problem}: give them the same nic_mtu in the inventory, or mtu in hosts"
            )
        on_it = {host for ends in self.pairs for host in ends} | {*routers}
        packet_bytes = min((mtus[host] for host in on_it), default=units.MTU_BYTES) + ETHERNET_BYTES
        return resolve_path(self.scenario.path, self._refuse, delays, packet_bytes)

    # flows

    def _flows(self) -> list[Flow]:
        """The flows of this case in the order of the file; pings and commands become actions."""
        wanted = self.scenario.baselines[self.baseline] if self.baseline else list(self.scenario.flows)
        flows: list[Flow] = []
        for name, asked in self.scenario.flows.items():
            if name not in wanted:
                continue
            count = asked.repeat.count if asked.repeat else 1
            self.names[name] = [f"{name}{i + 1}" if asked.repeat else name for i in range(count)]
            for i, own in enumerate(self.names[name]):
                refused = len(self.refusals)
                if own in self.spans:
                    self._refuse(("flows", name), f"another flow is called {own}")
                elif ends := self._ends(name, asked, i):
                    self.pairs[ends] = None
                    self.spans[own] = self._span(name, asked, i)
                    self._check_delay(name, asked, ends)
                    flow = None if len(self.refusals) > refused else self._flow(name, own, asked, ends)
                    flows += [flow] if flow else []
                if len(self.refusals) > refused:
                    break  # the others have the same reason
        return flows

    def _ends(self, name: str, asked: AskedFlow, i: int) -> Ends | None:
        shift = i if asked.repeat and asked.repeat.pairs == "different" else 0
        src = self.places.endpoint(("flows", name, "from"), asked.src, shift)
        dst = self.places.endpoint(("flows", name, "to"), asked.dst, shift)
        if src is None or dst is None:
            return None
        if src == dst:
            self._refuse(("flows", name, "to"), f"both ends are {dst}")
            return None
        if self.scenario.path is not None and self.places.side(src) == self.places.side(dst):
            side = self.places.side(src)
            self._refuse(("flows", name, "to"), f"{src} and {dst} are both on the side {side} of the path")
            return None
        return (src, dst) if asked.direction == "forward" else (dst, src)

    def _span(self, name: str, asked: AskedFlow, i: int) -> tuple[int, int]:
        """Start and end of the i-th repetition of a flow, in ns since t0."""
        total = self.scenario.duration
        start = asked.start + (i * asked.repeat.every if asked.repeat else 0)
        end = total if asked.lasts_ns is None else start + asked.lasts_ns
        given: KeyPath = ("flows", name, "start" if asked.duration is None else "duration")
        if asked.span_ns is not None:
            (start, end), given = asked.span_ns, ("flows", name, "periods")
        key: KeyPath = ("flows", name, "repeat") if i else given
        own = self.names[name][i] + " " if i else ""
        if start >= total:
            at, most = units.render_duration(start), units.render_duration(total)
            self._refuse(key, f"{own}starts at {at}, not before the scenario's end at {most}")
        elif end > total:
            at, most = units.render_duration(end), units.render_duration(total)
            self._refuse(key, f"{own}ends at {at}, after the scenario's duration of {most}")
        elif reason := asked.wrong_duration(end - start):
            self._refuse(key, reason)
        return start, end

    def _check_delay(self, name: str, asked: AskedFlow, ends: Ends) -> None:
        """Refuse a flow's own delay if the router cannot apply it."""
        if asked.delay:
            direction = self.places.direction(ends[0])
            others = self.delays.setdefault(direction, set())
            if problem := own_delay_problem(asked, self.scenario.path, direction, others):
                self._refuse(("flows", name, "delay"), problem)
            others.add(asked.delay)

    def _flow(self, name: str, own: str, asked: AskedFlow, ends: Ends) -> Flow | None:
        start, end = self.spans[own]
        if isinstance(asked, PingFlow):
            self._ping(own, asked, ends)
            return None
        kind = KINDS[asked.kind]
        src_host, dst_host = ends
        direction = self.places.direction(src_host)
        path = self.scenario.path
        given = Given(
            start_ns=start,
            duration_ns=end - start,
            bottleneck_bps=path.way(direction).at(start).rate if path else None,
            rng=random.Random(f"{self.scenario.seed}/{own}/{self.repetition}"),
        )
        try:
            its_own: dict[str, Any] = {"streams": 1, "congestion_control": None, "rate_bps": None}
            its_own |= asked.planned(given)
        except Refused as error:
            self._refuse(("flows", name, error.key), str(error))
            return None
        server, client = (src_host, dst_host) if kind.server_sends else (dst_host, src_host)
        server_port = self.ports.take(server, FIRST_SERVER_PORT)
        client_port = (
            0 if kind.any_client_port else self.ports.take(client, FIRST_CLIENT_PORT, its_own["streams"])
        )
        if server_port is None or client_port is None:
            host = server if server_port is None else client
            self._refuse(("flows", name), f"{host} has no ports left outside its ephemeral range")
            return None
        connect_at = None
        try:
            connect_at = connect_ns(asked, path, start, self.scenario.validity.start_error)
        except ValueError as error:
            self._refuse(("flows", name, "start"), f"{own} {error}" if own != name else str(error))
        src, dst = map(self.places.address, ends)
        if "payload_bytes" in its_own and its_own["payload_bytes"] is None:  # it fills a packet
            its_own["payload_bytes"] = PACKET_BYTES - datagram_headers_bytes(src)
        flow = Flow.model_validate(
            {
                "name": own,
                "kind": asked.kind,
                "direction": direction,
                "src_host": src_host,
                "dst_host": dst_host,
                "src": src,
                "dst": dst,
                "server_port": server_port,
                "client_port": client_port,
                "start_ns": start,
                "duration_ns": end - start,
                "connect_ns": connect_at,
                "delay_us": asked.delay // 1000 or None,
            }
            | its_own
        )
        self._programs(flow, asked.programs(flow))
        return flow

    def _ping(self, own: str, asked: PingFlow, ends: Ends) -> None:
        start, end = self.spans[own]
        ping = PingAction(
            at_ns=start,
            kind="ping",
            name=own,
            dst=self.places.address(ends[1]),
            count=max(1, (end - start) // asked.interval),
            interval_ns=asked.interval,
        )
        self.pings.append((ends[0], ping))

    def _programs(self, flow: Flow, programs: Programs | None) -> None:
        """The actions that start a flow's programs."""
        if programs is None:
            return
        begin = CommandAction(
            at_ns=flow.start_ns, kind="command_client", flow=flow.name, argv=list(programs.client)
        )
        self.commands.append((flow.client_host, begin))
        if programs.server is not None:
            listen = CommandAction(
                at_ns=-SERVER_LEAD_NS, kind="command_server", flow=flow.name, argv=list(programs.server)
            )
            self.commands.append((flow.server_host, listen))

    def _check_sources(self, flows: Sequence[Flow]) -> None:
        """Traces and eBPF identify connections by both ports; captures are taken on a router."""
        if self.scenario.sampling.capture and not self.inventory.groups.get("routers"):
            self._refuse(
                ("sampling", "capture"), "needs a host in the group routers, and the inventory has none"
            )
        for source in ("trace", "ebpf"):
            for flow in flows:
                if getattr(self.scenario.sampling, source) and flow.of_kind.any_client_port:
                    what = f"{flow.name} is of kind {flow.kind}"
                    why = f"{what}: ports of its connections are not known in advance"
                    self._refuse(("sampling", source), why)
                    break
