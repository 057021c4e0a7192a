"""``fab new``: write a scenario from the answers to a few questions."""

from __future__ import annotations

import os
import readline  # noqa: F401  with it, input() lets the user edit a line
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from dumbbell.inventory import Inventory, InventoryError
from dumbbell.kinds.asked.base import CongestionControl, PositiveDuration
from dumbbell.places import REPOSITORY
from dumbbell.plan import Plan, plan
from dumbbell.quantities import Duration, Name, Rate
from dumbbell.scenario import Queue, Scenario, ScenarioError
from dumbbell.scenario.load import reasons
from dumbbell.units import render_duration, render_limit, render_rate

NO_MODULES = ("cubic", "reno")  # congestion controls that every kernel has


def new(file: Path, inventory: Path, options: Mapping[str, str | None]) -> None:
    """Write a scenario that can be planned; SystemExit with the reason, and no file, if there is none.

    ``options`` has answers by the names of :data:`QUESTIONS`, None for those that are not given. A terminal
    is asked for these; without a terminal they have their defaults.
    """
    file = file if file.suffix == ".yml" else file.with_name(f"{file.name}.yml")
    texts = {name: question.default for name, question in QUESTIONS.items()}
    texts |= {name: text for name, text in options.items() if text is not None}
    asked = [name for name in QUESTIONS if options.get(name) is None] if sys.stdin.isatty() else []
    try:
        _check_place(file)
        _answers(texts)
        testbed = Inventory.read(inventory)
        while True:
            _ask(asked, texts)
            try:
                text, planned = _planned(file, testbed, _answers(texts))
                break
            except ValueError as error:
                if not asked:
                    raise
                print(f"{error}\nOther answers:")
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise SystemExit(f"{file}: {error.strerror}. No scenario was written") from None
    except (ValueError, InventoryError) as error:
        raise SystemExit(f"{error}. No scenario was written") from None
    except (EOFError, KeyboardInterrupt):
        raise SystemExit("\nNo scenario was written") from None
    print(f"{file} was written. To see its plan: dumbbell plan {file}")
    for warning in planned.told_warnings:
        print(f"warning: {warning}")


def _check_place(file: Path) -> None:
    """ValueError if the scenario cannot be written there."""
    if file.exists():
        raise ValueError(f"{file} is there already: give another name, or delete it")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is no directory: make it first")
    try:
        _as(Name)(file.stem)
    except ValueError as error:
        raise ValueError(f"the name of a scenario is that of its file: {error}") from None


# --- answers -------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """What is asked, the answer if there is no other, and how it is read: ValueError says what is wrong."""

    asks: str
    default: str
    read: Callable[[str], Any]


def _as(kind: Any) -> Callable[[Any], Any]:
    """Reads an answer as the value of a key of scenarios."""

    def read(answer: Any) -> Any:
        try:
            return TypeAdapter(kind).validate_python(answer)
        except ValidationError as error:
            raise ValueError("; ".join(reason for _, reason in reasons(error, answer))) from None

    return read


def _delay_ns(rtt: str) -> int:
    rtt_ns = int(_as(Duration)(rtt))
    if rtt_ns % 2000:
        raise ValueError(f"{rtt!r} is not the sum of two equal delays, each a whole number of microseconds")
    return rtt_ns // 2


def _queue(answer: str) -> Queue:
    kind, *limit = answer.split() or [""]
    if len(limit) > 1:
        raise ValueError(f"{answer!r} is not a kind and a limit, such as pfifo 1bdp")
    queue: Queue = _as(Queue)({"kind": kind} | ({"limit": limit[0]} if limit else {}))
    return queue


def _controls(answer: str) -> list[str]:
    return [_as(CongestionControl)(control.strip()) for control in answer.split(",")]


QUESTIONS: Mapping[str, Question] = {
    "rate": Question("Rate of the bottleneck", "100mbit", _as(Rate)),
    "rtt": Question("RTT while the queue is empty", "20ms", _delay_ns),
    "queue": Question("Kind of the queue, and its limit", "pfifo 1bdp", _queue),
    "flows": Question("Congestion control of each flow", "cubic,cubic", _controls),
    "duration": Question("Duration", "30s", _as(PositiveDuration)),
    "repetitions": Question(
        "Repetitions", "1", _as(Annotated[int, *Scenario.model_fields["repetitions"].metadata])
    ),
}


