"""Where the platform has less than Linux, a program is recorded by gauges and the slower walker.

``elsewhere/sitecustomize.py`` takes away what macOS lacks. It is no macOS: docs/limits.md tells
what was never run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from installed_run import LEAKING_LINE, PROGRAM

ROOT = Path(__file__).parents[2]
ELSEWHERE = Path(__file__).parent / "elsewhere"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ELSEWHERE), str(ROOT)])}
REFERENCE = "walker: reference, because no native one is installed"
PLATFORM = "platform: Darwin: memory that processes share"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="takes away what Linux has"),
]


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [["-m", "leakscope", "run", "--out", "run", "train.py"], ["train.py"]],
    ids=["leakscope run", "profile()"],
)
def test_a_leak_is_named_and_what_is_missing_reported(words: list[str], tmp_path: Path) -> None:
    program = PROGRAM if "run" in words else PROGRAM.replace("profile(", "profile('run', ")
    (tmp_path / "train.py").write_text(program)
    done = run(words, tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    (culprit,) = report["culprits"]
    assert (culprit["name"], culprit["fed_at"]) == ("kept", [f"train.py:{LEAKING_LINE}"])
    assert report["overhead"]["walker"] == "reference"
    assert report["errors"] == []
    text = " ".join(
        run(["-m", "leakscope", "report", "run", "--format", "text"], tmp_path).stdout.split()
    )
    assert REFERENCE in text
    assert PLATFORM in text
    assert "memory that processes share" in (tmp_path / "run" / "report.html").read_text()


def test_the_gauges_that_are_read_are_those_that_every_unix_has(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    run(["-m", "leakscope", "run", "--out", "run", "train.py"], tmp_path)
    (journal,) = (tmp_path / "run").glob("*.journal")
    data = journal.read_bytes()
    assert b'"rss"' in data
    for gauge in (b'"pss"', b'"malloc_in_use"', b'"cgroup_used"', b'"shm"', b'"open_files"'):
        assert gauge not in data


def test_doctor_says_what_is_missing_and_not_to_compile(tmp_path: Path) -> None:
    output = json.loads(run(["-m", "leakscope", "doctor", "--json"], tmp_path).stdout)
    items = {item["name"]: item for item in output["items"]}
    assert items["walker of the heap"]["state"] == "missing"
    assert "is for Linux with glibc" in items["walker of the heap"]["advice"]
    for name in ("own and shared", "page map", "C heap", "kills for memory"):
        assert items[name]["state"] == "missing", name


COUNTING = """
import signal, sys, time
hits = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: hits.append(signal.Signals(number).name))
print("ready", flush=True)
deadline = time.monotonic() + 30
while not hits and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)
print(hits, flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("to_group", [True, False], ids=["group", "alone"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_reaches_the_program_once(name: str, to_group: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COUNTING)
    with subprocess.Popen(
        [sys.executable, "-m", "leakscope", "run", "-q", "--no-report", "--out", "run", "train.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        (os.killpg if to_group else os.kill)(process.pid, getattr(signal, name))
        assert process.stdout.read() == f"[{name!r}]\n"
        assert process.wait(30) == 5
