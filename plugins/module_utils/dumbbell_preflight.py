"""What decides whether a host is fit for experiments: read only, and told as found."""

from __future__ import annotations

import json
import os
import pwd
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Command = list[str]
Execute = Callable[[Command], tuple[int, str, str]]
Facts = dict[str, Any]

SERVICES = (  # whose activity decides something
    *("irqbalance", "tuned", "power-profiles-daemon", "ufw", "firewalld"),
    *("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd", "ntpsec", "openntpd"),
)
FORWARDING = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
SECURE_BOOT = Path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
INTERFACES = Path("/etc/network/interfaces")  # of ifupdown
PE32_PLUS = 0x20B  # of 64 bits
CERTIFICATES = 4  # number of their entry among the data directories
LOAD_S = 0.5  # how long processes are watched


def link(name: str, links: Iterable[Mapping[str, Any]], sysfs: Path = Path("/sys/class/net")) -> Facts | None:
    """A NIC as `ip -j -d address` and sysfs tell; speed in Mbit/s. None if the host does not have it.

    The kernel tells carrier, speed and duplex only of an interface that is up.
    """
    found = next((each for each in links if each["ifname"] == name), None)
    if found is None:
        return None

    def told(file: str) -> str | None:
        try:
            return (sysfs / name / file).read_text().strip()
        except OSError:
            return None

    driver = sysfs / name / "device/driver"
    speed = told("speed")
    return {
        "up": "UP" in found["flags"],
        "carrier": {"1": True, "0": False}.get(told("carrier") or ""),
        "speed_mbps": int(speed) if speed and int(speed) > 0 else None,
        "duplex": told("duplex"),
        "driver": os.path.basename(os.readlink(driver)) if driver.is_symlink() else None,
        "mtu": found["mtu"],
        "kind": found.get("linkinfo", {}).get("info_kind"),
        "master": found.get("master"),
        "addresses": [f"{a['local']}/{a['prefixlen']}" for a in found.get("addr_info", [])],
    }


