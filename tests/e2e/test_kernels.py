"""Kernels and modules of hosts, in a small lab of its own: one host of each machine kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_lab import BOOT_S, LAB, TIMEOUT_S, KernelLab, Result, release

from playbooks import REPOSITORY

pytestmark = pytest.mark.kernels
MODULE = Path(__file__).parents[1] / "modules" / "tcp_constant"
REGISTERS = Path(__file__).parents[1] / "kernels" / "registers.c"
FIRST = {"uml1": "user-mode-linux", "qemu1": "linux-image-cloud-amd64"}
OTHER = {"uml1": "kernels/lab.yml", "qemu1": "linux-image-6.12-cloud-amd64"}
# Packages of Go whose tests ask the kernel, and what of them only a checkout can be asked.
COLLECTORS = ("ebpf", "tcpinfo", "trace", "web100")
OF_A_CHECKOUT = {"TestDocumentation", "TestObjectIsOfTheSource", "TestObjectIsReproducible", "TestRecord"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelLab]:
    LAB.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(LAB / "hosts", ignore_errors=True)  # no kernel and no module of an earlier session
    made = KernelLab(tmp_path_factory.mktemp("inventory"))
    made.hosts = {"uml1": {}, "qemu1": {"lab_machine": "qemu", "lab_memory": "512M", "lab_core": 1}}
    try:
        up = made.playbook("playbooks/lab_up.yml")
        assert up.code == 0, up.said[-4000:]
        yield made
    finally:
        down = made.playbook("playbooks/lab_down.yml")
    assert down.code == 0, down.said[-4000:]
    assert not Path("/run/netns/kernlab").exists()
    assert not Path("/run/dumbbell/kernlab").exists()


def test_a_host_boots_first_what_its_machine_kind_has(lab: KernelLab) -> None:
    assert lab.releases() == {host: release(kernel) for host, kernel in FIRST.items()}
    assert all(found.startswith("6.1.") for found in lab.releases().values())


# --- the collectors, by their own tests on a host that runs a distribution's kernel -----------------


@pytest.fixture(scope="module")
def collectors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The tests as programs, with what they read: an archive of a directory for each."""
    folder = tmp_path_factory.mktemp("collectors")
    for name in COLLECTORS:
        source = REPOSITORY / "collectors" / name
        (folder / name).mkdir()
        if (source / "testdata").exists():
            shutil.copytree(source / "testdata", folder / name / "testdata")
        build = ["go", "test", "-c", "-o", str(folder / name / "test"), f"./collectors/{name}"]
        subprocess.run(build, cwd=REPOSITORY, check=True, env=os.environ | {"CGO_ENABLED": "0"})
    return subprocess.run(["tar", "-cz", "-C", folder, "."], check=True, capture_output=True).stdout


def assert_collectors_pass(lab: KernelLab, archive: bytes) -> None:
    """None fails, and none is skipped for want of something."""
    lab.ssh("qemu1", "mkdir -p /var/tmp/collectors && tar -xz -C /var/tmp/collectors", archive)
    for name in COLLECTORS:
        run = f"./test -test.v -test.skip '^({'|'.join(sorted(OF_A_CHECKOUT))})$'"
        said = lab.ssh("qemu1", f"cd /var/tmp/collectors/{name} && {run} 2>&1 || true", timeout_s=TIMEOUT_S)
        print(said)  # for who wants to know why one did
        assert said.splitlines()[-1] == "PASS", name
        assert "--- SKIP" not in said, name


def test_the_collectors_on_the_first_kernel(lab: KernelLab, collectors: bytes) -> None:
    assert_collectors_pass(lab, collectors)


def test_no_kernel_named_leaves_the_host_alone(lab: KernelLab) -> None:
    done = lab.playbook("playbooks/kernel.yml")
    assert (done.code, done.changed["uml1"], done.changed["qemu1"]) == (0, 0, 0)


@pytest.fixture(scope="module")
def other(lab: KernelLab) -> Result:
    """Both hosts on 6.12: a distribution's on qemu, the project's own on User-Mode Linux."""
    lab.name_kernels(OTHER)
    return lab.playbook("playbooks/kernel.yml")


def test_one_line_of_the_inventory_changes_the_kernel(lab: KernelLab, other: Result) -> None:
    assert other.code == 0, other.said[-4000:]
    assert lab.releases() == {host: release(kernel) for host, kernel in OTHER.items()}
    assert all(found.startswith("6.12.") for found in lab.releases().values())


def test_it_changes_nothing_the_second_time(lab: KernelLab, other: Result) -> None:
    assert other.code == 0
    boots = {host: lab.ssh(host, "cat /proc/sys/kernel/random/boot_id") for host in lab.hosts}
    again = lab.playbook("playbooks/kernel.yml")
    assert (again.code, set(again.changed.values())) == (0, {0}), again.said[-4000:]
    assert boots == {host: lab.ssh(host, "cat /proc/sys/kernel/random/boot_id") for host in lab.hosts}


