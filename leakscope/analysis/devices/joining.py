"""Which tensor storages lie in which blocks of the allocator: found by address.

A tensor's storage begins where its block begins. One that begins inside is a part of a block that
somebody divides himself: a communication buffer, a pool, a flat parameter. Where several storages
cover a byte, the one of the best rank has it, of equals the largest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

NOBODY = -1


class Span(NamedTuple):
    """A live block: where it lies, and how much of it the program asked for."""

    start: int
    size: int
    requested: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


class Stored(NamedTuple):
    """A storage: where it lies, and whose it is. Of the ranks 0 is the best."""

    start: int
    size: int
    rank: int
    owner: int


class Join(NamedTuple):
    """The bytes of each block by owner, what nobody owns under :data:`NOBODY`."""

    parts: list[dict[int, int]]
    astray: int
    """Bytes of storages that begin in no live block."""


def join(blocks: Sequence[Span], storages: Sequence[Stored]) -> Join:
    """Return who owns the bytes of each block; blocks don't overlap.

    What the allocator has added by rounding up is the block's largest owner's.
    """
    order = sorted(range(len(blocks)), key=lambda number: blocks[number].start)
    starts = [blocks[number].start for number in order]
    inside: dict[int, list[Stored]] = defaultdict(list)
    astray = 0
    for storage in storages:
        place = bisect_right(starts, storage.start) - 1
        if place >= 0 and storage.start < blocks[order[place]].end:
            inside[order[place]].append(storage)
        else:
            astray += storage.size
    parts = [_divided(block, inside.get(number, ())) for number, block in enumerate(blocks)]
    return Join(parts, astray)


def _divided(block: Span, storages: Sequence[Stored]) -> dict[int, int]:
    parts: dict[int, int] = defaultdict(int)
    rounding = 0
    edges = {block.start, block.end, min(block.start + block.requested, block.end)}
    edges |= {min(edge, block.end) for s in storages for edge in (s.start, s.start + s.size)}
    waiting = sorted(storages, reverse=True)
    covering: list[tuple[int, int, int, int, int]] = []
    for left, right in pairwise(sorted(edges)):
        while waiting and waiting[-1].start <= left:
            s = waiting.pop()
            heappush(covering, (s.rank, -s.size, s.start, s.owner, s.start + s.size))
        while covering and covering[0][-1] <= left:
            heappop(covering)
        if covering:
            parts[covering[0][-2]] += right - left
        elif left >= block.start + block.requested:
            rounding += right - left
        else:
            parts[NOBODY] += right - left
    return _rounded_up(parts, rounding)


def _rounded_up(parts: dict[int, int], rounding: int) -> dict[int, int]:
    if rounding:
        owned = {owner: size for owner, size in parts.items() if owner != NOBODY}
        largest = max(owned, key=lambda owner: (owned[owner], -owner)) if owned else NOBODY
        parts[largest] = parts.get(largest, 0) + rounding
    return {owner: size for owner, size in parts.items() if size}
