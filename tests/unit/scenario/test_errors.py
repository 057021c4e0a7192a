"""What is wrong with a scenario is said with its line, key and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario.texts import GOOD, WHERE, problems


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "title:",
            "titel:",
            ["x.yml:1:1: title: missing", "x.yml:2:1: titel: unknown key, did you mean title?"],
        ),
        (
            "10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\n  rev",
            "10 Mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\n  rev",
            [
                "x.yml:5:13: path.forward.rate: '10 Mbit' is not a rate: "
                "write a number and one of bit, kbit, mbit, gbit, as in 100mbit"
            ],
        ),
        (
            "title: One flow\n",
            "title: One\ntitle: Two\n",
            ["x.yml:3:1: title: duplicate key, first given in line 2"],
        ),
        (
            "senders[0]",
            "sender9",
            [
                "x.yml:10:5: flows.flow1.from: the inventory has no host sender9; "
                "it has archive, receiver1, receiver2, router, sender1, sender2"
            ],
        ),
        (
            "senders[0]",
            "sources[0]",
            [
                "x.yml:10:5: flows.flow1.from: the inventory has no group sources; "
                "it has archives, receivers, routers, senders, testbed"
            ],
        ),
        (
            "senders[0]",
            "senders[7]",
            ["x.yml:10:5: flows.flow1.from: the group senders has 2 hosts: sender1, sender2"],
        ),
        ("receivers[0]", "sender1", ["x.yml:11:5: flows.flow1.to: both ends are sender1"]),
        ("receivers[0]", "senders[0]", ["x.yml:11:5: flows.flow1.to: both ends are senders[0]"]),
        (
            "receivers[0]",
            "sender2",
            ["x.yml:11:5: flows.flow1.to: sender1 and sender2 are both on the side left of the path"],
        ),
        (
            "receivers[0]",
            "router",
            [
                "x.yml:11:5: flows.flow1.to: router has 2 experiment interfaces; "
                "the end of a flow has exactly one"
            ],
        ),
        (
            WHERE,
            WHERE + "    start: 1s\n    duration: 10s\n",
            ["x.yml:12:5: flows.flow1.duration: ends at 11s, after the scenario's duration of 10s"],
        ),
        (
            WHERE,
            WHERE + "    start: 10s\n",
            ["x.yml:11:5: flows.flow1.start: starts at 10s, not before the scenario's end at 10s"],
        ),
        (
            WHERE,
            WHERE + "    duration: 2.5s\n",
            [
                "x.yml:11:5: flows.flow1.duration: iperf3 runs for a whole number of seconds, not 2500ms: "
                "give it another duration"
            ],
        ),
        (
            WHERE,
            WHERE + "    start: 2.5s\n",
            [
                "x.yml:11:5: flows.flow1.start: iperf3 runs for a whole number of seconds, not 7500ms: "
                "give it another duration"
            ],
        ),
        (
            WHERE,
            WHERE + "    bytes: 1MB\n",
            [
                "x.yml:8:3: flows.flow1: iperf3 ends a transfer of `bytes` when it has written them, and "
                "what has not arrived by then never does: use kind tcp"
            ],
        ),
        (
            WHERE,
            WHERE + "    repeat: {count: 3, pairs: different}\n",
            [
                "x.yml:10:5: flows.flow1.from: the group senders has 2 hosts: sender1, sender2, "
                "and senders[0] with the repetitions needs 3",
                "x.yml:12:5: flows.flow1.to: the group receivers has 2 hosts: receiver1, receiver2, "
                "and receivers[0] with the repetitions needs 3",
            ],
        ),
        (
            WHERE,
            WHERE + "    repeat: {count: 3, every: 5s}\n",
            ["x.yml:11:5: flows.flow1.repeat: flow13 starts at 10s, not before the scenario's end at 10s"],
        ),
        ("iperf3_tcp", "iperf3_udp", ["x.yml:8:3: flows.flow1.rate: missing"]),
        (
            "iperf3_tcp",
            "netperf",
            [
                "x.yml:9:5: flows.flow1.kind: 'netperf' is not one of "
                "atou, command, http, iperf3_tcp, iperf3_udp, ndt7_download, ndt7_upload, ping, tcp, udp"
            ],
        ),
        (
            "    kind: iperf3_tcp\n",
            "",
            [
                "x.yml:8:3: flows.flow1.kind: missing, give one of "
                "atou, command, http, iperf3_tcp, iperf3_udp, ndt7_download, ndt7_upload, ping, tcp, udp"
            ],
        ),
        (
            "    kind: iperf3_tcp\n",
            "    kind: iperf3_tcp\n    dscp: af44\n",
            ["x.yml:10:5: flows.flow1.dscp: 'af44' is no DSCP: write 0 to 63 or one of cs0, "],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {sack: 1, mss: 31, vegas_rtt: mean, host: here, ssinc: 2}",
            [
                "x.yml:10:23: flows.flow1.sender.mss: 31 should be greater than or equal to 32",
                "x.yml:10:32: flows.flow1.sender.vegas_rtt: 'mean' is not one of ",
                "x.yml:10:49: flows.flow1.sender.host: unknown key, did you mean hosts?",
                "x.yml:10:61: flows.flow1.sender.ssinc: unknown key, did you mean ssincr?",
            ],
        ),
        (
            "reverse: {rate: 10mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}",
            "reverse: {rate: 10mbit, delay: 5ms, queue: {kind: dualpi2}}",
            ["x.yml:6:47: path.reverse.queue.kind: dualpi2 is not supported: Linux has it from 6.17 on"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {rampdown: 1}",
            ["x.yml:10:5: flows.flow1.sender: rampdown: 1 needs sack: 1"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {sack: 1, prr: 1}\n    receiver: {delack: 40}",
            ["x.yml:8:3: flows.flow1: sack: 1 of the sender needs sack: 1 of the receiver, which has"],
        ),
        (
            "iperf3_tcp",
            "atou\n    duration: 30h",
            ["x.yml:8:3: flows.flow1: a transfer by atou lasts at most 24h, not 30h"],
        ),
        (
            "iperf3_tcp",
            "atou\n    mode: bulk\n    sender: {gap: 100}",
            ["x.yml:8:3: flows.flow1: segments with a gap between them do not leave together"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {initsegs: 301}",
            ["x.yml:10:5: flows.flow1.sender: initsegs 301 is more than rcvrwin 300"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {highspeed: 1, scalable: 1}",
            ["x.yml:10:5: flows.flow1.sender: highspeed: 1 and scalable: 1 exclude each other"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {droplist: [7, 7]}",
            ["x.yml:10:14: flows.flow1.sender.droplist: a segment is named twice"],
        ),
        (
            "iperf3_tcp",
            "atou\n    sender: {droplist: [7], maxpkts: 7}",
            ["x.yml:10:5: flows.flow1.sender: droplist names 7, but segments end before maxpkts 7"],
        ),
        (
            "iperf3_tcp",
            "udp\n    rate: 1mbit\n    active: 1s",
            ["x.yml:8:3: flows.flow1: active and idle belong together"],
        ),
        (
            "iperf3_tcp",
            "udp\n    rate: 1mbit\n    active: 1s\n    idle: {exponential: 1s, pareto: 1s}",
            ["x.yml:12:5: flows.flow1.idle: give one of exponential, pareto, uniform"],
        ),
        (
            "iperf3_tcp",
            "udp\n    rate: 1mbit\n    active: 1us\n    idle: 1us",
            ["x.yml:11:5: flows.flow1.active: it would turn on and off more than 100000 times"],
        ),
        (
            "iperf3_tcp",
            "udp\n    rate: 1mbit\n    periods: [1s-3s, 2s-4s]",
            ["x.yml:8:3: flows.flow1: periods follow each other in order of time"],
        ),
        (
            "iperf3_tcp",
            "udp\n    rate: 1mbit\n    periods: [1s-3s, {during: 4s-12s, rate: 2mbit}]",
            ["x.yml:11:5: flows.flow1.periods: ends at 12s, after the scenario's duration of 10s"],
        ),
        ("iperf3_tcp", "http", ["x.yml:8:3: flows.flow1: give size, or transfers"]),
        (
            "iperf3_tcp",
            "http\n    size: 1kB\n    count: 5\n    duration: 5s",
            ["x.yml:8:3: flows.flow1: give count or duration, not both"],
        ),
        (
            "iperf3_tcp",
            "http\n    size: 1kbit",
            ["x.yml:10:5: flows.flow1.size: '1kbit' is not a size: write a number and one of "],
        ),
        (
            "iperf3_tcp",
            "http\n    size: 1kB\n    count: 0",
            ["x.yml:11:5: flows.flow1.count: "],
        ),
        (
            "iperf3_tcp",
            "http\n    size: 1kB\n    connections: kept",
            ["x.yml:11:5: flows.flow1.connections: 'kept' is not one of 'new' or 'persistent'"],
        ),
        (
            "iperf3_tcp",
            "command\n    client: [nc, '{dest}']",
            ["x.yml:10:18: flows.flow1.client[1]: {dest} is none of client_port, dst, server_port, src"],
        ),
        (
            "limit: 1bdp}}\nflows",
            "limit: 0packets}}\nflows",
            [
                "x.yml:6:60: path.reverse.queue.limit: 0packets is 0 packets, "
                "less than one packet of 1514 bytes"
            ],
        ),
        (
            "limit: 1bdp}}\nflows",
            "limit: 10kB}}\nflows",
            ["x.yml:6:39: path.reverse.queue: a pfifo is limited in packets or bdp, not in bytes"],
        ),
        (
            "kind: pfifo, limit: 1bdp}}\nflows",
            "kind: red}}\nflows",
            ["x.yml:6:39: path.reverse.queue: a red needs a limit"],
        ),
        (
            "kind: pfifo, limit: 1bdp}}\nflows",
            "kind: cake, target: 5ms}}\nflows",
            ["x.yml:6:39: path.reverse.queue: a cake has no target; codel, fq_codel, pie have"],
        ),
        (
            "delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\nflows",
            "delay: 0ms, jitter: 1ms, queue: {kind: pfifo, limit: 1packets}}\nflows",
            ["x.yml:6:3: path.reverse: jitter and reorder have no effect without delay"],
        ),
        ("flows:\n", "flows: [\n", ["x.yml:9:9: not YAML: "]),
        (
            "title: One flow\n",
            'title: "\\ud83d"\n',
            ["x.yml:2:1: title: None ", "x.yml:2:8: title: '\\ud83d' cannot be read: "],
        ),
        ("flows:\n", '"\\ud83d": 1\nflows:\n', ["x.yml:7:1: the key '\\ud83d' cannot be read: "]),
        (
            "delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}\nflows",
            "delay: 5ms, distribution: normal, queue: {kind: pfifo, limit: 1bdp}}\nflows",
            ["x.yml:6:3: path.reverse: distribution has no effect without jitter"],
        ),
        (
            "iperf3_tcp",
            "ping\n    delay: 5ms",
            ["x.yml:10:5: flows.flow1.delay: a ping has no port by which the router could tell it from"],
        ),
        (
            "iperf3_tcp",
            "command\n    client: [nc, '{dst}', '9']\n    delay: 5ms",
            [
                "x.yml:11:5: flows.flow1.delay: the router tells the flow by its {server_port}, "
                "which `client` does not name"
            ],
        ),
        (
            WHERE,
            WHERE + "    delay: 5500ns\n",
            ["x.yml:11:5: flows.flow1.delay: a path delay is a whole number of microseconds"],
        ),
        (
            "flows:\n",
            "hosts: {nowhere: {txqueuelen: 1000}}\nflows:\n",
            ["x.yml:7:9: hosts.nowhere: is neither a group of the inventory nor a host of the group testbed"],
        ),
        (
            "flows:\n",
            "hosts: {senders: {sysctls: {net.ipv4.ip_local_port_range: 1024 all}}}\nflows:\n",
            ["x.yml:7:29: hosts.senders.sysctls.net.ipv4.ip_local_port_range: '1024 all' is not two ports"],
        ),
        (
            "flows:\n",
            "hosts: {senders: {sysctls: {net.ipv4.ip_local_port_range: 1024 65535}}}\nflows:\n",
            ["x.yml:9:3: flows.flow1: sender1 has no ports left outside its ephemeral range"],
        ),
        (
            "flows:\n",
            "roles: {router: senders}\nflows:\n",
            ["x.yml:7:9: roles.router: the inventory has a group or host of this name"],
        ),
        (
            "flows:\n",
            "warm_up: 10s\nflows:\n",
            ["x.yml:7:1: warm_up: is no part of the duration of 10s"],
        ),
        (
            "flows:\n",
            "baselines: {alone: [flow2]}\nflows:\n",
            ["x.yml:7:21: baselines.alone[0]: there is no flow flow2, did you mean flow1?"],
        ),
        (
            "flows:\n",
            "expect: [{metric: jain_index}]\nflows:\n",
            ["x.yml:7:10: expect[0]: give min, max or both"],
        ),
        (
            "flows:\n",
            "expect: [{metric: latency, max: 1}]\nflows:\n",
            [
                "x.yml:7:11: expect[0].metric: 'latency' is not one of utilisation, jain_index, goodput, "
                "retransmits, loss, time_in_recovery, rtt, completion_time"
            ],
        ),
        (
            "flows:\n",
            "expect: [{metric: goodput, min: 5mbit, flows: [flow9]}]\nflows:\n",
            ["x.yml:7:48: expect[0].flows[0]: no flow flow9 runs here; there are flow1"],
        ),
        (
            "flows:\n",
            "expect: [{metric: completion_time, max: 5s}]\nflows:\n",
            ["x.yml:7:11: expect[0].metric: completion_time is not known of any flow here"],
        ),
        (
            "flows:\n",
            "expect: [{metric: goodput, min: 5mbit, window: 5s-20s}]\nflows:\n",
            ["x.yml:7:40: expect[0].window: ends after the scenario's duration of 10s"],
        ),
    ],
)
def test_errors_name_line_key_and_reason(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert len(found) == len(said), found
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True)), found
