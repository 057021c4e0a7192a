"""Whether a host is fit: what its tools say, and what follows from it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest_modules import FIXTURES, preflight, reach

from dumbbell.execution.preflight import (
    End,
    Ping,
    findings,
    firewall_of,
    kernel_refusal,
    not_one_shot,
    pings_of,
    unanswered,
    unreached,
)
from dumbbell.execution.words import can_run
from dumbbell.inventory.check import FORWARDING

NFT = preflight.nft_chains(json.loads((FIXTURES / "firewall/nft.json").read_text())["nftables"])
IPTABLES = preflight.iptables_chains((FIXTURES / "firewall/iptables-save").read_text())
NIC = {
    "up": True,
    "carrier": True,
    "speed_mbps": 10_000,
    "duplex": "full",
    "driver": "ixgbe",
    "mtu": 1500,
    "kind": None,
    "master": None,
    "addresses": ["198.18.1.11/24"],
}
FIT: dict[str, Any] = {
    "nics": {"eth1": NIC},
    "configured_by": {"eth1": []},
    "firewall": [],
    "forwards": {"net.ipv4.ip_forward": True, "net.ipv6.conf.all.forwarding": False},
    "active": ["chrony"],
    "governors": ["performance"],
    "secure_boot": False,
    "grub": {"abstraction": "", "fs": "ext2"},
    "free_bytes": {"/var/lib/dumbbell": 50_000_000_000, "/tmp": 5_000_000_000},
    "busy": [],
    "cpus": 8,
}


IPV4, IPV6 = FORWARDING.values()


def found(*forwarding: str, **other: Any) -> list[tuple[str, bool]]:
    return [(each.text, each.refuses) for each in findings(FIT | other, forwarding)]


def nic(**other: Any) -> dict[str, Any]:
    return {"nics": {"eth1": NIC | other}}


def test_a_fit_host_has_no_findings() -> None:
    assert found() == []
    assert found(router=True) == []


@pytest.mark.parametrize(
    ("other", "text", "refuses"),
    [
        ({"nics": {"eth1": None}}, "eth1: this host has no such interface", True),
        (nic(carrier=False, speed_mbps=None), "eth1: no carrier: check cable", True),
        (nic(duplex="half"), "eth1: half duplex", True),
        (nic(speed_mbps=None), "eth1: its driver ixgbe tells no speed", False),
        (nic(up=False, carrier=None, speed_mbps=None), "eth1: is down: provision it", False),
        (nic(master="bond0"), "eth1: is part of bond0, which is not supported", True),
        (nic(kind="vlan"), "eth1: is a vlan, which is not supported", True),
        (
            {"configured_by": {"eth1": ["ifupdown (/etc/network/interfaces)"]}},
            "eth1: ifupdown (/etc/network/interfaces) configures it too: remove it there",
            True,
        ),
        ({"active": ["chrony", "ntpsec"]}, "ntpsec sets the clock beside chrony", True),
        ({"active": ["irqbalance"]}, "irqbalance moves interrupts", False),
        ({"active": ["tuned"]}, "tuned may change the power profile", False),
        ({"governors": ["powersave"]}, "CPU governor powersave", False),
        ({"free_bytes": {"/tmp": 100_000_000}}, "100 MB are free for /tmp", True),
        ({"free_bytes": {"/tmp": 1_500_000_000}}, "1500 MB are free for /tmp", False),
        ({"busy": [{"user": "eve", "name": "cc1", "cpus": 3.5}]}, "cc1 of eve uses 3.5 CPUs", False),
        ({"secure_boot": True}, "secure boot is on", False),
        ({"grub": {"abstraction": "lvm", "fs": "ext2"}}, "keeps its kernel: /boot/grub is on LVM", False),
        (
            {"firewall": NFT},
            "nftables (inet filter input: policy drop, 4 rules) drops what it does not allow",
            False,
        ),
        (
            {"firewall": NFT, "active": ["ufw"]},
            "ufw (inet filter input: policy drop, 4 rules) drops",
            False,
        ),
    ],
)
def test_what_is_not_fit_is_named_with_what_to_do(other: dict[str, Any], text: str, refuses: bool) -> None:
    ((said, is_refused),) = found(**other)
    assert said.startswith(text), said
    assert is_refused is refuses


def test_a_router_forwards() -> None:
    assert set(preflight.FORWARDING) == {IPV4, IPV6}
    assert found(IPV4, IPV6) == [(f"forwards no packets ({IPV6} is 0): provision it", True)]
    ((text, _),) = found(IPV4, firewall=IPTABLES)
    assert text == (
        "iptables (filter FORWARD: policy drop, 1 rules) drops what it does not allow: allow the ports of "
        "flows and forwarding"
    )
    assert found(firewall=[chain for chain in IPTABLES if chain["hook"] != "input"]) == []


@pytest.mark.parametrize(
    ("grub", "word"),
    [
        ({"abstraction": "lvm", "fs": "ext2"}, "LVM"),
        ({"abstraction": "diskfilter mdraid1x", "fs": "ext2"}, "RAID"),
        ({"abstraction": "", "fs": "btrfs"}, "btrfs"),
        ({"abstraction": "", "fs": "ext2"}, ""),
        ({"abstraction": "", "fs": "xfs"}, ""),
    ],
)
def test_where_a_choice_of_grub_is_not_for_one_boot(grub: dict[str, str], word: str) -> None:
    assert bool(not_one_shot(grub)) == bool(word)
    assert word in not_one_shot(grub)


def test_a_kernel_that_the_firmware_would_not_start_is_refused() -> None:
    secure = FIT | {"secure_boot": True, "kernels": {"6.1.0-9-amd64": True, "6.12-own": False}}
    assert kernel_refusal(FIT, "6.12-own", file=True) == ""
    assert kernel_refusal(secure, "6.1.0-9-amd64", file=False) == ""
    assert kernel_refusal(secure, "6.12-new", file=False) == ""  # in check mode it is not there yet
    assert kernel_refusal(secure, "6.12-own", file=False).startswith("secure boot is on and 6.12-own is not")
    assert "a kernel from a file or recipe is not signed" in kernel_refusal(secure, "", file=True)
    assert kernel_refusal(FIT | {"grub": None}, "", file=False).startswith("it has no /boot/grub")
    assert "on LVM" in kernel_refusal(FIT | {"grub": {"abstraction": "lvm", "fs": "ext2"}}, "", file=False)


# What tools say


def test_chains_of_nftables_and_iptables() -> None:
    assert [(chain["chain"], chain["hook"], chain["policy"], chain["rules"]) for chain in NFT] == [
        ("inet filter input", "input", "drop", 4),
        ("inet filter forward", "forward", "drop", 0),
        ("inet filter output", "output", "accept", 0),
    ]
    assert [(chain["chain"], chain["policy"], chain["rules"]) for chain in IPTABLES] == [
        ("filter INPUT", "accept", 1),
        ("filter FORWARD", "drop", 1),
        ("filter OUTPUT", "accept", 0),
    ]


def test_kernels_are_signed_or_not(tmp_path: Path) -> None:
    """The heads of Debian's 6.1.0-50-cloud-amd64, which has both."""
    (tmp_path / "vmlinuz-6.1-signed").write_bytes((FIXTURES / "kernel/signed").read_bytes())
    (tmp_path / "vmlinuz-6.1").write_bytes((FIXTURES / "kernel/unsigned").read_bytes())
    (tmp_path / "vmlinuz-none").write_bytes(b"MZ")
    assert preflight.kernels(tmp_path) == {"6.1-signed": True, "6.1": False, "none": False}


