"""What one statement puts into a container under several keys is growth of the container."""

from __future__ import annotations

import pytest
from synthetic_runs import KIB, Program, Size, State, Thing

from leakscope.analysis import analyse
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import Owner

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


OF_OBJECTS = """
class Channel:
    def __init__(self):
        self.samples = []

    def push(self, block):
        self.samples.extend(block)

channels = {name: Channel() for name in NAMES}
for step in range(320):
    for channel in channels.values():
        channel.push(read())
"""


def reported_of_objects(keys: list[str], grown: int, *, is_fixed: bool = True) -> list[str]:
    """Return the culprits, with their lines, of a dict of objects, so many of which grow."""

    def sizes(key: str) -> Size:
        return per_step(80 * KIB) if keys.index(key) < grown else lambda s: 64 * KIB

    things = [
        Thing(
            "__main__·channels",
            lambda s: sum(sizes(key)(s) + 400 for key in keys),
            "dict",
            "dict",
            name="channels",
            length=(lambda s: len(keys)) if is_fixed else (lambda s: len(keys) + s.step),
        )
    ]
    for key in keys:
        path, size = f"__main__·channels['{key}']", sizes(key)
        own = Owner(kind="class", name="Channel", variable="samples", file="/project/train.py")
        things += [
            Thing(path, lambda s, size=size: size(s) + 400, "object", "__main__.Channel",
                  "__main__·channels", name=f"channels['{key}']"),
            Thing(f"{path}.samples", size, parent=path, name="Channel.samples", owner=own,
                  length=lambda s: s.step),
        ]  # fmt: skip
    run = Program(epochs=8).plant(*things).build()
    run.main.sources["/project/train.py"] = OF_OBJECTS
    found = analyse(run).culprits
    return [f"{c.name}:{','.join(line.rpartition(':')[2] for line in c.fed_at)}" for c in found]


@pytest.mark.parametrize("count", [2, 3, 6, 20])
def test_objects_in_which_an_attribute_grows_are_reported_by_that_attribute(count: int) -> None:
    keys = [f"c{n}" for n in range(count)]
    assert reported_of_objects(keys, count) == ["Channel.samples:7"]


def test_a_container_that_gets_more_objects_is_reported_by_itself() -> None:
    found = reported_of_objects([f"c{n}" for n in range(6)], 6, is_fixed=False)
    assert [name.partition(":")[0] for name in found] == ["channels"]


def test_objects_of_which_a_single_one_grows_are_no_pattern() -> None:
    assert reported_of_objects([f"c{n}" for n in range(6)], 1) == ["Channel.samples:7"]


@pytest.mark.parametrize(("part", "name"), [(0.95, "Actor.trail"), (0.4, "actors")])
def test_an_attribute_of_each_item_that_is_most_of_a_list_stands_for_it(
    part: float, name: str
) -> None:
    """While each was small none had a row."""

    def trails(state: State) -> float | None:
        return part * 4 * KIB * state.step if state.step > 200 else None

    whole = Thing("__main__·actors", lambda s: 4 * KIB * s.step, name="actors", length=lambda _: 30)
    each = Thing(
        "__main__·actors[*].trail", trails, parent="__main__·actors", name="Actor.trail",
        length=lambda s: s.step, count=lambda _: 30,
    )  # fmt: skip
    run = Program(epochs=8).plant(whole, each).build()
    assert [culprit.name for culprit in analyse(run).culprits] == [name]
