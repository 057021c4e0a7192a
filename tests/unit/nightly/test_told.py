"""How somebody is told: by a program, annotations, JUnit and a page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from dumbbell.nightly import page, tell
from nightly.nights import Nights, night

TOLD: dict[str, Any] = {
    "night": night(9),
    "suite": "nightly",
    "status": 1,
    "runs": [
        {"scenario": f"scenarios/{name}.yml", "profile": profile, "state": state, "reasons": reasons}
        | {"directory": "1" if state == "passed" else None}
        for name, profile, state, reasons in (
            ("a", "short", "passed", []),
            ("b", None, "aborted", ["it is off"]),
            ("c", None, "not run", ["no time"]),
        )
    ],
    "findings": [
        {
            **{"fingerprint": "f", "point": "abc", "metric": "goodput", "subject": "tcp"},
            **{"scenario": "on_off_udp", "label": "load=10 mbit, queue=a", "unit": "bps", "state": "new"},
            **{"worse": True, "alarm": True, "since": night(9)},
            **{"before": 1e8, "after": 9e7, "effect": -0.1, "reason": ""},
            **{"low": -1.2e7, "high": -8e6, "evidence": "an A/B in the same night, 8 pairs"},
            **{"tested": "sender1 kernel 6.12 to 7.2", "instrument": ""},
        }
    ],
}


def test_a_program_is_given_the_night(tmp_path: Path) -> None:
    got: list[bytes] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        post = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--data-binary", "@-", url]
        assert tell.notify(post, json.dumps(TOLD)) == ""
        server.shutdown()
    assert [json.loads(body) for body in got] == [TOLD]
    assert tell.notify(["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", url], "x").startswith(
        "nobody was told: curl says: curl: (7)"
    )
    assert "nobody was told" in tell.notify([str(tmp_path / "missing")], "x")


def test_annotations_are_line_protocol() -> None:
    (line,) = tell.rows(TOLD)
    tags = "suite=nightly,scenario=on_off_udp,point=abc,metric=goodput,subject=tcp,state=new"
    what = "goodput of tcp, load=10 mbit, queue=a of on_off_udp: 100 Mbit/s to 90 Mbit/s, -10.0%"
    assert line == (
        f'annotation,{tags} title="goodput new",text="new: {what} (95 % CI -12.0%..-8.0%) since'
        ' 20260109T020000Z with sender1 kernel 6.12 to 7.2; confirmed by an A/B in the same night, 8 pairs"'
        " 1767924000000000000\n"
    )


def test_the_only_point_of_a_scenario_has_no_name() -> None:
    assert "goodput of tcp, on_off_udp: 100" in page.sentence({**TOLD["findings"][0], "label": "-"})


def test_values_of_nights_are_line_protocol(nights: Nights) -> None:
    for _ in range(page.NIGHTS + 1):
        nights.passes()
    (series,) = nights.history.series()
    lines = [*tell.values([series])]
    assert len(lines) == page.NIGHTS  # the last ones
    tags = (
        f"point=abc,label=load\\=10mbit,metric=goodput,subject=tcp,unit=bps,testbed={series.key.fingerprint}"
    )
    assert lines[-1] == (
        f"night,scenario=on_off_udp,{tags},definition=1 value={series.medians[-1]!r},repetitions=3i,"
        f'directory="{series.runs[-1]}" 1769824800000000000\n'
    )


def test_what_was_zero_has_no_relative_change() -> None:
    was_zero = {"metric": "retransmits", "unit": "share", "before": 0.0, "effect": None}
    said = page.sentence({**TOLD["findings"][0], **was_zero})
    assert "retransmits of tcp" in said
    assert "%, " not in said


def test_junit_has_a_case_for_each_run_and_finding() -> None:
    suite = ET.fromstring(page.junit(TOLD))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [case.get("name") for case in suite] == [
        "scenarios/a.yml short",
        "scenarios/b.yml",
        "scenarios/c.yml",
        "load=10 mbit, queue=a goodput tcp",
    ]


def test_the_page_shows_a_boundary_between_testbeds(nights: Nights, tmp_path: Path) -> None:
    for testbed in ({"sender1 machine": "a"}, {"sender1 machine": "b"}):
        for _ in range(3):
            nights.passes(testbed)
    text = page.render(tmp_path, nights.history).read_text()
    assert text.count("<svg") == 1
    assert "Another testbed since 2026-01-04: sender1 machine a to b" in text


def test_the_page_shows_kernels_open_alarms_and_what_was_not_run(nights: Nights, tmp_path: Path) -> None:
    for kernel, level in (("6.12", 100.0), ("7.2", 90.0)):
        nights.level = level
        for _ in range(8):
            nights.passes({"sender1 kernel": kernel})
    (home := tmp_path / "nights" / night(16)).mkdir(parents=True)
    (home / "night.json").write_text(json.dumps(TOLD))
    text = page.render(tmp_path, nights.history).read_text()
    assert text.count('class="tested"') == 0  # the change of the kernel is a confirmed change of the metric
    assert "Since 2026-01-09 sender1 kernel 6.12 to 7.2." in text
    assert "<h2>Open alarms</h2>" in text
    assert "2026-01-09, sender1 kernel 6.12 to 7.2" in text
    assert "an A/B in the same night, 8 pairs" in text
    assert "<li>scenarios/c.yml: no time</li>" in text


def test_the_page_marks_a_kernel_that_changed_nothing(nights: Nights, tmp_path: Path) -> None:
    for kernel in ("6.12", "7.2"):
        for _ in range(3):
            nights.passes({"sender1 kernel": kernel})
    text = page.render(tmp_path, nights.history).read_text()
    assert text.count('<path class="tested"') == 1
    assert "<h2>Open alarms</h2>" not in text


def test_the_feed_has_what_began_or_ended() -> None:
    quiet = {**TOLD, "night": night(10), "findings": [{**TOLD["findings"][0], "state": "open"}]}
    later = ("low", "high", "evidence", "tested", "instrument")
    older = {name: value for name, value in TOLD["findings"][0].items() if name not in later}
    former = {**TOLD, "night": night(8), "findings": [{**older, "state": "not confirmed"}]}
    assert "of on_off_udp: 100 Mbit/s to 90 Mbit/s, -10.0% since" in page.sentence(older)
    feed = ET.fromstring(page.atom([former, TOLD, quiet]))
    names = {"a": "http://www.w3.org/2005/Atom"}
    assert feed.findtext("a:updated", namespaces=names) == "2026-01-10T02:00:00+00:00"
    (entry,) = feed.findall("a:entry", names)
    assert entry.findtext("a:title", namespaces=names) == "new: goodput of on_off_udp"
    assert entry.findtext("a:updated", namespaces=names) == "2026-01-09T02:00:00+00:00"
    assert entry.findtext("a:summary", namespaces=names) == page.sentence(TOLD["findings"][0])
    ids = [of.text for of in feed.iter("{http://www.w3.org/2005/Atom}id")]
    assert len(set(ids)) == len(ids)
