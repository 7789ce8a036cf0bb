"""The search for growth: from the table of rows to growers at their accumulation points.

``search_growth`` judges all rows, excludes what is no leak and follows the rest down to their
accumulation points; the order of its steps is that of ``exclusions``.

The accumulation point is the one container in which growth piles up: Eclipse MAT's walk down the
dominator tree, applied to growth instead of size. From a row that grows, walk down into each single
object that carries growth of its own; stop where growth spreads over many objects. That is neither
the owner of the container nor one of its elements.

Entries of one container that one statement feeds are one culprit, their container:
``self.sides[side].append(features)`` fills ``sides['real']`` and ``sides['fake']`` alike. Entries
that different statements fill are culprits of their own, and so is one that carries most of the
growth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

import msgspec
import numpy as np

from leakscope.analysis.accounting.native import (
    NativeGrowth,
    growing_allocations,
    is_of_torch,
    with_contents,
)
from leakscope.analysis.accounting.terms import (
    Term,
    judge_terms,
    judge_unnamed,
    unnamed_at,
    unnamed_readings,
)
from leakscope.analysis.columns.series import HOST, FloatArray, IntArray, RowTable
from leakscope.analysis.growth import judge, part_of, policy, theil_sen
from leakscope.analysis.growth.exclusions import (
    MOVED,
    bound_of,
    excludes,
    with_rules_applied,
    without_excluded,
)
from leakscope.analysis.growth.rows import Grower, find_across, find_within, grower_of, in_units
from leakscope.analysis.run_context import RunContext
from leakscope.model.path_pattern import Steps, parse_steps
from leakscope.model.record import NativeOwner
from leakscope.model.trend import Reason, Trend, TrendVerdict

MOST_NOTED = 100
"""Paths of which the model's judgement is recorded."""
CONTAINERS = {"dict", "list", "tuple", "set", "deque"}
_TABLES = {"DataFrame", "Series"}
"""What lies below them is how pandas lays out one table: a name that no user wrote."""


@dataclass(frozen=True)
class OtherGrowth:
    """Memory that grows without a name, and is none of the graph that isn't walked."""

    objects: Term | None = None
    """New objects that no name of the user's holds, of types that no graph has."""
    native: tuple[NativeGrowth, ...] = ()
    """Sampled allocations, at lines where torch allocates nothing that stays."""
    unexplained: Term | None = None
    """What these come to."""

    @property
    def net_bytes(self) -> float:
        """Both together."""
        return sum(term.trend.net_bytes for term in (self.objects, self.unexplained) if term)


@dataclass(frozen=True)
class DeepGraph:
    """A graph of which censuses show no more, and memory that grows without a name meanwhile.

    Of a chain of thousands of autograd nodes no more is read, for torch would free what was read
    for by recursion.
    """

    path: int
    """The innermost that kept it."""
    trend: Trend
    """Of what grows without a name and is put down to the graph."""
    share: float
    """Of the growth of memory."""
    other: OtherGrowth
    is_counted: bool = False
    """Whether a grower has it in its rate."""


@dataclass(frozen=True)
class SearchResult:
    """What grows, and what was looked at."""

    growers: list[Grower]
    filling: list[Grower]
    """What grows towards a bound that it declares, or that the model's size sets."""
    trends: dict[int, Trend]
    """Of each path large enough to be judged across phases."""
    owners: list[Grower] = field(default_factory=list)
    """All that grows, at its accumulation point or above: across phases by the boundary."""
    at_bound: set[int] = field(default_factory=set)
    """What may or may not grow, and fills a bound that it declares."""
    terms: dict[str, Term] = field(default_factory=dict)
    """What private memory is made of without a name, by kind; empty where it is bounded."""
    native: dict[int, NativeGrowth] = field(default_factory=dict)
    """By path, what libraries allocate for the items of what grows."""
    deep: DeepGraph | None = None
    """The graph that has become too deep for later censuses, if one has."""


