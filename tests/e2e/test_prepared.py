"""A run that asks its hosts for a kernel, modules with parameters, and qdiscs; hosts that are given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from runs import Kept
from waiting import TIMEOUT_S

from playbooks import ansible_playbook, unfolded

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SCENARIO = Path(__file__).with_name("prepared.yml").read_text()
SENDERS = ("sender1", "sender2")
QDISC = "tc -j qdisc show dev vec1"
LOADED = "cut -d' ' -f1 /proc/modules"
VEGAS = "/sys/module/tcp_vegas"


def playbook(name: str, text: str, folder: Path) -> tuple[int, str]:
    """A playbook of the scenario with this text."""
    (folder / "prepared.yml").write_text(text)
    arguments = ("-e", f"scenario={folder / 'prepared.yml'}", "-e", f"results_dir={folder / 'results'}")
    return ansible_playbook(f"playbooks/{name}.yml", *arguments, timeout_s=TIMEOUT_S)


def root_qdisc(lab: Lab, host: str) -> tuple[str, Any]:
    """Kind and options."""
    (root,) = (qdisc for qdisc in json.loads(lab.ssh(host, QDISC)) if qdisc.get("root"))
    return root["kind"], root["options"]


@dataclass(frozen=True)
class Prepared(Kept):
    """The run directory, the senders' root qdiscs before the run, and boots of the first before and after."""

    said: str
    before: dict[str, tuple[str, Any]]
    boots: set[str]


@pytest.fixture(scope="module")
def release(lab: Lab) -> str:
    (found,) = {lab.ssh(host, "uname -r").strip() for host in SENDERS}
    return found


@pytest.fixture(scope="module")
def prepared(lab: Lab, release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("prepared")
    before = {host: root_qdisc(lab, host) for host in SENDERS}
    boot = "cat /proc/sys/kernel/random/boot_id"
    boots = {lab.ssh("sender1", boot)}
    try:
        _, said = playbook("run", SCENARIO.replace("RELEASE", release), folder)
        boots.add(lab.ssh("sender1", boot))
        yield Prepared((folder / "results" / "latest").resolve(), said, before, boots)
    finally:
        limit = ("--limit", f"localhost,{','.join(SENDERS)}")
        ansible_playbook("playbooks/restore.yml", *limit, timeout_s=TIMEOUT_S)
        code, said = ansible_playbook("playbooks/provision.yml", *limit, timeout_s=TIMEOUT_S)
        assert code == 0, said[-4000:]


def test_what_was_asked_is_proved(prepared: Prepared, release: str) -> None:
    verdict = prepared.json("verdict.json")
    # A busy machine's is `invalid`, for other reasons.
    assert verdict["state"] in ("passed", "invalid"), prepared.said[-4000:]
    checks = {(check["subject"], check["name"]): check for check in verdict["checks"]}
    for subject, name, asked in (
        ("sender1", "kernel", release),
        ("sender2", "module tcp_vegas", {"alpha": "3"}),
        ("sender1", "module sch_fq", {}),
        ("sender1 vec1", "qdisc", "fq_codel"),
        ("sender2 vec1", "qdisc", "pfifo"),
    ):
        check = checks[subject, name]
        assert (check["requested"], check["measured"], check["ok"]) == (asked, asked, True)


def test_the_kernels_say_the_same(prepared: Prepared, lab: Lab) -> None:
    assert root_qdisc(lab, "sender1")[0] == "fq_codel"
    assert root_qdisc(lab, "sender2") == ("pfifo", {"limit": 500})
    for host in SENDERS:
        assert lab.ssh(host, f"cat {VEGAS}/parameters/alpha").strip() == "3"
        note = lab.ssh(host, f"od -An -v -tx1 {VEGAS}/notes/.note.gnu.build-id")
        state = prepared.json(f"raw/{host}/state.json")
        assert state["modules"]["loaded"]["tcp_vegas"]["build_id"] == "".join(note.split())[-40:]
        assert "sch_fq" in lab.ssh(host, LOADED).split()
    assert prepared.json("raw/sender2/state.json")["nic"]["vec1"]["qdisc_options"] == {"limit": 500}


def test_a_host_that_runs_the_kernel_is_not_rebooted(prepared: Prepared) -> None:
    assert len(prepared.boots) == 1


def test_preparing_again_changes_nothing(prepared: Prepared, lab: Lab, release: str, tmp_path: Path) -> None:
    assert prepared.json("verdict.json")
    code, said = playbook("check", SCENARIO.replace("RELEASE", release), tmp_path)
    assert code == 0, said[-4000:]
    lines = [line for line in said.splitlines() if line.startswith(SENDERS) and "changed=" in line]
    assert len(lines) == len(SENDERS)
    assert all("changed=0" in line for line in lines), lines


LACKS = [
    ("RELEASE", "6.99.0-none", "asked for kernel 6.99.0-none, which this host lacks; it has "),
    ("alpha", "alhpa", "asked for parameter alhpa of module tcp_vegas, which lacks it; it has alpha, beta"),
    ("sch_fq", "sch_fqq", "asked for module sch_fqq, which this host lacks; did you mean sch_fq?"),
    ("qdisc: fq_codel", "qdisc: mq", "asked for qdisc mq, but vec1 has one transmit queue"),
]


@pytest.mark.parametrize("lacking", LACKS, ids=lambda lacking: lacking[1])
def test_what_a_host_lacks_is_named_before_it_is_changed(
    lab: Lab, release: str, tmp_path: Path, lacking: tuple[str, str, str]
) -> None:
    old, new, reason = lacking
    before = {host: lab.ssh(host, f"{QDISC}; {LOADED}") for host in SENDERS}
    assert old in SCENARIO
    text = SCENARIO.replace(old, new).replace("RELEASE", release)
    code, said = playbook("check", text, tmp_path)
    assert code != 0
    assert reason in unfolded(said)
    code, _ = playbook("run", text, tmp_path)
    assert code != 0
    verdict = json.loads((tmp_path / "results" / "latest" / "verdict.json").read_text())
    assert verdict["state"] == "aborted"
    assert any(reason in each for each in verdict["reasons"]), verdict["reasons"]
    assert before == {host: lab.ssh(host, f"{QDISC}; {LOADED}") for host in SENDERS}
    for host in SENDERS:
        assert lab.holder(host) == ""


def test_the_hosts_are_given_back_as_they_were(prepared: Prepared, lab: Lab) -> None:
    code, said = ansible_playbook(
        "playbooks/restore.yml", "--limit", f"localhost,{','.join(SENDERS)}", timeout_s=TIMEOUT_S
    )
    assert code == 0, said[-4000:]
    for host in SENDERS:
        lab.ssh(host, "ip link set vec1 up")  # down again, as provisioning found it, it has no qdisc
    assert {host: root_qdisc(lab, host)[0] for host in SENDERS} == {
        host: kind for host, (kind, _) in prepared.before.items()
    }
    for host in SENDERS:
        assert not {"tcp_vegas", "sch_fq"} & set(lab.ssh(host, LOADED).split())
