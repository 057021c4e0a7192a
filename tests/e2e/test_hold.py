"""Hosts that work for another are left alone by every playbook that changes hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab

from playbooks import ansible_playbook, unfolded

pytestmark = pytest.mark.e2e

HOSTS = ("sender1", "receiver1", "router")
LIMIT = ("--limit", f"localhost,{','.join(HOSTS)}")
STATE = """
tc qdisc show; ip address show dev vec1 | grep -v valid_lft
find /etc /usr/local -type f | xargs sha256sum
"""


@pytest.fixture
def held(lab: Lab) -> Iterator[None]:
    for host in HOSTS:
        lab.ssh(host, "dumbbell-agent lock --run=night-7 --owner=anna@elsewhere --for=10m")
    yield
    for host in HOSTS:
        lab.ssh(host, "dumbbell-agent unlock --run=night-7")


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("playbook", "variables"),
    [
        ("provision", ()),
        ("kernel", ("-e", "kernel_image=linux-image-of-nobody")),
        ("restore", ()),
        ("fidelity", ("-e", "only=100mbit-10ms")),
    ],
)
def test_hosts_of_another_are_not_changed(lab: Lab, playbook: str, variables: tuple[str, ...]) -> None:
    before = {host: lab.ssh(host, STATE) for host in HOSTS}
    code, said = ansible_playbook(f"playbooks/{playbook}.yml", *LIMIT, *variables, timeout_s=200)
    assert code != 0
    assert "the host belongs to run night-7 of anna@elsewhere until" in unfolded(said), said
    assert {host: lab.holder(host) for host in HOSTS} == dict.fromkeys(HOSTS, "night-7")
    assert {host: lab.ssh(host, STATE) for host in HOSTS} == before
