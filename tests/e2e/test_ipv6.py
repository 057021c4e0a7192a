"""The demo's scenario between IPv6 addresses, in the lab and in virtual time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from runs import Finished

from playbooks import REPOSITORY, ansible_playbook

pytestmark = pytest.mark.long

SCENARIO = "scenarios/two_flow_fairness.yml"
FLOWS = {"flow1", "flow2"}
PROVISION_S = 1800
TIMEOUT_S = 2400  # the first time a world is provisioned
CHANGES = (
    (r"address: 198\.18\.([12])\.(\d+)/24", r'address: "fd00:\1::\2/64"'),
    (r"to: 198\.18\.([12])\.0/24, via: 198\.18\.([12])\.1", r'to: "fd00:\1::/64", via: "fd00:\2::1"'),
    (r"net\.ipv4\.ip_forward: 1", "net.ipv6.conf.all.forwarding: 1"),
)


def of_ipv6(name: str) -> Path:
    """A copy of an inventory with other addresses on its experiment networks.

    It is as deep below the checkout as the inventory, which names files of the checkout.
    """
    copy = REPOSITORY / ".build" / f"{name}-ipv6"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(REPOSITORY / "inventory" / name, copy)
    for file in [copy / "hosts.yml", *(copy / "group_vars").glob("*.yml")]:
        text = file.read_text()
        for pattern, other in CHANGES:
            text = re.sub(pattern, other, text)
        file.write_text(text)
    return copy


def run(playbook: str, inventory: Path, results: Path) -> Finished:
    code, said = ansible_playbook(
        *("-i", inventory, f"playbooks/{playbook}.yml", "-e", f"scenario={SCENARIO}"),
        *("-e", f"results_dir={results}"),
        timeout_s=TIMEOUT_S,
    )
    assert (results / "latest").exists(), said[-3000:]
    return Finished((results / "latest").resolve(), code, said)


def passed_over_ipv6(met: Finished) -> None:
    assert (met.code, met.state) == (0, "passed"), met.output[-3000:]
    (point,) = met.json("plan.json")["points"]
    flows = [flow for phase in point["phases"] for flow in phase["flows"]]
    assert {ip_address(flow[end]).version for flow in flows for end in ("src", "dst")} == {6}
    assert set(met.tcp_info["flow"]) == FLOWS


@pytest.fixture
def lab6() -> Iterator[Path]:
    inventory = of_ipv6("lab")
    code, said = ansible_playbook("-i", inventory, "playbooks/provision.yml", timeout_s=PROVISION_S)
    assert code == 0, said[-3000:]
    yield inventory
    code, said = ansible_playbook("playbooks/provision.yml", timeout_s=PROVISION_S)
    assert code == 0, said[-3000:]


@pytest.mark.e2e
def test_the_lab(lab6: Path, tmp_path: Path) -> None:
    passed_over_ipv6(run("run", lab6, tmp_path))


@pytest.mark.virtual
def test_virtual_time(tmp_path: Path) -> None:
    passed_over_ipv6(run("virtual", of_ipv6("vtime"), tmp_path))
