"""Grafana's files as the role provisions them. Grafana itself is not run here."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from playbooks import ansible_playbook, unfolded
from tools.dashboards import DASHBOARDS, FOLDER

PASSWORD = 'it\'s "one" of $HOME ü'


@pytest.fixture
def grafana(tmp_path: Path) -> Path:
    """The directory of a Grafana without any provisioning, beside an inventory of its host."""
    hosts = {"hosts": {"localhost": {"ansible_connection": "local"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"children": {"grafana": hosts}}}))
    (tmp_path / "ca.pem").write_text("an authority\n")
    (tmp_path / "provisioning").mkdir()
    return tmp_path


def provisioned(folder: Path, **variables: Any) -> tuple[int, str]:
    given = {
        "grafana_provisioning": str(folder / "provisioning"),
        "grafana_dashboards": str(folder / "boards"),
        "grafana_group": "root",
        "grafana_service": None,
        "influxdb_url": "http://192.0.2.3:8086",
        "influxdb_database": "dumbbell",
    }
    (folder / "given.json").write_text(json.dumps(given | variables))
    return ansible_playbook(
        *("-i", str(folder / "hosts.yml"), "playbooks/grafana.yml", "-e", f"@{folder / 'given.json'}")
    )


def source(folder: Path) -> dict[str, Any]:
    """The data source as Grafana reads it: it replaces ``$$`` by ``$``."""
    file = folder / "provisioning/datasources/dumbbell.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640  # it has the password
    text = file.read_text()
    assert text.count("$") == 2 * text.count("$$")
    (found,) = YAML(typ="safe").load(text.replace("$$", "$"))["datasources"]
    return dict(found)


def test_data_source_and_dashboards_are_provisioned_once_and_removed(grafana: Path) -> None:
    for changed in (4, 0):
        code, said = provisioned(grafana, influxdb_reader_password=PASSWORD)
        assert code == 0, said
        assert f"changed={changed} " in said
        assert PASSWORD not in said
    found = source(grafana)
    assert found["secureJsonData"] == {"password": PASSWORD}
    assert (found["uid"], found["type"], found["user"]) == ("dumbbell", "influxdb", "grafana")
    assert found["jsonData"]["dbName"] == "dumbbell"
    (provider,) = YAML(typ="safe").load((grafana / "provisioning/dashboards/dumbbell.yaml").read_text())[
        "providers"
    ]
    boards = Path(provider["options"]["path"])
    assert {path.stem for path in boards.iterdir()} == {*DASHBOARDS}
    assert (boards / "run.json").read_bytes() == (FOLDER / "run.json").read_bytes()
    for board in map(json.loads, map(Path.read_text, boards.iterdir())):
        chosen = board["templating"]["list"][0]
        assert (chosen["type"], chosen["current"]["value"]) == ("datasource", found["uid"])
    code, said = provisioned(grafana, grafana_present=False)
    assert code == 0, said
    assert [path for path in grafana.rglob("*") if "dumbbell" in path.name or path == boards] == []


def test_a_token_and_an_authority_are_of_the_data_source(grafana: Path) -> None:
    code, said = provisioned(grafana, influxdb_reader_token="T==", influxdb_ca=str(grafana / "ca.pem"))
    assert code == 0, said
    found = source(grafana)
    assert found["secureJsonData"] == {"httpHeaderValue1": "Token T==", "tlsCACert": "an authority"}
    assert found["jsonData"]["httpHeaderName1"] == "Authorization"
    assert found["jsonData"]["tlsAuthWithCACert"] is True


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "set influxdb_reader_password (InfluxDB 1.x) or influxdb_reader_token (2.x, 3)"),
        ({"grafana_provisioning": "/nowhere"}, "there is no Grafana with a directory /nowhere"),
        ({"influxdb_url": None}, "the inventory names no InfluxDB: influxdb_url is null"),
    ],
)
def test_what_is_missing_is_said(given: dict[str, Any], reason: str, grafana: Path) -> None:
    code, said = provisioned(grafana, **given)
    assert code != 0
    assert f"localhost: {reason}" in unfolded(said)
