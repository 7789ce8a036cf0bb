"""Ranks that train together: one report for all of them."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from synthetic_runs import KIB, MIB, Program

from leakscope.analysis.processes.ranks import RankSeries, find_odd_rank
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.record import EndRecord, HeaderRecord, OutOfMemoryRecord
from leakscope.model.report import Report, RunVerdict
from leakscope.model.run import Run
from leakscope.report.terminal import render_text

LEAK = 200 * KIB


def together(*programs: Program) -> Run:
    """A run of several ranks, each with a program of its own."""
    first, *others = (program.build() for program in programs)
    recordings = [first.main, *(run.main for run in others)]
    for number, recording in enumerate(recordings):
        recording.header = HeaderRecord(
            role="rank", rank=number, world_size=len(programs), pid=100 + number
        )
        recording.end = EndRecord(status="completed")
    first.recordings = recordings
    return first


def healthy(seed: int = 0) -> Program:
    return Program(epochs=8, seed=seed)


def leaking(size: float = LEAK, seed: int = 0) -> Program:
    return healthy(seed).leak("Trainer.losses", size)


def report_of(*programs: Program) -> Report:
    return analyse(together(*programs))


def test_what_grows_alike_in_all_ranks_is_one_culprit():
    report = report_of(*(leaking(seed=n) for n in range(4)))
    (culprit,) = report.culprits
    assert list(culprit.rates_by_rank) == ["0", "1", "2", "3"]
    assert "alike in all 4 ranks" in culprit.sentence
    assert report.odd_rank is None


def test_what_grows_in_one_rank_alone_is_reported_with_the_rank():
    report = report_of(healthy(), healthy(1), leaking(seed=2), healthy(3))
    (culprit,) = report.culprits
    assert report.verdict is RunVerdict.LEAK
    assert list(culprit.rates_by_rank) == ["2"]
    assert culprit.rates_by_rank["2"] == pytest.approx(LEAK, rel=0.05)
    assert "in rank 2 of 4 only" in culprit.sentence


def parted(*here: int, world_size: int = 4, **outcome: int) -> Report:
    """The report of a directory that has some of the ranks."""
    run = together(*(healthy(seed) for seed in range(world_size)))
    run.recordings = [run.recordings[rank] for rank in here]
    run.outcome = {**outcome}
    return analyse(run)


@pytest.mark.parametrize(("here", "left"), [((0, 1), "rank 2 and rank 3"), ((1, 2, 3), "rank 0")])
def test_ranks_that_another_machine_recorded_are_reported_as_missing(here, left):
    (problem,) = parted(*here).errors
    assert problem.where == "ranks"
    assert problem.message.startswith(f"of 4 nothing is here of {left}: leakscope merge puts")


def test_one_rank_of_those_that_a_supervisor_was_to_record_misses_the_others():
    assert parted(0, world_size=2, exit_code=0).errors
    assert not parted(0, world_size=2).errors


def test_where_all_ranks_are_none_is_missing():
    assert not parted(0, 1, 2, 3).errors


def test_ranks_at_different_rates_are_reported_with_the_fastest():
    report = report_of(leaking(), leaking(3 * LEAK))
    (culprit,) = report.culprits
    assert "in all 2 ranks, by 200 KiB to 600 KiB per step" in culprit.sentence
    assert "most in rank 1" in culprit.sentence


def test_the_headline_says_in_which_rank_the_worst_culprit_grows_and_that_one_comes_first():
    second = leaking(seed=1).leak("Trainer.kept", 6 * LEAK)
    report = report_of(leaking(), second)
    assert [c.name for c in report.culprits] == ["Trainer.kept", "Trainer.losses"]
    assert [c.in_ranks for c in report.culprits] == ["rank 1", ""]
    assert sum(c.share for c in report.culprits) == pytest.approx(1.0, abs=0.05)
    assert report.headline.startswith(
        "Memory leaks: Trainer.kept grows by 1.2 MiB per step in rank 1"
    )


def test_ledger_and_timeline_are_those_of_the_rank_in_which_the_worst_culprit_grows():
    worst = leaking(seed=1).leak("Trainer.kept", 6 * LEAK)
    alone, report = report_of(worst, leaking()), report_of(leaking(), worst)
    assert (alone.rank, report.rank) == (0, 1)
    assert report.ledgers[0].total_bytes == alone.ledgers[0].total_bytes
    assert report.timeline is not None
    assert alone.timeline is not None
    assert report.timeline.lines[0].points == alone.timeline.lines[0].points
    assert report_of(leaking(), leaking(seed=1)).rank == 0


def test_a_culprit_that_ranks_share_is_reported_as_of_the_rank_where_it_runs_out_of_room_first():
    alone = report_of(leaking(3 * LEAK, seed=1), leaking(3 * LEAK, seed=2)).culprits[0]
    (reported,) = report_of(leaking(), leaking(3 * LEAK, seed=1)).culprits
    assert reported.in_ranks == "rank 1"
    assert reported.bytes_per_unit == pytest.approx(3 * LEAK, rel=0.02)
    assert reported.forecast is not None
    assert alone.forecast is not None
    assert reported.forecast.units_left == pytest.approx(alone.forecast.units_left, rel=0.1)


@pytest.mark.parametrize(
    ("leaky", "text"), [((1, 3), "ranks 1 and 3"), ((0, 1, 2, 4), "4 of 5 ranks")]
)
def test_a_culprit_of_some_ranks_says_of_which(leaky: tuple[int, ...], text: str):
    programs = [leaking(seed=n) if n in leaky else healthy(n) for n in range(5)]
    assert report_of(*programs).culprits[0].in_ranks == text


def test_the_rank_that_leaves_the_others_course_is_named_with_the_step():
    late = healthy(2).leak("Trainer.losses", 4 * MIB, start=160)
    odd = report_of(healthy(), healthy(1), late, healthy(3)).odd_rank
    assert odd is not None
    assert odd.rank == 2
    assert odd.step == pytest.approx(160, abs=4)
    assert odd.bytes == pytest.approx(160 * 4 * MIB, rel=0.1)
    assert "Rank 2 is the first that differs" in odd.sentence


def scattered(
    *, begins: float = 0, gains: float = 0, offset: float = 0, seed: int = 0
) -> RankSeries:
    """Twelve thousand steps with readings that scatter by MiB, and a leak of so much in all."""
    steps = np.linspace(1, 12_000, 200)
    noise = np.random.default_rng(seed).normal(0, 2 * MIB, len(steps))
    leak = gains * np.maximum(0, steps - begins) / (12_000 - begins)
    return RankSeries(steps, 500 * MIB + noise + leak + offset * (steps > 100))


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("gains", [100 * MIB, 900 * MIB, 20_000 * MIB])
@pytest.mark.parametrize("offset", [0, 15 * MIB])
@pytest.mark.parametrize("begins", [1, 3_000, 9_000])
def test_a_rank_is_reported_to_differ_from_the_step_at_which_its_leak_begins(
    begins: int, offset: int, gains: int, count: int
) -> None:
    courses = {rank: scattered(seed=rank) for rank in range(count)}
    courses[1] = scattered(begins=begins, gains=gains, offset=offset, seed=1)
    odd = find_odd_rank(courses)
    assert odd is not None
    assert odd.rank == 1
    assert odd.step == pytest.approx(begins, abs=0.03 * 12_000)
    assert f"from about step {odd.step:,} on" in odd.sentence


def test_of_two_ranks_the_one_with_more_is_the_odd_one():
    odd = report_of(healthy(), healthy(1).leak("Trainer.losses", 4 * MIB)).odd_rank
    assert odd is not None
    assert odd.rank == 1
    assert odd.bytes > 0


def test_ranks_that_keep_together_have_no_odd_one():
    assert report_of(*(healthy(n) for n in range(4))).odd_rank is None


def test_a_passing_difference_is_none():
    blip = healthy(1).swell(lambda s: 200 * MIB * (100 < s.step < 140))
    assert report_of(healthy(), blip, healthy(2)).odd_rank is None


def test_each_rank_has_a_row():
    report = report_of(healthy(), leaking(seed=1))
    first, second = report.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert first.grows == []
    assert second.grows == ["Trainer.losses"]
    assert second.steps == 8 * 40
    assert second.last_bytes is not None
    assert second.first_bytes is not None
    assert second.last_bytes - second.first_bytes > 300 * LEAK
    assert second.ended == "completed"


def test_a_rank_that_vanished_is_reported():
    run = together(healthy(), healthy(1))
    run.recordings[1].end = None
    run.outcome = {"exit_code": 0}
    rows = analyse(run).ranks
    assert rows[0].ended == "completed"
    assert "killed" in rows[1].ended


def killed_for_memory(*ranks: int) -> Run:
    """A run of four ranks, of which supervisors saw some killed for memory."""
    run = together(*(healthy(n) for n in range(4)))
    for rank in ranks:
        run.recordings[rank].end = None
        run.outcomes[0, rank] = {"exit_code": 137, "signal": 9, "oom_killed": 1, "rank": rank}
    return run


def test_another_rank_that_the_kernel_killed_for_memory_is_the_one_that_is_reported():
    report = analyse(killed_for_memory(2))
    assert [row.ended for row in report.ranks] == [
        "completed", "completed", "killed by the kernel's out-of-memory killer", "completed",
    ]  # fmt: skip
    assert report.run.ended == (
        "rank 2 was killed by the kernel's out-of-memory killer; rank 0: completed"
    )
    assert (report.rank, report.notes) == (2, [])
    assert report.out_of_memory is not None
    assert report.out_of_memory.cause == "killed"
    text = " ".join(render_text(report).split())
    assert "Rank 2 was killed by the kernel's out-of-memory killer after 320 steps" in text


def test_a_killed_rank_that_is_reported_for_want_of_the_first_one_is_reported_once():
    run = killed_for_memory(2)
    for rank in (0, 1, 3):
        run.recordings[rank].measurements.clear()
    assert analyse(run).run.ended == "killed by the kernel's out-of-memory killer"


def test_of_several_ranks_that_the_kernel_killed_for_memory_the_rest_is_noted():
    report = analyse(killed_for_memory(1, 2, 3))
    assert report.rank == 1
    assert report.run.ended.startswith("rank 1, rank 2 and rank 3 were killed by the kernel's")
    assert report.notes == [
        "Rank 2 and rank 3 were killed by the kernel's out-of-memory killer: memory ran out there."
    ]


def test_of_ranks_whose_memory_ran_out_the_one_that_leaks_is_reported():
    run = together(healthy(), healthy(1), leaking(), leaking(seed=3))
    for rank in (1, 2):
        run.recordings[rank].end = None
        run.outcomes[0, rank] = {"exit_code": 137, "signal": 9, "oom_killed": 1, "rank": rank}
    run.main.end, run.outcome = None, {"exit_code": 137, "signal": 9, "oom_killed": 1}
    report = analyse(run)
    assert report.rank == 2
    assert report.headline.startswith(
        "Rank 2 was killed by the kernel's out-of-memory killer after "
    )
    assert "Trainer.losses" in report.headline


def test_a_rank_whose_exception_was_for_want_of_memory_is_reported():
    run = together(*(healthy(n) for n in range(3)))
    run.recordings[1].end = EndRecord(status="exception", exception="MemoryError")
    run.recordings[1].shortages = [
        OutOfMemoryRecord(
            boundary=9, time_s=1.0, device="host", seen="exception", error="MemoryError", number=1
        )
    ]
    report = analyse(run)
    assert report.rank == 1
    assert report.out_of_memory is not None
    assert report.out_of_memory.cause == "exception"


def killed_by(numbers: dict[int, int]) -> Run:
    """A run of four ranks, some ended by signals, after which the first one raised."""
    run = together(*(healthy(n) for n in range(4)))
    run.main.end = EndRecord(status="exception", exception="RuntimeError: closed by peer")
    for rank, number in numbers.items():
        run.recordings[rank].end = None
        run.outcomes[0, rank] = {"exit_code": 128 + number, "signal": number, "rank": rank}
    return run


def test_a_rank_that_was_killed_is_reported_before_the_error_of_the_first_one():
    report = analyse(killed_by({1: signal.SIGKILL, 2: signal.SIGTERM}))
    assert report.run.ended == (
        "rank 1 was killed (SIGKILL); rank 0: exception: RuntimeError: closed by peer"
    )
    assert report.notes == [
        "Rank 1 was killed (SIGKILL): what other ranks ended by may follow from that."
    ]
    text = " ".join(render_text(report).split())
    assert "Rank 1 was killed (SIGKILL); then rank 0 ended by RuntimeError: closed by peer." in text
    assert report.ranks[1].ended == "killed by SIGKILL"


def test_a_first_rank_that_the_launcher_ended_is_reported_after_the_one_that_was_killed():
    run = killed_by({1: signal.SIGKILL})
    run.main.end, run.outcome = None, {"exit_code": 143, "signal": signal.SIGTERM}
    text = " ".join(render_text(analyse(run)).split())
    assert "Rank 1 was killed (SIGKILL); then rank 0 was killed by signal 15." in text


def test_several_ranks_that_were_killed_are_reported_together():
    report = analyse(killed_by({1: signal.SIGSEGV, 3: signal.SIGKILL}))
    assert report.run.ended.startswith("rank 1 and rank 3 were killed (SIGKILL and SIGSEGV); ")
    assert "rank 2" not in report.run.ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, 4711])
def test_a_rank_that_was_signalled_to_end_is_no_cause(number: int):
    report = analyse(killed_by({1: number}))
    assert report.run.ended == "exception: RuntimeError: closed by peer"
    assert report.notes == []


def test_a_killed_rank_that_had_measured_nothing_is_reported_all_the_same():
    run = killed_by({1: signal.SIGKILL})
    del run.recordings[1:]
    assert analyse(run).notes == [
        "Rank 1 was killed (SIGKILL): what other ranks ended by may follow from that."
    ]


def test_what_a_supervisor_saw_of_a_rank_is_about_its_attempt():
    run = killed_for_memory(2)
    run.outcomes[1, 2] = run.outcomes.pop((0, 2))
    report = analyse(run)
    assert report.ranks[2].ended.startswith("killed (no closing record)")
    assert report.notes == []


def test_one_process_has_no_ranks():
    assert analyse(leaking().build()).ranks == []


def test_a_rank_that_recorded_nothing_is_passed_over():
    run = together(leaking(), healthy())
    run.recordings[1].measurements.clear()
    assert analyse(run).ranks == []


def test_of_many_ranks_a_sentence_names_few():
    growing = [leaking(seed=n) for n in range(9)]
    (culprit,) = report_of(*growing, healthy(), healthy(1)).culprits
    assert "in 9 of 11 ranks, not in 9 and 10" in culprit.sentence
    (culprit,) = report_of(*growing, *(healthy(n) for n in range(9))).culprits
    assert "in 9 of 18 ranks, the first of them rank 0" in culprit.sentence


def test_of_many_ranks_that_are_alike_the_first_one_is_reported():
    report = report_of(*(leaking(seed=n) for n in range(10)))
    assert (report.rank, report.notes) == (0, [])


def test_of_many_ranks_the_one_that_differs_is_reported_though_nothing_in_it_has_a_name():
    programs = [healthy(n) for n in range(10)]
    programs[6] = healthy(6).swell(lambda s: s.step * MIB)
    report = report_of(*programs)
    assert report.odd_rank is not None
    assert report.rank == report.odd_rank.rank == 6
    assert report.verdict is report_of(programs[6], programs[6]).verdict is RunVerdict.LEAK
    (note,) = report.notes
    assert note == (
        "Ledger, timeline and phases are those of rank 6 of 10: "
        "it is the first that differs from the others."
    )


def test_of_many_ranks_the_one_whose_memory_ran_out_is_reported():
    run = together(leaking(), *(leaking(seed=n) for n in range(1, 10)))
    run.recordings[4].end = None
    run.outcomes[0, 4] = {"exit_code": 137, "signal": 9, "oom_killed": 1, "rank": 4}
    report = analyse(run)
    assert report.rank == 4
    assert report.out_of_memory is not None
    assert report.notes == [
        "Ledger, timeline and phases are those of rank 4 of 10: memory ran out there."
    ]


def test_a_rank_that_came_late_or_ended_early_hides_no_other():
    odd = healthy(1).leak("Trainer.losses", 4 * MIB)
    run = together(healthy(), odd, healthy(2), Program(epochs=2, seed=3))
    run.recordings[3].header = HeaderRecord(role="rank", rank=3, world_size=4, started=90.0)
    report = analyse(run)
    assert report.odd_rank is not None
    assert report.odd_rank.rank == 1
    assert report.odd_rank.bytes > 1000 * MIB
    assert [row.late_s > 80 for row in report.ranks] == [False, False, False, True]


def short(epochs: int, size: float = 0.0, seed: int = 0) -> Program:
    program = Program(epochs=epochs, seed=seed)
    return program.leak("Trainer.losses", size) if size else program


def test_a_rank_that_ended_early_is_held_against_the_others_up_to_where_it_got():
    odd = report_of(healthy(), healthy(1), short(3, 4 * MIB, seed=2), healthy(3)).odd_rank
    assert odd is not None
    assert odd.rank == 2
    assert odd.step < 30
    assert odd.bytes == pytest.approx(3 * 40 * 4 * MIB, rel=0.1)
    assert "at step 120, where one of them ended, it has" in odd.sentence


def test_of_two_ranks_the_one_that_has_more_is_odd_also_where_the_other_ended_early():
    odd = report_of(healthy().leak("Trainer.losses", 4 * MIB), short(3, seed=1)).odd_rank
    assert odd is not None
    assert (odd.rank, odd.bytes > 400 * MIB) == (0, True)
    odd = report_of(healthy(), short(3, 4 * MIB, seed=1)).odd_rank
    assert odd is not None
    assert (odd.rank, odd.bytes > 400 * MIB) == (1, True)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_a_rank_that_ended_early_and_kept_to_the_course_is_not_odd(epochs):
    assert report_of(healthy(), healthy(1), short(epochs, seed=2)).odd_rank is None


def course(first: float, last: float, rate: float, step_at: float = 1e9) -> RankSeries:
    """A course that rises by so many MiB a step, and by a GiB at one step."""
    steps = np.linspace(first, last, 100)
    return RankSeries(steps, (rate * (steps - first) + 1024.0 * (steps >= step_at)) * MIB)


def test_what_a_rank_does_just_before_it_ends_early_is_no_course():
    courses = {n: course(1, 1000, 0.1) for n in range(3)}
    assert find_odd_rank(courses | {3: course(1, 500, 0.1, step_at=496)}) is None
    odd = find_odd_rank(courses | {3: course(1, 500, 0.1, step_at=400)})
    assert odd is not None
    assert odd.rank == 3


def test_a_rank_that_began_late_is_let_off_for_its_warm_up():
    courses = {n: course(1, 1000, 0.1) for n in range(3)}
    assert find_odd_rank(courses | {3: course(600, 1000, 0.1, step_at=610)}) is None


def test_a_rank_of_few_steps_is_let_off():
    courses = {n: course(1, 1000, 0.1) for n in range(3)}
    assert find_odd_rank(courses | {3: course(1, 100, 5.0)}) is None


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_each_rank_is_held_against_the_median_of_the_others(count):
    random = np.random.default_rng(count)
    steps = np.arange(1.0, 201.0)
    memory = {n: np.cumsum(random.normal(2, 60, 200)) * MIB for n in range(count)}
    odd = find_odd_rank({n: RankSeries(steps, values) for n, values in memory.items()})
    assert odd is not None
    others = [m - m[0] for n, m in memory.items() if n != odd.rank]
    mine = memory[odd.rank] - memory[odd.rank][0]
    assert odd.bytes == int((mine - np.median(others, axis=0))[-1])
