"""What it costs to ask autograd for the nodes of a graph, and what asking leaves behind.

    python benchmarks/heap/graphs.py

Every round makes graphs anew and walks them three times: without asking for a node, for the first
time, and once more. Asking makes a Python object for every node, which the node keeps for life; so
the second walk makes none. A list of as many plain instances is the measure.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tracemalloc
from typing import Any

import torch

from leakscope.heap.graph import WalkRequest, engine_name, walk

LAYERS = 20
"""Operations in a row; the nodes of one graph are these, a sum and the leaf's."""


class Plain:
    """What a graph's node is measured by."""

    __slots__ = ("before",)

    def __init__(self, before: object) -> None:
        self.before = before


def losses(count: int) -> list[Any]:
    """Return losses that keep graphs of their own over one leaf."""
    leaf = torch.ones(4, requires_grad=True)
    return [_loss(leaf) for _ in range(count)]


def _loss(leaf: Any) -> Any:
    value = leaf
    for _ in range(LAYERS):
        value = value * value
    return value.sum()


def instances(count: int) -> list[Plain]:
    """Return plain instances, each with an object of its own to refer to."""
    return [Plain(None) for _ in range(count)]


def seconds(roots: list[Any], budget: int = 10**8) -> tuple[float, int]:
    """Return the pause of one walk and how many nodes of graphs it entered."""
    gc.collect()
    result = walk(WalkRequest(roots=[roots], graph_budget=budget))
    return result.pause_s, result.graph_nodes


def one_round(graphs: int) -> dict[str, float]:
    """Return nanoseconds by what was walked: for a node of a graph, and for a plain instance."""
    made = losses(graphs)
    unasked, _ = seconds(made, budget=0)
    first, nodes = seconds(made)
    again, _ = seconds(made)
    plain, _ = seconds(instances(nodes))
    return {
        "first": (first - unasked) / nodes * 1e9,
        "again": (again - unasked) / nodes * 1e9,
        "plain": plain / nodes * 1e9,
    }


def bytes_left(graphs: int) -> float:
    """Return the bytes a node that stay allocated after the first walk of its graph."""
    made = losses(graphs)
    walk(WalkRequest(roots=[made], graph_budget=0))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        nodes = walk(WalkRequest(roots=[made])).graph_nodes
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / nodes
    finally:
        tracemalloc.stop()


def _said(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    one_round(options.graphs)  # imports and caches
    rounds = [one_round(options.graphs) for _ in range(options.rounds)]
    print(f"{engine_name()} engine, {options.graphs} graphs, median (least-most) of rounds")
    for name in ("first", "again", "plain"):
        print(f"{name:>6}: {_said([r[name] for r in rounds])} ns a node")
    for name in ("first", "again"):
        ratios = [r[name] / r["plain"] for r in rounds]
        print(f"{name:>6}: {_said(ratios)} times a plain instance")
    print(f"left behind: {bytes_left(options.graphs):.0f} bytes a node")


if __name__ == "__main__":
    main()
