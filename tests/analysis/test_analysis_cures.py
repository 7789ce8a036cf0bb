"""What the cleaning calls did where they were tried: which helps, which can't."""

from __future__ import annotations

import pytest
from synthetic_runs import GIB, MIB, Program

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.record import CleanupRecord, CleanupStep
from leakscope.model.report import Cure, Effect, Report
from leakscope.model.run import Run


def tried(
    run: Run,
    *steps: CleanupStep,
    phase: str = "train",
    times: int = 4,
    before: int = GIB,
    grows: int = 0,
) -> Run:
    """Have the calls tried at the first ends of a phase, each time with the same effect."""
    ends = [
        m.boundary.index
        for m in run.main.measurements
        if m.boundary.kind is BoundaryKind.PHASE_END and m.boundary.phase == phase
    ]
    returned = sum(step.host_returned for step in steps)
    for number, index in enumerate(ends[:times]):
        level = before + grows * number
        run.main.cleanups.append(
            CleanupRecord(
                boundary=index,
                steps=list(steps),
                before={gauge.RSS: level, "cuda:0.reserved": 10 * GIB},
                after={gauge.RSS: level - returned},
                remarks=["No GPU figures."],
            )
        )
    run.main.cleanups.sort(key=lambda record: record.boundary)
    return run


def collect(freed: int, seconds: float = 0.041, **more: object) -> CleanupStep:
    return CleanupStep(call="gc.collect()", seconds=seconds, host_freed=freed, objects=12, **more)


def trim(returned: int) -> CleanupStep:
    return CleanupStep(call="malloc_trim(0)", seconds=0.004, host_returned=returned)


def cure(report: Report, call: str) -> Cure:
    return next(cure for cure in report.cures.cures if cure.call == call)


def test_a_call_that_frees_nothing_cannot_help():
    report = analyse(tried(Program().build(), collect(int(0.3 * MIB))))
    assert cure(report, "gc.collect()").sentence == (
        "gc.collect() freed 307 KiB in 41 ms each time: it cannot help."
    )
    assert cure(report, "gc.collect()").effect is Effect.USELESS
    assert report.cures.remarks == ["No GPU figures."]


def test_a_call_that_frees_much_helps_and_says_where():
    report = analyse(tried(Program().build(), collect(210 * MIB)))
    found = cure(report, "gc.collect()")
    assert (found.effect, found.times, found.host_bytes) == (Effect.HELPS, 4, 210 * MIB)
    assert found.sentence == "gc.collect() freed 210 MiB in 41 ms each time after train: it helps."


def test_it_is_judged_by_the_phase_where_it_does_most():
    run = tried(Program().build(), collect(210 * MIB), phase="train")
    run = tried(run, collect(0), phase="validation")
    found = cure(analyse(run), "gc.collect()")
    assert (found.effect, found.times) == (Effect.HELPS, 4)


def test_one_large_first_collection_is_what_imports_left():
    run = tried(Program().build(), collect(0), times=5)
    first = run.main.cleanups[0]
    run.main.cleanups[0] = CleanupRecord(
        boundary=first.boundary, steps=[collect(300 * MIB)], before=first.before
    )
    assert cure(analyse(run), "gc.collect()").effect is Effect.USELESS


def test_little_is_reported_as_little():
    report = analyse(tried(Program().build(), collect(8 * MIB)))
    assert "it helps little" in cure(report, "gc.collect()").sentence


@pytest.mark.parametrize("times", [1, 2])
def test_few_trials_are_no_judgement(times):
    report = analyse(tried(Program().build(), collect(210 * MIB), times=times))
    assert cure(report, "gc.collect()").effect is Effect.UNDECIDED
    assert "too few to judge by" in cure(report, "gc.collect()").sentence


def test_what_the_program_takes_again_is_no_gain():
    report = analyse(tried(Program().build(), trim(180 * MIB)))
    found = cure(report, "malloc_trim(0)")
    assert (found.effect, found.taken_again_bytes) == (Effect.USELESS, 180 * MIB)
    assert "of which 180 MiB were taken again by the next: it cannot help." in found.sentence


def test_what_stays_returned_is_a_gain():
    run = tried(Program().build(), trim(180 * MIB), grows=-180 * MIB)
    assert cure(analyse(run), "malloc_trim(0)").effect is Effect.HELPS


def test_a_device_is_judged_by_what_torch_had_reserved():
    step = CleanupStep(call="empty_cache()", seconds=0.01, device_returned={"cuda:0": 2 * GIB})
    found = cure(analyse(tried(Program().build(), step)), "empty_cache()")
    assert (found.effect, found.device_bytes) == (Effect.HELPS, {"cuda:0": 2 * GIB})
    assert found.sentence.startswith("empty_cache() returned 2 GiB on cuda:0 in 10 ms")
    step = CleanupStep(call="empty_cache()", seconds=0.01, device_returned={"cuda:0": 0})
    found = cure(analyse(tried(Program().build(), step)), "empty_cache()")
    assert found.effect is Effect.USELESS


def test_growth_that_no_call_frees_is_reported():
    run = tried(Program().build(), collect(0), grows=100 * MIB)
    assert "still 200 MiB higher the last time" in analyse(run).cures.sentence
    flat = tried(Program().build(), collect(0))
    assert "higher" not in analyse(flat).cures.sentence


def test_without_trials_there_is_no_section():
    assert analyse(Program().build()).cures is None


def test_a_culprits_falsifier_tells_that_it_stayed():
    run = tried(Program().leak("main()·history", MIB).build(), collect(210 * MIB))
    result = analyse(run).culprits[0].falsifier.result
    assert result.endswith(
        "Tried: gc.collect() freed 210 MiB each time, and main.history was there all the same."
    )


def test_a_findings_falsifier_tells_what_its_call_did():
    program = Program(epochs=10, full_every=1)
    program.garbage = lambda s: 200 * MIB if s.step else 0
    program.swell(lambda s: 200 * MIB if s.step else 0)
    report = analyse(tried(program.build(), collect(200 * MIB), trim(0)))
    found = next(f for f in report.findings if f.kind == "garbage")
    assert "Tried: gc.collect() freed 200 MiB" in found.falsifier.result
    assert "malloc_trim" not in found.falsifier.result


def test_the_ledgers_advice_is_what_was_measured():
    run = tried(Program().leak("main()·history", MIB).build(), collect(0), trim(0))
    advice = analyse(run).ledgers[0].advice
    assert advice.startswith("Tried in this run: gc.collect() freed 0 B in 41 ms each time")
    assert "malloc_trim(0) returned 0 B" in advice
    assert "is held by names: only letting go of them frees it." in advice
    assert "could help" not in advice
