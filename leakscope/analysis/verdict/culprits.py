"""Culprits: growers at their accumulation points, judged, explained and ranked.

Their origins (where a culprit was defined, fed and filled) come from source and allocations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec
import numpy as np

from leakscope.analysis.accounting.compiled_code import (
    bound_of,
    compiled_entry,
    describe_bytes,
    is_compiled,
    remedy_of,
)
from leakscope.analysis.accounting.native import NativeGrowth, with_contents
from leakscope.analysis.accounting.phases import phase_height
from leakscope.analysis.accounting.terms import Term, unnamed_readings
from leakscope.analysis.columns.series import (
    HOST,
    FloatArray,
    IntArray,
    RowTable,
    own_bytes,
)
from leakscope.analysis.columns.units import passage_length, unit_noun
from leakscope.analysis.findings.gauge_rules import Pileup
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.events import EventFit, counters_at, fit_events
from leakscope.analysis.growth.exclusions import PINNED, named_in_libraries
from leakscope.analysis.growth.rows import Grower, bytes_when_full
from leakscope.analysis.processes.endings import shortage_at_the_end
from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.remedies.graphs import keeps_its_gradients
from leakscope.analysis.remedies.records import errors_in
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.analysis.source.index import (
    calls_that_create_graphs,
    lines_that_fill,
    lines_that_fill_registry_of,
)
from leakscope.analysis.verdict import severity
from leakscope.analysis.verdict.severity import SEVERITY_ORDER, forecast
from leakscope.analysis.verdict.wording import (
    event_growth,
    falsifier,
    listed,
    pinned_bytes,
    recompiled,
    sentence,
    short_hash,
    with_other_holders,
)
from leakscope.model import gauge
from leakscope.model.census import CensusRow, Site, WaitKind
from leakscope.model.known import KnownCulprit
from leakscope.model.path_pattern import parse_steps
from leakscope.model.registries import REGISTRIES
from leakscope.model.report import (
    Culprit,
    EventGrowth,
    Excerpt,
    Forecast,
    HeldLine,
    NativeContents,
    Point,
    Remedy,
    Severity,
)
from leakscope.model.text import human_bytes, human_count
from leakscope.model.trend import Reason

MOST_NOTES = 12
MOST_POINTS = 200
MOST_LINES = 5
MOST_EXCERPTS = 3


@dataclass(frozen=True)
class Judged:
    """A grower with what it does to the user."""

    grower: Grower
    severity: Severity
    share: float
    forecast: Forecast | None
    peak_bytes: float
    """Within: what it comes to by the last batch."""


def find_culprits(
    case: RunContext,
    growers: list[Grower],
    native: Mapping[int, NativeGrowth] | None = None,
    slack: Term | None = None,
) -> list[Culprit]:
    """Return the culprits behind these growers, the worst first.

    ``native`` has by path what libraries allocate for its items: a part of what the culprit costs;
    ``slack`` is the term of free memory in the C heap, if it was judged.
    """
    contents = native or {}
    kept = {path: each.trend for path, each in contents.items()}
    growers = [with_contents(case, g, kept.get(g.path)) for g in growers]
    pinned = _pinned_slack(case, slack)
    judged = [*_judge_across(case, growers, pinned), *_judge_within(case, growers)]
    judged.sort(key=lambda j: (SEVERITY_ORDER[j.severity], *_sort_key(case, j.grower, growers)))
    serious = [j for j in judged if j.severity is not Severity.NOTE]
    notes = (j for j in judged if j.severity is Severity.NOTE and not _is_ordinary(case, j))
    shown = [*serious, *islice(notes, MOST_NOTES)]
    return [_culprit(case, j, rank, contents.get(j.grower.path)) for rank, j in enumerate(shown, 1)]


def until_their_bounds(
    case: RunContext, culprits: list[Culprit]
) -> tuple[list[Culprit], list[Culprit]]:
    """Return the culprits, and those of them that the source bounds: these come last, as notes.

    Whether such a container stops there, and at how much, only a longer run shows.
    """
    filling = [c for c in culprits if c.remedy.bound and c.severity is not Severity.NOTE]
    for culprit in filling:
        outcome = f"the source bounds it: {culprit.remedy.bound}"
        case.decisions.add(culprit.name, "bounded_by_source", outcome, path=culprit.path)
    found = [
        msgspec.structs.replace(c, severity=Severity.NOTE, forecast=None) if c in filling else c
        for c in culprits
    ]
    found.sort(key=lambda c: c.severity is Severity.NOTE)
    return [msgspec.structs.replace(c, rank=rank) for rank, c in enumerate(found, 1)], filling


_KEEPING = {
    WaitKind.TASK: {"_asyncio.Task", "_asyncio.Future", "asyncio.events.TimerHandle", "coroutine"},
    WaitKind.THREAD: {"threading.Thread", "threading.Event", "queue.Queue", "_thread.lock"}
    | {"concurrent.futures.thread.ThreadPoolExecutor"},
}


def with_pileups(
    case: RunContext, culprits: list[Culprit], pileups: Sequence[Pileup]
) -> list[Culprit]:
    """Return the culprits; what keeps tasks or threads that pile up is reported as these.

    Several that keep the same are one: the loop's timers, a set and the variables of the tasks.
    """
    found = list(culprits)
    for pileup in pileups:
        keep = [c for c in found if c.piled_up is None and _keeps(case, c, pileup)]
        if not keep or all(c.severity is Severity.NOTE for c in keep):
            continue
        first, *others = keep
        alike = [c for c in others if (c.device, c.unit) == (first.device, first.unit)]
        found = [c for c in found if c not in alike]
        found[found.index(first)] = _piled_up(first, alike, pileup)
    return [msgspec.structs.replace(c, rank=rank) for rank, c in enumerate(found, 1)]


def _piled_up(culprit: Culprit, others: list[Culprit], pileup: Pileup) -> Culprit:
    """Return a culprit with those of the others that keep the same tasks or threads."""
    every = [culprit, *others]
    text = f"{pileup.sentence} {culprit.sentence}"
    if others:
        text += f" {listed([c.name for c in others])} {'grow' if others[1:] else 'grows'} with it."
    return msgspec.structs.replace(
        culprit,
        bytes_per_unit=sum(c.bytes_per_unit for c in every),
        interval=tuple(sum(c.interval[end] for c in every) for end in (0, 1)),
        share=min(sum(c.share for c in every), 1.0),
        total_bytes=sum(c.total_bytes for c in every),
        gained_bytes=sum(c.gained_bytes for c in every),
        fed_at=list(dict.fromkeys([*pileup.summary.started_at, *culprit.fed_at]))[:MOST_LINES],
        remedy=pileup.remedy,
        known=None,
        sentence=text,
        piled_up=pileup.summary,
    )


def _keeps(case: RunContext, culprit: Culprit, pileup: Pileup) -> bool:
    table, group, summary = case.table, pileup.group, pileup.summary
    if culprit.growth != "across" or culprit.path not in table.paths:
        return False
    path = table.paths.index(culprit.path)
    row = table.latest[path]
    owner = row.owner
    is_theirs = owner is not None and (owner.file, owner.line) == (group.file, group.line)
    if is_theirs and row.count * 2 >= group.count:
        return True
    inside = [row, *(table.latest[below] for below in table.descendants(path))]
    types = {member.type for member in inside} | {c.type for member in inside for c in member.holds}
    is_seen = not types.isdisjoint(_KEEPING[group.kind])
    if culprit.unit != summary.unit or not (is_seen or not row.holds):
        return False
    # What others keep alive as well, as the loop does its tasks, no container is seen to hold.
    most = policy.PILED_UP_FACTOR if is_seen else 1 + policy.LITTLE_SHARE
    pace = culprit.items_per_unit or 0.0
    return summary.count_per_unit / most <= pace <= summary.count_per_unit * most


def _is_ordinary(case: RunContext, judged: Judged) -> bool:
    """Return whether it is little that is gathered in a phase and released, as loops do; or a
    library gathers it, by no statement of the user's: little, or a while.
    """
    g, row = judged.grower, case.table.latest[judged.grower.path]
    if g.growth == "within" and g.falls_back and judged.peak_bytes < policy.LITTLE_BYTES:
        return True
    if g.growth == "within" and not row.user:
        return True
    if g.gained >= policy.GAUGE_NOISE_BYTES:
        return False
    if row.owner is None:
        return not row.user
    feeding = case.sources.feeding(row.owner, row, g.phase)
    if not feeding and case.recording.sources:
        return _is_a_librarys_own(case.table, case.sources, g.path)
    return bool(feeding) and not any(line.is_direct for line in feeding)


def _is_a_librarys_own(table: RowTable, sources: SourceIndex, path: int) -> bool:
    """Return whether it hangs on an object of a library by attributes that no statement names."""
    holder = table.parent(path)
    if holder is None:
        return False
    above = table.latest[holder]
    way = parse_steps(table.latest[path].path.removeprefix(above.path))
    names = [step.value for step in way if step.kind == "attr"]
    is_of_library = "." in above.type and not sources.defines(above.type)
    return is_of_library and bool(names) and not any(map(sources.program.mentioning, names))


def _sort_key(case: RunContext, g: Grower, growers: list[Grower]) -> tuple[float, bool, int]:
    """Return what growers of one severity are ordered by: those that come to most are first.

    What is rebuilt from what its neighbours in the same object gather comes after them.
    """
    impact = _impact(case, g)
    peers = [o for o in growers if o.items_per_unit and _are_neighbours(case.table, g, o)]
    fed = [_impact(case, o) for o in peers]
    is_derived = not g.items_per_unit and bool(fed)
    return (-min(impact, *fed) if is_derived else -impact), is_derived, g.path


def _are_neighbours(table: RowTable, g: Grower, other: Grower) -> bool:
    holder = table.parent(g.path)
    alike = (g.growth, g.device) == (other.growth, other.device)
    return g is not other and alike and holder is not None and holder == table.parent(other.path)


def _impact(case: RunContext, g: Grower) -> float:
    """Return what a culprit comes to over the horizon: a peak stays, a leak goes on."""
    return case.gain_of(g) * policy.HORIZON if g.growth == "across" else g.gained


def _pinned_slack(case: RunContext, slack: Term | None) -> float:
    """Return the growth of free memory that lies between what grows: memory runs out with it."""
    if slack is None or slack.excluded_by != PINNED or not slack.trend.is_growing:
        return 0.0
    return max(case.gauge_gain(gauge.MALLOC_FREE) or 0.0, 0.0)


def _judge_across(case: RunContext, growers: list[Grower], pinned: float) -> list[Judged]:
    across = [g for g in growers if g.growth == "across"]
    judged = []
    for g in across:
        gained = case.gain_of(g)
        together = sum(case.gain_of(o) for o in across if o.device == g.device)
        whole = max(together, case.device_gain(g.device) or 0.0)
        going = together + (pinned if g.device == HOST else 0.0)
        horizon = _forecast(case, g, going / gained) if gained > 0 else None
        share = min(gained / whole, 1.0) if whole > 0 else 0.0
        seen = _seconds_at(case, g)
        loop, read = case.track.loop, case.table.at[g.columns]
        passes = 0.0 if loop is None or not len(read) else float(np.ptp(loop.passes[read]))
        grade = severity.of_across(g, horizon, float(seen[-1] - seen[0]), passes)
        judged.append(Judged(g, grade, share, horizon, 0.0))
        if grade is Severity.NOTE:
            _note_floor(case, g, g.trend.bytes_per_unit * g.units * policy.HORIZON)
    return judged


def _note_floor(case: RunContext, g: Grower, comes_to: float) -> None:
    row = case.table.latest[g.path]
    least = policy.HARMLESS_BYTES if g.growth == "across" else policy.NOTEWORTHY_BYTES
    case.decisions.add(
        row.name, "floor", "too little to harm", figure=comes_to, threshold=least, path=row.path
    )


def _forecast(case: RunContext, g: Grower, times: float) -> Forecast | None:
    """Return when the limit is reached if all goes on that grows: so many times this culprit."""
    full = bytes_when_full(case.table.latest[g.path], float(g.y[-1]))
    if g.device != HOST or (full is not None and full < (case.limit_bytes or full)):
        return None
    ahead = forecast(
        limit_bytes=case.limit_bytes,
        used_bytes=case.used_at_end(),
        rate=g.trend.bytes_per_unit * times,
        unit=g.unit,
        done=float(g.x[-1]),
    )
    if ahead is None or g.unit in _COUNTED or g.growth == "within":
        return ahead
    seconds, units = _seconds_at(case, g), float(g.x[-1] - g.x[0])
    pace = float(seconds[-1] - seconds[0]) / units if units > 0 else 0.0
    return msgspec.structs.replace(ahead, seconds_left=ahead.units_left * pace) if pace else ahead


_ITERATORS = frozenset({"generator", "zip", "map", "filter", "enumerate"})
_COUNTED = frozenset({"step", "epoch", "validation"})
"""Units whose pace the counts of the whole run tell."""


def _judge_within(case: RunContext, growers: list[Grower]) -> list[Judged]:
    within = [g for g in growers if g.growth == "within"]
    lengths = {phase: passage_length(case.track, phase) for phase in {g.phase for g in within}}
    # What a container that climbs gains from the last look to the end of a passage.
    unseen = [max(lengths[g.phase] - float(g.x[-1]), 0.0) * g.trend.bytes_per_unit for g in within]
    heights = [_height(case, g, more) for g, more in zip(within, unseen, strict=True)]
    judged = []
    for g, more, height in zip(within, unseen, heights, strict=True):
        together = sum(
            other
            for o, other in zip(within, heights, strict=True)
            if (o.phase, o.device) == (g.phase, g.device)
        )
        phase = phase_height(case, g.phase, g.device, together)
        whole = max(together, phase.rise)
        share = min(height / whole, 1.0) if whole > 0 else 0.0
        grade = severity.of_within(height, together, phase)
        judged.append(Judged(g, grade, share, None, float(g.y[-1]) + more))
        if grade is Severity.NOTE:
            _note_floor(case, g, g.gained)
    return judged


def _height(case: RunContext, g: Grower, unseen: float) -> float:
    """Return what a container gains in a phase: of one that was passed through once also what it
    gained after the last look, for no other passage was looked at nearer to its end.
    """
    is_steady = g.trend.reason is Reason.STEADY and case.track.begun(g.phase) == 1
    return g.gained + (unseen if is_steady else 0.0)


def _culprit(
    case: RunContext, judged: Judged, rank: int, native: NativeGrowth | None = None
) -> Culprit:
    grower, table = judged.grower, case.table
    column, total = table.highest(grower.path, grower.device)
    row = table.row_at(grower.path, column)
    holders = [table.latest[a].name for a in table.ancestors(grower.path)]
    others = _other_holders(table, row)
    freed = own_bytes(row, grower.device) if row.exclusive_bytes is None else row.exclusive_bytes
    found = case.known_of(row, grower.path, growth=grower.growth, device=grower.device)
    known = found.known if found else None
    origins = find_origins(case.sources, table, grower, row, known, sampled=case.sampled_growth)
    if is_compiled(row):
        origins = _of_compiled(case, row, origins)
    if not origins.fed_at:
        origins = replace(origins, fed_at=_registered_with(case, grower))
    origins = _with_unread_lines(case, judged, origins)
    pinned, is_across = pinned_bytes(row), grower.growth == "across"
    by_event = _per_event(case, grower)
    gained = int(case.gain_of(grower) if is_across else judged.peak_bytes)
    # Memory runs out by all that grows: by one with little part in it next to nothing does.
    is_minor = rank > 1 and judged.share < policy.LITTLE_SHARE
    is_over = is_minor or shortage_at_the_end(case.run, case.recording)
    shown = _as_shown(case, grower, by_event)
    ahead = None if is_over else judged.forecast
    if ahead is not None and shown is not grower:
        ahead = _forecast_as_shown(ahead, shown, grower)
    chart, chart_unit = _chart(case, shown)
    text = sentence(row, shown, judged.share, total, judged.peak_bytes, pinned)
    if native is not None:
        text += (
            f" {human_bytes(native.gained_bytes)} of this is native memory that its items keep: "
            f"{native.name} allocates it at {native.location} (a sampled estimate)."
        )
    text += _about_compiled(case, row)
    if by_event is not None and by_event.text:
        text += f" {by_event.text}"
    return Culprit(
        rank=rank,
        name=row.name,
        path=row.path,
        kind=row.kind,
        type=row.type,
        growth=grower.growth,
        falls_back=grower.falls_back,
        unit=shown.unit,
        phase=shown.phase,
        bytes_per_unit=shown.trend.bytes_per_unit,
        interval=shown.trend.interval,
        readings=shown.trend.points,
        items_per_unit=shown.items_per_unit,
        share=judged.share,
        total_bytes=int(total),
        gained_bytes=gained,
        device=grower.device,
        severity=judged.severity,
        defined_at=origins.defined_at,
        fed_at=origins.fed_at,
        allocated_at=origins.allocated_at,
        holds=[
            HeldLine(type=h.type, count=h.count, bytes=h.bytes, detail=h.detail) for h in row.holds
        ],
        signature=signature(row),
        remedy=with_other_holders(origins.remedy, others, freed),
        owner=row.owner.name if row.owner else "",
        held_by=holders,
        also_named=row.also_named,
        also_held_by=others,
        exclusive_bytes=freed if others else None,
        leak_share_bytes=row.leak_share_bytes,
        graph_nodes=row.graph_nodes,
        graph_bytes=pinned,
        sentence=text,
        native=_native_contents(native) if native is not None else None,
        trend=grower.trend.verdict.value,
        forecast=ahead,
        falsifier=falsifier(row, shown, holders),
        excerpts=origins.excerpts,
        chart=chart,
        per_event=by_event,
        chart_unit=chart_unit,
        known=found.recognised if found else None,
        since=_since(case, grower) if is_across else None,
    )


def _as_shown(case: RunContext, grower: Grower, by_event: EventGrowth | None) -> Grower:
    """Return what grows in the unit that the program works in: a server's requests, the passes of
    an engine, which are nobody's batches.
    """
    if grower.growth == "within":
        return grower
    if by_event is not None and by_event.says_it_all and len(by_event.rates) == 1:
        rate, before = by_event.rates[0], grower.trend.bytes_per_unit
        times = rate.bytes_each / before if before > 0 else 1.0
        low, high = grower.trend.interval
        trend = msgspec.structs.replace(
            grower.trend,
            bytes_per_unit=rate.bytes_each,
            interval=(low * times, high * times),
            unit=rate.noun,
        )
        items = grower.items_per_unit
        return replace(
            grower,
            unit=rate.noun,
            trend=trend,
            x=case.track.events(rate.event)[case.table.at[grower.columns]],
            items_per_unit=None if items is None else items * times,
        )
    noun = unit_noun(grower.unit, grower.phase)
    return replace(grower, unit=noun, trend=msgspec.structs.replace(grower.trend, unit=noun))


def _forecast_as_shown(ahead: Forecast, shown: Grower, grower: Grower) -> Forecast:
    """Return when memory runs out in the unit that is shown, and how long that takes."""
    times = shown.trend.bytes_per_unit / grower.trend.bytes_per_unit
    left = ahead.units_left / times if times > 0 else ahead.units_left
    at = float(np.ceil(shown.x[-1] + left))
    text = f"reaches {human_bytes(ahead.limit_bytes)} in {shown.unit} {human_count(at)}"
    return msgspec.structs.replace(ahead, unit=shown.unit, units_left=left, at=at, text=text)


def _since(case: RunContext, grower: Grower) -> float | None:
    """Return when its growth began by the clock of the machine; None where that is unknown."""
    started = case.recording.header.started
    return started + float(_seconds_at(case, grower)[0]) if started else None


def _seconds_at(case: RunContext, grower: Grower) -> FloatArray:
    """Return the seconds into the recording at the readings that a rate is of."""
    return case.track.time_s[case.table.at[grower.columns]]


def _of_compiled(case: RunContext, row: CensusRow, origins: Origins) -> Origins:
    """Return where a function that is compiled again is called, and what to change about that."""
    entry = compiled_entry(case, row)
    if entry is None:
        return origins
    return replace(
        origins,
        defined_at=entry.place,
        fed_at=entry.called_at or origins.fed_at,
        remedy=remedy_of(case, entry),
    )


def _about_compiled(case: RunContext, row: CensusRow) -> str:
    entry = compiled_entry(case, row) if is_compiled(row) else None
    if entry is None:
        return ""
    return "".join(f" {text}" for text in (bound_of(case, entry), describe_bytes(entry)) if text)


def _native_contents(native: NativeGrowth) -> NativeContents:
    return NativeContents(
        library=native.library,
        function=native.function,
        allocated_at=native.location,
        gained_bytes=round(native.gained_bytes),
    )


def _per_event(case: RunContext, g: Grower) -> EventGrowth | None:
    if g.growth == "within":
        return _per_event_within(case, g)
    at, noise = case.table.at[g.columns], policy.ROW_NOISE_BYTES * g.contents_factor
    return growth_per_event(case, at, g.x, g.y * g.contents_factor, unit=g.unit, noise=noise)


def _per_event_within(case: RunContext, g: Grower) -> EventGrowth | None:
    """Return what a path climbs with in its phase; events between passages don't count."""
    order = np.argsort(g.columns, kind="stable")
    at = case.table.at[g.columns[order]]
    goes_on = np.diff(case.track.occurrence[at]) == 0

    def inside(values: FloatArray) -> FloatArray:
        return np.concatenate([[0.0], np.cumsum(np.diff(values) * goes_on)])

    counters = [
        replace(counter, done=inside(counter.done))
        for counter in counters_at(case.track, g.unit, g.x[order], at)
    ]
    fit = fit_events(inside(g.y[order]), counters, policy.ROW_NOISE_BYTES)
    return None if fit is None else _event_growth(case, fit, g.unit)


