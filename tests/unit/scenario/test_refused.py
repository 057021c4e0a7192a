from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import inventory

from dumbbell import scenario as model
from dumbbell.plan import plan
from dumbbell.scenario import ScenarioError
from scenario.texts import GOOD, WHERE, problems

FORWARD_END = "}\n  reverse"


@pytest.mark.parametrize(
    ("changes", "at", "key", "reason"),
    [
        ("{rate: 5mbit}", "{rate: 5mbit}]", "[0].at", "missing"),
        ("{at: 0s, rate: 5mbit}", "at: 0s", "[0].at", "'0s' should be greater than 0"),
        ("{at: 1s}", "{at: 1s}", "[0]", "it names nothing that differs from before"),
        ("{at: 10s, rate: 5mbit}", "at: 10s", "[0].at", "is not before the scenario's end at 10s"),
        (
            "{at: 2s, rate: 5mbit}, {at: 1s, rate: 6mbit}",
            "at: 1s",
            "[1].at",
            "changes follow each other in order of time",
        ),
        (
            "{at: 2s, rate: 5mbit}, {at: 2050ms, rate: 6mbit}",
            "at: 2050ms",
            "[1].at",
            "is within validity.start_error, 50ms, of the change before",
        ),
        (
            "{at: 1s, queue: {kind: codel}}",
            "kind: codel",
            "[0].queue.kind",
            "a queue stays what it is within a run, here a pfifo",
        ),
        (
            "{at: 1s, policer: {rate: 5mbit, burst: 10kB}}",
            "policer: {",
            "[0].policer",
            "the direction has no policer that could change: give it one",
        ),
        ("{at: 1s, queue: {kind: pfifo}}", "queue: {kind: pfifo}}", "[0].queue", "a pfifo needs a limit"),
        (
            "{at: 1s, queue: {kind: pfifo, limit: 0bdp}}",
            "limit: 0bdp",
            "[0].queue.limit",
            "0bdp is 0 packets, less than one packet of 1514 bytes",
        ),
        (
            "{at: 1s, rate: 0bit}, {at: 2s, delay: 9ms}",
            "rate: 0bit",
            "[0].rate",
            "nothing passes to the scenario's end: end the outage by a later change with a rate",
        ),
        (
            "{at: 1s, rate: 0bit}, {at: 2s, rate: 5mbit, delay: 9ms}",
            "delay: 9ms",
            "[1].delay",
            "a change that ends an outage names the rate alone: give the others one of their own",
        ),
        (
            "{at: 1s, rate: 0bit, queue: {kind: pfifo, limit: 1bdp}}, {at: 2s, rate: 5mbit}",
            "limit: 1bdp}}, {at: 2s",
            "[0].queue.limit",
            "1bdp is 0 packets, less than one packet of 1514 bytes",
        ),
        ("{at: 1s, distribution: normal}", "distribution", "[0].distribution", "is no key here"),
        (
            "{at: 1s, loss: 1%, loss_gemodel: {p: 1%, r: 9%}}",
            "{at: 1s, loss: 1%",
            "[0]",
            "loss and loss_gemodel are models of the same loss: give one",
        ),
        (
            "{at: 1s, jitter: 1ms}, {at: 2s, delay: 0ms}",
            "{at: 2s",
            "[1]",
            "jitter and reorder have no effect without delay",
        ),
    ],
)
def test_changes_that_cannot_be(tmp_path: Path, changes: str, at: str, key: str, reason: str) -> None:
    text = GOOD.replace(FORWARD_END, f", changes: [{changes}]{FORWARD_END}")
    column = text.splitlines()[4].index(at) + 1
    assert problems(tmp_path, text) == [f"x.yml:5:{column}: path.forward.changes{key}: {reason}"]


@pytest.mark.parametrize(("end", "lasts"), [("61s", "1min"), ("1070ms", "70ms")])
def test_an_outage_of_a_length_that_cannot_be(tmp_path: Path, end: str, lasts: str) -> None:
    text = GOOD.replace("duration: 10s", "duration: 70s", 1)
    changes = f"[{{at: 1s, rate: 0bit}}, {{at: {end}, rate: 5mbit}}]"
    said = problems(tmp_path, text.replace(FORWARD_END, f", changes: {changes}{FORWARD_END}"))
    assert said[0].endswith(f"an outage lasts 100ms to 59s, this one {lasts}")


def test_a_path_does_not_begin_with_an_outage(tmp_path: Path) -> None:
    (said, *_) = problems(tmp_path, GOOD.replace("rate: 10mbit", "rate: 0bit", 1))
    assert "'0bit' should be greater than 0" in said


