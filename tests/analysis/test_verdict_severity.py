"""What growth does to the user: little with each step is much where steps are many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leakscope.analysis.verdict.severity import of_across
from leakscope.model.report import Severity

MIB = 1 << 20


def grower(rate: float, units: float, unit: str = "batch") -> Any:
    trend = SimpleNamespace(bytes_per_unit=rate)
    return cast("Any", SimpleNamespace(unit=unit, trend=trend, units=units, gained=rate * units))


def test_some_hundred_bytes_with_each_of_very_many_passes_are_a_leak() -> None:
    assert of_across(grower(612.0, 38_000), None, 25.0) is Severity.WARNING


@pytest.mark.parametrize(
    ("rate", "units", "seconds"),
    [
        (200.0, 5_000, 60.0),
        (612.0, 38_000, 3600.0),  # the same in an hour: a log of a training
        (8.0, 400_000, 10.0),
    ],
)
def test_a_log_of_each_step_is_none(rate: float, units: float, seconds: float) -> None:
    assert of_across(grower(rate, units, "step"), None, seconds) is Severity.NOTE


def test_what_was_read_at_one_moment_is_judged_by_its_rate() -> None:
    assert of_across(grower(612.0, 38_000), None, 0.0) is Severity.NOTE
    assert of_across(grower(64 * 1024.0, 1_000), None, 0.0) is Severity.WARNING
