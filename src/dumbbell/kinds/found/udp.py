"""udp: datagrams between two agents. Both ends count, and the receiver tracks each datagram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts import documents
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, same
from dumbbell.facts.columns import Columns, names, rows_of
from dumbbell.kinds.found.base import Counted, End, Found, Lost, Tables, share
from dumbbell.kinds.found.shared import FOREIGN, LATE_NS, began, foreign, rate_sent
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json
from dumbbell.units import human

FEW_PACKETS = 3  # too few packets for a rate
BPS_ROUNDING = 0.01  # between a rate and the quotient of the bytes and the time reported with it
_SENT = names("asked_packets sent_packets sent_bytes skipped_packets dropped_packets")
_RECEIVED = names("""
    received_packets received_bytes lost_packets reordered_packets duplicate_packets stale_packets
    socket_drops""")


class Udp(Found):
    """UDP at scheduled rates."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "udp_send": ("udp-{}-sender.json",),
        "udp_receive": ("udp-{}-receiver.json",),
    }
    documents: ClassVar[Mapping[str, type[documents.Document]]] = {
        "udp-sender": documents.UdpSender,
        "udp-receiver": documents.UdpReceiver,
    }

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """The sender kept to the planned rate, and the receiver accounted for all datagrams."""
        yield from began(of, flow)
        sent = dig(_told(of.run, flow, "sender"), "sent_bps")
        yield from rate_sent(of, flow, sent, "the sender left no result")
        got = _told(of.run, flow, "receiver")
        missing = "the receiver left no result" if got is None else "no end marker came"
        end = "seen" if dig(got, "end_seen") else None
        missing += ": what was lost at the end is not known"
        yield same("end of datagrams", flow.name, "seen", end, what="end of its datagrams", missing=missing)

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
        """Contradictions between the counts of both ends."""
        sent, got = (
            read_json(run.raw(host, phase.phase, f"udp-{flow.name}-{side}.json"))
            for host, side in ((flow.src_host, "sender"), (flow.dst_host, "receiver"))
        )
        if documents.faults(documents.UdpSender, sent, "") or documents.faults(
            documents.UdpReceiver, got, ""
        ):
            return  # the check of files reports this
        # In the measurement, where less is lost, the loss budget is the stricter check.
        few = run.point.validity.arrival_tolerance
        payload, t0 = flow.payload_bytes or 0, run.t0_unix_ns(phase.phase)
        duplicates = run.point.path is not None and any(
            state.duplicate for _, state in run.point.path.way(flow.direction).states
        )
        for fine, fault in (
            (
                sent["asked_packets"] == sent["sent_packets"] + sent["skipped_packets"],
                "sent and skipped are not all",
            ),
            (
                sent["sent_bytes"] == payload * sent["sent_packets"],
                "bytes sent are not those of its datagrams",
            ),
            (
                got["received_bytes"] == payload * got["received_packets"],
                "bytes received are not those of its datagrams",
            ),
            (
                not got["end_seen"] or sent["sent_packets"] == got["received_packets"] + got["lost_packets"],
                "received and lost are not all that was sent",
            ),
            (
                _like(sent["sent_bps"], 8e9 * sent["sent_bytes"] / flow.duration_ns),
                "the rate sent is not that of its bytes",
            ),
            (_like(sent["asked_bps"], flow.mean_rate_bps or 0), "the sender was not asked the plan's rate"),
            (
                got["received_packets"] < FEW_PACKETS
                or _like(
                    got["received_bps"],
                    8e9 * got["received_bytes"] / _span(got),
                    FEW_PACKETS / got["received_packets"],
                ),
                "the rate received is not that of its bytes",
            ),
            (not sent["too_large"], "the path takes smaller datagrams only"),
            (duplicates or not got["duplicate_packets"], "datagrams came twice, which nobody asked"),
            (got["end_seen"], "no end marker came: what was lost at the end is not known"),
            (got["socket_drops"] <= few * got["received_packets"], "its socket was full for many datagrams"),
            (
                sent["dropped_packets"] <= few * sent["sent_packets"],
                "its sender's own queue refused many datagrams",
            ),
            (not got["stale_packets"], "datagrams came too late to be counted"),
            (
                got["foreign_packets"] <= FOREIGN * got["received_packets"],
                f"{got['foreign_packets']} datagrams came that were not its own, "
                f"of {got['received_packets']}",
            ),
            (got["kernel_stamps"], "the kernel did not stamp arrivals"),
            (
                got["delay_packets"] <= got["received_packets"] + got["duplicate_packets"],
                "more delays than datagrams",
            ),
            (_ascending(got), "its delays are not in order"),
            (t0 is None or _within(flow, sent, got, t0), "its first and last datagram are not in its time"),
        ):
            if not fine:
                yield fault

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of both ends' counts, and of the delays at the receiver."""
        sends = side == "sender"
        yield rows_of(
            "udp",
            (*_SENT, "late_max_ns") if sends else (*_RECEIVED, "delay_packets"),
            sometimes=() if sends else names("delay_min_ns delay_mean_ns delay_max_ns"),
            # late datagrams were counted as lost before
            counters=_SENT if sends else tuple(n for n in _RECEIVED if n != "lost_packets"),
            match={"flow": flow.name, "side": side},
            series=("flow", "side"),
            steady=False,
        )

    def covered(self, run: Run, tables: Tables, flow: Flow) -> Iterator[End]:
        """Both ends count at each tick."""
        rows = tables["udp"].filter(phase="measurement", flow=flow.name)
        each_ns = run.point.phase("measurement").sampling_interval_ns
        yield from (End(side, rows.filter(side=side), each_ns) for side in ("sender", "receiver"))

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """Lost datagrams, from the counts of both ends."""
        got = read_json(run.raw(flow.dst_host, "measurement", f"udp-{flow.name}-receiver.json"))
        sent = read_json(run.raw(flow.src_host, "measurement", f"udp-{flow.name}-sender.json"))
        lost, out = dig(got, "lost_packets"), dig(sent, "sent_packets")
        refused = dig(sent, "dropped_packets")
        if not dig(got, "end_seen") or None in (lost, out, refused):
            return "its ends have not told it"
        rows = tables["udp"].filter(phase="measurement", flow=flow.name, side="sender")
        before: Any = None
        if "sent_packets" in rows.columns:
            before = rows.filter(pl.col("t_ns") <= last_ns)["sent_packets"].max()
        unseen = out - (before or 0) if last_ns < flow.end_ns else 0
        return Lost(max(0, lost - refused), 0, unseen, out)

    def dropped_by_hosts(self, run: Run, flow: Flow, host: str) -> Iterator[str]:
        """Datagrams dropped at the receiver's full socket buffer, or refused by the sender's own queue."""
        for own, side, name, of, what in (
            (flow.dst_host, "receiver", "socket_drops", "received_packets", "found its socket full"),
            (flow.src_host, "sender", "dropped_packets", "sent_packets", "were refused by its own queue"),
            (flow.src_host, "sender", "skipped_packets", "asked_packets", "were too late to be sent"),
        ):
            told = read_json(run.raw(own, "measurement", f"udp-{flow.name}-{side}.json"))
            count, total = dig(told, name), dig(told, of)
            allowed = run.point.validity
            least = allowed.missed_samples if name == "skipped_packets" else allowed.unexpected_drops
            if own == host and isinstance(count, int) and isinstance(total, int) and count > least * total:
                yield f"{human(count)} datagrams of {flow.name} {what}"

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """Datagrams that the flow's sender did not send."""
        return foreign(run.raw(flow.server_host, phase.phase, f"udp-{flow.name}-receiver.json"))

    def ended(self, run: Run, flow: Flow) -> bool:
        """Whether the end marker arrived."""
        return bool(dig(_told(run, flow, "receiver"), "end_seen"))

    def lost_datagrams(self, run: Run, flow: Flow) -> Counted:
        """Lost datagrams, as the receiver counted them."""
        got = _told(run, flow, "receiver")
        lost, received = dig(got, "lost_packets"), dig(got, "received_packets")
        if not dig(got, "end_seen") or lost is None or received is None:
            return None, None
        return share(lost, lost + received)


