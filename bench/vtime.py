"""Measure virtual time: how much of it passes in a second of a core, for a flow that fills 100 Mbit/s.

Each profile of bench/vtime.yml is run in a world of its own, one after the other. Writes bench/vtime.json, or
bench/vtime_PROFILE.json of each profile that is named.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dumbbell.run.record import read_json, read_jsonl
from tools.bench import Row, publish

SCENARIO = Path("bench/vtime.yml")
TARGET = Path("bench")
RESULTS = Path("results/latest")
PROFILES = ["offloads_on", "offloads_on_each_second", "offloads_off"]
OFFLOADS_ON_RATIO = ">= 12"


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profiles", nargs="*")
    named = parser.parse_args().profiles
    for profile in named:
        publish(list(measured(profile)), TARGET / f"vtime_{profile}.json")
    if not named:
        publish([row for profile in PROFILES for row in measured(profile)], TARGET / "vtime.json")
    return 0


def measured(profile: str) -> Iterator[Row]:
    """One run, as its world tells, and its verdict."""
    subprocess.run(
        [
            *("ansible-playbook", "-i", "inventory/vtime", "playbooks/virtual.yml"),
            *("-e", f"scenario={SCENARIO}", "-e", f"profile={profile}"),
        ],
        check=True,
        stdout=sys.stderr,
    )
    run_dir = RESULTS.resolve()
    with (run_dir / "world" / "time.csv").open() as file:
        times = [(float(row["real_s"]), float(row["virtual_s"])) for row in csv.DictReader(file)]
    (flow,) = read_json(run_dir / "plan.json")["points"][0]["phases"][-1]["flows"]
    duration_s = flow["duration_ns"] / 1e9
    start = read_jsonl(run_dir / "raw" / flow["src_host"] / "measurement" / "events.jsonl")[0]
    began_s = (
        start["mono_ns"]
        + read_json(run_dir / "manifest.json")["t0_unix_ns"]["measurement"]
        - start["unix_ns"]
    ) / 1e9
    flowing = [(real, virtual) for real, virtual in times if began_s <= virtual <= began_s + duration_s]
    (real_from, virtual_from), (real_to, virtual_to) = flowing[0], flowing[-1]
    real_s, virtual_s = times[-1]
    size = sum(file.stat().st_size for file in run_dir.rglob("*") if file.is_file())
    target = OFFLOADS_ON_RATIO if profile.startswith("offloads_on") else None
    while_it_lasts = (virtual_to - virtual_from) / (real_to - real_from)
    yield Row(f"{profile}: virtual / real while the flow lasts", while_it_lasts, "x", target=target)
    yield Row(f"{profile}: length of the flow", duration_s, "s")
    yield Row(f"{profile}: virtual / real, the whole world", virtual_s / real_s, "x")
    yield Row(f"{profile}: real time of the world", real_s, "s")
    yield Row(f"{profile}: size of the run", size / 1e6, "MB")


if __name__ == "__main__":
    sys.exit(main())