def test_the_collectors_on_another_kernel(lab: KernelLab, other: Result, collectors: bytes) -> None:
    assert other.code == 0
    assert_collectors_pass(lab, collectors)


def play_kernel(lab: KernelLab, release: str) -> Result:
    """Of a kernel that the host has already, by its release, as a run does it."""
    lab.hosts["uml1"]["kernel_release"] = release
    done = lab.playbook("tests/e2e/playbooks/kernel.yml", "--limit", "uml1,localhost")
    del lab.hosts["uml1"]["kernel_release"]
    return done


def test_a_kernel_that_the_host_has_is_booted_by_its_release(lab: KernelLab, other: Result) -> None:
    assert other.code == 0
    former = release(FIRST["uml1"])
    done = play_kernel(lab, former)
    assert done.code == 0, done.said[-4000:]
    assert lab.releases()["uml1"] == former
    again = play_kernel(lab, former)
    assert (again.code, again.changed["uml1"]) == (0, 0), again.said[-4000:]


def test_one_that_it_lacks_is_refused_by_name(lab: KernelLab, other: Result) -> None:
    assert other.code == 0
    done = play_kernel(lab, "6.99.0-none")
    assert done.code != 0
    assert "asked for kernel 6.99.0-none, which this host lacks; it has " in done.said
    assert release(OTHER["uml1"]) in done.said.partition("it has ")[2]


def test_a_reboot_keeps_the_default_kernel(lab: KernelLab, other: Result) -> None:
    assert other.code == 0
    before = lab.ssh("uml1", "cat /proc/sys/kernel/random/boot_id")
    lab.ssh("uml1", "systemctl --no-block reboot")
    deadline = time.monotonic() + BOOT_S
    while True:  # it answers for a moment longer, then not, then again
        try:
            if lab.ssh("uml1", "cat /proc/sys/kernel/random/boot_id") != before:
                break
        except AssertionError:
            assert time.monotonic() < deadline
        time.sleep(1)
    assert lab.releases()["uml1"] == release(OTHER["uml1"])


def test_the_own_kernel_has_what_debians_lacks(lab: KernelLab, other: Result) -> None:
    assert other.code == 0
    found = lab.ssh(
        "uml1",
        "mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; "
        "ls /sys/kernel/tracing/events/tcp; modprobe --all sch_fq sch_cake sch_fq_pie sch_netem ifb tcp_bbr; "
        "cut -d' ' -f1 /proc/modules; ls /sys/module/tcp_bbr",
    )
    assert {"tcp_probe", "tcp_retransmit_skb", "tcp_cong_state_set"} <= set(found.split())
    assert {"sch_fq", "sch_cake", "sch_fq_pie", "sch_netem", "ifb", "srcversion"} <= set(found.split())


def test_registers_of_a_thread_are_its_own(lab: KernelLab, other: Result, tmp_path: Path) -> None:
    assert other.code == 0
    program = tmp_path / "registers"
    subprocess.run(["gcc", "-O2", "-static", "-pthread", "-o", program, REGISTERS], check=True)
    said = lab.ssh(
        "uml1", "cat >/run/registers && chmod 755 /run/registers && /run/registers", program.read_bytes()
    )
    assert said.startswith("0 of ")


# --- modules ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules(lab: KernelLab, other: Result, tmp_path_factory: pytest.TempPathFactory) -> KernelLab:
    """The own kernel with an out-of-tree congestion control."""
    assert other.code == 0
    source = tmp_path_factory.mktemp("source") / MODULE.name
    shutil.copytree(MODULE, source)
    lab.hosts["uml1"] |= {
        "modules_sources": [str(source)],
        "modules_congestion_controls": ["cubic", "bbr", "constant"],
        "modules_loaded": ["sch_fq"],
        "modules_blacklist": ["tcp_vegas"],
        "modules_parameters": {"tcp_constant": {"window": 20, "scale": 2}},
    }
    return lab


def play_modules(lab: KernelLab, *arguments: str) -> Result:
    return lab.playbook("tests/e2e/playbooks/modules.yml", "--limit", "uml1", *arguments)


def parameters(lab: KernelLab) -> dict[str, str]:
    folder = "/sys/module/tcp_constant/parameters"
    return {name: lab.ssh("uml1", f"cat {folder}/{name}") for name in ("window", "scale")}


def build_id(lab: KernelLab) -> str:
    note = lab.ssh("uml1", "od -An -v -tx1 /sys/module/tcp_constant/notes/.note.gnu.build-id")
    return "".join(note.split())[-40:]


def test_modules_are_built_loaded_and_set(modules: KernelLab) -> None:
    done = play_modules(modules, "--diff")
    assert done.code == 0, done.said[-4000:]
    assert "constant" in modules.ssh("uml1", "sysctl -n net.ipv4.tcp_allowed_congestion_control").split()
    assert parameters(modules) == {"window": "20", "scale": "2"}
    assert build_id(modules) in done.said  # the diff tells which build is loaded
    again = play_modules(modules)
    assert (again.code, again.changed["uml1"]) == (0, 0), again.said[-4000:]


