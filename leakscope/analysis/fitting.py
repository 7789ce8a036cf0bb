"""What would have made a run fit: what grew comes first, then what could be made smaller."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.analysis.case import Case
from leakscope.analysis.cuda.slack import returnable
from leakscope.analysis.cuda.ways_to_fit import Need, ranked_ways, way_of, ways_to_fit
from leakscope.analysis.live import held, live_by_name
from leakscope.analysis.series import HOST
from leakscope.analysis.shortage import Shortage
from leakscope.model import gauge
from leakscope.model.explanation import BlockClass
from leakscope.model.report import Culprit, Severity
from leakscope.model.shortage import Advice
from leakscope.model.sizes import human_bytes, human_share

NOTEWORTHY = 0.1
"""A culprit that is only a note is worth mending if it held this part of what was live."""
LARGE_SHARE = 0.2
"""A name that holds so much is worth a look though it wasn't seen to grow."""
MOST_WAYS = 8
_CLASSES = {
    "parameters": BlockClass.WEIGHTS,
    "gradients": BlockClass.GRADIENTS,
    "optimizer_state": BlockClass.OPTIMIZER,
    "graph": BlockClass.ACTIVATIONS,
}


def ways_for(case: Case, found: Shortage, culprits: list[Culprit]) -> list[Advice]:
    """Return what to do about a shortage, the best first."""
    need = _need(found)
    others = [way for way in _others(case, found, need) if way.bytes]
    if found.record is not None and found.record.snapshot is not None:
        ways = [*others, *ways_to_fit(need)]
    else:
        ways = ranked_ways(need, others)
    mends = list(_mends(found, culprits, need))
    large = [] if mends else list(_large(found, need))
    return [*_too_much_at_once(found), *mends, *large, *ways][:MOST_WAYS]


def _need(found: Shortage) -> Need:
    components = found.census.components if found.census else {}
    requested, free = found.requested, found.free
    is_known = requested is not None and free is not None
    missing = max(0, (requested or 0) - (free or 0) - returnable(found.figures))
    snapshot = None if found.record is None else found.record.snapshot
    return Need(
        request=requested,
        missing=missing if is_known else None,
        is_fragmentation=found.kind == "fragmentation",
        kind=BlockClass.OTHER,
        figures=found.figures,
        classes={
            kind: components.get(role, {}).get(found.device, 0) for role, kind in _CLASSES.items()
        },
        sites=[],
        largest_hole=found.largest_hole,
        pages=0 if snapshot is None else snapshot.pages,
        is_expandable=snapshot is not None and snapshot.expandable,
        is_training=True,
        told_by="by the names that hold them",
    )


def _too_much_at_once(found: Shortage) -> Iterator[Advice]:
    requested, limit = found.requested, found.limit
    if requested is not None and limit is not None and requested > limit:
        yield Advice(
            title="Ask for less at once",
            helps=True,
            evidence=f"The one request of {human_bytes(requested)} is more than all there is "
            f"({human_bytes(limit)}): nothing that was let go of would have made it fit.",
            bytes=requested,
        )


def _mends(found: Shortage, culprits: list[Culprit], need: Need) -> Iterator[Advice]:
    for culprit in culprits:
        if culprit.device != found.device:
            continue
        seen = _held_by(found, culprit)
        size = _at_the_end(found, culprit, seen)
        if culprit.severity is Severity.NOTE and size < NOTEWORTHY * found.live:
            continue
        share = f" ({human_share(size / found.live)} of what was live)" if found.live else ""
        yield Advice(
            title=f"Mend {culprit.name}",
            helps=need.suffices(size),
            evidence=f"It grew by {human_bytes(culprit.bytes_per_unit)} per {culprit.unit} and "
            f"held {human_bytes(size)}{share}{_by_rate(seen, size)}. {culprit.remedy.title}.",
            bytes=size,
        )


def _at_the_end(found: Shortage, culprit: Culprit, seen: int) -> int:
    """Return what a culprit held when memory ran out, by its rate since it was weighed."""
    if culprit.unit != "step" or culprit.growth != "across":
        return seen
    return min(round(seen + culprit.bytes_per_unit * found.steps_since), max(seen, found.live))


def _by_rate(seen: int, size: int) -> str:
    return f", {human_bytes(seen)} when it was weighed last and the rest by its rate" * (
        size > seen
    )


def _held_by(found: Shortage, culprit: Culprit) -> int:
    rows = [] if found.census is None else found.census.rows
    row = next((row for row in rows if row.path == culprit.path), None)
    return culprit.total_bytes if row is None else held(row, found.device)


def _large(found: Shortage, need: Need) -> Iterator[Advice]:
    """Yield what held much of the user's own, where nothing was seen to grow."""
    if found.census is None:
        return
    gathered = {r.name for r in found.census.rows if r.user and r.role in ("accumulation", "cache")}
    for row in live_by_name(found.census, found.device, found.live):
        if row.name in gathered and row.share >= LARGE_SHARE:
            evidence = (
                f"It held {human_bytes(row.bytes)} ({row.detail}); whether it grows, too few "
            )
            yield way_of(need, f"Keep less in {row.name}", row.bytes, evidence + "looks tell.")


def _others(case: Case, found: Shortage, need: Need) -> Iterator[Advice]:
    census = found.census
    garbage = census.garbage_bytes or 0 if census is not None and found.device == HOST else 0
    yield way_of(
        need,
        "Break reference cycles, or collect in time",
        garbage,
        f"{human_bytes(garbage)} were reached by no name and awaited the collector.",
    )
    graphs = need.classes.get(BlockClass.ACTIVATIONS, 0)
    if found.record is not None and found.record.phase.startswith(("validation", "test")):
        yield way_of(
            need,
            "Validate without gradients",
            graphs,
            f"{human_bytes(graphs)} were kept for a backward pass during {found.record.phase}: "
            "torch.no_grad() around it keeps none of that.",
        )
    if found.device == HOST:
        yield from _of_the_host(case, need)


def _of_the_host(case: Case, need: Need) -> Iterator[Advice]:
    last = len(case.track) - 1
    slack = int(case.nearest(gauge.MALLOC_FREE, last) or 0)
    yield way_of(
        need,
        "Let the C heap return what is free",
        slack,
        f"{human_bytes(slack)} were free in the C heap and not returned: malloc_trim(0), or "
        "MALLOC_ARENA_MAX=2 in the environment.",
    )
    workers = int(case.nearest(gauge.CHILDREN_PSS, last) or 0)
    yield way_of(
        need,
        "Fewer worker processes",
        workers,
        f"Child processes, DataLoader workers among them, held {human_bytes(workers)}.",
    )
