"""Memory that could go and stays, garbage in cycles, a collector that is off, slack; and what time
the collector and calls that clean take.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import host_ledger
from leakscope.analysis.accounting.native import kind_series
from leakscope.analysis.accounting.terms import Term, garbage_series, next_collection
from leakscope.analysis.columns.series import FloatArray
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.growth.exclusions import PINNED
from leakscope.analysis.growth.search import CONTAINERS, SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import places_that_call
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.record import CleaningCall
from leakscope.model.report import Circle, Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count, human_share, plural
from leakscope.model.trend import Trend

MOST_CIRCLES = 3

_TERMS_OF_GARBAGE = {"unexplained", "garbage"}

GARBAGE_REMEDY = Remedy(
    title="Break the circle, or collect at the end of each epoch",
    text="Objects that refer to each other in a circle are freed only by the collector, which "
    "counts objects, not bytes. Break the circle (weakref, del self.x), or call gc.collect() where "
    "large tensors have just been dropped.",
)
COLLECTOR_REMEDY_TEXT = (
    "Cycles are freed only by the collector: call gc.collect() at the end of each epoch, or switch "
    "it on again."
)


def garbage_trend(case: RunContext) -> Trend:
    """Return rate and shape of the garbage that awaits the collector."""
    x, y = garbage_series(case)
    return judge(x, y, unit=case.unit.name, noise=policy.GAUGE_NOISE_BYTES)


def diagnose_garbage(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> Iterator[Finding]:
    """Yield a finding when much memory awaits the collector.

    Full censuses weigh what no name reaches and follow the circle that keeps it. May be confused
    with the ordinary sawtooth of young garbage: hence a note unless it makes up more than half of
    the peak at many looks, or memory keeps rising and garbage was most of the rise at each look.
    """
    _, sizes = garbage_series(case)
    most = float(sizes.max()) if len(sizes) else 0.0
    if most < policy.NOTEWORTHY_BYTES:
        return
    resident = case.track.gauge(case.host_metric)
    known = resident[np.isfinite(resident)]
    rise = float(known.max() - known.min()) if len(known) else 0.0
    share = float(np.mean(sizes > policy.MOST_SHARE * most))
    is_frequent = share >= policy.MOST_SHARE and len(sizes) >= policy.FEWEST_READINGS
    dominates = is_frequent and most >= policy.COSTLY_BYTES and most > policy.MOST_SHARE * rise > 0
    term = growth.terms.get("garbage")
    following = next_collection(case)
    is_bounded = following is not None and following.is_harmless
    rises = not is_bounded and explains_growth(case, ledgers, policy.NOTEWORTHY_BYTES)
    piles_up = (term is not None and term.grows) or rises
    is_harmful = piles_up or (dominates and not is_bounded)
    later = sizes[len(sizes) // 2 :]
    has_ended = len(later) >= policy.FEWEST_READINGS and later.max() < policy.NOTEWORTHY_BYTES
    if not is_harmful and has_ended:
        return  # made in the first half alone, as what sets a program up does
    next_time = (
        " It goes on until the collector visits these objects, at about "
        f"{human_bytes(following.garbage_bytes)}."
        if following is not None and is_bounded and following.garbage_bytes > most
        else ""
    )
    found = to_finding(
        "garbage",
        "Garbage in reference cycles piles up faster than the collector runs"
        if piles_up
        else "Memory waits in reference cycles for the collector",
        f"Up to {human_bytes(most)} were reached by no name any more and not yet freed."
        f"{_freed(sizes)}{next_time}{_blamed(circles := _circles(case))}",
        _garbage_remedy(circles),
        severity=Severity.WARNING if is_harmful else Severity.NOTE,
        trend=case.gauge_trend(case.host_metric) if piles_up else garbage_trend(case),
        share=most / rise if rise > 0 else 0.0,
        total_bytes=most,
        falsifier=("gc.collect() would free it.", f"{human_bytes(most)} were unreached."),
    )
    yield msgspec.structs.replace(found, circles=circles)


def explains_growth(case: RunContext, ledgers: list[Ledger], least: float) -> bool:
    """Return whether memory rises without a name, and garbage was what it had risen by.

    ``least`` is what it must have risen by for a look to count, in bytes.
    """
    host = host_ledger(ledgers)
    left = sum(e.bytes for e in host.entries if e.kind in _TERMS_OF_GARBAGE) if host else 0
    trend = case.gauge_trend(case.host_metric)
    if host is None or left < max(policy.GROWTH_BYTES, policy.MOST_SHARE * host.total_bytes):
        return False
    readings = case.track.gauge(case.host_metric)
    inside = readings[np.isfinite(readings) & (case.track.phase > 0)]
    lowest = float(inside[0]) if len(inside) else 0.0
    weighed = []
    for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True):
        risen = (case.nearest(case.host_metric, position) or 0.0) - lowest
        if census.garbage_bytes is not None and risen >= least:
            weighed.append(census.garbage_bytes >= policy.MOST_SHARE * risen)
    return trend.is_growing and bool(weighed) and all(weighed)


def _freed(sizes: FloatArray) -> str:
    falls = -np.diff(sizes)
    freed = falls[falls >= policy.MOST_SHARE * sizes[:-1]]
    freed = freed[freed >= policy.GAUGE_NOISE_BYTES]
    if not len(freed):
        return f" In {plural(len(sizes), 'look')} it was not seen to be freed." * (len(sizes) > 1)
    return (
        f" Between {plural(len(sizes), 'look')} the collector freed it {plural(len(freed), 'time')}"
        f", {human_bytes(float(np.median(freed)))} each."
    )


def _circles(case: RunContext) -> list[Circle]:
    heaviest: dict[tuple[str, ...], CensusRow] = {}
    for census in case.table.censuses:
        for row in census.rows:
            known = heaviest.get(tuple(row.cycle))
            if row.root is RootKind.GARBAGE and row.cycle and _weight(row) > _weight(known):
                heaviest[tuple(row.cycle)] = row
    rows = sorted(heaviest.values(), key=lambda row: (-_weight(row), row.cycle))
    return [
        Circle(steps=row.cycle, type=row.type, bytes=_weight(row), count=row.count)
        for row in rows[:MOST_CIRCLES]
    ]


def _weight(row: CensusRow | None) -> int:
    return row.host_bytes + sum(row.device_bytes.values()) if row is not None else 0


def _blamed(circles: list[Circle]) -> str:
    if not circles:
        return ""
    first = circles[0]
    steps = " → ".join(f"`{step}`" for step in [*first.steps, first.steps[0]])
    many = f"{first.count:,} circles" if first.count > 1 else "The circle"
    return f" {many} {steps} kept {human_bytes(first.bytes)}."


def _garbage_remedy(circles: list[Circle]) -> Remedy:
    if not circles:
        return GARBAGE_REMEDY
    last = circles[0].steps[-1]
    return Remedy(
        title=f"Break the circle at {last}, or collect at the end of each epoch",
        text=f"Make `{last}` a weak reference (weakref.ref, weakref.proxy) or clear it when the "
        f"object is done with. {GARBAGE_REMEDY.text}",
    )


def diagnose_collector(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> Iterator[Finding]:
    """Yield a finding where the collector is switched off or its objects are frozen.

    May be confused with a program that switches it off and has no cycles: that is only a note. A
    short run weighs garbage only once; it piles up where it was most of what memory had risen by,
    and memory rises on without a name.
    """
    frozen, off = case.track.gauge(gauge.GC_FROZEN), _collector_is_off(case)
    hidden = frozen[np.isfinite(frozen)]
    if (unnamed := _frozen_again(case, growth)) is not None:
        yield _frozen_finding(case, unnamed, hidden)
        return
    jumped = len(hidden) >= 2 and hidden.max() - hidden[0] > 0
    if not off and not jumped:
        return
    _, garbage = garbage_series(case)
    most = float(garbage.max()) if len(garbage) else 0.0
    trend = garbage_trend(case)
    # The last look may be the highest by chance where the program collects by itself now and then.
    rises = most > 0 and most == garbage[-1] and case.gauge_trend(case.host_metric).is_growing
    # What grows while nobody collects goes on; elsewhere a collection may come before it is much.
    least = policy.LITTLE_BYTES if off and trend.is_growing else policy.NOTEWORTHY_BYTES
    piles_up = most >= least and (trend.is_growing or rises)
    if off and not trend.is_growing and explains_growth(case, ledgers, policy.NOTEWORTHY_BYTES):
        piles_up, trend = True, case.gauge_trend(case.host_metric)
    if off:
        title, call = "The cyclic garbage collector is switched off", "gc.enable()"
        state = "Automatic collection was off for most of the run"
    else:
        title, call = "Objects were frozen out of the collector's sight", "gc.unfreeze()"
        state = f"gc.freeze() hides {human_count(float(hidden.max()))} objects from the collector"
        piles_up = piles_up and trend.is_growing
    yield to_finding(
        "collector_off" if off else "collector_frozen",
        title,
        f"{state}; at most {human_bytes(most)} of garbage were waiting.",
        Remedy(title=f"Call {call}, or collect now and then", text=COLLECTOR_REMEDY_TEXT),
        severity=Severity.WARNING if piles_up else Severity.NOTE,
        trend=trend,
        total_bytes=most,
        fed_at=places_that_call(case.sources, {"gc"}, {"disable" if off else "freeze"}),
        falsifier=("gc.collect() frees what awaits it.", f"{human_bytes(most)} were unreached."),
    )


def _frozen_again(case: RunContext, growth: SearchResult) -> Term | None:
    """Return what grows without a name while ever more objects are frozen; None otherwise.

    May be confused with a program that freezes what it goes on to hold: that has a name.
    """
    if not case.gauge_trend(gauge.GC_FROZEN, policy.COUNT_NOISE).is_growing:
        return None
    terms = [growth.terms.get(kind) for kind in ("unexplained", "elsewhere")]
    grown = [t for t in terms if t is not None and t.grows and not t.excluded_by]
    return max(grown, key=lambda term: term.trend.net_bytes, default=None)


def _frozen_finding(case: RunContext, term: Term, hidden: FloatArray) -> Finding:
    gained = float(hidden[-1] - hidden[0])
    return to_finding(
        "collector_frozen",
        "Garbage is frozen out of the collector's sight again and again",
        f"gc.freeze() hides {human_count(float(hidden.max()))} objects from the collector, "
        f"{human_count(gained)} of them since the run began. Objects in circles among them are "
        f"never freed: {human_bytes(term.trend.net_bytes)} that has no name came in that time.",
        Remedy(
            title="Call gc.collect() before gc.freeze(), and freeze once, after the set-up",
            text="What is frozen is never collected, garbage included. " + COLLECTOR_REMEDY_TEXT,
        ),
        severity=Severity.WARNING,
        trend=term.trend,
        share=term.share,
        total_bytes=term.trend.net_bytes,
        fed_at=places_that_call(case.sources, {"gc"}, {"freeze"}),
        falsifier=("gc.unfreeze() and gc.collect() would free most of it.", None),
    )


_SLACK_CURES = {
    "glibc": (
        "Set MALLOC_ARENA_MAX=2 and MALLOC_TRIM_THRESHOLD_=131072, preload jemalloc or "
        "tcmalloc, or call ctypes.CDLL('libc.so.6').malloc_trim(0) after each epoch."
    ),
    "jemalloc": (
        "Set MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0 so that "
        "threads of its own return free pages soon, or narenas:2 where many threads allocate."
    ),
    "tcmalloc": (
        "Set TCMALLOC_RELEASE_RATE=10, or call MallocExtension_ReleaseFreeMemory of the library "
        "by ctypes after each epoch."
    ),
    "mimalloc": "Set MIMALLOC_PURGE_DELAY=0 so that free pages are returned at once.",
}
_SLACK_FALSIFIERS = {
    "glibc": "malloc_trim(0) would return most of it to the system.",
    "jemalloc": "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 would leave none of it.",
    "tcmalloc": "MallocExtension_ReleaseFreeMemory() would return most of it to the system.",
    "mimalloc": "mi_collect(true) would return most of it to the system.",
}


def slack_remedy(case: RunContext) -> Remedy:
    """Return what makes the process' allocator give free memory back."""
    its = case.allocator
    texts = [_SLACK_CURES[its]]
    if case.has_mimalloc_in_torch and its != "mimalloc":
        texts.append("Tensors come from mimalloc inside torch: MIMALLOC_PURGE_DELAY=0 is its cure.")
    texts.append("No container has to be changed.")
    return Remedy(title="Let the allocator return memory", text=" ".join(texts))


