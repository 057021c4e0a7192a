"""The complete state of a host: every setting that Dumbbell owns, and how it becomes what it is to be.

A setting is what a scenario asks, else what the inventory asks, else what it was as found: before Dumbbell's
first change, which the record of `dumbbell_baseline` holds. What no run has ever touched, and nobody asks
for, is not owned. So nothing of an earlier run is left, whatever it was.

A part is one kind of settings. All of them are pure but for `Host`, which reads and caches what the host has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils import dumbbell_baseline as baseline
from ansible.module_utils import dumbbell_cpu as cpu
from ansible.module_utils import dumbbell_ethtool as ethtool
from ansible.module_utils import dumbbell_link as link
from ansible.module_utils import dumbbell_modules as modules
from ansible.module_utils import dumbbell_path as path
from ansible.module_utils import dumbbell_sysctl as sysctl
from ansible.module_utils import dumbbell_tc as tc
from ansible.module_utils.dumbbell_baseline import Setting

Command = list[str]
Owned = dict[str, tuple[Any, Any]]  # by a name for people: what it is to be, and what it is
Ledger = Mapping[Setting, Any]  # what settings were as found

ALLOWED = sysctl.OF_THE_KERNEL
AVAILABLE = "net.ipv4.tcp_available_congestion_control"
CONTROL = "net.ipv4.tcp_congestion_control"
DEFAULT_QDISC = "net.core.default_qdisc"
# Owned from the first contact on, whoever asks.
ALWAYS = (ALLOWED, CONTROL)
NO_CHOICE = ("mq", "noqueue", "noop")  # by the kind of the device, whatever the default is
DIRECTIONS = {"forward": ("left", "right"), "reverse": ("right", "left")}
# Groups of ethtool, and what one of their settings is called.
CALLED = {"features": "feature", "rings": "ring", "channels": "channels"}
# Features that a name of ethtool's stands for: who asks for the name asks for all of them.
MEMBERS = {
    "tx-checksumming": "tx-checksum-",
    "scatter-gather": "tx-scatter-gather",
    "tcp-segmentation-offload": "tx-tcp",
}


class Part(NamedTuple):
    """One kind of settings: how to read it, and from that what to do, what is owned, what to write down."""

    name: str
    read: Callable[[], Any]
    plan: Callable[[Any], list[Command]]
    owned: Callable[[Any], Owned]
    report: Callable[[Any], dict[str, Any]]
    refuse: Callable[[Any, list[Command]], None] = lambda found, commands: None


class Host:
    """What the host has, each answer of a tool read once until something is changed."""

    def __init__(self, run: Callable[[Command], str], execute: baseline.Execute) -> None:
        self._run = run
        self.execute = execute
        self._said: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        """Read again from now on: something was changed."""
        self._said.clear()

    def said(self, command: Command) -> str:
        """What a command prints."""
        key = tuple(command)
        if key not in self._said:
            self._said[key] = self._run(command)
        return self._said[key]

    def json(self, command: Command) -> Any:
        """Likewise, decoded; some commands print nothing where they mean an empty list."""
        return json.loads(self.said(command) or "[]")

    def links(self) -> list[dict[str, Any]]:
        """Every interface with its addresses."""
        links: list[dict[str, Any]] = self.json(["ip", "-j", "-d", "address", "show"])
        return links

    def qdiscs(self) -> list[dict[str, Any]]:
        """Every qdisc that is not the kernel's own choice, and those of the devices."""
        qdiscs: list[dict[str, Any]] = self.json(["tc", "-j", "-d", "qdisc", "show"])
        return qdiscs

    def link(self, device: str) -> dict[str, Any]:
        """State of an interface, as `dumbbell_link` has it."""
        one = next(each for each in self.links() if each["ifname"] == device)
        routes = [
            route
            for family in ("-4", "-6")
            for route in self.json(["ip", "-j", family, "route", "show", "table", "main"])
            if route.get("dev") == device
        ]
        dump = [qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device]
        return {**link.parse(one, routes), **link.parse_qdisc(dump)}

    def own_qdiscs(self, device: str) -> list[dict[str, Any]]:
        """Root and ingress that somebody chose, as the record has them."""
        return list(baseline.own_qdiscs([qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device]))

    def default_qdiscs(self, device: str) -> list[str]:
        """Kinds of those that the kernel chose for what is sent."""
        chosen = [qdisc for qdisc in self.qdiscs() if qdisc["dev"] == device and qdisc["handle"] == "0:"]
        return list(dict.fromkeys(qdisc["kind"] for qdisc in chosen))

    def group(self, device: str, group: str) -> str:
        """What ethtool shows of a group; '' where the driver has none, or must not be asked."""
        if group == "features":
            return self.said(["ethtool", "-k", device])
        if (ethtool.driver(self.said(["ethtool", "-i", device])), group) in ethtool.NOT_TO_BE_READ:
            return ""
        key = ("group", device, group)
        if key not in self._said:
            self._said[key] = self.execute(["ethtool", ethtool.SHOW[group], device])[1]
        return self._said[key]


