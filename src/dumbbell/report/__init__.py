"""The parts that pages about runs are made of; notebooks put them together.

Each method of :class:`Report` makes one part of a run's report. What a part needs and the run does not have
is said in a sentence.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
from IPython.display import HTML
from plotly.offline import get_plotlyjs

from dumbbell import analysis
from dumbbell.plan import Conditions, Flow, Point, in_words, windows
from dumbbell.report import figures, html
from dumbbell.run.content import COUNTED, IN_MEASUREMENT, Run, dig, goodput_counters, located
from dumbbell.run.directory import read_json
from dumbbell.units import human

Levels = Sequence[tuple[figures.Steps, str]]  # reference lines: values over time, text
BINS = 1500  # most intervals of a goodput line
# Of those in docs/variables.md, what tells most of a sender.
VARIABLES = (
    *("CongestionSignals", "FastRetran", "Timeouts", "SubsequentTimeouts", "DupAcksIn", "SegsRetrans"),
    *("SendStall", "OtherReductions", "MaxCwnd", "MinRTT", "MaxRTT"),
)
CARDS = 4  # most of flows
CONNECTIONS = 8  # most columns of their table

# File name under which the toolbar saves a figure: that of the run and of the part that shows it.
_saved_as: ContextVar[str] = ContextVar("_saved_as", default="figure")


class Missing(Exception):
    """A part of the report cannot be made; the message is the sentence that stands in its place."""


def part(make: Callable[..., str]) -> Callable[..., HTML]:
    """A method that makes a part of a page; the sentence of :class:`Missing` stands in its place."""

    @functools.wraps(make)
    def made(*arguments: Any) -> HTML:
        page, *others = arguments
        words = (getattr(page, "name", type(page).__name__.lower()), make.__name__, *map(str, others))
        _saved_as.set(re.sub(r"[^\w.-]+", "_", "_".join(words)))
        try:
            return HTML(make(*arguments))  # type: ignore[no-untyped-call]
        except Missing as missing:
            text = f'<p class="missing">{escape(str(missing))}</p>'
            return HTML(text)  # type: ignore[no-untyped-call]

    return made


def setup() -> HTML:
    """Style sheet, script and plotly.js: once a page."""
    text = f"{html.assets()}<script>{get_plotlyjs()}</script>"
    return HTML(text)  # type: ignore[no-untyped-call]


class Report:
    """Parts of the report of one run directory."""

    def __init__(self, run_dir: Path | str) -> None:
        self.dir = located(run_dir)
        self.manifest: dict[str, Any] = read_json(self.dir / "manifest.json") or {}
        self.verdict: dict[str, Any] = read_json(self.dir / "verdict.json") or {}
        try:
            self._run: Run | None = Run.open(self.dir)
        except (OSError, ValueError):
            self._run = None

    # what the parts need

    @property
    def name(self) -> str:
        """The run's id, or what its directory is called."""
        return str(self.manifest.get("run", self.dir.name))

    @property
    def _opened(self) -> Run:
        if self._run is None:
            raise Missing("This run directory has no readable plan.json to relate samples to.")
        return self._run

    @property
    def plan(self) -> Point:
        """What was planned for the point that was run, or Missing."""
        return self._opened.point

    def table(self, name: str, *columns: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """:meth:`rows`, of which there are some, or Missing."""
        table = self.rows(name, *columns, where=where)
        if table.is_empty():
            raise Missing(f"{name}.parquet holds no rows of the measurement whose time since t0 is known.")
        return table

    def rows(self, name: str, *columns: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """Rows of the measurement phase, which may be none; Missing if there is no such file.

        Of a long run a table may be larger than memory; what is not asked for is not read.
        """
        try:
            table = pl.scan_parquet(self.dir / f"{name}.parquet")
            there = table.collect_schema().names()
            if "t_ns" in there:
                table = table.filter(IN_MEASUREMENT)
            if where is not None:
                table = table.filter(where)
            return table.select([c for c in there if c in columns] if columns else pl.all()).collect()
        except (OSError, pl.exceptions.PolarsError):
            raise Missing(f"This run directory has no readable {name}.parquet.") from None

    @property
    def x_max_s(self) -> float:
        """Length of the time axis."""
        return self.plan.phase("measurement").duration_ns / 1e9

    # head

    @part
    def header(self) -> str:
        """Title, origin, the verdict with its reasons, and the numbers that people ask for first."""
        title = self.manifest.get("title") or (self._run.plan.title if self._run else self.dir.name)
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
                    yield card("Utilisation", human(check["measured"], "share"), _note(check))
                case "jain_index":
                    yield card("Jain's index", human(check["measured"]), _note(check))
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

    # asked and measured

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
            rows += [_row(c) for c in shown]
            if (rest := [c for c in own if c["ok"] and c not in shown]) and name not in one_by_one:
                rows.append(_row(_worst(rest)))
        rows += self._sampling()
        if dig(self.manifest, "rows", "influxdb") is None:
            spooled = human(dig(self.manifest, "rows", "spooled", "tcp_info"))
            rows.append(_cells("rows spooled", "tcp_info", "InfluxDB was not used", spooled, "", ok=None))
        everything = "".join(_row(c) for c in checks)
        return (
            f"{_table(rows)}<details><summary>All {len(checks)} checks one by one</summary>"
            f"{_table([everything])}</details>"
        )

    def _sampling(self) -> Iterable[str]:
        facts = [f for f in self.manifest.get("facts", []) if f["name"] == "sampling interval"]
        measured = [f["measured"] for f in facts if f["measured"] is not None]
        if measured:
            worst = max(measured, key=lambda ns: abs(ns - facts[0]["requested"]))
            subject = f"{len(facts)} hosts, worst" if len(facts) > 1 else facts[0]["subject"]
            yield _cells(
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

    # figures

    @part
    def goodput(self) -> str:
        """Goodput over time by flow."""
        phase, width = self.plan.phase("measurement"), self._bin_ns()
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, width))
        figure = figures.goodput(rates, phase.flows, self.plan.path, self.x_max_s)
        return show(
            figure,
            f"Payload delivered in each {human(width, 'ns')}: growth of <code>bytes_received</code> "
            "(TCP_INFO of the receiver's socket), interpolated at the edges of the intervals. Bytes of a "
            "fetch are spread evenly over its time, those of UDP of iperf3 over each interval of its server.",
        )

    @part
    def cwnd(self) -> str:
        """Congestion window over time by flow."""
        path = self.plan.path
        levels = (
            [(figures.over_time(path, partial(figures.bdp_packets, path.packet_bytes)), "1 BDP")]
            if path
            else []
        )
        return self._sender_figure(
            "snd_cwnd",
            scale=1,
            title="cwnd (segments)",
            unit="segments",
            levels=levels,
            caption="Congestion window: <code>snd_cwnd</code> (TCP_INFO of the sender's socket), in segments "
            "of <code>snd_mss</code> bytes.",
        )

    @part
    def srtt(self) -> str:
        """Smoothed round-trip time over time by flow."""
        path = self.plan.path
        levels: list[tuple[figures.Steps, str]] = []
        if path:
            empty = figures.over_time(path, lambda _, rtt_ns: rtt_ns / 1e6)
            flows = self.plan.phase("measurement").flows
            for own_us in sorted({0, *(flow.delay_us or 0 for flow in flows)}):
                more = f", with {human(1000 * own_us, 'ns')} of a flow's own" if own_us else ""
                levels.append(
                    ([(at, ms + own_us / 1000) for at, ms in empty], f"RTT of the empty path{more}")
                )
            if path.forward.queue.limit_packets:
                levels.append(
                    (figures.over_time(path, partial(_full_ms, path.packet_bytes)), "RTT with a full queue")
                )
        return self._sender_figure(
            "srtt_us",
            scale=1000,
            title="smoothed RTT (ms)",
            unit="ms",
            levels=levels,
            caption="Smoothed round-trip time: <code>srtt_us</code> (TCP_INFO of the sender's socket).",
        )

    def _sender_figure(
        self, column: str, *, scale: float, title: str, unit: str, levels: Levels, caption: str
    ) -> str:
        there = (pl.col("side") == "sender") & pl.col(column).is_not_null()
        samples = self.rows("tcp_info", "flow", "stream", "t_ns", column, where=there)
        if samples.is_empty():
            raise Missing(f"No sender's socket was sampled, so there is no {title} to show.")
        samples = samples.select("flow", "stream", "t_ns", pl.col(column) / scale).sort("t_ns")
        figure = figures.per_flow(
            samples,
            self.plan.phase("measurement").flows,
            self.x_max_s,
            column=column,
            title=title,
            unit=unit,
            levels=levels,
        )
        if samples.group_by("flow", "stream").len()["len"].max() > figures.MAX_POINTS:  # type: ignore[operator]
            caption += " Thinned to the lowest and highest sample of each stretch."
        return show(figure, caption)

    @property
    def _rapid_flows(self) -> list[Flow]:
        return [f for f in self.plan.phase("measurement").flows if f.congestion_control == "rapid"]

    @part
    def available(self) -> str:
        """AB_est and R_avg of flows of Rapid, under a heading of their own; nothing where there are none."""
        if not self._rapid_flows:
            return ""
        try:
            traced = self.rows("rapid")
        except Missing:
            traced = None
        found = analysis.available(self.rows("tcp_info", *analysis.AVAILABLE_FROM), traced)
        series = {}
        for flow in self._rapid_flows:
            own = found.filter(pl.col("flow") == flow.name)
            for (stream,), rows in own.group_by("stream", maintain_order=True):
                name = figures.label(flow) + f" stream {stream}" * (flow.streams > 1)
                for what, column in (("AB_est", "available_bps"), ("R_avg", "rate_bps")):
                    series[f"{name}: {what}"] = rows.select("t_ns", y=pl.col(column) / 1e6)
        if not series:
            raise Missing("No sender of Rapid told what it had found to be available.")
        path = self.plan.path
        rates_mbps = figures.over_time(path, lambda there, _: there.rate_bps / 1e6) if path else []
        levels = [(rates_mbps, "rate of the bottleneck, headers included")] if path else []
        sources = {
            "trace": "of each p-stream, by the trace (<code>rapid:pstream</code>)",
            "samples": "of the last estimate before each sample, as tcp_rapid tells TCP_INFO "
            "(<code>bbr_bw</code>, and <code>bbr_pacing_gain</code> times it)",
        }
        told = "; ".join(sources[source] for source in found["source"].unique().sort(descending=True))
        return "<h2>Available bandwidth by Rapid</h2>" + show(
            figures.lines(series, self.x_max_s, title="payload (Mbit/s)", unit="Mbit/s", levels=levels),
            f"AB_est is what a p-stream found to be available, R_avg the rate that came of it: {told}.",
        )

    @part
    def pstreams(self) -> str:
        """P-streams per second of flows of Rapid; nothing where there are none."""
        if not self._rapid_flows:
            return ""
        try:
            traced = self.table("rapid")
        except Missing:
            raise Missing("P-streams are counted where sampling.trace is asked for.") from None
        width = max(self._bin_ns(), 1_000_000_000)
        end_ns = self.plan.phase("measurement").duration_ns
        counted = analysis.pstreams(traced, analysis.steps(0, end_ns, width))
        series = {}
        for flow in self._rapid_flows:
            own = counted.filter(pl.col("t_ns").is_between(flow.start_ns, flow.end_ns), flow=flow.name)
            series[figures.label(flow)] = own.select("t_ns", y="pstreams_per_s")
            series[f"{figures.label(flow)}: with an estimate"] = own.select("t_ns", y="estimates_per_s")
        return show(
            figures.lines(series, self.x_max_s, title="p-streams per second", unit="per second"),
            f"P-streams that were acknowledged wholly in each {human(width, 'ns')}, and those of them that "
            "gave an estimate. While a sender recovers from loss it sends none, but with "
            "<code>loss_policy</code> 2.",
        )

    @part
    def queue(self) -> str:
        """Queue of the router's bottlenecks, and what they dropped."""
        path = self.plan.path
        rows = self.table("qdisc")
        if path is not None:
            rows = rows.filter(pl.col("kind").is_in([path.forward.queue.kind, path.reverse.queue.kind]))
        if rows.is_empty():
            raise Missing("No qdisc of the kind that the path asks for was sampled on a router.")
        limits = None
        if path and path.forward.queue.limit_packets:
            limits = figures.over_time(path, lambda there, _: there.queue.limit_packets or 0)
        return show(
            figures.queue(analysis.queue(rows), limits, self.x_max_s),
            "Above: <code>qlen_packets</code> of the bottleneck of each direction, by device and kind of "
            "qdisc. Below: growth of <code>drops</code> since the sample before. Both are from the "
            "qdisc's netlink statistics.",
        )

    @part
    def fairness(self) -> str:
        """Jain's index over time and overall, in each direction that flows share."""
        phase, width = self.plan.phase("measurement"), max(self._bin_ns(), 1_000_000_000)
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, width))
        overall = {c["subject"]: c["measured"] for c in self._checks("jain_index")}
        shown = []
        for flows in windows.ways(phase.flows).values():
            rows = analysis.fairness(rates, {flow.name: flow.life_ns for flow in flows})
            subject = windows.in_words(flows, phase.flows)
            if not rows.is_empty():
                shown.append(
                    show(
                        figures.fairness(rows, overall.get(subject), self.x_max_s),
                        f"Jain's index of the goodputs of {subject} in each {human(width, 'ns')}, over those "
                        "that run throughout: 1 is an equal share, 1/n is one flow alone. From the same "
                        "counters as the goodput.",
                    )
                )
        if not shown:
            raise Missing(
                "At no time do two sampled flows run at once, so there is no share to be fair about."
            )
        return "".join(shown)

    def _checks(self, name: str) -> Iterator[dict[str, Any]]:
        return (check for check in self.verdict.get("checks", []) if check["name"] == name)

    def graded(self, names: Iterable[str]) -> dict[tuple[str, str], dict[str, tuple[Any, str]]]:
        """Value and grade of variables of RFC 4898 that could be told, by flow and stream of each sender."""
        found: dict[tuple[str, str], dict[str, tuple[Any, str]]] = {}
        flows = self.plan.phase("measurement").flows
        place = pl.col("flow").replace_strict({flow.name: i for i, flow in enumerate(flows)}, default=None)
        stream = pl.col("stream").cast(pl.Int64, strict=False)
        rows = self.table("web100").filter(pl.col("side") == "sender").sort(place, "flow", stream)
        for row in rows.iter_rows(named=True):
            told = {name: (row[name], row["grade"]) for name in names if row.get(name) is not None}
            found.setdefault((row["flow"], row["stream"]), {}).update(told)
        return found

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

    def _bin_ns(self) -> int:
        phase = self.plan.phase("measurement")
        return max(phase.sampling_interval_ns, phase.duration_ns // BINS)

    @functools.cached_property
    def counters(self) -> pl.DataFrame:
        """Payload bytes delivered so far by each flow, as :func:`analysis.goodput` takes them, or Missing."""
        needed = {"tcp_info": analysis.COUNTED_FROM}
        tables = {name: self.rows(name, *needed.get(name, ())) for name in COUNTED}
        counted = goodput_counters(self._opened, tables)
        if counted.is_empty():
            raise Missing("No socket was sampled, so there is no goodput to show.")
        return counted

    # hosts and how to do it again

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
        if self._run and self._run.plan.profile:
            command += f" -e profile={self._run.plan.profile}"
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


def _full_ms(packet_bytes: int, there: Conditions, rtt_ns: float) -> float:
    """Round-trip time when the queue is full."""
    return (rtt_ns + there.fullest_ns(packet_bytes)) / 1e6


def show(figure: go.Figure, caption: str) -> str:
    """A figure with what it shows and from which counters."""
    body = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={
            "displaylogo": False,
            "responsive": True,
            "displayModeBar": "hover",
            # The last would upload the data to Plotly's servers.
            "modeBarButtonsToRemove": ["lasso2d", "select2d", "sendChartToCloud"],
            # As wide as it is shown; three dots for each of the screen's are enough for print.
            "toImageButtonOptions": {"format": "png", "filename": _saved_as.get(), "scale": 3},
        },
    )
    return f"<figure>{body}<figcaption>{caption}</figcaption></figure>"


