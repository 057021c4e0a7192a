"""The report of a run: verdict, flows, facts, hosts, and how to do it again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import polars as pl

from dumbbell.report import check_rows, html
from dumbbell.report.pages.over_time import OverTime
from dumbbell.report.parts import Missing, part
from dumbbell.run.content import dig
from dumbbell.units import human

# Of those in docs/variables.md, what tells most of a sender.
VARIABLES = (
    *("CongestionSignals", "FastRetran", "Timeouts", "SubsequentTimeouts", "DupAcksIn", "SegsRetrans"),
    *("SendStall", "OtherReductions", "MaxCwnd", "MinRTT", "MaxRTT"),
)
CARDS = 4  # most of flows
CONNECTIONS = 8  # most columns of their table


class Report(OverTime):
    """All parts of the report of one run directory."""

    @part
    def header(self) -> str:
        """Title, origin, the verdict with its reasons, and the numbers that people ask for first."""
        title = self.manifest.get("title") or (self.run.plan.title if self.run else self.dir.name)
        began = dig(self.manifest, "t0_unix_ns", "measurement")
        meta = [
            f"scenario <b>{escape(str(self.manifest.get('scenario', '-')))}</b>",
            f'run <span class="mono">{escape(self.name)}</span>',
            f'point <span class="mono">{escape(str(self.manifest.get("point", "-")))}</span>',
            f"{datetime.fromtimestamp(began / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if began
            else "start not known",
        ]
        state = self.verdict.get("state", "unknown")
        return (
            f"<h1>{escape(title)}</h1>"
            f'<p class="meta">{"".join(f"<span>{m}</span>" for m in meta)}</p>'
            f"{html.verdict_box(state, self._why(state))}"
            f'<div class="cards">{"".join(self._cards())}</div>{self._left_out()}'
        )

    def _why(self, state: str) -> str:
        checks = self.verdict.get("checks", [])
        reasons = self.verdict.get("reasons", [])
        said = {
            "passed": "Everything asked for was measured within tolerance, and every expectation is met.",
            "failed": "The run is valid, and an expectation is not met:",
            "invalid": "Not everything asked for was measured within tolerance, so this is no result:",
            "unknown": "This run directory has no readable verdict.json.",
        }.get(state, "")
        good = sum(1 for check in checks if check["ok"])
        listed = "".join(f"<li>{escape(reason)}</li>" for reason in reasons[:8])
        if len(reasons) > 8:  # noqa: PLR2004
            listed += f"<li>and {len(reasons) - 8} more, in the list of all checks</li>"
        count = f'<p class="note">{good} of {len(checks)} checks are ok.</p>' if checks else ""
        return f"<p>{said}</p>" + (f"<ul>{listed}</ul>" if listed else "") + count

    def _cards(self) -> Iterable[str]:
        def card(label: str, value: str, note: str) -> str:
            number, _, unit = value.partition(" ")
            return (
                f'<div class="card"><div class="label">{label}</div>'
                f'<div class="value">{number} <small>{unit}</small></div><div class="note">{note}</div></div>'
            )

        for check in self.verdict.get("checks", []):
            match check["name"]:
                case "utilisation":
                    yield card("Utilisation", human(check["measured"], "share"), check_rows.note(check))
                case "jain_index":
                    yield card("Jain's index", human(check["measured"]), check_rows.note(check))
        try:
            flows = self.table("flows").filter(pl.col("phase") == "measurement")
        except Missing:
            return
        for flow in flows.head(CARDS).iter_rows(named=True):
            what = flow["congestion_control_measured"] or flow["congestion_control"] or "UDP"
            span = f"{flow['start_ns'] / 1e9:g} to {(flow['start_ns'] + flow['duration_ns']) / 1e9:g} s"
            if flow.get("window_end_ns") is not None:  # over which its goodput is
                span = f"{flow['window_start_ns'] / 1e9:g} to {flow['window_end_ns'] / 1e9:.5g} s"
            name, value = f"Goodput {escape(flow['name'])}", human(flow["goodput_bps"], "bps")
            if flow["kind"] == "http":
                name, value = f"Median fetch {escape(flow['name'])}", human(flow["completion_p50_ns"], "ns")
            yield card(name, value, f"{what}, {span}")

    def _left_out(self) -> str:
        """How many flows have no card."""
        try:
            more = self.table("flows").filter(pl.col("phase") == "measurement").height - CARDS
        except Missing:
            return ""
        return f'<p class="note">{more} more flows are in the table of flows.</p>' if more > 0 else ""

    @part
    def all_flows(self) -> str:
        """All flows in the plan's order: how much they delivered, sent again and lost."""
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
            rows.append(html.row(escape(cell) for cell in cells))
        head = (
            *("flow", "kind", "congestion control", "data", "time", "start error", "goodput"),
            *("segments again", "share again", "datagrams lost", "share lost"),
        )
        return (
            f"{html.table(head, rows)}"
            '<p class="note">Segments sent again are <code>total_retrans</code> of the sender, of all with '
            "data; datagrams are lost if they did not arrive, of all that were sent. - is what is not "
            "known, or of the other protocol.</p>"
        )

    @part
    def facts(self) -> str:
        """Requested beside measured: what matters or failed one by one, the rest by its worst case."""
        checks = self.verdict.get("checks") or []
        if not checks:
            raise Missing("Without verdict.json nothing is known of what was asked and what was measured.")
        one_by_one = (
            "congestion control",
            "rate",
            "rate, arriving",
            "idle RTT",
            "idle RTT, waits",
            "path",
            "start",
            "rows stored",
        )
        order = [*dict.fromkeys([*one_by_one, *(c["name"] for c in checks)])]
        rows: list[str] = []
        for name in order:
            own = [c for c in checks if c["name"] == name]
            shown = own if name in one_by_one else [c for c in own if not c["ok"]]
            rows += [check_rows.row(c) for c in shown]
            if (rest := [c for c in own if c["ok"] and c not in shown]) and name not in one_by_one:
                rows.append(check_rows.row(check_rows.worst(rest)))
        rows += self._sampling()
        if dig(self.manifest, "rows", "influxdb") is None:
            spooled = human(dig(self.manifest, "rows", "spooled", "tcp_info"))
            rows.append(
                check_rows.cells("rows spooled", "tcp_info", "InfluxDB was not used", spooled, "", ok=None)
            )
        everything = "".join(check_rows.row(c) for c in checks)
        return (
            f"{check_rows.table(rows)}<details><summary>All {len(checks)} checks one by one</summary>"
            f"{check_rows.table([everything])}</details>"
        )

    def _sampling(self) -> Iterable[str]:
        facts = [f for f in self.manifest.get("facts", []) if f["name"] == "sampling interval"]
        measured = [f["measured"] for f in facts if f["measured"] is not None]
        if measured:
            worst = max(measured, key=lambda ns: abs(ns - facts[0]["requested"]))
            subject = f"{len(facts)} hosts, worst" if len(facts) > 1 else facts[0]["subject"]
            yield check_rows.cells(
                "sampling interval",
                subject,
                human(facts[0]["requested"], "ns"),
                human(worst, "ns"),
                "",
                ok=None,
            )

    @part
    def fetches(self) -> str:
        """Times of fetches by flow, under a heading of their own; nothing where there are none."""
        flows = [flow for flow in self.table("flows").iter_rows(named=True) if flow["kind"] == "http"]
        if not flows:
            return ""
        times = ("completion_p50_ns", "completion_p95_ns", "completion_p99_ns")
        rows = (
            html.row(
                [
                    escape(flow["name"]),
                    f"{human(flow['fetch_bytes'])} bytes",
                    "one for all" if flow["persistent"] else "one for each",
                    f"{flow['fetches_done']} of {flow.get('fetches') or flow['fetches_begun']}",
                    *(human(flow[time], "ns") for time in times),
                    human(flow["fetch_retransmits"]),
                    human(flow["fetch_timeouts"]),
                ]
            )
            for flow in flows
        )
        head = ("flow", "size", "connections", "done", "median", "95 %", "99 %", "segments again", "timeouts")
        return (
            f"<h2>Fetches</h2>{html.table(head, rows)}"
            '<p class="note">From the begin of a fetch, with connecting, to its last byte. Segments sent '
            "again and timeouts are those of the server's kernel, which counts timeouts since Linux 6.7.</p>"
        )

    @part
    def variables(self) -> str:
        """Variables of the senders' connections by the names of RFC 4898, each with its grade."""
        graded = self.graded(VARIABLES)
        senders = list(graded)

        def cell(name: str, flow: str, stream: str) -> str:
            value, grade = graded[flow, stream].get(name, (None, ""))
            return ("≈ " if grade == "approximate" else "") + human(value)

        shown = senders[:CONNECTIONS]
        flows = [flow for flow, _ in senders]
        head = [escape(f if flows.count(f) == 1 else f"{f}, stream {stream}") for f, stream in shown]
        body = [html.row([name, *(cell(name, *sender) for sender in shown)]) for name in VARIABLES]
        left_out = f" {len(senders) - len(shown)} more connections are in web100.parquet." * (
            senders != shown
        )
        return (
            f"{html.table(['variable', *head], body)}"
            '<p class="note">Of each sender, at the end of its connection. ≈ is approximate, - is what this '
            "run could not tell, the others are exact; docs/variables.md says how each is counted. "
            f"MaxCwnd is in bytes, RTTs are in microseconds.{left_out}</p>"
        )

    @part
    def hosts(self) -> str:
        """What ran where."""
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
            rows.append(html.row(escape(str(cell)) for cell in cells))
        head = ("host", "role", "hardware", "kernel", "interfaces", "software")
        controller = " ".join(str(told) for told in (dig(self.manifest, "versions") or {}).values() if told)
        fingerprint = self.manifest.get("inventory_fingerprint", "-")
        return (
            f"{html.table(head, rows)}"
            f'<p class="note">Controller: dumbbell {escape(controller)}. Fingerprint of the inventory: '
            f'<span class="mono">{escape(str(fingerprint))}</span>.</p>'
        )

    @part
    def states(self) -> str:
        """Of each host how many settings are as asked, and what changed while it measured."""
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
            wrong = "<br>".join(escape(check["reason"]) for check in own if not check["ok"])
            rows.append(html.row([escape(host), *map(escape, counts), wrong or "nothing"]))
        head = ("host", "settings as asked", "settings observed, unchanged", "not as asked, or changed")
        return (
            f"{html.table(head, rows)}"
            '<p class="note">Owned settings were read back before the point; those that nobody asked for '
            "were read when the agent was armed and once more at the end.</p>"
        )

    @part
    def reproduce(self) -> str:
        """The command, and the scenario as it was run."""
        kept = self.dir.parts[-3:] if self.dir.parent.name == "points" else self.dir.parts[-1:]
        command = f"playbooks/run.yml -e scenario={Path('results', *kept, 'scenario.yml')}"
        if self.run and self.run.plan.profile:
            command += f" -e profile={self.run.plan.profile}"
        try:
            scenario = (self.dir / "scenario.yml").read_text()
        except OSError:
            scenario = ""
        listing = f"<pre>{escape(scenario)}</pre>" if scenario else "<p>The scenario was not kept.</p>"
        point = escape(str(self.manifest.get("point", "-")))
        return (
            f"<pre>ansible-playbook -i INVENTORY {escape(command)}"
            "</pre><p>The same scenario, seed and inventory give the same <code>plan.json</code>, byte for "
            f'byte, and the same point <span class="mono">{point}</span>. This is the scenario as it was run:'
            f"</p>{listing}"
        )