def growth_per_event(
    case: RunContext, at: IntArray, done: FloatArray, kept: FloatArray, *, unit: str, noise: float
) -> EventGrowth | None:
    """Return what something grows with, of all that was counted, by what was ``kept`` at some
    measurements and the units of work ``done`` there.
    """
    fit = fit_events(kept, counters_at(case.track, unit, done, at), noise)
    return None if fit is None else _event_growth(case, fit, unit)


def _event_growth(case: RunContext, fit: EventFit, unit: str) -> EventGrowth:
    locate = case.sources.location
    return event_growth(fit, unit, recompiled(case.recording.compilations, locate), locate)


def _with_unread_lines(case: RunContext, judged: Judged, origins: Origins) -> Origins:
    """Return origins with the lines that make most of what grows, where no window saw the
    culprit's own.

    They are a library's container's if that is most of what is new without a name, and feed it if
    no statement names it: where they make what it keeps, they call the library. They are the user's
    own if no line of the source feeds it and it is most of the growth of memory.
    """
    if origins.allocated_at:
        return origins
    grower, sizes = judged.grower, unnamed_readings(case)[1]
    if case.table.latest[grower.path].user:
        is_most = not origins.fed_at and judged.share >= policy.MAIN_SHARE
        is_sampled = is_most and grower.device == HOST
        return replace(origins, allocated_at=case.sampled_lines if is_sampled else [])
    least = policy.MOST_SHARE * float(sizes[-1] - sizes[0]) if len(sizes) else math.inf
    if named_in_libraries(case, [grower]) < least:
        return origins
    if not origins.fed_at:
        return replace(origins, fed_at=case.unnamed_lines)
    return replace(origins, allocated_at=case.unnamed_lines)


