"""Settings of hosts: owned ones are as requested, and observed ones did not change during the run.

Runs with a plan from before these settings have none; nothing is checked then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dumbbell.compare.observed import (
    EMPTY,
    NONE,
    Observed,
    Seen,
    changes,
    digest,
    may_be_unread,
    read_observed,
)
from dumbbell.facts.check import Check
from dumbbell.run.content import Run, dig
from dumbbell.units import human

PAIR = 2  # requested and found
UNTIL_STATUS_NS = 10**9


def observed(run: Run, host: str) -> Observed:
    """The settings that the agent of a host observed; ValueError with a sentence if they cannot be read."""
    return read_observed(run.raw(host, "measurement", "observed.json"))


def seen(runs: Iterable[tuple[Run, str]], *, valid: bool = False) -> Iterator[Seen]:
    """The observed settings of hosts, of each run with its label for people.

    Runs from before these settings are skipped. Equal values of many runs are stored once. A host whose
    settings cannot be read is skipped; if all runs are ``valid``, it raises ValueError.
    """
    known: dict[str, dict[str, str]] = {}
    for run, label in runs:
        if not run.plan.observed:
            continue
        found = {}
        for host in run.point.phase("measurement").hosts:
            try:
                settings = observed(run, host).before.settings
            except ValueError as error:
                if valid:
                    raise ValueError(f"{run.dir}: settings of {host} not known: {error}") from None
                continue  # the verdict reports this
            found[host] = known.setdefault(digest(settings), settings)
        trims = {host: dig(state, "path", "trim_us") for host, state in run.states.items()}
        yield Seen(label, run.point, found, {host: us for host, us in trims.items() if isinstance(us, int)})


def settings_checks(run: Run) -> Iterator[Check]:
    """Every owned setting is as requested, and no observed setting changed during the measurement."""
    if not run.plan.observed:
        return
    for host in run.point.hosts:
        yield from _owned(run, host)
    for host in run.point.phase("measurement").hosts:
        yield from _observed(run, host)


def _check(name: str, host: str, requested: Any, measured: Any, reason: str = "", *, unit: str = "") -> Check:
    return Check(
        name=name,
        kind="validity",
        subject=host,
        requested=requested,
        measured=measured,
        unit=unit,
        ok=not reason,
        reason=reason,
    )


def _owned(run: Run, host: str) -> Iterator[Check]:
    """One check of all settings as requested, and one for each other setting."""
    state = run.states[host]
    owned = dig(state, "owned")
    if not isinstance(owned, dict) or not owned:
        yield _check("owned", host, "as asked", None, "owned settings not known: state.json has none")
        return
    good = 0
    for name, pair in owned.items():
        asked, found = pair if _is_pair(pair) else (pair, None)
        if not _is_pair(pair) or (found is None and asked is not None):
            reason = f"{name} not known: it was not read back"
        elif asked != found:
            reason = f"{name}: asked {human(asked)}, found {human(found)}"
        else:
            good += 1
            continue
        yield _check("owned", host, asked, found, reason)
    yield _check("owned", host, good, good, unit="settings as asked")
    flushed = dig(state, "tcp_metrics", "flushed") is True
    reason = "" if flushed else "the cache of TCP metrics was not flushed before the point"
    yield _check("TCP metrics", host, "flushed", "flushed" if flushed else None, reason)


def _observed(run: Run, host: str) -> Iterator[Check]:
    """The host was not booted in between, all settings could be read, and none changed."""
    try:
        found = observed(run, host)
    except ValueError as error:
        yield _check("observed", host, "unchanged", None, f"observed settings not known: {error}")
        return
    before, after = found.before, found.after
    boot = dig(run.states[host], "boot_id")
    # systemd-nspawn, which runs the hosts of a world, shows them a boot id that units do not see.
    # A host that boots there ends its world.
    boots = [*([] if run.plan.virtual else [boot]), before.boot_id, after.boot_id]
    reason = ""
    if not boot or not before.boot_id:
        reason = "which boot of the host measured is not known: nothing was read back"
    elif len(set(boots)) > 1:
        which = "while it measured" if boot == before.boot_id else "after its state was applied"
        reason = f"the host was booted {which}: {', '.join(map(str, boots))}"
    yield _check("boot", host, boot, after.boot_id, reason)
    yield _bracket(run, host, found)
    unread = {**before.unread, **after.unread}
    for name, why in unread.items():
        if not may_be_unread(name, why):
            yield _check("observed", host, "read", None, f"{name} was not read: {why}")
    changed = [one for one in changes(before.settings, after.settings) if one.name not in unread]
    for name, old, new in changed:
        was, is_now = (NONE if value is None else value or EMPTY for value in (old, new))
        told = f"{name} changed while it measured: {was} before, {is_now} after"
        yield _check("observed", host, was, is_now, told)
    if not before.settings:
        yield _check("observed", host, "read", None, "observed settings not known: none was read")
    same = len(before.settings) - sum(name in before.settings for name, *_ in changed)
    yield _check("observed", host, len(before.settings), same, unit="settings unchanged")


def _bracket(run: Run, host: str, found: Observed) -> Check:
    """The first reading is before t0, the second between the end and the agent's last event."""
    t0, reason, near = run.t0_unix_ns("measurement"), "", run.point.validity.clock_offset_ns
    last = dig(run.status(host, "measurement"), "unix_ns")
    ended = last if isinstance(last, int) else found.after.unix_ns
    read = [found.before.unix_ns, found.after.unix_ns]
    measured = None if t0 is None else [at - t0 for at in read]
    asked = [0, run.point.phase("measurement").duration_ns]
    if t0 is None or measured is None:
        reason = "when the settings were read is not known: no host kept its t0"
    elif measured[0] > asked[0] or not asked[1] - near <= measured[1] <= ended - t0 + UNTIL_STATUS_NS:
        when = " and ".join(human(at, "ns") for at in measured)
        reason = f"the settings were read at {when}, asked before 0 and after {human(asked[1], 'ns')}"
    return _check("observed when", host, asked, measured, reason, unit="ns")


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == PAIR
