"""The agent's spool: line protocol in batches, each closed by ``# batch=N rows=N crc32=HEX`` over its rows.

Nothing is dropped silently: rows of a batch with a wrong CRC, of a tail without a closing line, and rows that
are not line protocol are left out of the tables, counted, and described in :attr:`Spool.damage`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import polars as pl

# Rows are parsed in chunks: large enough to be fast, small enough for 8 hours of samples.
_CHUNK_BYTES = 16 * 2**20

# Without ^, because a search for a leading literal is faster.
_TRAILER = re.compile(rb"# batch=(\d+) rows=(\d+) crc32=([0-9a-fA-F]{8})\n")

_NAME = r"(?:[^,= \\]|\\[,= ])+"
_STRING = r'"(?:[^"\\]|\\["\\])*"'
_VALUE = rf"(?:{_STRING}|[^,= \"\\]+)"
_LINE = re.compile(
    rf"({_NAME})((?:,{_NAME}={_NAME})*) ({_NAME}={_VALUE}(?:,{_NAME}={_VALUE})*) (-?[0-9]{{1,19}})"
)
_TAG = re.compile(rf"({_NAME})=({_NAME})")
_FIELD = re.compile(rf"({_NAME})=({_VALUE})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BOOLEANS = dict.fromkeys(("t", "T", "true", "True", "TRUE"), True) | dict.fromkeys(
    ("f", "F", "false", "False", "FALSE"), False
)


@dataclass
class Spool:
    """The content of a spool.

    ``tables`` has a frame for each measurement: tags (strings), ``unix_ns``, then fields with their types.
    As in InfluxDB tags and time identify a row: of several the last one counts.
    """

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    crc_failures: int = 0
    rows_lost: int = 0
    damage: list[str] = field(default_factory=list)


def segments(path: Path) -> list[Path]:
    """Files of a spool, in order, by the path of its first file; old ones may be compressed.

    A full file is followed by ``spool-2.lp``, ``spool-3.lp``. If a file exists compressed and uncompressed,
    its compression was interrupted, and the uncompressed one counts.
    """
    found: dict[int, Path] = {}
    for file in path.parent.glob(f"{path.stem}*.lp*"):
        number = re.fullmatch(rf"{re.escape(path.stem)}(?:-(\d+))?\.lp(?:\.gz)?", file.name)
        if number and (file.suffix == ".lp" or int(number[1] or 1) not in found):
            found[int(number[1] or 1)] = file
    return [file for _, file in sorted(found.items())]


def read(path: Path) -> Spool:
    """Read a spool by its first file. Damage is part of the result. Raises OSError on read errors."""
    spool = Spool()
    parts: dict[str, list[pl.DataFrame]] = {}
    keys: dict[str, set[str]] = {}
    for chunk in _chunks(_verified(path, spool)):
        for measurement, tags, frame in _parse(chunk, spool):
            parts.setdefault(measurement, []).append(frame)
            keys.setdefault(measurement, {"unix_ns"}).update(tags)
    for name, frames in sorted(parts.items()):
        table = pl.concat(frames, how="diagonal_relaxed")
        spool.tables[name] = table.unique(sorted(keys[name]), keep="last", maintain_order=True)
    return spool


def batches(path: Path) -> Iterator[bytes]:
    """Batches of a spool with a correct CRC, to be written to InfluxDB."""
    return _verified(path, Spool())


def _verified(path: Path, spool: Spool) -> Iterator[bytes]:
    """Batches with a correct CRC, one file in memory at a time; records damage."""
    due = None
    for file in segments(path) or [path]:
        content = file.read_bytes()
        due = yield from _verify(spool, gzip.decompress(content) if file.suffix == ".gz" else content, due)


def _verify(spool: Spool, data: bytes, due: int | None) -> Generator[bytes, None, int | None]:
    """Batches of one file with a correct CRC; returns the number of the next batch."""
    start = 0
    for trailer in _TRAILER.finditer(data):
        number, rows, crc = int(trailer[1]), int(trailer[2]), int(trailer[3], 16)
        if data[trailer.start() - 1 : trailer.start()] not in (b"", b"\n"):
            continue  # text inside a row
        body = data[start : trailer.start()]
        found = body.count(b"\n")
        start = trailer.end()
        if due is not None and number != due:
            spool.damage.append(f"batch {number} where batch {due} was due")
        due = number + 1
        if zlib.crc32(body) == crc and found == rows:
            yield body
        else:
            spool.crc_failures += 1
            spool.rows_lost += found
            spool.damage.append(f"batch {number} does not match its CRC, {found} rows left out")
    if tail := data[start:]:
        torn = len(tail.removesuffix(b"\n").split(b"\n"))
        spool.rows_lost += torn
        spool.damage.append(f"torn last batch, {torn} rows without a CRC left out")
    return due


def _chunks(batches: Iterable[bytes]) -> Iterator[str]:
    pending: list[bytes] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += len(batch)
        if size >= _CHUNK_BYTES:
            yield b"".join(pending).decode("utf-8", "surrogateescape")
            pending, size = [], 0
    if size:
        yield b"".join(pending).decode("utf-8", "surrogateescape")


Table = tuple[str, list[str], pl.DataFrame]  # measurement, names of its tags, rows


def _parse(text: str, spool: Spool) -> Iterator[Table]:
    """Parse rows of the same shape (measurement, tag keys, field keys) together, by column.

    Rows with escapes, or with separators inside strings, have no such shape and are parsed one by one.
    """
    lines = pl.DataFrame({"line": text.removesuffix("\n").split("\n")}).with_columns(
        shape=pl.col("line").str.replace(r" -?[0-9]+$", "").str.replace_all(r"=[^,= ]*", "="),
        values=pl.col("line").str.replace_all(r"[, ](?:[^,= ]*=)?", ","),
    )
    for part in lines.partition_by("shape", maintain_order=True):
        try:
            yield _by_column(part["values"], part["shape"][0])
        except (ValueError, pl.exceptions.PolarsError):
            for line in part["line"]:
                try:
                    yield _by_row(line)
                except (ValueError, pl.exceptions.PolarsError) as error:
                    spool.rows_lost += 1
                    spool.damage.append(f"not line protocol ({error}): {line[:80]}")


def _by_column(values: pl.Series, shape: str) -> Table:
    """Parse the values, separated by commas, of rows with a shape such as ``cpu,host= idle=,busy=``."""
    if not re.fullmatch(r"[^,= \\]+(,[^,= \\]+=)* [^,= \\]+=(,[^,= \\]+=)*", shape):
        raise ValueError("not a shape")
    head, keys = shape.split(" ")
    measurement, *tags = (key.removesuffix("=") for key in head.split(","))
    fields = [key.removesuffix("=") for key in keys.split(",")]
    names = [*tags, *fields, "unix_ns"]
    if len(set(names)) < len(names):
        raise ValueError("a key is given twice")
    first = values[0].split(",")[1:]
    typed = [_typed(value) for value in first[len(tags) : -1]]
    notations = [*[r"[^,\\]+"] * len(tags), *(notation for notation, _ in typed), "-?[0-9]+"]
    if len(first) != len(names) or not values.str.contains(rf"^[^,]+,{','.join(notations)}$").all():
        raise ValueError("a value is missing, an escape, or types differ")
    rows = values.str.split_exact(",", len(names)).struct.unnest()
    # Columns are named at the end: polars takes a name such as * for all columns.
    columns = [pl.col(name) for name in rows.columns[1:]]
    table = rows.select(
        *columns[: len(tags)],
        columns[-1].cast(pl.Int64),
        *(read(column) for column, (_, read) in zip(columns[len(tags) : -1], typed, strict=True)),
    )
    table.columns = [*tags, "unix_ns", *fields]
    return measurement, tags, table


def _typed(value: str) -> tuple[str, Callable[[pl.Expr], pl.Expr]]:
    """The regular expression of a field's values that have the notation of this one, and how to read them.

    Raises ValueError if it has none.
    """
    if value.startswith('"'):
        return r'"[^",\\]*"', lambda values: values.str.slice(1, values.str.len_chars() - 2)
    for suffix, dtype in (("i", pl.Int64), ("u", pl.UInt64)):
        if value.endswith(suffix):
            return f"[-+]?[0-9]+{suffix}", partial(_whole, suffix=suffix, dtype=dtype)
    if value in _BOOLEANS:
        read = partial(pl.Expr.replace_strict, old=_BOOLEANS, return_dtype=pl.Boolean)
        return f"(?:{'|'.join(_BOOLEANS)})", read
    if not _FLOAT.fullmatch(value):
        raise ValueError("not a number")
    return _FLOAT.pattern, lambda values: values.cast(pl.Float64)


def _whole(values: pl.Expr, suffix: str, dtype: type[pl.DataType]) -> pl.Expr:
    return values.str.strip_suffix(suffix).cast(dtype)


def _by_row(line: str) -> Table:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("bad syntax")
    tags = [(_unescape(key), _unescape(value)) for key, value in _TAG.findall(match[2])]
    columns = [pl.Series(key, [value]) for key, value in tags]
    columns.append(pl.Series("unix_ns", [match[4]]).cast(pl.Int64))
    for key, value in _FIELD.findall(match[3]):
        if value.startswith('"'):
            columns.append(pl.Series(_unescape(key), [re.sub(r'\\(["\\])', r"\1", value[1:-1])]))
        else:
            _, read = _typed(value)
            typed = pl.DataFrame({"value": [value]}).select(read(pl.col("value")))
            columns.append(typed.to_series().alias(_unescape(key)))
    return _unescape(match[1]), [key for key, _ in tags], pl.DataFrame(columns)


def _unescape(name: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", name)
