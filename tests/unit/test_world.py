"""Virtual time: what a plan may ask of it, and worlds that end well, badly or never."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from synthetic import inventory

from dumbbell.plan import Inventory, InventoryError, plan
from dumbbell.plan.describe import in_real_time
from dumbbell.plan.virtual import LIGHT_S, real_s
from dumbbell.scenario import ScenarioError
from dumbbell.virtual.world import Ended, World, run, run_all

PATH = {"forward": {"rate": "100mbit", "delay": "10ms", "queue": {"kind": "pfifo", "limit": "1bdp"}}}
FLOW = {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]", "congestion_control": "cubic"}


def virtual_inventory(*but: str) -> Inventory:
    found = inventory()
    hosts = {
        name: of if name in but else of.model_copy(update={"lab_machine": "vtime"})
        for name, of in found.hosts.items()
    }
    return found.model_copy(update={"hosts": hosts})


def scenario(folder: Path, **more: Any) -> Path:
    file = folder / "x.yml"
    asked = {"name": "x", "title": "x", "duration": "10s", "flows": {"flow": FLOW}, "path": PATH} | more
    file.write_text(json.dumps({key: value for key, value in asked.items() if value is not None}))
    return file


def test_the_plan_and_every_agent_know_that_time_is_virtual(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    assert plan(file, virtual_inventory()).virtual
    assert b'"virtual": true' in plan(file, virtual_inventory()).to_json()
    assert b"virtual" not in plan(file, inventory()).to_json()
    ids = {plan(file, of).points[0].id for of in (inventory(), virtual_inventory())}
    assert len(ids) == 1  # what is done is the same


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ({"path": None}, "path", "is needed in virtual time"),
        (
            {"path": {"forward": PATH["forward"] | {"delay": "0ms"}, "reverse": PATH["forward"]}},
            "path.forward",
            "needs a delay in virtual time",
        ),
        ({"hosts": {"senders": {"kernel": "6.12.0"}}}, "hosts.senders.kernel", "share one kernel"),
        ({"hosts": {"senders": {"modules": {"tcp_bbr": {}}}}}, "hosts.senders.modules", "ask tcp_bbr of all"),
        (
            {"flows": {"spins": FLOW | {"kind": "command", "client": ["/usr/bin/nuttcp", "-R1G"]}}},
            "flows.spins",
            "nuttcp waits by reading the clock",
        ),
    ],
)
def test_what_virtual_time_cannot_have_is_refused_at_its_key(
    tmp_path: Path, more: dict[str, Any], key: str, reason: str
) -> None:
    for flow in more.get("flows", {}).values():
        flow.pop("congestion_control", None)
    file = scenario(tmp_path, **more)
    plan(file, inventory())
    with pytest.raises(ScenarioError) as caught:
        plan(file, virtual_inventory())
    assert f": {key}: " in str(caught.value)
    assert reason in str(caught.value)


def test_a_module_of_all_hosts_is_granted(tmp_path: Path) -> None:
    file = scenario(tmp_path, hosts={"testbed": {"modules": {"tcp_bbr": {}}}})
    assert plan(file, virtual_inventory()).virtual


def test_real_time_depends_on_packets_and_on_samples(tmp_path: Path) -> None:
    def estimated_s(**more: Any) -> float:
        return real_s(plan(scenario(tmp_path, duration="100s", **more), virtual_inventory()).points) - LIGHT_S

    plain_s = estimated_s()
    packets = 100e6 * 100 / 8 / 1514
    assert packets * 100e-6 < plain_s < 1.5 * packets * 100e-6
    together = {"testbed": {"offloads": {"tso": True, "gso": True, "gro": True}}}
    assert estimated_s(hosts=together) < 0.25 * plain_s
    assert estimated_s(hosts=together, sampling={"interval": "10ms"}) > 2 * estimated_s(hosts=together)
    seldom_s = estimated_s(flows={"flow": FLOW | {"kind": "tcp"}}, sampling={"interval": "1s"})
    assert seldom_s < 0.15 * plain_s


def test_no_run_takes_0_minutes(tmp_path: Path) -> None:
    short = plan(scenario(tmp_path, flows={"flow": FLOW | {"kind": "tcp"}}), virtual_inventory())
    assert real_s(short.points) < 30
    assert "about 1 min of a core" in in_real_time(short)


def test_virtual_time_is_of_all_hosts() -> None:
    with pytest.raises(InventoryError, match="property of all hosts, and sender2 lack it"):
        _ = virtual_inventory("sender2").virtual


# Where the checkout is: no kernel has mounted it.
RUNS = "sed s,/run/checkout,., $world/command | sh"


def world(folder: Path, script: str, seed: str = "", turn_s: float = 10, stall_s: float = 60) -> World:
    """A world whose kernel is a script, which finds in ``$world`` what a kernel would."""
    kernel = folder / "kernel"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    own = "for word; do case $word in world=*) world=${word#world=} ;; esac; done"
    kernel.write_text(f"#!/bin/sh\n{own}\n{script}")
    kernel.chmod(0o755)
    return World(
        dir=folder / "world",
        kernel=kernel,
        lab=folder,
        init=folder / "init",
        command=["true", "a b", f"{folder}/c", f"x={sys.prefix}/d"],
        checkout=folder,
        writable={Path("/run/kept"): folder},
        readable={Path("/run/seen"): folder.parent},
        start_unix_ns=10**18,
        seed=seed,
        turn_s=turn_s,
        stall_s=stall_s,
    )


def test_a_world_does_what_it_is_told_and_says_how_long_it_took(tmp_path: Path) -> None:
    asked = world(tmp_path, f'echo 12.5 >$world/beat; {RUNS}; echo $? >$world/status; echo "$@"')
    ended = run(asked)
    assert (ended.status, ended.virtual_s, ended.reason) == (0, 12.5, "")
    command = "cd /run/checkout && exec true 'a b' /run/checkout/c x=/run/python/d\n"
    assert (asked.dir / "command").read_text() == command
    said = (asked.dir / "console.log").read_text()
    assert "time-travel=inf-cpu seccomp=auto time-travel-start=1000000000000000000 rng_seed=" in said


def test_a_world_finds_what_it_is_given_and_no_path_of_it(tmp_path: Path) -> None:
    script = """
        printf '%s\\n' "$@" >$world/told
        while read -r option outside at; do echo $option $(readlink $outside) $at; done <$world/mounts
    """
    asked = world(tmp_path, script)
    run(asked)
    found = (asked.dir / "console.log").read_text().splitlines()
    assert found == [
        f"overlay {tmp_path} /run/checkout",
        f"ro {sys.prefix} /run/python",
        f"ro {tmp_path} /run/lab",
        f"ro {tmp_path.parent} /run/seen",
        f"rw {tmp_path} /run/kept",
    ]
    for name in ("command", "environment", "mounts", "told"):
        assert str(tmp_path) not in (asked.dir / name).read_text()


def test_a_seed_is_all_that_tells_a_worlds_random_numbers(tmp_path: Path) -> None:
    def seed_of(name: str, seed: str) -> str:
        asked = world(tmp_path / name, 'echo "$@"', seed=seed)
        run(asked)
        return next(
            word for word in (asked.dir / "console.log").read_text().split() if word.startswith("rng_seed=")
        )

    assert seed_of("one", "1/1") == seed_of("again", "1/1") != seed_of("other", "1/2")
    assert len(seed_of("long", "1" * 100)) == len("rng_seed=") + 31  # as much as its kernel takes


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 2 >$world/status", "the world's controller ended with status 2; see "),
        ("exit 3", "the world's kernel ended with 3; see "),
        (
            "echo '[ERROR]: Task failed: no such host'; echo Origin; echo 2 >$world/status",
            "the world's controller ended with status 2: no such host; see ",
        ),
    ],
)
def test_a_world_that_ends_badly_says_where_to_look(tmp_path: Path, script: str, reason: str) -> None:
    ended = run(world(tmp_path, script))
    assert ended.reason == f"{reason}{tmp_path / 'world' / 'console.log'}"


def test_what_an_earlier_attempt_left_is_no_result(tmp_path: Path) -> None:
    run(world(tmp_path, "echo 9 >$world/beat; echo '[ERROR]: first'; echo 1 >$world/status"))
    ended = run(world(tmp_path, "exit 3"))
    assert (ended.status, ended.virtual_s) == (None, 0)
    console = tmp_path / "world" / "console.log"
    assert ended.reason == f"the world's kernel ended with 3; see {console}"
    assert console.read_text() == "[ERROR]: first\n"  # why the first attempt ended is not lost


def test_a_world_that_came_to_its_end_does_not_begin_again(tmp_path: Path) -> None:
    run(world(tmp_path, "echo 9 >$world/beat; echo 0 >$world/status"))
    ended = run(world(tmp_path, "exit 3"))
    assert (ended.status, ended.virtual_s, ended.real_s, ended.reason) == (0, 9, 0, "")


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """Ten processes compute on every core, each in a session of its own: the kernel shares by session."""
    endless = "{ nice >/proc/self/autogroup; } 2>/dev/null; while :; do :; done"  # as nice as a world
    loop = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", endless]
    loops = [
        subprocess.Popen(["taskset", "--cpu-list", str(core), *loop], start_new_session=True)
        for core in os.sched_getaffinity(0)
        for _ in range(10)
    ]
    yield
    for process in loops:
        process.kill()
        process.wait()


def test_a_world_whose_time_stands_is_ended(tmp_path: Path) -> None:
    ended = run(world(tmp_path, "echo 7 >$world/beat; exec sleep 60", stall_s=0.1))
    assert re.fullmatch("virtual time stood at 7 s for [0-9] s; what ran: nothing known", ended.reason)
    assert ended.real_s < 30


@pytest.mark.usefixtures("busy_cores")
def test_a_world_does_not_stand_because_the_machine_is_busy(tmp_path: Path) -> None:
    """Half a second of CPU time takes several of real time."""
    computes = "import time\nwhile time.process_time() < 0.5: pass"
    script = f"echo 7 >$world/beat; {sys.executable} -S -c '{computes}'; echo 0 >$world/status"
    ended = run(world(tmp_path, script, stall_s=3))
    assert ended.real_s > 3  # for which it would have stood
    assert ended.reason == ""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="cores are not shared by session")
def test_a_world_is_as_nice_as_what_runs_it(tmp_path: Path) -> None:
    """Also where cores are shared by session first."""
    script = (
        'until grep -q "nice $(nice)\\$" /proc/self/autogroup; do sleep 0.01; done; echo 0 >$world/status'
    )
    folder = tmp_path / "nice"
    runs = "import pickle, sys\nfrom dumbbell.virtual.world import run\nrun(pickle.load(sys.stdin.buffer))"
    asked = world(folder, script, stall_s=20)
    subprocess.run(["nice", "-n", "7", sys.executable, "-c", runs], input=pickle.dumps(asked), check=True)
    assert (asked.dir / "status").read_text() == "0\n"


def test_the_turn_of_what_computes_for_long_is_ended(tmp_path: Path) -> None:
    """And of nothing else: a kernel that waits with all its tasks is left to itself."""
    computes = "sh -c 'trap \"exit 0\" USR2; while :; do :; done'; echo 0 >$world/status"
    ended = run(world(tmp_path / "computes", computes, turn_s=1))
    assert (ended.reason, ended.turns_ended) == ("", 1)
    ended = run(world(tmp_path / "waits", "sleep 5; echo 0 >$world/status", turn_s=1))
    assert (ended.reason, ended.turns_ended) == ("", 0)


@pytest.mark.usefixtures("busy_cores")
def test_a_turn_is_as_long_on_a_busy_machine(tmp_path: Path) -> None:
    """What the machine's other work takes does not count: with it 0.2 s of CPU time take some seconds."""
    computes = "import time\nwhile time.process_time() < 0.2: pass"
    script = f"{sys.executable} -S -c '{computes}'; echo 0 >$world/status"
    ended = run(world(tmp_path, script, turn_s=1))
    assert ended.real_s > 1
    assert (ended.reason, ended.turns_ended) == ("", 0)


def test_worlds_run_side_by_side_each_on_a_core_of_its_own(tmp_path: Path) -> None:
    script = "taskset -cp $$ | sed 's/.*: //' >$world/beat; echo 0 >$world/status"
    ended = run_all([world(tmp_path / str(i), script) for i in range(4)])
    assert [of.reason for of in ended] == [""] * 4
    assert all(of.virtual_s.is_integer() for of in ended)  # the number of one core


def test_worlds_of_others_have_other_cores(tmp_path: Path) -> None:
    """Each notes its core while it lasts; none finds its own noted."""
    script = (
        f"core={tmp_path}/$(taskset -cp $$ | sed 's/.*: //'); mkdir $core || exit 3; sleep 0.3; rmdir $core;"
        " echo 0 >$world/status"
    )
    each = [[world(tmp_path / f"{who}{i}", script) for i in range(3)] for who in "ab"]
    with ThreadPoolExecutor(2) as two:
        ended = [of for all_of in two.map(run_all, each) for of in all_of]
    assert [of.reason for of in ended] == [""] * 6


def test_any_executor_serves(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        (ended,) = run_all([world(tmp_path, "echo 0 >$world/status")], executor)
    assert isinstance(ended, Ended)
    assert not ended.reason
