"""The dominator tree of the reference against networkx and against its definition."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from leakscope.heap.reference.selection import immediate_dominators, retained_sums

MOST = 12


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, MOST))
    node = st.integers(0, count - 1)
    return draw(st.lists(st.lists(node, max_size=4), min_size=count, max_size=count))


def reached(successors: list[list[int]], without: int | None = None) -> set[int]:
    seen, waiting = set(), [0]
    while waiting:
        node = waiting.pop()
        if node not in seen and node != without:
            seen.add(node)
            waiting += successors[node]
    return seen


@given(graphs())
def test_dominators_are_those_of_networkx(successors: list[list[int]]) -> None:
    graph = nx.DiGraph((a, b) for a, targets in enumerate(successors) for b in targets)
    graph.add_node(0)
    expected = {k: v for k, v in nx.immediate_dominators(graph, 0).items() if k != 0}
    found, _ = immediate_dominators(successors, 0)
    assert {node: above for node, above in enumerate(found) if above >= 0} == {
        k: v for k, v in expected.items() if v is not None
    }


@given(graphs())
def test_a_retained_sum_is_what_would_be_cut_off(successors: list[list[int]]) -> None:
    own = [1 << i for i in range(len(successors))]
    sums = retained_sums(*immediate_dominators(successors, 0), own)
    everything = reached(successors)
    for node in everything:
        cut_off = everything - reached(successors, without=node)
        assert sums[node] == sum(own[n] for n in cut_off)


def test_a_long_chain_needs_no_recursion() -> None:
    length = 50_000
    chain = [[i + 1] for i in range(length)] + [[]]
    found, _ = immediate_dominators(chain, 0)
    assert found[length] == length - 1
