"""Looking at runs in InfluxDB where it cannot be asked: tests/integration has those that ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumbbell.ingest.influx import InfluxError, InfluxTarget
from dumbbell.report.pages.explore import Explore

HOSTS = "all: {children: {archives: {hosts: {archive: {ansible_host: 127.0.0.1}}}}}\n"


def inventory(folder: Path, variables: str) -> Path:
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text(variables)
    (folder / "hosts.yml").write_text(HOSTS)
    return folder


def test_where_influxdb_is_comes_from_the_inventory(tmp_path: Path) -> None:
    said = """
        influxdb_url: http://{{ hostvars[groups['archives'] | first].ansible_host }}:9
        influxdb_database: samples
        influxdb_admin_password: "{{ 'se' ~ 'cret' }}"
    """
    target = InfluxTarget.of_inventory(inventory(tmp_path, said))
    assert target == InfluxTarget("http://127.0.0.1:9", "samples", "admin", "secret")
    assert "secret" not in repr(target)
    for made in (explore := Explore(tmp_path)).runs(), explore.flows(), explore.series():
        assert "InfluxDB at http://127.0.0.1:9 does not answer" in made.data
        assert "secret" not in made.data


def test_an_inventory_that_does_not_say_it(tmp_path: Path) -> None:
    with pytest.raises(InfluxError, match=r"does not say where InfluxDB is: .*'influxdb_url' is undefined"):
        InfluxTarget.of_inventory(inventory(tmp_path, "influxdb_database: samples"))


def test_an_inventory_that_names_none(tmp_path: Path) -> None:
    with pytest.raises(InfluxError, match="names no InfluxDB: influxdb_url is null"):
        InfluxTarget.of_inventory(inventory(tmp_path, "influxdb_url: null"))


def test_no_inventory_is_a_sentence() -> None:
    explore = Explore("inventory/nowhere")
    for made in (explore.runs(), explore.flows(), explore.series()):
        assert "inventory/nowhere: there is no such inventory to say where InfluxDB is." in made.data
