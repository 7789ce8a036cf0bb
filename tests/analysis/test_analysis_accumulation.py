"""Growth piles up in what its parts were added to, whatever the parts are called."""

from __future__ import annotations

from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.analyse import analyse
from leakscope.model.report import RunVerdict

EPOCHS = 12


def from_epoch(epoch: int, size: float) -> Thing:
    """Return the tensor that an epoch adds to an object under a name of its own."""

    def held(state: State) -> float | None:
        return size if state.epoch >= epoch else None

    return Thing(f"debug.batch_{epoch}", held, "tensor", "torch.Tensor", parent="debug")


def test_attributes_that_are_added_are_growth_of_their_object() -> None:
    size = 300 * KIB
    owner = Thing("debug", lambda s: size * (s.epoch + 1), "object", "types.SimpleNamespace")
    parts = [from_epoch(epoch, size) for epoch in range(EPOCHS)]
    report = analyse(Program(epochs=EPOCHS).plant(owner, *parts).build())
    assert [culprit.path for culprit in report.culprits] == ["debug"]


def test_attributes_that_are_set_once_are_not() -> None:
    size = 3 * MIB
    owner = Thing("debug", lambda s: size * min(s.epoch + 1, 2), "object", "types.SimpleNamespace")
    parts = [from_epoch(epoch, size) for epoch in range(2)]
    report = analyse(Program(epochs=EPOCHS).plant(owner, *parts).build())
    assert report.verdict is RunVerdict.CLEAN, report.headline


def test_parts_that_are_replaced_by_slightly_larger_ones_are_no_growth_together() -> None:
    def part(number: int) -> Thing:
        path = f"result['curve'][{number}]"
        size = 100 * KIB
        return Thing(
            path, lambda s: size + 350 * s.epoch, "tensor", "torch.Tensor", "result['curve']"
        )

    parts = [part(number) for number in range(3)]
    curve = Thing("result['curve']", lambda s: 300 * KIB + 1050 * s.epoch, "tuple", "tuple")
    report = analyse(Program(epochs=8).plant(curve, *parts).build())
    assert [culprit.path for culprit in report.culprits] == []


def test_a_chain_that_gets_longer_is_named_by_what_holds_its_first_link() -> None:
    size, things = 500 * KIB, []
    path, parent = "model.forward", ""
    for depth in range(EPOCHS):

        def held(state: State, depth: int = depth) -> float | None:
            links = state.epoch + 1 - depth
            return size * links if links > 0 else None

        things.append(Thing(path, held, "function", "function", parent=parent))
        path, parent = path + "⟨forward⟩", path
    report = analyse(Program(epochs=EPOCHS).plant(*things).build())
    assert [culprit.path for culprit in report.culprits] == ["model.forward"]
