"""What malloc may have held free, where it was read long before and after, has an explanation."""

from __future__ import annotations

import pytest
from synthetic_runs import MIB, Program, State

from leakscope.analysis.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind


def grows(state: State) -> float:
    return 0.5 * MIB * state.step


@pytest.mark.parametrize(("is_slack", "kinds"), [(True, set()), (False, {"unexplained"})])
def test_growth_is_unexplained_only_if_the_heap_did_not_hold_it_free(
    is_slack: bool, kinds: set[str]
) -> None:
    program = Program(epochs=1, steps=160, validation=0, endless=True).swell(grows)
    run = program.gauge(gauge.MALLOC_FREE, lambda s: is_slack * grows(s)).build()
    for measurement in run.main.measurements:
        state = measurement.boundary
        if state.kind is not BoundaryKind.RUN_END and state.step > 2:
            measurement.gauges.pop(gauge.MALLOC_FREE)
    findings = analyse(run).findings
    assert {f.kind for f in findings if f.kind == "unexplained"} == kinds
