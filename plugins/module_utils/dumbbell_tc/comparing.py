"""Differences between the kernel's state and the request, beyond the precision of reading back."""

from __future__ import annotations

from .direction import Devices, Direction, Found
from .kinds import RATE_RESOLUTION_BPS, Differences, close, differences

BURST_RESOLUTION_TICKS = 17  # tc cuts the time of a burst to whole microseconds, then to ticks
HTB_RESOLUTION = {
    "rate_bps": RATE_RESOLUTION_BPS,
    "ceil_bps": RATE_RESOLUTION_BPS,
    "burst_ticks": BURST_RESOLUTION_TICKS,
    "cburst_ticks": BURST_RESOLUTION_TICKS,
}


def mismatches(devices: Devices, asked: Direction, found: Found) -> Differences:
    """Name of a part to (requested, found); empty exactly if nothing has to be done."""
    wrong = bottleneck_differences(asked, found.direction) | line_differences(asked, found.direction)
    wrong |= policer_differences(asked, found.direction)
    if asked.line is None and found.netem:
        wrong["netem"] = (None, f"{found.egress_kind} on {devices.egress}")
    target = devices.ifb if asked.bottleneck else None
    if found.redirect != target:
        wrong["redirect"] = (target, found.redirect)
    ifb = "up" if asked.bottleneck else "absent"
    if found.ifb != ifb:
        wrong[devices.ifb] = (ifb, found.ifb)
    return wrong


def bottleneck_differences(asked: Direction, found: Direction) -> Differences:
    """Requested attributes of the bottleneck that differ by more than the precision of reading back."""
    one, other = asked.bottleneck, found.bottleneck
    if one is None:
        return {}
    if other is None or one.kind != other.kind:
        return {"bottleneck": (f"htb over {one.kind}", other and f"htb over {other.kind}")}
    wrong = {
        name: (getattr(one, name), getattr(other, name))
        for name, resolution in HTB_RESOLUTION.items()
        if not close(getattr(one, name), getattr(other, name), resolution)
    } | differences(one.kind, one.queue, other.queue)
    return {f"bottleneck {name}": pair for name, pair in wrong.items()}


def policer_differences(asked: Direction, found: Direction) -> Differences:
    """Attributes of the policer that differ by more than the precision of reading back."""
    one, other = asked.policer, found.policer
    if one is None or other is None:
        return {} if one == other else {"policer": (one, other)}
    return {
        f"policer {name}": (getattr(one, name), getattr(other, name))
        for name in one._fields
        if not close(getattr(one, name), getattr(other, name), HTB_RESOLUTION[name])
    }


def line_differences(asked: Direction, found: Direction) -> Differences:
    """Requested attributes of the delay line that differ by more than the precision of reading back."""
    one, other = asked.line, found.line
    if one is None:
        return {}
    if other is None or len(one.bands) != len(other.bands):
        return {"netem": (f"{len(one.bands)} netem", other and f"{len(other.bands)} netem")}
    wrong: Differences = {}
    for i, (band, held) in enumerate(zip(one.bands, other.bands)):  # noqa: B905  Python 3.9
        of_flow = f" of class {i + 1}" if i else ""
        wrong |= {f"netem {name}{of_flow}": pair for name, pair in differences("netem", band, held).items()}
    if one.bands[0]["distribution"] != other.bands[0]["distribution"]:
        wrong["netem distribution"] = (one.bands[0]["distribution"], other.bands[0]["distribution"])
    if one.filters != other.filters:
        wrong["flows"] = (one.filters, other.filters)
    return wrong
