"""The complete state of a host: what is asked, else what it was as found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import baseline, ethtool, state
from hypothesis import given
from hypothesis import strategies as st
from synthetic import inventory

from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from plugins.module_utils.dumbbell_state import qdisc
from plugins.module_utils.dumbbell_state.interface import group, parts
from plugins.module_utils.dumbbell_state.sysctls import part as sysctls_of
from plugins.module_utils.dumbbell_state.units import part as units_of

REPOSITORY = Path(__file__).parents[2]
Setting = baseline.Setting
FEATURES = """\
Features for vec1:
rx-checksumming: on
tx-checksumming: off
	tx-checksum-ipv4: off [fixed]
scatter-gather: on
	tx-scatter-gather: on
tcp-segmentation-offload: {tso}
	tx-tcp-segmentation: {tso}
	tx-tcp6-segmentation: {tso}
generic-segmentation-offload: {gso}
generic-receive-offload: {gro}
large-receive-offload: off [fixed]
tx-nocache-copy: off
"""


class Simulated(state.Host):
    """A host with sysctls, features and qdiscs of one device, which takes commands as the kernel does."""

    def __init__(self) -> None:
        super().__init__(lambda command: "", lambda command: (0, "", ""))
        self.features = {"tso": True, "gso": True, "gro": True}
        self.made: list[dict[str, Any]] = []

    def group(self, device: str, group: str) -> str:
        words = {name: "on" if value else "off" for name, value in self.features.items()}
        return FEATURES.format(**words)

    def own_qdiscs(self, device: str) -> list[dict[str, Any]]:
        return self.made

    def default_qdiscs(self, device: str) -> list[str]:
        return []

    def take(self, command: list[str]) -> None:
        if command[0] == "ethtool":
            for name, value in zip(command[3::2], command[4::2], strict=True):
                short = {"tx-tcp-segmentation": "tso", "tx-tcp6-segmentation": "tso"}.get(name, name)
                self.features[ethtool.SHORT.get(short, short)] = value == "on"
        elif command[:3] == ["tc", "qdisc", "del"]:
            self.made = []
        elif command[:3] == ["tc", "qdisc", "replace"]:
            handle, kind = command[command.index("handle") + 1], command[command.index("handle") + 2]
            self.made = [{"kind": kind, "handle": handle, "root": True, "options": {}}]
        else:
            raise AssertionError(command)


def asking(sysctls: dict[str, Any] | None = None) -> dict[str, Any]:
    """Nothing but these sysctls."""
    return {"sysctls": sysctls or {}, "modules": {"loaded": {}, "controls": [], "allowed": []}}


def reach(part: Any, take: Callable[[list[str]], None]) -> Any:
    """What a part has after its plan was carried out; every setting is then as it should be."""
    for command in part.plan(part.read()):
        take(command)
    found = part.read()
    assert {name: pair for name, pair in part.owned(found).items() if pair[0] != pair[1]} == {}
    assert part.plan(found) == []
    return found


ASKED = st.dictionaries(st.sampled_from(["tso", "gso", "gro"]), st.booleans())


@given(st.lists(ASKED, min_size=1, max_size=5))
def test_nothing_of_the_run_before_is_left_of_features(runs: list[dict[str, bool]]) -> None:
    host = Simulated()
    as_found = dict(host.features)
    ledger = {Setting("features", "vec1"): ethtool.changeable("features", host.group("vec1", "features"))}
    for asked in runs:
        part = group("vec1", "features", asked, ledger, host)
        reach(part, host.take)
        assert host.features == as_found | asked


def test_a_group_of_ethtool_is_owned_if_it_is_asked_or_was_ever_changed() -> None:
    host = Simulated()
    ledger = {Setting("rings", "vec1"): {"rx": 256}}
    names = [part.name for part in parts("vec1", {"features": {"tso": False}}, ledger, host, None)]
    assert names == ["vec1", "features of vec1", "rings of vec1"]


def test_a_feature_that_waits_for_another_is_as_it_was() -> None:
    """Without gso the kernel switches tso off, and on again with it."""
    host = Simulated()
    ledger = {Setting("features", "vec1"): ethtool.changeable("features", host.group("vec1", "features"))}
    host.group = lambda device, group: (  # type: ignore[method-assign]
        FEATURES.format(tso="off [requested on]", gso="off", gro="on")
    )
    part = group("vec1", "features", {"gso": False}, ledger, host)
    assert part.plan(part.read()) == []


class Units(state.Host):
    """A host with units of systemd."""

    def __init__(self, **active: bool) -> None:
        super().__init__(lambda command: "", lambda command: (0, self.show(command), ""))
        self.active = {name.replace("_", "."): value for name, value in active.items()}

    def show(self, command: list[str]) -> str:
        """As systemd 252 prints."""
        assert command[:3] == baseline.SHOW_UNITS
        words = {True: ("loaded", "active"), False: ("loaded", "inactive"), None: ("not-found", "inactive")}
        shown = [words[self.active.get(name)] for name in command[3:]]
        return "\n".join(f"LoadState={loaded}\nActiveState={active}\n" for loaded, active in shown)

    def take(self, command: list[str]) -> None:
        self.active[command[2]] = {"start": True, "stop": False}[command[1]]
        self.forget()


@given(st.lists(st.sets(st.sampled_from(["a.timer", "b.timer", "c.service", "lacking.timer"])), min_size=1))
def test_units_that_a_run_stops_are_active_again_after_it(runs: list[set[str]]) -> None:
    host = Units(a_timer=True, b_timer=False, c_service=True)
    ledger: dict[Any, Any] = {}

    def take(command: list[str]) -> None:
        for setting in baseline.touched(command):
            ledger.setdefault(setting, baseline.read(setting, host.execute))
        host.take(command)

    for stopped in [*runs, set()]:
        found = reach(units_of({"quiesced": sorted(stopped)}, ledger, host), take)
        assert "lacking.timer" not in found
        as_found = {"a.timer": True, "b.timer": False, "c.service": True}
        assert host.active == as_found | {name: False for name in stopped if name in as_found}


def test_a_host_whose_units_nobody_stops_needs_no_systemd() -> None:
    host = state.Host(lambda command: "", lambda command: (127, "", ""))
    part = units_of({"quiesced": []}, {}, host)
    assert part.plan(part.read()) == []


@given(st.lists(st.sampled_from(["fq", "pfifo", None]), min_size=1, max_size=5))
def test_nothing_of_the_run_before_is_left_of_a_qdisc(runs: list[str | None]) -> None:
    was = [{"kind": "fq_codel", "handle": "8001:", "root": True, "options": {}}]
    host = Simulated()
    host.made = was
    for asked in runs:
        if asked:
            host.made = [{"kind": asked, "handle": "8002:", "root": True, "options": {}}]
        else:
            reach(qdisc.part("vec1", asking(), {Setting("qdisc", "vec1"): was}, host), host.take)
            assert host.made == was


def test_a_qdisc_that_the_kernel_chose_under_another_default_is_chosen_again() -> None:
    """It has no handle, like the one as found, and would stay."""
    host = Simulated()
    ledger = {Setting("qdisc", "vec1"): [], Setting("sysctl", qdisc.DEFAULT_QDISC): "pfifo_fast"}
    host.default_qdiscs = lambda device: ["fq"]  # type: ignore[method-assign]
    part = qdisc.part("vec1", asking(), ledger, host)
    assert part.owned(part.read()) == {"qdisc of vec1": ("pfifo_fast", "fq")}
    assert [command[:3] for command in part.plan(part.read())] == [
        ["tc", "qdisc", "replace"],
        ["tc", "qdisc", "del"],
    ]
    for kind in ("pfifo_fast", "mq", "noqueue"):
        host.default_qdiscs = lambda device, kind=kind: [kind]  # type: ignore[method-assign,misc]
        assert part.plan(part.read()) == []
    part = qdisc.part("vec1", asking({qdisc.DEFAULT_QDISC: "fq"}), ledger, host)
    host.default_qdiscs = lambda device: ["fq"]  # type: ignore[method-assign]
    assert part.plan(part.read()) == []


@pytest.fixture
def sysctls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of three sysctls."""
    folder = tmp_path / "net/ipv4"
    folder.mkdir(parents=True)
    for name in ("tcp_sack", "tcp_slow_start_after_idle", "tcp_congestion_control"):
        (folder / name).write_text("1\n")
    monkeypatch.setattr("plugins.module_utils.dumbbell_sysctl.ROOT", tmp_path)
    return folder


