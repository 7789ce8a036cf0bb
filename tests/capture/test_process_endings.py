"""Child processes that end by themselves are noticed, whoever started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing import popen_fork
from multiprocessing.process import BaseProcess

import pytest

import leakscope
from leakscope.model.record import ProcessEndRecord
from leakscope.recording import open_run

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_STRICT", "0")
    return tmp_path / "run"


def profiled(out, **options):
    return leakscope.profile(out, report=False, quiet=True, **options)


def ends(out) -> list[ProcessEndRecord]:
    return open_run(out).main.process_ends


def run_to_the_end(target, *args) -> BaseProcess:
    process = FORK.Process(target=target, args=args, name="Decoder-7")
    process.start()
    process.join()
    return process


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_exit_code_and_a_signal_are_reported_with_the_name_of_the_process(out):
    with profiled(out):
        left, dead = run_to_the_end(os._exit, 3), run_to_the_end(killed)
    assert [(end.pid, end.exit_code) for end in ends(out)] == [(left.pid, 3), (dead.pid, -9)]
    assert {end.name for end in ends(out)} == {"Decoder"}
    assert {end.loader for end in ends(out)} == {0}


def test_processes_that_are_done_or_signalled_to_end_are_none(out):
    with profiled(out):
        run_to_the_end(os.getpid)
        for end in (BaseProcess.terminate, BaseProcess.kill):
            process = FORK.Process(target=time.sleep, args=(60,))
            process.start()
            end(process)
            process.join()
        with FORK.Pool(2) as pool:
            assert pool.map(abs, [-1, 1]) == [1, 1]
    assert ends(out) == []


def test_what_multiprocessing_says_of_a_process_stays_the_same(out):
    plain = run_to_the_end(os._exit, 3).exitcode
    with profiled(out):
        assert run_to_the_end(os._exit, 3).exitcode == plain == 3


def test_multiprocessing_is_left_as_it_was_found(out):
    before = dict(vars(popen_fork.Popen))
    with profiled(out):
        assert vars(popen_fork.Popen)["poll"] is not before["poll"]
    assert dict(vars(popen_fork.Popen)) == before


def test_a_child_tells_nothing_of_its_own_children(out):
    def in_child():
        os._exit(run_to_the_end(os._exit, 5).exitcode - 5)

    with profiled(out):
        assert run_to_the_end(in_child).exitcode == 0
    assert ends(out) == []


def test_without_workers_recorded_processes_are_heard_all_the_same(out):
    with leakscope.profile(out, report=False, quiet=True, workers="off"):
        run_to_the_end(os._exit, 3)
    assert [end.exit_code for end in ends(out)] == [3]


def test_a_fault_of_ours_costs_no_exit_code(out, monkeypatch):
    def broken(_):
        raise RuntimeError("ours")

    monkeypatch.setattr("leakscope.capture.process_endings._name_of", broken)
    with profiled(out):
        assert run_to_the_end(os._exit, 3).exitcode == 3
    assert ends(out) == []


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def notes(out) -> list[str]:
    return [note.message for note in open_run(out).main.notes if note.slug == "children"]


def test_children_that_did_the_work_unrecorded_are_reported_with_what_to_do(out):
    with profiled(out, children="off"):
        for _ in range(2):
            run_to_the_end(work, 0.8)
    (note,) = notes(out)
    assert note.startswith("2 child processes (Decoder) did most of the work: 2 s")
    assert "leakscope.profile()" in note


def test_children_that_recorded_themselves_are_no_work_unrecorded(out):
    with profiled(out):
        for _ in range(2):
            run_to_the_end(work, 0.8)
    assert notes(out) == []
    assert len([r for r in open_run(out).recordings if r.header.child]) == 2


def test_children_that_did_less_than_the_process_itself_are_not_reported(out):
    with profiled(out):
        run_to_the_end(work, 1.1)
        work(1.3)
    assert notes(out) == []


def test_children_that_did_little_are_not_reported(out):
    with profiled(out):
        run_to_the_end(work, 0.1)
    assert notes(out) == []
