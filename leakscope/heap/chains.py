"""How long a chain of autograd nodes may be that is asked for its nodes.

To ask for a node makes a Python object for it, which the node then keeps for life, and torch frees
nodes that have one by recursion: some 190 bytes of stack for each node in a row. A chain of fifty
thousand, which a program may well make and torch alone frees without recursion, would then crash
the program. So a chain is measured while it is asked for, and left alone beyond that.

``python benchmarks/heap/graphs.py`` measures what asking costs: the time a node, and some hundred
bytes left behind with each.
"""

from __future__ import annotations

LONGEST_CHAIN = 5000


def has_long_chain(successors: list[list[int]], graph: set[int]) -> bool:
    """Return whether some autograd nodes in a row are too many.

    Args:
        successors: by node, the nodes it leads to.
        graph: the autograd nodes among them.

    """
    length: dict[int, int] = {}
    return any(_is_deep(start, successors, graph, length) for start in sorted(graph))


def _is_deep(
    start: int, successors: list[list[int]], graph: set[int], length: dict[int, int]
) -> bool:
    """Measure a node and all below it, deepest first; say whether a chain is too long."""
    path = [] if start in length else [(start, iter(successors[start]))]
    opened = {node for node, _ in path}
    while path:
        node, targets = path[-1]
        unseen = (t for t in targets if t in graph and t not in opened and t not in length)
        below = next(unseen, None)
        if below is not None:
            opened.add(below)
            path.append((below, iter(successors[below])))
            continue
        path.pop()
        length[node] = 1 + max((length.get(t, 0) for t in successors[node]), default=0)
        if length[node] >= LONGEST_CHAIN:
            return True
    return False
