"""The report of a run: verdict, flows, facts, hosts, and the command to repeat it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl
from markupsafe import Markup

from dumbbell.report import check_rows, html
from dumbbell.report.check_rows import CheckRow
from dumbbell.report.pages.over_time import OverTime
from dumbbell.report.parts import part
from dumbbell.report.plots.of_run import LIMITS
from dumbbell.run.content import dig
from dumbbell.studies.limits import what_limited
from dumbbell.studies.source import Missing
from dumbbell.units import human

# The variables of docs/variables.md that are most informative about a sender.
VARIABLES = (
    *("CongestionSignals", "FastRetran", "Timeouts", "SubsequentTimeouts", "DupAcksIn", "SegsRetrans"),
    *("SendStall", "OtherReductions", "MaxCwnd", "MinRTT", "MaxRTT"),
)
# Checks that each have a row; of the others that are ok, only the worst has one.
ONE_BY_ONE = (
    *("congestion control", "rate", "rate, arriving", "idle RTT", "idle RTT, waits", "path", "start"),
    "rows stored",
)
CAUSES = {
    "cwnd_slow_start": "slow start",
    "cwnd_loss": "after losses",
    "cwnd_policer": "after drops of a policer",
    "cwnd_ecn": "after ECN marks",
    "cwnd_delay": "by delay or rate",
}
REASONS = 8  # most reasons that are listed
CARDS = 4  # most cards of flows
CONNECTIONS = 8  # most columns of the table of connections

fill = partial(html.part, "run.html")


class Card(NamedTuple):
    """One of the numbers at the top of the page."""

    label: str
    number: str
    unit: str
    note: str


class Report(OverTime):
    """All parts of the report of one run directory."""

    @part
    def header(self) -> Markup:
        """Title, origin, the verdict with its reasons, and the most important numbers."""
        began = dig(self.manifest, "t0_unix_ns", "measurement")
        checks, reasons = self.verdict.get("checks", []), self.verdict.get("reasons", [])
        return fill(
            "header",
            title=self.manifest.get("title") or (self.run.plan.title if self.run else self.dir.name),
            scenario=self.manifest.get("scenario", "-"),
            run=self.name,
            point=self.manifest.get("point", "-"),
            began=f"{datetime.fromtimestamp(began / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if began
            else "start not known",
            state=self.verdict.get("state", "unknown"),
            reasons=reasons[:REASONS],
            more_reasons=max(len(reasons) - REASONS, 0),
            ok=sum(1 for check in checks if check["ok"]),
            checked=len(checks),
            cards=[*self._cards_of_checks(), *self._cards_of_flows()],
            more_flows=self._measured_flows().height - CARDS,
            warnings=self.run.plan.told_warnings if self.run else [],
        )

    def _measured_flows(self) -> pl.DataFrame:
        """The measurement's rows of the table of flows; empty if there is none."""
        try:
            return self.table("flows").filter(pl.col("phase") == "measurement")
        except Missing:
            return pl.DataFrame()

    def _cards_of_checks(self) -> Iterable[Card]:
        labels = {"utilisation": ("Utilisation", "share"), "jain_index": ("Jain's index", "")}
        for check in self.verdict.get("checks", []):
            if check["name"] in labels:
                label, unit = labels[check["name"]]
                yield _card(label, human(check["measured"], unit), check_rows.note(check))

    def _cards_of_flows(self) -> Iterable[Card]:
        for flow in self._measured_flows().head(CARDS).iter_rows(named=True):
            what = flow["congestion_control_measured"] or flow["congestion_control"] or "UDP"
            span = f"{flow['start_ns'] / 1e9:g} to {(flow['start_ns'] + flow['duration_ns']) / 1e9:g} s"
            if flow.get("window_end_ns") is not None:  # the window of its goodput
                span = f"{flow['window_start_ns'] / 1e9:g} to {flow['window_end_ns'] / 1e9:.5g} s"
            label, value = f"Goodput {flow['name']}", human(flow["goodput_bps"], "bps")
            if flow["kind"] == "http":
                label, value = f"Median fetch {flow['name']}", human(flow["completion_p50_ns"], "ns")
            yield _card(label, value, f"{what}, {span}")

    @part
    def all_flows(self) -> Markup:
        """All flows in the plan's order: data delivered, retransmitted and lost."""
        flows = self.table("flows").filter(pl.col("phase") == "measurement")
        rows = []
        for flow in flows.iter_rows(named=True):
            end_ns = flow["start_ns"] + flow["duration_ns"]
            cells = (
                flow["name"],
                flow["kind"],
                flow["congestion_control_measured"] or flow["congestion_control"] or "-",
                f"{flow['src_host']} to {flow['dst_host']}",
                f"{flow['start_ns'] / 1e9:g} to {end_ns / 1e9:g} s",
                human(flow["start_error_ns"], "ns"),
                human(flow["goodput_bps"], "bps"),
                human(flow.get("retransmitted_segments")),
                human(flow.get("retransmits"), "share"),
                human(flow.get("lost_packets")),
                human(flow.get("loss"), "share"),
            )
            rows.append(cells)
        head = (
            *("flow", "kind", "congestion control", "data", "time", "start error", "goodput"),
            *("segments again", "share again", "datagrams lost", "share lost"),
        )
        return fill("all_flows", head=head, rows=rows)

    @part
    def limits(self) -> Markup:
        """What limited each flow: shares of its time, and a sentence with numbers."""
        found = what_limited(self)
        shown = [
            name for name in LIMITS if name != "cpu_limited" or any((f.shares or {}).get(name) for f in found)
        ]
        rows = []
        for of in found:
            shares = of.shares or {}
            causes = [
                f"{label} {human(share, 'share')}"
                for name, label in CAUSES.items()
                if (share := shares.get(name))
            ]
            cells = [human(shares.get(name), "share") for name in shown]
            rows.append([of.flow.name, *cells, causes or "-", of.sentence])
        head = ("flow", *(LIMITS[name] for name in shown), "of that", "what it means")
        return fill("limits", head=head, rows=rows)

    @part
    def facts(self) -> Markup:
        """Requested and measured values: important or failed ones one by one, of the others the worst."""
        checks = self.verdict.get("checks") or []
        if not checks:
            raise Missing("Without verdict.json nothing is known of what was asked and what was measured.")
        order = [*dict.fromkeys([*ONE_BY_ONE, *(c["name"] for c in checks)])]
        rows: list[CheckRow] = []
        for name in order:
            own = [c for c in checks if c["name"] == name]
            shown = own if name in ONE_BY_ONE else [c for c in own if not c["ok"]]
            rows += [check_rows.row(c) for c in shown]
            if (rest := [c for c in own if c["ok"] and c not in shown]) and name not in ONE_BY_ONE:
                rows.append(check_rows.row(check_rows.worst(rest)))
        rows += self._sampling()
        if dig(self.manifest, "rows", "influxdb") is None:
            spooled = human(dig(self.manifest, "rows", "spooled", "tcp_info"))
            rows.append(CheckRow("rows spooled", "tcp_info", "InfluxDB was not used", spooled))
        return fill("facts", rows=rows, all=[check_rows.row(c) for c in checks])

    def _sampling(self) -> Iterable[CheckRow]:
        facts = [f for f in self.manifest.get("facts", []) if f["name"] == "sampling interval"]
        measured = [f["measured"] for f in facts if f["measured"] is not None]
        if measured:
            worst = max(measured, key=lambda ns: abs(ns - facts[0]["requested"]))
            subject = f"{len(facts)} hosts, worst" if len(facts) > 1 else facts[0]["subject"]
            asked = human(facts[0]["requested"], "ns")
            yield CheckRow("sampling interval", subject, asked, human(worst, "ns"))

    @part
    def fetches(self) -> Markup:
        """Durations of fetches by flow, under a heading; empty without fetches."""
        flows = [flow for flow in self.table("flows").iter_rows(named=True) if flow["kind"] == "http"]
        if not flows:
            return Markup()
        times = ("completion_p50_ns", "completion_p95_ns", "completion_p99_ns")
        rows = [
            [
                flow["name"],
                f"{human(size)} bytes" if (size := flow.get("fetch_bytes")) else "drawn",
                "one for all" if flow.get("persistent") else "one for each",
                f"{flow['fetches_done']} of {flow.get('fetches') or flow['fetches_begun']}",
                *(human(flow[time], "ns") for time in times),
                human(flow["fetch_retransmits"]),
                human(flow["fetch_timeouts"]),
            ]
            for flow in flows
        ]
        head = ("flow", "size", "connections", "done", "median", "95 %", "99 %", "segments again", "timeouts")
        return fill("fetches", head=head, rows=rows)

    @part
    def variables(self) -> Markup:
        """RFC 4898 variables of the senders' connections, each with its grade."""
        graded = self.graded(VARIABLES)
        senders = list(graded)

        def cell(name: str, flow: str, stream: str) -> str:
            value, grade = graded[flow, stream].get(name, (None, ""))
            return ("≈ " if grade == "approximate" else "") + human(value)

        shown = senders[:CONNECTIONS]
        flows = [flow for flow, _ in senders]
        head = [f if flows.count(f) == 1 else f"{f}, stream {stream}" for f, stream in shown]
        rows = [[name, *(cell(name, *sender) for sender in shown)] for name in VARIABLES]
        return fill("variables", head=["variable", *head], rows=rows, left_out=len(senders) - len(shown))

    @part
    def hosts(self) -> Markup:
        """Hosts, with their kernels and tools."""
        hosts = self.manifest.get("hosts")
        if not hosts:
            raise Missing("Without manifest.json nothing is known of the hosts.")
        rows = []
        for host, state in hosts.items():
            versions = dig(state, "versions") or {}
            nics = [
                f"{dev}, mtu {dig(nic, 'mtu') or '?'}, txqueuelen {dig(nic, 'txqueuelen')}"
                for dev, nic in (dig(state, "nic") or {}).items()
            ]
            software = ", ".join(f"{name} {v}" for name, v in versions.items() if v) or "-"
            hardware = ", ".join(map(str, (dig(state, "hardware") or {}).values())) or "-"
            groups = ", ".join(g for g in state.get("groups", []) if g != "testbed")
            kernel, interfaces = state.get("kernel") or "not read", "; ".join(nics) or "not read"
            cells = (host, groups, hardware, kernel, interfaces, software)
            rows.append([str(cell) for cell in cells])
        head = ("host", "role", "hardware", "kernel", "interfaces", "software")
        controller = " ".join(str(told) for told in (dig(self.manifest, "versions") or {}).values() if told)
        fingerprint = self.manifest.get("inventory_fingerprint", "-")
        return fill("hosts", head=head, rows=rows, controller=controller, fingerprint=fingerprint)

    @part
    def states(self) -> Markup:
        """For each host, the number of settings as requested, and settings that changed in between."""
        names = ("owned", "observed", "boot")
        checks = [check for check in self.verdict.get("checks", []) if check["name"] in names]
        if not checks:
            raise Missing("This run kept no settings of its hosts: it is older than that.")
        rows = []
        for host in dict.fromkeys(check["subject"] for check in checks):
            own = [check for check in checks if check["subject"] == host]
            counts = [
                human(next((c["measured"] for c in own if c["ok"] and c["name"] == name), None))
                for name in ("owned", "observed")
            ]
            wrong = [check["reason"] for check in own if not check["ok"]]
            rows.append([host, *counts, wrong or "nothing"])
        head = ("host", "settings as asked", "settings observed, unchanged", "not as asked, or changed")
        return fill("states", head=head, rows=rows)

    @part
    def reproduce(self) -> Markup:
        """The command and the scenario that repeat the run."""
        kept = self.dir.parts[-3:] if self.dir.parent.name == "points" else self.dir.parts[-1:]
        command = f"playbooks/run.yml -e scenario={Path('results', *kept, 'scenario.yml')}"
        if self.run and self.run.plan.profile:
            command += f" -e profile={self.run.plan.profile}"
        try:
            scenario = (self.dir / "scenario.yml").read_text()
        except OSError:
            scenario = ""
        point = self.manifest.get("point", "-")
        return fill("reproduce", command=command, point=point, scenario=scenario)


def _card(label: str, value: str, note: str) -> Card:
    number, _, unit = value.partition(" ")
    return Card(label, number, unit, note)