def physical(links: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the NICs: no VLANs, bridges and the like; of a container the ends of its veth."""
    return [
        each["ifname"]
        for each in links
        if each["link_type"] == "ether" and each.get("linkinfo", {}).get("info_kind") in (None, "veth")
    ]


def neighbours(known: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Addresses that answered lately, by NIC, in the output of `ip -j neighbour show`."""
    found: dict[str, list[str]] = {}
    for each in known:
        if "lladdr" in each and ":" not in each["dst"]:
            found.setdefault(each["dev"], []).append(each["dst"])
    return {name: sorted(addresses) for name, addresses in found.items()}


# Who configures a NIC


def configured_by(name: str, execute: Execute) -> list[str]:
    """The programs that configure a NIC, with the file or connection that says so."""
    status = execute(["networkctl", "--no-pager", "--lines=0", "status", name])[1]
    fields = ["nmcli", "--terse", "--fields", "DEVICE,STATE,CONNECTION", "device"]
    found = [networkd(status), network_manager(name, execute(fields)[1]), *ifupdown(name, INTERFACES)]
    return [by for by in found if by]


def networkd(status: str) -> str:
    """What `networkctl status` says of a NIC: the file by which networkd configures it, or ''."""
    told = dict(re.findall(r"^ *(Network File|State): (.+)$", status, re.MULTILINE))
    if not told.get("State", "").endswith(("(configured)", "(configuring)", "(failed)")):
        return ""
    file = told.get("Network File", "")
    return f"{'netplan' if 'netplan' in file else 'systemd-networkd'} ({file})"


def network_manager(name: str, devices: str) -> str:
    """What nmcli says of a NIC: the connection or the state in which NetworkManager has it, or ''.

    An external connection is one that others made, as Dumbbell does.
    """
    for line in devices.splitlines():
        device, _, rest = line.partition(":")
        state, _, connection = rest.partition(":")
        if device == name and state not in ("unmanaged", "unavailable", "connected (externally)"):
            return f"NetworkManager ({connection or state})"
    return ""


def ifupdown(name: str, file: Path) -> list[str]:
    """The files of ifupdown that configure a NIC: interfaces(5)."""
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(errors="replace").splitlines():
        words = line.split()
        if words[:2] == ["iface", name]:
            found.append(f"ifupdown ({file})")
        if words[:1] in (["source"], ["source-directory"]) and len(words) > 1:
            pattern = words[1] if words[0] == "source" else f"{words[1]}/*"
            base = Path("/") if pattern.startswith("/") else file.parent
            for more in sorted(base.glob(pattern.lstrip("/"))):
                found += ifupdown(name, more)
    return list(dict.fromkeys(found))


# Firewall


def firewall(execute: Execute) -> list[Facts]:
    """Chains through which the kernel sends packets, in the order of the tools, with policy and rules.

    `{"tool", "chain", "hook", "policy", "rules"}`; policy and hook in lower case.
    """
    code, out, _ = execute(["nft", "--json", "list", "ruleset"])
    found = nft_chains(json.loads(out)["nftables"]) if code == 0 and out.strip() else []
    if not found:
        found = iptables_chains(execute(["iptables-save", "--table", "filter"])[1])
    return found


def nft_chains(ruleset: Sequence[Mapping[str, Any]]) -> list[Facts]:
    """Chains with a filter hook in the output of `nft --json list ruleset`."""
    rules = [each["rule"] for each in ruleset if "rule" in each]
    return [
        {
            "tool": "nftables",
            "chain": f"{chain['family']} {chain['table']} {chain['name']}",
            "hook": chain["hook"],
            "policy": chain.get("policy", "accept"),
            "rules": sum(
                [rule[key] for key in ("family", "table")] == [chain[key] for key in ("family", "table")]
                and rule["chain"] == chain["name"]
                for rule in rules
            ),
        }
        for each in ruleset
        if (chain := each.get("chain")) and chain.get("type") == "filter" and "hook" in chain
    ]


def iptables_chains(saved: str) -> list[Facts]:
    """Chains of the kernel in the output of `iptables-save --table filter`."""
    return [
        {
            "tool": "iptables",
            "chain": f"filter {name}",
            "hook": name.lower(),
            "policy": policy.lower(),
            "rules": len(re.findall(rf"^-A {name} ", saved, re.MULTILINE)),
        }
        for name, policy in re.findall(r"^:(INPUT|FORWARD|OUTPUT) (\w+)", saved, re.MULTILINE)
    ]


# The rest of the host


def active(names: Sequence[str], execute: Execute) -> list[str]:
    """Services that run."""
    states = execute(["systemctl", "is-active", *names])[1].splitlines()
    return [name for name, state in zip(names, states) if state == "active"]  # noqa: B905  Python 3.9


def secure_boot() -> bool:
    """Whether the firmware starts signed programs only (the last byte of the variable)."""
    try:
        return SECURE_BOOT.read_bytes()[-1:] == b"\x01"
    except OSError:
        return False


def grub(execute: Execute, boot: Path = Path("/boot/grub")) -> Facts | None:
    """On what GRUB's environment lies, as grub-probe tells: `{"abstraction", "fs"}`; None without GRUB."""
    if not boot.is_dir():
        return None
    return {
        target: execute(["grub-probe", f"--target={target}", str(boot)])[1].strip()
        for target in ("abstraction", "fs")
    }


def kernels(boot: Path = Path("/boot")) -> dict[str, bool]:
    """Releases of the installed kernels, and whether they are signed for secure boot."""
    found = {}
    for file in boot.glob("vmlinuz-*"):
        try:
            with file.open("rb") as opened:
                found[file.name.partition("-")[2]] = is_signed(opened.read(4096))
        except OSError:
            continue
    return found


def is_signed(head: bytes) -> bool:
    """Whether the program for EFI that begins so has a table of certificates (PE/COFF, optional header)."""
    try:
        (header,) = struct.unpack_from("<I", head, 0x3C)
        (magic,) = struct.unpack_from("<H", head, header + 24)
        directories = header + 24 + (112 if magic == PE32_PLUS else 96)
        (size,) = struct.unpack_from("<I", head, directories + CERTIFICATES * 8 + 4)
    except struct.error:  # it is too short
        return False
    return head[:2] == b"MZ" and head[header : header + 4] == b"PE\0\0" and size > 0


def disk(paths: Sequence[str]) -> dict[str, int]:
    """Free bytes for files at these paths."""
    free = {}
    for path in paths:
        where = next(each for each in (Path(path), *Path(path).parents) if each.exists())
        stat = os.statvfs(where)
        free[path] = stat.f_bavail * stat.f_frsize
    return free


def governors(sysfs: Path = Path("/sys/devices/system/cpu")) -> list[str]:
    """Frequency governors in use; none where the host cannot choose."""
    files = sysfs.glob("cpu[0-9]*/cpufreq/scaling_governor")
    return sorted({file.read_text().strip() for file in files})


def busy(exclude: set[str]) -> list[Facts]:
    """Processes that use more than a tenth of a CPU, of users that are not excluded: `{user, name, cpus}`."""
    before = _cpu_ticks()
    time.sleep(LOAD_S)
    after = _cpu_ticks()
    per_second = os.sysconf("SC_CLK_TCK") * LOAD_S
    found = []
    for pid, (uid, name, ticks) in after.items():
        cpus = (ticks - before[pid][2]) / per_second if pid in before else 0
        user = _user(uid)
        if cpus > 0.1 and user not in exclude:  # noqa: PLR2004
            found.append({"user": user, "name": name, "cpus": round(cpus, 1)})
    return sorted(found, key=lambda each: -each["cpus"])


def _cpu_ticks() -> dict[int, tuple[int, str, int]]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            found[int(folder.name)] = (folder.stat().st_uid, name, int(fields[11]) + int(fields[12]))
        except (OSError, ValueError):  # it has ended
            continue
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def forwards(sysctl: str) -> bool:
    """Whether the host forwards by this sysctl; one without IPv6 has none for it."""
    path = Path("/proc/sys", *sysctl.split("."))
    return path.exists() and path.read_text().strip() == "1"


def read(nics: Sequence[str], links: Sequence[Mapping[str, Any]], execute: Execute) -> Facts:
    """Everything that decides, in JSON's types."""
    known = {each["ifname"] for each in links}
    return {
        "nics": {name: link(name, links) for name in nics},
        "configured_by": {name: configured_by(name, execute) for name in nics if name in known},
        "firewall": firewall(execute),
        "forwards": {sysctl: forwards(sysctl) for sysctl in FORWARDING},
        "active": active(SERVICES, execute),
        "governors": governors(),
        "secure_boot": secure_boot(),
        "grub": grub(execute),
        "kernels": kernels(),
        "free_bytes": disk(["/var/lib/dumbbell", "/tmp"]),
        "busy": busy({"root", "dumbbell", "telegraf", "influxdb", "_chrony", "chrony"}),
        "cpus": os.cpu_count(),
    }