def search_growth(case: RunContext) -> SearchResult:
    """Return what grows across and within phases, each once, at its accumulation point.

    The steps: rows that grow across phases, those seen too seldom that carry the growth of memory
    among them, less what moved; their accumulation points, in their unit of work, less what a rule
    excludes; what climbs within phases outside of these, in the same way; the terms without a name.
    """
    table = case.table
    grown, trends = find_across(case.observations)
    _note_trends(case, trends)
    carriers = find_carriers(case, trends)
    grown |= carriers
    moved = {k: g for k, g in grown.items() if excludes(case, MOVED, g)}
    grown = {k: g for k, g in grown.items() if k not in moved}
    at_bound = _bounded_by_declaration(case, trends)
    across: list[Grower] = []
    for device in table.retained:
        mine = {path: g for (path, on), g in grown.items() if on == device}
        points = [mine[path] for path in accumulation_points(table, mine)]
        for grower in points:
            _name_by_entries(table, mine, grower)
        across += [
            in_units(case.observations, case.places, _at_the_rate_of(case, g, carriers))
            for g in points
        ]
    named = _on_main_device(across)
    across, filling = without_excluded(case, named)
    across = [share_named(table, g) for g in across]
    grown_paths = {path for path, _ in grown}
    climbing = [
        {path: g for path, g in climbers.items() if path not in grown_paths}
        for device in table.retained
        for climbers in find_within(case.track, table, device).values()
    ]
    found = [kept[path] for kept in climbing for path in accumulation_points(table, kept)]
    # What leads through one that grows across phases climbs along with it.
    through = tuple(f"{table.paths[g.path]}{step}" for g in across for step in ".[")
    outside = [g for g in found if not table.paths[g.path].startswith(through)]
    within, _ = without_excluded(case, _on_main_device(outside))
    owners = [*grown.values(), *(g for kept in climbing for g in kept.values())]
    growers = across + within
    from_elsewhere = {path: g for (path, on), g in moved.items() if on == HOST}
    known = [*named, *(from_elsewhere[p] for p in accumulation_points(table, from_elsewhere))]
    terms = judge_terms(case, growers, known, trends)
    terms = with_rules_applied(case, terms, growers, filling)
    deep = _deep_graph(case, terms, growers) if table.truncated.any() else None
    own = next((g for g in across if deep and _is_about(table, g.path, deep.path)), None)
    if deep is not None and own is not None:
        # What was seen too seldom to be judged by itself is what grows in that which holds it.
        inner = max(own.path, deep.path, key=lambda path: len(table.paths[path]))
        whole = replace(with_contents(case, own, deep.trend), path=inner)
        growers = [whole if g is own else g for g in growers]
        deep = replace(deep, path=inner, is_counted=True)
    return SearchResult(growers, filling, trends, owners, at_bound, terms, deep=deep)


def _name_by_entries(table: RowTable, growers: Mapping[int, Grower], whole: Grower) -> None:
    """Give a container of as many objects as before, in which the same attribute grows, the name,
    the type and the source of that attribute: ``channels['x'].samples``, ``channels['y'].samples``.
    """
    latest, path = table.latest, table.paths[whole.path]
    length = table.length[whole.path, whole.columns]
    known = length[np.isfinite(length)]
    if latest[whole.path].kind not in CONTAINERS or not len(known) or known[-1] > known[0]:
        return
    below = [
        (p, parse_steps(table.paths[p].removeprefix(path))) for p in table.descendants(whole.path)
    ]
    ways = {p: way for p, way in below if way and way[0].is_item}
    alike = _growing_alike(table, growers, whole, ways) or _in_each_item(table, whole, ways)
    if not alike:
        return
    row, its = latest[alike[0]], latest[whole.path]
    way = _written(ways[alike[0]][1:])
    is_named_alike = len({latest[p].name for p in alike}) == 1
    name = row.name if is_named_alike else f"{its.name}[*]{way}"
    named = msgspec.structs.replace(row, name=name, host_bytes=its.host_bytes)
    latest[whole.path] = msgspec.structs.replace(named, path=its.path, parent=its.parent)
    table.entries[whole.path] = msgspec.structs.replace(named, path=f"{its.path}[*]{way}")


