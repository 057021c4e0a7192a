"""Commands that are playbooks: ``dumbbell run one_flow -i inventory/mine`` starts ``ansible-playbook``."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dumbbell.places import IS_WHEEL, known, playbook


class Playbook(NamedTuple):
    """What it does, the variable whose value may follow the command, and the inventory if none is named."""

    does: str
    variable: str = ""
    inventory: str = ""


# By their names in playbooks/, where an underscore is a dash here.
PLAYBOOKS = {
    "check": Playbook("Check whether the hosts can run a scenario; change nothing.", "scenario"),
    "collect": Playbook("Judge a run again from its files, by default the last.", "run"),
    "discover": Playbook("Write an inventory to start from, of hosts that -i names.", "inventory"),
    "grafana": Playbook("Give the inventory's Grafana the dashboards."),
    "kernel": Playbook("Boot each host with the kernel that the inventory names for it."),
    "kernel-build": Playbook("Build a kernel by its recipe, or of a Debian package or a git tree.", "kernel"),
    "lab-down": Playbook("Power the virtual lab off and remove its processes and network."),
    "lab-up": Playbook("Boot the virtual lab."),
    "provision": Playbook("Configure the hosts of the inventory for runs, and check them."),
    "restore": Playbook("Give hosts back every setting and file that Dumbbell has changed."),
    "resume": Playbook("Go on with an interrupted run, by default the last.", "run"),
    "run": Playbook("Run a scenario on the hosts of the inventory.", "scenario"),
    "validate-inventory": Playbook("Check the inventory without contacting a host."),
    "virtual": Playbook("Run a scenario in virtual time, without hosts.", "scenario", "inventory/vtime"),
}


def start(command: str, words: Sequence[str]) -> None:
    """Print the command line of a playbook, and become it: its exit status is this program's.

    ``words`` are those after the command: a value of its variable, options of ``ansible-playbook``, and for a
    scenario its profile.
    """
    of = PLAYBOOKS[command]
    options = ArgumentParser(f"dumbbell {command}", add_help=False, allow_abbrev=False)
    options.add_argument("-i", "--inventory", "--inventory-file", action="append")
    if of.variable == "scenario":
        options.add_argument("-p", "--profile")
    asked, words = options.parse_known_args(words)
    if of.variable and words and not words[0].startswith("-"):
        value = _shown(known(words[0], "scenarios")) if of.variable == "scenario" else words[0]
        words[:1] = ["-e", f"{of.variable}={shlex.quote(value)}"]
    if profile := vars(asked).get("profile"):
        words += ["-e", f"profile={shlex.quote(profile)}"]
    inventories = asked.inventory or ([of.inventory] if of.inventory else [])
    given = [word for inventory in inventories for word in ("-i", _shown(known(inventory)))]
    line = ["ansible-playbook", playbook(command), *given, *words]
    print(shlex.join(_settings() + line), flush=True)
    os.execv(Path(sys.executable).with_name(line[0]), line)


def usage(command: str) -> str:
    """What ``--help`` of a command says."""
    of = PLAYBOOKS[command]
    typed, passed = (f" [{of.variable.upper()}]", f" -e {of.variable}=...") if of.variable else ("", "")
    options = ["-i", of.inventory] if of.inventory else []
    own, profile = "", ""
    if of.variable == "scenario":
        own, profile = " [-p PROFILE]", "\n  -p PROFILE           profile of the scenario to lay over it\n"
    return f"""\
Usage: dumbbell {command}{typed}{own} [OPTIONS of ansible-playbook]

{of.does} Starts{"" if IS_WHEEL else ", in the checkout"}:
  {shlex.join([*_settings(), "ansible-playbook", playbook(command), *options])}{passed}
{profile}
Options of ansible-playbook are, among others:
  -i INVENTORY         by default inventory/{"vtime" if of.inventory else "lab"}
  -e NAME=VALUE        variable of the playbook, which its file names, or of a role
  --check --diff       show what would be changed, and change nothing
  --limit HOSTS        only these
"""


def _settings() -> list[str]:
    """Ansible finds the settings of a checkout by itself."""
    return [f"ANSIBLE_CONFIG={os.environ['ANSIBLE_CONFIG']}"] if "ANSIBLE_CONFIG" in os.environ else []


def _shown(path: Path) -> str:
    """A path as short as it can be typed here."""
    return os.path.relpath(path) if path.absolute().is_relative_to(Path.cwd()) else str(path)
