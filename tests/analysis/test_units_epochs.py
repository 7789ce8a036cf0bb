"""Epochs are reported only where something tells where one ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from synthetic_runs import MIB, Program

from leakscope.analysis import analyse
from leakscope.analysis.columns.series import BoundaryTable
from leakscope.analysis.columns.units import WorkUnit, epochs, epochs_are_visible, in_part
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import HeaderRecord
from leakscope.model.run import Measurement, Recording


def boundary(kind: BoundaryKind = BoundaryKind.STEP, phase: str = "train", **at: Any) -> Boundary:
    return Boundary(index=1, kind=kind, time_s=1.0, phase=phase, **at)


@pytest.mark.parametrize(
    "item",
    [
        boundary(expected_batches=10),
        boundary(occurrence=1),
        boundary(BoundaryKind.EPOCH_END, phase=""),
    ],
    ids=["a loader that ends", "a second training", "reported by the program"],
)
def test_one_boundary_tells(item: Boundary) -> None:
    assert epochs_are_visible([boundary(), item])


def test_validations_within_one_training_without_a_loader_tell_nothing() -> None:
    steps = [boundary(step=step) for step in range(9)]
    validated = [boundary(phase="validation", occurrence=n, expected_batches=4) for n in range(3)]
    assert not epochs_are_visible([*steps, *validated])


LENGTHS = st.lists(st.integers(1, 30), min_size=3, max_size=6)


@given(LENGTHS, st.integers(0, 500), st.booleans())
def test_a_running_epoch_counts_by_its_steps(lengths: list[int], begin: int, stated: bool) -> None:
    steps, reported = begin, []
    for epoch, length in enumerate(lengths):
        begins = BoundaryKind.PHASE_BEGIN
        reported.append(boundary(begins, step=steps, epoch=epoch, occurrence=epoch))
        for batch in range(1, length + 1):
            steps += 1
            reported.append(boundary(step=steps, batch=batch, epoch=epoch, occurrence=epoch))
        kind = BoundaryKind.EPOCH_END if stated else BoundaryKind.PHASE_END
        reported.append(boundary(kind, phase="" if stated else "train", step=steps, epoch=epoch))
    track = BoundaryTable(
        Recording(HeaderRecord(pid=1), [Measurement(item, {}) for item in reported])
    )
    counted = epochs(track)
    part = in_part(track, counted)
    assert (np.diff(part) >= 0).all()
    assert ((part >= counted.done) & (part <= counted.done + 1)).all()
    halfway = (lengths[1] + 1) // 2
    assert part[lengths[0] + 2 + halfway] == pytest.approx(1 + halfway / lengths[1])


def test_other_units_are_counted_as_they_are() -> None:
    track = BoundaryTable(Recording(HeaderRecord(pid=1), [Measurement(boundary(step=3), {})]))
    minutes = WorkUnit("minute", "", np.array([2.5]))
    assert in_part(track, minutes) is minutes.done


def test_growth_is_counted_in_epochs_where_the_program_says_nothing_else() -> None:
    run = Program(epochs=12, validation=0).leak("kept", 2 * MIB, per="epoch").build()
    measurements = run.main.measurements
    last = {m.boundary.epoch: n for n, m in enumerate(measurements) if m.boundary.step}
    printed = [
        replace(measurements[n], boundary=boundary(BoundaryKind.EPOCH_END, ""))
        for n in last.values()
    ]
    recording = replace(run.main, measurements=[measurements[0], *printed])
    report = analyse(replace(run, recordings=[recording]))
    (culprit,) = report.culprits
    assert (culprit.name, culprit.unit) == ("kept", "epoch")
    assert culprit.bytes_per_unit == pytest.approx(2 * MIB, rel=0.01)
    assert [growth.unit for growth in report.growth] == ["epoch"]


def test_what_validations_within_epochs_add_is_not_counted_in_steps() -> None:
    """As Lightning nests them: looked at where a training epoch begins and ends, not between."""
    run = Program(epochs=8, validation=10).leak("outputs", MIB / 10, per="validation batch").build()
    nested: list[Measurement] = []
    for measurement in run.main.measurements:
        at = measurement.boundary
        is_end = at.kind is BoundaryKind.PHASE_END
        if is_end and at.phase == "train":
            ended = at
        elif is_end and at.phase == "validation":
            nested.append(replace(measurement, census=None))
            nested.append(replace(measurement, boundary=structs.replace(ended, time_s=at.time_s)))
        else:
            is_seen = at.kind is BoundaryKind.PHASE_BEGIN and at.phase == "train"
            nested.append(measurement if is_seen else replace(measurement, census=None))
    (culprit,) = analyse(replace(run, recordings=[replace(run.main, measurements=nested)])).culprits
    assert (culprit.unit, culprit.bytes_per_unit) == ("validation", pytest.approx(MIB, rel=0.02))