def _growing_alike(
    table: RowTable, growers: Mapping[int, Grower], whole: Grower, ways: Mapping[int, Steps]
) -> list[int]:
    """Return the paths of the attribute that grows in each entry, that which grows most first."""
    inside = {p: growers[p] for p in ways if p in growers}
    entries = [p for p in inside if len(ways[p]) == 1]
    if len(entries) < 2:
        return []
    largest = max(entries, key=lambda p: inside[p].gained)
    of_largest = {p: g for p, g in inside.items() if ways[p][:1] == ways[largest]}
    for point in accumulation_points(table, of_largest):
        others = [p for p in inside if p != point and ways[p][1:] == ways[point][1:]]
        gained = sum(inside[p].gained for p in (point, *others))
        is_attribute = len(ways[point]) > 1 and others
        if is_attribute and gained >= policy.MAIN_SHARE * whole.gained:
            return [point, *others]
    return []


def _in_each_item(table: RowTable, whole: Grower, ways: Mapping[int, Steps]) -> list[int]:
    """Return the path of the attribute that all items have, if it is most of the container by now:
    while each was small none had a row, and so it isn't known how they grew.
    """
    row = table.latest[whole.path]
    for path in sorted(ways, key=lambda p: len(ways[p])):
        its = table.latest[path]
        is_of_each = len(ways[path]) > 1 and ways[path][0].kind == "any" and its.count == row.length
        if is_of_each and its.length and its.host_bytes >= policy.MAIN_SHARE * row.host_bytes:
            return [path]
    return []


def _written(steps: Steps) -> str:
    return "".join(
        f".{step.value}" if step.kind == "attr" else f"[{step.value or '*'}]" for step in steps
    )


def _bounded_by_declaration(case: RunContext, trends: dict[int, Trend]) -> set[int]:
    """Return the undecided paths that gain items towards a harmless bound of their own; their
    trends are bounded from here on.
    """
    found = set()
    for path, trend in trends.items():
        length = case.table.length[path]
        known = length[np.isfinite(length)]
        if not trend.is_open or len(known) < 2 or known[-1] <= known[0]:
            continue
        bound = bound_of(case, path, HOST, case.table.highest(path, HOST)[1])
        if bound is None:
            continue
        case.decisions.add(
            case.table.latest[path].name, "declares_a_bound", "it stops at a bound of its own",
            figure=bound.value, threshold=bound.threshold, path=case.table.paths[path],
        )  # fmt: skip
        trends[path] = msgspec.structs.replace(
            trend, verdict=TrendVerdict.BOUNDED, reason=Reason.SETTLED
        )
        found.add(path)
    return found


def _deep_graph(
    case: RunContext, terms: Mapping[str, Term], growers: Sequence[Grower]
) -> DeepGraph | None:
    """Return the graph that was too deep for the later censuses, if what grows may be its."""
    named = (terms.get(kind) for kind in ("unexplained", "elsewhere"))
    going = [t for t in named if t is not None and t.trend.is_growing and not t.excluded_by]
    nameless, path = sum(term.trend.net_bytes for term in going), _deepest(case)
    if path is None or nameless < policy.NOTEWORTHY_BYTES:
        return None
    other = _other_growth(case, {term.kind: term for term in going}, growers)
    left = 1.0 - other.net_bytes / nameless
    most = max((term.trend for term in going), key=lambda trend: trend.net_bytes)
    rate = sum(term.trend.bytes_per_unit for term in going) * left
    low, high = (edge * rate / max(most.bytes_per_unit, 1.0) for edge in most.interval)
    trend = msgspec.structs.replace(
        most, bytes_per_unit=rate, interval=(low, high), net_bytes=nameless * left
    )
    return DeepGraph(path, trend, sum(term.share for term in going) * left, other)


