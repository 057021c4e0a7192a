"""The state of hosts that a scenario requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dumbbell.quantities import NoBoolean, Strict
from dumbbell.units import LEAST_MTU_BYTES, MOST_MTU_BYTES

# Offloads that merge packets of a connection.
SUPER_PACKETS = ("tso", "gso", "gro", "lro")
# Qdiscs that take their limit from txqueuelen: net/sched/sch_{generic,fifo}.c
READ_TXQUEUELEN = ("pfifo_fast", "pfifo", "bfifo")
# Congestion controls that set the gap after each packet, and measure the gaps at arrival from the
# timestamps of its acknowledgements: modules/tcp_rapid/README.md
READ_GAPS = ("rapid",)
GAPS_NEED = {"quickack": True, "tcp_usec_ts": True}  # options of the routes at both ends
TIMESTAMPS = "net.ipv4.tcp_timestamps"  # a sysctl that must be 1, or 2 (without an offset), for them

ModuleName = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,56}$"), NoBoolean]


class HostState(Strict):
    """State that hosts are brought to before traffic, and that is read back.

    Of several words about a host that of the smaller group counts, and that of the host itself most.
    """

    kernel: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+~_-]{1,64}$")] | None = Field(
        default=None,
        description="release, as `uname -r` says it, of a kernel that the host has; the same in all points",
        examples=["6.12.117"],
    )
    modules: dict[ModuleName, dict[str, int | str | bool]] = Field(
        default={},
        description="modules to load, with their parameters",
        examples=[{"tcp_bbr": {}, "tcp_cubic": {"hystart": 0}}],
    )
    offloads: dict[Literal["tso", "gso", "gro", "lro", "sg", "rx", "tx"], bool] = Field(
        default={},
        description="features of the experiment interfaces, by ethtool's short names; where a path is "
        "emulated, `tso`, `gso`, `gro` and `lro` are off unless asked for, here or by the inventory's "
        "`nic_offloads`: it would lose and queue as one packet what they put together",
    )
    txqueuelen: Annotated[int, Field(ge=0, le=10**6)] | None = Field(
        default=None, description="packets; of the experiment interfaces"
    )
    mtu: Annotated[int, Field(ge=LEAST_MTU_BYTES, le=MOST_MTU_BYTES)] | None = Field(
        default=None, description="bytes; of the experiment interfaces; default: `nic_mtu` of the inventory"
    )
    qdisc: Literal["pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "mq", "rapid"] | None = Field(
        default=None,
        description="root qdisc of the experiment interfaces; of hosts that are not routers. Parameters of "
        "`rapid` are those of the module `sch_rapid`",
    )
    routes: dict[Literal["quickack", "tcp_usec_ts"], bool] = Field(
        default={},
        description="options of the routes between the sides: `quickack`, every segment that comes is "
        "acknowledged at once; `tcp_usec_ts`, TCP's timestamps are microseconds, from Linux 6.7 on",
        examples=[{"quickack": True, "tcp_usec_ts": True}],
    )
    sysctls: dict[str, int | str] = Field(default={}, examples=[{"net.ipv4.tcp_no_metrics_save": 1}])
