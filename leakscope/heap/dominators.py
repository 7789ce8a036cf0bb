"""Immediate dominators and retained sums of a rooted graph, in plain Python.

Semi-NCA (Georgiadis, *Linear-Time Algorithms for Dominators and Related Problems*, 2005, §2.3):
semidominators as Lengauer and Tarjan find them, then each node's nearest common ancestor of its
parent and semidominator by climbing the tree that is already built. The native engine does the
same on arrays of C integers.
"""

from __future__ import annotations

from collections.abc import Sequence


def immediate_dominators(
    successors: Sequence[Sequence[int]], root: int
) -> tuple[list[int], list[int]]:
    """Return each node's immediate dominator and the nodes that were reached, in preorder.

    The dominator is -1 for the root and for what it does not reach.
    """
    order, parent = _preorder(successors, root)
    number = {node: i for i, node in enumerate(order)}
    predecessors: list[list[int]] = [[] for _ in order]
    for node in order:
        for target in successors[node]:
            predecessors[number[target]].append(number[node])
    ancestors = _semi_nca(parent, predecessors)
    result = [-1] * len(successors)
    for i in range(1, len(order)):
        result[order[i]] = order[ancestors[i]]
    return result, order


def retained_sums(dominators: Sequence[int], order: Sequence[int], own: Sequence[int]) -> list[int]:
    """Return for each node the sum of ``own`` over everything it dominates, itself included.

    ``order`` must name dominators before what they dominate, as a preorder does.
    """
    total = list(own)
    for node in reversed(order):
        if dominators[node] >= 0:
            total[dominators[node]] += total[node]
    return total


def _preorder(successors: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int]]:
    """Return nodes in depth-first order and the position of each one's parent in that order."""
    order, parent = [root], [0]
    seen = {root}
    stack = [(0, iter(successors[root]))]
    while stack:
        position, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((len(order), iter(successors[target])))
                order.append(target)
                parent.append(position)
                break
        else:
            stack.pop()
    return order, parent


def _semi_nca(parent: list[int], predecessors: list[list[int]]) -> list[int]:
    """Return immediate dominators in preorder numbers."""
    count = len(parent)
    dominator = list(parent)
    ancestor = list(parent)
    semi = list(range(count))
    label = list(range(count))
    for w in range(count - 1, 0, -1):
        best = w
        for v in predecessors[w]:
            if v > w:
                _compress(v, w, ancestor, label)
            if label[v] < best:
                best = label[v]
        semi[w] = label[w] = best
    for w in range(1, count):
        above = dominator[w]
        while above > semi[w]:
            above = dominator[above]
        dominator[w] = above
    return dominator


def _compress(v: int, last: int, ancestor: list[int], label: list[int]) -> None:
    """Let ``label[v]`` be the least on the way up through nodes numbered above ``last``."""
    path = []
    while ancestor[v] > last:
        path.append(v)
        v = ancestor[v]
    for u in reversed(path):
        above = ancestor[u]
        label[u] = min(label[u], label[above])
        ancestor[u] = ancestor[above]
