"""Gradients and optimizer state come with the parameters, and end with them."""

from __future__ import annotations

from dataclasses import replace as with_changes

import msgspec
import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.report import RunVerdict
from leakscope.model.run import Run

LAYERS = 8


def unfrozen(state: State) -> int:
    """Return how many layers of 1 MiB are trained: one more with every epoch."""
    return min(state.epoch + 1, LAYERS)


OPTIMIZER = Thing(
    "optimizer.state", lambda s: 2 * MIB * unfrozen(s), "dict", "dict", role="optimizer_state"
)
BLOCKS = Thing("model.blocks", lambda s: MIB * (LAYERS + unfrozen(s)), "list", "list")


def run_of(*things: Thing, parameters: int = LAYERS, added: int = 0) -> Run:
    """Return a run of eight epochs whose censuses tell the roles of what they met."""
    run = Program(epochs=LAYERS, steps=20, validation=0).plant(*things).build()
    measurements = run.recordings[0].measurements
    for position, m in enumerate(measurements):
        if m.census is not None:
            layers = min(m.boundary.epoch + 1, LAYERS)
            roles = {
                "parameters": {"host": MIB * (parameters + added * m.boundary.epoch)},
                "gradients": {"host": MIB * layers},
            }
            census = msgspec.structs.replace(m.census, components=roles)
            measurements[position] = with_changes(m, census=census)
    return run


@pytest.mark.parametrize("thing", [OPTIMIZER, BLOCKS], ids=lambda thing: thing.path)
def test_layers_unfrozen_one_by_one_are_no_leak(thing: Thing) -> None:
    report = analyse(run_of(thing))
    assert report.verdict is RunVerdict.CLEAN, report.headline
    reasons = {cleared.path: cleared.reason for cleared in report.cleared}
    assert "by the model's size" in reasons[thing.path]


@pytest.mark.parametrize("thing", [OPTIMIZER, BLOCKS], ids=lambda thing: thing.path)
def test_where_parameters_grow_too_it_is_one(thing: Thing) -> None:
    report = analyse(run_of(thing, added=1))
    assert thing.path in {culprit.path for culprit in report.culprits}


@pytest.mark.parametrize("thing", [OPTIMIZER, BLOCKS], ids=lambda thing: thing.path)
def test_more_than_the_parameters_account_for_is_one(thing: Thing) -> None:
    report = analyse(run_of(thing, parameters=2))
    assert [culprit.path for culprit in report.culprits] == [thing.path]


def test_what_grows_next_to_the_gradients_is_one() -> None:
    kept = Thing("kept", lambda s: MIB * (1 + s.epoch) * 1.1, "list", "list")
    report = analyse(run_of(BLOCKS, kept))
    assert [culprit.path for culprit in report.culprits] == ["kept"]


def test_a_small_leak_next_to_gradients_that_stay_as_they_are_is_one() -> None:
    kept = Thing("kept", lambda s: 4000 * s.epoch, "list", "list")
    run = Program(epochs=400, steps=5, validation=0).plant(kept).build()
    for m in run.main.measurements:
        if m.census is not None:
            roles = {"parameters": 8 * MIB, "gradients": 8 * MIB}
            m.census.components.update({role: {"host": size} for role, size in roles.items()})
    report = analyse(run)
    assert [culprit.path for culprit in report.culprits] == ["kept"]
