"""What is said about a culprit: its sentence and its falsifier."""

from __future__ import annotations

import msgspec

from leakscope.analysis.graphs import said_of_graphs
from leakscope.analysis.growers import Grower
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.report import Falsifier, Remedy
from leakscope.model.sizes import human_bytes, human_count, human_share, plural

_ROOTS = {
    RootKind.LOCAL: "a local variable of a running function",
    RootKind.GLOBAL: "a module's global",
    RootKind.CLASS_ATTRIBUTE: "a class attribute",
    RootKind.THREAD_LOCAL: "a thread-local",
    RootKind.GENERATOR: "a suspended generator",
    RootKind.LIBRARY: "a library's own name",
}


def sentence(
    row: CensusRow,
    grower: Grower,
    share: float,
    total: float,
    peak: float,
    pinned: dict[str, int],
) -> str:
    """Return a culprit in a sentence or two, and what graphs it pins."""
    graphs = said_of_graphs(row.graph_nodes, pinned)
    return " ".join(s for s in (_growth(row, grower, share, total, peak), graphs) if s)


def _growth(row: CensusRow, grower: Grower, share: float, total: float, peak: float) -> str:
    if grower.growth == "across":
        return (
            f"{row.name} ({row.type}) grows by {per_unit(grower)}{_items(grower)} and held "
            f"{human_bytes(total)}; that is {human_share(share)} of the growth of memory."
        )
    text = (
        f"{row.name} ({row.type}) climbs by {per_unit(grower)}{_items(grower)} during "
        f"{grower.phase} to {human_bytes(total)}"
    )
    text += " and falls back when it ends" if grower.falls_back else ", which lasted to the end"
    if peak > 1.1 * total:
        text += f"; by its last batch that comes to about {human_bytes(peak)}"
    return f"{text}. That is {human_share(share)} of the height of the phase."


def with_other_holders(remedy: Remedy, others: list[str], freed: float) -> Remedy:
    """Return the remedy; where others hold the same contents, it says so and what that means."""
    if not others:
        return remedy
    names = listed([f"`{name}`" for name in others])
    holds = "holds" if len(others) == 1 else "hold"
    text = (
        f"{names} {holds} the same objects: letting go of them here alone frees "
        f"{human_bytes(freed)}. Let go of them there too. {remedy.text}"
    )
    return msgspec.structs.replace(remedy, text=text)


def listed(names: list[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def per_unit(grower: Grower) -> str:
    """Return ``2.1 MiB per validation``."""
    return f"{human_bytes(grower.trend.bytes_per_unit)} per {grower.unit}"


def _items(grower: Grower) -> str:
    items = grower.items_per_unit
    if not items or items < 0.05:
        return ""
    count = human_count(items)
    return f" (+{count} {'item' if count == '1' else 'items'})"


def falsifier(row: CensusRow, grower: Grower, holders: list[str]) -> Falsifier:
    """Return what would prove a verdict wrong; the census itself has tried the collector."""
    holder = holders[0] if holders else f"{row.name}, {_ROOTS.get(row.root, 'a root')}"
    reachable = f"gc.collect() would free 0 B of it: it is reachable from {holder}."
    if grower.growth == "within":
        return Falsifier(
            text="If it were needed only per batch, it would not be higher at the next one.",
            result=f"It climbed in {plural(grower.repeats, 'passage')}"
            f"{' and fell back' if grower.falls_back else ''}. {reachable}",
        )
    return Falsifier(
        text="If it were garbage, a collection would free it; if it were a cache filling or a "
        f"warm-up, it would stop: one more {grower.unit} at the same size would withdraw this.",
        result=f"{reachable} It grew through the last {grower.trend.points} readings.",
    )
