"""http: fetches between two agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from dumbbell import analysis
from dumbbell.facts import documents
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.facts.columns import Columns, names, rows_of
from dumbbell.kinds.found.base import Counted, Found, Tables, share
from dumbbell.kinds.found.shared import FOREIGN, began, congestion_control, foreign, tcp_columns
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import IN_MEASUREMENT, Run, dig
from dumbbell.run.record import read_json


class Http(Found):
    """The client reports each fetch, and the server the socket that served it."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "http_client": ("http-{}-receiver.json",),
        "http_server": ("http-{}-sender.json",),
    }
    documents: ClassVar[Mapping[str, type[documents.Document]]] = {
        "http-sender": documents.HttpSender,
        "http-receiver": documents.HttpReceiver,
    }

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, the congestion control, and the fetches."""
        yield from began(of, flow)
        if flow.congestion_control is not None:
            yield from congestion_control(flow, self.congestion_controls(of.run, of.tables, flow))
            yield from _fetches(of, flow)
        if flow.transfers:
            yield _begins(of, flow)

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
        """Contradictions between the counts of client and server."""
        client = read_json(run.raw(flow.client_host, phase.phase, f"http-{flow.name}-receiver.json"))
        server = read_json(run.raw(flow.server_host, phase.phase, f"http-{flow.name}-sender.json"))
        if documents.faults(documents.HttpReceiver, client, "") or documents.faults(
            documents.HttpSender, server, ""
        ):
            return  # the check of files reports this
        for fine, fault in (
            (client["asked"] == _asked(flow), "the client was not asked the plan's number of fetches"),
            (
                client["begun"] == sum(client[key] for key in ("done", "failed", "cut")),
                "done, failed and cut are not all",
            ),
            (
                not flow.transfers or client["begun"] == client["asked"],
                f"the client began {client['begun']} of {client['asked']} transfers",
            ),
            (not client["failed"], f"{client['failed']} fetches failed: {client.get('failure')}"),
            (server["served"] >= client["done"], "the server served fewer than were done"),
            (server["served"] <= client["begun"], "the server served more than were begun"),
            (
                server["connections"] <= client["connections"],
                "the server had more connections than the client made",
            ),
            (  # the flow's end may cut fetches before they send a request
                server["foreign"] <= client["cut"] + FOREIGN * server["served"],
                f"{server['foreign']} connections came that were not its client's, "
                "or asked for something else",
            ),
            (
                client["connections"] <= max(1, client["begun"]),
                "the client made more connections than fetches",
            ),
            (bool(client["connections"]) or not client["done"], "the client made no connection"),
            (bool(server["connections"]) or not client["done"], "the server had no connection"),
        ):
            if not fine:
                yield fault

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the fetches, and of the connections if they are sampled."""
        own = ("fetch", "sent_bytes") if side == "sender" else ("fetch", "received_bytes")
        times = () if side == "sender" else names("connect_ns first_byte_ns completion_ns")
        yield rows_of(
            "http_fetch",
            own,
            sometimes=(*times, "congestion_control", "cookie"),
            match={"flow": flow.name, "side": side},
            series=("flow", "side"),
            steady=False,
        )
        if flow.name in part.sample.tcp:
            yield from tcp_columns(flow, side, to_last_row=False)

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """Connections from others than the flow's client."""
        return foreign(run.raw(flow.server_host, phase.phase, f"http-{flow.name}-sender.json"))

    def ended(self, run: Run, flow: Flow) -> bool:
        """Whether the client left a result."""
        return read_json(run.raw(flow.dst_host, "measurement", f"http-{flow.name}-receiver.json")) is not None

    def congestion_controls(self, run: Run, tables: Tables, flow: Flow) -> set[str]:
        """The congestion controls at the end of each fetch."""
        event = run.event("flow_congestion_control", flow=flow.name, host=flow.src_host)
        told = {str(event["name"])} if event and event.get("name") else set()
        rows = tables["http_fetch"].filter(pl.col("flow") == flow.name, pl.col("side") == "sender")
        return told | (set(rows["congestion_control"].drop_nulls().unique()) - {""})

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Retransmissions of the completed fetches."""
        done = _fetched(tables, flow).filter("done")
        return share(*done.select(pl.col("retransmits", "segments").sum()).row(0))

    def summary(self, tables: Tables, flow: Flow) -> dict[str, Any]:
        """The number of completed fetches, and their durations."""
        return analysis.fetch_summary(_fetched(tables, flow))


def _asked(flow: Flow) -> int:
    """The number of fetches that is asked for; 0: as many as there is time for."""
    return flow.fetches or len(flow.transfers or [])


def _fetched(tables: Tables, flow: Flow) -> pl.DataFrame:
    """The flow's fetches in the measurement."""
    return analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT)).filter(pl.col("flow") == flow.name)


def _fetches(of: Asked, flow: Flow) -> Iterator[Check]:
    """All requested fetches were completed, and the server's kernel reported the socket of each.

    If the scenario gives no number, or they are drawn, every fetch that the flow's end did not cut must be
    complete, and there must be at least one.
    """
    fetched = _fetched(of.tables, flow)
    result = read_json(of.run.raw(flow.client_host, "measurement", f"http-{flow.name}-receiver.json"))
    begun, cut = dig(result, "begun"), dig(result, "cut")
    asked, reason = flow.fetches, ""
    if begun is None or cut is None:
        reason = "the client left no result: it is not known which fetches have begun"
    elif asked is None:
        asked = max(1, begun - cut)
    size = pl.lit(flow.fetch_bytes)
    if flow.transfers:
        sizes = {number: transfer.bytes for number, transfer in enumerate(flow.transfers, start=1)}
        size = pl.col("fetch").replace_strict(sizes, default=None)
    done = fetched.filter(pl.col("done") & (pl.col("received_bytes") == size))
    if not reason and done.height != asked:
        reason = f"{done.height} of {asked} fetches were done"
        if (failures := fetched["error"].drop_nulls()).len():
            reason += f", {failures.len()} failed, the first: {failures[0]}"
    yield fact("fetches", flow.name, asked, done.height, ok=not reason, reason=reason)
    if done.is_empty():
        return
    served, connections = done["segments"].count(), done["connect_ns"].count()
    yield same("fetches served", flow.name, done.height, served, what="fetches of which the server told")
    wanted = 1 if flow.persistent else done.height
    yield same("connections", flow.name, wanted, connections, what="connections")


def _begins(of: Asked, flow: Flow) -> Check:
    """Each transfer began at its time, whether or not those before it were done."""
    assert flow.transfers is not None
    planned = pl.DataFrame(
        [(i, flow.start_ns + transfer.at_ns) for i, transfer in enumerate(flow.transfers, start=1)],
        {"fetch": pl.Int64, "planned_ns": pl.Int64},
        orient="row",
    )
    begun = planned.join(_fetched(of.tables, flow).select("fetch", "t_ns"), on="fetch", how="left")
    errors = (begun["t_ns"] - begun["planned_ns"]).abs()
    worst: Any = errors.max()
    return close(
        "begins of transfers",
        flow.name,
        0,
        None if errors.null_count() else worst,
        tolerance=of.point.validity.start_error_ns,
        unit="ns",
        what="the largest error of a begin",
        missing="there are transfers without a row",
    )


FOUND: dict[str, Found] = {"http": Http()}
