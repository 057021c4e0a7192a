"""Events of agents: each planned event occurs once with correct values, and no failure is reported."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from dumbbell.facts import declared, documents
from dumbbell.facts.check import Check, faultless
from dumbbell.kinds.found import FOUND
from dumbbell.plan import Phase
from dumbbell.plan.actions import Action, CaptureAction, CommandAction, FlowAction, PathAction, PhaseHost
from dumbbell.run.content import Run, dig
from dumbbell.run.record import Event, read_json, read_jsonl
from dumbbell.units import human

SAMPLE_LEAD_NS = 2_000_000_000  # agents that sample start this long before t0
CALIBRATION_LEAD_NS = 500_000_000  # in a calibration; older agents as long before it as before a measurement
LAUNCH_LEAD_NS = 4_000_000_000  # iperf3 is launched this long before its flow starts
ROUNDING_TICKS = 2  # the first and the last tick may be off by half an interval
FASTEST_SLEW = 5e-3  # the fastest rate at which a clock is slewed; more is a step
BETWEEN_CLOCKS_NS = 50_000_000  # an agent on a busy host may be delayed between its readings of two clocks
UNTIL_STATUS_NS = 60_000_000_000  # between an agent's last event and its status

Key = tuple[str, ...]


def checks(run: Run) -> Iterator[Check]:
    """A check of each host and phase with a file of events."""
    for phase in run.point.phases:
        for host, part in phase.hosts.items():
            if run.raw(host, phase.phase, "events.jsonl").exists():
                told = _Told(run, phase, host, part)
                yield faultless("events", f"{host} {phase.phase}", told.faults())


class _Told:
    def __init__(self, run: Run, phase: Phase, host: str, part: PhaseHost) -> None:
        self.run, self.phase, self.host, self.part = run, phase, host, part
        self.file = run.raw(host, phase.phase, "events.jsonl")
        self.events = read_jsonl(self.file)
        self.flows = {flow.name: flow for flow in phase.flows}
        start = dig(read_json(run.raw(host, phase.phase, "start.json")), "t0_unix_ns")
        self.t0: int | None = start if isinstance(start, int) else None
        self.near_ns = run.point.validity.clock_offset_ns

    def faults(self) -> Iterator[str]:
        lines = sum(bool(line.strip()) for line in self.file.read_text(errors="replace").splitlines())
        if lines != len(self.events):
            yield f"{lines - len(self.events)} lines are no events"
        sound = []
        for event in self.events:
            wrong = list(self._malformed(event))
            yield from wrong
            if not wrong:
                sound.append(event)
        yield from self._counted()
        yield from self._times(sound)
        for event in sound:
            yield from self._values(event)

    def _malformed(self, event: Event) -> Iterator[str]:
        name = event.get("event")
        known = declared.events().get(name) if isinstance(name, str) else None
        if known is None:
            yield f"{name!r} is no event of an agent"
        elif known.fault is not None:
            said = {"reason": "it did not say why", "action": "", "code": "", "stderr": ""} | event
            yield known.fault.format(**said)
        else:
            yield from documents.faults(known.document, event, str(name))

    # which events there are

    def expected(self) -> Iterator[Key]:
        """The keys of each planned event."""
        yield from ((name,) for name in ("armed", "start_received", "sampler", "clock_watched", "done"))
        for flow in self.phase.flows:
            if flow.src_host == self.host:
                yield "flow_planned", flow.name
        for action in self.part.actions:
            yield from self._of_action(action)
        if any(self.flows[name].of_kind.follows_sockets for name in self.part.sample.tcp):
            yield ("finals",)
        if self.part.sample.trace:
            yield ("trace",)
        if self.part.restore_ns is not None:
            yield ("path_restored",)
        if self.part.waits:
            yield ("strangers",)

    def _of_action(self, action: Action) -> Iterator[Key]:
        if isinstance(action, PathAction):
            yield "path_changed", action.name
        if isinstance(action, CaptureAction):
            yield "capture", action.name
        if not isinstance(action, FlowAction | CommandAction):
            return
        name = action.flow
        yield "flow_launched", name, action.kind
        flow = self.flows[name]
        yield from FOUND[flow.kind].events(flow, action.kind, self.events)
        if action.kind == flow.of_kind.client:
            yield "flow_first_data", name

    def _counted(self) -> Iterator[str]:
        known = declared.events()
        found: Counter[Key] = Counter()
        for event in self.events:
            name = str(event.get("event"))
            keys = known[name].told_apart_by if name in known else ()
            found[name, *(str(event.get(key)) for key in keys)] += 1
        asked = Counter(self.expected())
        for key, count in (asked - found).items():
            yield f"no event {' '.join(key)}" + (f" ({count} missing)" if count > 1 else "")
        for key, count in (found - asked).items():
            if key[0] in known and known[key[0]].planned:
                yield f"event {' '.join(key)} came {count} more than the plan makes"

    # the values of events

    def _times(self, events: list[Event]) -> Iterator[str]:
        """Faults of times: both clocks of each event agree, and each event is within the phase."""
        apart = [event["unix_ns"] - event["mono_ns"] for event in events]
        if not apart:
            return
        usual = statistics.median_low(apart)
        for event, own in zip(events, apart, strict=True):
            if abs(own - usual) > max(self.near_ns, BETWEEN_CLOCKS_NS):
                by = human(own - usual, "ns")
                yield f"{event['event']}: unix_ns and mono_ns differ by {by} from those of the others"
        status = self.run.status(self.host, self.phase.phase)
        ended, last = dig(status, "unix_ns"), max(event["unix_ns"] for event in events)
        if isinstance(ended, int) and not 0 <= ended - last + self.near_ns <= UNTIL_STATUS_NS:
            yield f"the status is of {human(ended - last, 'ns')} after the last event"

    def _values(self, event: Event) -> Iterator[str]:
        judge = getattr(self, f"_{event['event']}", None)
        if judge is not None:
            yield from judge(event)

    def _near(
        self, name: str, what: str, asked: int, found: int, within_ns: int | None = None
    ) -> Iterator[str]:
        if abs(found - asked) > (self.near_ns if within_ns is None else within_ns):
            yield f"{name}: {what} is {found}, and should be {asked}"

    def _start_received(self, event: Event) -> Iterator[str]:
        if event["t0_unix_ns"] != self.t0:
            yield f"start_received: t0_unix_ns is {event['t0_unix_ns']}, and start.json has {self.t0}"

    def _planned(self, event: Event) -> Iterator[str]:
        flow = self.flows.get(event["flow"])
        if flow is not None and self.t0 is not None:
            start = self.t0 + flow.start_ns
            yield from self._near(event["event"], "planned_unix_ns", start, event["planned_unix_ns"])

    _flow_planned = _planned

    def _flow_held(self, event: Event) -> Iterator[str]:
        flow = self.flows.get(event["flow"])
        if flow is None or not event["held"]:
            return  # the cost of this shows in the flow's start
        if not 0 < event["lead_ns"] <= LAUNCH_LEAD_NS:
            yield f"flow_held: lead_ns is {event['lead_ns']}"
        if self.t0 is not None:
            lead = self.t0 + flow.start_ns - event["unix_ns"]
            within = self.run.point.validity.start_error_ns
            yield from self._near("flow_held", "lead_ns", lead, event["lead_ns"], within)
        asked, found = FOUND[flow.kind].greeting_bytes, event.get("bytes_sent")
        if asked is not None and found != asked:
            yield f"flow_held: it had sent {found} bytes, not the {asked} of its greeting"

    def _flow_released(self, event: Event) -> Iterator[str]:
        yield from self._planned(event)
        within = self.run.point.validity.start_error_ns
        at = event["planned_unix_ns"] + event["error_ns"]
        yield from self._near("flow_released", "its moment", at, event["unix_ns"], within)

    def _flow_first_data(self, event: Event) -> Iterator[str]:
        yield from self._planned(event)
        if event["error_ns"] is not None:
            at = event["planned_unix_ns"] + event["error_ns"]
            yield from self._near("flow_first_data", "its moment", at, event["unix_ns"])

    def _flow_congestion_control(self, event: Event) -> Iterator[str]:
        flow = self.flows.get(event["flow"])
        if flow is not None and event["name"] != flow.congestion_control:
            yield f"flow_congestion_control: {event['name']}, not {flow.congestion_control}"

    def _path_changed(self, event: Event) -> Iterator[str]:
        for action in self.part.actions:
            if isinstance(action, PathAction) and action.name == event["name"] and self.t0 is not None:
                planned = self.t0 + action.at_ns
                yield from self._near("path_changed", "planned_unix_ns", planned, event["planned_unix_ns"])
        at = event["planned_unix_ns"] + event["error_ns"]
        yield from self._near("path_changed", "its moment", at, event["unix_ns"])
        if not event["ok"]:
            yield f"path_changed: {event['name']} failed: {event.get('reason')}"

    def _path_restored(self, event: Event) -> Iterator[str]:
        if not event["ok"]:
            yield "path_restored: it failed"

    def _sampler(self, event: Event) -> Iterator[str]:
        interval, ticks = self.phase.sampling_interval_ns, event["ticks"]
        if event["sampled"] + event["missed"] != ticks:
            yield f"sampler: {event['sampled']} sampled and {event['missed']} missed are not {ticks} ticks"
        least = self.phase.duration_ns / interval
        longest = least + SAMPLE_LEAD_NS // interval
        if self.part.sample.anything:
            lead_ns = CALIBRATION_LEAD_NS if self.phase.phase == "calibration" else SAMPLE_LEAD_NS
            least += lead_ns // interval
        if not least - ROUNDING_TICKS <= ticks <= longest + ROUNDING_TICKS:
            yield f"sampler: {ticks} ticks, and the phase has {least:.0f} to {longest:.0f}"
        most = 2 * self.run.point.validity.missed_samples + 0.01
        if ticks > ROUNDING_TICKS and abs(event["achieved_interval_ns"] / interval - 1) > most:
            found = human(event["achieved_interval_ns"], "ns")
            yield f"sampler: it sampled each {found}, asked {human(interval, 'ns')}"

    def _trace(self, event: Event) -> Iterator[str]:
        if not event["records"]:
            yield "trace: it has no record"

    def _capture(self, event: Event) -> Iterator[str]:
        if not event["packets"]:
            yield f"capture: no packet at {event['name']}"

    def _clock_watched(self, event: Event) -> Iterator[str]:
        if bool(event["steps"]) != bool(event["largest_step_ns"]):
            yield f"clock_watched: {event['steps']} steps, the largest of {event['largest_step_ns']} ns"
        told = sum(other.get("event") == "clock_step" for other in self.events)
        if told != min(event["steps"], 20):
            yield f"clock_watched: {event['steps']} steps, and {told} were told"
        most = self.near_ns + FASTEST_SLEW * self.phase.duration_ns
        if abs(event["drift_ns"]) > most:
            by = human(event["drift_ns"], "ns")
            yield f"clock_watched: the clock moved by {by} against one that nobody slews"

    def _strangers(self, event: Event) -> Iterator[str]:
        packets, first = event.get("packets"), event.get("first")
        if packets is not None and (not isinstance(first, str) or bool(packets) != bool(first)):
            yield f"strangers: {packets} packets, the first {first!r}"
