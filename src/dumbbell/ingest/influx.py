"""A small client of InfluxDB's 1.x interface, ``POST /write`` and ``GET /query``, which 2.x and 3 offer too.

A bucket of 2.x is a database with the same name.
"""

from __future__ import annotations

import gzip
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from dumbbell.places import COLLECTION, HOME, REPOSITORY, known

LINES_PER_REQUEST = 5000
# Its run_influxdb evaluates the variables of the inventory.
ROLE = COLLECTION / "roles" / "run" / "defaults" / "main.yml"


class InfluxError(Exception):
    """InfluxDB could not be reached, or refused a request; the message says which and why."""


class NoInflux(InfluxError):
    """The inventory names no InfluxDB."""


@dataclass(frozen=True)
class InfluxTarget:
    """The database of a run's samples, with a token (2.x, 3) or an account (1.x).

    ``ca`` is a file with the authority of an https server, if the system does not have it.
    """

    url: str
    database: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    @classmethod
    def of_inventory(cls, inventory: Path | str) -> Self:
        """The InfluxDB and account of an inventory, as evaluated by Ansible.

        Raises NoInflux if the inventory, found as :func:`dumbbell.places.known` does, names no InfluxDB, and
        InfluxError if it cannot be evaluated.
        """
        path = known(inventory).absolute()
        if not path.exists():
            raise InfluxError(f"{path}: there is no such inventory to say where InfluxDB is")
        done = subprocess.run(
            [
                *(Path(sys.executable).with_name("ansible"), "localhost", "--inventory", path),
                *("--extra-vars", f"@{ROLE}", "--module-name", "ansible.builtin.debug"),
                *("--args", "msg={{ run_influxdb }}"),
            ],
            cwd=HOME,
            env={"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
            | os.environ
            | {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            found = json.loads(done.stdout[done.stdout.index("{") :])["msg"]
            if found is None:
                raise NoInflux(f"{path} names no InfluxDB: influxdb_url is null")
            return cls(**found)
        except (ValueError, TypeError, KeyError):
            # The output of a successful command may contain the password.
            said = " ".join((done.stdout if done.returncode else done.stderr).split())
            raise InfluxError(f"{path} does not say where InfluxDB is: {said}") from None


class Influx:
    """A connection to one database; use it as a context manager."""

    def __init__(self, target: InfluxTarget, transport: httpx.BaseTransport | None = None) -> None:
        self.target = target
        auth = None
        if target.username and not target.token:
            auth = httpx.BasicAuth(target.username, target.password or "")
        try:
            verify = ssl.create_default_context(cafile=target.ca)
        except OSError as error:
            raise InfluxError(
                f"{target.ca} cannot be used to check InfluxDB's certificate: {error}"
            ) from error
        self._http = httpx.Client(
            base_url=target.url,
            auth=auth,
            headers={"Authorization": f"Token {target.token}"} if target.token else {},
            verify=verify,
            timeout=30,
            transport=transport,
            trust_env=False,  # the testbed's database is never behind the environment's proxy
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def write(self, batches: Iterable[bytes]) -> None:
        """Write line protocol with times in nanoseconds. Writing a row again does not duplicate it."""
        for body in _requests(batches):
            self._request(
                "POST",
                "/write",
                params={"db": self.target.database, "precision": "ns"},
                content=gzip.compress(body, compresslevel=1),
                headers={"Content-Encoding": "gzip"},
            )

    def query(self, influxql: str, **parameters: str | float) -> list[dict[str, Any]]:
        """Rows of an InfluxQL query, with tags; ``$name`` in the query is a parameter; times in ns."""
        rows = []
        for series in self._series(influxql, parameters):
            tags = series.get("tags", {})
            rows += [tags | dict(zip(series["columns"], row, strict=True)) for row in series["values"]]
        return rows

    def counts(self, measurements: Iterable[str], run: str) -> dict[str, int]:
        """Number of a run's rows in each measurement; every row of the agents has ``mono_ns``."""
        names = list(measurements)
        of = ", ".join(f'"{name}"' for name in names)
        found = self._series(f'SELECT count("mono_ns") FROM {of} WHERE "run" = $run', {"run": run})
        return dict.fromkeys(names, 0) | {
            series["name"]: int(series["values"][0][series["columns"].index("count")]) for series in found
        }

    def _series(self, influxql: str, parameters: Mapping[str, str | float]) -> list[dict[str, Any]]:
        answer = self._request(
            "GET",
            "/query",
            params={
                "db": self.target.database,
                "q": influxql,
                "params": json.dumps(parameters),
                "epoch": "ns",
            },
        ).json()
        found: list[dict[str, Any]] = []
        for result in answer.get("results", []):
            if "error" in result:
                raise InfluxError(f"InfluxDB refused {influxql!r}: {result['error']}")
            found += result.get("series", [])
        return found

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise InfluxError(f"InfluxDB at {self.target.url} does not answer: {error}") from error
        if response.is_error:
            raise InfluxError(
                f"InfluxDB at {self.target.url} answered {response.status_code}: {_reason(response)}"
            )
        return response


def _requests(batches: Iterable[bytes]) -> Iterator[bytes]:
    lines = (line for batch in batches for line in batch.splitlines(keepends=True))
    pending: list[bytes] = []
    for line in lines:
        pending.append(line)
        if len(pending) == LINES_PER_REQUEST:
            yield b"".join(pending)
            pending = []
    if pending:
        yield b"".join(pending)


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or response.reason_phrase
