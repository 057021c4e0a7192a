"""The controller of a light world: the steps of point.yml, in their order, whatever hosts say."""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load
from synthetic import inventory
from test_asked import DEFAULTS
from test_world import FLOW, scenario, virtual_inventory

from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach, Trouble
from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_json, read_jsonl, was_armed
from dumbbell.virtual.light import Controller

TASKS = Path(__file__).parents[2] / "roles/run/tasks"
LEAD_NS = 300_000_000
SETTINGS = {
    "run_lock_timeout": 900,
    "run_trim_max_us": 2000,
    "run_trim_attempts": 3,
    "run_arm_timeout": 120,
    "run_calibrate_every": 20,
    "run_start_margin": 2,
    "run_end_timeout": 45,
    "run_answer_timeout": 600,
}


class StandIn(Reach):
    """A host that notes what is done on it, and does as told at what begins with a key of ``fails``."""

    def __init__(self, own_ms: float = 0, fails: dict[str, Exception] | None = None) -> None:
        self.own_ms, self.fails = own_ms, fails or {}
        self.done: list[str] = []
        self.t0: list[int] = []
        self.states: list[dict[str, Any]] = []

    def note(self, what: str) -> None:
        self.done.append(what)
        for begin, error in self.fails.items():
            if what.startswith(begin):
                raise error

    def shell(self, line: str, stdin: bytes | None = None) -> str:
        self.note(line)
        if "ping" in line:
            return f"64 bytes: time={20 + self.own_ms:.3f} ms"
        if stdin:
            self.t0.append(json.loads(stdin)["t0_unix_ns"])
        return json.dumps({"state": "done"})

    def fetch(self, archives: Mapping[str, Path]) -> None:
        for folder in archives:
            self.note(f"fetch {folder.rpartition('/')[2]}")
        for to in archives.values():
            with tarfile.open(to, "w:gz") as tar:
                tar.addfile(tarfile.TarInfo("status.json"), io.BytesIO())

    def apply(self, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        self.note("apply")
        self.states += arguments["asked"]
        return {"changed": True, "commands": [], "diff": {}, "state": {"boot_id": "b", "kernel": "k"}}

    def start(self, unit: str, then: str) -> str:
        self.note(f"start {unit.rpartition('-')[2]}")
        return json.dumps({"state": "armed", "now_unix_ns": time.time_ns(), "lead_ns": LEAD_NS})

    def stop(self, unit: str) -> None:
        self.note(f"stop {unit.rpartition('-')[2]}")

    def reconnect(self) -> None:
        raise AssertionError("a light world has no connections")


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes when somebody sleeps, and then only."""
    now_ns = [10**18]
    monkeypatch.setattr(time, "time_ns", lambda: now_ns[0])
    monkeypatch.setattr(time, "monotonic", lambda: now_ns[0] / 1e9)
    monkeypatch.setattr(time, "sleep", lambda s: now_ns.__setitem__(0, now_ns[0] + round(s * 1e9)))


Hosts = Callable[..., Controller]


@pytest.fixture
def takes(tmp_path: Path) -> Hosts:
    """A controller that has taken a point of two flows through its steps, on these hosts."""

    def take(**hosts: StandIn) -> Controller:
        planned = plan(scenario(tmp_path, flows={"one": FLOW}), virtual_inventory())
        run = RunDir.create(planned, tmp_path / "x.yml", tmp_path / "results")
        names = [name for name in inventory().hosts if name != "archive"]
        of = inventory().hosts
        variables = {name: DEFAULTS | of[name].model_dump(mode="json") for name in names}
        controller = Controller(
            PlannedPoint(run.facts(run.executions)["points"][0]),
            {name: hosts.get(name) or StandIn() for name in names},
            variables=variables,
            routers=["router"],
            run=str(run.dir),
            settings=SETTINGS,
        )
        controller.run()
        return controller

    return take


def registered(tasks: str, within: tuple[str, ...] = ()) -> list[str]:
    """The names of a file of tasks, and of those that it includes, but for those that it is part of."""
    found: list[str] = []
    for task in yaml_load((TASKS / tasks).read_text()):
        other = task.get("ansible.builtin.include_tasks", tasks)
        found += [task["register"]] if "register" in task else []
        found += registered(other, (*within, tasks)) if other not in (*within, tasks) else []
    return found


def test_the_steps_are_those_of_the_playbook_in_its_order(takes: Hosts) -> None:
    senders = {name: StandIn(own_ms=1) for name in ("sender1", "sender2")}
    controller = takes(**senders)
    assert [*controller.said, "run_judged_point"] == registered("point.yml")


def test_every_setting_of_the_steps_is_described() -> None:
    files = ("point.yml", "own_delay.yml", "own_delay_corrected.yml")
    text = "".join((TASKS / name).read_text() for name in files)
    names = set(re.findall(r"\brun_[a-z_]+", text)) - {*registered("point.yml")}
    of_ansible = {"run_planned", "run_all", "run_dir", "run_id", "run_once"}
    of_ansible |= {"run_task_timeout", "run_influxdb", "run_judged"}
    (task,) = yaml_load((TASKS / "describe.yml").read_text())
    assert names - of_ansible == task["dumbbell.testbed.describe_host"]["settings"].keys() == SETTINGS.keys()


def test_a_point_goes_to_its_end_on_every_host(takes: Hosts) -> None:
    controller = takes()
    hosts: dict[str, StandIn] = controller.hosts  # type: ignore[assignment]
    sender = hosts["sender1"]
    assert [word for word in sender.done if word.startswith(("apply", "start"))] == [
        "apply",
        "start calibration",
        "start measurement",
    ]
    assert {tuple(host.t0) for host in hosts.values() if host.t0} == {tuple(sender.t0)}
    # In virtual time the length of an archive would shift what follows.
    assert any("calibration ended" in word for word in sender.done)
    calibration, measurement = sender.t0
    assert calibration % 10**9 == measurement % 10**9 == 0
    assert measurement >= calibration + controller.point.phase("calibration")["duration_ns"] + LEAD_NS
    assert time.time_ns() >= measurement + controller.point.phase("measurement")["duration_ns"]
    assert (controller.point.dir / "raw/sender1/measurement/status.json").exists()
    assert read_json(controller.point.dir / "reasons.json") == []
    states = [event["state"] for event in read_jsonl(controller.point.dir / "events.jsonl")]
    assert states == ["planned", "preparing", "armed", "armed", "running"]


def test_the_path_is_emulated_less_its_own_delay(takes: Hosts) -> None:
    router = StandIn()
    takes(router=router, sender1=StandIn(own_ms=3))
    assert [state["path"]["trim_us"] for state in router.states] == [0, 1500]


def test_a_host_in_trouble_ends_the_point_on_all_and_its_results_come_home(takes: Hosts) -> None:
    broken = StandIn(fails={"start measurement": Trouble("the disk is full")})
    controller = takes(receiver1=broken)
    assert read_json(controller.point.dir / "reasons.json") == ["receiver1: the disk is full"]
    hosts: dict[str, StandIn] = controller.hosts  # type: ignore[assignment]
    assert all(len(host.t0) <= 1 for host in hosts.values())
    assert "stop measurement" in hosts["sender1"].done
    assert (controller.point.dir / "raw/sender1/calibration/status.json").exists()
    assert not was_armed(controller.point.dir)


def test_what_is_whole_comes_home_although_other_files_are_lost(takes: Hosts) -> None:
    broken = StandIn(fails={"fetch measurement": Trouble("the disk is broken")})
    controller = takes(sender1=broken)
    assert read_json(controller.point.dir / "reasons.json") == ["sender1: the disk is broken"]
    raw = controller.point.dir / "raw/sender1"
    assert [(raw / of / "status.json").exists() for of in ("calibration", "measurement")] == [True, False]


def test_an_error_of_the_controller_is_a_reason(takes: Hosts, capsys: pytest.CaptureFixture[str]) -> None:
    controller = takes(sender1=StandIn(fails={"apply": KeyError("qdisc")}))
    assert read_json(controller.point.dir / "reasons.json") == ["sender1: KeyError: 'qdisc'"]
    assert "in note" in capsys.readouterr().err  # where it happened
    hosts: dict[str, StandIn] = controller.hosts  # type: ignore[assignment]
    assert not any(word.startswith("start") for host in hosts.values() for word in host.done)
