"""What was not looked at acquits nobody."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.report import RunVerdict
from leakscope.model.run import Run


def read_up_to(step: int) -> Run:
    """A run whose loop went on unseen."""
    run = Program(endless=True, steps=200, validation=0).build()
    measured = run.main.measurements
    run.main.measurements = [
        m for m in measured if m.boundary.step <= step or m.boundary.kind is BoundaryKind.RUN_END
    ]
    return run


def test_steps_at_which_memory_was_not_read_acquit_nobody() -> None:
    report = analyse(read_up_to(40))
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert "Memory was read up to step 40 of 200" in report.headline
    assert analyse(read_up_to(160)).verdict is RunVerdict.CLEAN


def test_what_a_running_call_of_a_library_gathers_is_left_open_where_it_may_go_on() -> None:
    program = Program(endless=True, steps=200, validation=0)
    path = "lib.Trainer.loop()·outputs"
    program.leak(path, MIB, start=170, user=False, of_a_call=True)
    report = analyse(program.build())
    assert report.verdict is not RunVerdict.CLEAN, report.headline


def slack_between(rate: int) -> Program:
    """Free memory that comes in jumps, while objects without a name become more by a rate."""
    jumps = (4, 9, 13, 17, 28, 40, 54, 92, 93, 150)

    def free(state: State) -> float:
        return sum(state.step >= step for step in jumps) * 0.8 * MIB

    program = Program(endless=True, steps=160, validation=0, rss_noise=0.05 * MIB)
    program.plant(Thing("lib.nodes", lambda s: 20 * KIB + s.step * rate, user=False))
    program.gauge(gauge.MALLOC_FREE, free).swell(free)
    return program.gauge(
        gauge.MALLOC_IN_USE, lambda s: 100 * MIB + s.step * rate * 4 + (s.step % 3) * 64 * KIB
    )


@pytest.mark.parametrize(("rate", "verdict"), [(KIB, "inconclusive"), (0, "clean")])
def test_free_memory_between_new_objects_without_a_name_is_left_open(
    rate: int, verdict: str
) -> None:
    report = analyse(slack_between(rate).build())
    assert report.verdict.value == verdict, report.headline
    assert ("free memory lies between them" in report.headline) == (verdict == "inconclusive")


@pytest.mark.parametrize(("rate", "verdict"), [(KIB, "inconclusive"), (0, "clean")])
def test_however_little_is_kept_without_a_name_it_is_no_acquittal_where_it_goes_on(
    rate: int, verdict: str
) -> None:
    program = Program(endless=True, steps=160, validation=0)
    program.plant(Thing("lib.nodes", lambda s: 20 * KIB + s.step * rate, user=False))
    report = analyse(program.build())
    assert report.verdict.value == verdict, report.headline
    assert ("code keep 1 KiB of new objects per step, " in report.headline) == bool(rate)


@pytest.mark.parametrize(
    ("at_the_end", "verdict"), [(82, "clean"), (300, "inconclusive"), (0, "inconclusive")]
)
def test_little_without_a_name_is_acquitted_where_the_last_look_shows_that_it_stopped(
    at_the_end: int, verdict: str
) -> None:
    program = Program(endless=True, steps=320, validation=0).constant("main()·model", 60 * MIB)
    program.plant(Thing("lib.nodes", lambda s: 20 * KIB + min(s.step, 100) * KIB, user=False))
    run = program.build()
    measured = run.main.measurements
    looks = [n for n, m in enumerate(measured) if m.census is not None]
    last = measured[looks[-1]].census
    assert last is not None
    for n in looks:
        if measured[n].boundary.step > 100:
            measured[n] = replace(measured[n], census=None)
    final = msgspec.structs.replace(last, elsewhere_bytes=20 * KIB + at_the_end * KIB)
    measured[-1] = replace(measured[-1], census=final)
    report = analyse(run)
    assert report.verdict.value == verdict, report.headline


def scattered(in_use_rate: float) -> Program:
    """Resident memory that swings by what is free in the heap, over what malloc has handed out."""

    def free(state: State) -> float:
        return (10 + 4 * ((state.step * 7919) % 13) / 13 + state.step * 0.1) * MIB

    def in_use(state: State) -> float:
        return state.step * in_use_rate

    program = Program(endless=True, steps=160, validation=0)
    program.swell(lambda s: free(s) + in_use(s))
    program.gauge(gauge.MALLOC_FREE, lambda s: free(s) * (1 + (s.step % 5) / 10))
    return program.gauge(gauge.MALLOC_IN_USE, lambda s: 100 * MIB + in_use(s))


@pytest.mark.parametrize(("rate", "verdict"), [(40 * KIB, RunVerdict.LEAK), (0, RunVerdict.CLEAN)])
def test_what_malloc_hands_out_tells_where_resident_memory_scatters(
    rate: float, verdict: RunVerdict
) -> None:
    report = analyse(scattered(rate).build())
    assert report.verdict is verdict, report.headline
    assert [f.kind for f in report.findings] == ["unexplained"] * (verdict is RunVerdict.LEAK)
