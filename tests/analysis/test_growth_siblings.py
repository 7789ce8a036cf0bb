"""What one statement puts into a container under several keys is growth of the container."""

from __future__ import annotations

import pytest
from synthetic_runs import KIB, Program, Size, State, Thing

from leakscope.analysis import analyse
from leakscope.model.boundary import BoundaryKind

BY_ONE_LINE = """
sides = {"real": [], "fake": []}
for step in range(320):
    for side in sides:
        sides[side].append(features(side))
"""
BY_TWO_LINES = """
sides = {"real": [], "fake": []}
for step in range(320):
    sides["real"].append(features("real"))
    sides["fake"].append(features("fake"))
"""


def per_step(size: float) -> Size:
    return lambda s: size * s.step


def in_a_validation(size: float) -> Size:
    def held(state: State) -> float | None:
        inside = state.phase == "validation" and state.kind is BoundaryKind.BATCH
        return size * state.batch if inside else None

    return held


def reported(source: str, real: Size, fake: Size) -> list[tuple[str, list[str]]]:
    """Return the culprits of a run with two lists in a dict, and their feeding lines."""

    def both(state: State) -> float | None:
        sizes = [size for size in (real(state), fake(state)) if size is not None]
        return sum(sizes) if sizes else None

    whole = Thing("__main__·sides", both, "dict", "dict", name="sides")
    keys = [
        Thing(
            f"__main__·sides['{key}']",
            size,
            parent="__main__·sides",
            name=f"sides['{key}']",
            length=lambda s: s.step,
        )
        for key, size in (("real", real), ("fake", fake))
    ]
    run = Program(epochs=8).plant(whole, *keys).build()
    run.main.sources["/project/train.py"] = source
    return [(c.name, [line.rpartition(":")[2] for line in c.fed_at]) for c in analyse(run).culprits]


@pytest.mark.parametrize("grows", [per_step, in_a_validation])
def test_entries_that_one_line_feeds_are_reported_as_their_container(grows) -> None:
    size = grows(400 * KIB)
    assert reported(BY_ONE_LINE, size, size) == [("sides", ["5"])]


def test_entries_that_two_lines_feed_are_reported_one_by_one() -> None:
    size = per_step(400 * KIB)
    expected = [("sides['fake']", ["5"]), ("sides['real']", ["4"])]
    assert sorted(reported(BY_TWO_LINES, size, size)) == expected


def test_an_entry_with_most_of_the_growth_is_reported_by_its_own_name() -> None:
    found = reported(BY_ONE_LINE, per_step(400 * KIB), per_step(40 * KIB))
    assert [name for name, _ in found] == ["sides['real']", "sides['fake']"]


def test_entries_that_grow_by_different_units_are_reported_one_by_one() -> None:
    per_validation: Size = lambda s: 8000 * KIB * s.validations  # noqa: E731
    found = reported(BY_ONE_LINE, per_step(200 * KIB), per_validation)
    assert sorted(name for name, _ in found) == ["sides['fake']", "sides['real']"]