def test_what_was_undone_by_hand_is_seen_and_repaired(modules: KernelLab) -> None:
    modules.ssh("uml1", "modprobe --remove tcp_constant sch_fq && modprobe --ignore-install tcp_vegas")
    checked = play_modules(modules, "--check")
    assert checked.code == 0, checked.said[-4000:]
    assert checked.changed["uml1"] == 2  # unloading; modules and congestion controls
    assert "tcp_constant" not in modules.ssh("uml1", "cut -d' ' -f1 /proc/modules").split()
    assert play_modules(modules).code == 0
    loaded = modules.ssh("uml1", "cut -d' ' -f1 /proc/modules").split()
    assert {"tcp_constant", "sch_fq"} <= set(loaded)
    assert "tcp_vegas" not in loaded


def test_another_build_takes_the_place_of_the_one_that_is_loaded(modules: KernelLab) -> None:
    (source,) = modules.hosts["uml1"]["modules_sources"]
    before = build_id(modules)
    file = Path(source) / "tcp_constant.c"
    file.write_text(file.read_text().replace("return window * scale;", "return 2 + window * scale;"))
    done = play_modules(modules)
    assert done.code == 0, done.said[-4000:]
    assert build_id(modules) != before
    assert parameters(modules) == {"window": "20", "scale": "2"}


def test_parameters_of_a_loaded_module_are_set(modules: KernelLab) -> None:
    modules.hosts["uml1"]["modules_parameters"] = {"tcp_constant": {"window": 30, "scale": 3}}
    done = play_modules(modules)
    assert done.code == 0, done.said[-4000:]
    assert parameters(modules) == {"window": "30", "scale": "3"}


def test_an_unknown_parameter_is_refused_by_name(modules: KernelLab) -> None:
    asked = modules.hosts["uml1"]["modules_parameters"]
    modules.hosts["uml1"]["modules_parameters"] = {"tcp_constant": {"windwo": 30}}
    done = play_modules(modules)
    modules.hosts["uml1"]["modules_parameters"] = asked
    assert done.code != 0
    assert (
        "asked for parameter windwo of module tcp_constant, which lacks it; it has scale, window" in done.said
    )


# --- kernels that do not come up --------------------------------------------------------------------


def package(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    root = folder / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: linux-image-{name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <root@localhost>\n"
        "Description: kernel that does not come up\n"
    )
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
        (root / path).chmod(0o755)
    deb = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, deb], check=True, capture_output=True)
    return deb


@pytest.fixture(scope="module")
def broken(modules: KernelLab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, str]]:
    """One that hangs on User-Mode Linux, one that panics on qemu; and what ran before."""
    folder = tmp_path_factory.mktemp("broken")
    hangs = package(
        folder,
        "6.1.0-hangs",
        {
            "usr/bin/linux.uml": b'#!/bin/sh\nexec /usr/bin/linux.uml "$@" systemd.unit=emergency.target\n',
            "usr/lib/uml/modules/6.1.0-hangs/modules.order": b"",
        },
    )
    panics = package(
        folder,
        "6.12.0-panics",
        {
            "boot/vmlinuz-6.12.0-panics": (LAB / "kernels" / OTHER["qemu1"] / "linux").read_bytes(),
            "lib/modules/6.12.0-panics/modules.order": b"",
        },
    )
    before = modules.releases()
    modules.name_kernels({"uml1": str(hangs), "qemu1": str(panics)})
    return modules.playbook("playbooks/kernel.yml", "-e", "kernel_boot_timeout=120"), before


def test_the_host_goes_back_to_the_former_kernel(
    broken: tuple[Result, dict[str, str]], lab: KernelLab
) -> None:
    assert broken[0].code != 0
    assert lab.releases() == broken[1]


def test_the_play_says_what_was_asked_what_runs_and_why(
    broken: tuple[Result, dict[str, str]], lab: KernelLab
) -> None:
    done, former = broken
    for host, asked in {"uml1": "6.1.0-hangs", "qemu1": "6.12.0-panics"}.items():
        assert (
            f"{host} was to run {asked} ({lab.hosts[host]['kernel_image']}) and did not come up" in done.said
        )
        assert f"It runs {former[host]}. The last lines of its console:" in done.said
    assert "Kernel panic - not syncing: Attempted to kill init!" in done.said


def test_and_back_to_the_first_kernel(broken: tuple[Result, dict[str, str]], lab: KernelLab) -> None:
    assert broken[0].code != 0
    lab.name_kernels(FIRST)
    asked = {host: release(kernel) for host, kernel in FIRST.items()}
    checked = lab.playbook("playbooks/kernel.yml", "--check")
    assert checked.code == 0, checked.said[-4000:]
    assert checked.changed["uml1"] > 0
    assert lab.releases() == broken[1]
    done = lab.playbook("playbooks/kernel.yml")
    assert done.code == 0, done.said[-4000:]
    assert lab.releases() == asked
