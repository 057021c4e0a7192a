"""What varies between the points of a scenario, and the order in which they are run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from synthetic import inventory

from dumbbell.plan import Plan, Point, plan
from dumbbell.scenario import ScenarioError

BASE = """\
name: x
title: x
duration: 20s
{}
path:
  forward: {{rate: 10mbit, delay: 5ms, queue: {{kind: pfifo, limit: 1bdp}}}}
flows:
  tcp:
    kind: iperf3_tcp
    from: senders[0]
    to: receivers[0]
  udp:
    kind: udp
    from: senders[1]
    to: receivers[1]
    rate: 2mbit
"""


def planned(tmp_path: Path, text: str, profile: str | None = None) -> Plan:
    (tmp_path / "x.yml").write_text(text)
    return plan(tmp_path / "x.yml", inventory(), profile)


def refused(tmp_path: Path, text: str, profile: str | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        planned(tmp_path, text, profile)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


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


@pytest.mark.parametrize(
    ("head", "change", "said"),
    [
        (
            "matrix: {load: [1mbit]}",
            ("rate: 2mbit", "rate: $laod"),
            [
                "x.yml:4:10: matrix.load: nothing refers to it: write $load where its values belong",
                "x.yml:16:5: flows.udp.rate: the matrix has no laod, did you mean load?",
            ],
        ),
        (
            "matrix: {load: [1mbit, 2mbps]}",
            ("rate: 2mbit", "rate: $load"),
            [
                "x.yml:16:5: flows.udp.rate: '2mbps' is not a rate: write a number and one of "
                "bit, kbit, mbit, gbit, as in 100mbit (with load 2mbps)"
            ],
        ),
        (
            "matrix: {load: [1mbit, 1mbit]}",
            ("rate: 2mbit", "rate: $load"),
            ["x.yml:4:24: matrix.load[1]: 1mbit is there already"],
        ),
        (
            "matrix: {load: []}",
            ("rate: 2mbit", "rate: $load"),
            ["x.yml:4:10: matrix.load: there is no value"],
        ),
        (
            "matrix: {load: [1mbit, {kind: pfifo}]}",
            ("rate: 2mbit", "rate: $load"),
            ["x.yml:4:24: matrix.load[1]: one value is expected; others get a name each in matrix"],
        ),
        (
            "matrix: {queue: [pfifo]}",
            ("rate: 2mbit", "rate: 2 * $queue"),
            ["x.yml:16:5: flows.udp.rate: 2 * $queue: 'pfifo' is not a quantity"],
        ),
        (
            "matrix: {a: $b, b: $a}",
            ("rate: 2mbit", "rate: $a"),
            ["x.yml:16:5: flows.udp.rate: $a stands for itself"],
        ),
        (
            "matrix: {load: [1mbit, 2mbit], exclude: [{load: 1mbit}, {load: 2mbit}]}",
            ("rate: 2mbit", "rate: $load"),
            ["x.yml:4:32: matrix.exclude: leaves nothing to run"],
        ),
        (
            "matrix: {load: [1mbit, 2mbit], exclude: [{load: 3mbit, cc: x}]}",
            ("rate: 2mbit", "rate: $load"),
            [
                "x.yml:4:43: matrix.exclude[0].load: 3mbit is none of its values 1mbit, 2mbit",
                "x.yml:4:56: matrix.exclude[0].cc: nothing of this name varies",
            ],
        ),
        (
            "matrix: {load: [1mbit], include: [{load: 2mbit}]}",
            ("rate: 2mbit", "rate: $load\n    datagram: [100B, 200B]"),
            ["x.yml:4:35: matrix.include[0]: give a value of datagram too"],
        ),
        (
            "",
            ("rate: 2mbit", "rate: []"),
            ["x.yml:16:5: flows.udp.rate: an empty list has no value to run with"],
        ),
        (
            "",
            ("rate: 2mbit", "rate: [1mbit, 2mbit]\n    start: [1s, 2s]\n    duration: [1s, 19s]"),
            [
                "x.yml:18:5: flows.udp.duration: ends at 21s, after the scenario's duration of 20s "
                "(with rate 1mbit, start 2s, duration 19s)"
            ],
        ),
        (
            "",
            ("rate: 2mbit", "rate: [1mbit, 1000kbit]"),
            ["x.yml:16:5: flows.udp.rate: 1mbit and 1000kbit make the same point (with rate 1000kbit)"],
        ),
        (
            "matrix: {" + ", ".join(f"a{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for i in range(5)) + "}",
            (
                "rate: 2mbit",
                "rate: 2mbit\n    datagram: $a0\n    start: $a1\n    active: $a2\n    idle: $a3\n"
                "    duration: $a4",
            ),
            ["x.yml:4:1: matrix: 100000 combinations are more than 10000 points"],
        ),
        (
            "repetitions: 1000\nmatrix: {a: [1mbit, 2mbit, 3mbit, 4mbit, 5mbit, 6mbit], b: [1s, 2s, 3s]}",
            ("rate: 2mbit", "rate: $a\n    start: $b"),
            ["x.yml:5:1: matrix: 18 combinations, each 1000 times, are more than 10000 points"],
        ),
        (
            "profiles: {short: {duration: 5}, long: {duration: 9h, flows: {tcp: {start: 10h}}}}",
            ("rate: 2mbit", "rate: 3mbit"),
            [
                "x.yml:4:20: duration: 5 is not a duration: "
                "write a number and one of ns, us, ms, s, min, h, as in 20ms",
            ],
        ),
        (
            "hosts: {senders: {txqueuelen: [50, 100], qdisc: fq}}",
            ("rate: 2mbit", "rate: 3mbit"),
            [
                "x.yml:4:19: hosts.senders.txqueuelen: it varies, but the qdisc of sender1 is fq; "
                "only bfifo, pfifo, pfifo_fast read it"
            ],
        ),
        (
            "matrix: {length: [50, 100]}\nhosts: {senders: {txqueuelen: $length}}",
            ("rate: 2mbit", "rate: 3mbit"),
            [
                "x.yml:5:19: hosts.senders.txqueuelen: it varies, but no qdisc is asked for on sender1; "
                "only bfifo, pfifo, pfifo_fast read it"
            ],
        ),
        (
            "hosts: {senders: {qdisc: fq}, testbed: {qdisc: fq_codel}}",
            ("rate: 2mbit", "rate: 3mbit"),
            [
                "x.yml:4:41: hosts.testbed.qdisc: router is a router, which has the path there: "
                "ask groups without routers"
            ],
        ),
        (
            "hosts: {senders: {qdisc: fq}}",
            (
                "rate: 2mbit",
                "rate: 3mbit\n  more:\n    from: senders[0]\n    to: receivers[0]\n    kind: iperf3_tcp\n"
                "    congestion_control: rapid",
            ),
            [
                "x.yml:4:19: hosts.senders.qdisc: rapid (more, on sender1) sets each gap itself, "
                "which fq overrules: ask pfifo_fast"
            ],
        ),
        (
            "hosts: {receivers: {kernel: 6.1.0}, senders: {kernel: [6.1.0, 6.12.9]}}",
            ("rate: 2mbit", "rate: 3mbit"),
            [
                "x.yml:4:47: hosts.senders.kernel: it varies, but hosts boot once, before all points: "
                "give each kernel a profile (with kernel 6.12.9)"
            ],
        ),
        (
            "matrix: {state: {old: {mtu: 1500}, new: {mtu: 1500, kernel: 6.12.9}}}\nhosts: {senders: $state}",
            ("rate: 2mbit", "rate: 3mbit"),
            ["x.yml:5:9: hosts.senders.kernel: it varies, but hosts boot once, before all points: "],
        ),
        (
            "expect: [{metric: jain_index, min: 0.5, when: {rat: 1mbit}}]",
            ("rate: 2mbit", "rate: [1mbit, 2mbit]"),
            ["x.yml:4:48: expect[0].when.rat: nothing of this name varies, did you mean rate?"],
        ),
        (
            "repetitions: [1, 2]",
            ("rate: 2mbit", "rate: 3mbit"),
            ["x.yml:4:1: repetitions: should be a valid integer"],
        ),
    ],
)
def test_errors_in_what_varies(tmp_path: Path, head: str, change: tuple[str, str], said: list[str]) -> None:
    text = BASE.format(head)
    assert change[0] in text
    text = text.replace(*change)
    found = refused(tmp_path, text)
    assert len(found) == len(said), found
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True)), found


def test_two_sweeps_of_one_name_need_names_of_their_own(tmp_path: Path) -> None:
    text = BASE.format("").replace("10mbit", "[10mbit, 20mbit]").replace("2mbit", "[1mbit, 3mbit]")
    (line,) = refused(tmp_path, text)
    assert line == (
        "x.yml:16:5: flows.udp.rate: something else that varies is called rate: name both in matrix, "
        "use $NAME here"
    )


def test_several_profiles_are_laid_over_each_other_in_their_order(tmp_path: Path) -> None:
    profiles = "profiles: {short: {duration: 5s, seed: 7}, shorter: {duration: 4s}}"
    text = BASE.format(profiles)
    for asked, duration_s in (("short,shorter", 4), ("shorter,short", 5)):
        both = planned(tmp_path, text, asked)
        assert (both.profile, both.seed) == (asked, 7)
        assert both.points[0].phase("measurement").duration_ns == duration_s * 10**9
    assert refused(tmp_path, text, "short,x,y") == [
        f"x.yml:4:1: profiles: the scenario has no profile {name}; it has short, shorter" for name in "xy"
    ]


def test_an_unknown_profile_is_named_with_those_there_are(tmp_path: Path) -> None:
    text = BASE.format("profiles: {short: {duration: 5s}}")
    assert refused(tmp_path, text, "shrt") == [
        "x.yml:4:1: profiles: the scenario has no profile shrt, did you mean short?"
    ]
    assert refused(tmp_path, BASE.format(""), "short") == [
        "x.yml:1:1: profiles: the scenario has no profile short"
    ]


def test_what_only_some_points_ask_of_a_host_would_be_left_for_the_others(tmp_path: Path) -> None:
    head = """\