def test_a_delay_that_the_path_cannot_have(tmp_path: Path) -> None:
    delayed = GOOD.replace(WHERE, WHERE + "    delay: 5ms\n")
    without = delayed[: delayed.index("path:")] + delayed[delayed.index("flows:") :]
    assert problems(tmp_path, without) == [
        "x.yml:8:5: flows.flow1.delay: the scenario has no path for the router to make longer"
    ]
    # Also one that only duplicates later, and only in the direction of the data.
    later = delayed.replace(FORWARD_END, f", changes: [{{at: 1s, duplicate: 1%}}]{FORWARD_END}")
    said = "kernels allow none on a path that duplicates packets, as forward does"
    assert problems(tmp_path, later) == [f"x.yml:11:5: flows.flow1.delay: {said}"]
    (tmp_path / "x.yml").write_text(later.replace(WHERE, WHERE + "    direction: reverse\n"))
    assert plan(tmp_path / "x.yml", inventory()).points
    flow = GOOD[GOOD.index("  flow1") :]
    many = [flow.replace("flow1", f"f{i}").replace(WHERE, f"{WHERE}    delay: {i}ms\n") for i in range(1, 17)]
    assert problems(tmp_path, GOOD + "".join(many))[0].endswith(
        "flows.f16.delay: flows have more than 15 different delays forward"
    )


def test_utilisation_by_udp_of_a_rate_that_changes(tmp_path: Path) -> None:
    """Its server's intervals tell what iperf3's UDP delivers in any window."""
    text = GOOD.replace(FORWARD_END, f", changes: [{{at: 4s, rate: 5mbit}}]{FORWARD_END}")
    text = text.replace("iperf3_tcp\n", "iperf3_udp\n    rate: 4mbit\n")
    (tmp_path / "x.yml").write_text(text + "expect: [{metric: utilisation, min: 1%, window: 0s-4s}]\n")
    (point,) = plan(tmp_path / "x.yml", inventory()).points
    assert point.expect[0].window_ns == (0, 4 * 10**9)


@pytest.mark.parametrize("word", ["no", "yes", "on", "off"])
def test_a_boolean_is_no_name(tmp_path: Path, word: str) -> None:
    asked = GOOD.replace(WHERE, f"{WHERE}    congestion_control: {word}\n", 1)
    (said,) = problems(tmp_path, asked)
    assert said.endswith(f"flows.flow1.congestion_control: {word!r} is a boolean of YAML, not a name")
    (said, *_) = problems(tmp_path, GOOD.replace("  flow1:", f"  {word}:", 1))
    assert said.endswith(f"{word!r} is a boolean of YAML, not a name")


def test_no_nic_is_as_fast(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, GOOD.replace("rate: 10mbit", "rate: 99999999gbit", 1))
    assert said.endswith("path.forward.rate: 99999999gbit is more than any NIC can send: at most 1600gbit")


def test_the_same_name_twice(tmp_path: Path) -> None:
    flow = GOOD[GOOD.index("  flow1") :]
    assert problems(tmp_path, GOOD + flow) == [
        "x.yml:12:3: flows.flow1: duplicate key, first given in line 8"
    ]
    repeated = "  flow:\n    kind: ping\n    from: sender1\n    to: receiver1\n    repeat: {count: 2}\n"
    assert problems(tmp_path, GOOD + repeated) == ["x.yml:12:3: flows.flow: another flow is called flow1"]


def test_several_problems_at_once_in_order(tmp_path: Path) -> None:
    text = GOOD.replace("10s", "soon").replace("name: probe", "name: probe\nname: other")
    text = text.replace("senders[0]", "senders[x]")
    assert [line.split(":")[1] for line in problems(tmp_path, text)] == ["2", "4", "11"]


def test_a_queue_is_refused_in_the_direction_that_says_it(tmp_path: Path) -> None:
    text = GOOD.replace("limit: 1bdp", "limit: 0packets", 1)
    assert [line.split()[1] for line in problems(tmp_path, text)] == ["path.forward.queue.limit:"]
    forward_only = text.replace(text[text.index("  reverse") : text.index("flows:")], "")
    assert [line.split()[1] for line in problems(tmp_path, forward_only)] == ["path.forward.queue.limit:"]


@pytest.mark.parametrize(
    "text", ["", "- 1", "name: &a [*a]", "\x01", "a: b: c", "duration: !!int x", "{{}: 1}", "[" * 5000]
)
def test_what_is_no_scenario_is_refused_with_a_position(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)[0].startswith("x.yml:1:")


def test_aliases_cannot_make_a_small_file_large(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [*{of}, *{of}, *{of}, *{of}, *{of}, *{of}, *{of}, *{of}]\n"
        for of, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert any("more than 100000 values" in line for line in problems(tmp_path, bomb))


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.yml:1:1: cannot be read"):
        model.load(tmp_path / "none.yml")
