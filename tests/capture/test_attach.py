"""What is known of a process before anything is touched, and what is refused with which words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leakscope.capture.attach import AttachError, look_at, why_no_rights

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


@contextmanager
def running(*command: str, **settings: str) -> Iterator[int]:
    # A pipe of its own that nobody writes to: what reads its input waits, wherever the tests run.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_python_process_is_known_by_its_version() -> None:
    with running(sys.executable, "-c", "print(1, flush=True); input()") as pid:
        target = look_at(pid)
    assert target.version == sys.version_info[:2]
    assert target.shares_files
    assert target.shares_user
    assert target.remarks() == []


def test_a_process_of_something_else_is_named() -> None:
    with (
        running("sh", "-c", "echo up; exec sleep 60") as pid,
        pytest.raises(AttachError, match=r"is no Python process"),
    ):
        look_at(pid)


def test_a_number_of_no_process_is_refused() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(AttachError, match=f"There is no process {ended.pid}"):
        look_at(ended.pid)


def test_a_debugger_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("needs no debugger")
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        running(sys.executable, "-c", "print(1, flush=True); input()") as pid,
        pytest.raises(AttachError, match="needs gdb"),
    ):
        look_at(pid)


@pytest.mark.parametrize(
    ("owner", "user", "scope", "expected"),
    [
        (1001, 1000, "0", "another user's (id 1001)"),
        (1000, 1000, "1", "ptrace_scope is 1. Attach as root (sudo)"),
        (1000, 1000, "2", "ptrace_scope is 2"),
        (1000, 0, "3", "ptrace_scope is 3, which forbids it to everybody"),
    ],
)
def test_what_is_in_the_way_is_reported_with_what_would_allow_it(
    owner: int, user: int, scope: str, expected: str
) -> None:
    printed = why_no_rights(7, {"Uid": f"{owner} {owner}"}, user=user, scope=scope)
    assert printed.startswith("Process 7")
    assert expected in printed
