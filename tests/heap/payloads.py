"""What tests of adapters ask: the payload of some objects, and what one of them retains."""

from __future__ import annotations

from typing import Any

from leakscope.heap import graph
from leakscope.heap.graph import WalkRequest, WalkResult, walk

ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]
KB = 1000


def seen(engine: str, *roots: object, **options: Any) -> WalkResult:
    """Walk, selecting everything."""
    return walk(WalkRequest(roots=list(roots), **{"cutoff_bytes": 0, **options}), engine=engine)


def payload(engine: str, *roots: object) -> dict[str, int]:
    """Return the payload by place; ``host`` only where there is some."""
    return {place: size for place, size in seen(engine, *roots).payload_bytes.items() if size}


def retained(result: WalkResult, value: object) -> int:
    """Return what an object retains on the host."""
    found = zip(result.nodes.objects, result.nodes.host_bytes, strict=True)
    return next(size for o, size in found if o is value)


def unused(engine: str, holder: object, *others: object, **options: Any) -> int:
    """Return how much of what a holder retains can't be read."""
    result = seen(engine, holder, *others, **options)
    rows = zip(result.nodes.objects, result.nodes.unused_bytes, strict=True)
    return sum(next(row for value, row in rows if value is holder).values())
