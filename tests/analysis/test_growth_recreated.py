"""A graph that is recreated in each step grows with its inputs; one that accumulates leaks."""

from __future__ import annotations

from itertools import count

from synthetic_runs import KIB, MIB, Program, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.report import RunVerdict
from leakscope.model.run import Run

NODES = 100


def run_of(*, keeps: bool) -> Run:
    """Return a run whose loss keeps a graph that gets larger, recreated or not."""
    loss = Thing(
        "main()·loss", lambda s: MIB + 40 * KIB * s.step, "graph", "torch.Tensor", graph_nodes=NODES
    )
    run = Program(epochs=10, steps=20, validation=0).plant(loss).build()
    numbers = count(1000, NODES)
    for m in run.main.measurements:
        for row in m.census.rows if m.census is not None else ():
            if row.path == loss.path:
                youngest = next(numbers)
                row.made[:] = [10 if keeps else youngest - NODES + 1, youngest]
    return run


def test_a_graph_that_is_recreated_is_no_leak() -> None:
    report = analyse(run_of(keeps=False))
    assert report.verdict is RunVerdict.CLEAN, report.headline


def test_a_graph_that_holds_nodes_of_earlier_steps_is_one() -> None:
    report = analyse(run_of(keeps=True))
    assert [culprit.path for culprit in report.culprits] == ["main()·loss"]


def test_where_nothing_tells_when_it_was_made_it_is_accused() -> None:
    run = run_of(keeps=False)
    for m in run.main.measurements:
        for row in m.census.rows if m.census is not None else ():
            row.made.clear()
    assert [culprit.path for culprit in analyse(run).culprits] == ["main()·loss"]


def batches(size: float, others: float) -> Run:
    """Return a run whose batch gets longer each epoch, next to other growth of memory."""
    ids = Thing("main()·ids", lambda s: (1 + s.epoch) * size, "tensor", "torch.Tensor")
    program = Program(epochs=10, steps=20, validation=0).plant(ids)
    return program.swell(lambda s: others * s.epoch).build()


def test_one_tensor_at_a_time_that_is_a_small_part_of_growth_is_another_one() -> None:
    report = analyse(batches(200 * KIB, 4 * MIB))
    assert not report.culprits
    assert "main.ids" not in report.headline


def test_one_tensor_that_is_what_memory_grows_by_is_accused() -> None:
    report = analyse(batches(4 * MIB, 0.0))
    assert [culprit.path for culprit in report.culprits] == ["main()·ids"]
