"""Tasks and threads that pile up in real programs, and such as come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.cli.report import conclude
from leakscope.model.report import Report, RunVerdict

ROOT = Path(__file__).parents[2]
SERVICE = """
import asyncio, random, sys


class Service:
    def __init__(self):
        self.beats = set()

    async def heartbeat(self, name):
        while True:
            await asyncio.sleep(3600)

    async def handle(self, name):
        beat = asyncio.create_task(self.heartbeat(name))
        self.beats.add(beat)
        if {ends}:
            await asyncio.sleep(random.uniform(0.1, 2))
            beat.cancel()
            self.beats.discard(beat)


async def main():
    service = Service()
    clients = set()
    for number in range(1500):
        client = asyncio.create_task(service.handle(number))
        clients.add(client)
        client.add_done_callback(clients.discard)
        await asyncio.sleep(0.015)


asyncio.run(main())
"""
THREADS = """
import threading, time


class Watcher:
    def __init__(self):
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        self.stop.wait()


for number in range(400):
    watcher = Watcher()
    time.sleep(0.05)
    if {ends}:
        watcher.stop.set()
        watcher.thread.join()
"""


def recorded(folder: Path, source: str) -> Report:
    (folder / "service.py").write_text(source)
    subprocess.run(
        [sys.executable, "-m", "leakscope", "run", "--no-report", "--out", "run", "service.py"],
        cwd=folder,
        check=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    return conclude(folder / "run")


@pytest.mark.slow
def test_tasks_that_never_end_are_reported_as_tasks(tmp_path: Path) -> None:
    report = recorded(tmp_path, SERVICE.replace("{ends}", "False"))
    lines = SERVICE.splitlines()
    starts = 1 + next(n for n, line in enumerate(lines) if "create_task(self.heartbeat" in line)
    waits = 1 + next(n for n, line in enumerate(lines) if "asyncio.sleep(3600)" in line)
    assert report.verdict is RunVerdict.LEAK
    assert "tasks of Service.heartbeat wait at await asyncio.sleep" in report.headline
    (culprit, *_) = report.culprits
    assert culprit.piled_up is not None
    assert culprit.piled_up.started_at == [f"service.py:{starts}"]
    assert culprit.piled_up.waits_at[0].endswith(f"(service.py:{waits})")
    assert culprit.piled_up.count == pytest.approx(1500, abs=200)
    assert not culprit.piled_up.is_lost


@pytest.mark.slow
def test_tasks_that_end_with_their_client_are_no_leak(tmp_path: Path) -> None:
    report = recorded(tmp_path, SERVICE.replace("{ends}", "True"))
    assert report.verdict is RunVerdict.CLEAN, report.headline
    assert not report.findings


@pytest.mark.slow
def test_threads_that_nothing_can_wake_are_reported_as_such(tmp_path: Path) -> None:
    report = recorded(tmp_path, THREADS.replace("{ends}", "False"))
    assert report.verdict is RunVerdict.LEAK
    (finding,) = (f for f in report.findings if f.kind == "threads")
    assert finding.title == "Threads of Watcher.watch pile up"
    assert finding.fed_at == ["service.py:8"]
    assert "nothing can wake or end them" in finding.text


@pytest.mark.slow
def test_threads_that_end_are_no_leak(tmp_path: Path) -> None:
    report = recorded(tmp_path, THREADS.replace("{ends}", "True"))
    assert report.verdict is RunVerdict.CLEAN, report.headline
