"""Disks that are full, read-only or taken away: they cost the recording, never the training."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_runs
import pytest

TINY = """
import leakscope
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(30)):
        for step in scope.steps(range(20)):
            kept.append(bytes(3000))
print("result", len(kept))
"""
RESULT = "result 600\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB with a program on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "leakscope-test", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_fills_up_costs_what_came_afterwards(small_disk: Path) -> None:
    ended = fault_runs.recorded(TINY, small_disk, "--budget", "100%")
    assert (ended.code, ended.out) == (0, RESULT)
    assert "The recording stopped: No space left on device." in ended.err
    assert "can't be written" in ended.err
    assert "leakscope report run" in ended.err, "the verdict is reported all the same"
    assert not list(small_disk.glob("run/.*")), "nothing half written is left"
    report = fault_runs.report_again(small_disk)
    assert len(report["errors"]) <= 1, "a census for whose boundary there was no room"
    assert report["work"]["duration_s"] > 0
    assert_reported_as_stopped(report, "No space left on device")


def assert_reported_as_stopped(report: dict[str, Any], reason: str) -> None:
    """The report says that the recording ends early, by the reason where there was room for it."""
    no_room = "The recording stopped before the program ended: there was no room left"
    reported = [*report["notes"], report["run"]["ended"]]
    ways = (reason, no_room, "no closing record")
    assert any(way in item for item in reported for way in ways), reported


@pytest.mark.slow
def test_a_training_on_a_full_disk_learns_the_same(small_disk: Path, expected: str) -> None:
    (small_disk / "filler").write_bytes(bytes(40 << 10))
    ended = fault_runs.recorded(fault_runs.TRAINING, small_disk, "--budget", "100%", "--no-report")
    assert (ended.code, ended.result) == (0, expected)
    assert "The recording stopped: No space left on device." in ended.err
    assert fault_runs.report_again(small_disk)["work"]["duration_s"] > 0


def test_a_disk_that_is_full_from_the_start_is_a_sentence(small_disk: Path) -> None:
    (small_disk / "program.py").write_text(TINY)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(64 << 10))
    ended = fault_runs.leakscope("run", "--out", "run", "program.py", folder=small_disk)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (0, RESULT)
    assert "the disk is full" in ended.err
    assert "--out" in ended.err
    assert ended.err.count("leakscope:") == 2, "one of the command, one of profile() in the program"


def test_a_disk_without_room_for_the_first_record_is_a_sentence(small_disk: Path) -> None:
    (small_disk / "program.py").write_text("print('result 1')\nraise SystemExit(5)\n")
    page = 4096
    room = os.statvfs(small_disk).f_bavail * page
    (small_disk / "filler").write_bytes(bytes(room - page))
    ended = fault_runs.leakscope("run", "--out", "run", "program.py", folder=small_disk)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (5, "result 1\n")
    assert "No space left on device: choose another folder with --out" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("kib", [pytest.param(4, marks=pytest.mark.slow), 24])
def test_a_limit_on_the_size_of_files_costs_what_came_afterwards(kib: int, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))

    ended = fault_runs.recorded(TINY, tmp_path, "--budget", "100%", prepare=limit)
    assert (ended.code, ended.out) == (0, RESULT)
    assert "The recording stopped: File too large." in ended.err
    report = fault_runs.report_again(tmp_path)
    assert len(report["errors"]) <= 1, "a census for whose boundary there was no room"
    assert_reported_as_stopped(report, "File too large")


TAKEN_AWAY = """
import os, shutil, sys
import leakscope

what = sys.argv[1]
with leakscope.profile(quiet=True) as scope:
    scope.mark("before")
    if what == "removed":
        shutil.rmtree("run")
    elif what == "locked":
        os.chmod("run", 0)
    elif what == "a file":
        shutil.rmtree("run")
        open("run", "w").close()
    elif what == "moved":
        os.rename("run", "elsewhere")
    elif what == "descriptors closed":
        os.closerange(3, 100)
        held = [open("other", "a") for _ in range(10)]
    for _ in range(20):
        scope.mark("after")
print("result", what)
sys.exit(7)
"""


@pytest.mark.parametrize(
    "what",
    fault_runs.mostly_slow(
        ["removed", "locked", "a file", "moved", "descriptors closed"], "removed", "locked"
    ),
)
def test_a_run_directory_that_is_taken_away_costs_the_recording_alone(
    what: str, tmp_path: Path
) -> None:
    words = [*fault_runs.run_words(TAKEN_AWAY, tmp_path), what]
    ended = fault_runs.python(*words, folder=tmp_path, prepare=fault_runs.without_override)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (7, f"result {what}\n")
    assert "error of leakscope's own" not in ended.err
    if what == "locked":
        (tmp_path / "run").chmod(0o755)
    if what in ("moved", "locked", "descriptors closed"):
        left = "elsewhere" if what == "moved" else "run"
        assert fault_runs.report_again(tmp_path, left)["errors"] == []
    if what == "descriptors closed":
        assert (tmp_path / "other").read_bytes() == b""


@pytest.mark.parametrize("options", [["--out", "run"], []], ids=["named", "by default"])
def test_in_a_folder_that_cannot_be_written_the_program_runs_all_the_same(
    options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text("print('result 1')\nraise SystemExit(5)\n")
    tmp_path.chmod(0o555)
    try:
        ended = fault_runs.python(
            *("-m", "leakscope", "run", *options, "program.py"),
            folder=tmp_path,
            prepare=fault_runs.without_override,
        )
    finally:
        tmp_path.chmod(0o755)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (5, "result 1\n")
    assert "permission denied" in ended.err
    assert "--out" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("out", ["below a file", "read-only"])
def test_profile_runs_where_it_cannot_write(out: str, tmp_path: Path) -> None:
    (tmp_path / "below a file").write_text("mine")
    (tmp_path / "read-only").mkdir(mode=0o555)
    program = f"""
import leakscope
with leakscope.profile({f"{out}/run"!r}) as scope:
    for step in scope.steps(range(3)):
        scope.mark("here")
print("result", scope.enabled)
"""
    (tmp_path / "program.py").write_text(program)
    ended = fault_runs.python("program.py", folder=tmp_path, prepare=fault_runs.without_override)
    assert (ended.code, ended.out) == (0, "result False\n")
    assert "No run can be recorded" in ended.err
    assert ended.err.count("\n") == 1


def test_a_report_into_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    fault_runs.recorded(TINY, tmp_path, "--no-report", "-q")
    (tmp_path / "run").chmod(0o555)
    try:
        ended = fault_runs.python(
            *("-m", "leakscope", "report", "run"),
            folder=tmp_path,
            prepare=fault_runs.without_override,
        )
    finally:
        (tmp_path / "run").chmod(0o755)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert ended.code == 1
    assert "--out chooses another place" in ended.err
    assert ended.err.count("\n") == 1


def test_a_stderr_that_takes_nothing_is_no_fault_of_the_program(tmp_path: Path) -> None:
    words = fault_runs.run_words(TINY, tmp_path)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
            env=fault_runs.environment(),
        )
    assert (ended.returncode, ended.stdout.decode()) == (0, RESULT)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["verdict"]
