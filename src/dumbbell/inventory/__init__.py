"""What the planner needs to know of the testbed."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_cache_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dumbbell.units import LEAST_MTU_BYTES, MOST_MTU_BYTES, MTU_BYTES


class InventoryError(Exception):
    """An inventory that cannot be read, or that lacks what a plan needs."""


class Interface(BaseModel):
    """An interface that carries experiment traffic; ``address`` in CIDR notation."""

    model_config = ConfigDict(extra="forbid")
    device: str
    address: IPv4Interface | IPv6Interface


class InventoryHost(BaseModel):
    """What the planner needs to know of a host."""

    model_config = ConfigDict(extra="forbid")
    management_interface: str | None = None
    experiment_interfaces: dict[str, Interface] = {}
    lab_machine: str | None = None
    nic_mtu: Annotated[int, Field(ge=LEAST_MTU_BYTES, le=MOST_MTU_BYTES)] = MTU_BYTES
    nic_offloads: dict[str, bool] = {}


class Inventory(BaseModel):
    """Groups and hosts, as Ansible knows them. Not strict: Ansible's strings are subclasses of str."""

    model_config = ConfigDict(extra="forbid")
    groups: dict[str, list[str]]
    hosts: dict[str, InventoryHost]

    @classmethod
    def of(cls, groups: Mapping[str, Iterable[str]], variables: Mapping[str, Mapping[str, Any]]) -> Inventory:
        """From Ansible's groups, and its variables by host; :class:`InventoryError` names what is wrong."""
        hosts = {
            host: {key: variables[host][key] for key in InventoryHost.model_fields if key in variables[host]}
            for host in groups.get("testbed", ())
        }
        try:
            return cls.model_validate({"groups": {k: list(v) for k, v in groups.items()}, "hosts": hosts})
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise InventoryError("inventory: " + "; ".join(problems)) from None

    @classmethod
    def read(cls, path: Path) -> Inventory:
        """As ``ansible-inventory`` lists it, without the values that only a play can compute.

        Ansible takes a second to start: the answer for files that did not change since is kept.
        """
        if not path.exists():
            raise InventoryError(f"{path}: there is no such inventory")
        digest = _digest(path)
        kept = digest and user_cache_path("dumbbell") / "inventories" / f"{digest}.json"
        if kept:
            try:
                return cls.model_validate_json(kept.read_bytes())
            except (OSError, ValidationError):
                pass  # not there, or not whole
        inventory = cls._listed(path)
        if kept:
            _keep(kept, inventory.model_dump_json(exclude_unset=True))
        return inventory

    @classmethod
    def _listed(cls, path: Path) -> Inventory:
        command = [
            str(Path(sys.executable).with_name("ansible-inventory")),
            "--list",
            "--inventory",
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InventoryError(f"{path}: {' '.join(done.stderr.split())}")
        listed = json.loads(done.stdout)
        variables = listed.pop("_meta")["hostvars"]

        def members(name: str) -> list[str]:
            group = listed.get(name, {})
            inner = [host for child in group.get("children", []) for host in members(child)]
            return [*group.get("hosts", []), *inner]

        groups = {name: members(name) for name in listed}
        return cls.of(groups, {host: variables.get(host, {}) for host in groups.get("testbed", [])})

    @property
    def virtual(self) -> bool:
        """Whether its hosts live in virtual time; :class:`InventoryError` if only some do."""
        do = {host: of.lab_machine == "vtime" for host, of in self.hosts.items()}
        if len(set(do.values())) > 1:
            others = ", ".join(host for host, virtual in do.items() if not virtual)
            raise InventoryError(
                f"inventory: lab_machine: vtime is a property of all hosts, and {others} lack it"
            )
        return any(do.values())

    def groups_of(self, host: str) -> list[str]:
        """Names of the groups that contain this host, sorted."""
        return sorted(group for group, members in self.groups.items() if host in members)


def narrow_router(
    pairs: Iterable[tuple[str, str]], routers: Iterable[str], mtus: Mapping[str, int]
) -> str | None:
    """Which router cannot receive the packets of its hosts, whose MTU is larger; None if none.

    The smaller MTU of the two ends counts: TCP sends no larger packets than the other end can receive.
    """
    for ends in pairs:
        least = min(mtus[host] for host in ends)
        for router in routers:
            if mtus[router] < least:
                return (
                    f"{' and '.join(ends)} send each other packets of up to {least} bytes (MTU), and "
                    f"{router} receives no more than {mtus[router]}"
                )
    return None


def _digest(path: Path) -> str | None:
    """SHA-256 of what decides what ``ansible-inventory`` lists; None if that is not files alone."""
    beside = path if path.is_dir() else path.parent
    trees = [path] if path.is_dir() else [path, beside / "group_vars", beside / "host_vars"]
    # Ansible follows links to directories, as glob does and Path.rglob does not.
    found = (glob.glob(str(tree / "**"), recursive=True, include_hidden=True) for tree in trees)
    files = sorted(
        {file for names in (map(str, trees), *found) for file in map(Path, names) if file.is_file()}
    )
    settings = {name: value for name, value in os.environ.items() if name.startswith("ANSIBLE_")}
    digest = hashlib.sha256()
    versions = (version("dumbbell"), version("ansible-core"))
    for part in (*versions, sorted(InventoryHost.model_fields), path.absolute(), sorted(settings.items())):
        digest.update(f"{part}\0".encode())
    configuration = Path(settings.get("ANSIBLE_CONFIG", "ansible.cfg"))
    if not configuration.is_file():
        return None  # it is at a place that only Ansible knows
    try:
        for file in (configuration, *files):
            content = file.read_bytes()
            # A script, or a plugin that asks another service: its answer may change while its file does not.
            if os.access(file, os.X_OK) or re.search(rb"^plugin\s*:", content, re.MULTILINE):
                return None
            digest.update(f"{file}\0{len(content)}\0".encode() + content)
    except OSError:
        return None  # Ansible says what is wrong with it
    return digest.hexdigest()


def _keep(place: Path, text: str) -> None:
    """Write it whole or not at all; without a place to keep it, the next reading takes longer."""
    part = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(place)
    except OSError:
        part.unlink(missing_ok=True)
