"""One direction of an emulated path: parse what the kernel holds, compare, and render the tc commands.

Two stages on the router. What enters device `ingress` is redirected to an ifb device whose root, an htb of
one class over the queue, is the bottleneck; it leaves by device `egress`, whose root is the delay line: a
netem, or a prio over several netems among which filters choose for each flow. One netem doing both would let
its limit stand for the bottleneck's queue and for the delay line at once. The ingress hook of a device
belongs to one direction and its root qdisc to the other: directions never disturb each other.

An option of a path is one line in the table of `kinds`, with its unit, its words and how tc shows it; and the
documentation of the module `tc_path`, which a test compares with the table.
"""

from .asking import BURST_US, ask, ask_changes, warnings
from .commands import handles, plan, probe_differences, probes, render_change
from .comparing import mismatches
from .direction import ABSENT, IFB, Devices, Direction, Found, measured, report
from .htb import NLMSG_DONE, NLMSG_ERROR, class_request, messages
from .kinds import DISTRIBUTIONS, KINDS, QUEUES, Json, arguments
from .parsing import parse

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
    "class_request",
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
