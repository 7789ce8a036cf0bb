"""Growth piles up in what its parts were added to, whatever the parts are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from msgspec.structs import replace
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.boundary import BoundaryKind
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


def agents(gathered: Callable[[State], float], number: Callable[[State], float]) -> list[str]:
    """Return what is accused of the memory of agents in a list, each with a list of its own."""
    size = 200 * KIB
    held = {"length": gathered, "count": number}
    things = [
        Thing("agents", lambda s: gathered(s) * size + 500, length=number),
        Thing(
            "agents[*]", lambda s: gathered(s) * size + 400, "object", "__main__.Agent",
            parent="agents", count=number,
        ),
        Thing(
            "agents[*].memory", lambda s: gathered(s) * size + 300, parent="agents[*]", **held
        ),
        Thing(
            "agents[*].memory[*]", lambda s: gathered(s) * size, "tensor", "torch.Tensor",
            parent="agents[*].memory", count=gathered,
        ),
    ]  # fmt: skip
    report = analyse(Program(epochs=EPOCHS).plant(*things).build())
    return [culprit.path for culprit in report.culprits]


def test_lists_that_as_many_objects_as_ever_hold_are_the_culprit() -> None:
    assert agents(lambda s: 4.0 * s.epochs_done + 4, lambda s: 4.0) == ["agents[*].memory"]


def test_small_objects_that_are_counted_late_are_no_growth_of_their_list() -> None:
    def counted(state: State) -> float:
        return 4.0 if state.epoch < EPOCHS - 2 else 20.0

    assert agents(lambda s: 4.0 * s.epochs_done + 4, counted) == ["agents[*].memory"]


def test_objects_that_become_more_are_growth_of_their_list() -> None:
    assert agents(lambda s: s.epochs_done + 1.0, lambda s: s.epochs_done + 1.0) == ["agents"]


def layout(entries: Callable[[State], float]) -> list[str]:
    """Return what is accused of what piles up on the parameters in a list of tuples."""
    size = 100 * KIB

    def hooked(state: State) -> float:
        return 6.0 * state.epochs_done + 6

    above = "layout[*][0]"
    things = [
        Thing("layout", lambda s: hooked(s) * size + 900, length=entries),
        Thing(
            "layout[*]", lambda s: hooked(s) * size + 800, "tuple", "tuple",
            parent="layout", length=lambda s: 2 * entries(s), count=entries,
        ),
        Thing(
            above, lambda s: hooked(s) * size + 700, "tensor", "torch.nn.Parameter",
            parent="layout[*]", count=entries,
        ),
        Thing(
            f"{above}.hooks", lambda s: hooked(s) * size + 600, "dict", "dict",
            parent=above, length=hooked, count=entries,
        ),
        Thing(
            f"{above}.hooks[*]", lambda s: hooked(s) * size, "function", "functools.partial",
            parent=f"{above}.hooks", count=hooked,
        ),
    ]  # fmt: skip
    report = analyse(Program(epochs=EPOCHS).plant(*things).build())
    return [culprit.path for culprit in report.culprits]


def test_what_piles_up_below_as_many_tuples_as_ever_is_not_their_list() -> None:
    assert layout(lambda s: 6.0) == ["layout[*][0].hooks"]


def test_tuples_that_become_more_are_growth_of_their_list() -> None:
    assert layout(lambda s: 6.0 * s.epochs_done + 6) == ["layout"]


def test_a_list_of_linked_tuples_is_named_by_what_holds_its_first_link() -> None:
    def named(state: State) -> float:
        return min(state.epoch + 1.0, 3.0)

    size = 300 * KIB
    first = Thing(
        "Model.tape", lambda s: size * (s.epoch + 2), "tuple", "__main__.Entry",
        length=lambda s: 3,
    )  # fmt: skip
    others = Thing(
        "Model.tape.before", lambda s: size * (s.epoch + 1), "tuple", "__main__.Entry",
        parent="Model.tape", count=named, length=lambda s: 3 * named(s),
    )  # fmt: skip
    report = analyse(Program(epochs=EPOCHS).plant(first, others).build())
    assert [culprit.path for culprit in report.culprits] == ["Model.tape"]


def test_an_owner_of_a_culprit_is_not_reported_as_fine_under_its_new_path() -> None:
    size = 300 * KIB
    owner = Thing("train()·layout", lambda s: size * s.step, "list", "list", length=lambda s: 2)
    bank = Thing("train()·layout[0].bank", lambda s: size * s.step, parent="train()·layout")
    run = Program(epochs=EPOCHS, steps=10, validation=0).plant(owner, bank).build()
    *measured, at_the_end = run.main.measurements
    seen = next(m.census for m in reversed(measured) if m.census is not None)
    rows = [replace(row, path=row.path.replace("train()", "__main__"), parent="")
            for row in seen.rows if row.path == "train()·layout"]  # fmt: skip
    run.main.measurements[-1] = dataclasses.replace(at_the_end, census=replace(seen, rows=rows))
    report = analyse(run)
    assert [culprit.path for culprit in report.culprits] == ["train()·layout[0].bank"]
    assert not report.cleared


def test_lists_in_a_dict_of_lists_are_growth_of_the_dict() -> None:
    size = 100 * KIB

    def gathered(state: State) -> float:
        return 10.0 * state.epochs_done + 10

    things = [
        Thing("by_class", lambda s: gathered(s) * size + 900, "dict", "dict", length=lambda s: 10),
        Thing(
            "by_class[*]", lambda s: gathered(s) * size + 600, parent="by_class",
            length=gathered, count=lambda s: 10,
        ),
        Thing(
            "by_class[*][*]", lambda s: gathered(s) * size, "tensor", "torch.Tensor",
            parent="by_class[*]", count=gathered,
        ),
    ]  # fmt: skip
    report = analyse(Program(epochs=EPOCHS).plant(*things).build())
    assert [culprit.path for culprit in report.culprits] == ["by_class"]


def test_what_a_function_returned_is_not_reported_as_fine_under_its_new_path() -> None:
    bank = Thing("train()·miner.bank", lambda s: 300 * KIB * s.step)
    run = Program(epochs=EPOCHS, steps=10, validation=0).plant(bank).build()
    *measured, at_the_end = run.main.measurements
    seen = next(m.census for m in reversed(measured) if m.census is not None)
    rows = [replace(row, path="__main__·miner.bank") for row in seen.rows]
    run.main.measurements[-1] = dataclasses.replace(at_the_end, census=replace(seen, rows=rows))
    report = analyse(run)
    assert [culprit.path for culprit in report.culprits] == ["train()·miner.bank"]
    assert not report.cleared


def test_parts_of_a_registry_lie_in_it_though_no_row_between_was_written() -> None:
    program = Program(epochs=8).leak("library·figures", 50 * KIB, user=False)
    part = Thing(
        "library·figures[*].axes", lambda s: 40 * KIB * s.step, parent="library·figures[*]",
        user=False, count=lambda s: s.step,
    )  # fmt: skip
    run = program.plant(part).build()
    for m in run.main.measurements:
        if m.census is not None:
            m.census.rows[:] = [r for r in m.census.rows if r.path != "library·figures[*]"]
    assert [c.name for c in analyse(run).culprits] == ["library.figures"]


def test_a_part_that_something_else_shares_at_last_is_still_what_grows() -> None:
    """A result that was computed in the end refers to the same graph: both are their owner's."""
    shared = {BoundaryKind.PHASE_END, BoundaryKind.RUN_END}

    def part(state: State) -> float | None:
        return 40 * KIB * state.step if state.step > 9 and state.kind not in shared else None

    metric = Thing("error", lambda s: 40 * KIB * s.step, "module", "torchmetrics.Mean")
    state = Thing("error.total", part, "graph", "torch.Tensor", "error", role="graph")
    report = analyse(Program(epochs=1, steps=160, validation=0).plant(metric, state).build())
    assert [culprit.path for culprit in report.culprits] == ["error.total"]