def _other_holders(table: RowTable, row: CensusRow) -> list[str]:
    """Return the names of others that hold the same, those that grow too among them.

    Small objects in common, such as numbers, make nobody a holder of what is large.
    """
    own, shared = row.exclusive_bytes, _shared(row)
    own = row.host_bytes + sum(row.device_bytes.values()) if own is None else own
    if shared < policy.LITTLE_SHARE * (shared + own):
        return []
    names = {latest.path: latest.name for latest in table.latest}
    together = [names[path] for path in row.shared_with if path in names]
    return list(dict.fromkeys([*row.also_held_by, *together]))


def _shared(row: CensusRow) -> int:
    """Return what others keep alive too, on all devices, from its even part where that is known."""
    if row.leak_share_bytes is not None and row.exclusive_bytes is not None:
        part = max(0, row.leak_share_bytes - row.exclusive_bytes)
        return part * (1 + len(row.shared_with))
    return sum(row.shared_bytes.values())


def signature(row: CensusRow) -> str:
    """Return what identifies a culprit between runs: root, folded path and type, no line."""
    folded = re.sub(r"\[\d+\]", "[*]", row.path)
    text = f"{row.root.value}\n{folded}\n{row.type}"
    return short_hash(text)


def _chart(case: RunContext, grower: Grower) -> tuple[list[Point], str]:
    """Return the series behind a verdict: over work done (across), over seconds (within)."""
    table, track = case.table, case.track
    if grower.growth == "across":
        columns, x, unit = grower.columns, grower.x, grower.unit
    else:
        columns = np.flatnonzero(table.covered(grower.path))
        x, unit = track.time_s[table.at[columns]], "s"
    y = np.nan_to_num(table.retained[grower.device][grower.path, columns])
    chosen = np.unique(np.linspace(0, len(columns) - 1, min(len(columns), MOST_POINTS)).astype(int))
    where = track.work[table.at[columns]]
    return [Point(float(x[i]), float(y[i]), int(where[i])) for i in chosen], unit