def _other_growth(
    case: RunContext, terms: Mapping[str, Term], growers: Sequence[Grower]
) -> OtherGrowth:
    """Return what is known not to be the graph's; tensors are taken to be its."""
    objects, unexplained = terms.get("elsewhere"), terms.get("unexplained")
    if objects is not None:
        objects = _part(objects, _share_of_other_types(case) * objects.trend.net_bytes)
    owners = set(NativeOwner) - {NativeOwner.LEAKSCOPE}
    every = growing_allocations(case, owners, to_the_end=True) if unexplained is not None else []
    graphs = {(each.file, each.line) for each in every if is_of_torch(each)}
    for grower in growers:
        row = case.table.latest[grower.path]
        graphs |= {(line.file, line.line) for line in case.sources.feeding(row.owner, row)}
    native = tuple(each for each in every if (each.file, each.line) not in graphs and each.line)
    if unexplained is not None:
        unexplained = _part(unexplained, sum(each.gained_bytes for each in native))
    return OtherGrowth(_if_noteworthy(objects), native, _if_noteworthy(unexplained))


def _if_noteworthy(term: Term | None) -> Term | None:
    return term if term is not None and term.trend.net_bytes >= policy.HARMLESS_BYTES else None


def _part(term: Term, net_bytes: float) -> Term:
    part = min(net_bytes / max(term.trend.net_bytes, 1.0), 1.0)
    return replace(term, trend=part_of(term.trend, part), share=term.share * part)


def _share_of_other_types(case: RunContext) -> float:
    """Return which part of what is new and has no name of the user's no graph has."""
    seen = [c.elsewhere_types for c in case.table.censuses if c.elsewhere_types]
    if not seen:
        return 0.0
    gained = {name: size - seen[0].get(name, 0) for name, size in seen[-1].items()}
    gained = {name: gain for name, gain in gained.items() if gain > 0}
    others = sum(g for n, g in gained.items() if not n.startswith(policy.GRAPH_TYPES))
    return others / max(sum(gained.values()), 1)


def _deepest(case: RunContext) -> int | None:
    """Return the path that keeps the deepest graph, if that never became smaller until it was too
    deep, and what it hangs on is there still; of several the innermost.
    """
    table = case.table
    until = int(np.argmax(table.truncated)) + 1
    last = {table.paths[p] for p in np.flatnonzero(np.isfinite(table.count[:, -1]))}
    found = []
    for path in np.flatnonzero(table.keeps_graphs):
        seen = np.nan_to_num(table.nodes[path, :until])
        name = table.paths[path]
        is_there = name in last or any(name.startswith(above) for above in last)
        if table.latest[path].user and is_there and (np.diff(seen) >= 0).all():
            found.append((float(seen[-1]), len(name), int(path)))
    most = max((deep for deep, *_ in found), default=0.0)
    if most < policy.DEEP_GRAPH:
        return None
    return max(
        (length, path) for deep, length, path in found if deep >= most * (1 - policy.LITTLE_SHARE)
    )[1]


def _is_about(table: RowTable, path: int, deep: int) -> bool:
    paths = (table.paths[path], table.paths[deep])
    return max(paths, key=len).startswith(min(paths, key=len))


def _note_trends(case: RunContext, trends: dict[int, Trend]) -> None:
    """Record what the model concluded on paths that are large or grow, the largest first."""
    large = [
        (case.table.highest(path, HOST)[1], path)
        for path, trend in trends.items()
        if trend.is_growing
        or abs(trend.net_bytes) + trend.gained_before >= policy.GAUGE_NOISE_BYTES
    ]
    for _, path in sorted(large, reverse=True)[:MOST_NOTED]:
        trend, row = trends[path], case.table.latest[path]
        case.decisions.add(
            row.name, "growth", f"{trend.verdict.value}: {trend.reason.value}",
            figure=trend.net_bytes, threshold=policy.ROW_NOISE_BYTES, path=row.path,
        )  # fmt: skip