def test_a_sysctl_that_any_run_has_set_is_owned_from_then_on(sysctls: Path) -> None:
    ledger = {Setting("sysctl", "net.ipv4.tcp_sack"): "1"}
    (sysctls / "tcp_sack").write_text("0\n")  # the run before
    part = sysctls_of(asking(), ledger)
    assert part.plan(part.read()) == [["sysctl", "-w", "net.ipv4.tcp_sack=1"]]
    assert part.owned(part.read()) == {"net.ipv4.tcp_sack": ("1", "0")}
    part = sysctls_of(asking({"net.ipv4.tcp_sack": 0}), ledger)
    assert part.plan(part.read()) == []
    part = sysctls_of(asking({"net.ipv4.tcp_none": 1}), ledger)
    with pytest.raises(ValueError, match=r"this kernel has no sysctl net\.ipv4\.tcp_none"):
        part.refuse(part.read(), [])


def test_a_sysctl_that_a_module_may_bring_is_not_refused_before_it_is_loaded(sysctls: Path) -> None:
    asked = asking({"net.ipv4.tcp_none": 1})
    asked["modules"]["loaded"] = {"no_such_module": {}}
    part = sysctls_of(asked, {})
    part.refuse(part.read(), [])
    assert part.owned(part.read()) == {"net.ipv4.tcp_none": ("1", None)}  # nor taken for reached


def test_reports_are_put_together() -> None:
    one = {"nic": {"vec1": {"mtu": 1500}}, "path": {"forward": None}}
    other = {"nic": {"vec1": {"offloads": {}}, "vec2": {}}, "path": {"reverse": None}}
    assert state.merged([one, other]) == {
        "nic": {"vec1": {"mtu": 1500, "offloads": {}}, "vec2": {}},
        "path": {"forward": None, "reverse": None},
    }


def test_the_router_gets_the_commands_that_change_the_path(tmp_path: Path) -> None:
    scenario = REPOSITORY / "tests" / "e2e" / "changing_path.yml"
    run = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results")
    before = json.loads((run.dir / "raw/router/measurement/plan.json").read_text())
    first, second, undo = ([["qdisc", "change", "dev", "x", word]] for word in ("first", "second", "undo"))
    commands = {
        "forward": {"changes": [first, second], "restore": undo},
        "reverse": {"changes": [], "restore": []},
    }
    own = state.with_path_commands(before, "router", commands)["hosts"]["router"]
    assert [(action["name"], action["commands"]) for action in own["actions"]] == [
        ("forward-1", first),
        ("forward-2", second),
    ]
    assert own["restore"] == undo
    sender = json.loads((run.dir / "raw/sender1/measurement/plan.json").read_text())
    assert state.with_path_commands(sender, "sender1", commands) == sender
