"""The measurements of all nights in one SQLite file: values by night and series, and alarms."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.compare.observed import Change, changes, digest
from dumbbell.metrics.registry import PERCENTILES, of_name
from dumbbell.metrics.values import conditions, values
from dumbbell.nightly.identity import Identity, Settings, identity, of_point, split
from dumbbell.run.content import Run, RunSet
from dumbbell.versions import refuse

VERSION = 2
_SCHEMA = """
CREATE TABLE document (digest TEXT PRIMARY KEY, text TEXT NOT NULL);  -- conditions, or settings of a host
CREATE TABLE testbed (fingerprint TEXT PRIMARY KEY, conditions TEXT NOT NULL, site TEXT NOT NULL);
CREATE TABLE defaults (  -- settings that came with a kernel of a host, by digest
    fingerprint TEXT NOT NULL REFERENCES testbed, point TEXT NOT NULL, host TEXT NOT NULL,
    kernel TEXT NOT NULL, settings TEXT NOT NULL REFERENCES document,
    PRIMARY KEY (fingerprint, point, host, kernel)
);
CREATE TABLE value (
    night TEXT NOT NULL, fingerprint TEXT NOT NULL REFERENCES testbed, scenario TEXT NOT NULL,
    point TEXT NOT NULL, label TEXT NOT NULL,
    metric TEXT NOT NULL, version INTEGER NOT NULL, subject TEXT NOT NULL, unit TEXT NOT NULL,
    run TEXT NOT NULL, repetition INTEGER NOT NULL, value REAL NOT NULL,
    tested TEXT NOT NULL REFERENCES document, instrument TEXT NOT NULL REFERENCES document,
    PRIMARY KEY (run, repetition, point, metric, subject)
);
CREATE TABLE pair (  -- of an A/B: a run with what was under test before, and one with what is now
    night TEXT NOT NULL, fingerprint TEXT NOT NULL, point TEXT NOT NULL,
    metric TEXT NOT NULL, subject TEXT NOT NULL,
    old TEXT NOT NULL, new TEXT NOT NULL, number INTEGER NOT NULL,
    before REAL NOT NULL, after REAL NOT NULL,
    PRIMARY KEY (night, fingerprint, point, metric, subject, old, new, number)
);
CREATE TABLE alarm (
    fingerprint TEXT NOT NULL, point TEXT NOT NULL, metric TEXT NOT NULL, subject TEXT NOT NULL,
    since TEXT NOT NULL, opened TEXT NOT NULL, before REAL NOT NULL, after REAL NOT NULL,
    version INTEGER NOT NULL, low REAL, high REAL, evidence TEXT NOT NULL, back TEXT, closed TEXT, how TEXT,
    PRIMARY KEY (fingerprint, point, metric, subject, since)
);
"""


@dataclass(frozen=True)
class Key:
    """A series: a testbed, a point (by its id), a metric, and the flow or ping that it is of."""

    fingerprint: str
    point: str
    metric: str
    subject: str


@dataclass(frozen=True)
class Series:
    """The values of a key by night, in order: ``medians`` of the ``repetitions``, by their number.

    ``tested`` and ``instrument`` are digests of conditions (:meth:`History.conditions`).
    """

    key: Key
    scenario: str
    label: str
    unit: str
    nights: tuple[str, ...]
    medians: tuple[float, ...]
    runs: tuple[str, ...]  # for each night the directory of a run
    repetitions: tuple[Mapping[int, float], ...]
    tested: tuple[str, ...]
    instrument: tuple[str, ...]

    def only(self, indices: Sequence[int]) -> dict[str, Any]:
        """The fields that have an entry for each night, of these nights."""
        of_nights = ("nights", "medians", "runs", "repetitions", "tested", "instrument")
        return {name: tuple(getattr(self, name)[i] for i in indices) for name in of_nights}


@dataclass(frozen=True)
class Alarm:
    """A confirmed change: ``since`` is its first night, ``opened`` and ``closed`` the nights of its report.

    ``low`` and ``high`` are the interval of after - before, None if there are too few values. ``how`` it was
    closed: ``recovered`` if the former level is back, ``back`` being the first such night; ``accepted`` if
    the new level is expected; ``gone`` if the point is no longer in the suite; ``redefined`` if the metric
    has another definition.
    """

    key: Key
    since: str
    opened: str
    before: float
    after: float
    version: int  # of the metric's definition
    low: float | None = None
    high: float | None = None
    evidence: str = ""
    back: str | None = None
    closed: str | None = None
    how: str | None = None


class History:
    """The SQLite file; one process writes at a time. Files of former versions are migrated,
    and those of newer ones raise NewerError."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path)
        self._sorted: dict[str, tuple[dict[str, str], dict[str, str]]] = {}  # documents, by their digest
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        refuse(path, version, VERSION)
        if version < VERSION:
            with self._db:
                self._db.execute("BEGIN")
                self._migrate()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def record(self, night: str, run_dir: Path) -> list[str]:
        """Store the numbers of a run's valid points, and replace earlier ones of the same run.

        Returns an error for each point whose numbers cannot be read; the others are stored.
        """
        scenario = conditions(run_dir).get("scenario", "-")
        problems = []
        for folder in RunSet.open(run_dir).dirs:
            try:
                rows = values(folder, PERCENTILES).with_columns(run=pl.lit(str(run_dir)))
                found = of_point(Run.open(folder))
            except Exception as error:  # files of a point may be damaged in any way
                problems.append(f"{folder.name} has no numbers: {type(error).__name__}: {error}")
            else:
                self.add(night, found, scenario, rows)
        return problems

    def add(self, night: str, found: Identity, scenario: str, rows: pl.DataFrame) -> None:
        """Store the valid rows of :func:`values` with their identity."""
        columns = ("id", "point", "metric", "subject", "unit", "run", "repetition", "value")
        valid = pl.col("verdict").is_in(analysis.VALID) & pl.col("value").is_finite()
        kept = rows.filter(valid).select(columns)
        with self._db:
            beds = {point: self._testbed(found, point) for point in kept["id"].unique(maintain_order=True)}
            tested, instrument = self._kept(found.tested), self._kept(found.instrument)
            for point, label, metric, *of in kept.iter_rows():
                row = (
                    night,
                    beds[point],
                    scenario,
                    point,
                    label,
                    metric,
                    _version(metric),
                    *of,
                    tested,
                    instrument,
                )
                self._insert("value", row)

    def _testbed(self, found: Identity, point: str) -> str:
        """The latest testbed of a point that a measurement does not contradict, or else a new one.

        It contradicts if a condition or setting of the site differs, or a default of a kernel that the
        testbed has had.
        """
        site = {host: self._kept(own) for host, own in found.site.items()}
        defaults = {(host, found.kernel(host)): self._kept(own) for host, own in found.defaults.items()}
        asked = (point, _json(found.testbed), _json(site))
        known = self._db.execute(
            "SELECT fingerprint FROM value JOIN testbed USING (fingerprint)"
            " WHERE point = ? AND conditions = ?"
            " GROUP BY fingerprint ORDER BY max(night) DESC",
            asked[:2],
        ).fetchall()
        for (fingerprint,) in known:
            if self._agrees(fingerprint, point, found):
                break
        else:
            fingerprint = digest(
                {"conditions": asked[1], "site": asked[2]}
                | {f"{host} {kernel}": own for (host, kernel), own in defaults.items()}
            )
            self._insert("testbed", (fingerprint, *asked[1:]))
        for (host, kernel), own in defaults.items():
            self._insert("defaults", (fingerprint, point, host, kernel, own))
        return str(fingerprint)

    def _agrees(self, fingerprint: str, point: str, found: Identity) -> bool:
        """Whether a testbed has never had other settings, of the site or of the same kernels."""
        had = self._settings(fingerprint, point)
        site = {host: own for (host, kernel), own in had.items() if not kernel}
        of_kernels = {(host, found.kernel(host)): own for host, own in found.defaults.items()}
        return site == found.site and all(had.get(of, own) == own for of, own in of_kernels.items())

    def _settings(self, fingerprint: str, point: str) -> dict[tuple[str, str], dict[str, str]]:
        """Settings of the site by host and '', and defaults by host and kernel.

        They are sorted as they are today: another Dumbbell may have taken a kernel's default for the site's.
        """
        site = {host: self._split(of) for host, of in self._site(fingerprint).items()}
        found = {(host, ""): own for host, (own, _) in site.items()}
        for (host, kernel), of in self._defaults(fingerprint, point).items():
            moved = site[host][1] if host in site else {}
            found[host, kernel] = moved | self._split(of)[1]
        return found

    def _split(self, key: str) -> tuple[dict[str, str], dict[str, str]]:
        """What :func:`split` makes of a stored document; many points of many nights have the same one."""
        if key not in self._sorted:
            self._sorted[key] = split(self._document(key))
        return self._sorted[key]

    def _defaults(self, fingerprint: str, point: str) -> dict[tuple[str, str], str]:
        rows = self._db.execute(
            "SELECT host, kernel, settings FROM defaults WHERE fingerprint = ? AND point = ?",
            (fingerprint, point),
        )
        return {(host, kernel): settings for host, kernel, settings in rows}

    def series(self) -> list[Series]:
        """All series; nights are in the order of their names, which begin with the date.

        Values of another version of a metric's definition are left out.
        """
        found: dict[Key, dict[str, list[tuple[Any, ...]]]] = {}
        about: dict[Key, tuple[str, str, str]] = {}
        for row in self._db.execute(
            "SELECT fingerprint, point, metric, subject, scenario, label, unit,"
            " night, run, repetition, value, tested, instrument, version"
            " FROM value ORDER BY night, run, repetition"
        ):
            key = Key(*row[:4])
            if row[-1] == _version(key.metric):
                about[key] = row[4:7]
                found.setdefault(key, {}).setdefault(row[7], []).append(row[8:])
        return [
            Series(
                key,
                *about[key],
                nights=tuple(nights),
                medians=tuple(median(row[2] for row in of) for of in nights.values()),
                runs=tuple(of[-1][0] for of in nights.values()),
                repetitions=tuple({row[1]: row[2] for row in of} for of in nights.values()),
                tested=tuple(of[-1][3] for of in nights.values()),
                instrument=tuple(of[-1][4] for of in nights.values()),
            )
            for key, nights in found.items()
        ]

    def outdated(self) -> list[tuple[str, Path]]:
        """Nights and run directories whose values are of another version of a metric's definition."""
        rows = self._db.execute("SELECT DISTINCT night, run, metric, version FROM value ORDER BY night")
        old = [(night, Path(run)) for night, run, m, version in rows if _version(m) not in (None, version)]
        return list(dict.fromkeys(old))

    def conditions(self, digest: str) -> dict[str, str]:
        """Conditions of what was under test, or of the instrument, by name."""
        return self._document(digest)

    def testbed(self, fingerprint: str) -> dict[str, str]:
        """Conditions of a testbed, by name."""
        (text,) = self._db.execute(
            "SELECT conditions FROM testbed WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return dict(json.loads(text))

    def differ(self, one: Key, other: Key) -> list[Change]:
        """Differences between the testbeds of two series, by name; settings with their host."""
        found = changes(self.testbed(one.fingerprint), self.testbed(other.fingerprint))
        before, after = (self._settings(key.fingerprint, key.point) for key in (one, other))
        for host, kernel in sorted(before.keys() | after.keys()):
            own = [side.get((host, kernel)) for side in (before, after)]
            if own[0] is not None and own[1] is not None:
                found += [of._replace(name=f"{host} {of.name}") for of in changes(own[0], own[1])]
            elif not kernel:
                found.append(Change(f"{host} settings", *(None if of is None else digest(of) for of in own)))
        return found

    def _site(self, fingerprint: str) -> dict[str, str]:
        (text,) = self._db.execute(
            "SELECT site FROM testbed WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return dict(json.loads(text))

    def add_pairs(
        self, night: str, key: Key, old: str, new: str, pairs: Sequence[tuple[float, float]]
    ) -> None:
        """Store the values of an A/B: for each pair that before, with ``old`` under test, and after."""
        with self._db:
            for number, pair in enumerate(pairs, 1):
                self._insert("pair", (night, *_columns(key), old, new, number, *pair))

    def pairs(self, key: Key, old: str, new: str) -> dict[str, list[tuple[float, float]]]:
        """Values of all A/B of a series between two things under test, by night."""
        rows = self._db.execute(
            "SELECT night, before, after FROM pair WHERE fingerprint = ? AND point = ? AND metric = ?"
            " AND subject = ? AND old = ? AND new = ? ORDER BY night, number",
            (*_columns(key), old, new),
        )
        found: dict[str, list[tuple[float, float]]] = {}
        for night, before, after in rows:
            found.setdefault(night, []).append((before, after))
        return found

    def alarms(self) -> list[Alarm]:
        """All alarms, in the order of the nights that opened them."""
        rows = self._db.execute("SELECT * FROM alarm ORDER BY opened, since")
        return [Alarm(Key(*row[:4]), *row[4:]) for row in rows]

    def keep(self, alarm: Alarm) -> None:
        """Store an alarm, or its new state."""
        with self._db:
            self._keep(alarm)

    def _keep(self, alarm: Alarm) -> None:
        own = {name: value for name, value in vars(alarm).items() if name != "key"}
        self._insert("alarm", (*_columns(alarm.key), *own.values()))

    def _kept(self, told: Settings) -> str:
        self._insert("document", (key := digest(told), _json(told)))
        return key

    def _document(self, key: str | None) -> dict[str, str]:
        row = self._db.execute("SELECT text FROM document WHERE digest = ?", (key,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

    def _insert(self, table: str, row: Sequence[Any]) -> None:
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _migrate(self) -> None:
        """Make the tables; of an older file sort the values by their identity, in the order of nights."""
        names = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            self._db.execute(f"ALTER TABLE {name} RENAME TO former_{name}")
        for statement in _SCHEMA.split(";"):
            self._db.execute(statement)
        if names:
            self._take_over(settings="settings" in names)
        for name in names:
            self._db.execute(f"DROP TABLE former_{name}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _take_over(self, *, settings: bool) -> None:
        """Take values and alarms from a file whose testbeds had everything in one list of conditions."""
        had = {}
        if settings:
            rows = self._db.execute("SELECT digest, settings FROM former_settings")
            had = {key: json.loads(text) for key, text in rows}
        found: dict[str, Identity] = {}
        for fingerprint, text in self._db.execute("SELECT fingerprint, conditions FROM former_testbed"):
            told = json.loads(text)
            hosts = {name: name.removesuffix(" settings") for name in told if told[name] in had}
            others = {name: value for name, value in told.items() if name not in hosts}
            found[fingerprint] = identity(others, {host: had[told[name]] for name, host in hosts.items()})
        beds = {}
        columns = "label, metric, subject, unit, run, repetition, value"
        for night, former, scenario, point in self._db.execute(
            "SELECT DISTINCT night, fingerprint, scenario, point FROM former_value ORDER BY night"
        ).fetchall():
            beds[former, point] = bed = self._testbed(found[former], point)
            ends = (self._kept(found[former].tested), self._kept(found[former].instrument))
            for label, metric, *of in self._db.execute(
                f"SELECT {columns} FROM former_value WHERE night = ? AND fingerprint = ? AND point = ?",
                (night, former, point),
            ).fetchall():
                self._insert("value", (night, bed, scenario, point, label, metric, 1, *of, *ends))
        columns = "fingerprint, point, metric, subject, closed, how, since, opened, before, after"
        alarms = self._db.execute(f"SELECT {columns} FROM former_alarm").fetchall()
        for former, point, metric, subject, closed, how, since, opened, before, after in alarms:
            if (former, point) in beds:
                key = Key(beds[former, point], point, metric, subject)
                back = closed if how == "recovered" else None
                alarm = Alarm(key, since, opened, before, after, version=1)
                self._keep(replace(alarm, back=back, closed=closed, how=how))


def _version(metric: str) -> int | None:
    """The version of a metric's definition; None if there is no such metric any more."""
    known = of_name(metric)
    return known.version if known else None


def _columns(key: Key) -> tuple[str, str, str, str]:
    return (key.fingerprint, key.point, key.metric, key.subject)


def _json(told: Settings) -> str:
    return json.dumps(told, sort_keys=True)
