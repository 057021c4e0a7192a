"""A scenario twice in virtual time, from the inventory to the verdict: exact, and the same both times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from runs import MS, Finished

from dumbbell.compare.answer import Answer
from dumbbell.compare.comparison import Comparison
from dumbbell.experiment import Asked, begun
from dumbbell.experiment import run as run_ab
from dumbbell.run.content import Run
from playbooks import ansible_playbook, unfolded

pytestmark = [pytest.mark.virtual, pytest.mark.long]

SCENARIO = Path(__file__).with_name("virtual.yml")
SPINS = Path(__file__).with_name("spins.yml")
AB = Path(__file__).with_name("ab.yml")
WAITS = Path(__file__).with_name("waits.yml")
TIMEOUT_S = 2400  # the first time a kernel is built
INVENTORY = ("-i", "inventory/vtime")
EXACT_US = 100
# Observed of hosts with systemd alone: its services, files that it hides, and addresses that it draws.
OF_SYSTEMD = (
    r"kernel command line|service \w+|\w+ (gro_flush_timeout|napi_defer_hard_irqs|threaded)"
    r"|ifb_\w+ (tx-0 limit_\w+|address fe80::.*)|route fe80::.*"
)


@dataclass(frozen=True)
class Repeated:
    """A run of two points, each in a world of its own."""

    whole: Finished
    points: list[Finished]

    def digests(self, repetition: int) -> dict[str, str]:
        """Of each table of samples."""
        digests: dict[str, str] = self.points[repetition - 1].json("manifest.json")["digests"]
        assert "tcp_info" in digests
        return digests


def runs(folder: Path, *arguments: str) -> Repeated:
    """One run of the scenario."""
    code, said = ansible_playbook(
        *(*INVENTORY, "playbooks/virtual.yml", "-e", f"scenario={SCENARIO}", "-e", f"results_dir={folder}"),
        *arguments,
        timeout_s=TIMEOUT_S,
    )
    assert (folder / "latest").exists(), said[-3000:]
    run_dir = (folder / "latest").resolve()
    points = [Finished(point, code, said) for point in sorted((run_dir / "points").iterdir())]
    return Repeated(Finished(run_dir, code, said), points)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Repeated:
    return runs(tmp_path_factory.mktemp("virtual"))


def test_it_passes(repeated: Repeated) -> None:
    assert (repeated.whole.code, repeated.whole.state) == (0, "passed"), repeated.whole.output[-3000:]
    assert (repeated.whole.dir / "report.html").exists()
    assert "s of virtual time in" in repeated.whole.output
    assert "WARNING" not in repeated.whole.output


def test_the_round_trip_is_what_was_asked_for(repeated: Repeated) -> None:
    for point in repeated.points:
        for rtt_ns in point.facts("idle RTT").values():
            assert abs(rtt_ns - 20 * MS) < EXACT_US * 1000


def test_flows_start_when_they_were_told_to(repeated: Repeated) -> None:
    for point in repeated.points:
        starts_ns = point.facts("start")
        assert len(starts_ns) == 2
        assert all(0 <= ns < MS for ns in starts_ns.values()), starts_ns


def test_no_sample_is_missed_and_each_is_in_time(repeated: Repeated) -> None:
    for point in repeated.points:
        assert set(point.facts("samples missed").values()) == {0}
        sampled = point.tcp_info.filter(pl.col("phase") == "measurement", ~pl.col("final").fill_null(False))
        late_ns = (sampled["t_ns"] - 50 * MS) % (100 * MS)  # between the times at which flows start
        assert sampled.height > 200
        assert late_ns.max() < MS  # type: ignore[operator]


def test_senders_fill_the_router_s_queue_and_lose_there(repeated: Repeated) -> None:
    """That it is of the same kernel is none of their business."""
    for point in repeated.points:
        queue = point.table("qdisc").filter(phase="measurement", host="router", dev="ifb_fwd", kind="pfifo")
        assert queue["qlen_packets"].max() >= queue["limit_packets"].max() - 1  # type: ignore[operator]
        assert queue["drops"].max() > queue["drops"].min()  # type: ignore[operator]


def test_all_hosts_have_one_clock(repeated: Repeated) -> None:
    for point in repeated.points:
        clocks = [of["clock"] for of in point.json("manifest.json")["hosts"].values()]
        assert {(clock["source"], clock["synchronised"]) for clock in clocks} == {("shared", True)}


def test_rows_tell_that_their_time_is_virtual(repeated: Repeated) -> None:
    for point in repeated.points:
        assert point.tcp_info["timescale"].unique().to_list() == ["virtual"]


def test_the_same_plan_gives_the_same_samples_again(repeated: Repeated, tmp_path: Path) -> None:
    again = runs(tmp_path)
    for repetition in (1, 2):
        first, second = repeated.digests(repetition), again.digests(repetition)
        assert first.keys() == second.keys()
        assert {name for name in first if first[name] != second[name]} == set()


def test_a_repetition_has_other_random_numbers(repeated: Repeated) -> None:
    assert repeated.digests(1)["tcp_info"] != repeated.digests(2)["tcp_info"]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Repeated:
    return runs(tmp_path_factory.mktemp("full"), "-e", "world=full")


def test_a_full_world_passes_the_checks_of_a_light_one(repeated: Repeated, full: Repeated) -> None:
    assert (full.whole.code, full.whole.state) == (0, "passed"), full.whole.output[-3000:]
    for light, own in zip(repeated.points, full.points, strict=True):
        checks = [
            {(check["name"], check["subject"]) for check in of.json("verdict.json")["checks"]}
            for of in (light, own)
        ]
        assert checks[0] == checks[1]


def test_a_light_world_has_the_plan_and_the_state_of_a_full_one(repeated: Repeated, full: Repeated) -> None:
    for light, own in zip(repeated.points, full.points, strict=True):
        assert (own.dir / "plan.json").read_bytes() == (light.dir / "plan.json").read_bytes()
        for file in own.dir.glob("raw/*/state.json"):
            states = [of.json(str(file.relative_to(own.dir))) for of in (light, own)]
            for state in states:
                del state["boot_id"]
            assert states[1] == states[0]
            named = f"{file.parent.relative_to(own.dir)}/measurement/observed.json"
            before = [of.json(named)["before"]["settings"] for of in (light, own)]
            differ = {name for name, _ in before[0].items() ^ before[1].items()}
            assert not {name for name in differ if not re.fullmatch(OF_SYSTEMD, name)}


def test_a_light_world_measures_what_a_full_one_does(repeated: Repeated, full: Repeated) -> None:
    for light, own in zip(repeated.points, full.points, strict=True):
        rtts_ns = [of.facts("idle RTT") for of in (light, own)]
        assert rtts_ns[1].keys() == rtts_ns[0].keys()
        assert all(abs(rtts_ns[1][pair] - rtt_ns) < EXACT_US * 1000 for pair, rtt_ns in rtts_ns[0].items())
    both = Comparison([point.dir for point in repeated.points], [point.dir for point in full.points])
    (ratio,) = both.rows.filter(metric="utilisation").iter_rows(named=True)
    assert ratio["low"] <= 1 <= ratio["high"], "within the spread of seeds"


def test_the_same_plan_gives_the_same_samples_again_in_a_full_world(full: Repeated, tmp_path: Path) -> None:
    again = runs(tmp_path, "-e", "world=full")
    assert [again.digests(number) for number in (1, 2)] == [full.digests(number) for number in (1, 2)]


def test_another_kernel_parameter_gives_other_samples(repeated: Repeated, tmp_path: Path) -> None:
    changed = runs(tmp_path, "-e", "profile=other_parameter")
    assert changed.digests(1)["tcp_info"] != repeated.digests(1)["tcp_info"]
    # One repetition of each is enough to say so.
    both = Comparison([repeated.points[0].dir], [changed.points[0].dir])
    assert both.rows.filter(metric="goodput")["differ"].to_list() == [True, True]
    (note,) = [note for note in both.notes() if "samples that differ" in note]
    assert "tcp_info" in note


def test_an_ab_of_two_controls_has_a_seed_for_each_round_and_an_answer(tmp_path: Path) -> None:
    asked = Asked(scenario=AB, profiles=("cubic", "reno"), inventory=Path("inventory/vtime"), rounds=6)
    design, runs = run_ab(tmp_path, begun(tmp_path, asked), print)
    for i, both in enumerate(zip(*runs.values(), strict=True)):
        plans = [Run.open(run_dir).plan for run_dir in both]
        assert {of.seed for of in plans} == {design.rounds[i].seed}
    answer = Answer(design, runs)
    assert answer.unexplained == []
    (row,) = answer.primary
    assert row.effect.n == 6
    assert row.effect.low is not None
    assert len(set(answer.differences["reno"])) == 6, "each seed is another experiment"
    (sentence,) = answer.sentences()
    assert "goodput of flow is" in sentence


def test_the_machine_itself_is_refused_as_a_testbed() -> None:
    code, said = ansible_playbook("playbooks/virtual.yml", "-e", f"scenario={SCENARIO}")
    assert code != 0
    assert "-i inventory/vtime has some that do" in unfolded(said)
    code, said = ansible_playbook(*INVENTORY, "playbooks/run.yml", "-e", f"scenario={SCENARIO}")
    assert code != 0
    assert "run playbooks/virtual.yml" in unfolded(said)


def test_a_program_whose_threads_wait_for_each_other_goes_on(tmp_path: Path) -> None:
    code, said = ansible_playbook(
        *(*INVENTORY, "playbooks/virtual.yml", "-e", f"scenario={WAITS}", "-e", f"results_dir={tmp_path}"),
        timeout_s=TIMEOUT_S,
    )
    run_dir = (tmp_path / "latest").resolve()
    assert (code, Finished(run_dir, code, said).state) == (0, "passed"), said[-3000:]
    assert "a task that computed without a pause was made to wait 1 ms" in unfolded(said)
    assert pl.read_csv(run_dir / "world" / "time.csv")["turns_ended"][-1] > 0


def test_a_program_that_spins_is_named_and_the_run_is_invalid(tmp_path: Path) -> None:
    code, said = ansible_playbook(
        *(*INVENTORY, "playbooks/virtual.yml", "-e", f"scenario={SPINS}", "-e", f"results_dir={tmp_path}"),
        *("-e", "stall_timeout=60"),
        timeout_s=TIMEOUT_S,
    )
    assert code != 0
    verdict = Finished((tmp_path / "latest").resolve(), code, said).json("verdict.json")
    assert verdict["state"] == "invalid"
    (reason,) = [reason for reason in verdict["reasons"] if "virtual time stood" in reason]
    assert reason.endswith("what ran: sh")
