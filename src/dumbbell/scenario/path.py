"""The path of a scenario: rate, delay, loss and queue of each direction, and their changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dumbbell import units
from dumbbell.quantities import Delay, Duration, QueueLimit, Rate, RateOrNone, Ratio, Size, Strict
from dumbbell.scenario.problems import KeyPath
from dumbbell.scenario.trace import read_steps

QueueKind = Literal["pfifo", "bfifo", "codel", "fq_codel", "cake", "pie", "red"]
LIMIT_UNIT = {
    kind: "bytes" if kind in {"bfifo", "cake", "red"} else "packets" for kind in get_args(QueueKind)
}
NO_LOSS = {"loss": 0.0, "loss_gemodel": None}  # alternative loss models, both off
NEED_LIMIT = ("pfifo", "bfifo", "red")
OUTAGE_NS = (100_000_000, 59 * 10**9)  # how long a bottleneck can be closed, at least and at most
OPTIONS = {
    "ecn": ("codel", "fq_codel", "pie", "red"),
    "target": ("codel", "fq_codel", "pie"),
    "interval": ("codel", "fq_codel"),
}


class Queue(Strict):
    """Queue of a bottleneck."""

    kind: QueueKind
    limit: QueueLimit | None = Field(
        default=None,
        description="pfifo, codel, fq_codel, pie: packets or bdp; bfifo, cake, red: bytes or bdp. 1bdp is "
        "rate x RTT of the path, without delays of flows' own, in packets of the smallest `mtu` on the path "
        "(else `nic_mtu` of the inventory) and 14 bytes: 1514. Required for pfifo, bfifo and red, "
        "else the kernel's own.",
    )
    ecn: bool | None = Field(default=None, description="mark instead of drop; default: the kernel's own")
    target: Delay | None = Field(default=None, description="queueing delay that an AQM tolerates")
    interval: Delay | None = Field(default=None, description="time that a codel tolerates more")

    @field_validator("kind", mode="before")
    @classmethod
    def _queues(cls, kind: Any) -> Any:
        if kind in ("police", "policer"):
            raise ValueError(
                "a policer has no queue: give the direction `policer: {rate, burst}` beside its queue"
            )
        if kind == "dualpi2":
            raise ValueError(
                "dualpi2 is not supported: Linux has it from 6.17 on, but the tc of Debian 12 (iproute2 6.1) "
                "cannot give it a limit or read it back: take codel, fq_codel or pie with `ecn: true`"
            )
        return kind

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        own = LIMIT_UNIT[self.kind]
        if self.limit is None and self.kind in NEED_LIMIT:
            raise ValueError(f"a {self.kind} needs a limit")
        if self.limit is not None and self.limit.unit not in (own, "bdp"):
            raise ValueError(f"a {self.kind} is limited in {own} or bdp, not in {self.limit.unit}")
        for option, kinds in OPTIONS.items():
            if getattr(self, option) is not None and self.kind not in kinds:
                raise ValueError(f"a {self.kind} has no {option}; {', '.join(kinds)} have")
        return self


class Policer(Strict):
    """A token bucket behind the bottleneck that drops what finds it empty, and queues nothing.

    What does TCP get of a rate that a provider polices?
    """

    rate: Rate = Field(description="at which the bucket fills, counted on Ethernet frames")
    burst: Size = Field(
        description="size of the bucket, which is full at first and after each change of the policer. TCP "
        "gets the rate if it holds a tenth of a second of it"
    )


class GilbertElliott(Strict):
    """Loss in bursts by a chain of two states; probabilities for each packet."""

    p: Ratio = Field(description="of going from the good to the bad state")
    r: Ratio = Field(description="of going back")
    loss_bad: Ratio = Field(default=1.0, json_schema_extra={"default": "100%"})
    loss_good: Ratio = Field(default=0.0, json_schema_extra={"default": "0%"})


class Change(Strict):
    """What a direction becomes within a run: it names what differs from before, by the direction's keys.

    It is made in place: packets under way stay so. The kind of queue, the bottleneck's burst, the
    distribution of delays, and delays of flows' own do not change, and a direction without a policer gets
    none. Flows of tcp, iperf3_tcp and atou connect ahead of their start, over the path of their start: one
    that starts too soon after a change of the delay is refused.
    """

    at: Annotated[Duration, Field(gt=0)] = Field(description="since t0")
    rate: RateOrNone | None = Field(
        default=None,
        description="0bit is an outage, until a later change gives a rate: the packet that is being sent "
        "leaves, the others wait in the queue, which drops what it has no room for. It lasts 100ms to 59s; "
        "the change that ends it names the rate alone. An outage that loses what is sent has the loss 100%. "
        "How soon does a flow have the rate again?",
    )
    delay: Delay | None = Field(
        default=None, description="when it gets shorter, packets overtake those under way, unless keep_order"
    )
    loss: Ratio | None = Field(default=None, description="in place of any loss_gemodel")
    loss_gemodel: GilbertElliott | None = Field(default=None, description="in place of any loss")
    jitter: Delay | None = None
    keep_order: bool | None = None
    duplicate: Ratio | None = None
    corrupt: Ratio | None = None
    reorder: Ratio | None = None
    policer: Policer | None = Field(default=None, description="all of it")
    queue: Queue | None = Field(
        default=None,
        description="all of it. 1bdp is rate x RTT after the change; a queue that no change names keeps its "
        "limit, also one that was given in bdp",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.named:
            raise ValueError("it names nothing that differs from before")
        if self.named.keys() >= NO_LOSS.keys():
            raise ValueError("loss and loss_gemodel are models of the same loss: give one")
        return self

    @property
    def named(self) -> dict[str, object]:
        """The keys that this change sets."""
        return {name: value for name, value in self if name != "at" and value is not None}


class RateTrace(Strict):
    """Rates of a bottleneck over time, from a file, replayed as changes in place.

    Each change is verified as others are. What does the flow do on a radio link that was recorded?
    """

    file: str = Field(
        description="beside the scenario: lines of `SECONDS,BIT_PER_SECOND`, or mahimahi's format, a time in "
        "ms for each delivery of 1500 bytes, which begins anew after its last",
        examples=["lte.csv"],
    )
    every: Annotated[Duration, Field(gt=0)] = Field(
        default=10**9,
        description="the mean rate of each such interval is one change; longer than `validity.start_error`",
        json_schema_extra={"default": "1s"},
    )

    @model_validator(mode="after")
    def _beside(self) -> Self:
        if Path(self.file).is_absolute() or ".." in Path(self.file).parts:
            raise ValueError(f"{self.file} is not beside the scenario, or below: a run keeps a copy of both")
        return self


def _rate_or_trace(schema: dict[str, Any]) -> None:
    schema["required"].remove("rate")
    schema["anyOf"] = [{"required": ["rate"]}, {"required": ["rate_trace"]}]


class Direction(Strict):
    """One direction of the path: bottleneck first, then policer, then delay and loss."""

    model_config = ConfigDict(json_schema_extra=_rate_or_trace)

    rate: Rate = Field(
        description="rate of the bottleneck, counted on Ethernet frames; where it has no rate_trace"
    )
    rate_trace: RateTrace | None = Field(
        default=None, description="in place of rate and of changes, which it makes"
    )
    burst: Size | None = Field(
        default=None,
        description="what the bottleneck passes at once after an idle time, at least a packet; default: "
        "`path_burst_us` of the inventory. How far is the first second above the rate?",
    )
    policer: Policer | None = None
    delay: Delay = Field(description="one-way delay added by the router")
    loss: Ratio = Field(
        default=0.0, description="share of packets lost at random", json_schema_extra={"default": "0%"}
    )
    loss_gemodel: GilbertElliott | None = None
    jitter: Delay | None = Field(default=None, description="standard deviation, or half the range, of delays")
    distribution: Literal["normal", "pareto", "paretonormal"] | None = Field(
        default=None, description="of delays; default: uniform"
    )
    keep_order: bool | None = Field(
        default=None,
        description="no packet overtakes another through jitter: each leaves after the slowest before it, so "
        "that the mean delay grows with the load; the plan says how far",
    )
    duplicate: Ratio | None = Field(default=None, description="share of packets sent twice")
    corrupt: Ratio | None = Field(default=None, description="share of packets with a wrong bit")
    reorder: Ratio | None = Field(default=None, description="share of packets sent without delay")
    slot: Annotated[Delay, Field(gt=0)] | None = Field(
        default=None,
        description="packets leave the delay line together, this long after those before them, as on Wi-Fi "
        "or cable; one that finds it empty waits a slot more than the delay. With one in the reverse "
        "direction: what does a sender do whose ACKs arrive in bursts?",
    )
    queue: Queue
    changes: list[Change] = Field(default=[], description="of the direction within a run, in order of time")

    @model_validator(mode="before")
    @classmethod
    def _replay(cls, given: Any, info: ValidationInfo) -> Any:
        """A trace becomes a rate and changes.

        The context has the scenario's `directory` and `duration`, and gets the file in `traces`.
        """
        if not isinstance(given, dict) or not isinstance(given.get("rate_trace"), dict):
            return given
        if too := [key for key in ("rate", "changes") if key in given]:
            raise ValueError(f"give rate_trace, or {' and '.join(too)}, not both")
        asked = RateTrace.model_validate(given["rate_trace"])
        context = info.context or {}
        path = Path(context.get("directory", ".")) / asked.file
        try:
            duration_ns = units.parse_duration(context["duration"])
        except (KeyError, ValueError, TypeError):
            duration_ns = asked.every  # of which the scenario's own check tells
        first, *later = read_steps(path, asked.every, duration_ns)
        context.get("traces", set()).add(asked.file)
        changes = [{"at": f"{at}ns", "rate": f"{bps}bit"} for at, bps in later]
        return {**given, "rate": f"{first[1]}bit", "changes": changes}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if contradiction := self._contradiction():
            raise ValueError(contradiction)
        if self.distribution and not any(state.jitter for _, state in self.states):
            raise ValueError("distribution has no effect without jitter")
        if self.policer and self.policer.rate >= self.rate:
            policed, rate = (units.render_rate(bps) for bps in (self.policer.rate, self.rate))
            raise ValueError(
                f"the policer of {policed} drops nothing: the bottleneck before it lets through {rate}"
            )
        return self

    def _contradiction(self) -> str | None:
        if self.loss and self.loss_gemodel:
            return "loss and loss_gemodel are models of the same loss: give one"
        if not self.delay and (self.jitter or self.reorder):
            return "jitter and reorder have no effect without delay"
        if self.keep_order and self.reorder:
            return "reorder and keep_order contradict each other"
        return None

    @property
    def states(self) -> list[tuple[int, Direction]]:
        """The direction at each time (ns since t0): as given, then after each of its changes."""
        found = [(0, self)]
        for change in self.changes:
            other_loss = NO_LOSS if change.named.keys() & NO_LOSS.keys() else {}
            found.append((change.at, found[-1][1].model_copy(update=other_loss | change.named)))
        return found

    @property
    def outages(self) -> list[tuple[int, int | None]]:
        """Begin and end (ns since t0) of each time in which nothing passes; None is the scenario's end."""
        found: list[tuple[int, int | None]] = []
        for at_ns, state in self.states:
            during = bool(found) and found[-1][1] is None
            if not state.rate and not during:
                found.append((at_ns, None))
            elif state.rate and during:
                found[-1] = (found[-1][0], at_ns)
        return found

    def at(self, ns: int) -> Direction:
        """The direction at a time since t0."""
        return [state for at, state in self.states if at <= ns][-1]

    def problems(self, duration_ns: int, apart_ns: int) -> Iterator[tuple[KeyPath, str]]:
        """Faults of its changes in a run of this length; changes must be ``apart_ns`` apart."""
        for i, ((before_ns, _), (at_ns, state)) in enumerate(pairwise(self.states)):
            key: KeyPath = ("changes", i)
            if at_ns >= duration_ns:
                yield (
                    (*key, "at"),
                    f"is not before the scenario's end at {units.render_duration(duration_ns)}",
                )
            if i and at_ns <= before_ns:
                yield (*key, "at"), "changes follow each other in order of time"
            elif i and at_ns - before_ns <= apart_ns:
                apart = units.render_duration(apart_ns)
                yield (*key, "at"), f"is within validity.start_error, {apart}, of the change before"
            if state.queue.kind != self.queue.kind:
                reason = f"a queue stays what it is within a run, here a {self.queue.kind}"
                yield (*key, "queue", "kind"), reason
            if state.policer and not self.policer:
                yield (*key, "policer"), "the direction has no policer that could change: give it one"
            if contradiction := state._contradiction():
                yield key, contradiction
        yield from self._outage_problems()

    def _outage_problems(self) -> Iterator[tuple[KeyPath, str]]:
        index = {change.at: i for i, change in enumerate(self.changes)}
        for begin_ns, end_ns in self.outages:
            key: KeyPath = ("changes", index[begin_ns], "rate")
            least, most = map(units.render_duration, OUTAGE_NS)
            if end_ns is None:
                yield (
                    key,
                    "nothing passes to the scenario's end: end the outage by a later change with a rate",
                )
            elif not OUTAGE_NS[0] <= end_ns - begin_ns <= OUTAGE_NS[1]:
                lasts = units.render_duration(end_ns - begin_ns)
                yield key, f"an outage lasts {least} to {most}, this one {lasts}"
            elif others := [name for name in self.changes[index[end_ns]].named if name != "rate"]:
                ends: KeyPath = ("changes", index[end_ns], others[0])
                yield (
                    ends,
                    "a change that ends an outage names the rate alone: give the others one of their own",
                )


class NetworkPath(Strict):
    """What the router is asked to be."""

    forward: Direction
    reverse: Direction | None = Field(default=None, description="default: as forward, with its changes")

    def way(self, direction: Literal["forward", "reverse"]) -> Direction:
        """The direction that data this way takes."""
        return self.forward if direction == "forward" or self.reverse is None else self.reverse
