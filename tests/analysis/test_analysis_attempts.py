"""Attempts of a launcher that restarts all ranks: distinguished, one of them judged."""

from __future__ import annotations

import msgspec
from synthetic_runs import KIB, MIB, Program

from leakscope.analysis import analyse, find_attempts
from leakscope.model.record import EndRecord, HeaderRecord
from leakscope.model.report import RunVerdict
from leakscope.model.run import Recording, Run


def recorded(program: Program, rank: int, attempt: int, started: float, size: int = 2) -> Recording:
    recording = program.build().main
    recording.header = HeaderRecord(
        role="rank",
        rank=rank,
        world_size=size,
        attempt=attempt,
        pid=100 + 10 * attempt + rank,
        host="h",
        started=started,
    )
    recording.end = EndRecord(status="completed")
    return recording


def run_of(*recordings: Recording) -> Run:
    run = Program(epochs=1).build()
    run.recordings = [*recordings]
    return run


def healthy(epochs: int, base: int = 300) -> Program:
    return Program(epochs=epochs, baseline=base * MIB)


def restarted(*programs: Program) -> Run:
    return run_of(
        *(
            recorded(program, rank, attempt, 1000.0 * attempt)
            for attempt, program in enumerate(programs)
            for rank in (0, 1)
        )
    )


def test_the_attempt_that_got_furthest_is_judged_and_the_others_are_reported():
    leaking = Program(epochs=8).leak("Trainer.losses", 200 * KIB)
    run = restarted(healthy(2), leaking, healthy(1))
    for recording in run.recordings[:2]:
        recording.end = None
    report = analyse(run)
    assert report.verdict is RunVerdict.LEAK
    assert [attempt.is_judged for attempt in report.attempts] == [False, True, False]
    assert [attempt.steps for attempt in report.attempts] == [80, 320, 40]
    assert [attempt.began_s for attempt in report.attempts] == [0, 1000, 2000]
    assert "killed" in report.attempts[0].ended
    assert report.attempts[1].ended == "completed"
    assert "started the training 3 times" in report.notes[0]
    assert [row.rank for row in report.ranks] == [0, 1]
    assert report.work.processes == 2


def test_what_an_attempt_gave_back_by_ending_is_no_fall_and_its_start_no_growth():
    run = restarted(healthy(6, base=900), healthy(6, base=200))
    report = analyse(run)
    assert report.verdict is RunVerdict.CLEAN
    assert report.odd_rank is None
    assert all((row.first_bytes or 0) < 500 * MIB for row in report.ranks)


def test_of_equal_attempts_the_last_is_judged():
    assert find_attempts(restarted(healthy(3), healthy(3))).judged == 1


def test_one_attempt_is_not_reported():
    report = analyse(restarted(healthy(3)))
    assert report.attempts == []
    assert not any("attempt" in note for note in report.notes)


def test_ranks_that_appear_again_without_a_counted_restart_are_a_new_attempt():
    first = [recorded(healthy(2), rank, 0, 0.0) for rank in (0, 1)]
    again = [recorded(healthy(4), rank, 0, 500.0) for rank in (1, 0)]
    attempts = find_attempts(run_of(*first, *again))
    assert [len(run.recordings) for run in attempts.runs] == [2, 2]
    assert attempts.latest.main.header.started == 500.0


def test_another_number_of_ranks_is_another_attempt_though_its_new_rank_came_first():
    first = [recorded(healthy(2), rank, 0, 0.0) for rank in (0, 1)]
    grown = [recorded(healthy(4), rank, 0, 500.0 - rank, size=3) for rank in (0, 1, 2)]
    attempts = find_attempts(run_of(*first, *grown))
    assert [len(run.recordings) for run in attempts.runs] == [2, 3]


def test_a_worker_belongs_to_the_attempt_of_its_parent():
    first, again = (recorded(healthy(2), 0, n, 100.0 * n) for n in (0, 1))
    worker = recorded(healthy(1), 0, 0, 150.0)
    worker.header = msgspec.structs.replace(worker.header, worker=0, parent=first.header.pid)
    attempts = find_attempts(run_of(first, again, worker))
    assert attempts.runs[0].recordings == [first, worker]
    assert attempts.runs[1].recordings == [again]


def test_what_the_supervisor_saw_is_about_the_attempt_that_it_saw():
    run = restarted(healthy(6), healthy(2))
    for recording in run.recordings:
        recording.end = None
    run.outcome = {"exit_code": 137, "signal": 9, "oom_killed": 1, "attempt": 1}
    report = analyse(run)
    assert report.attempts[0].is_judged
    assert "out-of-memory" not in report.run.ended
    assert "out-of-memory" in report.attempts[1].ended


def test_the_rank_that_failed_first_is_the_one_with_a_reason_and_not_who_was_signalled_to_end():
    run = restarted(healthy(6), healthy(0))
    first, second = run.recordings[2:]
    first.end = None
    second.end = EndRecord(status="exception", exception="RuntimeError: timed out", time_s=7.0)
    run.outcome = {"exit_code": 143, "signal": 15, "attempt": 1}
    assert analyse(run).attempts[1].ended == "rank 1 first: exception: RuntimeError: timed out"


def test_without_a_supervisor_the_rank_that_vanished_before_the_others_is_the_first():
    run = restarted(healthy(6), healthy(2))
    first, second = run.recordings[2:]
    first.end = None
    last = first.measurements[-1].boundary.time_s
    second.end = EndRecord(status="exception", exception="RuntimeError: reset", time_s=last + 1)
    assert analyse(run).attempts[1].ended.startswith("rank 0 first: killed")