def _ask(names: Sequence[str], texts: dict[str, str]) -> None:
    """Put answers to these questions in place of the texts, which are offered."""
    for name in names:
        asks, _, read = QUESTIONS[name]
        while True:
            text = input(f"{asks} [{texts[name]}]: ").strip() or texts[name]
            try:
                read(text)
            except ValueError as error:
                print(f"  {error}")
            else:
                texts[name] = text
                break


def _answers(texts: Mapping[str, str]) -> dict[str, Any]:
    """What the answers say; ValueError names the option of one that is wrong."""
    values = {}
    for name, text in texts.items():
        try:
            values[name] = QUESTIONS[name].read(text)
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from None
    return values


# --- the file ------------------------------------------------------------------------------------------


def _planned(file: Path, testbed: Inventory, answers: Mapping[str, Any]) -> tuple[str, Plan]:
    """The scenario and its plan; ValueError if these answers have none, InventoryError if none could have."""
    pairs = min(len(testbed.groups.get(group, ())) for group in ("senders", "receivers"))
    if not pairs:
        raise InventoryError(
            "the inventory has no hosts in the groups senders and receivers: flows need both"
        )
    text = _text(file, pairs, answers)
    with TemporaryDirectory() as folder:
        (draft := Path(folder, file.name)).write_text(text, encoding="utf-8")
        try:
            return text, plan(draft, testbed)
        except ScenarioError as error:
            raise ValueError("; ".join(f"{each.key}: {each.reason}" for each in error.problems)) from None


def _text(file: Path, pairs: int, answers: Mapping[str, Any]) -> str:
    """The scenario. Its flows go between so many pairs of hosts, in turn."""
    flows: list[str] = answers["flows"]
    count = "One flow" if len(flows) == 1 else f"{len(flows)} flows"
    rate, delay = render_rate(answers["rate"]), render_duration(answers["rtt"])
    queue: Queue = answers["queue"]
    limit = f", limit: {render_limit(queue.limit)}" if queue.limit else ""
    modules = [f"tcp_{name.replace('-', '_')}" for name in dict.fromkeys(flows) if name not in NO_MODULES]
    loaded = (
        "\n      ".join(["    modules:", *(f"{name}: {{}}" for name in modules)]) + "\n" if modules else ""
    )
    ends = "".join(
        f"""\
  flow{i + 1}:
    kind: tcp
    from: senders[{i % pairs}]
    to: receivers[{i % pairs}]
    congestion_control: {_word(control)}
"""
        for i, control in enumerate(flows)
    )
    return f"""\
# yaml-language-server: $schema={_schema(file)}
#
# What does this experiment ask, and what is a good result? Say it here.
name: {_word(file.stem)}
title: {count} over {rate} with an RTT of {render_duration(2 * answers["rtt"])}
duration: {render_duration(answers["duration"])}
repetitions: {answers["repetitions"]}

path:
  # The reverse direction is the same. The RTT is the sum of both delays.
  forward: {{rate: {rate}, delay: {delay}, queue: {{kind: {queue.kind}{limit}}}}}

hosts:
  testbed:
{loaded}    # A connection begins without the ssthresh of an earlier one.
    sysctls: {{net.ipv4.tcp_no_metrics_save: 1}}

flows:
  # `start: 5s` begins a flow later, `duration: 10s` ends it after that time.
{ends}
# A valid run passes if it meets what is expected, for example:
# expect:
#   - {{metric: utilisation, min: 90%}}
"""


def _schema(file: Path) -> str:
    """Where editors find the schema: from the file on, if it is in the same checkout."""
    schema = REPOSITORY / "schemas/scenario.schema.json"
    folder = file.parent.resolve()
    return os.path.relpath(schema, folder) if folder.is_relative_to(REPOSITORY) else str(schema)


def _word(word: str) -> str:
    """A word in quotes if YAML would read another value, such as a number."""
    return word if YAML(typ="safe", pure=True).load(word) == word else f'"{word}"'
