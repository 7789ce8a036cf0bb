"""`leakscope run --until-leak`: a soak test ends as soon as a leak is found, with a code for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leakscope.cli import run as run_command
from leakscope.cli.run import LeakWatch, WatchPace
from leakscope.model.documents import LiveLeak
from leakscope.model.errors import EXIT_LEAK

ROOT = Path(__file__).parents[2]


def verdict(signature: str = "") -> LiveLeak | None:
    """Return what leaks by a verdict: this signature, or nothing."""
    if not signature:
        return None
    return LiveLeak(
        headline="Memory leaks: kept grows by 1 MiB per minute.",
        when="since 14:05, full in 9 hours",
        name="kept",
        signature=signature,
        bytes_per_unit=float(1 << 20),
        unit="minute",
        judged_at=0.0,
    )


def watch(
    monkeypatch: pytest.MonkeyPatch, *verdicts: object, ignores: bool = False, ends: bool = True
):
    """Return the watch and the exit code of a sleeping program, given these verdicts in turn."""
    left = list(verdicts)
    pace = WatchPace(first_s=0.05, share=0.1, cost=1.0)
    monkeypatch.setattr(run_command, "UNTIL_LEAK", pace)
    monkeypatch.setattr(run_command, "ALONGSIDE", pace)
    monkeypatch.setattr(run_command, "WATCH_LEAST_SECONDS", 0.05)
    monkeypatch.setattr(run_command, "GRACE_SECONDS", 1.0)
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if ignores else ""
    code += "print('ready', flush=True)\ntime.sleep(3)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    watching = LeakWatch(Path("run"), ends=ends)
    reported = lambda: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
    monkeypatch.setattr(watching, "_leak_by_now", reported)
    watching.follow(child.pid)
    ended = child.wait(timeout=30)
    watching.end()
    child.stdout.close()
    return watching, ended


def test_a_program_whose_leak_holds_is_signalled_to_end(monkeypatch, capsys):
    watching, ended = watch(monkeypatch, verdict(), verdict("a"))
    assert watching.found
    assert ended == -signal.SIGTERM
    written = capsys.readouterr().err
    assert "since 14:05, full in 9 hours: Memory leaks: kept grows by 1 MiB per minute." in written
    assert "--until-leak" in written


def test_a_leak_that_holds_is_reported_once_while_the_program_goes_on(monkeypatch, capsys):
    watching, ended = watch(monkeypatch, verdict(), verdict("a"), ends=False)
    assert watching.found
    assert ended == 0
    assert capsys.readouterr().err.count("since 14:05") == 1


def test_one_that_does_not_end_is_killed(monkeypatch):
    watching, ended = watch(monkeypatch, verdict("a"), ignores=True)
    assert watching.found
    assert ended == -signal.SIGKILL


@pytest.mark.parametrize(
    "verdicts",
    [
        (verdict(),),
        (verdict("a"), verdict()),
    ],
)
def test_a_program_without_a_leak_that_holds_goes_on(monkeypatch, verdicts):
    watching, ended = watch(monkeypatch, *verdicts)
    assert not watching.found
    assert ended == 0


def test_leaks_that_change_are_none(monkeypatch):
    changing = [verdict(name) for name in "abcdefgh" * 20]
    watching, ended = watch(monkeypatch, *changing)
    assert (watching.found, ended) == (False, 0)


@pytest.mark.parametrize("words", [("--no-report",), ("--until-verdict", "epochs=2")])
def test_what_it_does_not_go_with_is_refused(tmp_path, words):
    (tmp_path / "train.py").write_text("print('ran')")
    done = started(tmp_path, *words, "train.py", "{epochs}")
    assert done.returncode == 2
    assert "ran" not in done.stdout


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leakscope", "run", "--until-leak", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_a_soak_test_of_a_real_program(tmp_path: Path, kept: bool) -> None:
    (tmp_path / "serve.py").write_text(
        "import sys, time\n"
        "replies = []\n"
        "end = time.monotonic() + float(sys.argv[1])\n"
        "while time.monotonic() < end:\n"
        "    replies.append(bytearray(20_000))\n"
        f"    {'pass' if kept else 'del replies[:-50]'}\n"
        "    time.sleep(0.01)\n"
    )
    began = time.monotonic()
    done = started(tmp_path, "--out", "run", "serve.py", "150" if kept else "25")
    assert done.returncode == (EXIT_LEAK if kept else 0), done.stderr
    assert time.monotonic() - began < 120
    assert ("replies grows by" in done.stderr) is kept
