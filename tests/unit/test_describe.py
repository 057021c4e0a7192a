from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic import REPOSITORY, inventory

from dumbbell.plan import InventoryError, Plan, describe, plan

SCENARIOS = REPOSITORY / "scenarios"


def planned(name: str, profile: str | None = None) -> Plan:
    return plan(SCENARIOS / f"{name}.yml", inventory(), profile)


def bar(text: str, flow: str) -> str:
    """The line of a flow over time, between its bars, in the measurement."""
    measurement = text[text.index("  measurement:") :]
    (line,) = (line for line in measurement.splitlines() if re.match(rf"\s+{flow}\s.*\|", line))
    return line.split("|")[1]


def traffic_s(text: str) -> float:
    """The time that all runs take, without what lies between them."""
    (said,) = re.findall(r"points, (.*) of traffic", text)
    units_s = {"h": 3600, "min": 60, "s": 1}
    return sum(float(number) * units_s[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", said))


def test_flows_over_time() -> None:
    text = describe(planned("two_flow_fairness"))
    assert bar(text, "flow1") == "#" * 60
    assert bar(text, "flow2") == " " * 10 + "#" * 50
    whole = planned("on_off_udp")
    (mixed, *_) = (point.id for point in whole.points if point.baseline is None)
    assert bar(describe(whole, mixed), "cross") == (" " * 10 + "#" * 10 + ("-" * 10 + "#" * 10) * 2)


def test_the_kernel_chooses_ports_of_http_clients() -> None:
    text = describe(planned("web_fetches"))
    assert re.search(r"web  http cubic fetches of \d+ bytes  sender1:5201 > receiver1:\*  ", text)
    assert "      -5.000 s  http_server web" in text


def test_points_in_their_order_and_the_time_they_take() -> None:
    whole = planned("on_off_udp")
    head = describe(whole).partition("\n\npoint ")[0]
    table = head.partition("\n\n")[2].splitlines()[1:]
    assert [line.split()[1] for line in table] == [point.id for point in whole.points]
    assert "60 runs of 20 points" in head
    took_s = sum(point.duration_ns for point in whole.points) / 1e9
    assert traffic_s(head) == pytest.approx(took_s, abs=0.0501)  # it is rounded to 0.1 s
    assert "udp_alone load=50mbit" in head
    assert traffic_s(describe(planned("eight_hour_transfer"))) > 16 * 3600
    short = describe(planned("eight_hour_transfer", "short"))
    assert "profile short" in short
    assert 20 * 60 < traffic_s(short) < 22 * 60


def test_what_is_likely_not_meant_is_said_once(tmp_path: Path) -> None:
    text = (SCENARIOS / "random_loss.yml").read_text()
    (tmp_path / "x.yml").write_text(text.replace("  testbed:\n", "  testbed:\n    offloads: {tso: true}\n"))
    said = describe(plan(tmp_path / "x.yml", inventory()), "all")
    assert said.count("warning: super_packets: ") == 1
    words = " ".join(said.split())
    assert "sender1, sender2 are asked to be on: loss, queue.limit_packets of the path" in words


@pytest.mark.parametrize(
    ("profile", "before", "at_start"),
    [(None, "tcp_receive", "tcp_send"), ("iperf3", "iperf3_server", "iperf3_client")],
)
def test_what_each_host_does(profile: str | None, before: str, at_start: str) -> None:
    text = describe(planned("two_flow_fairness", profile))
    assert f"      -5.000 s  {before} flow2" in text
    assert f"       5.000 s  {at_start} flow2" in text
    assert "    router, samples queues" in text
    assert "forward 100 Mbit/s, 10 ms, pfifo, 166 packets" in text


def test_what_changes_and_whose_delay_is_longer() -> None:
    text = describe(planned("rate_fall_at_two_rtts"))
    for said in (
        "    forward 100 Mbit/s, 10 ms, pfifo, 166 packets\n",
        "    forward from 20 s: 40 Mbit/s, 10 ms, pfifo, 166 packets\n",
        "      20.000 s  path forward-1\n",
        "  tcp cubic +30 ms ",
        "  tcp_ping 198.18.2.12:5201, 31 times every 50 ms\n",
        "      -5.000 s  tcp_listen 5201\n",
    ):
        assert said in text, said


def test_every_point_can_be_shown() -> None:
    whole = planned("congestion_controls_and_queues")
    ids = {point.id for point in whole.points}
    assert set(re.findall(r"^point (\w+)", describe(whole, "all"), re.M)) == ids
    with pytest.raises(InventoryError, match=f"has no point 123; it has .*{min(ids)}"):
        describe(whole, "123")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yml")), ids=lambda path: path.stem)
def test_shipped_scenarios_can_be_shown(path: Path) -> None:
    assert all(len(line) < 200 for line in describe(planned(path.stem), "all").splitlines())


def test_what_is_asked_of_atou_is_told_with_its_ends() -> None:
    lines = [line.strip() for line in describe(planned("atou_policed"), "all").splitlines()]
    send = next(i for i, line in enumerate(lines) if line.endswith("atou_send atou"))
    assert lines[send + 1] in [
        f"mss 1472, rcvrwin {window}, sndbuf 1000000, rcvbuf 4000000" for window in (15, 60)
    ]
    serve = next(i for i, line in enumerate(lines) if line.endswith("atou_serve atou"))
    assert lines[serve + 1] == "rcvbuf 4000000"
