"""Two profiles in turn: nothing of one is left when the other runs, and what somebody else did is named."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from runs import Kept, in_turn
from waiting import run_until_measuring

from dumbbell.compare.comparison import Comparison

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SCENARIO = Path(__file__).with_name("leak.yml")
INVENTORY = Path("inventory/lab")
HOSTS = ("sender1", "receiver1", "router")
PROFILES = ("a", "b")
TIMEOUT_S = 900

# This machine's, because hosts of the lab do not have it. Their kernel has no tables of IPv4.
NFT = "LD_LIBRARY_PATH=/run/nft /run/nft/nft"
# What somebody does to two hosts between two runs, and how it is undone. The default congestion
# control and the offload are the project's own settings, which the next point sets again.
HANDS = {
    "router": (
        f"sysctl -qw net.ipv4.conf.all.rp_filter=2; {NFT} add table bridge somebody",
        f"sysctl -qw net.ipv4.conf.all.rp_filter=$was; {NFT} delete table bridge somebody; rm -r /run/nft",
    ),
    "sender1": (
        "sysctl -qw net.ipv4.tcp_congestion_control=reno; ethtool -K vec1 tso on",
        "sysctl -qw net.ipv4.tcp_congestion_control=cubic",
    ),
}


@pytest.fixture(scope="module")
def turns(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path], Path]:
    """Two runs of each, in turn."""
    results = tmp_path_factory.mktemp("leak")
    first, second = in_turn(SCENARIO, PROFILES, 2, INVENTORY, results)
    return first, second, results


def test_both_are_valid_and_comparable(turns: tuple[list[Path], list[Path], Path]) -> None:
    first, second, _ = turns
    for run_dir in (*first, *second):
        assert Kept(run_dir).state == "passed", Kept(run_dir).json("verdict.json")["reasons"]
    comparison = Comparison(first, second, PROFILES)
    assert comparison.unexplained == []
    assert not comparison.rows.is_empty()


def test_hosts_have_what_is_theirs_when_b_runs(turns: tuple[list[Path], list[Path], Path]) -> None:
    first, second, _ = turns
    for host in HOSTS:
        owned = [Kept(run_dir).json(f"raw/{host}/state.json")["owned"] for run_dir in second]
        assert owned[0] == owned[1], host
        observed = [Kept(run_dir).json(f"raw/{host}/measurement/observed.json") for run_dir in second]
        assert observed[0]["before"]["settings"] == observed[1]["before"]["settings"], host
        of_a = Kept(first[0]).json(f"raw/{host}/measurement/observed.json")["before"]
        assert of_a["settings"] != observed[0]["before"]["settings"], host


@pytest.fixture
def _hands(lab: Lab) -> Iterator[None]:
    was = lab.ssh("router", "sysctl -n net.ipv4.conf.all.rp_filter").strip()
    nft = "/usr/sbin/nft"
    libraries = re.findall(r"/\S+", subprocess.check_output(["ldd", nft], text=True))
    packed = subprocess.check_output(["tar", "-chP", "--transform=s,.*/,,", nft, *libraries])
    lab.ssh("router", "mkdir -p /run/nft && tar -xC /run/nft", packed)
    try:
        for host, (does, _) in HANDS.items():
            lab.ssh(host, does)
        yield
    finally:
        for host, (_, undoes) in HANDS.items():
            lab.ssh(host, f"was={was}; {undoes}")


@pytest.mark.usefixtures("_hands")
def test_what_somebody_did_in_between_is_named_or_repaired(
    turns: tuple[list[Path], list[Path], Path], lab: Lab
) -> None:
    *_, results = turns
    first, second = in_turn(SCENARIO, PROFILES, 3, INVENTORY, results)
    told = "\n".join(Comparison(first, second, PROFILES).unexplained)
    assert "router" in told
    assert "net.ipv4.conf.all.rp_filter" in told
    assert "nftables" in told
    owned = Kept(second[-1]).json("raw/sender1/state.json")["owned"]
    assert owned == Kept(second[0]).json("raw/sender1/state.json")["owned"]
    assert "tcp-segmentation-offload: off" in lab.ssh("sender1", "ethtool -k vec1")


def test_a_setting_that_changes_while_it_measures_makes_the_run_invalid(lab: Lab, tmp_path: Path) -> None:
    was = lab.ssh("router", "sysctl -n net.ipv4.conf.all.rp_filter").strip()
    now = "0" if was == "2" else "2"
    try:
        run_dir, _, _ = run_until_measuring(
            SCENARIO,
            tmp_path,
            lambda playbook: (
                lab.ssh("router", f"sysctl -qw net.ipv4.conf.all.rp_filter={now}"),
                playbook.wait(timeout=TIMEOUT_S),
            ),
            *("-e", "profile=a"),
        )
    finally:
        lab.ssh("router", f"sysctl -qw net.ipv4.conf.all.rp_filter={was}")
    verdict = Kept(run_dir).json("verdict.json")
    assert verdict["state"] == "invalid"
    words = f"router: net.ipv4.conf.all.rp_filter changed while it measured: {was} before, {now} after"
    assert any(words in reason for reason in verdict["reasons"]), verdict["reasons"]
