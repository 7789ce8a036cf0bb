"""What memory held, by name, at a choice of censuses; and two runs' trees joined into one."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.case import Case
from leakscope.analysis.retained.choosing import choose, last_at_work, like_pair, looks_of
from leakscope.analysis.retained.folding import fold
from leakscope.analysis.retained.joining import join_retained
from leakscope.analysis.retained.tree import grow
from leakscope.model.report import Culprit
from leakscope.model.retained import Retained, RetainedCensus

__all__ = ["find_retained", "join_retained"]


def find_retained(case: Case, culprits: Sequence[Culprit]) -> Retained | None:
    """Return what memory held at each of a few censuses, None where there was none.

    It is the main process's memory; the paths of the culprits are among the nodes.
    """
    looks = looks_of(case)
    if not looks:
        return None
    first, last = like_pair(case, looks)
    chosen = choose(case, looks, culprits)
    kept = [looks[place] for place in chosen]
    cutoff = max(look.census.cutoff_bytes for look in kept)
    tree = fold(grow(kept), {culprit.path for culprit in culprits}, cutoff)
    return Retained(
        nodes=tree.nodes,
        censuses=[
            RetainedCensus(
                boundary=look.boundary,
                scope=look.census.scope,
                cutoff_bytes=look.census.cutoff_bytes,
                truncated=look.census.graph_truncated,
                bytes=columns,
            )
            for look, columns in zip(kept, tree.bytes, strict=True)
        ],
        taken=len(looks),
        first=chosen.index(first),
        last=chosen.index(last),
        shown=chosen.index(last_at_work(case, looks)),
    )
