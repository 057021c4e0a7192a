"""A host that runs points in turn has at each of them what it would have without the others."""

from __future__ import annotations

import json
import sys
from typing import Any

from programs import said_by

# Of a network of its own, which this kernel lets it change; gone with the process, like what is recorded.
APART = """\
set -e
mkdir -p /var/lib/dumbbell
for place in /var/lib/dumbbell /run; do mount -t tmpfs none "$place"; done
exec "$@"
"""
TURNS = """\
import contextlib, io, json, pathlib, runpy, sys
import ansible.module_utils.basic as basic
basic._ANSIBLE_PROFILE = "legacy"

def read():
    return {name: pathlib.Path("/proc/sys", name.replace(".", "/")).read_text().strip() for name in NAMES}

NAMES, *points = json.load(sys.stdin)
ends = [{"found": read()}]
for asked in points:
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": {"asked": [asked]}}).encode()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        runpy.run_module("plugins.modules.point_state", run_name="__main__")
    ends.append({"found": read(), "said": json.loads(said.getvalue())})
print(json.dumps(ends))
"""
# The kernel changes accept_redirects with ip_forward.
LEAK = {
    "net.ipv4.tcp_sack": "0",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.accept_redirects": "1",
}


def asked(sysctls: dict[str, str]) -> dict[str, Any]:
    return {
        "kernel": None,
        "modules": {"loaded": {}, "controls": [], "allowed": []},
        "interfaces": {},
        "quiesced": [],
        "cpu": {"governor": None, "idle_latency_max_us": None, "irq_cpus": None},
        "sysctls": sysctls,
        "path": None,
        "tcp_metrics": "flush",
    }


def in_turn(*points: dict[str, str]) -> list[dict[str, Any]]:
    """What the host has at first and after each point, and what the module says of it."""
    apart = ["unshare", "--net", "--mount", "sh", "-c", APART, "sh"]
    ends: list[dict[str, Any]] = said_by(
        [*apart, sys.executable, "-c", TURNS],
        given=json.dumps([list(LEAK), *map(asked, points)]),
        timeout_s=120,
    )
    return ends


def test_nothing_of_a_point_is_left_at_the_next_and_a_second_time_changes_nothing() -> None:
    as_found, *ends = in_turn(LEAK, LEAK, {}, {}, LEAK, {})
    assert as_found["found"] != LEAK
    for end, found in zip(
        ends, [LEAK, LEAK, *([as_found["found"]] * 2), LEAK, as_found["found"]], strict=True
    ):
        assert end["said"].get("msg", "") == ""
        assert end["found"] == found
        owned = end["said"]["state"]["owned"]
        assert {name: owned[name] for name in LEAK} == {name: [found[name]] * 2 for name in LEAK}
    assert [end["said"]["changed"] for end in ends] == [True, False, True, False, True, True]


def test_a_sysctl_that_this_kernel_does_not_have_is_refused_before_another_is_set() -> None:
    as_found, end = in_turn({"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_none": "1"})
    assert end["said"]["msg"] == "this kernel has no sysctl net.ipv4.tcp_none"
    assert end["found"] == as_found["found"]