@dataclass(frozen=True)
class Origins:
    """What the user's source says about a culprit."""

    defined_at: str | None
    fed_at: list[str]
    allocated_at: list[str]
    excerpts: list[Excerpt]
    remedy: Remedy


def find_origins(
    sources: SourceIndex,
    table: RowTable,
    grower: Grower,
    row: CensusRow,
    known: KnownCulprit | None = None,
    likeliest_first: Callable[[list[FeedingLine]], list[FeedingLine]] | None = None,
    sampled: Sequence[Site] = (),
) -> Origins:
    """Return where a culprit was defined, fed and filled, and what to change there.

    ``likeliest_first`` orders the feeding lines, where the caller knows more of what ran.
    ``sampled`` is where the program allocated what it has more of, whoever holds it: it tells
    which of several lines that may feed the culprit did.
    """
    feeding: list[FeedingLine] = []
    defined = None
    sites = sorted(table.sites.get(grower.path, []), key=lambda s: -s.bytes)
    if row.owner is not None:
        witnessed = msgspec.structs.replace(
            row,
            allocated_at=sites,
            inserted_at=table.inserted_at.get(grower.path, []),
            items_made_at=table.items_made_at.get(grower.path, []),
        )
        inside = _grows_inside(table, grower)
        feeding = sources.feeding(
            row.owner, witnessed, grower.phase, grows_inside=inside, sampled=sampled
        )
        defined = sources.defined_at(row.owner, row)
        errors = errors_in([table.latest[path] for path in table.descendants(grower.path)], row)
        if errors is not None and errors.owner is not None:
            assigned = sources.assigning(errors.owner, errors, grower.phase)
            kept = assigned or sources.feeding(errors.owner, errors, grower.phase)
            direct = [line for line in kept if line.form != "call"]
            feeding = list(dict.fromkeys([*direct, *feeding]))
    if keeps_its_gradients(row):
        feeding = calls_that_create_graphs(sources) or feeding
    if likeliest_first is not None:
        feeding = likeliest_first(feeding)
    if not _grows_by_what_made_it(row):
        feeding = [line for line in feeding if not line.makes_once]
    shown = feeding[:MOST_LINES]
    fed_at = list(dict.fromkeys(sources.location(f.file, f.line) for f in shown))
    allocated_at = [sources.location(s.file, s.line) for s in sites[:MOST_LINES]]
    return Origins(
        defined_at=defined,
        fed_at=_registered_at(sources, row, fed_at, allocated_at),
        allocated_at=allocated_at if row.user else [],
        excerpts=_excerpts(sources, shown),
        remedy=propose(
            CulpritContext(
                row,
                growth=grower.growth,
                falls_back=grower.falls_back,
                unit=grower.unit,
                phase=grower.phase,
                items_per_unit=grower.items_per_unit,
                feeding=feeding,
                sources=sources,
                above=[table.latest[path] for path in table.ancestors(grower.path)],
                inside=[table.latest[path] for path in table.descendants(grower.path)],
                shrank=_shrank(table.length[grower.path]),
            ),
            known,
        ),
    )


