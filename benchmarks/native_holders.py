"""What looking for loops through autograd, asking who refers to what native code seems to hold, and
counting registries add to a walk of the whole heap.

A heap of torch's own objects and records of the program's, and circles through hooks that no
collection frees, some more in each round. In a round the heap is walked twice with the search for
loops and twice without, each in turn first, so that a drift of the machine touches both; their
ratio is taken within the round, of processor time. What the search takes by itself is printed as
part of the rest of its walk. Every row is searched again each time, which a session does only where
its objects have doubled: it is the most that the search costs.

Where native code alone seems to hold more than when that was asked last, a walk asks all that is
sealed whether it refers to it: here the first of each round, before which circles were made. Its
ratio to the others is printed as well, and what it makes of a round.

    python benchmarks/native_holders.py [--size 300000] [--rounds 30] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakscope.heap.autograd_loops import LoopMemory
from leakscope.heap.census import CensusTaker
from leakscope.model.census import CensusRow, CensusScope
from leakscope.probes.interpreter import RegistriesProbe

NEW_LOOPS = 20
WARM_UP = 2
"""Rounds that aren't counted: the first census seals."""
MOST_SLOWER = 1.1
"""How much longer a walk may take by either."""


class NoSearch(LoopMemory):
    """Leaves rows as they are."""

    def with_loops(self, rows: list[CensusRow], *_: object) -> list[CensusRow]:
        """Return the rows."""
        return rows


class TimedSearch(LoopMemory):
    """Searches, and tells how long that took."""

    seconds = 0.0

    def with_loops(self, *given: Any) -> list[CensusRow]:
        """Return the rows with their loops."""
        began = time.process_time()
        found = super().with_loops(*given)
        self.seconds = time.process_time() - began
        return found


def make_loops(count: int) -> None:
    """Make circles of three kinds, which nothing frees."""
    for _ in range(count):
        layer = nn.Linear(64, 256)
        hidden = layer(torch.rand(16, 64))
        out = hidden.exp().sum()
        hidden.register_hook(lambda grad, out=out: grad * out.detach())
        layer.weight.register_post_accumulate_grad_hook(lambda weight, owner=layer: None)
        hidden.grad_fn.register_hook(lambda *_, out=out: None)


def walked(taker: CensusTaker, *, searches: bool) -> tuple[float, float, int]:
    """Return the processor time of a walk in seconds and that of the search in it, and how many
    rows are reported as loops.
    """
    timed = TimedSearch()
    taker._loops = timed if searches else NoSearch()
    began = time.process_time()
    census = taker.take_aside(CensusScope.FULL)
    found = sum(bool(row.loop) for row in census.rows)
    return time.process_time() - began, timed.seconds, found


def main() -> None:
    """Measure, and print the ratio with its quartiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size, rounds = (20_000, 6) if options.quick else (options.size, options.rounds)
    torch.set_num_threads(1)
    records: list[Any] = [
        {"id": number, "values": [number, -number]} for number in range(size // 3)
    ]
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    ratios, asking, seconds, within, loops = [], [], [], [], 0
    for number in range(rounds + WARM_UP):
        make_loops(NEW_LOOPS)
        taken: dict[bool, float] = {True: 0.0, False: 0.0}
        turns: list[float] = []
        first = bool(number % 2)
        for searches in (first, not first, not first, first):
            took, spent, found = walked(taker, searches=searches)
            taken[searches] += took
            turns.append(took)
            if searches and number >= WARM_UP:
                within.append(spent / (took - spent))
            loops = max(loops, found)
        if number >= WARM_UP:
            ratios.append(taken[True] / taken[False])
            asking.append(turns[0] / statistics.fmean(turns[1:]))
            seconds.append(taken[False] / 2)
    probe = RegistriesProbe()
    probe.gauges()
    counting = []
    for _ in range(rounds):
        began = time.process_time()
        probe.gauges()
        counting.append(time.process_time() - began)
    low, middle, high = statistics.quantiles(ratios, n=4)
    least, usual, most = statistics.quantiles(asking, n=4)
    result = {
        "records": len(records),
        "loops_made": NEW_LOOPS * 3 * (rounds + WARM_UP),
        "rows_told_as_loops": loops,
        "walk_without_ms": round(statistics.median(seconds) * 1e3, 2),
        "ratio": round(middle, 3),
        "ratio_quartiles": [round(low, 3), round(high, 3)],
        "asking_ratio": round(usual, 3),
        "asking_ratio_quartiles": [round(least, 3), round(most, 3)],
        "asking_of_a_round": round((usual + 3) / 4, 3),
        "search_of_the_rest": round(statistics.median(within), 4),
        "search_of_the_rest_at_most": round(max(within), 4),
        "counting_registries_ms": round(statistics.median(counting) * 1e3, 3),
        "search_is_within": 1 + statistics.median(within) <= MOST_SLOWER,
        "asking_is_within": (usual + 3) / 4 <= MOST_SLOWER,
    }
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
