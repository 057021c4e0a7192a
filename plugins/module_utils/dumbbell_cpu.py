"""Files of the kernel for a host's CPU governors, idle states and interrupt affinities.

Sources: Documentation/admin-guide/pm/cpufreq.rst and cpuidle.rst, core-api/irq/irq-affinity.rst.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Files = dict[str, str]

CPUS = "sys/devices/system/cpu"
ROOT = Path("/")


def cpus(text: str) -> set[int]:
    """The CPUs in a list such as 0-3,8; ValueError if it is not a list of CPUs."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r} is no list of CPUs such as 0-3,8")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def governors(governor: str, root: Path = ROOT) -> Files:
    """Every CPU's governor file with the requested value; ValueError if the host does not have it."""
    policies = sorted((root / CPUS).glob("cpu[0-9]*/cpufreq"))
    if not policies:
        raise ValueError(
            f"governor {governor} was asked, but this host does not scale the frequency of its CPUs"
        )
    for policy in policies:
        available = (policy / "scaling_available_governors").read_text().split()
        if governor not in available:
            raise ValueError(f"no governor {governor}; this host has {', '.join(available)}")
    return {str(policy / "scaling_governor"): governor for policy in policies}


def idle_states(latency_max_us: int, root: Path = ROOT) -> Files:
    """Every idle state's file that disables it, with 1 if its exit latency is too long."""
    states = sorted((root / CPUS).glob("cpu[0-9]*/cpuidle/state[0-9]*"))
    if not states:
        raise ValueError(f"idle states of at most {latency_max_us} us were asked, but this host has none")
    return {
        str(state / "disable"): str(int(int((state / "latency").read_text()) > latency_max_us))
        for state in states
    }


def interrupts(device: str, cpu_list: str, root: Path = ROOT) -> Files:
    """The affinity files of a network interface's interrupts, with the requested CPUs."""
    asked = cpus(cpu_list)
    files = affinities(device, root)
    if not files:
        raise ValueError(f"interrupts of {device} on CPUs {cpu_list} were asked, but it has none of its own")
    there = cpus((root / CPUS / "online").read_text())
    if not asked <= there:
        raise ValueError(f"no CPUs {cpu_list}; this host has {(root / CPUS / 'online').read_text().strip()}")
    return dict.fromkeys(files, cpu_list)


def affinities(device: str, root: Path = ROOT) -> list[str]:
    """The affinity files of a network interface's interrupts."""
    # A virtio device's interrupts are listed at its parent, the PCI device.
    folders = [root / f"sys/class/net/{device}/device" / place for place in ("msi_irqs", "../msi_irqs")]
    numbers = next((sorted(map(int, names)) for names in map(_names, folders) if names), [])
    return [str(root / f"proc/irq/{number}/smp_affinity_list") for number in numbers]


def power(root: Path = ROOT) -> list[str]:
    """The CPUs' governor files, and the files that disable idle states."""
    places = ("cpu[0-9]*/cpufreq/scaling_governor", "cpu[0-9]*/cpuidle/state[0-9]*/disable")
    return [str(file) for place in places for file in sorted((root / CPUS).glob(place))]


def wanted(
    governor: str | None, idle_latency_max_us: int | None, irq_cpus: Mapping[str, str], root: Path = ROOT
) -> Files:
    """Every requested file, with its requested content; ValueError as in the functions above."""
    files = governors(governor, root) if governor else {}
    if idle_latency_max_us is not None:
        files |= idle_states(idle_latency_max_us, root)
    for device, cpu_list in irq_cpus.items():
        files |= interrupts(device, str(cpu_list), root)
    return files


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()] if folder.is_dir() else []


def read(files: Iterable[str]) -> Files:
    """The contents of files."""
    return {file: Path(file).read_text().strip() for file in files}


def mismatches(asked: Files, found: Files) -> dict[str, tuple[str, str]]:
    """File to (requested, found); lists of CPUs are equal if they name the same CPUs."""
    return {
        file: (value, found[file])
        for file, value in asked.items()
        if value != found[file]
        and not (file.endswith("smp_affinity_list") and cpus(value) == cpus(found[file]))
    }


def plan(asked: Files, found: Files) -> list[list[str]]:
    """The equivalent shell commands."""
    return [["sh", "-c", f"echo {value} >{file}"] for file, (value, _) in mismatches(asked, found).items()]


def summary(root: Path = ROOT) -> dict[str, Any]:
    """The host's current governors and idle states; null for those that it does not have."""
    governors = {
        file.read_text().strip() for file in (root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    states = {
        (state / "name").read_text().strip()
        for state in (root / CPUS).glob("cpu[0-9]*/cpuidle/state[0-9]*")
        if (state / "disable").read_text().strip() == "0"
    }
    idle = any((root / CPUS).glob("cpu[0-9]*/cpuidle/state[0-9]*"))
    return {"governors": sorted(governors) or None, "idle_states": sorted(states) if idle else None}
