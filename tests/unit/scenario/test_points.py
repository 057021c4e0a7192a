from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from dumbbell.plan import Point
from scenario.texts import BASE, planned, problems


def points(tmp_path: Path, *changes: tuple[str, str], **more: Any) -> list[Point]:
    text = BASE.format(more.get("head", ""))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return planned(tmp_path, text).points


def levels(found: list[Point]) -> list[dict[str, str]]:
    return [dict(point.levels) for point in found]


LISTED = "order: listed"


def test_a_list_where_one_value_belongs_is_a_sweep(tmp_path: Path) -> None:
    found = points(tmp_path, ("5ms", "[5ms, 20ms]"), ("rate: 2mbit", "rate: [1mbit, 3mbit]"), head=LISTED)
    assert levels(found) == [
        {"delay": "5ms", "rate": "1mbit"},
        {"delay": "5ms", "rate": "3mbit"},
        {"delay": "20ms", "rate": "1mbit"},
        {"delay": "20ms", "rate": "3mbit"},
    ]
    rtts = [point.path.rtt_ns // 10**6 for point in found if point.path]
    rates = [point.phase("measurement").flows[1].rate_bps for point in found]
    assert rtts == [10, 10, 40, 40]
    assert rates == [1_000_000, 3_000_000] * 2
    assert len({point.id for point in found}) == 4


def test_a_value_of_the_matrix_stands_in_several_places(tmp_path: Path) -> None:
    head = (
        f"{LISTED}\nmatrix:\n  load: [1mbit, 4mbit]\n"
        "  queue: {short: {kind: pfifo, limit: 10packets}, long: {kind: bfifo, limit: 50kB}}\n"
        "  base: 20mbit\n"
    )
    found = points(
        tmp_path,
        ("queue: {kind: pfifo, limit: 1bdp}", "queue: $queue"),
        ("rate: 10mbit", "rate: $base"),
        ("rate: 2mbit", "rate: 0.5 * $load\n    datagram: 100B"),
        ("    kind: iperf3_tcp\n", "    kind: iperf3_tcp\n    pacing: 2*$load\n"),
        head=head,
    )
    assert levels(found) == [
        {"load": load, "queue": queue} for load in ("1mbit", "4mbit") for queue in ("short", "long")
    ]
    queues = [p.path.forward.queue.model_dump() for p in found if p.path]
    assert queues == [{"kind": "pfifo", "limit_packets": 10}, {"kind": "bfifo", "limit_bytes": 50_000}] * 2
    assert {p.path.forward.rate_bps for p in found if p.path} == {20_000_000}
    flows = [p.phase("measurement").flows for p in found]
    assert [(tcp.pacing_bps, udp.rate_bps) for tcp, udp in flows] == [
        (2_000_000, 500_000), (2_000_000, 500_000), (8_000_000, 2_000_000), (8_000_000, 2_000_000),
    ]  # fmt: skip


def test_exclude_and_include(tmp_path: Path) -> None:
    head = (
        f"{LISTED}\nmatrix:\n  load: [1mbit, 2mbit]\n  cc: [cubic, reno]\n"
        "  exclude: [{load: 2mbit, cc: reno}]\n  include: [{load: 5mbit, cc: cubic}]\n"
    )
    found = points(
        tmp_path,
        ("rate: 2mbit", "rate: $load"),
        ("    kind: iperf3_tcp\n", "    kind: iperf3_tcp\n    congestion_control: $cc\n"),
        head=head,
    )
    assert levels(found) == [
        {"load": "1mbit", "cc": "cubic"},
        {"load": "1mbit", "cc": "reno"},
        {"load": "2mbit", "cc": "cubic"},
        {"load": "5mbit", "cc": "cubic"},
    ]
    assert found[-1].phase("measurement").flows[1].rate_bps == 5_000_000


def test_what_is_excluded_does_not_count(tmp_path: Path) -> None:
    """Of 12 000 combinations 6 are left."""
    rates = ", ".join(f"{i}kbit" for i in range(1, 2001))
    excluded = ", ".join(f"{{a: {i}kbit}}" for i in range(2, 2001))
    head = f"matrix: {{a: [{rates}], b: [1s, 2s, 3s, 4s, 5s, 6s], exclude: [{excluded}]}}"
    assert len(points(tmp_path, ("rate: 2mbit", "rate: $a\n    start: $b"), head=head)) == 6


def test_what_is_excluded_does_not_count_for_the_limit_of_combinations(tmp_path: Path) -> None:
    """Of 1000 times 1000 times 6 combinations 12 are left."""
    rates, starts = (", ".join(f"{i}{unit}" for i in range(1, 1001)) for unit in ("kbit", "ms"))
    excluded = [f"{{a: {i}kbit}}" for i in range(2, 1001)] + [f"{{b: {i}ms}}" for i in range(3, 1001)]
    matrix = f"a: [{rates}], b: [{starts}], c: [1s, 2s, 3s, 4s, 5s, 6s]"
    head = f"matrix: {{{matrix}, exclude: [{', '.join(excluded)}]}}"
    tcp = ("from: senders[0]", "from: senders[0]\n    start: $c")
    udp = ("rate: 2mbit", "rate: $a\n    start: $b")
    assert len(points(tmp_path, tcp, udp, head=head)) == 12


def test_a_baseline_is_run_once_for_all_cases_that_it_does_not_depend_on(tmp_path: Path) -> None:
    cc = ("    kind: iperf3_tcp\n", "    kind: iperf3_tcp\n    congestion_control: [cubic, reno]\n")
    rate = ("rate: 2mbit", "rate: [1mbit, 3mbit]")
    found = points(tmp_path, cc, rate, head=f"{LISTED}\nbaselines: {{alone: [udp]}}")
    assert len([p for p in found if p.baseline is None]) == 4
    alone = [p for p in found if p.baseline == "alone"]
    assert levels(alone) == [{"rate": "1mbit"}, {"rate": "3mbit"}]
    for point in alone:
        phases = {phase.phase: [f.name for f in phase.flows] for phase in point.phases}
        assert phases == {"calibration": ["calibration_rate"], "measurement": ["udp"]}
    assert alone[0].label == "alone rate=1mbit"


def test_repetitions_are_blocks_each_in_an_order_of_its_own(tmp_path: Path) -> None:
    sweep = ("rate: 2mbit", "rate: [1mbit, 2mbit, 3mbit, 4mbit, 5mbit]")
    found = points(tmp_path, sweep, head="repetitions: 4")
    assert [p.repetition for p in found] == [r for r in (1, 2, 3, 4) for _ in range(5)]
    assert set(Counter(p.id for p in found).values()) == {4}
    orders = {tuple(p.id for p in found[5 * i : 5 * i + 5]) for i in range(4)}
    assert len(orders) > 1
    listed = points(tmp_path, sweep, head=f"repetitions: 4\n{LISTED}")
    assert [p.levels["rate"] for p in listed] == ["1mbit", "2mbit", "3mbit", "4mbit", "5mbit"] * 4
    other_seed = points(tmp_path, sweep, head="repetitions: 4\nseed: 2")
    assert [p.id for p in other_seed] != [p.id for p in found]
    assert sorted(p.id for p in other_seed) == sorted(p.id for p in found)


def test_expectations_of_points_and_baselines(tmp_path: Path) -> None:
    head = f"""\
{LISTED}
warm_up: 3s
baselines: {{alone: [udp]}}
expect:
  - {{metric: goodput, flows: [tcp], min: 1mbit}}
  - {{metric: jain_index, min: 0.5, when: {{rate: [1mbit, 2mbit]}}}}
  - {{metric: goodput, min: 0.9mbit, window: 5s-10s, when: {{baseline: alone, rate: 1mbit}}}}
"""
    found = points(tmp_path, ("rate: 2mbit", "rate: [1mbit, 2mbit, 3mbit]\n    start: 1s"), head=head)
    bounds = {p.label: [(e.metric, e.flows, e.window_ns, e.min) for e in p.expect] for p in found}
    whole = (3 * 10**9, 20 * 10**9)
    tcp = ("goodput", ["tcp"], whole, 1_000_000)
    fair = ("jain_index", ["tcp", "udp"], whole, 0.5)
    assert bounds == {
        "rate=1mbit": [tcp, fair],
        "rate=2mbit": [tcp, fair],
        "rate=3mbit": [tcp],
        "alone rate=1mbit": [("goodput", ["udp"], (5 * 10**9, 10 * 10**9), 900_000)],
        "alone rate=2mbit": [],
        "alone rate=3mbit": [],
    }


def test_a_profile_is_laid_over_the_scenario(tmp_path: Path) -> None:
    profiles = """\
profiles:
  short:
    duration: 5s
    path: {forward: {rate: 1mbit}}
    flows: {udp: {rate: 3mbit}}
"""
    text = BASE.format(profiles)
    full, short = planned(tmp_path, text), planned(tmp_path, text, "short")
    assert (full.profile, short.profile) == (None, "short")
    (one,), (other,) = full.points, short.points
    assert [p.phase("measurement").duration_ns // 10**9 for p in (one, other)] == [20, 5]
    assert one.path is not None
    assert other.path is not None
    assert (one.path.forward.rate_bps, other.path.forward.rate_bps) == (10_000_000, 1_000_000)
    assert one.path.rtt_ns == other.path.rtt_ns
    assert [p.phase("measurement").flows[1].rate_bps for p in (one, other)] == [2_000_000, 3_000_000]


def test_several_profiles_are_laid_over_each_other_in_their_order(tmp_path: Path) -> None:
    profiles = "profiles: {short: {duration: 5s, seed: 7}, shorter: {duration: 4s}}"
    text = BASE.format(profiles)
    for asked, duration_s in (("short,shorter", 4), ("shorter,short", 5)):
        both = planned(tmp_path, text, asked)
        assert (both.profile, both.seed) == (asked, 7)
        assert both.points[0].phase("measurement").duration_ns == duration_s * 10**9
    assert problems(tmp_path, text, "short,x,y") == [
        f"x.yml:4:1: profiles: the scenario has no profile {name}; it has short, shorter" for name in "xy"
    ]
