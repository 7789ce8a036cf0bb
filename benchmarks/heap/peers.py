"""The tools that are measured: each looks at the whole heap, or at all that one object reaches."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakscope.heap import CensusTaker, census, graph, snapshot
from leakscope.heap.graph import Seal, WalkRequest, WalkResult
from leakscope.model.census import CensusScope

LEAKSCOPE = "leakscope"
"""What the others are compared with."""
MOST_FOR_REFERENCE = 1_000_000


@dataclass(frozen=True)
class Look:
    """What one call of a tool found."""

    objects: int | None = None
    """Objects that it counted, where it counts."""
    bytes: int | None = None
    """Bytes that it added up, where it only does that."""
    figures: dict[str, float] = field(default_factory=dict)
    """What the tool says of itself."""


@dataclass(frozen=True)
class Tool:
    """One way to look at a heap."""

    name: str
    prepare: Callable[[Any], Callable[[], Look]]
    """Takes the heap's root and returns what is timed."""
    package: str = ""
    """What has to be installed."""
    root_only: bool = False
    """It looks at what the root reaches, not at the process."""

    def missing(self, objects: int) -> str:
        """Return why it can't be measured on a heap of that size; empty where it can."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        if self.prepare in NATIVE and graph.engine_name() != "native":
            return "the native engine was not compiled"
        if self.prepare is census_of_reference and objects > MOST_FOR_REFERENCE:
            return f"the reference is for checking; above {MOST_FOR_REFERENCE:,} objects it crawls"
        return ""


def census_of_native(root: Any) -> Callable[[], Look]:
    """Time a full census: walk, sizes, dominators, retained sizes and the names of the rows.

    Each is the first of its taker, which goes on from no seal: `census_pauses.py` times the others.
    """
    del root
    readings: dict[str, float] = {}

    def walk(request: WalkRequest, *, seal: Seal | None = None) -> WalkResult:
        result = graph.walk(request, seal=seal)
        readings.update(walk_s=result.pause_s, scratch_bytes=result.scratch_bytes)
        return result

    def look() -> Look:
        census.walk = walk
        taken = CensusTaker(project_root=str(Path(__file__).parent)).take(CensusScope.FULL)
        return Look(objects=taken.objects, figures={**readings, "rows": len(taken.rows)})

    return look


def census_of_reference(root: Any) -> Callable[[], Look]:
    """Time the same with the engine in plain Python."""
    graph._native = None
    return census_of_native(root)


def snapshot_of_leakscope(root: Any) -> Callable[[], Look]:
    """Time a snapshot as a person calls it: names, retained sizes and totals by type."""
    del root
    folder = str(Path(__file__).parent)

    def look() -> Look:
        taken = snapshot(project_root=folder)
        return Look(objects=taken.objects, figures={"rows": len(taken.rows)})

    return look


def collection(root: Any) -> Callable[[], Look]:
    """Time the collector's own look at its objects, of which none is garbage."""
    del root
    tracked = len(gc.get_objects())

    def look() -> Look:
        gc.collect()
        return Look(objects=tracked)

    return look


def growth_of_objgraph(root: Any) -> Callable[[], Look]:
    """Time the counts of all types and their growth: the collector's objects only."""
    del root
    import objgraph

    peaks: dict[str, int] = {}

    def look() -> Look:
        objgraph.growth(limit=10, peak_stats=peaks)
        return Look(objects=sum(peaks.values()))

    return look


def table_of_guppy(root: Any) -> Callable[[], Look]:
    """Time the set of all reachable objects and the table of flat sizes that printing it shows."""
    del root
    from guppy import hpy

    session = hpy()

    def look() -> Look:
        heap = session.heap()
        str(heap)
        return Look(objects=heap.count)

    return look


def summary_of_pympler(root: Any) -> Callable[[], Look]:
    """Time the table of flat sizes by type."""
    del root
    from pympler import muppy, summary

    def look() -> Look:
        rows = summary.summarize(muppy.get_objects())
        return Look(objects=sum(count for _, count, _ in rows))

    return look


def size_by_pympler(root: Any) -> Callable[[], Look]:
    """Time the deep size of one object."""
    from pympler import asizeof

    def look() -> Look:
        return Look(bytes=asizeof.asizeof(root))

    return look


NATIVE = (census_of_native, snapshot_of_leakscope)
"""What isn't measured with the reference engine."""

TOOLS = {
    tool.name: tool
    for tool in (
        Tool(LEAKSCOPE, census_of_native),
        Tool("leakscope snapshot", snapshot_of_leakscope),
        Tool("leakscope (reference)", census_of_reference),
        Tool("gc.collect", collection),
        Tool("objgraph growth", growth_of_objgraph, package="objgraph"),
        Tool("guppy3 heap", table_of_guppy, package="guppy"),
        Tool("pympler summary", summary_of_pympler, package="pympler"),
        Tool("pympler asizeof", size_by_pympler, package="pympler", root_only=True),
    )
}
