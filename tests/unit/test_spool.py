from __future__ import annotations

import gzip
import time
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import batch_bytes, write_spool

from dumbbell.ingest import spool

# Line protocol cannot hold newlines here, nor say whether a backslash of a name escapes what follows it.
text = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\\", exclude_categories=["Cs", "Cc"]), min_size=1
)
names = text.filter(lambda name: name != "unix_ns")
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_characters="\n", exclude_categories=["Cs", "Cc"])),
)


def distinct(point: dict[str, Any]) -> bool:
    return not {*point["tags"]} & {*point["fields"]}


points: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "measurement": text.filter(lambda name: not name.startswith("#")),
        "tags": st.dictionaries(names, text, max_size=3),
        "fields": st.dictionaries(names, values, min_size=1, max_size=4),
        "unix_ns": st.integers(-(2**62), 2**62),
    }
)


def render(point: dict[str, Any]) -> str:
    def name(value: str) -> str:
        return value.replace(",", "\\,").replace("=", "\\=").replace(" ", "\\ ")

    def field(value: object) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case int():
                return f"{value}i"
            case str():
                return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return repr(value)

    head = ",".join([name(point["measurement"]), *(f"{name(k)}={name(v)}" for k, v in point["tags"].items())])
    return (
        f"{head} {','.join(f'{name(k)}={field(v)}' for k, v in point['fields'].items())} {point['unix_ns']}"
    )


def read(path: Path, content: bytes) -> spool.Spool:
    path.write_bytes(content)
    return spool.read(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(point=points.filter(distinct))
def test_every_point_survives(tmp_path: Path, point: dict[str, Any]) -> None:
    found = read(tmp_path / "spool.lp", batch_bytes(1, [render(point)]))
    assert found.damage == []
    row = {**point["tags"], "unix_ns": point["unix_ns"], **point["fields"]}
    assert found.tables[point["measurement"]].to_dicts() == [row]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2**40), st.booleans()), min_size=1))
def test_many_rows_of_several_shapes_survive(tmp_path: Path, rows: list[tuple[str, int, bool]]) -> None:
    lines = [
        f'm,host={host} n={n}i,cc="cubic" {i}' if short else f'm,host={host} n={n}i,cc="cubic",f=1.5 {i}'
        for i, (host, n, short) in enumerate(rows)
    ]
    write_spool(tmp_path / "spool.lp", lines)
    found = spool.read(tmp_path / "spool.lp")
    table = found.tables["m"].sort("unix_ns")
    assert found.damage == []
    assert table["n"].to_list() == [n for _, n, _ in rows]
    assert table["host"].to_list() == [host for host, _, _ in rows]
    assert set(table["cc"]) == {"cubic"}


def test_of_rows_with_the_same_tags_and_time_the_last_counts(tmp_path: Path) -> None:
    write_spool(
        tmp_path / "spool.lp", ["m,host=a n=1i 5", "m,host=b n=2i 5", "m,host=a n=3i 5", "m,host=a n=4i 6"]
    )
    found = spool.read(tmp_path / "spool.lp")
    assert found.tables["m"].select("host", "unix_ns", "n").rows() == [("b", 5, 2), ("a", 5, 3), ("a", 6, 4)]


GOOD = [f"m,host=a n={i}i {i}" for i in range(3)]


def test_a_batch_that_fails_its_crc_is_left_out_and_counted(tmp_path: Path) -> None:
    content = (
        batch_bytes(1, GOOD) + batch_bytes(2, GOOD).replace(b"n=1i", b"n=7i") + batch_bytes(3, ["m n=9i 9"])
    )
    found = read(tmp_path / "spool.lp", content)
    assert (found.crc_failures, found.rows_lost, found.tables["m"].height) == (1, 3, 4)
    assert found.damage == ["batch 2 does not match its CRC, 3 rows left out"]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_tail_is_left_out_and_counted(tmp_path: Path, cut: int) -> None:
    found = read(tmp_path / "spool.lp", (batch_bytes(1, GOOD) + batch_bytes(2, GOOD))[:-cut])
    assert found.tables["m"].height == 3
    assert found.rows_lost >= 2
    assert found.damage[0].startswith("torn last batch")


def test_a_lost_batch_is_noticed(tmp_path: Path) -> None:
    found = read(tmp_path / "spool.lp", batch_bytes(1, GOOD) + batch_bytes(3, GOOD))
    assert found.damage == ["batch 3 where batch 2 was due"]


def test_a_wrong_row_count_is_noticed(tmp_path: Path) -> None:
    body = "".join(f"{row}\n" for row in GOOD).encode()
    found = read(tmp_path / "spool.lp", body + b"# batch=1 rows=2 crc32=%08x\n" % zlib.crc32(body))
    assert found.crc_failures == 1


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m n=1i",
        "m n=1i x",
        "m n= 1",
        "m,host n=1i 1",
        "m n=1x 1",
        "m n=1i,n=2i 1",
        'm s="open 1',
        "m n=nan 1",
        "m n=1i  1",
        "m n=99999999999999999999i 1",
        "",
        "m,h=a,h=b n=1i 1",
    ],
)
def test_what_is_not_line_protocol_is_left_out_and_named(tmp_path: Path, line: str) -> None:
    found = read(tmp_path / "spool.lp", batch_bytes(1, [GOOD[0], line, GOOD[1]]))
    assert found.tables["m"].height == 2
    assert found.rows_lost == 1
    assert "not line protocol" in found.damage[0]


def test_an_empty_spool_is_whole(tmp_path: Path) -> None:
    assert read(tmp_path / "spool.lp", b"") == spool.Spool()


def test_four_flows_for_half_a_minute_take_less_than_a_second(tmp_path: Path) -> None:
    fields = ",".join(f"field_{i}={i * 1000}i" for i in range(50))
    tags = "host=sender1,phase=measurement,run=r,side=sender,stream=0"
    rows = [
        f'tcp_info,flow=flow{flow},{tags} {fields},congestion_control="cubic" {tick}'
        for tick in range(300)
        for flow in range(4)
    ]
    write_spool(tmp_path / "spool.lp", rows)
    began = time.process_time()
    found = spool.read(tmp_path / "spool.lp")
    assert time.process_time() - began < 1
    assert found.tables["tcp_info"].schema["field_7"] == pl.Int64
    assert found.tables["tcp_info"].height == 1200


def test_a_spool_in_many_files_is_one(tmp_path: Path) -> None:
    files = ("spool.lp.gz", "spool-2.lp", "spool-10.lp", "spool-3.lp.gz")
    numbers = {"spool.lp.gz": 1, "spool-2.lp": 2, "spool-3.lp.gz": 3, "spool-10.lp": 4}
    for name in files:
        content = batch_bytes(numbers[name], GOOD)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "spool-2.lp.gz").write_bytes(b"cut sho")  # compressing it was interrupted before the rename
    (tmp_path / "spool-4.lp.gz.part").write_bytes(b"cut sho")
    found = spool.read(tmp_path / "spool.lp")
    assert found.damage == []
    assert len(list(spool.batches(tmp_path / "spool.lp"))) == 4
    (tmp_path / "spool-3.lp.gz").unlink()
    assert spool.read(tmp_path / "spool.lp").damage == ["batch 4 where batch 3 was due"]
