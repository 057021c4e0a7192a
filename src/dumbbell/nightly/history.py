"""The measurements of all nights in one SQLite file: values by night, series and testbed, and alarms."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import polars as pl

from dumbbell import analysis
from dumbbell.compare.observed import Change, changes, digest, of_the_testbed
from dumbbell.metrics.values import conditions, values
from dumbbell.run.content import Run, RunSet
from dumbbell.validity.settings import seen

_SCHEMA = """
CREATE TABLE IF NOT EXISTS testbed (fingerprint TEXT PRIMARY KEY, conditions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (digest TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS value (
    night TEXT NOT NULL, fingerprint TEXT NOT NULL REFERENCES testbed, scenario TEXT NOT NULL,
    point TEXT NOT NULL, label TEXT NOT NULL,
    metric TEXT NOT NULL, subject TEXT NOT NULL, unit TEXT NOT NULL,
    run TEXT NOT NULL, repetition INTEGER NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (run, repetition, point, metric, subject)
);
CREATE TABLE IF NOT EXISTS alarm (
    fingerprint TEXT NOT NULL, point TEXT NOT NULL, metric TEXT NOT NULL, subject TEXT NOT NULL,
    since TEXT NOT NULL, opened TEXT NOT NULL, closed TEXT, how TEXT,
    before REAL NOT NULL, after REAL NOT NULL,
    PRIMARY KEY (fingerprint, point, metric, subject, since)
);
"""
_NOT_OF_THE_TESTBED = ("scenario", "seed")
_SETTINGS = " settings"  # suffix of a condition "HOST settings", whose value is a digest


@dataclass(frozen=True)
class Key:
    """A series: a testbed, a point (by its id), a metric, and the flow or ping that it is of."""

    fingerprint: str
    point: str
    metric: str
    subject: str


@dataclass(frozen=True)
class Series:
    """The values of a key by night, in order: medians of the repetitions."""

    key: Key
    scenario: str
    label: str
    unit: str
    nights: tuple[str, ...]
    medians: tuple[float, ...]
    runs: tuple[str, ...]  # for each night the directory of a run


@dataclass(frozen=True)
class Alarm:
    """A confirmed change: ``since`` is its first night, ``opened`` and ``closed`` the nights of its report.

    ``how`` it was closed: ``recovered`` if the old level is back, ``accepted`` if the new level is expected.
    """

    key: Key
    since: str
    opened: str
    before: float
    after: float
    closed: str | None = None
    how: str | None = None


class History:
    """The SQLite file; one process writes at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path)
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def record(self, night: str, run_dir: Path) -> list[str]:
        """Store the numbers of a run's valid points, and replace earlier ones of the same run.

        Returns an error for each point whose numbers cannot be read; the others are stored.
        """
        found = conditions(run_dir)
        scenario = found.get("scenario", "-")
        testbed = {name: value for name, value in found.items() if name not in _NOT_OF_THE_TESTBED}
        problems = []
        for folder in RunSet.open(run_dir).dirs:
            try:
                rows = values(folder).with_columns(run=pl.lit(str(run_dir)))
                settings = self._settings(folder)
            except Exception as error:  # files of a point may be damaged in any way
                problems.append(f"{folder.name} has no numbers: {type(error).__name__}: {error}")
            else:
                self.add(night, testbed | settings, scenario, rows)
        return problems

    def _settings(self, point_dir: Path) -> dict[str, str]:
        """Store the observed settings of a point's hosts, and return their digests by name of the condition.

        They are part of the testbed: another default of a network card makes results incomparable.
        """
        found = {}
        for seen_there in seen([(Run.open(point_dir), "")]):
            for host in seen_there.settings:
                settings = of_the_testbed(seen_there, host)
                found[f"{host}{_SETTINGS}"] = key = digest(settings)
                text = json.dumps(settings, sort_keys=True)
                with self._db:
                    self._db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (key, text))
        return found

    def add(self, night: str, testbed: Mapping[str, str], scenario: str, rows: pl.DataFrame) -> None:
        """Store the valid rows of :func:`values` of a testbed, which has conditions by name."""
        text = json.dumps(testbed, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        columns = ("id", "point", "metric", "subject", "unit", "run", "repetition", "value")
        valid = pl.col("verdict").is_in(analysis.VALID) & pl.col("value").is_finite()
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO testbed VALUES (?, ?)", (fingerprint, text))
            self._db.executemany(
                f"INSERT OR REPLACE INTO value VALUES ({', '.join('?' * 11)})",
                [
                    (night, fingerprint, scenario, *row)
                    for row in rows.filter(valid).select(columns).iter_rows()
                ],
            )

    def series(self) -> list[Series]:
        """All series; nights are in the order of their names, which begin with the date."""
        columns = "fingerprint, point, metric, subject, scenario, label, unit, night, run, value"
        found: dict[Key, dict[str, list[tuple[float, str]]]] = {}
        about: dict[Key, tuple[str, str, str]] = {}
        for row in self._db.execute(f"SELECT {columns} FROM value ORDER BY night, run, repetition"):
            key = Key(*row[:4])
            about[key] = row[4:7]
            found.setdefault(key, {}).setdefault(row[7], []).append((row[9], row[8]))
        return [
            Series(
                key,
                *about[key],
                nights=tuple(nights),
                medians=tuple(median(value for value, _ in of) for of in nights.values()),
                runs=tuple(of[-1][1] for of in nights.values()),
            )
            for key, nights in found.items()
        ]

    def testbed(self, fingerprint: str) -> dict[str, str]:
        """Conditions of a testbed, by name."""
        (text,) = self._db.execute(
            "SELECT conditions FROM testbed WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return dict(json.loads(text))

    def differ(self, one: str, other: str) -> list[Change]:
        """Differences between two testbeds, by name; observed settings with their host."""
        found = []
        for change in changes(self.testbed(one), self.testbed(other)):
            host = change.name.removesuffix(_SETTINGS)
            if host == change.name or None in (change.before, change.after):
                found.append(change)
            else:
                before, after = (self._kept(key) for key in (change.before, change.after))
                found += [of._replace(name=f"{host} {of.name}") for of in changes(before, after)]
        return found

    def _kept(self, key: str | None) -> dict[str, str]:
        row = self._db.execute("SELECT settings FROM settings WHERE digest = ?", (key,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

    def alarms(self) -> list[Alarm]:
        """All alarms, in the order of the nights that opened them."""
        rows = self._db.execute(
            "SELECT fingerprint, point, metric, subject, since, opened, before, after, closed, how"
            " FROM alarm ORDER BY opened, since"
        )
        return [Alarm(Key(*row[:4]), *row[4:]) for row in rows]

    def keep(self, alarm: Alarm) -> None:
        """Store an alarm, or its new state."""
        key = (alarm.key.fingerprint, alarm.key.point, alarm.key.metric, alarm.key.subject)
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO alarm"
                " (fingerprint, point, metric, subject, since, opened, before, after, closed, how)"
                f" VALUES ({', '.join('?' * 10)})",
                (*key, alarm.since, alarm.opened, alarm.before, alarm.after, alarm.closed, alarm.how),
            )
