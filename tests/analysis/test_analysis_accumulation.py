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