matrix:
  tuning:
    stock: {net.ipv4.tcp_no_metrics_save: 1}
    no_sack: {net.ipv4.tcp_no_metrics_save: 1, net.ipv4.tcp_sack: 0}
hosts:
  senders: {sysctls: $tuning}"""
    said = refused(tmp_path, BASE.format(head))
    left = "of sender1 is asked for only in other points, which would leave it as they set it"
    assert f"x.yml:8:1: hosts: sysctls.net.ipv4.tcp_sack {left} (with tuning stock)" in said
    both = head.replace("stock: {", "stock: {net.ipv4.tcp_sack: 1, ")
    assert len(planned(tmp_path, BASE.format(both)).points) == 2


@pytest.mark.parametrize(
    ("some", "all_", "name"),
    [
        ("{qdisc: fq}", "{qdisc: pfifo}", "qdisc"),
        ("{modules: {sch_fq: {}}}", "{modules: {sch_fq: {}}, mtu: 1400}", "modules.sch_fq"),
        (
            "{modules: {tcp_cubic: {hystart: 0}}}",
            "{modules: {tcp_cubic: {hystart: 1}}}",
            "modules.tcp_cubic.hystart",
        ),
    ],
)
def test_what_is_left_by_some_points_has_to_be_asked_for_in_all(
    tmp_path: Path, some: str, all_: str, name: str
) -> None:
    other = "{modules: {tcp_cubic: {}}}" if "hystart" in name else "{mtu: 1500}"
    head = "matrix:\n  state:\n    one: {}\n    two: {}\nhosts:\n  senders: $state"
    said = refused(tmp_path, BASE.format(head.format(some, other)))
    assert said[0].startswith(f"x.yml:8:1: hosts: {name} of sender1 is asked for only in other points")
    assert len(planned(tmp_path, BASE.format(head.format(some, all_))).points) == 2