def find_carriers(case: RunContext, trends: dict[int, Trend]) -> dict[tuple[int, str], Grower]:
    """Return the paths that make up most of what memory goes on to gain.

    Where they were looked at too seldom to be judged by themselves, the many readings of private
    memory tell that the growth goes on; of what libraries hold, all that is new outside the user's
    names does, which every census weighs.
    """
    found: dict[tuple[int, str], Grower] = {}
    pool, elsewhere = case.pool, judge_unnamed(case)
    pool_goes_on = pool.is_growing and pool.net_bytes >= policy.GAUGE_NOISE_BYTES
    at, private = case.table.at, case.private
    read = case.working[np.isfinite(private[case.working])]
    for path, trend in trends.items():
        is_user = case.table.latest[path].user
        if not trend.is_open or not (pool_goes_on if is_user else elsewhere.grows):
            continue
        columns, y = _carried_readings(case, path)
        rises = np.diff(y)
        if not len(rises) or (rises < -policy.ROW_NOISE_BYTES).any():
            continue
        # Few looks at something large: what comes and goes may have risen a little by chance.
        is_few = is_user and len(y) < policy.FEWEST_GROWING
        if is_few and y[-1] - y[0] < policy.LITTLE_SHARE * y[-1]:
            continue
        if is_user and _rests_at_last(case.track.work[at[columns]], rises):
            continue
        # Read by time, in two looks: memory between them shows no jump.
        is_steady = case.track.is_timed and len(rises) == 1 and pool.reason is Reason.STEADY
        if is_user and not is_steady and _jumps(rises, np.diff(case.track.work[at[columns]])):
            continue  # it may have got another name
        if is_user:
            whole = case.read_between(at[columns], read, private[read])
        else:
            whole = unnamed_at(case, columns)
        part = policy.MAIN_SHARE if is_steady else policy.MOST_SHARE
        least = max(part * float(whole[-1] - whole[0]), policy.GAUGE_NOISE_BYTES)
        if y[-1] - y[0] < least or _grew_without(whole, y, case.track.work[at[columns]]):
            continue
        observed = np.union1d(case.observations.columns(path), columns)
        found[path, HOST] = grower_of(case.observations, path, HOST, trend, observed, columns)
        case.decisions.add(
            case.table.latest[path].name, "carries_growth",
            "it is most of what memory goes on to gain", figure=float(y[-1] - y[0]),
            threshold=least, path=case.table.paths[path],
        )  # fmt: skip
    return found


def _carried_readings(case: RunContext, path: int) -> tuple[IntArray, FloatArray]:
    """Return the censuses that tell what a path kept, and what it retained there.

    Of a library's the row must have been written: where it was too small for that it was not
    nothing. What was there at the beginning and at the end of the run tells it alone.
    """
    table = case.table
    columns, y, _ = case.observations.series(path, HOST)
    if table.latest[path].user:
        inside = table.at[columns] >= case.tail[0]
        inside[:-1] |= inside[1:]  # from the last look before the tail on
        return columns[inside], y[inside]
    retained = table.retained[HOST][path]
    shown = np.isfinite(retained)
    if table.has_beginning[path]:
        return np.flatnonzero(shown), retained[shown]
    columns = columns[shown[columns]]
    return columns, retained[columns]


def _grew_without(whole: FloatArray, y: FloatArray, work: IntArray) -> bool:
    """Return whether memory grew on while a path rested at its last readings: what comes in jumps
    rests as well, but then memory does so with it.
    """
    first = int(np.flatnonzero(y < y[-1] - policy.ROW_NOISE_BYTES)[-1]) + 1
    rested = (work[-1] - work[first]) / max(int(work[-1] - work[0]), 1)
    least = policy.LITTLE_SHARE * rested * float(whole[-1] - whole[0])
    return bool(whole[-1] - whole[first] >= max(least, policy.GAUGE_NOISE_BYTES))


def _rests_at_last(work: IntArray, rises: FloatArray) -> bool:
    """Return whether a path rests in its last readings, for longer than it ever did between two
    rises: what comes in steps rests as long before each.
    """
    least = max(policy.ROW_NOISE_BYTES, policy.STEP_SHARE * float(rises.sum()))
    rose = np.flatnonzero(rises > least)
    if not len(rose) or len(rises) - 1 - rose[-1] < policy.FEWEST_READINGS - 1:
        return False
    begins = np.append(0, rose[:-1] + 1)
    longest = float((work[rose] - work[begins]).max())
    rest = float(work[-1] - work[rose[-1] + 1])
    span = float(work[-1] - work[0])
    return rest > max(policy.REST_FACTOR * longest, policy.LITTLE_SHARE * span)


