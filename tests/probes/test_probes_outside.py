"""Another process and its children, read from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from leakscope.model import gauge
from leakscope.probes.process import OutsideProcess

MIB = 1 << 20
HOLDS = "held = b'x' * ({size} << 20); print('ready', flush=True); input()"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"


@pytest.fixture
def started():
    processes = []

    def start(code: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def test_memory_of_another_process_is_read(started):
    gauges = OutsideProcess(started(HOLDS.format(size=64)).pid, time.time()).gauges()
    assert gauges[gauge.RSS] > 64 * MIB
    assert gauges[gauge.PSS] > 64 * MIB
    assert gauges[gauge.PRIVATE] > 64 * MIB
    assert gauges[gauge.CHILDREN] == 0


def test_children_are_added_up(started):
    parent = started(PARENT.format(child=HOLDS.format(size=64)))
    process = OutsideProcess(parent.pid, time.time())
    gauges = process.gauges()
    assert gauges[gauge.CHILDREN] == 1
    assert gauges[gauge.CHILDREN_PSS] > 64 * MIB > gauges[gauge.RSS]
    assert len(process.pids()) == 2


def test_a_process_that_nobody_waited_for_is_gone(started):
    process = started("print('ready', flush=True)")
    outside = OutsideProcess(process.pid, time.time())
    deadline = time.monotonic() + 20
    while outside.is_alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not outside.is_alive
    assert process.poll() is not None


def test_there_is_nothing_to_read_of_what_is_gone(started):
    process = started(HOLDS.format(size=1))
    outside = OutsideProcess(process.pid, time.time())
    process.kill()
    process.wait()
    assert outside.gauges() == {}
    assert not outside.is_alive


def test_a_number_that_no_process_has_is_refused():
    with pytest.raises(psutil.NoSuchProcess):
        OutsideProcess(4194303, time.time())


def test_the_limit_is_no_more_than_the_machine_has():
    limit = OutsideProcess(os.getpid(), time.time()).limit()
    assert limit is not None
    assert limit <= psutil.virtual_memory().total
