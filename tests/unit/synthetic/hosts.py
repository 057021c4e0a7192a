"""The hosts of a dumbbell, and what was read of each."""

from __future__ import annotations

import zlib
from typing import Any

from dumbbell.plan import Inventory, Phase, Point
from synthetic.constants import T0_UNIX_NS

PATH_TRIM_US = 250
DEVICES = {
    "forward": {"bottleneck": "vec2", "delay_line": "vec2"},
    "reverse": {"bottleneck": "vec1", "delay_line": "vec1"},
}
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
OWNED_OF_INTERFACES = ("mtu", "txqueuelen", "gso_max_segs", "routes")


def inventory(senders: int = 2, receivers: int = 2) -> Inventory:
    """A dumbbell of this many hosts on each side of one router, and an archive."""

    def host(side: str, address: str) -> dict[str, Any]:
        interfaces = {side: {"device": "vec1", "address": address}}
        return {"management_interface": "vec0", "experiment_interfaces": interfaces}

    hosts = {f"sender{i + 1}": host("left", f"198.18.1.{11 + i}/24") for i in range(senders)}
    hosts |= {f"receiver{i + 1}": host("right", f"198.18.2.{11 + i}/24") for i in range(receivers)}
    hosts["router"] = {
        "management_interface": "vec0",
        "experiment_interfaces": {
            "left": {"device": "vec1", "address": "198.18.1.1/24"},
            "right": {"device": "vec2", "address": "198.18.2.1/24"},
        },
    }
    hosts["archive"] = {"management_interface": "vec0", "experiment_interfaces": {}}
    groups = {
        "senders": [h for h in hosts if h.startswith("sender")],
        "receivers": [h for h in hosts if h.startswith("receiver")],
        "routers": ["router"],
        "archives": ["archive"],
        "testbed": list(hosts),
    }
    return Inventory.model_validate({"groups": groups, "hosts": hosts})


def state_read(planned: Point, host: str, *, router: bool) -> dict[str, Any]:
    asked = planned.hosts[host].state
    nic = {
        "txqueuelen": asked.txqueuelen or 1000,
        "mtu": 1500,
        "qdisc": "pfifo_fast",
        "gso_max_segs": 65535,
        "qdisc_options": {"bands": 3},
        "qdisc_leaves": [],
        "routes": [],
        "offloads": asked.offloads,
    }
    path = planned.path.model_dump(include={"forward", "reverse"}) if planned.path and router else None
    if path:
        for direction in path.values():
            direction["delay_us"] -= PATH_TRIM_US
            direction.pop("changes", None)
        path["trim_us"] = PATH_TRIM_US
        path["burst_us"] = 1000
        path["devices"] = DEVICES
        path["handles"] = {"forward": ["1:", "101:"], "reverse": ["1:", "101:"]}
        nic["qdisc"] = "netem"
    controls = sorted({"reno", "cubic", *asked.congestion_controls})
    sysctls = {"net.ipv4.tcp_congestion_control": "cubic", "net.ipv4.tcp_sack": "1"} | asked.sysctls
    sysctls["net.ipv4.tcp_allowed_congestion_control"] = " ".join(controls)
    owned: dict[str, Any] = {name: [value, value] for name, value in sysctls.items()}
    owned |= {f"path {name}": [path[name]] * 2 for name in ("forward", "reverse") if path}
    owned |= {"module tcp_cubic": ["loaded", "loaded"], GOVERNOR: ["performance", "performance"]}
    for module, parameters in asked.modules.items():
        owned |= {f"{name} of {module}": [value, value] for name, value in parameters.items()}
    for device in devices_of(host, planned):
        owned |= {f"{device} {name}": [nic[name]] * 2 for name in OWNED_OF_INTERFACES}
        owned |= {f"{device} addresses": [["198.18.1.11/24"]] * 2, f"{device} up": [True, True]}
        owned |= {f"{device} feature {name}": [on, on] for name, on in asked.offloads.items()}
        if path is None:
            owned[f"qdisc of {device}"] = [[], []]
    offset = {"router": 0}.get(host, 20_000 + 13_000 * (zlib.crc32(host.encode()) % 9))
    return {
        "kernel": "6.12.0-synthetic",
        "boot_id": _boot_id(host),
        "cpu": {GOVERNOR: "performance"},
        "owned": owned,
        "tcp_metrics": {"flushed": True},
        "nic": {device: nic for device in devices_of(host, planned)},
        "sysctl": sysctls,
        "modules": {
            "loaded": {
                "tcp_cubic": {
                    "srcversion": None,
                    "build_id": None,
                    "parameters": {"hystart": "1", "fast": "Y", "beta": "717"},
                }
            },
            "available": controls,
            "allowed": controls,
        },
        "path": path,
        "clock": {"offset_ns": offset, "root_dispersion_ns": 80_000, "synchronised": True}
        | {"server": "archive", "source": "chrony"},
        "versions": {"agent": "0.1.0", "iperf3": "3.12", "telegraf": "1.37.2"},
        "hardware": {"machine": "QEMU Standard PC", "processor": "AMD EPYC"},
    }


def devices_of(host: str, planned: Point) -> tuple[str, ...]:
    return ("vec1", "vec2") if "routers" in planned.hosts[host].groups else ("vec1",)


def _boot_id(host: str) -> str:
    return f"{zlib.crc32(host.encode()):08x}-0000-4000-8000-000000000000"


def settings_read(planned: Point, phase: Phase, host: str) -> dict[str, Any]:
    """Two readings of an agent between which nothing changed."""
    asked, t0 = planned.hosts[host].state, T0_UNIX_NS[phase.phase]
    router = "routers" in planned.hosts[host].groups
    settings = {
        "clock source": "tsc",
        "iptables": "none",
        "kernel command line": "root=/dev/vda1 ro quiet",
        "kernel release": "6.12.0-synthetic",
        "mitigation spectre_v2": "Mitigation: Retpolines",
        "module tcp_cubic beta": "717",
        "module tcp_cubic fast": "Y",
        "module tcp_cubic hystart": "1",
        "net.core.default_qdisc": "pfifo_fast",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "2",
        "net.ipv4.tcp_congestion_control": "cubic",
        "net.ipv4.tcp_sack": "1",
        "nftables": "none",
        "service irqbalance": "absent",
    } | asked.sysctls
    controls = sorted({"reno", "cubic", *asked.congestion_controls})
    settings["net.ipv4.tcp_allowed_congestion_control"] = " ".join(controls)
    for device in devices_of(host, planned):
        settings |= {
            f"{device} driver": "virtio_net 1.0.0",
            f"{device} feature tx-checksumming": "on",
            f"{device} mtu": "1500",
            f"{device} txqueuelen": str(planned.hosts[host].state.txqueuelen or 1000),
            f"qdisc {device} root": "pfifo_fast 0: bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
        }
        if router and planned.path:
            line = f"netem 101: limit 1000 delay {planned.path.forward.delay_us - PATH_TRIM_US}us"
            settings[f"qdisc {device} root"] = line
    reading = {"boot_id": _boot_id(host), "settings": dict(sorted(settings.items()))}
    unread = {f"{device} eee": "errno 524" for device in devices_of(host, planned)}
    before, after = t0 - 6_000_000_000, t0 + phase.duration_ns + 40_000_000
    return {
        name: {"unix_ns": at, **reading, "unread": unread}
        for name, at in (("before", before), ("after", after))
    }
