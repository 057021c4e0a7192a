from __future__ import annotations

from pathlib import Path

import pytest

from scenario.texts import BASE, planned, problems


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
            "expect: [{metric: jain_index, min: 0.5, when: {baseline: [alone]}}]",
            ("rate: 2mbit", "rate: 3mbit"),
            ["x.yml:4:48: expect[0].when.baseline: there is no baseline ['alone']"],
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
    found = problems(tmp_path, text)
    assert len(found) == len(said), found
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True)), found


def test_two_sweeps_of_one_name_need_names_of_their_own(tmp_path: Path) -> None:
    text = BASE.format("").replace("10mbit", "[10mbit, 20mbit]").replace("2mbit", "[1mbit, 3mbit]")
    (line,) = problems(tmp_path, text)
    assert line == (
        "x.yml:16:5: flows.udp.rate: something else that varies is called rate: name both in matrix, "
        "use $NAME here"
    )


def test_an_unknown_profile_is_named_with_those_there_are(tmp_path: Path) -> None:
    text = BASE.format("profiles: {short: {duration: 5s}}")
    assert problems(tmp_path, text, "shrt") == [
        "x.yml:4:1: profiles: the scenario has no profile shrt, did you mean short?"
    ]
    assert problems(tmp_path, BASE.format(""), "short") == [
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
    said = problems(tmp_path, BASE.format(head))
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
    said = problems(tmp_path, BASE.format(head.format(some, other)))
    assert said[0].startswith(f"x.yml:8:1: hosts: {name} of sender1 is asked for only in other points")
    assert len(planned(tmp_path, BASE.format(head.format(some, all_))).points) == 2