def _table(rows: Iterable[str]) -> str:
    return html.table(("what", "where", "asked", "measured", "tolerance", ""), rows)


def _row(check: dict[str, Any]) -> str:
    unit = check.get("unit", "")
    tolerance = f"± {human(check['tolerance'], unit)}" if check.get("tolerance") is not None else ""
    asked, measured = check["requested"], human(check["measured"], unit)
    if check["kind"] == "expect" and isinstance(asked, dict):
        asked = _bounds(check)
    if check["name"] == "path":
        asked = in_words(asked) if isinstance(asked, dict) else asked
    if not check["ok"] and check["measured"] is None:
        measured = check["reason"]
    if check["requested"] == check["measured"] and isinstance(check["measured"], dict):
        measured = "the same"
    return _cells(
        check["name"],
        check["subject"],
        human(asked, unit),
        measured,
        tolerance,
        ok=check["ok"],
    )


def _note(check: dict[str, Any]) -> str:
    """``expected ≥ 90 %``, and of which flows if not of all."""
    of = "" if check["subject"] == "all flows" else f", {escape(check['subject'])}"
    return f"expected {_bounds(check)}{of}"


def _bounds(check: dict[str, Any]) -> str:
    """``≥ 90 %`` of an expectation."""
    signs, unit = {"min": "≥", "max": "≤"}, check.get("unit", "")
    return " and ".join(
        f"{signs[k]} {human(v, unit)}" for k, v in check["requested"].items() if v is not None
    )


def _cells(name: str, subject: str, asked: str, measured: str, tolerance: str, *, ok: bool | None) -> str:
    mark = {
        True: '<span class="yes">✓ ok</span>',
        False: '<span class="no">✗ not ok</span>',
        None: "",
    }
    names = (name, subject, asked, measured, tolerance)
    classes = ("", "subject", "", "", "subject")
    cells = "".join(f'<td class="{c}">{escape(text)}</td>' for c, text in zip(classes, names, strict=True))
    return f'<tr class="{"bad" if ok is False else ""}">{cells}<td class="mark">{mark[ok]}</td></tr>'


def _worst(checks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row for checks that are all ok: the one farthest from what was asked."""
    if len(checks) == 1:
        return checks[0]
    numbers = all(isinstance(c["measured"], int | float) and c["tolerance"] is not None for c in checks)
    worst = max(checks, key=lambda c: abs(c["measured"] - c["requested"])) if numbers else checks[0]
    same = all(c["requested"] == worst["requested"] for c in checks)
    subject = f"{len(checks)} of {len(checks)}" + (f", worst {worst['subject']}" if numbers else "")
    return (
        worst | {"subject": subject} | ({} if same else {"requested": "as planned", "measured": "as planned"})
    )
