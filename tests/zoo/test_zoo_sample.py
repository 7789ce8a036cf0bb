"""A few programs of the zoo, so that a change that spoils verdicts is seen early.

Others are judged in ``tests/end_to_end/test_known_culprits.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from corpus import Case, cases
from running import Outcome, reported, run
from scoring import score

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLE = (
    "generator_remembers",
    "late_hard_examples",
    "two_at_once",
    "healthy_replay_fills_late",
    "healthy_gradual_unfreezing",
    "lightning_fabric",
)


def judged(case: Case) -> Outcome:
    """Run a case; how much is kept matters only where one leak may be greater than another."""
    if len(case.leaks) > 1:
        return run(case)
    return replace(reported(case.program), kept=[{} for _ in case.leaks])


@pytest.mark.parametrize("case", [c for c in cases() if c.name in SAMPLE], ids=lambda c: c.name)
def test_a_program_of_the_zoo_is_judged_rightly(case: Case) -> None:
    if not case.is_runnable():
        pytest.skip(f"needs {', '.join(case.truth.needs)}")
    single = score(case, judged(case))
    assert single.right, single
