"""Who else is reported to hold a culprit's contents: whoever holds much of the bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from synthetic_runs import MIB, Program

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.report import Culprit

FEATURES = "FrozenFeatures.known"


def culprit(**changed: Any) -> Culprit:
    """Return the culprit of a run whose rows of it say who else holds the same."""
    run = Program(epochs=8).leak(FEATURES, 2 * MIB, "epoch").build()
    for recording in run.recordings:
        for measurement in recording.measurements:
            if measurement.census is not None:
                rows = measurement.census.rows
                rows[:] = [_with(row, changed) if row.path == FEATURES else row for row in rows]
    [found] = [each for each in analyse(run).culprits if each.path == FEATURES]
    return found


def _with(row: Any, changed: dict[str, Any]) -> Any:
    return msgspec.structs.replace(row, also_held_by=["ActiveLearner.labelled"], **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"shared_bytes": {"host": 28_000}},
        {"exclusive_bytes": 13_949_068, "leak_share_bytes": 13_949_838},
    ],
)
def test_who_holds_only_the_numbers_of_a_culprit_is_no_other_holder(changed: Any) -> None:
    found = culprit(**changed)
    assert found.also_held_by == []
    assert "holds the same objects" not in found.remedy.text


@pytest.mark.parametrize(
    "changed",
    [
        {"shared_bytes": {"host": 9 * MIB}},
        {"exclusive_bytes": MIB, "leak_share_bytes": 5 * MIB},
    ],
)
def test_who_holds_a_considerable_part_of_a_culprit_is_named(changed: Any) -> None:
    found = culprit(**changed)
    assert found.also_held_by == ["ActiveLearner.labelled"]
    assert "`ActiveLearner.labelled` holds the same objects" in found.remedy.text
