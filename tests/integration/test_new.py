"""``dumbbell new``: what it writes can be planned, and what it refuses leaves no file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jsonschema
import pexpect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from synthetic import REPOSITORY
from test_dumbbell import dumbbell
from yamllint import linter
from yamllint.config import YamlLintConfig

from dumbbell.cli.new import new
from dumbbell.inventory import Inventory
from dumbbell.plan import plan
from dumbbell.scenario.schema import schema

LAB = REPOSITORY / "inventory/lab"
TESTBED = Inventory.read(LAB)
STYLE = YamlLintConfig(file=str(REPOSITORY / ".yamllint"))
SCHEMA = jsonschema.Draft202012Validator(json.loads(schema()))
NOT_NAMES = ("yes", "no", "on", "off", "true", "false")  # and rapid, which needs settings of its hosts
TIMEOUT_S = 60


def amounts(*units: str) -> st.SearchStrategy[str]:
    return st.builds("{}{}".format, st.integers(1, 1000), st.sampled_from(units))


def queues(kinds: tuple[str, ...], limits: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("{} {}".format, st.sampled_from(kinds), limits)


controls = st.sampled_from(["cubic", "reno", "bbr", "dctcp", "123", "null"]) | st.from_regex(
    r"[a-z0-9_-]{1,15}", fullmatch=True
).filter(lambda name: name not in (*NOT_NAMES, "rapid"))
answers = st.fixed_dictionaries(
    {},
    optional={
        "rate": amounts("kbit", "mbit", "gbit"),
        "rtt": st.integers(1, 500).map(lambda half: f"{2 * half}us") | amounts("ms", "s"),
        "queue": st.sampled_from(["codel", "fq_codel", "cake", "pie"])
        | queues(("pfifo", "codel", "fq_codel", "pie"), amounts("packets", "bdp"))
        | queues(("bfifo", "cake", "red"), amounts("MB", "MiB")),
        "flows": st.lists(controls, min_size=1, max_size=6).map(", ".join),
        "duration": amounts("ms", "s", "min", "h"),
        "repetitions": st.integers(1, 3).map(str),
    },
)


@settings(max_examples=30)
@given(answers)
def test_any_answers_make_a_scenario_that_is_planned(options: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        new(Path(folder, "mine"), LAB, options)
        written = Path(folder, "mine.yml")
        text = written.read_text()
        planned = plan(written, TESTBED)
    assert len(planned.points) == int(options.get("repetitions", "1"))
    flows = planned.points[0].phase("measurement").flows
    asked = options.get("flows", "cubic,cubic").split(",")
    assert [flow.congestion_control for flow in flows] == [control.strip() for control in asked]
    SCHEMA.validate(YAML(typ="safe").load(text))
    assert list(linter.run(text, STYLE)) == []


def test_without_a_terminal_the_defaults_count(tmp_path: Path) -> None:
    code, said = dumbbell("new", "mine.yml", "--queue", "fq_codel", folder=tmp_path)
    assert (code, said) == (0, "mine.yml was written. To see its plan: dumbbell plan mine.yml\n")
    code, said = dumbbell("plan", "mine.yml", folder=tmp_path)
    assert code == 0, said
    assert "forward 100 Mbit/s, 10 ms, fq_codel" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--rate", "100"), "--rate: '100' is not a rate: write a number and one of bit, kbit, mbit, gbit"),
        (("--rate", "0bit"), "--rate: '0bit' should be greater than 0"),
        (("--rtt", "7us"), "--rtt: '7us' is not the sum of two equal delays, each a whole number of micro"),
        (("--queue", "pfifo"), "--queue: a pfifo needs a limit"),
        (("--queue", "fifo 1bdp"), "--queue: 'fifo' is not one of 'pfifo', 'bfifo', "),
        (("--queue", ""), "--queue: '' is not one of "),
        (
            ("--queue", "pfifo of 1bdp"),
            "--queue: 'pfifo of 1bdp' is not a kind and a limit, such as pfifo 1bdp",
        ),
        (("--flows", "cubic,"), "--flows: '' does not have the form "),
        (("--repetitions", "1001"), "--repetitions: '1001' should be less than or equal to 1000"),
        (("--rtt", "0ms"), "path.forward.queue.limit: 1bdp is 0 packets, less than one packet of 1514 bytes"),
        (("--inventory", "none"), "none: there is no such inventory"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    code, said = dumbbell("new", "mine", *words, folder=tmp_path)
    assert code == 1
    assert said.startswith(reason)
    assert said.endswith(". No scenario was written\n")
    assert list(tmp_path.iterdir()) == []


def test_an_inventory_without_ends_of_flows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("testbed: {children: {senders: {hosts: {sender1: }}}}\n")
    code, said = dumbbell("new", "mine", "--inventory", "hosts.yml", folder=tmp_path)
    assert (code, said.partition(":")[0]) == (
        1,
        "the inventory has no hosts in the groups senders and receivers",
    )
    assert not (tmp_path / "mine.yml").exists()


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("mine", "mine.yml is there already: give another name, or delete it"),
        ("mine.yml", "mine.yml is there already: give another name, or delete it"),
        ("none/mine", "none is no directory: make it first"),
        ("Mine", "the name of a scenario is that of its file: 'Mine' does not have the form "),
    ],
)
def test_no_file_is_overwritten_or_misnamed(file: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("mine")
    code, said = dumbbell("new", file, folder=tmp_path)
    assert code == 1
    assert said.startswith(reason)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("mine.yml", "mine")]


@contextmanager
def on_a_terminal(folder: Path, *words: str) -> Iterator[pexpect.spawn[str]]:
    """The command, as a user types it."""
    command = str(Path(sys.executable).with_name("dumbbell"))
    asking = pexpect.spawn(
        command, ["new", "mine", *words], cwd=str(folder), timeout=TIMEOUT_S, encoding="utf-8"
    )
    try:
        yield asking
    finally:
        asking.close(force=True)


def test_a_terminal_is_asked_for_what_no_option_says(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "--flows", "bbr", "--duration=10s") as asking:
        asking.expect_exact("Rate of the bottleneck [100mbit]: ")
        asking.sendline("fast")
        asking.expect_exact("  'fast' is not a rate: ")
        asking.expect_exact("Rate of the bottleneck [100mbit]: ")
        asking.sendline("10mbit")
        asking.expect_exact("RTT while the queue is empty [20ms]: ")
        asking.sendline("0ms")
        for question in ("Kind of the queue, and its limit [pfifo 1bdp]: ", "Repetitions [1]: "):
            asking.expect_exact(question)
            asking.sendline()
        asking.expect_exact("path.forward.queue.limit: 1bdp is 0 packets, less than one packet of 1514 bytes")
        for question, answer in (
            ("Rate of the bottleneck [10mbit]: ", ""),
            ("RTT while the queue is empty [0ms]: ", "4ms"),
            ("Kind of the queue, and its limit [pfifo 1bdp]: ", "bfifo 64kB"),
            ("Repetitions [1]: ", "3"),
        ):
            asking.expect_exact(question)
            asking.sendline(answer)
        asking.expect_exact("mine.yml was written. To see its plan: dumbbell plan mine.yml")
        asking.expect(pexpect.EOF)
        asking.wait()
        assert asking.exitstatus == 0
    planned = plan(tmp_path / "mine.yml", TESTBED)
    assert len(planned.points) == 3
    assert planned.title == "One flow over 10mbit with an RTT of 4ms"


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "end of input"])
@pytest.mark.parametrize("answered", [0, 1, 5])
def test_who_leaves_leaves_no_file(key: str, answered: int, tmp_path: Path) -> None:
    with on_a_terminal(tmp_path) as asking:
        for _ in range(answered):
            asking.expect_exact("]: ")
            asking.sendline()
        asking.expect_exact("]: ")
        asking.send(key)
        asking.expect_exact("No scenario was written")
        asking.expect(pexpect.EOF)
        asking.wait()
        assert asking.exitstatus == 1
    assert list(tmp_path.iterdir()) == []