def test_who_configures_a_link_by_networkd_and_network_manager() -> None:
    texts = {
        kind: (FIXTURES / f"links/networkctl-status-{kind}").read_text() for kind in ("netplan", "unmanaged")
    }
    assert preflight.networkd(texts["netplan"]) == "netplan (/run/systemd/network/10-netplan-eth1.network)"
    assert preflight.networkd(texts["unmanaged"]) == ""
    assert preflight.networkd("") == ""
    # Of NetworkManager 1.42: the first was configured by others.
    said = (
        "eth0:connected (externally):eth0\neth1:connecting (getting IP configuration):Wired connection 2\n"
        "eth2:disconnected:\neth3:unmanaged:\n"
    )
    found = {name: preflight.network_manager(name, said) for name in ("eth0", "eth1", "eth2", "eth3", "eth4")}
    assert {name: by for name, by in found.items() if by} == {
        "eth1": "NetworkManager (Wired connection 2)",
        "eth2": "NetworkManager (disconnected)",
    }


def test_interfaces_of_ifupdown(tmp_path: Path) -> None:
    own, more = tmp_path / "interfaces", tmp_path / "interfaces.d/testbed"
    more.parent.mkdir()
    own.write_text("source interfaces.d/*\n\nauto lo\niface lo inet loopback\n")
    more.write_text("allow-hotplug eth1\niface eth1 inet static\n    address 172.16.9.1/24\n")
    assert preflight.ifupdown("eth1", own) == [f"ifupdown ({more})"]
    assert preflight.ifupdown("eth2", own) == []
    assert preflight.ifupdown("eth1", tmp_path / "none") == []


def test_a_link_of_this_machine(tmp_path: Path) -> None:
    text = subprocess.run(["ip", "-j", "-d", "address", "show"], capture_output=True, text=True, check=True)
    links = json.loads(text.stdout)
    lo = preflight.link("lo", links)
    assert lo is not None
    assert (lo["driver"], lo["master"], lo["mtu"] > 0) == (None, None, True)
    assert "127.0.0.1/8" in lo["addresses"]
    assert preflight.link("none", links) is None


def test_a_process_that_works_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            busy = preflight.busy(set())
        finally:
            process.kill()
    assert any(each["name"].startswith("python") for each in busy)


# Reaching