# At first contact


def first_contact(asked: Mapping[str, Any]) -> list[Setting]:
    """Settings that are recorded before anything is changed: to set one sysctl may change another one."""
    known = [name for name in asked["sysctls"] if sysctl.read(name) is not None]
    return [Setting("sysctl", name) for name in (*ALWAYS, *known)] + [
        Setting(kind, device) for device in asked["interfaces"] for kind in ("link", "qdisc", "features")
    ]


# Parts


def parts(asked: Mapping[str, Any], ledger: Ledger, host: Host, module: Any) -> list[Part]:
    """All parts, in the order in which they are changed; ValueError names what cannot be asked."""
    way = asked.get("path")
    carrying = (
        {way[side] for side in ("left", "right")} if way and (way["forward"] or way["reverse"]) else set()
    )
    # The qdisc that the kernel chooses is a sysctl's.
    found = [_modules(asked, ledger), _sysctls(asked, ledger)]
    for device, of in asked["interfaces"].items():
        found += _interface(device, of, ledger, host, module)
    if way:
        found += [_direction(name, way, host, module) for name in DIRECTIONS]
    found += [
        _as_found_qdisc(device, asked, ledger, host)
        for device, of in asked["interfaces"].items()
        if of.get("qdisc") is None and device not in carrying
    ]
    return [*found, _allowed(asked, ledger), _files(asked, ledger), _surplus(asked, ledger)]


def _is_as_found(name: str, ledger: Ledger) -> bool:
    """Whether a module was there before any run; what the kernel loads by itself counts as such."""
    return ledger.get(Setting("module", name), True) is not None


def _own_parameters(wanted: Mapping[str, Mapping[str, str]], ledger: Ledger) -> dict[str, dict[str, str]]:
    """As found, of modules that were there and are loaded anew for a run's parameters, or have been."""
    found = {
        setting.subject: was
        for setting, was in ledger.items()
        if setting.kind == "parameters" and was is not None and _is_as_found(setting.subject, ledger)
    }
    for name, asked in wanted.items():
        if name in found or not _is_as_found(name, ledger) or not (modules.SYSFS / name).exists():
            continue
        has = modules.read_loaded(name)
        differ = [key for key, value in asked.items() if modules.canonical(has.parameters.get(key)) != value]
        if has.read_only & set(differ):
            found[name] = has.parameters
    return {
        name: {
            key: str(ledger.get(Setting("sysfs", f"/sys/module/{name}/parameters/{key}"), value))
            for key, value in was.items()
            if value not in ("", "(null)")  # which cannot be given
        }
        for name, was in found.items()
    }


