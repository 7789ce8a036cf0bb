"""Other threads go on after a census as if none had been: meanwhile they stand still."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from optional_torch import torch
from payloads import ENGINES

from leakscope.heap import CensusTaker, ownership, pausing, snapshot
from leakscope.heap.pausing import can_stand_still, go_on_keeping_lock, keeping_lock
from leakscope.model.census import CensusScope

pytestmark = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")

ROOT = Path(__file__).parents[2]

WORK = {
    "resizing an array that a dict holds": """
held = {"array": numpy.zeros(4000)}
def work():
    for size in range(4000, 7000):
        held["array"].resize(size)
""",
    "resizing an array that a function returned": """
def made():
    array = numpy.zeros(4000)
    return array
def work():
    for _ in range(500):
        own = made()
        own.resize(5000)
""",
    "making a tuple of a generator": """
def work():
    assert len(tuple([i] * 3 for i in range(3000))) == 3000
""",
    "joining bytes, extending lists, reading views": """
def work():
    table = {i: [i] for i in range(2000)}
    assert len(b"".join(bytes([i % 256]) * 3 for i in range(2000))) == 6000
    found = []
    found.extend([i] for i in range(3000))
    assert len(found) == 3000
    assert sum(key + len(value) for key, value in zip(table, table.values())) == 2_001_000
    assert len(list(zip(table, table.items()))) == 2000
""",
    "letting go of objects": """
freed_by = set()
class Own:
    def __init__(self):
        self.data = bytes(10_000)
    def __del__(self):
        freed_by.add(threading.get_ident())
def work():
    for _ in range(300):
        own = [Own() for _ in range(3)]
        del own
    assert freed_by <= {threading.get_ident()}
""",
}

HAMMER = """
import sys, threading, time
import numpy
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

{work}

failed, ended = [], threading.Event()

def run():
    try:
        while not ended.is_set():
            work()
    except BaseException as error:
        failed.append(error)

taker = CensusTaker(project_root="/", cutoff_bytes=4096)
threads = [threading.Thread(target=run) for _ in range({threads})]
for thread in threads:
    thread.start()
ends, taken = time.monotonic() + {seconds}, 0
while time.monotonic() < ends and not failed:
    taker.take(CensusScope.FULL if taken % 2 else CensusScope.FOCUSED)
    taken += 1
    time.sleep(0.002)
ended.set()
for thread in threads:
    thread.join()
assert not failed, failed
print(taken, sys.getswitchinterval())
"""


@pytest.mark.parametrize("name", WORK)
def test_what_other_threads_do_is_as_without_a_census(name: str) -> None:
    pytest.importorskip("numpy")
    program = HAMMER.format(work=WORK[name], threads=1, seconds=1.5)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    taken, interval = done.stdout.split()
    assert int(taken) > 3
    assert float(interval) == sys.getswitchinterval()


@contextmanager
def counting() -> Iterator[list[int]]:
    """Have another thread count; yield what it has counted to."""
    count, ended = [0], threading.Event()

    def run() -> None:
        while not ended.is_set():
            count[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


def _busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        go_on_keeping_lock()


def test_no_thread_goes_on_while_the_lock_is_kept() -> None:
    def look(count: list[int]) -> int:
        before = count[0]
        _busy(0.4)
        return count[0] - before

    with counting() as count:
        assert keeping_lock(look, count) == 0
        before = count[0]
        _busy(0.1)
        assert count[0] > before, "it goes on as soon as the lock is not kept any more"
    with counting() as count:
        assert look(count) > 0, "without it takes its turn"


def test_a_census_lets_no_thread_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = CensusTaker(project_root=str(ROOT / "tests"), cutoff_bytes=4096)
    tensors = [] if torch is None else tensors_of_many_kinds()
    kept: list[bool] = []
    end = pausing._native.keep_lock_no_more
    monkeypatch.setattr(pausing._native, "keep_lock_no_more", lambda: kept.append(end()))
    with counting():
        for scope in (CensusScope.FOCUSED, CensusScope.FULL, CensusScope.FULL):
            taker.take(scope)
        taker.take_checked()
        taker.waiting()
        snapshot(project_root=str(ROOT / "tests"))
    assert kept == [True] * len(kept)
    assert len(kept) >= 6
    del tensors


def tensors_of_many_kinds() -> list[object]:
    layers = torch.nn.Sequential(*(torch.nn.Linear(20, 20) for _ in range(3)))
    loss = layers(torch.ones(4, 20)).sum()
    loss.backward()
    view, shared = torch.zeros(1000)[::2], torch.zeros(1000).share_memory_()
    return [layers, layers(view[:20]), loss, view, shared, torch.eye(50).to_sparse()]


def test_the_switch_interval_is_as_before_whatever_happens() -> None:
    before = sys.getswitchinterval()

    def fail() -> None:
        assert sys.getswitchinterval() > before
        raise LookupError

    with pytest.raises(LookupError):
        keeping_lock(fail)
    assert sys.getswitchinterval() == before


def test_a_child_forked_meanwhile_switches_as_before() -> None:
    def in_child() -> int:
        child = os.fork()
        if child == 0:
            os._exit(0 if sys.getswitchinterval() == usual else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    usual = sys.getswitchinterval()
    assert keeping_lock(in_child) == 0


def test_another_interval_that_was_set_meanwhile_stays() -> None:
    usual = sys.getswitchinterval()
    try:
        keeping_lock(sys.setswitchinterval, 0.02)
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(usual)


def _in_a_thread_of_ours() -> bool:
    import _thread

    found: list[bool] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def look() -> None:
        found.append(can_stand_still())
        ended.release()

    _thread.start_new_thread(look, ())
    ended.acquire()
    return found[0]


def test_only_the_native_walker_lets_a_thread_of_ours_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _in_a_thread_of_ours()
    monkeypatch.setattr(pausing, "_native", None)
    assert can_stand_still()
    assert not _in_a_thread_of_ours()


def test_files_are_judged_as_without_the_native_walker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "elsewhere.py").write_text("")
    (tmp_path / "project" / "own.py").write_text("")
    (tmp_path / "project" / "linked.py").symlink_to(tmp_path / "elsewhere.py")
    (tmp_path / "folder").symlink_to(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    files = [
        *(tmp_path / "project" / name for name in ("own.py", "linked.py", "absent.py")),
        *(tmp_path / "folder" / name for name in ("own.py", "absent.py", "deeper/absent.py")),
        "project/own.py",
        "project/../elsewhere.py",
        "nul\0l.py",
        "",
    ]

    def judged() -> list[bool]:
        judge = ownership.Ownership(str(tmp_path / "project"))
        return [judge.owns_file(str(file)) for file in files]

    native = judged()
    assert native[:6] == [True, False, True, True, True, True]
    monkeypatch.setattr(ownership, "_native", None)
    assert judged() == native


def test_nothing_is_read_of_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert pausing._native.read_file(str(tmp_path / "pipe")) is None
    assert pausing._native.read_file(str(tmp_path)) is None
    assert pausing._native.read_file(str(tmp_path / "absent")) is None
    (tmp_path / "file").write_bytes(b"content")
    assert pausing._native.read_file(str(tmp_path / "file")) == b"content"
