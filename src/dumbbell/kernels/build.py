"""Build a kernel by ``playbooks/kernel_build.yml``, unless it is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from dumbbell.kernels.kernel import Kernel
from dumbbell.kernels.problems import KernelError
from dumbbell.kernels.recipe import asked
from dumbbell.places import HOME, playbook

KERNELS = HOME / ".build" / "kernels"


class DoesNotBuild(Exception):
    """The source does not become a kernel: the message is what the compiler, or git, said."""

    @property
    def first_error(self) -> str:
        """The first line with "error:", as compilers, modpost and git say it; else all, as one line."""
        said = str(self)
        return next((line for line in said.splitlines() if "error:" in line.lower()), " ".join(said.split()))


def find(text: str) -> Kernel:
    """The kernel that a text asks for, as its source is now, built or not. KernelError if there is none."""
    return Kernel.find(asked(text), KERNELS)


def check(text: str) -> None:
    """KernelError if there is no such kernel, as far as is known before packages of a suite are read."""
    if not (wanted := asked(text)).recipe.suite:
        Kernel.find(wanted, KERNELS)


def build(text: str, log: IO[str] | None = None) -> Kernel:
    """The kernel that a text asks for, finished. :class:`DoesNotBuild`, or KernelError for any other reason.

    A kernel that did not build is not tried again. What the playbook says goes to ``log``; by default to the
    terminal.
    """
    wanted = asked(text)
    # The playbook reads the packages of a suite, without which the source's version is not known.
    kernel = None if wanted.recipe.suite else Kernel.find(wanted, KERNELS)
    if kernel is None or not (kernel.result.exists() or kernel.failed.exists()):
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, playbook("kernel-build"), "-e", f"kernel={text}"]
        stdin = None if log is None else subprocess.DEVNULL
        with subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log) as running:
            try:
                running.wait()
            except KeyboardInterrupt:
                running.wait()  # it has heard that too
                raise
        kernel = Kernel.find(wanted, KERNELS)
    if kernel.result.exists():
        return kernel
    if kernel.failed.exists():
        raise DoesNotBuild(kernel.failed.read_text().strip())
    raise KernelError(f"{text} was not built; playbooks/kernel_build.yml said why")
