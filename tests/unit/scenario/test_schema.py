from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell import scenario as model
from dumbbell.kinds.asked.iperf3 import Iperf3TcpFlow
from dumbbell.plan import plan
from dumbbell.scenario.expand import all_models, fields_of, is_list
from dumbbell.scenario.schema import reference, schema
from scenario.texts import GOOD

SCENARIOS = sorted([*REPOSITORY.glob("scenarios/**/*.yml"), *REPOSITORY.glob("tests/e2e/*.yml")])
SCHEMA = REPOSITORY / "schemas" / "scenario.schema.json"
REFERENCE = REPOSITORY / "docs" / "scenario-reference.md"


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(GOOD)
    scenario = model.load(tmp_path / "x.yml").scenario
    assert scenario.path is not None
    assert scenario.path.forward.rate == 10_000_000
    flow = scenario.flows["flow1"]
    assert isinstance(flow, Iperf3TcpFlow)
    assert (flow.start, flow.duration, flow.congestion_control) == (0, None, "cubic")
    assert scenario.sampling.interval == 100_000_000


def test_the_committed_schema_is_that_of_the_models() -> None:
    assert SCHEMA.read_bytes() == schema(), "run python -m dumbbell.scenario"


def test_the_committed_reference_is_that_of_the_models() -> None:
    assert REFERENCE.read_bytes() == reference(), "run python -m dumbbell.scenario"


def test_the_reference_has_every_key_and_no_broken_link() -> None:
    text = REFERENCE.read_text()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line[:1] == "#"}
    for link in (part.partition(")")[0] for part in text.split("](#")[1:]):
        assert link in headings
    for kind in all_models():
        for key, _ in fields_of(kind):
            assert f"| `{key}` |" in text or f"`{key}: " in text, (kind, key)


def test_a_key_is_a_list_everywhere_or_nowhere() -> None:
    """By its key alone a list is known to be a sweep; `flows` is the exception, a mapping in the scenario."""
    lists: dict[str, set[bool]] = {}
    for kind in all_models():
        for key, field in fields_of(kind):
            lists.setdefault(key, set()).add(is_list(field.annotation))
    assert [key for key, found in lists.items() if len(found) > 1] == ["flows"]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios(path: Path) -> None:
    text = path.read_text()
    header, _, _ = text.partition("\n")
    relative = Path(header.removeprefix("# yaml-language-server: $schema="))
    assert (path.parent / relative).resolve() == SCHEMA
    document: Any = YAML(typ="safe").load(text)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert model.load(path).scenario.name == path.stem
    for profile in (None, *document.get("profiles", {})):
        assert plan(path, inventory(), profile).points


EXPERIMENTS = [path for path in (REPOSITORY / "scenarios").glob("*.yml") if path.stem != "tcp_beside_iperf3"]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_flows_are_the_agents_own_and_a_profile_has_iperf3s(path: Path) -> None:
    def kinds(profile: str | None) -> list[str]:
        point = plan(path, inventory(), profile).points[-1]
        return [flow.kind for flow in point.phase("measurement").flows]

    assert "iperf3_tcp" not in kinds(None)
    if "tcp" in kinds(None) and path.stem != "what_limits_a_flow":  # iperf3 has not all of these limits
        assert kinds("iperf3") == [{"tcp": "iperf3_tcp"}.get(kind, kind) for kind in kinds(None)]
