"""The facts of a point that its steps use: :meth:`dumbbell.run.directory.Execution.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

RUNS = "/var/lib/dumbbell/runs"  # on hosts

PhaseName = Literal["calibration", "measurement"]


@dataclass(frozen=True)
class PlannedPoint:
    """One execution of a point, as playbooks pass it."""

    facts: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The id that hosts use for it."""
        return str(self.facts["run_id"])

    @property
    def dir(self) -> Path:
        """Its directory."""
        return Path(self.facts["run_dir"])

    @property
    def measuring(self) -> bool:
        """Whether its measurement went on without a controller."""
        return bool(self.facts["measuring"])

    @property
    def virtual(self) -> bool:
        """Whether it runs in virtual time, where the duration of a step must not shift the next ones."""
        return bool(self.facts["virtual"])

    @property
    def path(self) -> Mapping[str, Any] | None:
        """The path of its plan; None without one."""
        path: Mapping[str, Any] | None = self.facts["plan"]["path"]
        return path

    def phase(self, name: str) -> Mapping[str, Any]:
        """A phase of its plan."""
        return next(phase for phase in self.facts["plan"]["phases"] if phase["phase"] == name)

    def phases(self, host: str) -> list[str]:
        """Phases in which a host has an agent, in order."""
        return list(self.facts["phases"].get(host, []))

    def takes_part(self, host: str, phase: str) -> bool:
        """Whether a host has an agent in a phase."""
        return phase in self.phases(host)

    def unit(self, host: str, phase: str) -> str:
        """The agent's systemd unit; with eBPF the one with more privileges."""
        ebpf = self.phase(phase)["hosts"][host]["sample"]["ebpf"]
        return f"dumbbell-agent{'-ebpf' if ebpf else ''}@{self.run_id}-{phase}"

    def folder(self, phase: str) -> str:
        """Directory of a phase on a host."""
        return f"{RUNS}/{self.run_id}/{phase}"

    def peer(self, host: str) -> str:
        """Destination address of a host's first flow; '' if it sends none."""
        flows = self.phase("measurement")["flows"]
        return next((str(flow["dst"]) for flow in flows if flow["src_host"] == host), "")

    @property
    def ping_interval_ns(self) -> int:
        """Interval of the pings of its calibration."""
        hosts = self.phase("calibration")["hosts"].values()
        return next(
            int(action["interval_ns"]) for of in hosts for action in of["actions"] if action["kind"] == "ping"
        )

    def kinds(self, host: str) -> set[str]:
        """Kinds of the flows that begin or end at a host."""
        flows = [flow for phase in self.facts["plan"]["phases"] for flow in phase["flows"]]
        return {flow["kind"] for flow in flows if host in (flow["src_host"], flow["dst_host"])}
