"""The commands that return a host to the state recorded by `dumbbell_baseline`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import dumbbell_baseline as baseline
from . import dumbbell_ethtool as ethtool
from . import dumbbell_link as link
from . import dumbbell_packages as packages
from .dumbbell_baseline import (
    MODULES,
    PLACE,
    UNMAKE,
    Command,
    Qdiscs,
    Setting,
    Values,
    copy_of,
)

# A package may bring back a service that another one replaced. Services stop before their files are
# removed. A qdisc uses the queue length at its creation, so links come before qdiscs.
ORDER = (
    *("package", "service", "unit", "file", "menu", "sysctl", "sysfs"),
    *("features", "coalescing", "pause", "rings", "channels", "link", "qdisc"),
    *("directory", "parameters", "module", "modules", "dkms", "tree", "user", "kernel"),
)
PURGED = ("package", "user")  # if they were added
# modprobe can unload a module only while its file exists.
MODULE_FILE = re.compile(r"/lib/modules/(?P<release>[^/]+)/.+")


def undo(was: Values, now: Values, place: Path = PLACE) -> list[Command]:
    """Commands that return every setting to what it was."""
    gone = [subject for (kind, subject), value in was.items() if kind == "link" and value is None]
    changed = [
        setting
        for setting in sorted(was, key=_place)
        if differs(setting, was[setting], now[setting])
        and not (setting.kind == "qdisc" and setting.subject in gone)
    ]
    last = [setting for setting in changed if _is_last(setting, was[setting])]
    first = [setting for setting in changed if setting not in last]

    def undone(settings: list[Setting]) -> list[Command]:
        return [c for setting in settings for c in _undo(setting, was[setting], now[setting], place)]

    commands = undone(first)
    files = [Path(setting.subject) for setting in first if setting.kind == "file"]
    menus = [setting for setting in first if setting.kind == "menu"]
    if menus or any(baseline.GRUB in file.parents and file.parts[-2:-1] == ("grub.d",) for file in files):
        commands.append(["update-grub"])
    services = {
        setting.subject: value for setting, value in was.items() if setting.kind == "service" and value
    }
    added = [setting for setting in first if setting.kind == "package"]
    if files or added:
        again = [name for name, value in services.items() if value["active"] == "active"]
        commands.append(["systemctl", "daemon-reload"])
        commands += [["systemctl", "restart", name] for name in again]
    commands += [["ip", "link", "del", "dev", device] for device in gone if now[Setting("link", device)]]
    # A module may use another one, so the last one that was loaded is removed first.
    loaded = [setting.subject for setting in changed if setting.kind == "module"]
    loaded += [name for name in now.get(MODULES) or [] if name not in [*was[MODULES], *loaded]]
    commands += [["modprobe", "-r", "-a", *loaded]] if loaded else []
    commands += undone([setting for setting in last if setting.kind not in PURGED])
    found = [MODULE_FILE.match(setting.subject) for setting in last if setting.kind == "file"]
    releases = dict.fromkeys(match["release"] for match in found if match)
    return commands + [["depmod", release] for release in releases]


def purge(was: Values, now: Values) -> list[Command]:
    """Commands that remove packages that were added, and the users that came with them.

    They come after the commands of :func:`undo`, some of which are programs of these packages.
    """
    added = [each for each in was if each.kind in PURGED and was[each] is not True and now[each] != was[each]]
    commands = []
    for before, command in ((packages.CONFIGURATION, "remove"), (None, "purge")):
        # Together, because some need others. Those that the site's own packages need are refused, and stay.
        names = [s.subject for s in added if s.kind == "package" and was[s] == before]
        commands += [[*getattr(packages.manager(), command), *names]] if names else []
    return commands + [[*UNMAKE["user"], setting.subject] for setting in added if setting.kind == "user"]


def _place(setting: Setting) -> tuple[int, int]:
    """The order of settings; of directories the innermost first."""
    depth = setting.subject.count("/") if setting.kind == "directory" else 0
    return ORDER.index(setting.kind), -depth


def _is_last(setting: Setting, was: Any) -> bool:
    """Whether a setting is restored when modules are unloaded and services stopped, which may use it."""
    if setting.kind in ("file", "directory"):
        return MODULE_FILE.match(setting.subject) is not None
    return setting.kind in ("dkms", "tree", "user") or (setting.kind == "package" and was is not True)


def differs(setting: Setting, was: Any, now: Any) -> bool:  # noqa: PLR0911
    """Whether a setting differs from its record.

    Modules that others have unloaded are no difference; a menu differs until it agrees with its settings.
    """
    if setting.kind == "service" and was is None and now is not None:
        return "active" in now.values() or "enabled" in now.values()  # its unit goes with its package
    if setting.kind == "modules":
        return bool(set(now) - set(was))
    if setting.kind == "module":
        return was is None and now is not None
    if setting.kind == "parameters":  # of a module that was not loaded; the setting "module" covers it
        return was is not None and now is not None and was != now
    if setting.kind == "menu":
        return now is False
    if setting.kind == "qdisc" and was == [] and [each["kind"] for each in now or ()] == ["noop"]:
        return False  # it has not been up since the boot; when it comes up, the kernel chooses
    if setting.kind in ethtool.SHOW and was is not None and now is not None:
        # A feature that the driver held fixed when it was recorded has no known value.
        return any(now.get(name) != value for name, value in was.items())
    return bool(was != now)


def told(was: Any, now: Any) -> str:
    """Both values of a setting, of a group of values only those that differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        names = [name for name in was if was[name] != now.get(name)]
        was, now = ({name: of.get(name) for name in names} for of in (was, now))
    return f"was {was}, is {now}"