def _jumps(rises: FloatArray, work: IntArray) -> bool:
    """Return whether one rise is larger than all others together, and steeper by far."""
    largest = int(np.argmax(rises / work))
    others = float(np.delete(rises, largest).sum())
    usual = others / max(int(np.delete(work, largest).sum()), 1)
    is_steep = rises[largest] / work[largest] > policy.JUMP_STEEPNESS * usual
    return bool(is_steep and rises[largest] > others)


def _at_the_rate_of(
    case: RunContext, grower: Grower, carriers: dict[tuple[int, str], Grower]
) -> Grower:
    """Return a path of a library's with the readings of all that is new outside the user's names.

    It is most of that, where it was seen at the few walks of the whole heap alone.
    """
    is_user = case.table.latest[grower.path].user
    if is_user or (grower.path, grower.device) not in carriers:
        return grower
    columns, y = unnamed_readings(case)
    x = case.track.work[case.table.at[columns]].astype(np.float64)
    slope, units = theil_sen(x, y), float(x[-1] - x[0])
    trend = msgspec.structs.replace(
        grower.trend, bytes_per_unit=slope.rate, interval=(slope.low, slope.high), points=len(x)
    )
    return replace(
        grower, trend=trend, columns=columns, x=x, y=y, observed=columns,
        gained=slope.rate * units, units=units, per_boundary=slope.rate,
    )  # fmt: skip


def _on_main_device(growers: list[Grower]) -> list[Grower]:
    """Return each path once, on the device on which it grows most."""
    best: dict[tuple[int, str], Grower] = {}
    for g in growers:
        key = (g.path, g.phase if g.growth == "within" else "")
        if key not in best or g.gained > best[key].gained:
            best[key] = g
    return list(best.values())


def share_named(table: RowTable, g: Grower) -> Grower:
    """Return the grower under the name of the container in which its growth can be seen.

    Two containers that share their contents retain nothing alone: only their common owner grows.
    Then the one whose length grows is named, with the owner's bytes.
    """
    if table.latest[g.path].length is not None:
        return g
    below = [p for p in range(len(table.paths)) if g.path in table.ancestors(p)]
    longer = [(growth, p) for p in below if (growth := _gained_items(table, p, g)) > 0]
    if not longer:
        return g
    most = max(growth for growth, _ in longer)
    alike = [p for growth, p in longer if growth >= policy.MOST_SHARE * most]
    named = min(alike, key=lambda p: (len(table.paths[p]), table.paths[p]))
    return replace(g, path=named, y=g.y)


