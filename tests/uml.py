"""The lab's own kernel as one process, in which a script is root among this machine's files.

For what wants a kernel to itself and no hosts: modules, qdiscs, congestion controls. The script has network
namespaces, netem, htb, veth and tracefs; what it writes outside its working directory is lost or refused.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from playbooks import REPOSITORY, ansible_playbook

KERNELS = REPOSITORY / ".build" / "kernels"
BUILD = REPOSITORY / "roles" / "modules" / "files" / "build.sh"
PRELOAD = REPOSITORY / "roles" / "lab" / "files" / "xstate.c"
BUILD_S = 3600
DEBUG = "lab-debug"  # the kernel that looks for mistakes of modules: KASAN, lockdep, kmemleak
TROUBLE = re.compile(r"WARNING:|BUG:|Oops|Call Trace:")
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8
export LIBMOUNT_FORCE_MOUNT2=always
trap 'systemctl --force --force poweroff' EXIT
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tracefs tracefs /sys/kernel/tracing
for of in /run /mnt; do mount -t tmpfs tmpfs $of; done
# A machine without modules has no directory for them.
mkdir -p /mnt/work /mnt/upper /mnt/overlay
mount -t overlay -o lowerdir=/usr/lib,upperdir=/mnt/upper,workdir=/mnt/overlay overlay /usr/lib
mkdir -p /lib/modules/{release}
mount -t hostfs -o {modules} hostfs /lib/modules/{release}
mount -t hostfs -o {work} hostfs /mnt/work
mount -t tmpfs tmpfs /tmp
ip link set lo up
cd /mnt/work
sh -eu ./script >said 2>&1 </dev/null
echo $? >status
debug=/sys/kernel/debug
if [ -d $debug ] && mount -t debugfs debugfs $debug && [ -e $debug/kmemleak ]; then
    sleep 6 # what is younger than 5 s may yet be found by its owner
    for scan in 1 2; do echo scan; done >$debug/kmemleak # the first takes what is new for changed
    cat $debug/kmemleak >leaks
fi
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel for User-Mode Linux: its program, its modules, and its release."""

    image: Path
    modules: Path
    release: str


@cache
def own_kernel(name: str = "lab") -> Kernel:
    """The one of kernels/NAME.yml, which is built the first time."""
    if not (KERNELS / name).exists():
        code, said = ansible_playbook(
            "playbooks/kernel_build.yml", "-e", f"kernel=kernels/{name}.yml", timeout_s=BUILD_S
        )
        assert code == 0, said[-3000:]
    (package,) = (KERNELS / name).glob("linux-image-*.deb")
    release = package.name.removeprefix("linux-image-").partition("_")[0]
    root = REPOSITORY / ".build" / "uml" / (KERNELS / name).resolve().name
    if not root.exists():
        part = root.with_name(root.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "--extract", package, part], check=True)
        # depmod knows modules at their usual place only.
        (part / "lib").mkdir()
        (part / "usr/lib/uml/modules").rename(part / "lib" / "modules")
        subprocess.run(["depmod", "--basedir", part, release], check=True)
        library = part / "usr/bin" / PRELOAD.with_suffix(".so").name
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, PRELOAD], check=True)
        part.rename(root)
    return Kernel(root / "usr/bin/linux.uml", root / "lib" / "modules" / release, release)


def build_module(source: Path, into: Path, kernel: str = "lab") -> Path:
    """The module of a directory, built for a kernel as the role `modules` builds it."""
    built = into / f"{source.name}.ko"
    done = subprocess.run(
        ["sh", BUILD, source, own_kernel(kernel).release, built, KERNELS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "warning:" not in done.stdout, done.stdout[-3000:]
    return built


def run(
    script: str,
    work: Path,
    *,
    virtual: bool,
    kernel: str = "lab",
    seed: str = "",
    memory: str = "512M",
    seccomp: str = "auto",
    timeout_s: float = 300,
) -> str:
    """What a script for `sh -eu` said, which has come to a good end; `work` is its working directory.

    In virtual time (docs/virtual-time.md) nothing may wait by looking at the clock. With a seed all that the
    kernel draws at random comes from it. Processes of 7.2 enter the kernel by seccomp if `seccomp` is on, or
    if it is auto and the machine can; else by ptrace, as those of 6.12. `timeout_s` is real time.
    The console is left in `work` as console.log.
    """
    own = own_kernel(kernel)
    work = work.resolve()
    (work / "script").write_text(script)
    for name in ("said", "status", "leaks"):
        (work / name).unlink(missing_ok=True)
    init = work / "init"
    init.write_text(INIT.format(release=own.release, modules=own.modules, work=work))
    init.chmod(0o755)
    command = [
        # Its processes wake each other, which is dear between cores.
        *("taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))),
        *("setpriv", "--pdeathsig", "KILL", "setarch", "--addr-no-randomize"),
        *(str(own.image), f"mem={memory}", "umid=kernel", f"uml_dir={work}"),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}"),
        *("con=null", "con0=null,fd:1", "panic=-1", f"seccomp={seccomp}"),
        *(("time-travel=inf-cpu",) if virtual else ()),
        *((f"rng_seed={seed}",) if seed else ()),
    ]
    with (work / "console.log").open("wb") as console:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=os.environ | {"LD_PRELOAD": str(own.image.with_name("xstate.so"))},
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end within {timeout_s} s of {shlex.join(command)}\n{_last(work)}", pytrace=False)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever of it is left
            process.wait()
            shutil.rmtree(work / "kernel", ignore_errors=True)
    status = work / "status"
    assert status.exists(), _last(work)
    assert status.read_text() == "0\n", _last(work)
    console_said = (work / "console.log").read_text(errors="replace")
    trouble = TROUBLE.search(console_said)
    assert not trouble, console_said[trouble.start() :][:3000]
    if (work / "leaks").exists():
        assert not (leaks := (work / "leaks").read_text()), leaks[:3000]
    return (work / "said").read_text()


def _last(work: Path) -> str:
    return "\n".join(
        f"{name}: {(work / name).read_text(errors='replace')[-3000:]}"
        for name in ("said", "console.log")
        if (work / name).exists()
    )