def _in_arenas(case: RunContext, free: float) -> str:
    _, arenas = kind_series(case, gauge.MAPPED_ARENAS)
    live = float(arenas[-1]) if len(arenas) else 0.0
    if case.allocator != "glibc" or live < policy.MOST_SHARE * free:
        return ""
    return (
        f" Arenas that threads have to themselves hold {human_bytes(live)}: what one thread frees "
        "there serves no other."
    )


def _why_it_stays(term: Term | None) -> str:
    if term is None or not (term.trend.is_growing and term.is_much):
        return ""
    if not term.excluded_by:
        return (
            " It goes on: free memory is returned only where no live block lies above it, so that "
            "small blocks that leak between larger ones keep it."
        )
    if term.excluded_by != PINNED:
        return ""
    return (
        " It lies between the parts of what grows, can't be returned while these live, and goes "
        "with them."
    )


def diagnose_slack(case: RunContext, growth: SearchResult) -> Iterator[Finding]:
    """Yield a finding when the C heap keeps much freed memory: resident memory stays high.

    May be confused with a leak by anyone who looks at resident memory alone. Slack that has settled
    is a note, and so is what lies between the contents of a container that grows.
    """
    gained, resident = case.gauge_gain(gauge.MALLOC_FREE), case.gauge_gain(case.host_metric)
    if case.window is None or gained is None or resident is None:
        return
    # At its end a program may give up what it had: the end of the stretch counts as well.
    ends = (case.window.last, len(case.track) - 1)
    free = max(case.nearest(gauge.MALLOC_FREE, end) or 0.0 for end in ends)
    used = max(case.nearest(case.host_metric, case.window.last) or 0.0, case.used_at_end())
    term = growth.terms.get("slack")
    is_alone = term is not None and term.grows
    grows = term is not None and term.trend.is_growing and term.is_much
    if term is not None and grows:
        gained, share = term.trend.net_bytes, term.share
    else:
        share = gained / resident if resident > 0 else 0.0
    large = free >= policy.LARGE_BYTES and free > policy.CONSIDERABLE_SHARE * used
    if not grows and not large:
        return
    yield to_finding(
        "allocator_slack",
        "Freed memory stays in the C heap",
        f"{case.allocator} keeps {human_bytes(free)} that the program has freed; this grew by "
        f"{human_bytes(max(gained, 0))}, {human_share(min(share, 1.0))} of what memory grew by."
        f"{_why_it_stays(term)}{_in_arenas(case, free)}",
        slack_remedy(case),
        severity=Severity.WARNING if is_alone else Severity.NOTE,
        trend=term.trend if term is not None else None,
        share=share,
        total_bytes=free,
        falsifier=(_SLACK_FALSIFIERS[case.allocator], None),
    )


