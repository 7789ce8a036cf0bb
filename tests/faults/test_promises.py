"""The promises of docs/promises.md: each names the tests that keep it, and those tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fault_runs
import pytest
from hostile_runs import boundary as reached
from hostile_runs import census, row, write_run

PAGE = fault_runs.ROOT / "docs" / "promises.md"
PLACE = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def promises() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each promise with the files and names of its tests."""
    section = PAGE.read_text()
    rows = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    return [(line.split("|")[2].strip(), PLACE.findall(line)) for line in rows]


def test_there_are_seven_promises_and_each_is_kept_by_a_test() -> None:
    assert len(promises()) == 7
    assert all(text and tests for text, tests in promises())


@pytest.mark.parametrize(
    "place", [test for _, tests in promises() for test in tests], ids="::".join
)
def test_a_test_that_keeps_a_promise_exists(place: tuple[str, str]) -> None:
    file, name = place
    body = ast.parse((fault_runs.ROOT / file).read_text()).body
    for part in name.split("::"):
        found = [
            node
            for node in body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part
        ]
        assert len(found) == 1, f"{file} has no {part}"
        body = found[0].body
    assert isinstance(found[0], ast.FunctionDef)
    assert found[0].name.startswith("test_")


WATCHED = """
import os, sys

def watch(event, arguments):
    talks = event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname")
    if talks or event in ("pickle.find_class", "os.system", "ftplib.connect", "urllib.Request"):
        told = os.open(os.environ["TALK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(told, f"{event} {arguments}\\n".encode())
        os.close(told)

sys.addaudithook(watch)
"""
PROGRAM = """
import leakscope
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(5)):
        for step in scope.steps(range(5)):
            kept.append(bytes(100_000))
"""


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """An environment in which every Python tells whom it talks to and what it unpickles."""
    (tmp_path / "sitecustomize.py").write_text(WATCHED)
    path = fault_runs.environment()["PYTHONPATH"] + f":{tmp_path}"
    return {"PYTHONPATH": path, "TALK": str(tmp_path / "talk")}


def test_nobody_is_talked_to_and_nothing_unpickled(watched: dict[str, str], tmp_path: Path) -> None:
    ended = fault_runs.recorded(PROGRAM, tmp_path, **watched)
    assert ended.code == 0, ended.err
    done = fault_runs.leakscope("compare", "run", "run", folder=tmp_path, **watched)
    assert done.code == 0, done.err
    assert not (tmp_path / "talk").exists(), (tmp_path / "talk").read_text()
    seen = "import socket; socket.create_connection(('127.0.0.1', 9), 0.1)"
    fault_runs.python("-c", seen, folder=tmp_path, **watched)
    assert "socket.connect" in (tmp_path / "talk").read_text(), "the watch itself works"


def test_no_code_in_a_recording_is_executed(watched: dict[str, str], tmp_path: Path) -> None:
    evil = f"import pathlib\nkept = []\npathlib.Path({str(tmp_path / 'pwned')!r}).touch()\n"
    evil += "kept.append(__import__('os').system('echo pwned'))\n"
    owner = {"kind": "module", "name": "__main__", "file": "/p/t.py", "variable": "kept"}
    rows = [row("kept", owner=owner, host_bytes=10**7 * index) for index in range(8)]
    records = [item for i, r in enumerate(rows) for item in (census(i, r), reached(i))]
    source = {"type": "source", "path": "/p/t.py", "text": evil}
    write_run(tmp_path / "run", source, *records)
    done = fault_runs.leakscope("report", "run", folder=tmp_path, **watched)
    assert done.code == 0, done.err
    assert fault_runs.report_of(tmp_path)["culprits"][0]["name"] == "kept"
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "talk").exists()
