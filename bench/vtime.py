"""Measure virtual time: how much of it passes in a second of a core, for a flow that fills its path.

Each profile of bench/vtime.yml is run on each kernel in turn, several times if a speed is asked of it;
eight_hours once, on the first kernel. Each run has a world of its own. Other work of the machine lengthens
real time, so CPU time is told beside it. Writes bench/vtime.json, or bench/vtime_PROFILE.json of each
profile that is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from dumbbell.run.record import read_json, read_jsonl
from tools.bench import Row, publish, world_times

SCENARIO = Path("bench/vtime.yml")
TARGET = Path("bench")
RESULTS = Path("results/latest")
KERNELS = ["linux-7.2", "lab"]  # recipes in kernels/; the first is the default
SPEEDS = {"tcp_on": ">= 60", "tcp_off": ">= 25", "gigabit_on": ">= 15", "gigabit_off": ">= 1"}
ROUNDS = 3  # of a profile with a goal
SPEED, WHOLE = "virtual / real while the flow lasts", "real time of the command, with the report"
GOALS = {(profile, SPEED): speed for profile, speed in SPEEDS.items()} | {("eight_hours", WHOLE): "<= 900"}
PROFILES = [*SPEEDS, "offloads_on", "offloads_on_each_second", "offloads_off"]


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profiles", nargs="*")
    named = parser.parse_args().profiles
    for profile in named:
        publish(of_kernels(profile), TARGET / f"vtime_{profile}.json")
    if not named:
        publish([row for profile in PROFILES for row in of_kernels(profile)], TARGET / "vtime.json")
    return 0


def of_kernels(profile: str) -> list[Row]:
    """Medians of the runs on each kernel, which take turns."""
    kernels = KERNELS[:1] if profile == "eight_hours" else KERNELS
    rounds = [
        [measured(profile, kernel) for kernel in kernels] for _ in range(ROUNDS if profile in SPEEDS else 1)
    ]
    return [
        Row.median(
            f"{kernel}, {profile}: {name}",
            [run[name][0] for run in runs],
            runs[0][name][1],
            GOALS.get((profile, name)) if kernel == KERNELS[0] else None,
        )
        for kernel, runs in zip(kernels, zip(*rounds, strict=True), strict=True)
        for name in runs[0]
    ]


def measured(profile: str, kernel: str) -> dict[str, tuple[float, str]]:
    """Values and their units of one run, by name, as its world tells."""
    began = time.monotonic()
    subprocess.run(
        [
            *("ansible-playbook", "-i", "inventory/vtime", "playbooks/virtual.yml"),
            *("-e", f"scenario={SCENARIO}", "-e", f"profile={profile}"),
            *("-e", f"lab_world_kernel=kernels/{kernel}.yml"),
        ],
        check=True,
        stdout=sys.stderr,
    )
    whole_s = time.monotonic() - began
    run_dir = RESULTS.resolve()
    times = world_times(run_dir)
    (flow,) = read_json(run_dir / "plan.json")["points"][0]["phases"][-1]["flows"]
    duration_s = flow["duration_ns"] / 1e9
    start = read_jsonl(run_dir / "raw" / flow["src_host"] / "measurement" / "events.jsonl")[0]
    began_s = (
        start["mono_ns"]
        + read_json(run_dir / "manifest.json")["t0_unix_ns"]["measurement"]
        - start["unix_ns"]
    ) / 1e9
    flowing = [at for at in times if began_s <= at[1] <= began_s + duration_s]
    real_s, virtual_s, cpu_s = (to - of for of, to in zip(flowing[0], flowing[-1], strict=True))
    whole_real_s, whole_virtual_s, whole_cpu_s = times[-1]
    size = sum(file.stat().st_size for file in run_dir.rglob("*") if file.is_file())
    return {
        SPEED: (virtual_s / real_s, "x"),
        "virtual / CPU time while the flow lasts": (virtual_s / cpu_s, "x"),
        "length of the flow": (duration_s, "s"),
        "virtual / real, the whole world": (whole_virtual_s / whole_real_s, "x"),
        "real time of the world": (whole_real_s, "s"),
        "CPU time of the world": (whole_cpu_s, "s"),
        WHOLE: (whole_s, "s"),
        "size of the run": (size / 1e6, "MB"),
    }


if __name__ == "__main__":
    sys.exit(main())
