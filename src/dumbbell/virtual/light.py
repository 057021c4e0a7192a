"""The controller of a light world: takes one point through its steps, as ``roles/run/tasks/point.yml`` does.

It runs inside the world, in one process with one thread. Hosts do each step one after the other, because
waiting takes no real time there.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dumbbell.execution import steps
from dumbbell.execution.answers import Answer
from dumbbell.execution.on_host import PointOnHost
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach, Trouble
from dumbbell.run.record import read_json, record_state
from dumbbell.virtual import GIVEN

Step = Callable[[PointOnHost], dict[str, Any]]


class Controller:
    """Takes a point through its steps and keeps the hosts' answers.

    ``variables`` has each host's variables of the inventory, ``routers`` the names of the routers, ``run`` is
    the run's directory, and ``settings`` has the variables ``run_*`` of the role ``run``.
    """

    def __init__(
        self,
        point: PlannedPoint,
        hosts: Mapping[str, Reach],
        *,
        variables: Mapping[str, Mapping[str, Any]],
        routers: Sequence[str],
        run: str,
        settings: Mapping[str, Any],
    ) -> None:
        self.point, self.hosts = point, hosts
        self.variables, self.routers, self.run_dir, self.settings = variables, routers, run, settings
        self.said: dict[str, dict[str, Answer]] = {}

    def run(self) -> None:
        """Take the point to its end; its errors are reasons in the point's directory."""
        of, run = self.settings, self.run_dir
        self._each("run_stated", lambda on: self._state(on, None))
        self._own_delay(self._those("run_stated", "trims"))
        every = of["run_calibrate_every"]
        self._each(
            "run_armed", lambda on: steps.arm(on, run=run, timeout_s=of["run_arm_timeout"], every=every)
        )
        calibrating = self._those("run_armed", "calibrates")
        self._each("run_calibrating", lambda on: self._start(on, "calibration", ["run_armed"]), calibrating)
        self._each(
            "run_turned",
            lambda on: steps.turn(
                on, end_timeout_s=of["run_end_timeout"], arm_timeout_s=of["run_arm_timeout"]
            ),
            calibrating,
        )
        self._each("run_measuring", lambda on: self._start(on, "measurement", ["run_turned", "run_armed"]))
        self._each(
            "run_ended",
            lambda on: steps.end(
                on,
                self._follow,
                end_timeout_s=of["run_end_timeout"],
                answer_timeout_s=of["run_answer_timeout"],
            ),
        )
        first = next(iter(self.hosts))
        steps.judge(self._on(first), run=run, influxdb=None, judged=False)

    def _own_delay(self, hosts: Sequence[str]) -> None:
        """Measure the path's own delay and subtract it, until the round trip is as requested."""
        of, run = self.settings, self.run_dir
        while hosts:
            self._each("run_pinged", steps.ping, hosts)
            self._each(
                "run_trimmed",
                lambda on: steps.trim(
                    on, run=run, max_us=of["run_trim_max_us"], attempts=of["run_trim_attempts"]
                ),
                hosts,
            )
            trims = {host: self.said["run_trimmed"][host].get("trim", {}) for host in hosts}
            changed = [host for host in hosts if trims[host].get("changed") and host in self.routers]
            self._each("run_restated", self._restate, changed)
            hosts = [host for host in hosts if trims[host].get("again")]

    def _state(self, on: PointOnHost, trim_us: int | None) -> dict[str, Any]:
        return steps.state(
            on,
            lambda: self.variables[on.host],
            run=self.run_dir,
            hold_s=self.settings["run_lock_timeout"],
            trim_us=trim_us,
            pack=[],
        )

    def _restate(self, on: PointOnHost) -> dict[str, Any]:
        return self._state(on, self.said["run_trimmed"][on.host]["trim"]["trim_us"])

    def _follow(self, t0_unix_ns: int) -> str:
        """Wait until the agents of all hosts have ended.

        Before that, nothing is fetched: archives contain dates, so they have other lengths in each run,
        and the work of unpacking them would shift what the last flows do.
        """
        _sleep_until(t0_unix_ns)
        record_state(self.point.dir, "running", "measurement")
        _sleep_until(t0_unix_ns + self.point.phase("measurement")["duration_ns"])
        for host in self.hosts:
            if self.point.takes_part(host, "measurement"):
                with suppress(Trouble):  # the step that fetches its files reports it
                    self._on(host).await_end("measurement", self.settings["run_end_timeout"], packed=True)
        return ""

    def _start(self, on: PointOnHost, phase: str, armed_by: Sequence[str]) -> dict[str, Any]:
        return steps.start(on, phase=phase, armed_by=armed_by, margin_s=self.settings["run_start_margin"])

    def _each(self, name: str, step: Step, hosts: Iterable[str] | None = None) -> None:
        """Have hosts do a step, one after the other, and keep their answers under a name.

        A host does not see the others' answers to this step yet: every host decides from the same ones.
        """
        print(name, flush=True)
        answers = {
            host: self._answer(self._on(host), step) for host in (self.hosts if hosts is None else hosts)
        }
        self.said.setdefault(name, {}).update(answers)

    def _answer(self, on: PointOnHost, step: Step) -> dict[str, Any]:
        trouble = ""
        try:
            return {"trouble": "", "run_id": self.point.run_id} | step(on)
        except Trouble as error:
            trouble = str(error)
        except Exception as error:  # the other hosts' results must come home
            traceback.print_exc()
            trouble = f"{type(error).__name__}: {error}"
        print(f"{on.host}: {trouble}", flush=True)
        return {"trouble": trouble, "run_id": self.point.run_id}

    def _on(self, host: str) -> PointOnHost:
        return PointOnHost(
            point=self.point,
            host=host,
            hosts=list(self.hosts),
            reach=self.hosts[host],
            registered=lambda name: self.said.get(name, {}),
            tell=print,
        )

    def _those(self, step: str, key: str) -> list[str]:
        return [host for host, answer in self.said[step].items() if answer.get(key)]


def _sleep_until(unix_ns: int) -> None:
    time.sleep(max(0, unix_ns - time.time_ns()) / 1e9)


def main(world: Path) -> None:
    """Run the point that is described in a world's directory."""
    from dumbbell.virtual.namespaces import Namespaces  # noqa: PLC0415

    given = read_json(world / GIVEN)
    point = PlannedPoint(given.pop("point"))
    hosts: dict[str, Reach] = {
        name: Namespaces(
            name,
            {
                "net": Path("/run/netns", name),
                "uts": Path("/run/hosts", name, "uts"),
                "mnt": Path("/run/hosts", name, "mnt"),
            },
            Path("/sys/fs/cgroup", name),
            world / f"{name}.log",
        )
        for name in given["variables"]
    }
    Controller(point, hosts, **given).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
