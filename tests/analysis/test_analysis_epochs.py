"""Epochs are told only where something tells where one ends."""

from __future__ import annotations

from typing import Any

import pytest

from leakscope.analysis.units import tells_epochs
from leakscope.model.boundary import Boundary, BoundaryKind


def boundary(kind: BoundaryKind = BoundaryKind.STEP, phase: str = "train", **at: Any) -> Boundary:
    return Boundary(index=1, kind=kind, time_s=1.0, phase=phase, **at)


@pytest.mark.parametrize(
    "one",
    [
        boundary(expected_batches=10),
        boundary(occurrence=1),
        boundary(BoundaryKind.EPOCH_END, phase=""),
    ],
    ids=["a loader that ends", "a second training", "said by the program"],
)
def test_one_boundary_tells(one: Boundary) -> None:
    assert tells_epochs([boundary(), one])


def test_validations_within_one_training_without_a_loader_tell_nothing() -> None:
    steps = [boundary(step=step) for step in range(9)]
    validated = [boundary(phase="validation", occurrence=n, expected_batches=4) for n in range(3)]
    assert not tells_epochs([*steps, *validated])
