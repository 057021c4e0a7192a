"""tc_path: whatever is asked, a kernel in miniature is led to it from any state."""

import contextlib
import struct
from typing import Any

from conftest_modules import tc
from hypothesis import given
from hypothesis import strategies as st
from tc_kernel import BARE, DELAYED, DEVICES, FORWARD, SHAPED, Kernel, ask, ask_changes

from plugins.module_utils.dumbbell_tc.commands import render_line
from plugins.module_utils.dumbbell_tc.htb import parse_htb_classes

shares = st.floats(0, 1)
limits = st.integers(1, 2**31)
times = st.integers(0, 10_000_000)


def optional(**values: Any) -> Any:
    return st.fixed_dictionaries({}, optional=values)


def queue(kind: str, must: dict[str, Any], may: dict[str, Any]) -> Any:
    return st.fixed_dictionaries({"kind": st.just(kind)} | must, optional=may)


aqm = {"limit_packets": limits, "target_us": times, "ecn": st.booleans()}
queues = st.one_of(
    queue("pfifo", {"limit_packets": limits}, {}),
    queue("bfifo", {"limit_bytes": limits}, {}),
    queue("codel", {}, aqm | {"interval_us": times}),
    queue(
        "fq_codel", {}, aqm | {"interval_us": times, "quantum_bytes": limits, "memory_limit_bytes": limits}
    ),
    queue("pie", {}, aqm | {"tupdate_us": times}),
    queue("cake", {}, {"limit_bytes": limits, "flowmode": st.sampled_from(["flows", "flowblind"])}),
    queue("red", {"limit_bytes": st.integers(100, 2**31)}, {"probability": shares, "ecn": st.booleans()}),
)
losses = st.one_of(
    optional(loss=shares),
    st.fixed_dictionaries(
        {"loss_gemodel": st.fixed_dictionaries({"p": st.floats(1e-3, 1)}, optional={"r": shares})}
    ),
    st.fixed_dictionaries(
        {"loss_state": st.fixed_dictionaries({"p13": st.floats(1e-3, 1)}, optional={"p14": shares})}
    ),
)
delays = st.one_of(
    st.fixed_dictionaries({"delay_us": times}),
    st.fixed_dictionaries(
        {"delay_us": st.integers(1, 10**7), "jitter_us": st.integers(1, 10**6)},
        optional={
            "delay_correlation": shares,
            "distribution": st.sampled_from(["normal", "pareto", "paretonormal"]),
            "keep_order": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {"delay_us": st.integers(1, 10**7), "reorder": st.floats(1e-3, 1)},
        optional={"reorder_correlation": shares, "reorder_gap": st.integers(1, 9)},
    ),
)
others = optional(
    corrupt=shares,
    slot=st.fixed_dictionaries({"min_us": st.integers(1, 10**6)}, optional={"packets": st.integers(0, 99)}),
)
flow: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"dst": st.just("2001:db8::1"), "delay_us": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {
            "dst": st.sampled_from(["198.18.2.21", "198.18.2.22/32"]),
            "delay_us": st.integers(1, 9),
        },
        optional={"protocol": st.sampled_from(["tcp", "udp"]), "src": st.just("198.18.0.0/15")},
    ),
)
flows = st.lists(flow, max_size=4)
bursts = st.integers(1, 2 * 10**6)  # at the lowest rate what the kernel can store
bottlenecks = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"rate_bps": st.integers(64_000, 400 * 10**9), "queue": queues},
        optional={"burst_us": st.integers(0, 100_000), "burst_bytes": bursts},
    ),
)
policers = st.fixed_dictionaries(
    {"policer": st.fixed_dictionaries({"rate_bps": st.integers(64_000, 400 * 10**9), "burst_bytes": bursts})}
)


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


parameters = st.builds(
    merged,
    bottlenecks,
    st.one_of(st.just({}), policers),
    delays,
    losses,
    others,
    st.one_of(optional(duplicate=shares), st.builds(lambda flows: {"flows": flows}, flows)),
)
paths = st.builds(ask, parameters)
states = st.one_of(st.just(tc.ABSENT), paths)


@given(st.lists(st.tuples(st.sampled_from(["forward", "reverse"]), states), min_size=1, max_size=5))
def test_what_is_rendered_is_parsed_back_from_any_state(steps: list[tuple[str, Any]]) -> None:
    kernel, asked_last = Kernel(), {"forward": tc.ABSENT, "reverse": tc.ABSENT}
    for direction, asked in steps:
        kernel.converge(DEVICES[direction], asked)
        asked_last[direction] = asked
        for each, devices in DEVICES.items():
            found = kernel.found(devices)
            assert tc.mismatches(devices, asked_last[each], found) == {}
            assert tc.plan(devices, asked_last[each], found) == []


