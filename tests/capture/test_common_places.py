"""Ranks measure at the same steps, though each decides by its own clock and nothing is exchanged.

The ranks of a simulation train in step: each waits at every batch until the slowest is there.
"""

from __future__ import annotations

import pytest
from fake_session import FakeSession

from leakscope.capture.budget import stride
from leakscope.capture.run_directory import World
from leakscope.model.record import CensusRecord

BATCH_SECONDS = 0.02


def train_together(costs: list[float], epochs: int, batches: int, *, aligned: bool):
    """Train ranks whose looks at the heap cost so many seconds each, in lockstep."""
    ranks = [FakeSession(focused=cost, whole=8 * cost, resumed=2 * cost) for cost in costs]
    if aligned:
        for number, rank in enumerate(ranks):
            rank.session.take_place(World(number, len(ranks)))
    for _ in range(epochs):
        passes = [one_pass(rank, batches) for rank in ranks]
        while None not in [next(pass_, None) for pass_ in passes]:
            latest = max(rank.clock.now for rank in ranks)
            for rank in ranks:
                rank.clock.now = latest
    for rank in ranks:
        rank.close()
    return ranks


def one_pass(rank, batches):
    dispatch, tracker = rank.session.gate.dispatch, rank.session.tracker
    rank._token += 1
    token = rank._token
    dispatch(lambda: tracker.loader_begin(token, site=("t.py", 1), loader=1, expected=None))
    for batch in range(batches):
        dispatch(tracker.loader_next, token)
        rank.clock.sleep(BATCH_SECONDS)
        dispatch(tracker.optimizer_step, 9)
        yield batch
    dispatch(tracker.loader_next, token)
    dispatch(tracker.loader_end, token)


def places(rank) -> set[tuple[str, str, int, int]]:
    """Where a rank looked at its heap after the floor, which has its own places."""
    looked = {record.boundary for record in rank.writer.of(CensusRecord)}
    return {
        (b.kind.value, b.phase, b.occurrence, b.batch)
        for b in rank.writer.boundaries
        if b.index in looked and b.time_s > 60
    }


def stalls(ranks) -> tuple[int, int]:
    """Return how many places stall all of them, and how many the one that looks most often has."""
    found = [places(rank) for rank in ranks]
    return len(set.union(*found)), max(len(item) for item in found)


@pytest.mark.parametrize("costs", [[0.01, 0.02], [0.01, 0.03, 0.015], [0.01, 0.012, 0.011, 0.013]])
def test_ranks_whose_looks_cost_differently_stall_together(costs):
    stalled, most = stalls(train_together(costs, 40, 400, aligned=True))
    apart, most_apart = stalls(train_together(costs, 40, 400, aligned=False))
    assert most >= 20
    assert stalled <= 1.35 * most
    assert stalled / most < apart / most_apart


def test_aligned_ranks_stay_within_their_budget():
    for rank in train_together([0.01, 0.03], 60, 400, aligned=True):
        assert rank.session._costs.total <= 0.02 * rank.elapsed + 0.1


def test_an_aligned_rank_looks_at_least_half_as_often():
    (alone,) = train_together([0.01], 60, 400, aligned=False)
    aligned, _ = train_together([0.01, 0.01], 60, 400, aligned=True)
    assert len(places(aligned)) >= 0.5 * len(places(alone))


@pytest.mark.parametrize(
    ("spacing", "period", "every"),
    [(0, 1, 1), (1, 1, 1), (1.1, 1, 2), (2, 1, 2), (5, 1, 8), (9, 2, 8), (3, 0, 1)],
)
def test_the_stride_is_the_next_power_of_two(spacing, period, every):
    assert stride(spacing, period) == every
