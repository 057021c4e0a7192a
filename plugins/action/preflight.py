"""Read whether a host is fit for experiments, and try whether it reaches the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from dumbbell.execution.host_state import StateAction
from dumbbell.execution.preflight import PORTS, End, ends_of, pings_of
from dumbbell.plan.document import Flow

NTP_PORT = 123


class ActionModule(StateAction):
    """Arguments: ``points`` (as plan_run returns them); ``read``, what each host has registered by the first
    task, without which this is the first.

    The first task returns ``facts``, and leaves a process that answers on the ports of flows; ``taken`` are
    ports that others have. The second returns ``pings`` and ``tries``, each with what came of it.
    """

    spec: ClassVar[dict[str, Any]] = {
        "points": {"type": "list", "elements": "dict", "required": True},
        "read": {"type": "str", "default": ""},
    }

    def act(self, points: list[dict[str, Any]], read: str) -> dict[str, Any]:
        """Read, or try."""
        flows = [
            Flow.model_validate(flow)
            for facts in points
            for phase in facts["plan"]["phases"]
            for flow in phase["flows"]
        ]
        ends = ends_of(flows)
        if not read:
            serve = [end for end in ends if end.server == self.host][:PORTS]
            told = self.module(
                "preflight", nics=self._devices(self.host), serve=[end._asdict() for end in serve]
            )
            return {"facts": told["facts"], "taken": told["taken"]}
        tries = [end for end in ends if end.client == self.host][:PORTS] + self._of_site()
        pings = pings_of(self.host, self._others(flows), self._hosts(self.registered(read)))
        asked = [end._asdict() | {"from": end.source} for end in tries]
        told = self.module("preflight", pings=[ping._asdict() for ping in pings], tries=asked)
        return {
            "pings": [[list(ping), answer] for ping, answer in zip(pings, told["pings"], strict=True)],
            "tries": [[list(end), error] for end, error in zip(tries, told["tries"], strict=True)],
        }

    def _of(self, host: str, name: str, without: Any) -> Any:
        return self.task_vars["hostvars"][host].get(name) or without

    def _devices(self, host: str) -> list[str]:
        return [nic["device"] for nic in self._of(host, "experiment_interfaces", {}).values()]

    def _others(self, flows: Sequence[Flow]) -> list[str]:
        """Whom the host should reach: the other ends of its flows, and routers; a router reaches all."""
        routers = self.task_vars["groups"].get("routers", [])
        if self.host in routers:
            return [host for host in self.hosts if host != self.host]
        pairs = [{flow.client_host, flow.server_host} for flow in flows]
        peers = {host for pair in pairs if self.host in pair for host in pair}
        return [host for host in self.hosts if host != self.host and (host in peers or host in routers)]

    def _hosts(self, read: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Interfaces of all hosts, with the MTU that they have now, and their routes."""
        found = {}
        for host in self.hosts:
            nics = read.get(host, {}).get("facts", {}).get("nics", {})
            interfaces = {
                side: {"device": nic["device"], "address": nic["address"], "mtu": nics[nic["device"]]["mtu"]}
                for side, nic in self._of(host, "experiment_interfaces", {}).items()
                if nics.get(nic["device"])
            }
            found[host] = {"interfaces": interfaces, "routes": self._of(host, "experiment_routes", [])}
        return found

    def _of_site(self) -> list[End]:
        """The time server and the InfluxDB, on the management network."""
        variables = self.variables()
        server = variables["clock_server"]
        ends = []
        if variables["clock_source"] == "chrony" and server != self.host:
            address = str(self._of(server, "ansible_host", server))
            ends.append(End(self.host, server, "ntp", "", address, NTP_PORT))
        url = urlsplit(str(self._templar.template(self.task_vars.get("influxdb_url")) or ""))
        if url.hostname and url.port:
            ends.append(End(self.host, "the InfluxDB", "tcp", "", url.hostname, url.port))
        return ends