@given(parameters, policers, st.lists(st.tuples(policers, policers), max_size=3))
def test_a_policer_changes_in_place_and_is_left_alone_by_other_changes(
    asked: dict[str, Any], first: dict[str, Any], changes: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    now, *later = ask_changes(asked | first, [change for pair in changes for change in pair])
    kernel = Kernel()
    kernel.converge(FORWARD, now)
    roots = tc.handles(now, kernel.found(FORWARD))
    for state in later:
        commands = tc.render_change(FORWARD, state, roots, now)
        assert any("police" in command for command in commands) == (state.policer != now.policer)
        for command in commands:
            kernel.execute(command)
        assert tc.mismatches(FORWARD, state, kernel.found(FORWARD)) == {}
        now = state


@given(parameters, st.lists(st.builds(merged, delays, losses, others), max_size=4))
def test_changes_in_place_lead_to_their_states(asked: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    asked = {name: value for name, value in asked.items() if name != "distribution"}
    # What the change before asked for and does not go with this one is taken back.
    nothing = {"jitter_us": 0, "delay_correlation": 0.0, "reorder": 0.0, "reorder_correlation": 0.0}
    nothing |= {"reorder_gap": 0, "keep_order": False, "loss_correlation": 0.0}
    changes = [{k: v for k, v in (nothing | change).items() if k != "distribution"} for change in changes]
    first, *later = ask_changes(asked, changes)
    kernel = Kernel()
    roots = tc.handles(first, kernel.found(FORWARD))
    kernel.converge(FORWARD, first)
    for state in later:
        for command in tc.render_change(FORWARD, state, roots):
            kernel.execute(command)
        assert tc.mismatches(FORWARD, state, kernel.found(FORWARD)) == {}
    for command in tc.render_change(FORWARD, first, roots):
        kernel.execute(command)
    assert tc.mismatches(FORWARD, first, kernel.found(FORWARD)) == {}


def test_an_outage_closes_the_bottleneck_and_a_rate_opens_it_again() -> None:
    closed = {"rate_bps": 0, "outage": {"rate_bps": 262_136, "packet_bytes": 65_534}}
    first, *later = ask_changes(
        SHAPED | DELAYED | {"burst_bytes": 9000},
        [closed | {"at_ns": 1}, closed | {"at_ns": 2, "loss": 0.1}, {"at_ns": 3, "rate_bps": 5_000_000}],
    )
    classes = [" ".join(tc.render_change(FORWARD, state, ("1:", "1:"))[0][9:]) for state in later]
    shut = "htb rate 262136bit ceil 262136bit burst 1 cburst 1 quantum 1514 mpu 65534"
    opened = "htb rate 5000000bit ceil 5000000bit burst 9000 cburst 9000 quantum 1514"
    assert classes == [shut, shut, opened]
    assert {state.line.bands[0]["limit_packets"] for state in later} == {first.line.bands[0]["limit_packets"]}


@given(states, states)
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(one: Any, other: Any) -> None:
    kernel = Kernel()
    kernel.converge(FORWARD, one)
    found = kernel.found(FORWARD)
    assert bool(tc.plan(FORWARD, other, found)) == bool(tc.mismatches(FORWARD, other, found))


def test_only_what_is_not_in_use_yet_is_probed() -> None:
    asked = ask(SHAPED | DELAYED)
    assert set(tc.probes(asked, BARE)) == {"bottleneck", "redirection", "delay line"}
    kernel = Kernel()
    kernel.converge(FORWARD, asked)
    assert tc.probes(asked, kernel.found(FORWARD)) == {}
    longer = ask(SHAPED | {"delay_us": 20_000})
    assert set(tc.probes(longer, kernel.found(FORWARD))) == {"delay line"}


def test_an_attribute_that_the_kernel_ignores_is_found_by_the_probe() -> None:
    asked = ask(DELAYED | {"seed": 42})
    kernel = Kernel()
    kernel.add_link("lo", "loopback")
    unseeded = ask(DELAYED).line
    assert unseeded
    for command in render_line(unseeded, "lo", "1:"):
        kernel.execute(command)
    assert tc.probe_differences(asked, kernel.qdiscs) == {"netem seed": (42, None)}
    kernel.qdiscs[0]["options"]["seed"] = 42
    assert tc.probe_differences(asked, kernel.qdiscs) == {}


@given(st.binary(max_size=200))
def test_no_bytes_hang_the_netlink_parser(junk: bytes) -> None:
    with contextlib.suppress(struct.error, KeyError):
        assert len(list(parse_htb_classes(junk))) <= len(junk)