def _registered_at(
    sources: SourceIndex, row: CensusRow, fed_at: list[str], allocated_at: list[str]
) -> list[str]:
    """Return the lines that feed a container. Of a registry of a library's: of those that are known
    to fill it the ones that allocate what grows, or all, before what its contents show. Of another
    library's container that nothing shows, those that allocate.
    """
    lines = lines_that_fill_registry_of(sources, row)
    both = [line for line in lines if line in allocated_at]
    unknown = [] if row.user else allocated_at[:MOST_LINES]
    return both or lines[:MOST_LINES] or fed_at or unknown


def _registered_with(case: RunContext, grower: Grower) -> list[str]:
    """Return the lines that fill a registry of which each line adds as many entries as a container
    gains items.

    A library keeps what is registered with an object of its own in that object: no statement of the
    program's names the container. The registry is one of the same library. May be confused with
    another container of the library's that gains as many by itself.
    """
    table, track = case.table, case.track
    if grower.growth != "across" or not grower.items_per_unit:
        return []
    items = grower.items_per_unit * float(grower.x[-1] - grower.x[0])
    ends = table.at[grower.columns[[0, -1]]]
    types = [table.latest[path].type for path in table.ancestors(grower.path)]
    libraries = {name.partition(".")[0] for name in types}
    found: list[str] = []
    for registry in (each for each in REGISTRIES if libraries & each.libraries):
        known = track.known(name := gauge.registry(registry.name))
        if not len(known):
            continue
        lines = lines_that_fill(case.sources, registry)
        first, last = case.read_between(ends, known, track.gauge(name)[known])
        differ = abs(last - first - items * len(lines))
        found += lines if differ <= policy.LITTLE_SHARE * items else []
    return found[:MOST_LINES]


