"""Arguments of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invoke.parser.argument import Argument
from invoke.tasks import Task

from dumbbell.places import IS_WHEEL, REPOSITORY, known

CLUSTER = (
    "machines that run the points, in virtual time: ssh:HOSTS.yml, slurm:PARTITION, tcp://SCHEDULER:8786"
)


def in_checkout() -> None:
    """SystemExit if this Dumbbell is a checkout, and here is another directory."""
    if not IS_WHEEL and not Path.cwd().samefile(REPOSITORY):
        raise SystemExit(f"Playbooks are run in the checkout: cd {REPOSITORY}")


def inventory_of(named: str | None, kernel: object) -> Path:
    """The inventory that is named; else that of virtual time if kernels are named, or that of the lab."""
    return known(named or ("inventory/vtime" if kernel else "inventory/lab"))


class Unless(Argument):
    """A positional argument that is no longer asked for if another one is given."""

    def __init__(self, other: Argument, like: Argument) -> None:
        super().__init__(names=like.names, positional=True, help=like.help)
        self.other = other

    @property
    def value(self) -> Any:
        """The text; None if it is still asked for, as Invoke has it."""
        return super().value or ("" if self.other.got_value else None)

    @value.setter
    def value(self, text: str) -> None:
        self.set_value(text)


class OfSides(Task[Any]):
    """``ab``: its profiles are positional, and are left out if kernels are named."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Arguments of the task."""
        found = super().get_arguments(ignore_unknown_help)
        kernel = next(argument for argument in found if argument.name == "kernel")
        return [Unless(kernel, argument) if argument.name in {"a", "b"} else argument for argument in found]
