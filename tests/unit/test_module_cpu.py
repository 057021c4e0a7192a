"""cpu on a tree of the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest_modules import cpu
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two CPUs with two governors and two idle states, and a NIC with two interrupts."""

    def put(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    put(f"{cpu.CPUS}/online", "0-1")
    for number in (0, 1):
        folder = f"{cpu.CPUS}/cpu{number}"
        put(f"{folder}/cpufreq/scaling_available_governors", "performance powersave")
        put(f"{folder}/cpufreq/scaling_governor", "powersave")
        for state, (name, latency) in enumerate([("POLL", 0), ("C6", 133)]):
            put(f"{folder}/cpuidle/state{state}/name", name)
            put(f"{folder}/cpuidle/state{state}/latency", str(latency))
            put(f"{folder}/cpuidle/state{state}/disable", "0")
    for irq in (40, 41):
        put(f"sys/class/net/eth1/device/msi_irqs/{irq}", "msix")
        put(f"proc/irq/{irq}/smp_affinity_list", "0,1")
    return tmp_path


def test_all_is_written_and_read_back(root: Path) -> None:
    asked = cpu.governors("performance", root) | cpu.idle_states(2, root) | cpu.interrupts("eth1", "1", root)
    commands = cpu.plan(asked, cpu.read(asked))
    assert len(commands) == 2 + 2 + 2  # governors, C6, interrupts
    for *_, text in commands:
        value, _, file = text.removeprefix("echo ").partition(" >")
        Path(file).write_text(value)
    assert cpu.mismatches(asked, cpu.read(asked)) == {}
    assert cpu.summary(root) == {"governors": ["performance"], "idle_states": ["POLL"]}


def test_lists_of_cpus_are_compared_by_what_they_name(root: Path) -> None:
    asked = cpu.interrupts("eth1", "0-1", root)
    assert cpu.plan(asked, cpu.read(asked)) == []


def test_hardware_that_is_absent_is_absent(tmp_path: Path) -> None:
    assert cpu.summary(tmp_path) == {"governors": None, "idle_states": None}


def test_hardware_that_is_absent_is_refused_if_asked(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    with pytest.raises(ValueError, match="governor performance was asked, but this host does not scale"):
        cpu.governors("performance", bare)
    with pytest.raises(ValueError, match="idle states of at most 2 us were asked, but this host has none"):
        cpu.idle_states(2, bare)
    with pytest.raises(ValueError, match="interrupts of eth1 on CPUs 0 were asked, but it has none"):
        cpu.interrupts("eth1", "0", bare)
    with pytest.raises(ValueError, match="no governor turbo; this host has performance, powersave"):
        cpu.governors("turbo", root)
    with pytest.raises(ValueError, match="no CPUs 7; this host has 0-1"):
        cpu.interrupts("eth1", "7", root)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_list_names_its_cpus(numbers: set[int]) -> None:
    assert cpu.cpus(",".join(map(str, sorted(numbers)))) == numbers


@pytest.mark.parametrize("text", ["", "a", "0-", "-3", "1,,2"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of CPUs"):
        cpu.cpus(text)
