"""Which growing rows hold the same objects, and what each of them holds alone."""

from __future__ import annotations

import msgspec

from leakscope.heap.graph import MOST_GROUPS, WalkResult, leak_shares
from leakscope.heap.memory import reached_bytes
from leakscope.heap.rows import Draft
from leakscope.model.census import CensusRow


def with_shares(
    result: WalkResult, drafts: dict[str, Draft], rows: list[CensusRow], growing: set[str]
) -> list[CensusRow]:
    """Return the rows; those that grow together say with which others they share, and their own.

    Args:
        result: of a walk that kept its graph.
        drafts: the nodes of every row, by path.
        rows: the rows of this census.
        growing: paths of the user's containers that have grown.

    """
    suspects = sorted((r for r in rows if r.path in growing), key=reached_bytes, reverse=True)
    if len(suspects) < 2 or not any(row.shared_bytes for row in suspects):
        return rows
    suspects = suspects[:MOST_GROUPS]
    numbers = [[result.nodes.number[n] for n in _nodes(drafts[r.path])] for r in suspects]
    found = {}
    for row, share in zip(suspects, leak_shares(result, numbers), strict=True):
        if share.others:
            found[row.path] = msgspec.structs.replace(
                row,
                exclusive_bytes=sum(share.exclusive.values()),
                leak_share_bytes=sum(share.bytes.values()),
                shared_with=[suspects[other].path for other in share.others],
            )
    return [found.get(row.path, row) for row in rows]


def _nodes(draft: Draft) -> list[int]:
    return [*draft.nodes, *draft.inner]
