"""Hosts' answers to the steps of a point, and the decisions from them: whether to go on, when to begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SILENT = "no longer answers"
SECOND_NS = 1_000_000_000

Answer = Mapping[str, Any]


def trouble_of(answer: Answer) -> str:
    """The error of a step, or Ansible's message if Ansible ended the step; '' for none."""
    if answer.get("unreachable"):
        return SILENT
    if answer.get("failed"):
        return str(answer.get("msg") or "failed")
    return str(answer.get("trouble") or "")


@dataclass(frozen=True)
class Answers:
    """Answers of every host of the play to the steps of one point so far.

    ``steps`` has the answers of each step, in order, by host. A host without the step has no answer.
    """

    hosts: Sequence[str]
    steps: Sequence[Mapping[str, Answer]]

    def troubles(self) -> dict[str, str]:
        """The first error of each host that had one; later errors follow from it."""
        found: dict[str, str] = {}
        for answers in self.steps:
            for host in self.hosts:
                if host in answers and (trouble := trouble_of(answers[host])):
                    found.setdefault(host, trouble)
        return found

    @property
    def stopped(self) -> str:
        """Why the point was stopped by hand; '' if it was not."""
        return next(
            (str(answer["stopped"]) for of in self.steps for answer in of.values() if answer.get("stopped")),
            "",
        )

    @property
    def go_on(self) -> bool:
        """Whether no host had an error and nobody stopped the point."""
        return not self.troubles() and not self.stopped

    @property
    def silent(self) -> list[str]:
        """Hosts that no longer answer."""
        return [host for host, trouble in self.troubles().items() if trouble == SILENT]

    def reasons(self) -> list[str]:
        """Why the point did not finish. A reason that not all hosts give names its hosts."""
        said: dict[str, list[str]] = {}
        for host, trouble in self.troubles().items():
            said.setdefault(trouble, []).append(host)
        reasons = list(self._named(said))
        return [self.stopped, *reasons] if self.stopped else reasons

    def _named(self, said: Mapping[str, Sequence[str]]) -> Iterator[str]:
        for trouble, hosts in said.items():
            if trouble == SILENT:
                yield from (f"{host} {SILENT}" for host in hosts)
            elif len(hosts) == len(self.hosts) > 1:
                yield trouble
            else:
                yield f"{', '.join(hosts)}: {trouble}"

    def end(self) -> str:
        """Why the points after this one are not run; '' if they are."""
        if silent := self.silent:
            return f"{', '.join(silent)} {'do' if len(silent) > 1 else 'does'} not answer. When it does:"
        if self.stopped:
            return f"{self.stopped}. Partial results are kept; to run what was not begun:"
        return ""


@dataclass(frozen=True)
class Armed:
    """An armed agent: its clock when it answered, the controller's then, the time that it needs before t0.

    ``asked_unix_ns`` is the controller's time when it began to arm it.
    """

    asked_unix_ns: int
    now_unix_ns: int
    received_unix_ns: int
    lead_ns: int

    @property
    def behind_ns(self) -> int:
        """How far its clock is behind the controller's, plus the time that its answer took."""
        return self.received_unix_ns - self.now_unix_ns

    @property
    def took_ns(self) -> int:
        """How long it took to arm it."""
        return self.received_unix_ns - self.asked_unix_ns


def start_unix_ns(armed: Sequence[Armed], margin_ns: int, step_ns: int) -> int:
    """t0 by the hosts' clocks: the first multiple of ``step_ns`` that the slowest agent allows.

    Every host computes it from the same answers. ``margin_ns`` is the least time to send it. It takes less
    than half as long as to arm an agent, also on a busy machine.
    """
    last = max(agent.received_unix_ns for agent in armed)
    now = max(last - agent.behind_ns for agent in armed)
    sent_ns = max(margin_ns, *(agent.took_ns // 2 for agent in armed))
    soonest = now + sent_ns + max(agent.lead_ns for agent in armed)
    return -(-soonest // step_ns) * step_ns


def behind_ns(armed: Sequence[Armed]) -> int:
    """How far the hosts' clock is behind the controller's, from the fastest answer."""
    return min((agent.behind_ns for agent in armed), default=0)
