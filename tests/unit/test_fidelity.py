"""What the fidelity of a path is judged by."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.fidelity import __main__ as command
from dumbbell.fidelity import judging
from dumbbell.fidelity.cells import Cell, cells
from dumbbell.fidelity.judging import Row

CELLS = {cell.name: cell for cell in cells()}
VIRTUAL = {cell.name: cell for cell in cells(virtual=True)}


def parts(cell: Cell, **changes: Any) -> dict[str, Any]:
    """What is written of a cell in which all is as asked: the queue drops 10 %, netem what is to be lost."""
    found = {
        "rate": 1.0,
        "rtt_ms": cell.rtt_us / 1000,
        "vanished": 0,
        "duplicates": 0,
        "reordered": 0,
        "queue": float(cell.queue_packets),
    } | changes
    passed = cell.packets
    sent = round(passed * 1.1)
    lost = found.get("lost", round(passed * cell.loss))
    frame = cell.payload_bytes + 42
    ns = round((passed - 1) * frame * 8 / (cell.rate_bps * found["rate"]) * 1e9)
    link = {"ifname": "vec1", "stats64": {s: {"dropped": 7, "errors": 0} for s in ("rx", "tx")}}
    received = {
        "received_packets": passed - lost - found["vanished"],
        "duplicate_packets": found["duplicates"],
        "reordered_packets": found["reordered"],
        "socket_drops": 0,
        "first_unix_ns": 10**18,
        "last_unix_ns": 10**18 + ns,
        "end_seen": True,
        "delay_min_ns": 500 * cell.rtt_us,
        "delay_max_ns": 500 * cell.rtt_us + round(found["queue"] * frame * 8e9 / cell.rate_bps),
    }

    def counters(queue: int, netem: int) -> list[Any]:
        qdiscs = []
        for ifb, egress in (("ifb_fwd", "vec2"), ("ifb_rev", "vec1")):
            qdiscs += [
                {"dev": ifb, "kind": "htb", "handle": "1:", "root": True, "drops": queue},
                {"dev": ifb, "kind": "pfifo", "handle": "10:", "parent": "1:1", "drops": queue},
                {"dev": egress, "kind": "netem", "handle": "1:", "root": True, "drops": netem},
            ]
        return [qdiscs, [link]]

    end = {
        "cell": asdict(cell),
        "ping": f"time={found['rtt_ms'] + 5} ms\n" + f"time={found['rtt_ms']} ms\n" * 20,
        "devices": {"left": {"device": "vec1"}, "right": {"device": "vec2"}},
        "before": counters(3, 5),
        "after": counters(3, 5),
        "sent": ["{}", json.dumps({"sent_packets": sent, "asked_packets": sent, "skipped_packets": 0})],
        "received": [json.dumps(received)],
    }
    return {"sender": end, "receiver": end, "router": end | {"after": counters(3 + sent - passed, 5 + lost)}}


def judged(cell: Cell, **changes: Any) -> tuple[Row, Row]:
    forward, reverse = judging.judge(cell, parts(cell, **changes))
    return forward, reverse


def test_the_matrix_is_whole() -> None:
    matrix = [cell for cell in CELLS.values() if cell.judged and cell.effect == "loss"]
    assert len(matrix) == len({(c.rate_bps, c.rtt_us, c.loss) for c in matrix}) == 4 * 3 * 4
    assert {cell.effect for cell in CELLS.values()} == {"loss", "duplicate", "reorder", "gemodel"}
    assert len(CELLS) == len(cells())


def test_in_virtual_time_it_is_whole_up_to_1_gbit_and_has_10_gbit_once() -> None:
    matrix = [cell for cell in VIRTUAL.values() if cell.effect == "loss"]
    rates = Counter(cell.rate_bps for cell in matrix)
    assert rates == {10**6: 12, 10**7: 12, 10**8: 12 + 2, 10**9: 12 + 2, 10**10: 1}
    assert {cell.frame_bytes for cell in matrix if cell.name.startswith("jumbo-")} == {9014}
    assert {cell.effect for cell in VIRTUAL.values()} == {"loss", "duplicate", "reorder", "gemodel"}


@pytest.mark.parametrize("cell", [*CELLS.values(), *VIRTUAL.values()], ids=lambda cell: cell.name)
def test_a_cell_has_packets_enough_and_fills_its_bottleneck(cell: Cell) -> None:
    assert cell.packets * (cell.loss or 1) >= 10
    assert 32 <= cell.payload_bytes <= 1472 or cell.name.startswith("jumbo-")
    if cell.effect != "reorder":
        offered = cell.offered_bps / cell.payload_bytes * (cell.payload_bytes + 42)
        assert offered == pytest.approx(1.15 * cell.rate_bps, rel=0.01)


@pytest.mark.parametrize(
    "cell",
    [c for c in (*CELLS.values(), *VIRTUAL.values()) if c.effect == "loss"],
    ids=lambda c: c.name,
)
def test_what_is_as_asked_is_within_tolerance(cell: Cell) -> None:
    for row in judged(cell):
        assert row.wrong == ()
        assert row.measured_bps == pytest.approx(cell.rate_bps, rel=1e-3)
        assert row.measured_share == pytest.approx(cell.loss, abs=min(1e-4, 1 / cell.packets))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("100mbit-10ms-0%", {"rate": 0.979}, "rate -2.1%"),
        ("100mbit-10ms-0%", {"rate": 1.021}, "rate +2.1%"),
        ("500mbit-10ms-0%", {"rate": 0.94}, "rate -6.0%"),
        ("100mbit-10ms-0%", {"rtt_ms": 10.61}, "RTT 10.61 ms"),
        ("100mbit-0ms-0%", {"rtt_ms": 0.51}, "RTT 0.51 ms"),
        ("100mbit-100ms-0%", {"rtt_ms": 98.4}, "RTT 98.40 ms"),
        ("100mbit-10ms-0%", {"lost": 1}, "loss of 1 packets, not 0 to 0"),
        ("100mbit-10ms-1%", {"lost": 250}, "loss of 250 packets"),
        ("100mbit-10ms-5%", {"lost": 700}, "loss of 700 packets"),
        ("100mbit-10ms-1%", {"vanished": 1}, "1 losses unattributed"),
        ("10mbit-10ms-duplicate", {"duplicates": 400}, "duplicate of 400 packets"),
        ("10mbit-60ms-reorder", {"reordered": 130}, "reorder of 130 packets"),
        ("10mbit-10ms-gemodel", {"lost": 700}, "gemodel of 700 packets"),
    ],
)
def test_what_is_not_is_named(name: str, changes: dict[str, Any], words: str) -> None:
    for row in judged(CELLS[name], **changes):
        assert any(words in wrong for wrong in row.wrong), row.wrong


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": 0.994}, "rate -0.6%"),
        ({"rtt_ms": 10.11}, "RTT 10.11 ms"),
        ({"rtt_ms": 9.89}, "RTT 9.89 ms"),
        ({"queue": 848.0}, "queue of 848.0 packets"),
        ({"queue": 810.0}, "queue of 810.0 packets"),
    ],
)
def test_in_virtual_time_less_is_allowed(changes: dict[str, Any], words: str) -> None:
    for row in judged(VIRTUAL["1gbit-10ms-0%"], **changes):
        assert row.wrong == (words,)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("500mbit-10ms-0%", {"rate": 0.96}),
        ("100mbit-10ms-0%", {"rtt_ms": 10.59}),
        ("10mbit-10ms-duplicate", {"duplicates": 1270}),
        ("10mbit-60ms-reorder", {"reordered": 180}),
        ("10mbit-10ms-gemodel", {"lost": 965}),
    ],
)
def test_what_is_close_enough_is_not(name: str, changes: dict[str, Any]) -> None:
    for row in judged(CELLS[name], **changes):
        assert row.wrong == ()


@pytest.mark.parametrize(
    ("times", "measured"),
    [
        ("0.3 30.3 30.2 60.6 60.2", 60.2),  # of which three were sent ahead, once or both ways
        ("0.3 30.3 44.9", math.nan),
        ("", math.nan),
    ],
)
def test_the_round_trip_beside_reordering_is_of_what_was_delayed(times: str, measured: float) -> None:
    cell = CELLS["10mbit-60ms-reorder"]
    ping = "".join(f"time={ms} ms\n" for ms in times.split())
    assert judging.rtt_ms(cell, ping) == pytest.approx(measured, nan_ok=True)


def test_no_reply_is_not_close_enough() -> None:
    silent = parts(CELLS["100mbit-10ms-0%"])
    silent["sender"] = silent["sender"] | {"ping": ""}
    for row in judging.judge(CELLS["100mbit-10ms-0%"], silent):
        assert row.wrong == ("no RTT",)


def test_a_path_that_nothing_passed_has_no_rate() -> None:
    cell = VIRTUAL["jumbo-100mbit-10ms-0%"]
    found = parts(cell)
    nothing = {**json.loads(found["receiver"]["received"][-1]), "first_unix_ns": 0, "last_unix_ns": 0}
    found["receiver"] = found["receiver"] | {"received": [json.dumps(nothing)]}
    forward, _ = judging.judge(cell, found)
    assert "rate -100.0%" in forward.wrong


@given(st.integers(1, 400), st.floats(0.01, 0.99))
def test_the_interval_is_binomial(n: int, p: float) -> None:
    low, high = judging.binomial_interval(n, p)
    weights = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    assert sum(weights[:low]) <= 0.005 + 1e-9 < sum(weights[: low + 1]) + 2e-9
    assert sum(weights[high + 1 :]) <= 0.005 + 1e-9 < sum(weights[high:]) + 2e-9


def test_the_interval_of_bursts_covers_99_of_100() -> None:
    cell = CELLS["10mbit-10ms-gemodel"]
    p, r = cell.netem["loss_gemodel"].values()
    low, high = judged(cell, lost=385)[0].interval
    random, inside, trials = np.random.default_rng(1), 0, 400
    for _ in range(trials):
        good, bad = random.geometric(p, 2000), random.geometric(r, 2000)
        ends = np.cumsum(np.stack([good, bad], axis=1).ravel())
        state = np.searchsorted(ends, np.arange(cell.packets), side="right") % 2
        inside += low <= state.sum() <= high
    assert inside / trials > 0.97


def write(folder: Path, cell: Cell, found: dict[str, Any]) -> None:
    for part, content in found.items():
        body = json.dumps(content | {"cell": asdict(cell)})
        (folder / f"{cell.name}-{cell.duration_s}s.{part}.json").write_text(body)


def test_an_unlikely_count_is_measured_again_and_then_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = CELLS["100mbit-10ms-1%"]
    write(tmp_path, cell, parts(cell, lost=250))
    assert command.main(["judge", str(tmp_path)]) == 1
    (second,) = command.again(tmp_path)
    assert (second.name, second.packets) == (cell.name, 4 * cell.packets)
    write(tmp_path, second, parts(second))
    assert command.again(tmp_path) == []
    assert command.main(["judge", str(tmp_path)]) == 0
    assert [row.judged for row in command.judge_all(tmp_path)] == [False, False, True, True]
    assert "looked at: loss of 250 packets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "again"), [({"rtt_ms": 10.7}, 1), ({"rate": 0.9}, 1), ({"vanished": 1}, 0)]
)
def test_all_but_losses_without_a_trace_get_a_second_look(
    tmp_path: Path, changes: dict[str, Any], again: int
) -> None:
    cell = CELLS["100mbit-10ms-1%"]
    write(tmp_path, cell, parts(cell, **changes))
    assert len(command.again(tmp_path)) == again


def test_rates_that_are_not_held_prove_nothing_but_slow_ones_must_be_held(tmp_path: Path) -> None:
    for name, rate in (("10mbit-0ms-0%", 1), ("100mbit-0ms-0%", 1), ("500mbit-0ms-0%", 0.6)):
        write(tmp_path, CELLS[name], parts(CELLS[name], rate=rate))
    assert judging.highest_held_bps(command.judge_all(tmp_path)) == 100_000_000
    assert command.main(["judge", str(tmp_path)]) == 0
    write(tmp_path, CELLS["100mbit-0ms-0%"], parts(CELLS["100mbit-0ms-0%"], rate=0.9))
    assert command.main(["judge", str(tmp_path)]) == 1


def test_nothing_measured_is_no_success(tmp_path: Path) -> None:
    assert command.main(["judge", str(tmp_path)]) == 1


def test_the_cells_are_listed_for_the_playbook(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cells", "--only", "^100mbit-10ms"]) == 0
    found = [Cell(**cell) for cell in json.loads(capsys.readouterr().out)]
    assert found == [cell for name, cell in CELLS.items() if name.startswith("100mbit-10ms")]
    assert replace(found[0]) == CELLS["100mbit-10ms-0%"]