def _undo(setting: Setting, was: Any, now: Any, place: Path) -> list[Command]:  # noqa: PLR0911
    kind, subject = setting
    if kind == "service":
        return _undo_service(subject, was, now)
    if kind == "file":
        return [
            ["rm", subject]
            if was is None
            else ["cp", "--preserve=all", str(copy_of(subject, place)), subject]
        ]
    if kind == "package":
        return [[*packages.manager().install, subject]]
    if kind in UNMAKE and was is None:
        return [[*UNMAKE[kind], subject]]
    # A menu is made when all its files are restored, playbooks/restore.yml boots a kernel, and modules are
    # unloaded together; or it did not exist, or does not exist any more.
    if kind in ("menu", "kernel", "modules") or was is None or now is None:
        return []
    back: dict[str, Callable[[], list[Command]]] = {
        "link": lambda: list(link.undo(was, now)),
        "qdisc": lambda: undo_qdiscs(subject, was, now),
        "sysctl": lambda: [["sysctl", "-w", f"{subject}={was}"]],
        "unit": lambda: [["systemctl", "start" if was == "active" else "stop", subject]],
        "sysfs": lambda: [["sh", "-c", f"echo {was} >{subject}"]],
        "parameters": lambda: [
            ["modprobe", "--remove", subject],
            ["modprobe", subject, *(f"{name}={value}" for name, value in was.items())],
        ],
    }
    if kind in back:
        return back[kind]()
    found = {name: ethtool.Parameter(value) for name, value in now.items()}
    asked = {name: value for name, value in was.items() if name in found}
    return list(ethtool.plan(subject, kind, asked, found))


def _undo_service(name: str, was: dict[str, str] | None, now: dict[str, str] | None) -> list[Command]:
    """Stop a service that did not run, and enable it as before. It is started when its files are restored."""
    before, after = was or {"enabled": "disabled", "active": "inactive"}, now or {}
    commands = []
    if before["active"] != "active" and after.get("active") == "active":
        commands.append(["systemctl", "stop", name])
    if before["enabled"] != after.get("enabled") and before["enabled"] in ("enabled", "disabled"):
        commands.append(["systemctl", before["enabled"].removesuffix("d"), name])
    return commands


def undo_qdiscs(device: str, was: Qdiscs, now: Qdiscs) -> list[Command]:
    """Remove qdiscs that were added, and create those that were removed."""
    commands: list[Command] = []
    tc = ["tc", "qdisc"]
    before, after = (_at(qdiscs, parent="ffff:fff1") for qdiscs in (was, now))
    if before != after:
        commands += [[*tc, "del", "dev", device, after["kind"]]] if after else []
        commands += [[*tc, "add", "dev", device, before["kind"]]] if before else []
    before, after = (_at(qdiscs, root=True) for qdiscs in (was, now))
    if before != after:
        if before and before["kind"] != "noop":
            made = [*tc, "replace", "dev", device, "root", "handle", before["handle"], before["kind"]]
            return [*commands, [*made, *_limit(before)]]
        if after is None:  # a device that was never up had noop: the kernel's default cannot be deleted
            commands.append([*tc, "replace", "dev", device, "root", "handle", "1:", "pfifo"])
        commands.append([*tc, "del", "dev", device, "root"])
    return commands


def _at(qdiscs: Qdiscs, **place: Any) -> dict[str, Any] | None:
    return next((each for each in qdiscs if place.items() <= each.items()), None)


def _limit(qdisc: dict[str, Any]) -> list[str]:
    limit = qdisc["options"].get("limit")
    return ["limit", str(limit)] if isinstance(limit, int) else []