_FEWER_OBJECTS = Remedy(
    title="Freeze what stays, collect less often, or keep fewer objects",
    text="A full collection visits every container object. Call gc.collect() and gc.freeze() once, "
    "after the set-up: what is there then is visited no more, and what of it becomes garbage in "
    "circles is never freed. gc.set_threshold(50_000, 20, 100) has it run less often; garbage lies "
    "longer. Or keep fewer objects: one array or tensor instead of a list of small objects is a "
    "single one.",
)
_NAMED_BY_USER = frozenset({RootKind.LOCAL, RootKind.GLOBAL, RootKind.CLASS_ATTRIBUTE})


def diagnose_collector_time(case: RunContext) -> Iterator[Finding]:
    """Yield a finding where collections take a good part of the time, or ever longer.

    Never more than a note: it costs time; what grows is reported by its own name. May be confused
    with the collections while a program imports, which are over when it works.
    """
    wall = _seconds_at_work(case)
    seconds = _seconds_collecting(case)
    share = seconds / wall if wall > 0 else 0.0
    is_much = seconds >= policy.COLLECTOR_S and share >= policy.HARMLESS_SHARE
    done, pauses = _full_pauses(case)
    trend = case.trend_of(done, pauses, policy.PAUSE_NOISE_US)
    is_long = len(pauses) > 0 and pauses[-1] >= 1e6 * policy.LONG_PAUSE_S
    grows = is_long and trend.is_growing
    if not is_much and not grows:
        return
    of_time = f"{human_share(share)} of the time"
    longer = _longer(case, trend, pauses[-1]) if grows else ""
    yield to_finding(
        "collector_time",
        "Full collections take ever longer" if grows else f"The collector takes {of_time}",
        f"By itself the collector took {_time(seconds)}, {of_time}."
        f"{_lengths(pauses)}{longer}{_most_items(case)}",
        _FEWER_OBJECTS,
        severity=Severity.NOTE,
        falsifier=("With gc.freeze() after the set-up they become short.", None),
    )