def _gained_items(table: RowTable, path: int, g: Grower) -> float:
    """Return how many items a single container gained where it gained them steadily."""
    length = table.length[path, g.columns]
    gains = np.diff(length[np.isfinite(length)])
    if table.count[path, g.columns[-1]] > 1 or (gains < 0).any():
        return 0.0
    late = gains[len(gains) // 2 :].sum() >= policy.GROWING_SHARE * gains.sum()
    return float(gains.sum()) if late and (gains > 0).sum() >= policy.FEWEST_RISES else 0.0


def accumulation_points(table: RowTable, growers: dict[int, Grower]) -> list[int]:
    """Return the paths in which growth piles up, given all growing paths of one device."""
    growing: dict[int, list[int]] = defaultdict(list)
    tops = []
    for path in growers:
        above = next((a for a in reversed(table.ancestors(path)) if a in growers), None)
        if above is None:
            tops.append(path)
        else:
            growing[above].append(path)
    walk = _Walk(table, growers, growing, _retained_below(table, growers))
    points = [_head_of_chain(table, growers, p) for top in tops for p in walk.down(top)]
    return list(dict.fromkeys(points))


def _retained_below(table: RowTable, growers: dict[int, Grower]) -> dict[int, list[int]]:
    """Return the rows that lie directly below each path; what grows is below the next that grows.

    A dict whose entries something else refers to as well retains none of them: what is named
    through it belongs to the object that has both.
    """
    below: dict[int, list[int]] = defaultdict(list)
    for path in range(len(table.paths)):
        above = table.parent(path)
        if above is not None and path in growers and above not in growers:
            above = next((a for a in reversed(table.ancestors(path)) if a in growers), above)
        if above is not None:
            below[above].append(path)
    return below


def _head_of_chain(table: RowTable, growers: dict[int, Grower], point: int) -> int:
    """Return what holds the first link, where a point is one of a chain that gets longer.

    ``Tape.last.before.before`` is the third entry of a linked list, ``model.forward⟨forward⟩`` a
    function that was wrapped again: each link that comes leaves the name of the others to it.
    """
    above = [*table.ancestors(point), point]
    links = [table.paths[b].removeprefix(table.paths[a]) for a, b in pairwise(above)]
    alike = list(takewhile(lambda link: link == links[-1], reversed(links)))
    head = above[-1 - len(alike)] if len(alike) > 1 else point
    return head if head in growers else point


_WHOLES = frozenset({"graph", "compiled"})
"""What becomes more as a whole: of nothing inside of it the program has a name."""


@dataclass(frozen=True)
class _Walk:
    table: RowTable
    growers: dict[int, Grower]
    growing: dict[int, list[int]]
    """By path, the growing paths next below."""
    rows: dict[int, list[int]]
    """By path, all rows directly below."""

    def down(self, node: int) -> list[int]:
        """Return the accumulation points at or below a growing path."""
        below = sorted(self.growing[node], key=lambda child: -self.growers[child].gained)
        row = self.table.latest[node]
        is_whole = row.kind in _WHOLES or row.type.rpartition(".")[2] in _TABLES
        if is_whole or self.is_spread_below(node, below):
            return [node]
        if self.own_growth(node) >= policy.MOST_SHARE * self.growers[node].gained:
            return [node]
        single = [child for child in below if self.growers[child].spread < policy.MOST_SHARE]
        if self.is_the_culprit(node, single):
            return [node]
        points = [point for child in single for point in self.down(child)]
        # Parts that change by less than what counts may come to more together.
        noise = policy.ROW_NOISE_BYTES * (1 + len(self.rows[node]))
        return points or ([node] if self.growers[node].gained > noise else [])

    def is_spread_below(self, node: int, below: list[int]) -> bool:
        """Return whether most growth is in objects that become more."""
        if not below:
            return False
        largest, gained = self.growers[below[0]], self.growers[node].gained
        return largest.spread >= policy.MOST_SHARE and largest.gained >= policy.MOST_SHARE * gained

    def own_growth(self, node: int) -> float:
        """Return how much of a path's growth is in no single object below it.

        What was added is growth of what it was added to: a module list's new head, a module under
        a new name in a dict of modules, an attribute that ``setattr`` made.
        """
        grower, table = self.growers[node], self.table
        single = [
            p
            for p in self.rows[node]
            if (table.latest[p].count <= 1 and not self._is_added(node, p))
            or (self._holds_no_elements_alone(node, p) and self._gathers(node, p))
        ]
        inside = table.retained[grower.device][single][:, grower.columns]
        chosen = self._seen_with_parts(grower, inside[[p in self.growers for p in single]])
        x, own = grower.x[chosen], (grower.y - np.nan_to_num(inside).sum(axis=0))[chosen]
        trend = judge(x, own, unit="", noise=policy.ROW_NOISE_BYTES)
        if trend.is_open:
            return float(own[-1] - own[0])
        if trend.is_bounded:
            return 0.0
        return trend.bytes_per_unit * float(grower.x[-1] - grower.x[0])

    def _seen_with_parts(self, grower: Grower, parts: FloatArray) -> IntArray:
        """Return the readings of a path to judge its own growth by: those at which all parts that
        grow have a row of their own, where these reach through most of it.

        A part has none where it is small, or where something else shares what it holds: its growth
        isn't the path's own there.
        """
        seen = np.flatnonzero(np.isfinite(parts).all(axis=0))
        if len(seen) >= policy.FEWEST_GROWING:
            is_through = np.ptp(grower.x[seen]) >= policy.MOST_SHARE * np.ptp(grower.x)
            return seen if is_through else np.arange(len(grower.x))
        return np.arange(len(grower.x))

    def _holds_no_elements_alone(self, node: int, row: int) -> bool:
        """Return whether a name leads on from these objects: not the lists in a dict of lists.

        A tuple can gather nothing: what grows in it is below, unless it is the next link of a list.
        """
        holder, content = self.table.latest[node], self.table.latest[row]
        leads_on = content.kind == "tuple" and content.type != holder.type
        return not {holder.kind, content.kind} <= CONTAINERS or leads_on

    def _gathers(self, node: int, row: int) -> bool:
        """Return whether it is less more objects that gather: ``agents[*].memory`` gets longer."""
        columns, table = self.growers[node].columns, self.table
        if row not in self.growers or self.growers[row].spread >= policy.MOST_SHARE:
            return False
        length = np.nan_to_num(table.length[row, columns])
        return bool(length[-1] > length[0]) or any(
            self._gathers(node, below) for below in self.growing[row]
        )

    def _is_added(self, node: int, row: int) -> bool:
        """Return whether a row came later and doesn't grow by itself."""
        first = int(self.growers[node].columns[0])
        is_new = not np.isfinite(self.table.retained[HOST][row, first])
        return is_new and row not in self.growers

    def is_the_culprit(self, node: int, single: list[int]) -> bool:
        """Return whether a container's entries are so many and alike that it is the culprit.

        So is a tuple of values: they are replaced together.
        """
        gained, latest = self.growers[node].gained, self.table.latest
        if latest[node].kind == "tuple" and len(single) > 1:
            return all(latest[child].kind not in CONTAINERS for child in single)
        small = [c for c in single if self.growers[c].gained < policy.MOST_SHARE * gained]
        return latest[node].kind in CONTAINERS and len(small) >= policy.SIMILAR_NAMES


def with_siblings_joined(case: RunContext, growth: SearchResult) -> SearchResult:
    """Return growth in which the container stands for entries that one statement feeds."""
    growers = growth.growers
    nearest_first = sorted(growth.owners, key=lambda g: -len(case.table.ancestors(g.path)))
    for owner in nearest_first:
        entries = [g for g in growers if _lies_in(case, g, owner)]
        if len(entries) < 2 or not _are_siblings(case, entries, owner):
            continue
        counted = (
            in_units(case.observations, case.places, owner) if owner.growth == "across" else owner
        )
        # Of attributes of its entries a statement that fills the container tells nothing.
        are_items = all(case.table.parent(g.path) == owner.path for g in entries)
        lines = {_feeding_line(case, g) for g in (*entries, *([counted] if are_items else []))}
        if _make_up(entries, counted) and len(lines) == 1 and None not in lines:
            mine = {g.path: g for g in growth.owners if g.growth == "across"}
            _name_by_entries(case.table, mine, owner)
            growers = [*(g for g in growers if g not in entries), counted]
    return replace(growth, growers=growers)


def _lies_in(case: RunContext, g: Grower, owner: Grower) -> bool:
    is_alike = (g.growth, g.device) == (owner.growth, owner.device)
    is_of_phase = g.growth == "across" or g.phase == owner.phase
    return is_alike and is_of_phase and owner.path in case.table.ancestors(g.path)


def _are_siblings(case: RunContext, entries: Sequence[Grower], owner: Grower) -> bool:
    """Return whether they lie in their container by the same way, but for the key."""
    if case.table.latest[owner.path].kind not in CONTAINERS:
        return False
    above = case.table.paths[owner.path]
    ways = [parse_steps(case.table.paths[g.path].removeprefix(above)) for g in entries]
    return all(way and way[0].is_item for way in ways) and len({way[1:] for way in ways}) == 1


def _make_up(entries: Sequence[Grower], whole: Grower) -> bool:
    """Return whether they are the container's growth, and none of them is most of it."""
    gains = [g.gained for g in entries]
    units = {(g.unit, g.phase) for g in (*entries, whole)}
    return (
        len(units) == 1
        and sum(gains) >= policy.MAIN_SHARE * whole.gained
        and max(gains) < policy.MAIN_SHARE * sum(gains)
    )


def _feeding_line(case: RunContext, g: Grower) -> tuple[str, int] | None:
    row = case.table.latest[g.path]
    if row.owner is None:
        return None
    feeding = case.sources.feeding(row.owner, row, g.phase)
    return (feeding[0].file, feeding[0].line) if feeding and feeding[0].is_direct else None
