"""What is reported on autograd graphs that a culprit keeps, and on circles through gradients."""

from __future__ import annotations

import pytest
from synthetic_runs import KIB, MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.analysis.verdict.wording import describe_graphs, pinned_bytes
from leakscope.model.census import CensusRow, Content, RootKind
from leakscope.model.report import Report, Severity


def row(kind: str, holds: list[Content], **more: object) -> CensusRow:
    return CensusRow(
        path="main()·kept", name="main.kept", root=RootKind.LOCAL, type=kind, kind=kind,
        holds=holds, **{"host_bytes": MIB, "graph_nodes": 70, **more},
    )  # fmt: skip


def tensors(count: int, detail: str, size: int = MIB) -> list[Content]:
    return [Content(type="torch.Tensor", count=count, bytes=size, detail=detail)]


def test_a_tensor_with_a_graph_pins_all_that_it_retains_on_every_device() -> None:
    kept = row("graph", [], device_bytes={"cuda:0": 3 * MIB}, shared_bytes={"host": 5})
    assert pinned_bytes(kept) == {"host": MIB + 5, "cuda:0": 3 * MIB}


@pytest.mark.parametrize(
    ("detail", "own"),
    [
        ("float32 (32, 64) on cpu", 32 * 64 * 4),
        ("bfloat16 (100,) on cpu", 200),
        ("bool (100,) on cpu", 100),
        ("float64 () on cpu, 3 KiB unused", 8),
        ("", 0),
    ],
)
def test_the_values_of_kept_tensors_are_not_pinned_by_their_graphs(detail: str, own: int) -> None:
    assert pinned_bytes(row("list", tensors(10, detail))) == {"host": MIB - 10 * own}


def test_nothing_is_reported_of_bytes_where_other_things_are_kept() -> None:
    errors = [Content(type="ValueError", count=9, bytes=MIB)]
    kept = row("list", errors)
    assert pinned_bytes(kept) == {}
    assert describe_graphs(kept.graph_nodes, {}) == "It keeps 70 autograd nodes alive."


def test_without_nodes_nothing_is_reported() -> None:
    assert pinned_bytes(row("list", tensors(10, ""), graph_nodes=0)) == {}
    assert describe_graphs(0, {}) == ""


def test_a_culprit_says_how_many_nodes_pin_how_much() -> None:
    program = Program(epochs=8).plant(
        Thing("train()·total", lambda s: s.step * 64 * KIB, "graph", graph_nodes=700)
    )
    culprit = analyse(program.build()).culprits[0]
    assert culprit.graph_nodes == 700
    assert culprit.graph_bytes == {"host": culprit.total_bytes}
    assert "It keeps 700 autograd nodes alive, which pin 20 MiB on the host." in culprit.sentence


def module_list(size_of_head: float, heads: int) -> Program:
    """A module list that has a head more in each epoch until there are enough."""

    def head(number: int) -> Thing:
        def size(state: State) -> float | None:
            return size_of_head if state.epoch >= number else None

        return Thing(
            f"main()·model.heads[{number}]", size, "module", "torch.nn.Linear", "main()·model.heads"
        )

    def all_heads(state: State) -> float:
        return 1000 + size_of_head * (min(state.epoch, heads - 1) + 1)

    whole = Thing("main()·model.heads", all_heads, "module", "torch.nn.ModuleList")
    return Program(epochs=10).plant(whole, *(head(n) for n in range(heads)))


def test_items_that_are_added_to_a_module_are_its_growth() -> None:
    culprits = analyse(module_list(MIB, 10).build()).culprits
    assert [c.name for c in culprits] == ["main.model.heads"]
    assert culprits[0].bytes_per_unit == pytest.approx(MIB, rel=0.01)


def test_a_module_that_has_all_its_items_after_some_epochs_does_not_grow() -> None:
    assert analyse(module_list(MIB, 4).build()).culprits == []


def leaking_learners(
    epochs: int,
    graph_nodes: int,
    full_every: int = 1,
    full_at: tuple[int, ...] = (),
    rss: bool = True,
) -> Report:
    def size(state: State) -> float:
        kept = state.step / 40 if full_at else state.epoch
        return max(kept * 8 * MIB, 64 * KIB)

    held = Thing(
        "native·torch.nn.parameter.Parameter", size, "tensor", "torch.nn.parameter.Parameter",
        root=RootKind.NATIVE, user=False, graph_nodes=graph_nodes,
    )  # fmt: skip
    program = Program(epochs=epochs, full_every=full_every, full_at=full_at).plant(held)
    if not rss:
        program.weighs = False
        program.swell(lambda s: -size(s))
    return analyse(program.build())


def test_parameters_in_a_circle_with_their_gradients_are_reported_by_their_graphs() -> None:
    found = leaking_learners(epochs=10, full_every=1, graph_nodes=40).findings[0]
    assert found.kind == "gradient_cycle"
    assert found.severity is Severity.WARNING
    assert "autograd.grad" in found.remedy.title
    assert found.bytes_per_unit == pytest.approx(8 * MIB, rel=0.02)


def test_parameters_without_graphs_are_in_no_such_circle() -> None:
    kinds = {f.kind for f in leaking_learners(epochs=10, full_every=1, graph_nodes=0).findings}
    assert "native_held" in kinds
    assert "gradient_cycle" not in kinds


def test_two_looks_are_enough_where_resident_memory_tells_the_same() -> None:
    found = leaking_learners(epochs=10, full_every=5, graph_nodes=40).findings[0]
    assert found.kind == "gradient_cycle"
    assert found.bytes_per_unit == pytest.approx(8 * MIB, rel=0.08)


def test_one_look_at_a_circle_is_enough_because_training_begins_without() -> None:
    found = leaking_learners(epochs=10, full_every=7, graph_nodes=40).findings[0]
    assert found.kind == "gradient_cycle"
    assert found.bytes_per_unit == pytest.approx(8 * MIB, rel=0.08)
    assert leaking_learners(epochs=10, full_every=9, graph_nodes=0).findings[0].kind != found.kind


@pytest.mark.parametrize("full_at", [(36,), (4, 396), (28, 316, 360), (60,), (2, 30, 50, 90)])
def test_a_look_in_the_middle_of_an_epoch_has_seen_a_part_of_what_the_epoch_adds(
    full_at: tuple[int, ...],
) -> None:
    found = leaking_learners(epochs=10, full_at=full_at, graph_nodes=40).findings[0]
    assert found.kind == "gradient_cycle"
    assert found.bytes_per_unit == pytest.approx(8 * MIB, rel=0.03)


def test_two_looks_are_too_few_where_resident_memory_does_not_grow() -> None:
    report = leaking_learners(epochs=10, full_every=5, graph_nodes=40, rss=False)
    assert report.findings == []
