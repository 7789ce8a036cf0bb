"""What was not looked at acquits nobody."""

from __future__ import annotations

from synthetic_runs import MIB, Program

from leakscope.analysis import analyse
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
