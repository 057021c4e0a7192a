"""Whatever a file says: it is planned, or refused with errors that name file, line and column."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell.plan import plan
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.expand import all_models, fields_of

SCENARIOS = sorted(REPOSITORY.glob("scenarios/**/*.yml"))
DOCUMENTS: list[Any] = [YAML(typ="safe").load(path) for path in SCENARIOS]
KEYS = sorted({key for model in all_models() for key, _ in fields_of(model)})
TEXTS = [
    *("", " ", "$", "$x", "2 * $load", "0bit", "1e9mbit", "-1s", "9" * 30 + "h", "1packets", "0.0001bdp"),
    *("10s-5s", "5s-5s", "senders[9999]", "router", "archive", "testbed", "null", "~", "ünïcode", "a" * 300),
    *(
        "{src}",
        "fq",
        "udp",
        "command",
        "ping",
        "http",
        "rtt",
        "101%",
        "1kB",
        "1us",
        "20s",
        "1h",
        "[]",
        "\t",
        "\u2028",
    ),
]
PROBLEM = re.compile(r"^\S*\.yml:[1-9]\d*:[1-9]\d*: \S.*", re.DOTALL)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(TEXTS),
    st.text(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def outcome(path: Path, text: str | bytes) -> str:
    """``planned``, or what was said; anything else than a ScenarioError fails the test."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    refused: list[ScenarioError] = []
    planned = None
    try:
        planned = plan(path, inventory())
    except ScenarioError as error:
        refused.append(error)
    for refusal in refused:
        assert refusal.problems
        for problem in refusal.problems:
            assert PROBLEM.fullmatch(str(problem)), problem
            assert problem.line <= max(1, len(path.read_bytes().splitlines()) + 1)
            assert "Error" not in problem.reason
            assert "object at 0x" not in problem.reason
    if planned is not None:
        assert plan(path, inventory()).model_dump_json() == planned.model_dump_json()
    return str(refused[0]) if refused else "planned"


def places(value: Any, key: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Keys of everything inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for k, v in items for place in ((*key, k), *places(v, (*key, k)))]


def inside(document: Any, key: tuple[Any, ...]) -> Any:
    for part in key:
        document = document[part]
    return document


def malformed(seed: int) -> tuple[str, str]:
    """A shipped scenario with one fault in it, and which."""
    rng = random.Random(seed)
    document = copy.deepcopy(rng.choice(DOCUMENTS))
    place = rng.choice(places(document))
    parent, last = inside(document, place[:-1]), place[-1]
    where = ".".join(map(str, place))
    match rng.randrange(5):
        case 0:
            parent[last] = rng.choice(
                [None, [], {}, -1, 2**80, 1.5, True, "", "soon", "10 s", [[1]], {"x": 1}]
            )
            return json.dumps(document), f"{where} is {parent[last]!r}"
        case 1 if isinstance(parent, dict):
            parent["".join(rng.sample(str(last) + "xyz", len(str(last)) + 2))] = parent.pop(last)
            return json.dumps(document), f"{where} misspelt"
        case 2 if isinstance(parent, dict):
            parent[rng.choice(KEYS) + "s"] = copy.deepcopy(parent[last])
            return json.dumps(document), f"a key beside {where}"
        case 3:
            text = json.dumps(document, indent=1)
            at = rng.randrange(len(text))
            return text[:at] + rng.choice('{}[]:,"&*!|>%@`\x00\x07') + text[at + 1 :], f"a character at {at}"
        case _:
            text = json.dumps(document, indent=1)
            return text[: rng.randrange(1, len(text) - 2)], "cut short"


def test_two_hundred_malformed_scenarios(tmp_path: Path) -> None:
    """Each is refused with clear errors; the few faults that happen to be none are not counted."""
    refused: set[str] = set()
    seed = 0
    while len(refused) < 200:
        text, fault = malformed(seed)
        seed += 1
        try:
            said = outcome(tmp_path / f"{seed}.yml", text)
        except Exception as error:
            error.add_note(f"seed {seed - 1}: {fault}\n{text}")
            raise
        if said != "planned":
            refused.add(said)
        assert seed < 400, "most of these are no scenarios"


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_value_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        found = places(document)
        place = data.draw(st.sampled_from(found)) if found else ()
        if place:
            inside(document, place[:-1])[place[-1]] = data.draw(values)
    outcome(tmp_path / "x.yml", json.dumps(document))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200), values.map(json.dumps)))
def test_any_content(tmp_path: Path, content: str | bytes) -> None:
    content = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    assert outcome(tmp_path / "x.yml", content) != "planned"


# Long scenarios also have many points, and take longer than all others together.
EACH = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] if path.read_text().count("\n") > 40 else [])
    for path in SCENARIOS
]


@pytest.mark.parametrize("path", EACH)
def test_every_cut_of_a_line_is_planned_or_refused(tmp_path: Path, path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        outcome(tmp_path / "x.yml", "".join(lines[:i] + lines[i + 1 :]))
