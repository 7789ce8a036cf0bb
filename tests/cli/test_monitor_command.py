"""``leakscope monitor`` watches real processes from outside, and lets them be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leakscope.recording import open_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GROWING = """
import sys, time
kept = []
for _ in range({rounds}):
    kept.append(b"x" * (8 << 20))
    time.sleep(0.15)
sys.exit({code})
"""
UNTIL_WATCHED = """
import os, time
while not os.path.exists("run/run.json"):
    time.sleep(0.05)
"""
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}])
child.wait()
"""


def monitor(*words: str, folder: Path, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leakscope", "monitor", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
        **options,
    )


def script(folder: Path, rounds: int = 30, code: int = 0) -> str:
    (folder / "grows.py").write_text(GROWING.format(rounds=rounds, code=code))
    return "grows.py"


def report_in(run: Path) -> dict:
    return json.loads((run / "report.json").read_text())


def test_a_command_is_watched_to_its_end_and_ends_as_it_would(tmp_path):
    words = ("--interval", "0.1", "--out", "run", "--", sys.executable, script(tmp_path, code=5))
    done = monitor(*words, folder=tmp_path)
    assert done.returncode == 5
    report = report_in(tmp_path / "run")
    assert report["verdict"] == "leak"
    (found,) = (f for f in report["findings"] if f["severity"] != "note")
    assert found["kind"] == "tree_grows"
    assert "most of it in the process itself" in found["text"]
    assert found["total_bytes"] >= 20 * (8 << 20)
    assert report["run"]["ended"] == "exit code 5"


def test_growth_in_a_child_is_reported(tmp_path):
    child = GROWING.format(rounds=30, code=0)
    (tmp_path / "parent.py").write_text(PARENT.format(child=child))
    words = ("--interval", "0.1", "--out", "run", "-q", "--", sys.executable, "parent.py")
    assert monitor(*words, folder=tmp_path).returncode == 0
    (found,) = (f for f in report_in(tmp_path / "run")["findings"] if f["severity"] != "note")
    assert "most of it in child processes" in found["text"]


def test_a_steady_process_is_clean(tmp_path):
    words = ("--interval", "0.1", "--out", "run", "--", sys.executable, "-c")
    done = monitor(*words, "import time; time.sleep(2.5)", folder=tmp_path)
    assert done.returncode == 0
    assert report_in(tmp_path / "run")["verdict"] == "clean"
    assert "steady" in done.stderr


MAPPING = """
import mmap, time
with open("data.bin", "wb") as file:
    for _ in range(30):
        file.write(bytes(8 << 20))
with open("data.bin", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    for part in range(30):
        sum(data[at] for at in range(part * (8 << 20), (part + 1) * (8 << 20), 4096))
        time.sleep(0.15)
"""


def test_a_process_that_reads_mapped_files_is_no_alarm(tmp_path):
    (tmp_path / "maps.py").write_text(MAPPING)
    words = ("--interval", "0.1", "--out", "run", "--", sys.executable, "maps.py")
    done = monitor(*words, folder=tmp_path)
    assert done.returncode == 0
    report = report_in(tmp_path / "run")
    resident = next(g for g in report["growth"] if g["metric"] == "rss")
    assert resident["bytes_per_unit"] > 100 << 20, "of which the test would say nothing otherwise"
    assert report["verdict"] == "clean"
    assert "reaches" not in done.stderr


def test_too_few_readings_settle_nothing(tmp_path):
    words = ("--interval", "60", "--out", "run", "--", sys.executable, script(tmp_path, rounds=3))
    monitor(*words, folder=tmp_path)
    report = report_in(tmp_path / "run")
    assert report["verdict"] == "inconclusive"
    assert "watch longer" in report["missing"][0]


def test_a_killed_command_is_reported_as_killed(tmp_path):
    kill = "import os, signal, time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    words = ("--interval", "0.1", "--out", "run", "-q", "--", sys.executable, "-c", kill)
    assert monitor(*words, folder=tmp_path).returncode == -signal.SIGKILL
    assert "SIGKILL" in report_in(tmp_path / "run")["run"]["ended"]