def _modules(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Modules, with their parameters and no other run's: one that has more is loaded anew."""
    of = asked["modules"]
    wanted: dict[str, dict[str, str]] = {
        name.replace("-", "_"): {key: modules.canonical(value) for key, value in values.items()}
        for name, values in of["loaded"].items()
    }
    for name, was in _own_parameters(wanted, ledger).items():
        wanted[name] = {**was, **wanted.get(name, {})}
    controls = list(dict.fromkeys([*of["controls"], *of["allowed"]]))
    wants = modules.Asked(wanted, controls, None, modules.read_aliases())

    def read() -> Any:
        more = {
            name: sorted(values.keys() - wanted.get(name, {}).keys())
            for name, values in modules.read_given().items()
            if name in wants.names and not _is_as_found(name, ledger)
        }
        return modules.read(wants), {name: keys for name, keys in more.items() if keys}, sysctl.read(CONTROL)

    def plan(found: Any) -> list[Command]:
        have, more, default = found
        again = [name for name in more if name in have.loaded]
        commands = [command for command in modules.plan(wants, have, again) if command[0] != "sysctl"]
        # The default control is in use. reno, of every kernel, stands in until the sysctls are set.
        if ["modprobe", "--remove", f"tcp_{default}"] in commands:
            commands.insert(0, ["sysctl", "-w", f"{CONTROL}=reno"])
        return commands

    def owned(found: Any) -> Owned:
        have, more, _ = found
        settings: Owned = {f"module {name}": ("loaded", "loaded") for name in wants.names}
        for name, values in wanted.items():
            settings.update({f"{key} of {name}": (value, value) for key, value in values.items()})
        for name, keys in more.items():
            settings.update({f"{key} of {name}": ("as it is loaded", "of another run") for key in keys})
        for name, pair in modules.mismatches(wants, have).items():
            if name != "allowed":
                settings[f"module {name}" if name in wants.names else name] = pair
        return settings

    def refuse(found: Any, commands: list[Command]) -> None:
        if refused := list(modules.refusals(wants, found[0])):
            raise ValueError("; ".join(refused))

    return Part(
        "modules", read, plan, owned, lambda found: {"modules": modules.report(wants, found[0])}, refuse
    )


def _allowed(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Controls that any user may choose; after the default is set, which the kernel allows to everybody."""
    of = asked["modules"]
    as_found = str(ledger.get(Setting("sysctl", ALLOWED)) or "").split()
    default = asked["sysctls"].get(CONTROL) or ledger.get(Setting("sysctl", CONTROL))
    exactly = of["allowed"] or str(asked["sysctls"].get(ALLOWED) or "").split()
    wants = exactly or [*as_found, *of["controls"], *([default] if default else [])]

    def read() -> Any:
        return tuple(str(sysctl.read(name) or "").split() for name in (AVAILABLE, ALLOWED))

    def wanted(found: Any) -> list[str]:
        """Not one that was allowed as found, and whose module a boot has not loaded."""
        if sysctl.is_fixed(ALLOWED) and not exactly:
            return list(dict.fromkeys([*found[1], *of["controls"]]))
        return [name for name in dict.fromkeys(wants) if exactly or name in found[0]]

    def plan(found: Any) -> list[Command]:
        want = wanted(found)
        return [] if set(want) == set(found[1]) else [["sysctl", "-w", f"{ALLOWED}={' '.join(want)}"]]

    def owned(found: Any) -> Owned:
        """The kernel lists them in an order of its own."""
        want, has = wanted(found), found[1]
        return {ALLOWED: (" ".join(has if set(want) == set(has) else want), " ".join(has))}

    return Part(
        "allowed congestion controls",
        read,
        plan,
        owned,
        lambda found: {"modules": {"allowed": found[1]}, "sysctl": {ALLOWED: " ".join(found[1])}},
    )


def _surplus(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Modules that a run has given parameters, and that nobody asks for; last, when nothing uses them."""
    of = asked["modules"]
    names = {name.replace("-", "_") for name in of["loaded"]}
    names |= set(modules.Asked({}, [*of["controls"], *of["allowed"]], None, modules.read_aliases()).names)

    def read() -> list[str]:
        given = [name for name in modules.read_given() if name not in names]
        return [name for name in given if not _is_as_found(name, ledger) and (modules.SYSFS / name).exists()]

    return Part(
        "modules of other runs",
        read,
        lambda found: [["modprobe", "--remove", name] for name in found],
        lambda found: {f"module {name}": ("not loaded", "loaded") for name in found},
        lambda found: {},
    )


def _interface(device: str, of: Mapping[str, Any], ledger: Ledger, host: Host, module: Any) -> list[Part]:
    was = ledger.get(Setting("link", device)) or {}
    asked = {key: of.get(key) for key in ("mtu", "txqueuelen", "gso_max_segs", "qdisc")}
    for key in ("mtu", "txqueuelen", "gso_max_segs"):
        asked[key] = was.get(key) if asked[key] is None else asked[key]
    asked["addresses"] = [*was.get("addresses", []), *of.get("addresses", [])]
    defaults = dict.fromkeys(link.ROUTE_OPTIONS, False)
    routes = {(each["to"], each["via"]): {**defaults, **each} for each in was.get("routes", [])}
    for each in of.get("routes", []):
        canonical = link.canonical_route(each["to"], each["via"])
        options = {key: bool(each.get(key)) for key in link.ROUTE_OPTIONS}
        routes[canonical["to"], canonical["via"]] = {**canonical, **options}
    asked["routes"] = list(routes.values())
    wants = link.canonical({**asked, "up": True})

    def surplus(found: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """Addresses and routes that have come since, of an earlier run."""
        addresses = [each for each in found["addresses"] if each not in wants["addresses"] and not _own(each)]
        return addresses, [each for each in found["routes"] if not link.same_route(each, wants["routes"])]

    def plan(found: Any) -> list[Command]:
        addresses, gone = surplus(found)
        commands = [["ip", "route", "del", each["to"], "via", each["via"], "dev", device] for each in gone]
        commands += [["ip", "address", "del", each, "dev", device] for each in addresses]
        return [*commands, *link.plan(wants, found)]

    def owned(found: Any) -> Owned:
        wrong = link.mismatches(wants, found)
        settings: Owned = {f"{device} {key}": (value, value) for key, value in wants.items()}
        settings.update({f"{device} {key}": pair for key, pair in wrong.items()})
        addresses, gone = surplus(found)
        if addresses:
            settings[f"{device} addresses"] = (wants["addresses"], found["addresses"])
        if gone:
            settings[f"{device} routes"] = (wants["routes"], found["routes"])
        return settings

    def report(found: Any) -> dict[str, Any]:
        keys = ("mtu", "txqueuelen", "gso_max_segs", "qdisc", "qdisc_options", "qdisc_leaves", "routes")
        return {"nic": {device: {key: found[key] for key in keys}}}

    def refuse(found: Any, commands: list[Command]) -> None:
        module.refuse_commands(commands)

    groups = [group for group in ethtool.SHOW if of.get(group) or Setting(group, device) in ledger]
    return [
        Part(device, lambda: host.link(device), plan, owned, report, refuse),
        *(_group(device, group, of.get(group) or {}, ledger, host) for group in groups),
    ]


def _own(address: str) -> bool:
    """Whether the kernel makes an address by itself."""
    interface = ip_interface(address)
    return interface.version == 6 and interface.is_link_local  # noqa: PLR2004


def _group(device: str, group: str, of: Mapping[str, Any], ledger: Ledger, host: Host) -> Part:
    """A group of ethtool. A feature that was on may wait for another one that is asked to be off."""
    asked = {name: ethtool.canonical(name, value) for name, value in of.items()}
    names = {ethtool.SHORT_NAMES.get(name, name) for name in asked} if group == "features" else set(asked)
    stands_for = tuple(MEMBERS[name] for name in names if name in MEMBERS)
    was = {
        name: value
        for name, value in (ledger.get(Setting(group, device)) or {}).items()
        if name not in names and not (stands_for and name.startswith(stands_for))
    }

    def read() -> Any:
        text = host.group(device, group)
        found = ethtool.parse(group, text)
        wants = ethtool.requested(text) if group == "features" else {}
        return ethtool.find(group, asked, found), {
            name: ethtool.Parameter(wants.get(name, found[name].value), found[name].fixed, found[name].most)
            for name in was
            if name in found
        }

    def both(found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        of_asked, of_found = found
        return {**{name: was[name] for name in of_found}, **asked}, {**of_found, **of_asked}

    def plan(found: Any) -> list[Command]:
        return list(ethtool.plan(device, group, *both(found)))

    def owned(found: Any) -> Owned:
        called = CALLED.get(group, group)
        wanted, have = both(found)
        return {f"{device} {called} {name}": (value, have[name].value) for name, value in wanted.items()}

    def report(found: Any) -> dict[str, Any]:
        key = "offloads" if group == "features" else group
        values = {name: each.value for name, each in found[0].items()}
        return {"nic": {device: {key: values}}} if values or group == "features" else {}

    return Part(f"{group} of {device}", read, plan, owned, report)


def _as_found_qdisc(device: str, asked: Mapping[str, Any], ledger: Ledger, host: Host) -> Part:
    was = ledger.get(Setting("qdisc", device)) or []
    default = asked["sysctls"].get(DEFAULT_QDISC) or ledger.get(Setting("sysctl", DEFAULT_QDISC))
    # What the kernel chose under another default stays when the default is back.
    chosen = default and not any(qdisc.get("root") and qdisc["kind"] != "noop" for qdisc in was)

    def read() -> Any:
        return host.own_qdiscs(device), host.default_qdiscs(device)

    def other(found: Any) -> list[str]:
        return [kind for kind in found[1] if chosen and kind not in (default, *NO_CHOICE)]

    def plan(found: Any) -> list[Command]:
        commands = list(baseline.undo_qdiscs(device, was, found[0]))
        if not commands and other(found):  # the kernel chooses again when one that was made is deleted
            root = ["tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "pfifo"]
            commands = [root, ["tc", "qdisc", "del", "dev", device, "root"]]
        return commands

    def owned(found: Any) -> Owned:
        if other(found):
            return {f"qdisc of {device}": (default, ", ".join(found[1]))}
        return {f"qdisc of {device}": (was, found[0])}

    return Part(f"qdisc of {device}", read, plan, owned, lambda found: {})


def _direction(name: str, way: Mapping[str, Any], host: Host, module: Any) -> Part:
    ingress, egress = (way[side] for side in DIRECTIONS[name])
    devices = tc.Devices(ingress, egress, tc.IFB[name])
    given = way[name]
    wanted, later = tc.ABSENT, []
    if given:
        wanted, *later = tc.ask_changes(path.params(given, way), given.get("changes") or [])

    def read() -> Any:
        links = host.json(["ip", "-j", "-d", "link", "show"])
        filters = host.json(["tc", "-j", "filter", "show", "dev", ingress, "ingress"])
        flows = host.json(["tc", "-j", "filter", "show", "dev", egress])
        return tc.parse(devices, links, host.qdiscs(), filters, path.read_classes(links, devices), flows)

    def plan(found: Any) -> list[Command]:
        return list(tc.plan(devices, wanted, found))

    def owned(found: Any) -> Owned:
        asks = tc.measured(wanted)
        wrong = tc.mismatches(devices, wanted, found)
        settings: Owned = {f"path {name}": (asks, asks if not wrong else tc.report(devices, found))}
        return {**settings, **{f"path {name}: {what}": pair for what, pair in wrong.items()}}

    def report(found: Any) -> dict[str, Any]:
        roots = tc.handles(wanted, found)
        places = {"bottleneck": devices.ifb, "delay_line": devices.egress}
        about = {
            name: tc.report(devices, found),
            "devices": {name: places},
            "handles": {name: list(roots)},
            "trim_us": way["trim_us"],
            "burst_us": way["burst_us"],
        }
        changes = [path.batch(devices, state, roots) for state in later]
        restore = path.batch(devices, wanted, roots) if later else []
        return {"path": about, "path_commands": {name: {"changes": changes, "restore": restore}}}

    def refuse(found: Any, commands: list[Command]) -> None:
        module.refuse_path(wanted, found, (ingress, egress))

    return Part(f"path {name}", read, plan, owned, report, refuse)


def _sysctls(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    was = {
        setting.subject: value
        for setting, value in ledger.items()
        if setting.kind == "sysctl" and value is not None and setting.subject != ALLOWED
    }
    wants = {name: sysctl.canonical(value) for name, value in asked["sysctls"].items() if name != ALLOWED}

    def read() -> dict[str, str | None]:
        found = {name: sysctl.read(name) for name in sorted({**was, **wants})}
        return {name: value for name, value in found.items() if value is not None or name in wants}

    def pairs(found: Mapping[str, str | None]) -> Owned:
        return {name: ({**was, **wants}[name], value) for name, value in found.items()}

    def plan(found: Mapping[str, str | None]) -> list[Command]:
        differ = {name: want for name, (want, value) in pairs(found).items() if want != value}
        return [["sysctl", "-w", f"{name}={want}"] for name, want in differ.items()]

    def refuse(found: Mapping[str, str | None], commands: list[Command]) -> None:
        lacking = [name for name, value in found.items() if value is None]
        loads = [name for name in asked["modules"]["loaded"] if not (modules.SYSFS / name).exists()]
        if lacking and not loads:  # a module may bring it
            raise ValueError(f"this kernel has no sysctl {', '.join(lacking)}")

    return Part("sysctls", read, plan, pairs, lambda found: {"sysctl": dict(found)}, refuse)


def _files(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Governors, idle states and affinities, and parameters of modules that are not loaded by a run."""
    of = asked["cpu"]
    irq_cpus = dict.fromkeys(asked["interfaces"], of["irq_cpus"]) if of["irq_cpus"] is not None else {}
    wants = cpu.wanted(of["governor"], of["idle_latency_max_us"], irq_cpus)
    set_by_module = {
        str(modules.SYSFS / name.replace("-", "_") / "parameters" / key)
        for name, values in asked["modules"]["loaded"].items()
        for key in values
    }
    # Numbers of interrupts are another boot's, and other devices may have them by now.
    interrupts = {file for device in asked["interfaces"] for file in cpu.affinities(device)}
    was = {
        setting.subject: value
        for setting, value in ledger.items()
        if setting.kind == "sysfs"
        and value is not None
        and setting.subject not in set_by_module
        and (setting.subject in interrupts or not setting.subject.endswith("smp_affinity_list"))
        and not _is_of_a_run(setting.subject, ledger)
    }

    def read() -> dict[str, str]:
        return dict(cpu.read(file for file in {**was, **wants} if Path(file).exists()))

    def wanted(found: Mapping[str, str]) -> dict[str, str]:
        return {file: {**was, **wants}[file] for file in found}

    def owned(found: Mapping[str, str]) -> Owned:
        wrong = cpu.mismatches(wanted(found), dict(found))
        settings: Owned = {file: (value, value) for file, value in wanted(found).items()}
        return {**settings, **wrong}

    return Part(
        "files",
        read,
        lambda found: cpu.plan(wanted(found), dict(found)),
        owned,
        lambda found: {"cpu": dict(found)},
    )


def _is_of_a_run(file: str, ledger: Ledger) -> bool:
    """Whether it is a parameter of a module that was not there as found: what was found then was a run's."""
    parts = Path(file).parts
    return parts[1:3] == ("sys", "module") and not _is_as_found(parts[3], ledger)


# Together


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reports of all parts in one: what is below the same key is put together."""
    whole: dict[str, Any] = {}
    for report in reports:
        for key, value in report.items():
            if isinstance(value, Mapping) and isinstance(whole.get(key), Mapping):
                whole[key] = merged([whole[key], value])
            else:
                whole[key] = value
    return whole


def with_path_commands(plan: Mapping[str, Any], host: str, commands: Mapping[str, Any]) -> dict[str, Any]:
    """A host's part of a plan; if it changes the path, with the commands that do so, and that undo it all.

    ``commands`` has of each direction ``changes``, for each change its commands in the words of `tc -batch`,
    and ``restore``.
    """
    own = dict(plan["hosts"][host])
    if not any(action["kind"] == "path" for action in own["actions"]):
        return dict(plan)
    named = {
        f"{direction}-{number}": change
        for direction, of in commands.items()
        for number, change in enumerate(of["changes"], start=1)
    }
    own["actions"] = [
        {**action, "commands": named[action["name"]]} if action["kind"] == "path" else action
        for action in own["actions"]
    ]
    own["restore"] = [command for of in commands.values() for command in of["restore"]]
    return {**plan, "hosts": {**plan["hosts"], host: own}}
