"""What Ansible does to hosts of the virtual lab: refuse, see drift, repair it, and give a host back."""

from __future__ import annotations

import re
import subprocess
from difflib import unified_diff

import pytest
from lab import Lab
from waiting import wait_until

from playbooks import BIN, REPOSITORY, ansible_playbook, unfolded

pytestmark = pytest.mark.e2e

HOSTS = ("sender1", "router")
LIMIT = ("--limit", f"localhost,{','.join(HOSTS)}")
TIMEOUT_S = 600
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
RECAP = re.compile(r"^(\w+) .*changed=(\d+) +unreachable=0 +failed=0", re.MULTILINE)


def provision(*arguments: str) -> tuple[dict[str, int], str]:
    """Changes by host, and what was said."""
    code, said = ansible_playbook("playbooks/provision.yml", *LIMIT, *arguments, timeout_s=TIMEOUT_S)
    assert code == 0, said[-4000:]
    return {host: int(changed) for host, changed in RECAP.findall(said)}, said


def restore() -> str:
    code, said = ansible_playbook("playbooks/restore.yml", *LIMIT, timeout_s=TIMEOUT_S)
    assert code == 0, said[-4000:]
    return said


# --- the interface that carries SSH ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("link", "name=vec0 mtu=1400"),
        ("ethtool", '{"name": "vec0", "features": {"gro": false}}'),
        ("cpu", '{"irq_cpus": {"vec0": "0"}}'),
        ("tc_path", "direction=forward ingress=vec0 egress=vec1 state=absent"),
        ("tc_path", "direction=forward ingress=vec1 egress=vec0 state=absent"),
    ],
)
def test_the_interface_that_carries_ssh_is_refused(lab: Lab, module: str, arguments: str) -> None:
    before = lab.ssh("router", "ip -d link show vec0; tc qdisc show dev vec0; ethtool -k vec0")
    code, said = ansible("router", module, arguments)
    assert code != 0
    assert "vec0 carries the SSH session of this very connection and is left alone" in said
    assert lab.ssh("router", "ip -d link show vec0; tc qdisc show dev vec0; ethtool -k vec0") == before


def test_hardware_that_is_absent_is_refused_by_name(lab: Lab) -> None:
    for module, arguments, reason in (
        ("ethtool", '{"name": "vec1", "rings": {"rx": 512}}', "vec1: no rings rx"),
        ("ethtool", '{"name": "vec1", "pause": {"rx": false}}', "vec1: no pause rx"),
        ("cpu", "governor=performance", "governor performance was asked, but this host does not scale"),
    ):
        code, said = ansible("router", module, arguments)
        assert code != 0
        assert reason in said


