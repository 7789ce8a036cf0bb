"""Autograd graphs in the census: what their nodes weigh, and graphs too large to be walked."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest
from heap_programs import RunProgram

from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

torch = pytest.importorskip("torch")
nn = torch.nn


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def bytes_in_use() -> int:
    """What the C heap has handed out and not got back."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("only glibc 2.33 or newer tells")
    mallinfo2.restype = _MallInfo
    gc.collect()
    shown = mallinfo2()
    return int(shown.uordblks + shown.hblkhd)


LOSSES = 200
MODELS = {
    "perceptron": lambda: (
        nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(16, 16), nn.ReLU())]),
        torch.rand(4, 16),
    ),
    "convolutions": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
        ),
        torch.rand(2, 3, 8, 8),
    ),
    "transformer": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2),
        torch.rand(2, 4, 32),
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_losses_kept_after_backward_weigh_what_malloc_says(model: str) -> None:
    network, batch = MODELS[model]()
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    losses = []
    for _ in range(2 * LOSSES):
        losses.append(network(batch).sum())
        losses[-1].backward()
        if len(losses) == LOSSES:
            before = bytes_in_use()
    grown = bytes_in_use() - before
    row = next(r for r in taker.take(CensusScope.FOCUSED).rows if r.name.endswith(".losses"))
    assert row.host_bytes / 2 == pytest.approx(grown, rel=0.25)


def test_a_census_says_when_graphs_are_larger_than_it_counts(run_program: RunProgram) -> None:
    taken = run_program(
        """
        import torch

        kept = []
        for count in (10, 1040):
            while len(kept) < count:
                total = torch.ones(1, requires_grad=True)
                for _ in range(200):
                    total = total + 1
                kept.append(total)
            look()
        """
    )
    assert [census.graph_truncated for census in taken.censuses] == [False, True]


def test_a_chain_that_torch_could_not_take_apart_is_left_alone(run_program: RunProgram) -> None:
    taken = run_program(
        """
        import torch

        total = torch.ones(1, requires_grad=True)
        for length in (1_000, 3_000, 90_000):
            for _ in range(length):
                total = total + 1
            look()
        del total
        """
    )
    assert [census.graph_truncated for census in taken.censuses] == [False, False, True]
    assert taken.row("total", 1).graph_nodes == 4_001


@pytest.mark.parametrize("every", [1, 10, 6_000])
@pytest.mark.parametrize("turn", ["", "totals.reverse()"])
def test_a_long_chain_is_left_alone_though_tensors_along_it_are_held(
    run_program: RunProgram, every: int, turn: str
) -> None:
    taken = run_program(
        f"""
        import torch

        total = torch.ones(1, requires_grad=True)
        totals = []
        for step in range(90_000):
            total = total + 1
            if step % {every} == 0:
                totals.append(total)
        {turn}
        look()
        totals.clear()
        del total
        """
    )
    assert [census.graph_truncated for census in taken.censuses] == [True]


def test_of_a_chain_with_shortcuts_the_longest_way_counts(run_program: RunProgram) -> None:
    taken = run_program(
        """
        import torch

        state = torch.ones(1, requires_grad=True)
        for _ in range(3_000):
            turned = state
            for _ in range(20):
                turned = turned + 1
            state = state + turned
        look()
        del state, turned
        """
    )
    assert [census.graph_truncated for census in taken.censuses] == [True]


def test_a_wide_graph_is_walked_to_its_end(run_program: RunProgram) -> None:
    taken = run_program(
        """
        import torch

        start = torch.ones(1, requires_grad=True)
        ends = [start + 1 + 1 + 1 for _ in range(5_000)]
        look()
        """
    )
    assert [census.graph_truncated for census in taken.censuses] == [False]
    assert taken.row("ends").graph_nodes == 15_001  # and one that adds up gradients