def _seconds_at_work(case: RunContext) -> float:
    return float(np.ptp(case.track.time_s[case.working])) if len(case.working) else 0.0


def _seconds_collecting(case: RunContext) -> float:
    """Return the seconds of collections from the end of set-up to the end of the work."""
    if not len(case.working):
        return 0.0
    spent = 0.0
    for name in gauge.GC_TIMES:  # sums that are recorded where they have changed, from 0 on
        known = case.track.known(name)
        sums = np.concatenate([[0.0], case.track.gauge(name)[known]])
        first, last = sums[np.searchsorted(known, case.working[[0, -1]], side="right")]
        spent += float(last - first)
    return spent / 1e6


def _full_pauses(case: RunContext) -> tuple[FloatArray, FloatArray]:
    by_itself = case.track.gauge(gauge.GC_PAUSES[2])
    longest = np.fmax(by_itself, case.track.gauge(gauge.GC_EXPLICIT_PAUSE))
    read = case.working[np.isfinite(longest[case.working])]
    return case.work_done[read], longest[read]


def _lengths(pauses: FloatArray) -> str:
    if not len(pauses):
        return ""
    if len(pauses) == 1:
        return f" A full collection took {_time(pauses[0] / 1e6)}."
    first, last, most = (_time(us / 1e6) for us in (pauses[0], pauses[-1], pauses.max()))
    return f" Full collections took {first} at first, {last} in the end and {most} at most."


