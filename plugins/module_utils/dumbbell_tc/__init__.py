"""One direction of an emulated path: parse the kernel's state, compare, and make the tc commands.

A direction has up to three stages on the router. Packets that enter device `ingress` are redirected to an
ifb device whose root, an htb with one class over the queue, is the bottleneck. They leave by device
`egress`: a filter of its egress hook is the policer, and its root is the delay line: a netem, or a prio
over several netems among which filters choose for each flow. If one netem did both, its limit would be the
limit of the bottleneck's queue and of the delay line at once. The ingress hook of a device belongs to one
direction, its egress hook and its root qdisc to the other, so directions do not interfere.

An option of a path is one line in the table of `kinds`, with its unit, its words and how tc shows it, and one
entry in the documentation of the module `tc_path`, which a test compares with the table.
"""

from .asking import BURST_US, ask, ask_changes, warnings
from .commands import handles, plan, probe_differences, probes, render_change
from .comparing import mismatches
from .direction import ABSENT, IFB, Devices, Direction, Found, burst_of, measured, report
from .htb import class_request
from .kinds import DISTRIBUTIONS, KINDS, QUEUES, Json, arguments
from .netlink import NLMSG_DONE, NLMSG_ERROR, messages
from .parsing import parse
from .police import filter_request

__all__ = [
    "ABSENT",
    "BURST_US",
    "DISTRIBUTIONS",
    "IFB",
    "KINDS",
    "NLMSG_DONE",
    "NLMSG_ERROR",
    "QUEUES",
    "Devices",
    "Direction",
    "Found",
    "Json",
    "arguments",
    "ask",
    "ask_changes",
    "burst_of",
    "class_request",
    "filter_request",
    "handles",
    "measured",
    "messages",
    "mismatches",
    "parse",
    "plan",
    "probe_differences",
    "probes",
    "render_change",
    "report",
    "warnings",
]
