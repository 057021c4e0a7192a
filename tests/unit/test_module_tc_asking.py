"""tc_path: what can be asked of a path, what is refused, and what is warned about."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import tc
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tc_kernel import DELAYED, PFIFO, SHAPED, ask, ask_changes

from plugins.module_utils.dumbbell_tc.asking import netem_limit
from plugins.module_utils.dumbbell_tc.direction import burst_bytes, burst_ticks


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rate_bps": 10**6}, "go together"),
        ({"queue": PFIFO}, "go together"),
        (SHAPED | {"delay_us": -1}, "delay_us -1 is negative"),
        (SHAPED | {"burst_us": -1}, "burst_us -1 is negative"),
        (SHAPED | {"loss": 1.01}, "loss 1.01 is no probability"),
        (SHAPED | {"rate_bps": 7}, "less than one byte"),
        (SHAPED | {"queue": {"kind": "pfifo", "limit_packets": 0}}, "no room"),
        (SHAPED | {"queue": {"kind": "pfifo"}}, "a pfifo needs limit_packets"),
        (SHAPED | {"queue": {"kind": "codel", "flows": 8}}, "a codel has no flows; it has limit_packets, "),
        (SHAPED | {"queue": {"kind": "sfq"}}, "sfq is not one of pfifo"),
        (SHAPED | {"queue": {"kind": "red", "limit_bytes": 9000, "max_bytes": 9001}}, "red needs min_bytes"),
        (DELAYED | {"loss": 0.1, "loss_gemodel": {"p": 0.1, "r": 0.2}}, "loss and loss_gemodel are models"),
        (DELAYED | {"loss_gemodel": {"r": 0.2}}, "loss_gemodel has no effect without loss_gemodel.p"),
        ({"policer": {"rate_bps": 7, "burst_bytes": 9000}}, "policer: rate_bps 7 is less than one byte"),
        ({"policer": {"rate_bps": 10**6, "burst_bytes": 0}}, "burst_bytes 0 passes nothing"),
        (
            {"policer": {"rate_bps": 10**6, "burst_bytes": 4 * 10**7}},
            "lasts 320 s at 1000000 bit/s: more than 274 s",
        ),
        ({"jitter_us": 1}, "jitter_us has no effect without delay_us"),
        ({"reorder": 0.1}, "reorder has no effect without delay_us"),
        (DELAYED | {"delay_correlation": 0.1}, "delay_correlation has no effect without jitter_us"),
        (DELAYED | {"reorder_gap": 3}, "reorder_gap has no effect without reorder"),
        (DELAYED | {"jitter_us": 1, "distribution": "cauchy"}, "cauchy is not one of normal, "),
        (DELAYED | {"reorder": 0.1, "keep_order": True}, "contradict"),
        (DELAYED | {"flows": [{"dst": "198.18.2.1", "delay_us": 1}], "duplicate": 0.1}, "exclude"),
        (DELAYED | {"flows": [{"delay_us": 1}]}, "a flow needs one of protocol, src, "),
        (DELAYED | {"flows": [{"dst": "198.18.2.1", "delay_us": 0}]}, "must be positive"),
        (DELAYED | {"flows": [{"dst_port": 80, "delay_us": 1}]}, "need its protocol"),
        (DELAYED | {"flows": [{"dst": "198.18.2.300", "delay_us": 1}]}, "198.18.2.300"),
        (DELAYED | {"flows": [{"src": "::1", "dst": "198.18.2.3", "delay_us": 1}]}, "different families"),
        (DELAYED | {"flows": [{"dst": "::1", "delay_us": i} for i in range(1, 17)]}, "16 different delays"),
    ],
)
def test_what_no_path_can_be_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ask(asked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"queue": {"kind": "bfifo", "limit_bytes": 9000}},
            "the kind of the queue cannot change from fq_codel",
        ),
        ({"queue": {"kind": "fq_codel", "flows": 8}}, "the queue's flows cannot change from 1024 to 8"),
        ({"distribution": "normal"}, "the distribution cannot change from None to normal"),
        ({"flows": [{"dst": "198.18.2.1", "delay_us": 1}]}, "the flows cannot change"),
        ({"loss": 2.0}, "no probability"),
    ],
)
def test_a_change_that_cannot_be_made_in_place_is_refused(change: dict[str, Any], words: str) -> None:
    asked = {"rate_bps": 10**6, "delay_us": 10, "queue": {"kind": "fq_codel"}}
    with pytest.raises(ValueError, match=re.escape(words)):
        ask_changes(asked, [{"at_ns": 0, "delay_us": 20}, {"at_ns": 1} | change])


def test_a_change_keeps_what_it_does_not_name() -> None:
    asked = {"rate_bps": 10**6, "delay_us": 10_000, "loss_gemodel": {"p": 0.1, "r": 0.2}, "queue": PFIFO}
    first, second, third = ask_changes(asked, [{"at_ns": 1, "rate_bps": 10**7}, {"at_ns": 2, "loss": 0.5}])
    assert (second.bottleneck.rate_bps, second.line) == (10**7, first.line)
    assert third.bottleneck == second.bottleneck
    assert (third.line.bands[0]["loss"], third.line.bands[0]["loss_gemodel.p"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("asked", "offloads", "words"),
    [
        (SHAPED, {"left": ["gro"], "right": []}, ["gro of left are on: limit_packets count super-packets"]),
        (SHAPED, {"left": [], "right": []}, []),
        ({"delay_us": 1}, {"left": ["gro"], "right": ["tso"]}, []),
        (
            {"delay_us": 1, "reorder": 0.1},
            {"left": ["gro"], "right": ["tso"]},
            ["gro of left and tso of right"],
        ),
        (DELAYED | {"jitter_us": 100}, {}, ["jitter_us reorders packets"]),
        (DELAYED | {"jitter_us": 100, "keep_order": True}, {}, []),
        (DELAYED | {"jitter_us": 10_001, "keep_order": True}, {}, ["delays are cut at 0"]),
        (SHAPED | {"queue": {"kind": "bfifo", "limit_bytes": 1513}}, {}, ["holds no packet of 1514 bytes"]),
        (SHAPED | {"queue": {"kind": "pie", "limit_packets": 1}}, {}, ["is full after 12112 us, before its"]),
        (SHAPED | {"queue": {"kind": "codel", "limit_packets": 1}}, {}, []),
    ],
)
def test_what_is_likely_not_meant_is_warned_about(
    asked: dict[str, Any], offloads: dict[str, Any], words: list[str]
) -> None:
    said = tc.warnings(ask(asked), offloads)
    assert len(said) == len(words)
    for one, part in zip(said, words, strict=True):
        assert part in one


@given(st.integers(1, 40), st.integers(10_000, 10**7))
def test_red_gets_thresholds_that_tc_takes(packets: int, rate_bps: int) -> None:
    limit = packets * 1514
    bottleneck = ask({"rate_bps": rate_bps, "queue": {"kind": "red", "limit_bytes": limit}}).bottleneck
    assert bottleneck
    queue = bottleneck.queue
    assert 0 < queue["min_bytes"] < queue["max_bytes"] <= limit
    # tc refuses a burst shorter than min / avpkt.
    assert queue["burst_packets"] + 1 - queue["min_bytes"] / queue["average_packet_bytes"] >= 1


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 10_000_000))
def test_the_delay_line_holds_all_that_the_bottleneck_lets_through(rate_bps: int, delay_us: int) -> None:
    smallest = math.floor(rate_bps / 8 * delay_us / 1e6 / 64)
    assert netem_limit(rate_bps, delay_us) > min(smallest, 2**31 - 2)


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 100_000))
def test_burst_is_a_full_packet_at_least_and_lasts_as_long_as_asked(rate_bps: int, burst_us: int) -> None:
    least = max(1514, (rate_bps // 8) * burst_us / 1e6)
    assert least - 1 <= burst_bytes(rate_bps, burst_ticks(rate_bps, burst_us)) <= least * 1.001 + 4000


def options_of_the_module() -> Iterator[tuple[str, Any]]:
    source = (Path(__file__).parents[2] / "plugins" / "modules" / "tc_path.py").read_text()
    documentation = source.partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
    for name, option in YAML(typ="safe").load(documentation)["options"].items():
        yield name, option
        for inner, suboption in option.get("suboptions", {}).items():
            yield f"{name}.{inner}", suboption


def test_every_attribute_is_documented_as_an_option_of_the_module() -> None:
    documented = {name: option["type"] for name, option in options_of_the_module()}
    for kind in tc.KINDS:
        prefix = "" if kind == "netem" else "queue."
        for name, spec in tc.arguments(kind).items():
            assert documented[prefix + name] == spec["type"]
            for inner, inside in spec.get("options", {}).items():
                assert documented[f"{name}.{inner}"] == inside["type"]