def _longer(case: RunContext, trend: Trend, last: float) -> str:
    more = f" That is {_time(trend.bytes_per_unit / 1e6)} more per {trend.unit}"
    hours = _seconds_at_work(case) / 3600
    done = float(np.ptp(case.work_done[case.working]))
    if hours < 1 or done <= 0:
        return f"{more}."
    return f"{more}, {human_share(trend.bytes_per_unit * done / hours / last)} in an hour."


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.1g} ms"


def _most_items(case: RunContext) -> str:
    """Return which of the user's containers has most items, if these are a good part of what a full
    collection visits; as a sentence.
    """
    end = len(case.track) - 1
    old, pending = (case.nearest(name, end) for name in (gauge.GC_LONG_LIVED, gauge.GC_PENDING))
    walked = max((census.objects for census in case.table.censuses), default=0)
    objects = walked if old is None else old + (pending or 0.0)
    named = (row for row in case.table.latest if row.root in _NAMED_BY_USER)
    rows = [row for row in named if row.length and row.kind in CONTAINERS]
    most = max(rows, key=lambda row: (row.length or 0, -len(row.path)), default=None)
    if most is None or (most.length or 0) < policy.CONSIDERABLE_SHARE * objects:
        return ""
    return (
        f" `{most.name}` has {human_count(most.length or 0)} items; a full collection visits "
        f"{human_count(objects)} objects."
    )


