"""One case of a scenario on an inventory: path, hosts, flows with ports, and what each host does when."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from dumbbell import units
from dumbbell.inventory import Inventory, narrow_router
from dumbbell.kinds.asked import KINDS
from dumbbell.kinds.asked import Flow as AskedFlow
from dumbbell.kinds.asked.base import Programs, Refused
from dumbbell.kinds.asked.ping import PingFlow
from dumbbell.metrics.registry import METRICS, Metric
from dumbbell.plan import virtual, windows
from dumbbell.plan.actions import (
    Action,
    CaptureAction,
    CommandAction,
    FlowAction,
    PathAction,
    PhaseHost,
    PingAction,
    Sample,
)
from dumbbell.plan.calibration import Calibration, Pair
from dumbbell.plan.connect import connect_ns
from dumbbell.plan.document import SERVER_LEAD_NS, Expectation, Flow, Host, Phase, Point, State, Validity
from dumbbell.plan.path import (
    ETHERNET_BYTES,
    OwnDelay,
    PlannedPath,
    Way,
    change_name,
    own_delay_problem,
    resolve_path,
)
from dumbbell.plan.ports import EPHEMERAL, FIRST_CLIENT_PORT, FIRST_SERVER_PORT, Ports, parse_range
from dumbbell.scenario import KeyPath, Scenario
from dumbbell.scenario.expand import text
from dumbbell.scenario.hosts import GAPS_NEED, READ_GAPS, READ_TXQUEUELEN, SUPER_PACKETS, TIMESTAMPS
from dumbbell.words import listed

CALIBRATION_INTERVAL_NS = 100_000_000  # in which the router's counters are read, at most
CAPTURE_LEAD_NS = 1_000_000_000  # in which tcpdump gets ready

Ends = tuple[str, str]
Actions = list[tuple[str, Action]]


class CaseResolver:
    """Resolves a case; ``refusals`` then lists what cannot be met, each at its key."""

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
        self.varies = varies  # the file's own values, to tell what varies
        self.levels = levels
        self.baseline = baseline
        self.repetition = repetition
        self.timestamps = timestamps  # whether hosts are asked to have TCP's
        self.refusals: list[tuple[KeyPath, str]] = []
        self.names: dict[str, list[str]] = {}  # of resolved flows, by those of the scenario
        self.pings: list[tuple[str, PingAction]] = []
        self.commands: list[tuple[str, CommandAction]] = []
        self.spans: dict[str, tuple[int, int]] = {}  # start and end of resolved flows
        self.pairs: dict[Ends, None] = {}  # between which data goes, in the order of the file
        self.delays: dict[Way, set[int]] = {}  # of flows' own

    def resolve(self) -> Point | None:
        """The point, or None if something was refused."""
        self._check_roles()
        self.ephemeral = self._ephemeral()
        self.ports = Ports(self.ephemeral)
        flows = self._flows()
        hosts = self._hosts(flows)
        path = self._path(flows, hosts)
        if self.refusals:
            return None
        if self.inventory.virtual:
            self.refusals += virtual.problems(self.scenario, path, hosts)
        expect = list(self._expectations(path, flows))
        self._check_sources(flows)
        if self.refusals:
            return None
        validity = self.scenario.validity
        return Point(
            id="",
            repetition=self.repetition,
            levels=dict(self.levels),
            baseline=self.baseline,
            path=path,
            hosts=hosts,
            phases=[self._calibration(path, flows, list(hosts)), self._measurement(path, flows, hosts)],
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

    # roles

    def _check_roles(self) -> None:
        groups, testbed = self.inventory.groups, self.inventory.groups.get("testbed", [])
        for role, bound in self.scenario.roles.items():
            key: KeyPath = ("roles", role)
            if role in groups or role in testbed:
                self._refuse(key, "the inventory has a group or host of this name")
            elif bound not in groups:
                self._endpoint(key, bound)

    def _bound(self, asked: str) -> str:
        """A host or group with a role replaced by what it stands for."""
        name, bracket, index = asked.partition("[")
        return self.scenario.roles.get(name, name) + bracket + index

    def _members(self, name: str) -> list[str]:
        """Hosts that a group, role or host stands for; none if it is unknown."""
        bound = self._bound(name)
        if bound in self.inventory.groups:
            return self.inventory.groups[bound]
        if match := re.fullmatch(r"(.+)\[(\d+)\]", bound):
            return self.inventory.groups.get(match[1], [])[int(match[2]) :][:1]
        return [bound] if bound in self.inventory.groups.get("testbed", []) else []

    def _endpoint(self, key: KeyPath, asked: str, shift: int = 0) -> str | None:
        """Host that ``senders[0]``, a role or ``sender1`` stands for, if it can carry a flow."""
        groups, hosts = self.inventory.groups, self.inventory.hosts
        bound = self._bound(asked)
        host, reason = bound, ""
        if match := re.fullmatch(r"(.+)\[(\d+)\]", bound):
            members, index = groups.get(match[1], []), int(match[2]) + shift
            if index < len(members):
                host = members[index]
            elif match[1] in groups:
                again = f", and {asked} with the repetitions needs {index + 1}" if shift else ""
                reason = f"the group {match[1]} has {len(members)} hosts: {listed(members)}{again}"
            else:
                reason = f"the inventory has no group {match[1]}; it has {listed(groups)}"
        elif shift:
            reason = f"different pairs need GROUP[INDEX] to count from, not {asked}"
        if not reason and host not in hosts:
            also = f"; roles are {listed(self.scenario.roles)}" if self.scenario.roles else ""
            reason = f"the inventory has no host {host}; it has {listed(hosts)}{also}"
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
        return str(interface.address.ip)

    def _side(self, host: str) -> str:
        (side,) = self.inventory.hosts[host].experiment_interfaces
        return side

    def _direction(self, src_host: str) -> Way:
        """Direction of the path that data from this host takes."""
        return "reverse" if self._side(src_host) == "right" else "forward"

    # flows

    def _flows(self) -> list[Flow]:
        """Flows of this case in the order of the file; pings and commands are kept as actions."""
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
                    break  # the others say the same
        return flows

    def _ends(self, name: str, asked: AskedFlow, i: int) -> Ends | None:
        shift = i if asked.repeat and asked.repeat.pairs == "different" else 0
        src = self._endpoint(("flows", name, "from"), asked.src, shift)
        dst = self._endpoint(("flows", name, "to"), asked.dst, shift)
        if src is None or dst is None:
            return None
        if src == dst:
            self._refuse(("flows", name, "to"), f"both ends are {dst}")
            return None
        if self.scenario.path is not None and self._side(src) == self._side(dst):
            side = self._side(src)
            self._refuse(("flows", name, "to"), f"{src} and {dst} are both on the side {side} of the path")
            return None
        return (src, dst) if asked.direction == "forward" else (dst, src)

    def _span(self, name: str, asked: AskedFlow, i: int) -> tuple[int, int]:
        """Start and end of the i-th of a flow's repetitions, in ns since t0."""
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
        """Whether the router can give a flow a delay of its own."""
        if asked.delay:
            direction = self._direction(ends[0])
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
        drawn = random.Random(f"{self.scenario.seed}/{own}/{self.repetition}")
        try:
            its_own: dict[str, Any] = {"streams": 1, "congestion_control": None, "rate_bps": None}
            its_own |= asked.planned(start, end - start, drawn)
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
            connect_at = connect_ns(asked, self.scenario.path, start, self.scenario.validity.start_error)
        except ValueError as error:
            self._refuse(("flows", name, "start"), f"{own} {error}" if own != name else str(error))
        flow = Flow.model_validate(
            {
                "name": own,
                "kind": asked.kind,
                "direction": self._direction(src_host),
                "src_host": src_host,
                "dst_host": dst_host,
                "src": self._address(src_host),
                "dst": self._address(dst_host),
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
            dst=self._address(ends[1]),
            count=max(1, (end - start) // asked.interval),
            interval_ns=asked.interval,
        )
        self.pings.append((ends[0], ping))

    def _programs(self, flow: Flow, programs: Programs | None) -> None:
        """What begins at a flow's ends."""
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

    # hosts

    def _ephemeral(self) -> dict[str, tuple[int, int]]:
        ranges = {}
        for name, state in self.scenario.hosts.items():
            if (ports := state.sysctls.get("net.ipv4.ip_local_port_range")) is not None:
                if (parsed := parse_range(str(ports))) is None:
                    key: KeyPath = ("hosts", name, "sysctls", "net.ipv4.ip_local_port_range")
                    self._refuse(key, f"{ports!r} is not two ports")
                for host in self._members(name):
                    ranges[host] = parsed or EPHEMERAL
        return ranges

    def _hosts(self, flows: Sequence[Flow]) -> dict[str, Host]:
        testbed = self.inventory.groups.get("testbed", [])
        for name in self.scenario.hosts:
            if not self._members(name):
                self._refuse(
                    ("hosts", name), "is neither a group of the inventory nor a host of the group testbed"
                )
        hosts = {
            host: Host(groups=self.inventory.groups_of(host), state=self._state(host, flows))
            for host in sorted(testbed)
            if self.inventory.hosts[host].experiment_interfaces
        }
        self._check_qdisc(hosts)
        self._check_txqueuelen(hosts)
        self._check_pacing(hosts, flows)
        self._check_timestamps(hosts)
        return hosts

    def _state(self, host: str, flows: Sequence[Flow]) -> State:
        """Merged state: large groups first, the host itself last, so that the more special word counts."""
        about = {name: self._members(name) for name in self.scenario.hosts}
        names = sorted((n for n in about if host in about[n]), key=lambda n: (n == host, -len(about[n]), n))
        own = self.inventory.hosts[host]
        state = State(
            kernel=None,
            modules={},
            # An emulated path would lose and queue as one packet what they put together.
            offloads={name: own.nic_offloads.get(name, False) for name in SUPER_PACKETS}
            if self.scenario.path
            else {},
            txqueuelen=None,
            mtu=own.nic_mtu if own.nic_mtu != units.MTU_BYTES else None,
            qdisc=None,
            sysctls={TIMESTAMPS: "1"} if self.timestamps else {},
            congestion_controls=sorted(
                {
                    f.congestion_control
                    for f in flows
                    if host in (f.src_host, f.dst_host) and f.congestion_control
                }
            ),
        )
        if set(READ_GAPS) & set(state.congestion_controls):
            state.routes = dict(GAPS_NEED)
        for name in names:
            asked = self.scenario.hosts[name]
            for key in ("kernel", "txqueuelen", "mtu", "qdisc"):
                if (value := getattr(asked, key)) is not None:
                    setattr(state, key, value)
            state.offloads |= {str(feature): on for feature, on in asked.offloads.items()}
            state.sysctls |= {key: str(value) for key, value in asked.sysctls.items()}
            if asked.routes:
                state.routes = (state.routes or {}) | {str(option): on for option, on in asked.routes.items()}
            for module, parameters in asked.modules.items():
                state.modules.setdefault(module, {}).update({k: _parameter(v) for k, v in parameters.items()})
        for key in ("modules", "offloads", "sysctls"):
            setattr(state, key, dict(sorted(getattr(state, key).items())))
        return state

    def _check_qdisc(self, hosts: Mapping[str, Host]) -> None:
        """At a router's interfaces is the emulated path."""
        for name, asked in self.scenario.hosts.items():
            routers = [h for h in self._members(name) if h in hosts and "routers" in hosts[h].groups]
            if asked.qdisc and routers:
                reason = f"{routers[0]} is a router, which has the path there: ask groups without routers"
                self._refuse(("hosts", name, "qdisc"), reason)

    def _check_pacing(self, hosts: Mapping[str, Host], flows: Sequence[Flow]) -> None:
        """The qdisc fq would take the pacing of a connection's packets from its congestion control."""
        for name, asked in self.scenario.hosts.items():
            for host in self._members(name) if asked.qdisc == "fq" else []:
                for flow in flows:
                    if flow.src_host == host and flow.congestion_control in READ_GAPS:
                        reason = f"{flow.congestion_control} ({flow.name}, on {host}) sets each gap itself"
                        self._refuse(
                            ("hosts", name, "qdisc"), f"{reason}, which fq overrules: ask pfifo_fast"
                        )
                        return

    def _check_timestamps(self, hosts: Mapping[str, Host]) -> None:
        """Without them nothing tells when a packet arrived."""
        for name, asked in self.scenario.hosts.items():
            for host in self._members(name) if str(asked.sysctls.get(TIMESTAMPS)) == "0" else []:
                state = hosts[host].state if host in hosts else None
                if state and state.sysctls[TIMESTAMPS] == "0":
                    for control in sorted(set(READ_GAPS) & set(state.congestion_controls)):
                        reason = f"{control} (on {host}) reads gaps from TCP's timestamps: ask 1, or nothing"
                        self._refuse(("hosts", name, "sysctls", TIMESTAMPS), reason)
                        return

    def _check_txqueuelen(self, hosts: Mapping[str, Host]) -> None:
        """A sweep of txqueuelen over a qdisc that never reads it would be the same run again and again."""
        for name in self.scenario.hosts:
            asked = self.varies
            for key in ("hosts", name, "txqueuelen"):
                asked = asked.get(key) if isinstance(asked, dict) else None
            if not isinstance(asked, list | str):
                continue
            for host in self._members(name):
                qdisc = hosts[host].state.qdisc if host in hosts else None
                if host in hosts and "routers" not in hosts[host].groups and qdisc not in READ_TXQUEUELEN:
                    found = f"the qdisc of {host} is {qdisc}" if qdisc else f"no qdisc is asked for on {host}"
                    self._refuse(
                        ("hosts", name, "txqueuelen"),
                        f"it varies, but {found}; only {listed(READ_TXQUEUELEN)} read it",
                    )
                    break

    # expectations

    def _expectations(self, path: PlannedPath | None, flows: Sequence[Flow]) -> Iterator[Expectation]:
        for i, asked in enumerate(self.scenario.expect):
            if self._concerns(asked.when):
                yield from self._expectation(("expect", i), asked, path, flows)

    def _concerns(self, when: Mapping[str, Any]) -> bool:
        if when.get("baseline") != self.baseline:
            return False
        for name, wanted in when.items():
            values = wanted if isinstance(wanted, list) else [wanted]
            if name != "baseline" and self.levels.get(name) not in [text(v) for v in values]:
                return False
        return True

    def _expectation(
        self, key: KeyPath, asked: Any, path: PlannedPath | None, flows: Sequence[Flow]
    ) -> Iterator[Expectation]:
        metric = METRICS[asked.metric]
        known = metric.known(flows, [ping.name for _, ping in self.pings])
        names = [name for name in self.spans if name in known]
        if asked.flows is not None:
            names = []
            for j, name in enumerate(asked.flows):
                own = self.names.get(name, [name] if name in self.spans else [])
                if not own:
                    listing = listed([*self.names, *self.spans])
                    self._refuse((*key, "flows", j), f"no flow {name} runs here; there are {listing}")
                elif not known.issuperset(own):
                    self._refuse((*key, "flows", j), f"{asked.metric} of {name} is not known")
                names += own
            if not known.issuperset(names) or not names:
                return
        if not names:
            self._refuse((*key, "metric"), f"{asked.metric} is not known of any flow here")
            return
        concerned = [f for f in flows if f.name in names]
        if metric.needs_path and path is None:
            self._refuse((*key, "metric"), "the scenario has no path to be utilised")
        elif metric.shared and len(windows.ways(concerned)) > 1:
            self._refuse((*key, "metric"), "these flows go both ways: name those of one direction in `flows`")
        for window, own in self._windows(key, asked, metric, names).items():
            yield Expectation(
                metric=asked.metric,
                flows=own,
                window_ns=window,
                until_done=(metric.until_done and asked.window is None) or None,
                percentile=getattr(asked, "percentile", None),
                min=asked.min,
                max=asked.max,
            )

    def _windows(
        self, key: KeyPath, asked: Any, metric: Metric, names: Sequence[str]
    ) -> dict[windows.Window, list[str]]:
        """Flows by the window of an expectation: as given, else all together or each its own life."""
        if asked.window is not None:
            window = (asked.window.start, asked.window.end)
            self._check_window((*key, "window"), metric, names, window)
            return {window: list(names)}
        found: dict[windows.Window, list[str]] = {}
        for group in [names] if metric.shared else [[name] for name in names]:
            own = windows.default_window([self.spans[name] for name in group], self.scenario.warm_up)
            if own is None and len(group) > 1:
                who = ", ".join(group)
                reason = f"there is no time after the warm-up at which all of {who} run: give a window"
                self._refuse(key, reason)
            elif own is None:
                self._refuse(key, f"{group[0]} does not run after the warm-up: give a window")
            else:
                found.setdefault(own, []).extend(group)
        return found

    def _check_window(
        self, key: KeyPath, metric: Metric, names: Sequence[str], window: windows.Window
    ) -> None:
        """What needs samples of a flow is not known of a time in which it does not run."""
        absent = [n for n in names if self.spans[n][0] >= window[1] or self.spans[n][1] <= window[0]]
        if metric.sampled or (metric.least > 1 and len(absent) == len(names)):
            for name in absent:
                start, end = (at / 1e9 for at in self.spans[name])
                self._refuse(
                    key,
                    f"{name} runs in {start:g}-{end:g} s: {metric.name} of it is not known before or after",
                )

    def _check_sources(self, flows: Sequence[Flow]) -> None:
        """Traces and eBPF know connections by both of their ports; captures are a router's."""
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

    # phases

    def _calibration(self, path: PlannedPath | None, flows: Sequence[Flow], hosts: Sequence[str]) -> Phase:
        pairs = [
            Pair(src, dst, self._address(src), self._address(dst), self._direction(src))
            for src, dst in self.pairs
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

    def _measurement(
        self, path: PlannedPath | None, flows: Sequence[Flow], hosts: Mapping[str, Host]
    ) -> Phase:
        routers = self.inventory.groups.get("routers", [])
        asked = self.scenario.flows
        sampled = {own for name, names in self.names.items() for own in names if asked[name].sampled}
        changes = [(host, action) for host in routers for action in _changes(path)]
        actions: Actions = [*_ends(flows), *self.pings, *self.commands, *changes]
        if self.scenario.sampling.capture:
            actions += [(host, capture) for host in routers for capture in self._captures(host)]
        counting = [host for host, of in hosts.items() if of.state.qdisc == "rapid"]  # whom it sends first
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
        for i, change in enumerate(way.changes or [], start=1):
            yield PathAction(at_ns=change.at_ns, kind="path", name=change_name(name, i))


def _parameter(value: int | str | bool) -> str:
    """A module's parameter as sysfs shows it."""
    return {True: "Y", False: "N"}[value] if isinstance(value, bool) else str(value)
