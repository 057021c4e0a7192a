"""Settings that nobody asks for: how they are read, and what is judged of one point."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import edit, state
from hypothesis import given
from hypothesis import strategies as st
from plan.plans import planned
from synthetic import REPOSITORY, T0_UNIX_NS

from dumbbell.compare.observed import (
    DECIDED_BY,
    Change,
    Seen,
    changes,
    differences,
    read_observed,
    unexplained,
)
from dumbbell.execution.collect import collect

POINT = planned()
TEXTS = st.dictionaries(st.text(min_size=1), st.text(min_size=1))


@given(TEXTS, TEXTS)
def test_changes_lead_from_one_reading_to_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    told = changes(before, after)
    made = dict(before)
    for name, old, new in told:
        assert made.get(name) == old != new
        made.pop(name, None)
        made |= {} if new is None else {name: new}
    assert made == after
    assert [name for name, *_ in told] == sorted({name for name, *_ in told})
    assert [Change(name, new, old) for name, old, new in changes(after, before)] == told


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "observed.json cannot be read: No such file or directory"),
        ("", "observed.json is broken: the file: Invalid JSON"),
        ("[]", "observed.json is broken: the file: "),
        ('{"before": {}}', "observed.json is broken: before.unix_ns: Field required"),
    ],
)
def test_what_is_no_reading_is_refused_in_a_sentence(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "observed.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        read_observed(file)


def write(file: Path, text: str) -> None:
    file.write_text(text)


def observed(host: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda run_dir: edit(run_dir / "raw" / host / "measurement/observed.json", change)


def both(host: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """The same in both readings."""
    return observed(host, lambda o: [change(o["before"]), change(o["after"])])


def owned(host: str, **pairs: Any) -> Callable[[Path], None]:
    return state(host, lambda s: s["owned"].update(pairs))


def sysctl_of_an_interface(value: str) -> Callable[[Path], None]:
    """One that is owned and was applied. Agents tell none of an interface that has the default, 0."""
    name = "net.ipv4.conf.vec1.rp_filter"

    def change(run_dir: Path) -> None:
        owned("sender1", **{name: [value, value]})(run_dir)
        state("sender1", lambda s: s["sysctl"].update({name: value}))(run_dir)
        both("sender1", lambda r: r["settings"].update({"net.ipv4.conf.default.rp_filter": "0"}))(run_dir)

    return change


FILE = "raw/receiver1/measurement/observed.json"
T0, END = T0_UNIX_NS["measurement"], T0_UNIX_NS["measurement"] + 30 * 10**9
CHANGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a sysctl that nobody owns": (
        observed("router", lambda o: o["after"]["settings"].update({"net.ipv4.conf.all.rp_filter": "1"})),
        "router: net.ipv4.conf.all.rp_filter changed while it measured: 0 before, 1 after",
    ),
    "a rule of nftables": (
        observed("sender1", lambda o: o["after"]["settings"].update(nftables="5f2c")),
        "sender1: nftables changed while it measured: none before, 5f2c after",
    ),
    "a setting that was not there": (
        observed("sender1", lambda o: o["after"]["settings"].update({"service firewalld": "running"})),
        "sender1: service firewalld changed while it measured: none before, running after",
    ),
    "a setting that is gone": (
        observed("sender1", lambda o: o["after"]["settings"].pop("module tcp_cubic beta")),
        "sender1: module tcp_cubic beta changed while it measured: 717 before, none after",
    ),
    "the file is missing": (
        lambda run_dir: (run_dir / FILE).unlink(),
        "receiver1: observed settings not known: observed.json cannot be read: No such file or directory",
    ),
    "the file is broken": (
        lambda run_dir: write(run_dir / FILE, '{"before"'),
        "receiver1: observed settings not known: observed.json is broken: the file: Invalid JSON",
    ),
    "the agent was killed before the second reading": (
        observed("receiver1", lambda o: o.pop("after")),
        "receiver1: observed settings not known: observed.json is broken: after: Field required",
    ),
    "nothing was read": (
        both("receiver1", lambda reading: reading["settings"].clear()),
        "receiver1: observed settings not known: none was read",
    ),
    "a setting was not read": (
        both("sender1", lambda reading: reading["unread"].update(nftables="nft: permission denied")),
        "sender1: nftables was not read: nft: permission denied",
    ),
    "a setting of the driver was not read for another reason": (
        both("sender1", lambda reading: reading["unread"].update({"vec1 eee": "permission denied"})),
        "sender1: vec1 eee was not read: permission denied",
    ),
    "another boot at the end": (
        observed("sender1", lambda o: o["after"].update(boot_id="other")),
        "sender1: the host was booted while it measured: ",
    ),
    "another boot since its state was applied": (
        state("sender1", lambda s: s.update(boot_id="other")),
        "sender1: the host was booted after its state was applied: other, ",
    ),
    "nobody said which boot": (
        state("sender1", lambda s: s.pop("boot_id")),
        "sender1: which boot of the host measured is not known: nothing was read back",
    ),
    "read after the begin": (
        observed("sender1", lambda o: o["before"].update(unix_ns=T0 + 1)),
        "sender1: the settings were read at 1 ns and 30.04 s, asked before 0 and after 30 s",
    ),
    "read before the end": (
        observed("sender1", lambda o: o["after"].update(unix_ns=END - 10**9)),
        "sender1: the settings were read at -6 s and 29 s, asked before 0 and after 30 s",
    ),
    "an owned setting is not as asked": (
        owned("router", **{"vec1 ring rx": [512, 256]}),
        "router: vec1 ring rx: asked 512, found 256",
    ),
    "an owned setting is as the point before left it": (
        owned("sender1", **{"net.ipv4.tcp_sack": ["1", "0"]}),
        "sender1: net.ipv4.tcp_sack: asked 1, found 0",
    ),
    "an owned setting was not read back": (
        owned("router", **{"vec1 ring rx": [512, None]}),
        "router: vec1 ring rx not known: it was not read back",
    ),
    "an owned setting is no pair": (
        owned("router", **{"vec1 ring rx": 512}),
        "router: vec1 ring rx not known: it was not read back",
    ),
    "what is asked is not owned": (
        state("sender1", lambda s: s["owned"].pop("net.ipv4.tcp_no_metrics_save")),
        "sender1: state.json: owned has no net.ipv4.tcp_no_metrics_save",
    ),
    "a sysctl as found is not owned": (
        state("sender1", lambda s: s["owned"].pop("net.ipv4.tcp_sack")),
        "sender1: state.json: owned has no net.ipv4.tcp_sack",
    ),
    "an owned sysctl was not read back": (
        state("sender1", lambda s: s["sysctl"].pop("net.ipv4.tcp_sack")),
        "sender1: state.json: sysctl has no net.ipv4.tcp_sack",
    ),
    "an owned sysctl of an interface is its default again": (
        sysctl_of_an_interface("1"),
        "sender1: net.ipv4.conf.vec1.rp_filter was 1 when it was read back, and 0 when the agent observed it",
    ),
    "a path is there though none is asked for": (
        owned("router", **{"path reverse": [None, {"rate_bps": 1}]}),
        "router: path reverse: asked -, found ",
    ),
    "no settings are owned": (
        state("receiver2", lambda s: s.pop("owned")),
        "receiver2: owned settings not known: state.json has none",
    ),
    "TCP metrics were not flushed": (
        state("sender2", lambda s: s.pop("tcp_metrics")),
        "sender2: the cache of TCP metrics was not flushed before the point",
    ),
    "an owned sysctl was set after it was read back": (
        both("sender1", lambda reading: reading["settings"].update({"net.ipv4.tcp_sack": "0"})),
        "sender1: net.ipv4.tcp_sack was 1 when it was read back, and 0 when the agent observed it",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_is_not_one_known_state_is_invalid(run_dir: Path, case: str) -> None:
    change, reason = CHANGED[case]
    change(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert any(told.startswith(reason) for told in verdict.reasons), verdict.reasons


def test_an_interface_that_has_the_default_may_be_asked_for_it(run_dir: Path) -> None:
    sysctl_of_an_interface("0")(run_dir)
    assert collect(run_dir, None).reasons == []


def test_no_path_is_asked_for_and_none_is_there(run_dir: Path) -> None:
    owned("router", **{"path reverse": [None, None]})(run_dir)
    assert collect(run_dir, None).reasons == []


def test_what_a_driver_does_not_have_may_be_unread(run_dir: Path) -> None:
    both("sender1", lambda o: o["unread"].update({"vec1 ring": "operation not supported"}))(run_dir)
    assert collect(run_dir, None).reasons == []


def test_runs_of_older_plans_are_judged_without(run_dir: Path) -> None:
    edit(run_dir / "plan.json", lambda p: p.update(schema_version=1))
    for file in run_dir.glob("raw/*/measurement/observed.json"):
        file.unlink()
    for host in ("router", "sender1", "sender2", "receiver1", "receiver2"):
        for key in ("owned", "cpu", "boot_id", "tcp_metrics"):
            state(host, operator.methodcaller("pop", key))(run_dir)
    assert collect(run_dir, None).reasons == []


def test_what_was_checked_is_told(run_dir: Path) -> None:
    checks = {(c.name, c.subject): c for c in collect(run_dir, None).checks}
    settings = json.loads((run_dir / FILE).read_text())["before"]["settings"]
    assert checks["observed", "receiver1"].measured == len(settings)
    assert checks["owned", "router"].measured > checks["owned", "sender1"].measured
    assert ("boot", "sender2") in checks


# `dumbbell-agent observe`, twice, in a network namespace with a pair of veth: in between rp_filter, the
# default congestion control, a route and a rule of nftables were changed. Without the machine's command line.
CAPTURED = read_observed(REPOSITORY / "tests/unit/fixtures/observed/namespace.json")


def test_what_an_agent_reads_differs_by_what_was_changed() -> None:
    assert [change.name for change in changes(CAPTURED.before.settings, CAPTURED.after.settings)] == [
        "net.ipv4.conf.all.rp_filter",
        "net.ipv4.tcp_congestion_control",
        "nftables",
        "route 198.18.2.0/24",
    ]
    assert CAPTURED.before.unread == {}


def test_every_setting_that_an_agent_reads_is_named_if_it_differs() -> None:
    """Between points of the same plan, but for what the table says."""
    settings = CAPTURED.before.settings
    one = Seen("one", POINT, {"sender1": settings}, {})
    other = Seen("other", POINT, {"sender1": dict.fromkeys(settings, "x")}, {})
    found = differences([one, other])
    assert not any(difference.because for difference in found if difference.name == "kernel release")
    same_kernel = dict.fromkeys(settings, "x") | {"kernel release": settings["kernel release"]}
    other = Seen("other", POINT, {"sender1": same_kernel}, {})
    told = {one.name for one in unexplained(differences([one, other]))}
    quiet = settings.keys() - told - {"kernel release"}
    assert all(re.match("module sch_|(route|\\S+ address) (fe80|ff00)::", name) for name in quiet), quiet
    assert quiet


def test_the_table_has_names_that_agents_use() -> None:
    names = CAPTURED.before.settings.keys()
    for row in DECIDED_BY:
        assert any(re.fullmatch(row.names, name) for name in names), row
    by_mtu = next(row for row in DECIDED_BY if row.what == "mtu")
    assert {"vec1 mtu", "vec1 gso_max_size", "qdisc vec1 root", "net.ipv6.conf.vec1.mtu"} <= {
        name for name in names if re.fullmatch(by_mtu.names, name)
    }