def _told(run: Run, flow: Flow, side: str) -> Any:
    """The report of one end of the flow, of the measurement."""
    host = flow.src_host if side == "sender" else flow.dst_host
    return read_json(run.raw(host, "measurement", f"udp-{flow.name}-{side}.json"))


def _like(found: float, asked: float, within: float = 0.0) -> bool:
    return abs(found - asked) <= max(BPS_ROUNDING, within) * asked + 1


def _span(told: dict[str, Any]) -> int:
    return max(1, int(told["last_unix_ns"]) - int(told["first_unix_ns"]))


def _ascending(got: dict[str, Any]) -> bool:
    """Whether percentiles ascend, within their precision: they come from classes a few per cent wide."""
    names = ("min", "p50", "p90", "p99", "p999", "max")
    delays = [got[f"delay_{name}_ns"] for name in names]
    slack = max(abs(delay) for delay in delays) // 20
    steady = all(low <= high + slack for low, high in pairwise(delays))
    return steady and delays[0] <= got["delay_mean_ns"] <= delays[-1]


def _within(flow: Flow, sent: dict[str, Any], got: dict[str, Any], t0: int) -> bool:
    times = [told[f"{which}_unix_ns"] - t0 for told in (sent, got) for which in ("first", "last")]
    ordered = all(told["first_unix_ns"] <= told["last_unix_ns"] for told in (sent, got))
    latest = flow.end_ns + LATE_NS
    return (
        ordered
        and all(flow.start_ns - LATE_NS // 60 <= at <= latest for at in times)
        and all(
            told["unix_ns"] >= told["last_unix_ns"] - LATE_NS // 60 and told["unix_ns"] - t0 <= latest
            for told in (sent, got)
        )
    )


FOUND: dict[str, Found] = {"udp": Udp()}
