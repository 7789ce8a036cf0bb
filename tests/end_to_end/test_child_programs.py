"""Programs that work in child processes: who leaks is named, and healthy ones are clean."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from leakscope.analysis import analyse
from leakscope.model.report import Culprit, Report, RunVerdict, Severity
from leakscope.recording import open_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and fork"),
]
PROGRAMS = Path(__file__).parent / "child_programs"


def report_of(folder: Path, program: str, *words: str) -> Report:
    """Record a program in a folder, and return what is concluded."""
    command = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", "run"]
    done = subprocess.run(
        [sys.executable, *command, str(PROGRAMS / program), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert "Traceback" not in done.stderr
    return analyse(open_run(folder / "run"))


def serious(report: Report) -> list[Culprit]:
    return [c for c in report.culprits if c.severity is not Severity.NOTE]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_process_that_leaks_is_named_with_its_line(tmp_path, method):
    report = report_of(tmp_path, "loops.py", method, "2")
    assert report.verdict is RunVerdict.LEAK
    (culprit,) = serious(report)
    assert (culprit.name, culprit.processes) == ("KEPT", ["child 2 of 2"])
    assert culprit.fed_at[0].endswith("loops.py:19")
    assert "in child 2 of 2" in report.headline
    assert culprit.unit == "minute"
    assert culprit.bytes_per_unit == pytest.approx(400_000 * 60 / 0.05, rel=0.3)
    (main, first, second) = report.processes[:3]
    assert main.supervises
    assert (first.verdict, second.verdict) == ("clean", "leak")
    assert report.odd_process.startswith("Child 2 of 2 leaves the others' course")


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "pool", "executor", "manager"])
def test_processes_that_keep_nothing_are_clean(tmp_path, how):
    report = report_of(tmp_path, "loops.py", how, "0")
    assert report.verdict is RunVerdict.CLEAN
    assert serious(report) == []
    assert len([process for process in report.processes if process.is_recorded]) == (
        2 if how == "manager" else 3
    )


@pytest.mark.parametrize("how", ["pool", "executor", "pool in chunks", "executor in chunks"])
def test_what_workers_of_a_pool_keep_has_a_rate_per_task(tmp_path, how):
    report = report_of(tmp_path, "loops.py", how, "1")
    (culprit,) = serious(report)
    assert (culprit.name, culprit.unit) == ("KEPT", "task")
    assert culprit.processes == ["child 1 of 2", "child 2 of 2"] or len(culprit.processes) == 2
    assert culprit.fed_at[0].endswith("loops.py:26")
    assert culprit.bytes_per_unit == pytest.approx(200_000, rel=0.1)
    assert not [f for f in report.findings if f.severity is not Severity.NOTE]


def test_what_a_manager_gathers_is_found_in_its_server(tmp_path):
    report = report_of(tmp_path, "loops.py", "manager", "1")
    assert report.verdict is RunVerdict.LEAK
    assert report.process == "the child process"
    assert report.processes[1].runs == "server of a Manager"
    (culprit,) = serious(report)
    assert culprit.name == "shared"
    assert report.processes[1].grows == [culprit.name]
    lines = (PROGRAMS / "loops.py").read_text().splitlines()
    (line,) = [n for n, text in enumerate(lines, 1) if "shared[number" in text]
    assert [place.rpartition("/")[2] for place in culprit.fed_at] == [f"loops.py:{line}"]


@pytest.mark.parametrize(("who", "verdict"), [("1", "leak"), ("0", "clean")])
def test_a_program_of_subprocess_is_judged_like_any_other(tmp_path, who, verdict):
    report = report_of(tmp_path, "loops.py", "subprocess", who)
    assert report.verdict.value == verdict
    assert report.processes[1].start_method == "subprocess"
    assert [c.name for c in serious(report)] == (["KEPT"] if who == "1" else [])


def test_a_rollout_worker_that_keeps_its_frames_is_named(tmp_path):
    report = report_of(tmp_path, "rl.py", "worker")
    assert report.verdict is RunVerdict.LEAK
    (culprit,) = serious(report)
    assert (culprit.name, culprit.process) == ("RolloutWorker.frames", "child 2 of 2")
    assert culprit.fed_at[0].endswith("rl.py:20")
    assert report.processes[2].runs == "RolloutWorker.run"


def test_a_learner_that_keeps_what_it_gets_is_distinguished_from_its_workers(tmp_path):
    report = report_of(tmp_path, "rl.py", "learner")
    (culprit,) = serious(report)
    assert (culprit.name, culprit.process) == ("Learner.replay", "main process")
    assert culprit.unit == "step"
    assert "in child" not in report.headline


def test_rollouts_of_which_nothing_is_kept_are_clean(tmp_path):
    assert report_of(tmp_path, "rl.py", "nobody").verdict is RunVerdict.CLEAN


def test_of_two_ranks_that_are_spawned_the_one_that_leaks_is_named(tmp_path):
    report = report_of(tmp_path, "ranks.py", "1")
    (culprit,) = serious(report)
    assert (culprit.name, culprit.process, culprit.unit) == ("KEPT", "child 2 of 2, rank 1", "step")
    assert culprit.fed_at[0].endswith("ranks.py:25")
    assert culprit.bytes_per_unit == pytest.approx(160_000, rel=0.1)


def test_two_ranks_that_keep_nothing_are_clean(tmp_path):
    report = report_of(tmp_path, "ranks.py", "9")
    assert report.verdict is RunVerdict.CLEAN
    assert [process.label for process in report.processes[1:3]] == [
        "child 1 of 2, rank 0",
        "child 2 of 2, rank 1",
    ]


@pytest.mark.parametrize(("keeps", "verdict"), [("1", "leak"), ("", "clean")])
def test_a_service_of_two_processes_is_judged_by_both(tmp_path, keeps, verdict):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", str(tmp_path / "run")]
    served = ["-m", "uvicorn", "--workers", "2", "--port", str(port), "--log-level", "error"]
    server = subprocess.Popen(
        [sys.executable, *command, *served, "served:app"],
        cwd=PROGRAMS,
        env={**os.environ, "KEEPS": keeps},
        start_new_session=True,
    )
    try:
        answered = ask_for(22.0, f"http://127.0.0.1:{port}/")
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
    assert answered > 200
    report = analyse(open_run(tmp_path / "run"))
    assert report.verdict.value == verdict
    assert [c.name for c in serious(report)] == (["served.ANSWERS"] if keeps else [])
    assert not [f for f in report.findings if f.kind == "workers_died"]
    assert len([process for process in report.processes if process.is_recorded]) == 3


@pytest.mark.parametrize(("keeps", "verdict"), [("1", "leak"), ("", "clean")])
def test_a_server_is_run_by_the_name_of_its_command(tmp_path, keeps, verdict):
    pytest.importorskip("gunicorn", reason="needs gunicorn: pip install gunicorn")
    command = Path(sys.executable).parent / "gunicorn"
    if not command.exists():
        pytest.skip("gunicorn isn't installed beside this Python")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    recorded = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", str(tmp_path / "run")]
    server = subprocess.Popen(
        [sys.executable, *recorded, "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", "wsgi"],
        cwd=PROGRAMS,
        env={**os.environ, "KEEPS": keeps, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    try:
        answered = ask_for(24.0, f"http://127.0.0.1:{port}/")
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
    assert answered > 100
    report = analyse(open_run(tmp_path / "run"))
    assert report.verdict.value == verdict
    culprits = serious(report)
    assert [c.name for c in culprits] == (["wsgi.ANSWERS"] if keeps else [])
    assert report.processes[0].supervises
    for culprit in culprits:
        assert culprit.fed_at[0].endswith("wsgi.py:11")
        assert "per request" in report.headline


@pytest.mark.parametrize("keeps", ["1", "0"])
@pytest.mark.parametrize("queue", ["celery", "dramatiq", "rq", "grpc"])
def test_what_tasks_and_calls_keep_has_a_rate_for_each(tmp_path, queue, keeps):
    pytest.importorskip(queue, reason=f"needs {queue}")
    if queue == "rq":
        pytest.importorskip("fakeredis", reason="needs fakeredis")
    report = report_of(tmp_path, "queued.py", queue, keeps)
    if keeps == "0":
        is_open = queue == "celery"  # its libraries keep some KiB in so short a time
        assert report.verdict is RunVerdict.CLEAN or (
            is_open and report.verdict is RunVerdict.INCONCLUSIVE
        )
        assert serious(report) == []
        return
    assert report.verdict is RunVerdict.LEAK
    (culprit,) = serious(report)
    assert culprit.name == "Encoder.results"
    assert culprit.fed_at[0].endswith("queued.py:22")
    assert f"per {'request' if queue == 'grpc' else 'task'}" in report.headline


def ask_for(seconds: float, address: str) -> int:
    """Ask a service for so long; return how often it answered."""
    answered, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            answered += len(answer.read()) > 0
        time.sleep(0.03)
    return answered


@pytest.mark.parametrize("kind", ["leak", "ok"])
def test_of_three_actors_of_ray_the_one_that_keeps_its_frames_is_named(tmp_path, kind):
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    report = report_of(tmp_path, "actors.py", kind)
    actors = [one for one in report.processes if one.runs == "Sampler (actor of Ray)"]
    assert len(actors) == 3
    if kind == "ok":
        assert report.verdict is not RunVerdict.LEAK
        return
    assert report.verdict is RunVerdict.LEAK
    (culprit,) = serious(report)
    assert culprit.name == "Sampler.frames"
    assert [one.label for one in actors if one.verdict == "leak"] == [culprit.process]
    assert culprit.fed_at[0].endswith("actors.py:19")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loaders_worker_of_a_child_is_recorded_as_any_other(tmp_path, method):
    report = report_of(tmp_path, "loaders.py", method, "2")
    (culprit,) = serious(report)
    assert (culprit.name, culprit.process, culprit.workers) == ("Samples.cache", "child 2 of 2", 1)
    assert "in child 2 of 2" in report.headline
    assert len(report.workers) == 2
