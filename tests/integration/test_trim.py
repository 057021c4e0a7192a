"""The path's own delay is measured as often as it has to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbooks import ansible_playbook, put_first

HOSTS = "all: {children: {senders: {hosts: {sender1: }}, routers: }}\n"
# Each time it measures the next of these round trips, in ms.
PING = """\
#!/bin/sh
echo "64 bytes from $7: icmp_seq=1 ttl=63 time=$(sed -n "1p" {rtts}) ms"
sed -i 1d {rtts}
"""


def measure(run_dir: Path, hosts: Path) -> str:
    """What is said while the path's own delay is measured."""
    code, said = ansible_playbook(
        *("-i", hosts, "tests/integration/playbooks/path.yml"),
        *("-e", "ansible_connection=local", "-e", "ansible_python_interpreter=/usr/bin/python3"),
        *("-e", f"run_dir={run_dir}", "-e", "rtt_ns=20000000"),
    )
    assert code == 0, said
    return said


@pytest.mark.parametrize(
    ("rtts_ms", "subtracted_us"),
    [
        pytest.param(["20.1"], 0, id="a path that is as asked"),
        pytest.param(["20.9", "20.0"], 450, id="a path that is longer than asked"),
        pytest.param(["21.6", "19.0", "19.9"], 300, id="a host that was busy at first"),
    ],
)
def test_it_stops_when_the_round_trip_is_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rtts_ms: list[str], subtracted_us: int
) -> None:
    hosts, rtts = tmp_path / "hosts.yml", tmp_path / "rtts"
    hosts.write_text(HOSTS)
    put_first(monkeypatch, tmp_path / "bin/ping", PING.format(rtts=rtts))
    rtts.write_text("\n".join([*rtts_ms, *["20.0"] * 3]) + "\n")
    said = measure(tmp_path, hosts)
    assert rtts.read_text() == "20.0\n" * 3, said  # none was measured beyond those
    assert f"subtracted: {subtracted_us}" in said


# It says from when to when it measured, and which host it asked.
NOTES = """\
#!/bin/sh
begin=$(date +%s.%N)
sleep 0.5
echo "64 bytes from $6: icmp_seq=1 ttl=63 time=20.0 ms"
echo "$begin $(date +%s.%N)" >>{notes}
"""


def test_senders_measure_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, notes = tmp_path / "hosts.yml", tmp_path / "notes"
    hosts.write_text(HOSTS.replace("sender1: ", "sender1: , sender2: "))
    put_first(monkeypatch, tmp_path / "bin/ping", NOTES.format(notes=notes))
    measure(tmp_path, hosts)
    first, second = sorted([float(at) for at in line.split()] for line in notes.read_text().splitlines())
    assert first[1] < second[0]
