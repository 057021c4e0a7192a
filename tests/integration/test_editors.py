"""Editors complete, explain and check scenarios: asked is the server that docs/editors.md names."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from synthetic import REPOSITORY

from dumbbell.cli.new import new
from dumbbell.kinds.asked import ASKED

PROGRAM = REPOSITORY / ".build/language-server/node_modules/.bin/yaml-language-server"
SETTINGS = {"schemaStore": {"enable": False}, "completion": True, "hover": True, "validate": True}
TIMEOUT_S = 600  # of all tests
Message = dict[str, Any]


class Server:
    """yaml-language-server, as an editor talks to it: JSON-RPC over standard streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout
        self._requests = 0
        self.ask("initialize", processId=None, rootUri=None, capabilities={})
        self._send(method="initialized", params={})

    def open(self, file: Path, text: str) -> list[Message]:
        """The diagnostics of a file that is opened with this text."""
        document = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        for message in self._received():
            told = message.get("method") == "textDocument/publishDiagnostics" and message["params"]
            if told and told["uri"] == file.as_uri():
                return list(told["diagnostics"])
        raise AssertionError("the server has ended")

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a request."""
        self._requests += 1
        self._send(id=self._requests, method=method, params=params)
        for message in self._received():
            if "method" not in message and message["id"] == self._requests:
                return message["result"]
        raise AssertionError("the server has ended")

    def ask_at(self, method: str, file: Path, at: tuple[int, int]) -> Any:
        """The answer to a request about a place, its line and column from 0."""
        place = {"line": at[0], "character": at[1]}
        return self.ask(f"textDocument/{method}", textDocument={"uri": file.as_uri()}, position=place)

    def _send(self, **message: Any) -> None:
        content = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self._to.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        self._to.flush()

    def _received(self) -> Iterator[Message]:
        """Messages until the server ends. It is told the settings when it asks for them."""
        while header := self._from.readline():
            assert self._from.readline() == b"\r\n"
            message: Message = json.loads(self._from.read(int(header.removeprefix(b"Content-Length: "))))
            if message.get("method") == "workspace/configuration":
                asked = [item["section"] for item in message["params"]["items"]]
                settings = [SETTINGS if section == "yaml" else None for section in asked]
                self._send(id=message["id"], result=settings)
            yield message


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The server, installed if it is not: a test that lacks it fails."""
    made = subprocess.run(
        ["make", ".build/language-server"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    with subprocess.Popen([PROGRAM, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        timer = Timer(TIMEOUT_S, process.kill)
        timer.start()
        yield Server(process)
        timer.cancel()
        process.kill()


class Scenario:
    """A new scenario, in which one text is replaced by another. There, ``|`` is the cursor."""

    def __init__(self, folder: Path, old: str, typed: str) -> None:
        new(folder / "mine", REPOSITORY / "inventory/lab", {})
        self.file = folder / "mine.yml"
        before, found, after = self.file.read_text().partition(old)
        assert found == old
        left, _, right = typed.partition("|")
        self.text = before + left + right + after
        lines = (before + left).split("\n")
        self.cursor = (len(lines) - 1, len(lines[-1]))


@pytest.mark.parametrize(
    ("old", "typed", "offered"),
    [
        ("flows:", "flows:\n  flow0:\n    kind: |", {*ASKED}),
        ("kind: tcp", "kind: |", {"tcp", "iperf3_tcp", "http"}),  # those that have the flow's other keys
        ("kind: pfifo", "kind: |", {"pfifo", "bfifo", "codel", "fq_codel", "cake", "pie", "red"}),
        ("    congestion_control: cubic", "    con|", {"congestion_control"}),
        ("duration: 30s", "warm|", {"warm_up"}),
        ("# expect:\n#   - {metric: utilisation, min: 90%}", "expect:\n  - metric: |", {"goodput", "rtt"}),
    ],
)
def test_what_may_follow_is_offered(
    server: Server, tmp_path: Path, old: str, typed: str, offered: set[str]
) -> None:
    scenario = Scenario(tmp_path, old, typed)
    server.open(scenario.file, scenario.text)
    answer = server.ask_at("completion", scenario.file, scenario.cursor)
    labels = {item["label"] for item in answer["items"]}
    assert offered <= labels


@pytest.mark.parametrize(
    ("old", "pointed", "told"),
    [
        ("kind: tcp", "ki|nd: tcp", "Data over TCP by the agent itself"),
        ("delay: 10ms", "del|ay: 10ms", "one-way delay added by the router"),
        ("duration: 30s", "dur|ation: 30s", "of a point, from t0"),
    ],
)
def test_a_key_is_explained(server: Server, tmp_path: Path, old: str, pointed: str, told: str) -> None:
    scenario = Scenario(tmp_path, old, pointed)
    server.open(scenario.file, scenario.text)
    answer = server.ask_at("hover", scenario.file, scenario.cursor)
    assert told in answer["contents"]["value"]


@pytest.mark.parametrize(
    ("old", "typed", "said"),
    [
        ("congestion_control:", "|congestion_contrl:", "Property congestion_contrl is not allowed."),
        ("delay: 10ms", "delay: |10sm", "String does not match the pattern"),
        ("kind: tcp", "kind: |tpc", "Value must be "),
    ],
)
def test_a_typo_is_shown_at_its_line_and_column(
    server: Server, tmp_path: Path, old: str, typed: str, said: str
) -> None:
    scenario = Scenario(tmp_path, old, typed)
    found = server.open(scenario.file, scenario.text)
    places = [(each["range"]["start"]["line"], each["range"]["start"]["character"]) for each in found]
    assert set(places) == {scenario.cursor}
    assert any(each["message"].startswith(said) for each in found), found


def test_nothing_is_wrong_with_scenarios_that_can_be_planned(server: Server, tmp_path: Path) -> None:
    new(tmp_path / "mine", REPOSITORY / "inventory/lab", {})
    files = [tmp_path / "mine.yml", *REPOSITORY.glob("scenarios/**/*.yml")]
    found = {file.name: server.open(file, file.read_text()) for file in files}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
