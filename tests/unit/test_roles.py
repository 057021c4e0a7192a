"""Every role: arguments, defaults and the table in its README agree."""

import re
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

from tools import role_docs

ROLES = sorted(path for path in (Path(__file__).parents[2] / "roles").iterdir() if (path / "tasks").is_dir())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_says_what_it_takes(role: Path) -> None:
    assert (role / "meta/argument_specs.yml").exists()
    for name, option in role_docs.options(role).items():
        assert option.get("description"), name
        assert option.get("type"), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_arguments_and_optional_arguments_have_defaults(role: Path) -> None:
    options, defaults = role_docs.options(role), role_docs.defaults(role)
    assert set(defaults) <= set(options)
    own = {
        name
        for name, option in options.items()
        if name.startswith(f"{role.name}_") and not option.get("required")
    }
    secret = {name for name in own if options[name].get("no_log")}
    assert own - secret <= set(defaults)
    for name, option in options.items():
        if "default" in option:
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_readmes_are_up_to_date(role: Path) -> None:
    assert role_docs.documented(role) == (role / "README.md").read_text(), "run make docs"


def test_the_page_of_roles_is_up_to_date() -> None:
    roles = ROLES[0].parent
    text = (roles.parent / role_docs.LIST).read_text()
    assert role_docs.listed(text, roles) == text, "run make docs"


def test_the_table_is_put_in_its_place(tmp_path: Path) -> None:
    for folder in ("meta", "defaults"):
        (tmp_path / folder).mkdir()
    (tmp_path / "meta/argument_specs.yml").write_text(
        "argument_specs: {main: {options: "
        "{a: {description: A C(b)., required: true}, c: {description: [D., E.]}}}}"
    )
    (tmp_path / "defaults/main.yml").write_text("c: [1, true, null]\n")
    readme = tmp_path / "README.md"
    readme.write_text("# role\n\n| variable | default | |\n|---|---|---|\n| old | | |\n\nMore.\n")
    expected = (
        "# role\n\n| variable | default | |\n|---|---|---|\n"
        "| `a` | required | A `b`. |\n| `c` | `[1, true, null]` | D. E. |\n\nMore.\n"
    )
    assert role_docs.documented(tmp_path) == expected
    readme.write_text("# role\n")
    assert role_docs.documented(tmp_path) == expected.removesuffix("\nMore.\n")


# What apt-get says where one kernel is new and another is replaced by a younger build.
SIMULATED = """\
Inst linux-image-6.12.9-cloud-amd64 (6.12.9-1 Debian:13/stable [amd64])
Inst linux-image-cloud-amd64 (6.12.9-1 Debian:13/stable [amd64])
Inst linux-image-6.1.0-9-amd64 [6.1.27-1] (6.1.28-1 Debian:12/stable [amd64])
Inst linux-base (4.9 Debian:12/stable [all])
Conf linux-image-6.12.9-cloud-amd64 (6.12.9-1 Debian:13/stable [amd64])
"""


def test_kernels_that_an_installation_adds_are_recorded() -> None:
    tasks = YAML(typ="safe").load(ROLES[0].parent / "kernel/tasks/boot_grub.yml")
    (template,) = (
        task["dumbbell.testbed.baseline"]["packages"]
        for block in tasks
        for task in block.get("block", [])
        if "packages" in task.get("dumbbell.testbed.baseline", {})
    )
    environment = NativeEnvironment()
    environment.filters["regex_findall"] = lambda text, pattern: re.findall(pattern, text)
    found: Any = environment.from_string(template).render({"__kernel_simulated": {"stdout": SIMULATED}})
    assert found == ["linux-image-6.12.9-cloud-amd64", "linux-image-cloud-amd64"]
