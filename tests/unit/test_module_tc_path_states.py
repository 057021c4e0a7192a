"""tc_path: whatever is asked, its commands lead there from any state."""

import math
from typing import Any

from conftest_modules import tc
from hypothesis import given
from hypothesis import strategies as st
from tc_kernel import DEVICES, FORWARD, Kernel, ask, ask_changes

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
bottlenecks = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"rate_bps": st.integers(64_000, 400 * 10**9), "queue": queues},
        optional={"burst_us": st.integers(0, 100_000)},
    ),
)


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


parameters = st.builds(
    merged,
    bottlenecks,
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


@given(states, states)
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(one: Any, other: Any) -> None:
    kernel = Kernel()
    kernel.converge(FORWARD, one)
    found = kernel.found(FORWARD)
    assert bool(tc.plan(FORWARD, other, found)) == bool(tc.mismatches(FORWARD, other, found))


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 10_000_000))
def test_the_delay_line_holds_all_that_the_bottleneck_lets_through(rate_bps: int, delay_us: int) -> None:
    smallest = math.floor(rate_bps / 8 * delay_us / 1e6 / 64)
    assert tc.netem_limit(rate_bps, delay_us) > min(smallest, 2**31 - 2)


@given(st.integers(64_000, 400 * 10**9), st.integers(0, 100_000))
def test_burst_is_a_full_packet_at_least_and_lasts_as_long_as_asked(rate_bps: int, burst_us: int) -> None:
    least = max(1514, (rate_bps // 8) * burst_us / 1e6)
    assert least - 1 <= tc.burst_bytes(rate_bps, tc.burst_ticks(rate_bps, burst_us)) <= least * 1.001 + 4000
