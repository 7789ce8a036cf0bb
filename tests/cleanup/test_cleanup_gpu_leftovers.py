"""What is left over is distinguished from what is wanted, and nothing else is ever ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from leakscope.cleanup import survey
from leakscope.cleanup.survey import (
    GpuProcess,
    ProcessFacts,
    ProcessStanding,
    end_leftover,
    judge,
    look_at,
    own_gpu_holders,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

START_AND_DIE = """
import multiprocessing, os, sys, time
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(120,))
    worker.start()
    print(worker.pid, flush=True)
    time.sleep(120)
"""

LEFTOVER = ProcessFacts(
    pid=4242,
    user="me",
    is_own=True,
    is_asking=False,
    command="python -u train.py",
    is_python=True,
    started=1.0,
    status="sleeping",
    parent=1,
    parent_name="systemd",
    is_adopted=True,
    is_service=False,
    ignores_hangup=False,
    launcher="torchrun",
    holds_gpu=True,
)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands in for a GPU's device file."""
    path = tmp_path / "nvidia0"
    path.touch()
    monkeypatch.setattr(survey, "_DEVICE_FILE", re.compile(re.escape(str(path)) + "$"))
    return path


def waited_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def orphan(device: Path) -> Iterator[psutil.Process]:
    """A worker of multiprocessing whose parent was killed; it has the device file open."""
    with device.open("w") as file:
        parent = subprocess.Popen(
            [sys.executable, "-c", START_AND_DIE], stdout=subprocess.PIPE, stderr=file, text=True
        )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    waited_for(lambda: worker.ppid() != parent.pid and "spawn_main" in str(worker.cmdline()))
    yield worker
    if worker.is_running():
        worker.kill()


@pytest.fixture
def child(device: Path) -> Iterator[subprocess.Popen[bytes]]:
    with device.open("w") as file:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, stderr=file)
    yield process
    process.kill()
    process.communicate()


def facts_of(pid: int) -> ProcessFacts:
    facts = look_at(pid)
    assert facts is not None
    return facts


def listed(facts: ProcessFacts) -> GpuProcess:
    return GpuProcess(facts.pid, None, facts, judge(facts))


def test_a_worker_whose_launcher_was_killed_is_left_over(orphan: psutil.Process) -> None:
    facts = facts_of(orphan.pid)
    assert (facts.launcher, facts.is_adopted, facts.holds_gpu) == ("multiprocessing", True, True)
    judgement = judge(facts)
    assert judgement.standing is ProcessStanding.LEFTOVER
    assert judgement.remedy == f"kill {orphan.pid}"
    assert orphan.pid in [holder.pid for holder in own_gpu_holders()]


def test_a_leftover_ends_on_request(orphan: psutil.Process) -> None:
    assert end_leftover(listed(facts_of(orphan.pid))) == f"{orphan.pid} has ended."
    assert not orphan.is_running() or orphan.status() == "zombie"


def test_a_process_that_took_the_number_is_not_ended(orphan: psutil.Process) -> None:
    other = replace(facts_of(orphan.pid), started=1.0)
    assert end_leftover(listed(other)) == f"{orphan.pid} has ended already."
    assert orphan.status() != "zombie"


def test_what_is_not_left_over_any_more_is_not_ended(
    orphan: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = listed(facts_of(orphan.pid))
    monkeypatch.setattr(survey, "_DEVICE_FILE", re.compile("nothing"))
    assert "left alone" in end_leftover(process)
    assert orphan.status() != "zombie"


def test_a_process_with_a_parent_runs(child: subprocess.Popen[bytes]) -> None:
    judgement = judge(facts_of(child.pid))
    assert judgement.standing is ProcessStanding.RUNNING
    assert str(os.getpid()) in judgement.reason
    assert end_leftover(listed(facts_of(child.pid))).startswith(f"{child.pid} was left alone")
    assert child.poll() is None


def test_a_stopped_process_is_reported_with_what_wakes_it(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    waited_for(lambda: psutil.Process(child.pid).status() == "stopped")
    judgement = judge(facts_of(child.pid))
    assert judgement.standing is ProcessStanding.STOPPED
    assert f"kill -CONT {child.pid}" in judgement.remedy


def test_a_process_that_has_ended_can_only_be_reaped() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    waited_for(lambda: psutil.Process(process.pid).status() == "zombie")
    judgement = judge(facts_of(process.pid))
    assert judgement.standing is ProcessStanding.ENDED
    assert "no signal helps" in judgement.reason
    process.wait()


def test_nohup_is_recognised(device: Path) -> None:
    process = subprocess.Popen(["nohup", sys.executable, "-c", "input()"], stdin=-1, stderr=-3)
    waited_for(lambda: facts_of(process.pid).is_python)
    assert facts_of(process.pid).ignores_hangup
    process.kill()
    process.communicate()
    assert not facts_of(os.getpid()).ignores_hangup or _is_ignored_here()


def _is_ignored_here() -> bool:
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_the_one_who_asks_is_never_left_over() -> None:
    assert judge(facts_of(os.getpid())).standing is ProcessStanding.ASKING
    assert judge(facts_of(os.getppid())).standing is ProcessStanding.ASKING
    assert judge(replace(LEFTOVER, is_asking=True)).standing is ProcessStanding.ASKING


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({}, ProcessStanding.LEFTOVER),
        ({"is_own": False}, ProcessStanding.OTHERS),
        ({"is_adopted": False}, ProcessStanding.RUNNING),
        ({"is_service": True}, ProcessStanding.RUNNING),
        ({"launcher": None}, ProcessStanding.DETACHED),
        ({"launcher": None, "ignores_hangup": True}, ProcessStanding.DETACHED),
        ({"is_python": False}, ProcessStanding.DETACHED),
        ({"holds_gpu": None}, ProcessStanding.DETACHED),
        ({"holds_gpu": False}, ProcessStanding.UNSEEN),
        ({"status": "zombie"}, ProcessStanding.ENDED),
        ({"status": "stopped"}, ProcessStanding.STOPPED),
    ],
)
def test_every_doubt_keeps_a_process_from_being_left_over(
    change: dict[str, object], standing: ProcessStanding
) -> None:
    assert judge(replace(LEFTOVER, **change)).standing is standing  # type: ignore[arg-type]


def test_a_number_that_nobody_has_is_unseen() -> None:
    assert look_at(2**22 + 1) is None
    assert judge(None).standing is ProcessStanding.UNSEEN


@pytest.mark.parametrize(
    ("groups", "is_service"),
    [
        ("0::/system.slice/training.service\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n", False),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", False),
        ("0::/\n", False),
        ("", False),
    ],
)
def test_services_are_distinguished_from_sessions_by_their_control_group(
    groups: str, is_service: bool
) -> None:
    assert survey._is_service(groups) is is_service