def test_a_process_of_others_is_watched_and_not_touched(tmp_path):
    watched = subprocess.Popen([sys.executable, script(tmp_path, rounds=400)], cwd=tmp_path)
    watching = subprocess.Popen(
        [
            *(sys.executable, "-m", "leakscope", "monitor", "--pid", str(watched.pid)),
            *("--interval", "0.1", "--out", "run"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stderr is not None
        for _ in range(6):
            watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
        assert watched.poll() is None
    finally:
        watched.kill()
        watched.wait()
        watching.stderr.close()
    assert report_in(tmp_path / "run")["run"]["ended"] == "watched no longer"


def watching(*words: str, folder: Path) -> subprocess.Popen[str]:
    """Return a monitor that has read memory a few times."""
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "leakscope", "monitor", "--interval", "0.1", "--out", "run"),
            *words,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    for _ in range(4):
        started.stderr.readline()
    return started


def test_what_asks_the_monitor_to_end_is_handed_on_to_its_command(tmp_path):
    catches = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); time.sleep(60)"
    started = watching("--", sys.executable, "-c", catches, folder=tmp_path)
    started.terminate()
    started.communicate(timeout=60)
    assert started.returncode == 7
    assert report_in(tmp_path / "run")["run"]["ended"] == "exit code 7"


def test_a_monitor_of_a_process_of_others_that_is_signalled_to_end_reports_and_lets_it_be(tmp_path):
    watched = subprocess.Popen([sys.executable, script(tmp_path, rounds=400)], cwd=tmp_path)
    try:
        started = watching("--pid", str(watched.pid), folder=tmp_path)
        started.terminate()
        started.communicate(timeout=60)
        assert started.returncode == 0
        assert watched.poll() is None
    finally:
        watched.kill()
        watched.wait()
    assert report_in(tmp_path / "run")["run"]["ended"] == "watched no longer"


def test_of_a_process_of_others_that_was_killed_is_reported_what_can_be_known(tmp_path):
    watched = subprocess.Popen([sys.executable, script(tmp_path, rounds=400)], cwd=tmp_path)
    started = watching("--pid", str(watched.pid), folder=tmp_path)
    watched.kill()
    watched.wait()
    printed = started.communicate(timeout=60)[1]
    assert f"process {watched.pid} ended; its exit status is its parent's to know." in printed
    assert "for memory" in printed


def test_the_end_of_a_process_of_others_ends_the_watching(tmp_path):
    mark = f"grows-{time.time_ns()}"
    (tmp_path / "other.py").write_text(UNTIL_WATCHED + GROWING.format(rounds=10, code=0))
    watched = subprocess.Popen([sys.executable, "other.py", mark], cwd=tmp_path)
    try:
        done = monitor("--name", mark, "--interval", "0.1", "--out", "run", "-q", folder=tmp_path)
    finally:
        watched.kill()
        watched.wait()
    assert done.returncode == 0
    recording = open_run(tmp_path / "run").main
    assert recording.header.role == "monitor"
    assert recording.end is not None
    assert recording.end.status == "ended"


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        ((), 2, "one of them"),
        (("--pid", "1", "--name", "x"), 2, "one of them"),
        (("--pid", "4194303"), 1, "There is no process 4194303."),
        (("--name", "no process is called this"), 1, "No process has"),
        (("--", "no-such-command"), 1, "no-such-command can't be started"),
    ],
)
def test_what_makes_no_sense_is_reported_in_one_sentence(words, code, printed, tmp_path):
    done = monitor(*words, folder=tmp_path)
    assert done.returncode == code
    assert printed in done.stderr
    assert "Traceback" not in done.stderr


def test_two_processes_of_one_name_are_not_guessed_between(tmp_path):
    mark = f"twin-{time.time_ns()}"
    command = [sys.executable, "-c", "import time; time.sleep(60)", mark]
    twins = [subprocess.Popen(command) for _ in range(2)]
    try:
        done = monitor("--name", mark, folder=tmp_path)
    finally:
        for twin in twins:
            twin.kill()
            twin.wait()
    assert done.returncode == 1
    assert all(str(twin.pid) in done.stderr for twin in twins)
    assert "--pid" in done.stderr


def test_a_command_goes_on_where_nothing_can_be_recorded(tmp_path):
    (tmp_path / "taken").write_text("a file")
    words = ("--out", "taken", "--", sys.executable, "-c", "print('trained')")
    done = monitor(*words, folder=tmp_path)
    assert done.stdout == "trained\n"
    assert done.returncode == 0
    assert "nothing is recorded" in done.stderr


def test_two_watched_runs_can_be_compared(tmp_path):
    command = (sys.executable, script(tmp_path))

    def watched(name: str) -> None:
        words = ("--interval", "0.1", "--out", name, "-q", "--")
        monitor(*words, *command, folder=tmp_path)

    with ThreadPoolExecutor() as both:
        list(both.map(watched, ("before", "after")))
    command = [sys.executable, "-m", "leakscope", "compare", "before", "after", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (change,) = json.loads(done.stdout)["culprits"]
    assert change["change"] in {"unchanged", "reduced", "worse"}
    assert "ever more" in change["name"]
