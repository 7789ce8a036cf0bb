"""Which lines made what a container gained last, as far as tracemalloc saw it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from leakscope.heap.origins import traceback_of
from leakscope.heap.ownership import Ownership
from leakscope.model.census import Site

_FRAMES = 4
_SAMPLES = 3
_MOST_ITEMS = 200


@contextmanager
def traced() -> Iterator[None]:
    """Trace allocations meanwhile; where the program does so itself, leave that alone."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(_FRAMES)
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()


def sites_of(holder: object, ownership: Ownership) -> list[Site]:
    """Return the user's lines that made the latest items of a holder, or else itself.

    All lines of a stack count, for the one that made an item need not be the one that kept it; the
    innermost come first.
    """
    items = gc.get_referents(holder)
    if not isinstance(holder, list | tuple):
        # Those tell the collector of their last item first (Objects/listobject.c).
        items.reverse()
    # A cache keeps its items in a dict of its own.
    inner = [item for cache in items if type(cache) is dict for item in gc.get_referents(cache)]
    latest = [*islice(items, _MOST_ITEMS), *islice(reversed(inner), _MOST_ITEMS)]
    if type(holder) is dict:
        # The collector isn't told of keys that are all strings.
        latest += islice(reversed(holder), _MOST_ITEMS)
    stacks = list(islice(filter(None, (_lines(item, ownership) for item in latest)), _SAMPLES))
    stacks = stacks or [_lines(holder, ownership)]
    ranks: dict[tuple[str, int], int] = {}
    for stack in stacks:
        for rank, line in enumerate(stack):
            ranks[line] = min(rank, ranks.get(line, rank))
    ordered = sorted(ranks, key=lambda line: ranks[line])
    return [
        Site(file=file, line=line, count=len(ordered) - rank, bytes=len(ordered) - rank)
        for rank, (file, line) in enumerate(ordered)
    ]


def _lines(obj: object, ownership: Ownership) -> list[tuple[str, int]]:
    return [(file, line) for file, line in traceback_of(obj) if ownership.owns_file(file)]
