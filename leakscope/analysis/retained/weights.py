"""How wide each node of a retained tree is: by what it holds, or by how much changed in it."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.model.retained import Retained


@dataclass(frozen=True)
class Weights:
    """By node: its bytes or their change, and the width that it has in a picture.

    Widths of children never add up to more than their parent's. Bytes are None where nothing can
    be told.
    """

    bytes: list[int | None]
    widths: list[int]


def held(retained: Retained, device: str, census: int) -> Weights:
    """Return what each node held at a census."""
    sizes = retained.censuses[census].bytes.get(device, [0] * len(retained.nodes))
    return Weights([*sizes], [size or 0 for size in sizes])


def grown(retained: Retained, device: str, first: int, last: int) -> Weights:
    """Return by how much each node grew; it is as wide as all that changed in it, up or down.

    Where only one of both censuses looked at the whole heap, what both saw is compared: then the
    whole is the sum of its parts.
    """
    sides = (retained.censuses[first], retained.censuses[last])
    blank = [0] * len(retained.nodes)
    before, after = (side.bytes.get(device, blank) for side in sides)
    net = [None if b is None or a is None else a - b for b, a in zip(before, after, strict=True)]
    parts = [0] * len(net)
    widths = [0] * len(net)
    for place in range(len(net) - 1, -1, -1):
        change = net[place]
        if place == 0 and sides[0].scope is not sides[1].scope:
            change = net[0] = parts[0]
        if change is None:
            continue
        widths[place] += abs(change - parts[place])
        if place:
            above = retained.nodes[place].parent
            parts[above] += change
            widths[above] += widths[place]
    return Weights(net, widths)
