"""Runs so short that the census at their end is the only one of their second half."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import MIB, Program

from leakscope.analysis.accounting.terms import unnamed_series
from leakscope.analysis.run_context import RunContext
from leakscope.model.run import Run

EPOCHS = 8


def short_run(at_the_end: int) -> Run:
    """Return a run whose library gains 3 MiB an epoch, looked at in its first half and its end."""
    program = Program(epochs=EPOCHS).leak("registry", 3 * MIB, per="epoch", user=False)
    run = program.build()
    recorded = run.main.measurements
    half, last = len(recorded) // 2, next(m.census for m in reversed(recorded) if m.census)
    recorded[half:] = [replace(m, census=None) for m in recorded[half:]]
    final = msgspec.structs.replace(last, elsewhere_bytes=at_the_end)
    recorded[-1] = replace(recorded[-1], census=final)
    return run


@pytest.mark.parametrize(
    ("at_the_end", "counts"),
    [(EPOCHS * 3 * MIB, True), (60 * MIB, False), (0, False)],
    ids=["goes on", "jumps as functions return", "is given back"],
)
def test_the_last_look_counts_where_growth_goes_on_to_it(at_the_end: int, counts: bool) -> None:
    run = short_run(at_the_end)
    case = RunContext(run, run.main)
    _, sizes = unnamed_series(case)
    assert bool(sizes[-1] == at_the_end) is counts
    assert case.trend_of(*unnamed_series(case)).is_growing or not counts
