"""A few programs of the zoo, so that a change that spoils verdicts is seen early."""

from __future__ import annotations

import pytest
from corpus import Case, cases
from running import run
from scoring import score

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLE = (
    "generator_remembers",
    "late_hard_examples",
    "two_at_once",
    "healthy_replay_fills_late",
    "healthy_gradual_unfreezing",
    "accelerate_folds",
    "lightning_metric_never_reset",
    "lightning_fabric",
)


@pytest.mark.parametrize("case", [c for c in cases() if c.name in SAMPLE], ids=lambda c: c.name)
def test_a_program_of_the_zoo_is_judged_rightly(case: Case) -> None:
    if not case.is_runnable():
        pytest.skip(f"needs {', '.join(case.truth.needs)}")
    one = score(case, run(case))
    assert one.right, one