def ansible(host: str, module: str, arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [BIN / "ansible", host, "--module-name", f"dumbbell.testbed.{module}", "--args", arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, unfolded(done.stdout)


# --- drift ----------------------------------------------------------------------------------------

DELAY_LINE = "$(tc qdisc show dev vec2 root | grep -oE 'limit [0-9]+ delay [0-9.a-z]+')"
DRIFT = {
    "an offload": ("sender1", "ethtool -K vec1 tso on", "tso: true", "tso: false"),
    "a queue length": (
        "sender1",
        "ip link set vec1 txqueuelen 500",
        "txqueuelen: 500",
        "txqueuelen: 1000",
    ),
    "a sysctl": (
        "router",
        "sysctl -qw net.ipv4.ip_forward=0",
        "net.ipv4.ip_forward: '0'",
        "net.ipv4.ip_forward: '1'",
    ),
    "a path": ("router", "tc qdisc del dev vec1 root", "delay_us: 0", "delay_us: 10000"),
    # What a change of netem does not name stays as it was: here a rate of somebody's own.
    "a rate that stuck": (
        "router",
        f"tc qdisc change dev vec2 root netem {DELAY_LINE} rate 5mbit",
        "5000000",
        "",
    ),
}


def test_drift_is_shown_and_repaired(lab: Lab) -> None:
    """All at once: a converge is dear here."""
    for host, command, _, _ in DRIFT.values():
        lab.ssh(host, command)
    changes, said = provision("--check", "--diff")
    assert changes == {"localhost": 0, "sender1": 1, "router": 1}  # the state is one task
    lines = said.splitlines()
    for name, (_, _, found, asked) in DRIFT.items():
        assert any(line.startswith("-") and found in line for line in lines), name
        assert any(line.startswith("+") and asked in line for line in lines), name
    assert "netem" not in lab.ssh("router", "tc qdisc show dev vec1")  # a check changes nothing

    provision()
    assert "tcp-segmentation-offload: off" in lab.ssh("sender1", "ethtool -k vec1")
    assert "qlen 1000" in lab.ssh("sender1", "ip link show vec1")
    assert lab.ssh("router", "sysctl -n net.ipv4.ip_forward").strip() == "1"
    assert lab.ssh("router", "tc qdisc show").count("netem") == 2
    assert "5Mbit" not in lab.ssh("router", "tc qdisc show dev vec2 root")
    changes, _ = provision()
    assert set(changes.values()) == {0}


def test_a_host_that_rebooted_is_brought_back(lab: Lab) -> None:
    before = lab.run("router", BOOT_ID).stdout
    lab.ssh("router", "systemctl --no-block reboot")
    wait_until(lambda: lab.run("router", BOOT_ID).stdout not in (b"", before))
    assert "netem" not in lab.ssh("router", "tc qdisc show")
    changes, _ = provision()
    assert changes["router"] > 0
    assert changes["sender1"] == 0
    assert lab.ssh("router", "tc qdisc show").count("netem") == 2


# --- a borrowed host ------------------------------------------------------------------------------

SNAPSHOT = """
ip -brief link | cut -d' ' -f1; ip -oneline link | grep -oE 'mtu [0-9]+|qlen [0-9]+|[<,]UP[,>]'
ip -brief address
ip route; tc qdisc show; cut -d' ' -f1 /proc/modules | sort
sysctl --all 2>/dev/null | grep -E '^net\\.(ipv4|core)\\.' | grep -vE '_(hostkey|fastopen_key)|stat|random'
systemctl list-unit-files --no-legend | sort
systemctl list-units --no-legend --plain --type=service --state=running | cut -d' ' -f1 | sort
find /etc /usr/local /var/lib/dumbbell -path /var/lib/dumbbell/runs -prune -o -type f ! -name '*-' -print \\
  2>/dev/null | sort | xargs sha256sum
getent passwd; getent group
"""
OFFLOADS = "for device in $(ls /sys/class/net); do ethtool -k $device | grep -v fixed; done"


def snapshot(lab: Lab) -> list[str]:
    """Lines that say what a host has, each with the host's name."""
    said = {host: lab.ssh(host, SNAPSHOT) + lab.ssh(host, OFFLOADS) for host in HOSTS}
    return [f"{host}: {line}" for host, text in said.items() for line in text.splitlines()]


def test_a_borrowed_host_is_given_back_as_it_was(lab: Lab) -> None:
    for host in HOSTS:  # data stays, and with it the user that owns it
        lab.ssh(host, "rm -rf /var/lib/dumbbell/runs/* /var/lib/dumbbell/stored/*")
    try:
        restore()
        found = snapshot(lab)
        assert not [line for line in found if "dumbbell" in line or "netem" in line]
        provision()
        assert {"dumbbell", "netem"} <= {word for line in snapshot(lab) for word in re.findall(r"\w+", line)}
        said = restore()
        given_back = snapshot(lab)
    finally:
        provision()
    assert list(unified_diff(found, given_back, "found", "given back", n=0, lineterm="")) == []
    for setting in (
        "link vec1",
        "features vec1",
        "qdisc vec1",
        "sysctl net.ipv4.ip_forward",
        "user dumbbell",
    ):
        assert setting in said