def test_ends_are_served_once_and_tried(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], two.getsockname()[1]
    ends = [
        {"protocol": name, "address": "127.0.0.1", "from": "127.0.0.1", "port": port}
        for name, port in zip(("tcp", "udp"), ports, strict=True)
    ]
    # In a process of its own, which does not take the ports of this one along.
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); "
        "from plugins.module_utils import dumbbell_reach as reach; "
        "print(json.dumps(reach.serve(json.loads(sys.argv[2]), 20)))"
    )
    command = [sys.executable, "-c", code, str(Path(reach.__file__).parents[2]), json.dumps(ends)]
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == []
    assert reach.attempts(ends) == ["", ""]
    assert reach.attempts(ends) == ["Connection refused", "Connection refused"]


def test_an_end_that_another_program_has_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (taken,) = reach.serve([{"protocol": "tcp", "address": "127.0.0.1", "port": port}], 1)
    assert taken == f"TCP 127.0.0.1:{port}: Address already in use"


def host(address: str, *routes: dict[str, str], mtu: int = 1500, **more: str) -> dict[str, Any]:
    interfaces = {"left": {"device": "eth1", "address": address, "mtu": mtu}}
    interfaces |= {
        side: {"device": f"eth-{side}", "address": each, "mtu": mtu} for side, each in more.items()
    }
    return {"interfaces": interfaces, "routes": list(routes)}


HOSTS = {
    "s1": host("198.18.1.11/24", {"to": "198.18.2.0/24", "via": "198.18.1.1"}, mtu=9000),
    "r1": host("198.18.2.21/24", {"to": "198.18.1.0/24", "via": "198.18.2.1"}),
    "router": host("198.18.1.1/24", right="198.18.2.1/24", mtu=9000),
}
NEAR = Ping("eth1", "router", "198.18.1.1", 9000, True)
FAR = Ping("eth1", "r1", "198.18.2.21", 1500, False)


def test_hosts_ping_their_neighbours_and_their_peers_with_whole_packets() -> None:
    found = pings_of("s1", ["r1", "router"], HOSTS)
    assert found == [FAR, NEAR, Ping("eth1", "router", "198.18.2.1", 9000, False)]
    assert [(p.device, p.host, p.neighbour) for p in pings_of("router", ["s1", "r1"], HOSTS)] == [
        ("eth1", "s1", True),
        ("eth-right", "r1", True),
    ]


def test_what_follows_from_pings() -> None:
    fine: dict[str, Any] = {"error": "", "lladdr": "02:db:00:00:00:01"}
    assert list(unanswered([NEAR, FAR], [fine, fine])) == []
    wrong = [{"error": "no answer", "lladdr": None}, {"error": "message too long, mtu=1400", "lladdr": None}]
    cabling, size = unanswered([NEAR, FAR], wrong)
    assert cabling.refuses
    assert cabling.text.startswith("eth1: router (198.18.1.1) does not answer there: check cabling")
    assert size.text.startswith(
        "eth1: packets of 1500 bytes that may not be fragmented do not return from r1"
    )
    assert "mtu=1400" in size.text


END = End("s1", "r1", "udp", "198.18.1.11", "198.18.2.21", 5201)


def test_who_may_drop_packets_is_named() -> None:
    facts = {"r1": FIT | {"firewall": NFT}, "router": FIT | {"firewall": IPTABLES}}
    assert list(unreached([(END, "")], facts, {}, ["router"])) == []
    (one,) = unreached([(END, "no answer")], facts, {}, ["router"])
    assert one.refuses
    assert one.text == (
        "UDP 198.18.2.21:5201 of r1 is not reached (no answer); allow it in the firewall: "
        "r1: nftables (inet filter input: policy drop, 4 rules); "
        "router: iptables (filter FORWARD: policy drop, 1 rules)"
    )
    (none,) = unreached([(END, "no answer")], {"r1": FIT, "router": FIT}, {}, ["router"])
    assert none.text.endswith("(no answer); no firewall was found on r1, router")
    (archive,) = unreached([(END._replace(server="a"), "no answer")], facts, {}, ["router"])
    assert archive.text.endswith("look whether a listens there (provision it), and at its firewall")
    (taken,) = unreached(
        [(END, "Connection refused")], facts, {"r1": ["UDP 198.18.2.21:5201: Address already in use"]}, []
    )
    assert taken.text == "UDP 198.18.2.21:5201 of r1 is in use by another program there: end it, or wait"
    assert firewall_of(FIT, forwards=False) == ""


def test_the_answer_says_yes_or_no_for_each_host() -> None:
    assert can_run("x.yml", {"sender1": [], "router": ["no netem"]}, {"sender1": ["irqbalance"]}, {}) == (
        "this testbed cannot run x.yml:\nsender1: yes\n  note: irqbalance\nrouter: no\n  no netem"
    )
    assert can_run("x.yml", {"sender1": [], "router": []}, {}, {"router": "6.12"}) == (
        "every host can run x.yml; router is to boot 6.12 first, and what that kernel has shows then\n"
        "sender1: yes\nrouter: yes"
    )