def _shrank(lengths: FloatArray) -> bool:
    """Whether a container was seen shorter than before, and not only as the program ended."""
    seen = lengths[np.isfinite(lengths)]
    fell = np.flatnonzero(np.diff(seen) < 0)
    return len(fell) > 0 and bool((seen[fell[0] + 2 :] > seen[fell[0] + 1]).any())


def _grows_inside(table: RowTable, grower: Grower) -> bool:
    """Whether it went on growing when it got no more items: what it held became larger."""
    late = slice(len(grower.columns) // 2, None)
    lengths, sizes = table.length[grower.path, grower.columns[late]], grower.y[late]
    is_same = len(lengths) >= policy.FEWEST_READINGS and bool(np.all(lengths == lengths[0]))
    return is_same and bool(sizes[-1] > sizes[0])


def _grows_by_what_made_it(row: CensusRow) -> bool:
    """Return whether the line that makes something feeds it as well: an iterator gathers what the
    one that made it hands on, and what a graph hangs on is made with it.
    """
    is_iterator = row.type in _ITERATORS or row.type.startswith("itertools.")
    return is_iterator or row.kind == "graph" or row.graph_nodes > 0


def _excerpts(sources: SourceIndex, feeding: list[FeedingLine]) -> list[Excerpt]:
    lines: dict[str, tuple[str, list[int]]] = {}
    for line in feeding:
        shown = sources.location(line.file, line.line).rpartition(":")[0]
        lines.setdefault(shown, (line.file, []))[1].append(line.line)
    found = [sources.excerpt(file, marked) for file, marked in lines.values()]
    return [excerpt for excerpt in found if excerpt is not None][:MOST_EXCERPTS]