def diagnose_cleaning_calls(case: RunContext) -> list[Finding]:
    """Return a finding for each line whose calls of gc.collect() or empty_cache() take much time.

    Their price stands there with their gain. A call that frees much, or on which a switched-off
    collector relies, is not advised against.
    """
    wall = float(case.track.time_s[-1]) if len(case.track) else 0.0
    records = case.recording.cleaning_calls
    calls = sorted(records[-1].calls if records else [], key=lambda call: -call.seconds)
    least = max(policy.COLLECTOR_S, policy.HARMLESS_SHARE * wall)
    return [
        _call_finding(case, call, call.seconds / wall)
        for call in calls
        if call.times and call.seconds >= least and wall > 0
    ]


def _call_finding(case: RunContext, call: CleaningCall, share: float) -> Finding:
    place = case.sources.location(call.file, call.line) if call.file else ""
    frees = call.freed_bytes / call.weighed if call.weighed else 0.0
    most = 1.0 if case.track.devices else policy.CALL_FINDS_OBJECTS  # each may hold much on one
    is_useless = (
        call.weighed > 0
        and frees < policy.GAUGE_NOISE_BYTES
        and (call.objects or 0) / call.times < most
        and call.most_freed_bytes < policy.NOTEWORTHY_BYTES
    )
    brings = f"frees {human_bytes(frees)}" if call.weighed else "frees an unknown amount"
    if call.objects is not None:
        brings += f" and {human_count(call.objects / call.times)} objects"
    text = (
        f"{call.call} is called {plural(call.times, 'time')} by {place or 'a library'}, takes "
        f"{human_share(share)} of the run ({_time(call.seconds / call.times)} a call, "
        f"{_time(call.longest_s)} at most) and {brings} a call."
    )
    if call.objects and case.track.devices:
        text += " What they held on a device is not counted."
    return to_finding(
        "cleaning_calls",
        f"{call.call} takes {human_share(share)} of the time"
        + (" and frees next to nothing" if is_useless else ""),
        text,
        _remedy_of_call(case, call, is_useless=is_useless),
        severity=Severity.NOTE,
        total_bytes=call.most_freed_bytes,
        fed_at=[place] if place else [],
        falsifier=("Without these calls memory would stay higher, if they were of use.", None),
        subject=f"{call.call} {place}",
    )


def _remedy_of_call(case: RunContext, call: CleaningCall, *, is_useless: bool) -> Remedy:
    if call.objects is None:
        return Remedy(
            title=f"Leave out {call.call}",
            text="torch uses the memory that it keeps again, and empties the cache by itself "
            "before it gives up. Each call waits for the device, and what is returned is asked for "
            "again at the price of cudaMalloc. It is worth it once, where another process or "
            "library needs the memory.",
        )
    if _collector_is_off(case):
        return Remedy(
            title="Call it less often",
            text="The collector is switched off, so that somebody has to call it: every hundredth "
            "time, or where much has just been dropped. Garbage lies longer then. gc.freeze() "
            "after the set-up makes each call cheaper.",
        )
    if is_useless:
        return Remedy(
            title="Remove the call",
            text="Objects that are in no circle are freed at once without it, and the collector "
            "visits the others by itself. If memory rises without the call, once per epoch does.",
        )
    return Remedy(
        title="Break the circles, or call it less often",
        text="What it frees lies in reference cycles: without them it is freed at once, for "
        "nothing (weakref, del self.x). Called half as often it takes half the time, and up to "
        "twice as much garbage lies meanwhile. gc.freeze() after the set-up makes each call "
        "cheaper.",
    )


def _collector_is_off(case: RunContext) -> bool:
    enabled = case.track.gauge(gauge.GC_ENABLED)
    known = enabled[np.isfinite(enabled)]
    return len(known) >= 2 and float(np.mean(known[1:] == 0)) > policy.MOST_SHARE
