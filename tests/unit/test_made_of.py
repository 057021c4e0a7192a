"""Digests of what a provisioning is made of: they change with all that decides it, and with nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dumbbell.execution.made_of import INVENTORY, made_of, variables_of


class Checkout:
    """A role, what it copies, and the variables of a host."""

    def __init__(self, root: Path) -> None:
        self.root, self.role = root, root / "roles/agent"
        for name, text in {
            "roles/agent/tasks/main.yml": "- copy: {src: '{{ agent_binary }}', mode: '{{ agent_mode }}'}\n",
            "roles/agent/templates/agent.j2": "{{ ansible_host, ansible_check_mode, playbook_dir }}",
            "roles/agent/README.md": "# agent\n",
            ".build/bin/agent": "one",
            "modules/tcp_mine/Makefile": "obj-m := tcp_mine.o\n",
            "work/notes": "of somebody's own",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        self.variables: dict[str, Any] = {
            "agent_binary": f"{root}/.build/bin/agent",
            "modules_sources": [f"{root}/modules/tcp_mine"],
            "password": "four",
            "place": f"{root}/work",
        }

    def made_of(self, host: str = "sender1") -> dict[str, str]:
        return made_of(host, [self.role], self.variables, self.root)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "one")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda c: (c.role / "tasks/main.yml").write_text("[]\n"), ["role agent"]),
        (lambda c: (c.role / "tasks/more.yml").write_text("[]\n"), ["role agent"]),
        (lambda c: (c.role / "templates/agent.j2").unlink(), ["role agent"]),
        (lambda c: (c.role / "templates/agent.j2").chmod(0o755), ["role agent"]),
        (lambda c: (c.root / ".build/bin/agent").write_text("two"), [INVENTORY]),
        (lambda c: (c.root / "modules/tcp_mine/tcp_mine.c").write_text("int x;"), [INVENTORY]),
        (lambda c: c.variables.update(password="five"), [INVENTORY]),
        (lambda c: c.variables.update(agent_mode=0o700), [INVENTORY]),
        (lambda c: c.variables.pop("password"), [INVENTORY]),
        (lambda c: (c.role / "README.md").write_text("more"), []),
        (lambda c: (c.root / "work/notes").write_text("more"), []),
        (lambda c: (c.root / ".build/bin/agent").touch(), []),
    ],
)
def test_what_decides_it_is_told_by_its_name(
    checkout: Checkout, change: Callable[[Checkout], object], names: list[str]
) -> None:
    before = checkout.made_of()
    change(checkout)
    after = checkout.made_of()
    assert [name for name in before if before[name] != after[name]] == names


def test_it_is_the_same_in_another_checkout(checkout: Checkout, tmp_path: Path) -> None:
    shutil.copytree(checkout.root, tmp_path / "two", copy_function=shutil.copyfile)
    assert Checkout(tmp_path / "two").made_of() == checkout.made_of()


def test_hosts_with_the_same_password_have_other_digests_of_it(checkout: Checkout) -> None:
    assert checkout.made_of("sender1")[INVENTORY] != checkout.made_of("sender2")[INVENTORY]


def test_variables_are_those_that_its_files_mention(checkout: Checkout) -> None:
    known = [
        "agent_binary",
        "agent_mode",
        "agent_other",
        "ansible_host",
        "ansible_check_mode",
        "playbook_dir",
    ]
    assert variables_of(checkout.role, known) == {"agent_binary", "agent_mode", "ansible_host"}
