"""What a value was measured on: the testbed, what is under test, and the instrument.

A change of the **testbed** begins a new series. What is **under test** (kernels, builds of modules, tools
that send) is what a series is about. The **instrument** is Dumbbell itself.

Observed settings that come with a kernel are its defaults: another kernel may have others. The same kernel
must have the same again, else somebody has changed the testbed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dumbbell.compare.observed import BY_KERNEL, KERNEL, NONE, Change, digest, left, of_the_testbed
from dumbbell.metrics.values import conditions
from dumbbell.run.content import Run
from dumbbell.validity.settings import seen

BUILD = "kernel version"  # the setting that tells builds of one release from each other
_TESTED = r"kernel|kernel build|module .*|iperf3|atou"
_INSTRUMENT = r"agent|telegraf"
_CONTROLLER = "controller"
_MOST_TOLD = 5  # changes of conditions; of more their number
_NEITHER = ("scenario", "seed")
_COMMAND_LINE, _FIRST_PROGRAM = "kernel command line", re.compile(r"(?:^| )init=\S+")
_OF_KERNEL = r"kernel|kernel build|module .*"

Settings = Mapping[str, str]


@dataclass(frozen=True)
class Identity:
    """Conditions by name, those of a host as ``HOST NAME``, and settings by host."""

    testbed: Settings
    tested: Settings
    instrument: Settings
    site: Mapping[str, Settings]  # settings that no kernel decides
    defaults: Mapping[str, Settings]  # settings that come with a host's kernel

    def kernel(self, host: str) -> str:
        """Digest of what a host's defaults come with: its kernel and modules."""
        own = {name: value for name, value in self.tested.items() if _is(name, _OF_KERNEL, host)}
        return digest(own)


def identity(conditions: Settings, settings: Mapping[str, Settings]) -> Identity:
    """Sort conditions (:func:`dumbbell.metrics.values.conditions`) and observed settings by host."""
    found = dict(conditions)
    for host, own in settings.items():
        if BUILD in own:
            found[f"{host} kernel build"] = own[BUILD]
    tested = {name: value for name, value in found.items() if _is(name, _TESTED)}
    instrument = {
        name: value
        for name, value in found.items()
        if name.startswith(f"{_CONTROLLER} ") or _is(name, _INSTRUMENT)
    }
    testbed = {
        name: value
        for name, value in found.items()
        if name not in _NEITHER and name not in tested and name not in instrument
    }

    parts = {host: split(own) for host, own in settings.items()}
    site, defaults = ({host: of[i] for host, of in parts.items()} for i in (0, 1))
    return Identity(testbed, tested, instrument, site, defaults)


def split(own: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a host that belong to the site, and those that come with its kernel.

    Of the kernel's command line the first program is left out: in virtual time it has the name of a world,
    which is another after many a commit of Dumbbell.
    """
    parts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for name, value in own.items():
        if name not in (KERNEL, BUILD):
            of_kernel = re.fullmatch(BY_KERNEL, name) is not None
            parts[of_kernel][name] = _FIRST_PROGRAM.sub("", value) if name == _COMMAND_LINE else value
    return parts


def of_point(run: Run) -> Identity:
    """The identity of a point. Modules that other points left loaded are not part of it."""
    found = conditions(run.dir)
    settings = {}
    for there in seen([(run, "")]):
        for host in there.settings:
            settings[host] = of_the_testbed(there, host)
            found = {
                name: value
                for name, value in found.items()
                if not (
                    name.startswith(f"{host} module ") and left(there, host, f"{name[len(host) + 1 :]} build")
                )
            }
    return identity(found, settings)


def _is(name: str, pattern: str, host: str | None = None) -> bool:
    """Whether a condition is one of a host, by default of any but the controller, with such a name."""
    of, _, what = name.partition(" ")
    whose = of == host if host is not None else of != _CONTROLLER
    return whose and re.fullmatch(pattern, what) is not None


def in_words(changes: Iterable[Change]) -> str:
    """Changes of conditions; hosts with the same change share it: ``sender1, sender2 kernel 6.12 to 7.2``."""
    hosts: dict[str, list[str]] = {}
    for name, before, after in changes:
        host, _, what = name.partition(" ")
        hosts.setdefault(f"{what} {before or NONE} to {after or NONE}".strip(), []).append(host)
    found = [f"{', '.join(of)} {told}" for told, of in hosts.items()]
    if len(found) > _MOST_TOLD + 1:
        found[_MOST_TOLD:] = [f"{len(found) - _MOST_TOLD} more"]
    return "; ".join(found)
