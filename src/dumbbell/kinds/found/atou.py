"""atou: bulk transfers over UDP. The sender reports for itself what tcp_info reports of TCP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts.asked import Asked, lost_share
from dumbbell.facts.check import Check, close, same
from dumbbell.facts.columns import Columns, names, rows_of
from dumbbell.ingest.atou import parse_trace
from dumbbell.kinds.found.base import Counted, Found, Lost, Tables
from dumbbell.kinds.found.shared import (
    FOREIGN,
    began,
    foreign,
    of_measurement,
    path_met,
    retransmits,
    sampled,
)
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import IN_MEASUREMENT, Run, dig
from dumbbell.run.record import read_json, read_jsonl

_COUNTERS = names("""
    busy_time_us segs_in data_segs_out bytes_sent bytes_acked bytes_retrans delivered total_retrans total_rto
    dup_acks_in signals_fast_retransmit bad_acks_in enobufs rtt_samples""")
_SAMPLED = names("ca_state snd_cwnd snd_mss snd_wnd unacked backoff rto_us")
_RTTS = names("srtt_us rttvar_us min_rtt_us rtt_max_us rtt_last_us rtt_sum_us")


class Atou(Found):
    """Both ends write their configuration, a report, and the records that the scenario asks for."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "atou_send": tuple(
            f"atou-{{}}-{name}" for name in ("sender.conf", "sender.json", "events.txt", "summary.txt")
        ),
        "atou_serve": ("atou-{}-receiver.conf", "atou-{}-receiver.json"),
    }

    def files_of(self, flow: Flow, action: str) -> Iterator[str]:
        """The files of an end, with its trace if one is recorded."""
        yield from super().files_of(flow, action)
        if action == "atou_send" and flow.trace:
            yield f"atou-{flow.name}-trace.txt"

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, the path, and the reports of both ends."""
        tcp_info = of_measurement(of.tables["tcp_info"])
        yield from began(of, flow)
        yield from path_met(of, flow, tcp_info)
        yield from _ends(of, flow, tcp_info)

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the sender's samples."""
        if flow.name in part.sample.tcp:
            yield rows_of(
                "tcp_info",
                (*_SAMPLED, *_COUNTERS, "congestion_control"),
                sometimes=(*_RTTS, "final"),
                counters=_COUNTERS,
                match={"flow": flow.name, "side": side},
                series=("flow", "side", "stream"),
                steady=False,
            )

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """Lost segments, from the counts of both ends."""
        told = read_json(run.raw(flow.src_host, "measurement", f"atou-{flow.name}-sender.json"))
        ends = read_jsonl(run.raw(flow.dst_host, "measurement", f"atou-{flow.name}-receiver.json"))
        out, came = dig(told, "pkts_out"), dig(ends[-1], "arrived_segments") if ends else None
        refused = dig(told, "enobufs")
        if not all(isinstance(count, int) for count in (out, came, refused)):
            return "its ends have not told it"
        rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name, side="sender")
        before: Any = (
            rows.filter(pl.col("t_ns") <= last_ns)["data_segs_out"].max()
            if "data_segs_out" in rows.columns
            else 0
        )
        drops = dig(ends[-1], "socket_drops") or 0
        return Lost(max(0, out - came - refused - drops), 0, max(0, out - (before or 0)), out)

    def tables(self, run: Run, phase: Phase, flow: Flow) -> dict[str, pl.DataFrame]:
        """``atou_trace``, if the scenario asks for it; times are since the t0 of the phase."""
        if not flow.trace:
            return {}
        rows = parse_trace(run.raw(flow.src_host, phase.phase, f"atou-{flow.name}-trace.txt").read_text())
        of = {"run": run.id, "phase": phase.phase, "flow": flow.name}
        at = pl.col("t_ns") + flow.start_ns
        columns = (*(pl.lit(text).alias(name) for name, text in of.items()), at, pl.exclude("t_ns"))
        return {"atou_trace": rows.select(*columns)}

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """Datagrams that belonged to no flow or to another one."""
        return foreign(run.raw(flow.server_host, phase.phase, f"atou-{flow.name}-receiver.json"))

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Retransmissions, as the sender counted them."""
        return retransmits(tables["tcp_info"].filter(IN_MEASUREMENT).filter(flow=flow.name, side="sender"))


def _ends(of: Asked, flow: Flow, tcp_info: pl.DataFrame) -> Iterator[Check]:
    """Both ends had the requested configuration and ended as planned, and their records are complete."""
    told = read_json(of.run.raw(flow.src_host, "measurement", f"atou-{flow.name}-sender.json"))
    received = read_jsonl(of.run.raw(flow.dst_host, "measurement", f"atou-{flow.name}-receiver.json"))
    for side, asked, text in (
        ("sender", flow.sender, dig(told, "config")),
        ("receiver", flow.receiver, dig(told, "receiver_config")),
    ):
        lines = dict(line.split(" ", 1) for line in text.splitlines()) if text else {}
        found = {key: _like_word(lines.get(key), value) for key, value in (asked or {}).items()}
        yield same(
            "configuration",
            f"{flow.name} {side}",
            asked or {},
            found if lines else None,
            what=f"configuration of its {side}",
            missing=dig(told, "error") or "the sender left no report with it",
        )
    segments = int((flow.sender or {}).get("maxpkts", "0"))
    if not segments or (dig(told, "snd_una") or 0) < segments:  # the transfer ends at the earlier limit
        yield close(
            "transfer",
            flow.name,
            flow.duration_ns,
            dig(told, "elapsed_ns"),
            tolerance=of.point.validity.start_error_ns,
            unit="ns",
            what="duration of the transfer",
            missing="the sender left no report",
        )
    yield close(
        "lines lost",
        flow.name,
        0,
        dig(told, "lost_lines"),
        tolerance=0,
        unit="",
        what="number of lines of trace, events and samples that were not written",
        missing="the sender left no report",
    )
    end = received[-1] if len(received) == 1 else None
    missing = {
        "sender": "the sender left no report",
        "receiver": f"the receiver told of {len(received)} flows",
    }
    unsent, acks = dig(end, "unsent_acks"), dig(end, "acks_sent")  # acks_sent includes the unsent ones
    drops = of.point.validity.unexpected_drops
    for name, side, share, most, what in (
        (
            "socket drops",
            "sender",  # the window grows with each ACK
            lost_share(dig(told, "path", "socket_drops"), dig(told, "pkts_in")),
            drops,
            "ACKs that found the sender's socket full",
        ),
        (
            "socket drops",
            "receiver",
            lost_share(dig(end, "socket_drops"), dig(end, "arrived_segments")),
            drops,
            "segments that found the receiver's socket full",
        ),
        (
            "foreign",
            "receiver",
            lost_share(dig(end, "foreign"), dig(end, "arrived_segments")),
            FOREIGN,
            "datagrams that were of no flow, or of another one",
        ),
        (
            "unsent ACKs",
            "receiver",
            None if unsent is None or acks is None else unsent / max(acks, 1),
            drops,
            "ACKs that the receiver's host refused",
        ),
    ):
        yield close(
            name,
            f"{flow.name} {side}",
            0,
            share,
            tolerance=most,
            unit="share",
            what=f"share of {what}",
            missing=missing[side],
        )
    end_ns = flow.start_ns + (dig(told, "elapsed_ns") or flow.duration_ns)
    yield from sampled(of, flow, "sender", tcp_info.filter(flow=flow.name, side="sender"), end_ns)


def _like_word(found: str | None, asked: str) -> str | None:
    """The found value as the plan writes it, if they are equal: atou may use another form or order."""
    if found is None or found == asked:
        return found
    try:
        same = sorted(map(float, found.split(","))) == sorted(map(float, asked.split(",")))
    except ValueError:
        return found
    return asked if same else found


FOUND: dict[str, Found] = {"atou": Atou()}
