"""Modules and congestion controls of a host: nothing of an earlier run is left, whatever it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import baseline, modules, state
from hypothesis import given
from hypothesis import strategies as st

from plugins.module_utils.dumbbell_state import modules as of_modules
from plugins.module_utils.dumbbell_state.sysctls import part as sysctls_of

Setting = baseline.Setting
SHARED = "plugins.module_utils.dumbbell_modules"  # by which the parts know it
FILES = {"tcp_mine": ("p", "q"), "tcp_other": (), "sch_mine": ("p", "q")}


class Kernel:
    """Files of /proc/sys and /sys/module of a kernel that has three modules."""

    def __init__(self, place: Path) -> None:
        self.sysfs, self.files, self.sysctls = place / "module", place / "lib", place / "sys/net/ipv4"
        for folder in (self.sysfs, self.files / "kernel", self.sysctls):
            folder.mkdir(parents=True)
        (self.files / "modules.dep").write_text("".join(f"kernel/{name}.ko:\n" for name in FILES))
        for name, parameters in FILES.items():
            said = b"".join(b"\0parmtype=%s:int\0" % parameter.encode() for parameter in parameters)
            (self.files / f"kernel/{name}.ko").write_bytes(said)
        self.put("available", ["reno", "cubic"])
        self.put("allowed", ["reno", "cubic"])
        (self.sysctls / "tcp_congestion_control").write_text("cubic\n")
        self.ledger: dict[Any, Any] = {baseline.MODULES: []}
        self.record([Setting("sysctl", name) for name in state.ALWAYS])

    def words(self, which: str) -> list[str]:
        return (self.sysctls / f"tcp_{which}_congestion_control").read_text().split()

    def put(self, which: str, names: Sequence[str]) -> None:
        (self.sysctls / f"tcp_{which}_congestion_control").write_text(" ".join(names) + "\n")

    @property
    def default(self) -> str:
        return (self.sysctls / "tcp_congestion_control").read_text().strip()

    def loaded(self) -> dict[str, dict[str, str]]:
        return {
            folder.name: {file.name: file.read_text().strip() for file in (folder / "parameters").glob("*")}
            for folder in self.sysfs.iterdir()
        }

    def record(self, settings: Sequence[Any]) -> None:
        loaded = self.loaded()
        for setting in settings:
            read: dict[str, Callable[[str], Any]] = {
                "module": lambda name: True if name in loaded else None,
                "parameters": loaded.get,
                "sysctl": lambda name: (self.sysctls / name.rpartition(".")[2]).read_text().strip(),
                "sysfs": lambda file: loaded[Path(file).parts[3]][Path(file).name],
            }
            self.ledger.setdefault(setting, read[setting.kind](setting.subject))

    def take(self, command: list[str]) -> None:
        """As the kernel does; what it refuses is an error of the test."""
        if command[0] == "sysctl":
            name, _, value = command[-1].partition("=")
            if name == of_modules.CONTROL:  # tcp_set_default_congestion_control()
                assert value in self.words("available")
                self.put("allowed", list(dict.fromkeys([*self.words("allowed"), value])))
            elif name == of_modules.ALLOWED:
                assert set(value.split()) <= set(self.words("available"))
                value = " ".join(name for name in self.words("available") if name in value.split())
            (self.sysctls / name.rpartition(".")[2]).write_text(value + "\n")
        elif command[:2] == ["modprobe", "--remove"]:
            self.unload(command[2])
        elif command[0] == "modprobe":
            self.load(command[1], dict(word.split("=") for word in command[2:]))
        else:
            write = modules.WRITE.fullmatch(command[2])
            assert write is not None
            (self.sysfs / write["name"] / "parameters" / write["parameter"]).write_text(write["value"])

    def load(self, name: str, values: Mapping[str, str]) -> None:
        (self.sysfs / name / "parameters").mkdir(parents=True)
        for parameter in FILES[name]:
            file = self.sysfs / name / "parameters" / parameter
            file.write_text(values.get(parameter, "0"))
            file.chmod(0o444 if parameter == "q" else 0o644)
        if control := modules.control_of(name):
            self.put("available", [*self.words("available"), control])

    def unload(self, name: str) -> None:
        control = modules.control_of(name)
        assert control != self.default, f"modprobe: FATAL: Module {name} is in use."
        shutil.rmtree(self.sysfs / name)
        for which in ("available", "allowed"):
            self.put(which, [word for word in self.words(which) if word != control])

    def reach(self, loaded: Any = None, controls: Sequence[str] = (), default: str = "") -> None:
        """What the module point_state does with these parts."""
        asked = {
            "modules": {"loaded": loaded or {}, "controls": list(controls), "allowed": []},
            "sysctls": {of_modules.CONTROL: default} if default else {},
        }
        ledger = dict(self.ledger)
        parts = [
            of_modules.loaded(asked, ledger),
            sysctls_of(asked, ledger),
            of_modules.allowed(asked, ledger),
            of_modules.surplus(asked, ledger),
        ]
        for part in parts:
            planned = part.plan(part.read())
            touched = [setting for command in planned for setting in baseline.touched(command)]
            self.record([setting for setting in touched if setting not in self.ledger])
            modules.remember(planned, kept=True)
            for command in planned:
                self.take(command)
            modules.remember(planned)
        owned = {name: pair for part in parts for name, pair in part.owned(part.read()).items()}
        assert {name: pair for name, pair in owned.items() if pair[0] != pair[1]} == {}
        assert owned[of_modules.ALLOWED][1] == " ".join(self.words("allowed"))  # as an agent observes it
        assert [command for part in parts for command in part.plan(part.read())] == []


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        yield made(tmp_path, patch)


def made(place: Path, patch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(place)
    patch.setattr(f"{SHARED}.SYSCTLS", kernel.sysctls)
    patch.setattr(f"{SHARED}.MODULES", kernel.files)
    patch.setattr(f"{SHARED}.SYSFS", kernel.sysfs)
    patch.setattr(f"{SHARED}.GIVEN", place / "run/parameters.json")
    patch.setattr("plugins.module_utils.dumbbell_sysctl.ROOT", place / "sys")
    return kernel


def test_a_parameter_of_an_earlier_run_is_gone_when_its_module_is_asked_without(kernel: Kernel) -> None:
    kernel.reach({"sch_mine": {"p": "5"}})
    kernel.reach({"sch_mine": {}})
    assert kernel.loaded() == {"sch_mine": {"p": "0", "q": "0"}}


def test_what_a_run_gave_is_not_taken_for_as_found(kernel: Kernel) -> None:
    kernel.reach({"sch_mine": {"p": "5"}})
    kernel.reach({"sch_mine": {"p": "6"}})
    kernel.reach({"sch_mine": {}})
    assert kernel.loaded()["sch_mine"]["p"] == "0"


def test_a_control_is_there_after_a_run_that_gave_it_parameters(kernel: Kernel) -> None:
    kernel.reach({"tcp_mine": {"p": "5"}}, ["mine"])
    kernel.reach({}, ["mine"])
    assert kernel.loaded() == {"tcp_mine": {"p": "0", "q": "0"}}


def test_the_default_control_of_an_earlier_run_is_unloaded(kernel: Kernel) -> None:
    kernel.reach({"tcp_mine": {"q": "5"}}, ["mine"], "mine")
    kernel.reach({"tcp_mine": {"q": "6"}}, ["mine"], "mine")
    assert (kernel.default, kernel.loaded()["tcp_mine"]["q"]) == ("mine", "6")
    kernel.reach()
    assert (kernel.default, kernel.loaded(), kernel.words("allowed")) == ("cubic", {}, ["reno", "cubic"])


def test_a_default_control_that_no_flow_asks_for_is_allowed_as_the_kernel_does(kernel: Kernel) -> None:
    kernel.reach({}, ["other"])
    kernel.reach({}, [], "other")
    assert set(kernel.words("allowed")) == {"reno", "cubic", "other"}
    kernel.reach()
    assert set(kernel.words("allowed")) == {"reno", "cubic"}


def test_what_hosts_of_one_kernel_allow_is_not_changed_by_one_of_them(kernel: Kernel) -> None:
    kernel.reach({}, ["cubic"])
    kernel.put("allowed", ["reno", "cubic", "other"])  # for another host, whose module has come
    (kernel.sysctls / "tcp_allowed_congestion_control").chmod(0o444)
    kernel.reach({}, ["cubic"])
    assert kernel.words("allowed") == ["reno", "cubic", "other"]


def test_parameters_of_a_module_that_was_there_are_those_it_had(kernel: Kernel) -> None:
    kernel.load("sch_mine", {"p": "3", "q": "4"})
    for asked in ({"p": "5"}, {"q": "6"}, {}):
        kernel.reach({"sch_mine": asked})
        assert kernel.loaded()["sch_mine"] == {"p": "3", "q": "4"} | asked
    kernel.reach()
    assert kernel.loaded()["sch_mine"] == {"p": "3", "q": "4"}


VALUES = st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["1", "2"]))
RUNS = st.tuples(
    st.dictionaries(st.sampled_from(["tcp_mine", "sch_mine"]), VALUES),
    st.lists(st.sampled_from(["cubic", "mine"]), unique=True),
    st.booleans(),
)


@given(st.lists(RUNS, min_size=2, max_size=4))
def test_what_a_run_has_does_not_tell_which_runs_were_before(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Any]
) -> None:
    """But for modules without parameters, which may stay."""
    ends = []
    for sequence in (runs, runs[-1:]):
        with pytest.MonkeyPatch.context() as patch:
            kernel = made(tmp_path_factory.mktemp("kernel"), patch)
            for loaded, controls, mine in sequence:
                kernel.reach(loaded, controls, "mine" if mine and "mine" in controls else "")
            have = {name: values for name, values in kernel.loaded().items()}
            ends.append((have, kernel.default, set(kernel.words("allowed"))))
    (after, *rest), (alone, *same) = ends
    assert rest == same
    assert alone.items() <= after.items()
    assert all(set(after[name].values()) == {"0"} for name in after.keys() - alone.keys())
