"""Growth without a Python name: held by native code only, or by nothing that was weighed.

Native allocations have their library and the user's line from a sampled profile.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import WITHOUT_NAME, host_ledger
from leakscope.analysis.accounting.native import (
    NativeGrowth,
    growing_allocations,
    is_of_torch,
    where_mapped,
)
from leakscope.analysis.accounting.terms import Term, unexplained_series, unnamed_at
from leakscope.analysis.columns.series import HOST, FloatArray, IntArray
from leakscope.analysis.findings.loops import explain_loop
from leakscope.analysis.findings.native_references import (
    GIVE_BACK,
    NATIVE_REMEDY,
    Registration,
    diagnose_leaked_references,
    find_registration,
    handed_on,
    handed_to,
    makers_at,
    outlasted,
    scaled_trend,
)
from leakscope.analysis.findings.training_loop import gradient_cycle, is_gradient_cycle
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.growth.exclusions import is_named, may_come_with_shapes, new_shapes
from leakscope.analysis.growth.search import OtherGrowth, SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.severity import forecast
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusRow, CensusScope, RootKind
from leakscope.model.record import CENSUS_SKIPPED, NativeOwner
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count, human_share, plural
from leakscope.model.trend import Trend

FALSIFIER = (
    "With ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 and batches of one shape it would grow as before."
)
LEAK_OR_SHAPES_TITLE = "Memory grows with new shapes of tensors, or leaks"

_OBJECTS = frozenset({"named", "graph", "garbage", "pinned"})
"""Terms of the ledger that hold the program's objects; those of leakscope are sampled apart."""

UNEXPLAINED_REMEDY = Remedy(
    title="Narrow it down",
    text="A generator that is made in the head of a for loop has no name: give it one before the "
    "loop. Else run with fewer libraries active (no DataLoader workers, no logging, no image "
    "decoding) and compare; a native profiler such as memray with --native shows the allocating C "
    "functions.",
)

LET_IT_LOOK = Remedy(
    title="Install the native walker, or say where the loop is",
    text="A wheel for this Python has the walker, as has an installation where there is a C "
    "compiler. The slower walker looks where the program itself makes boundaries: put "
    "leakscope.profile() around its loop and call scope.step() in it.",
)

LOOK_AT_ALL = Remedy(
    title="Profile again with --budget 10%",
    text="The whole heap is walked several times then, and a container of a library that grows is "
    "named. If none is, native code leaks references: look for a newer release of the library that "
    "is called there.",
)
LOOK_ELSEWHERE = Remedy(
    title="Look for what was registered or handed to a library",
    text="What is registered, cached or put into a queue of a library's stays until it is taken "
    "back: atexit, hooks, callbacks, loggers, figures, compiled functions. Register once before "
    "the loop, or take back what each round adds.",
)
MOST_TYPES = 3
MOST_SITES = 3

CALL_LESS = Remedy(
    title="Close, stop or reset what this line uses in each round",
    text="A library's function called there allocates memory that it doesn't free: a profiler, "
    "reader, session or cache that is never stopped, closed or bounded, or a fault of the "
    "library's own. End it in each round, or make it once before the loop; then compare.",
)

FEWER_SHAPES = Remedy(
    title="Meet fewer shapes",
    text="Pad batches to a few lengths (buckets). ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 in the "
    "environment bounds the cache of oneDNN, which has room for 1,024 kernels by default.",
)
MOST_NATIVE_TYPES = 5
UNREACHED = "unreached"
"""Subject of the finding of objects that no name and no other object leads to."""
_OF_OBJECTS = {
    NativeOwner.ARRAY: "Arrays",
    NativeOwner.TENSOR: "Tensors",
    NativeOwner.INTERPRETER: "Objects",
}


def diagnose_unexplained(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> Iterator[Finding]:
    """Yield findings when memory goes on growing without a name of the user's.

    May be confused with the warm-up of libraries, which ends; with what is kept for each shape of
    tensors, which comes with new shapes alone; and with pages of a large array that are written for
    the first time.
    """
    ledger = host_ledger(ledgers)
    if growth.deep is not None:
        yield from _beyond_graph(case, growth.deep.other, ledger)
        return
    elsewhere, term = growth.terms.get("elsewhere"), growth.terms.get("unexplained")
    if elsewhere is not None and elsewhere.grows and not is_named(case, growth.growers, elsewhere):
        yield _unnamed_objects_finding(case, elsewhere)
    if ledger is None or term is None or not term.trend.is_growing:
        return
    if not term.is_much or term.excluded_by:
        return
    kept = sum(native.gained_bytes for native in growth.native.values())
    if kept >= policy.MOST_SHARE * term.trend.net_bytes:
        return  # culprits have it: their items keep it
    comes_with_shapes = may_come_with_shapes(case, term, unexplained_series(case, growth.growers))
    yield _of_shapes(case, term) if comes_with_shapes else _leak(case, term, ledger)


def _beyond_graph(case: RunContext, other: OtherGrowth, ledger: Ledger | None) -> Iterator[Finding]:
    if other.objects is not None:
        yield _unnamed_objects_finding(case, other.objects, but=policy.GRAPH_TYPES)
    if other.unexplained is not None and ledger is not None:
        libraries = [n for n in other.native if n.owner is NativeOwner.LIBRARY]
        objects = [n for n in other.native if n.owner is not NativeOwner.LIBRARY]
        in_libraries = sum(n.gained_bytes for n in libraries)
        is_native = in_libraries >= sum(n.gained_bytes for n in objects)
        explain, growing = (_native, libraries) if is_native else (_unreached, objects)
        yield explain(case, other.unexplained, growing, ledger)


def _unnamed_objects_finding(case: RunContext, term: Term, but: tuple[str, ...] = ()) -> Finding:
    types = _types(case, but)
    return _of_term(
        term,
        "Memory grows outside the names of the program",
        f"{human_bytes(term.trend.net_bytes)} of new objects are held by libraries or native code "
        f"and by no name of the program's{', most of them ' + types if types else ''}: registries, "
        f"caches, queues, callbacks or graphs that something was handed to.{_pinned(term)}",
        LOOK_ELSEWHERE,
        case.unnamed_lines,
        falsifier="A cache that fills would have ended within the run.",
        subject="elsewhere",
    )


def _pinned(term: Term | None) -> str:
    if term is None or not term.pinned_bytes:
        return ""
    return (
        f" They cost more than their size: {human_bytes(term.pinned_bytes)} of free memory in the "
        "C heap lie between them and can't be returned while they live."
    )


def _types(case: RunContext, but: tuple[str, ...]) -> str:
    """Return the heaviest types of what is new outside the user's names, with their bytes; those
    are left out whose names begin with one of ``but``.
    """
    last = next((c.elsewhere_types for c in reversed(case.table.censuses) if c.elsewhere_types), {})
    others = [item for item in last.items() if not item[0].startswith(but)]
    heaviest = sorted(others, key=lambda item: -item[1])[:MOST_TYPES]
    worth = [(name, size) for name, size in heaviest if size >= policy.GAUGE_NOISE_BYTES]
    return ", ".join(f"{name} ({human_bytes(size)})" for name, size in worth)


def _leak(case: RunContext, term: Term, ledger: Ledger) -> Finding:
    left = term.trend.net_bytes
    native = growing_allocations(case)
    if sum(n.gained_bytes for n in native) >= policy.MOST_SHARE * left:
        return _native(case, term, native, ledger)
    objects = growing_allocations(case, _OF_OBJECTS)
    unreached = sum(n.gained_bytes for n in objects) - sum(
        max(entry.bytes, 0) for entry in ledger.entries if entry.kind in _OBJECTS
    )
    if unreached >= max(policy.MOST_SHARE * left, policy.HARMLESS_BYTES):
        return _unreached(case, term, objects, ledger)
    lacks_censuses = any(note.slug == CENSUS_SKIPPED for note in case.recording.notes)
    if lacks_censuses and len(case.table.censuses) < policy.FEWEST_CENSUSES:
        return _of_term(
            term,
            "Memory grows, and no census saw who holds it",
            f"{_of_growth(term)} is neither garbage nor allocator slack. Which names hold it was "
            "not looked at: without the native walker no census is taken at boundaries by time."
            f"{_other_growth(ledger)}",
            LET_IT_LOOK,
        )
    return _of_term(
        term,
        "Memory grows outside everything that has a name",
        f"{_of_growth(term)} is neither garbage nor allocator slack nor in anything that has a "
        "name: native code allocated it, or a running loop alone refers to it, as to the generator "
        f"that it goes over.{where_mapped(case, term.trend.tail_from)}{_other_growth(ledger)}",
        UNEXPLAINED_REMEDY,
        case.sampled_lines if term.share >= policy.MAIN_SHARE else [],
    )


def _of_term(
    term: Term,
    title: str,
    text: str,
    remedy: Remedy,
    fed_at: list[str] | None = None,
    *,
    kind: str = "unexplained",
    falsifier: str = "A warm-up would have ended within the run.",
    subject: str = "",
) -> Finding:
    """Return a finding of what a term has."""
    return to_finding(
        kind,
        title,
        text,
        remedy,
        fed_at=list(dict.fromkeys(fed_at or [])),
        severity=Severity.WARNING,
        trend=term.trend,
        share=term.share,
        total_bytes=term.trend.net_bytes,
        falsifier=outlasted(falsifier, term.trend),
        subject=subject,
    )


def _of_growth(term: Term) -> str:
    """Return how a sentence about what has no name begins."""
    size = human_bytes(term.trend.net_bytes)
    return f"{size} of growth ({human_share(min(term.share, 1.0))})"


def _native(case: RunContext, term: Term, native: list[NativeGrowth], ledger: Ledger) -> Finding:
    first = native[0]
    place = f", called at {first.location}" if first.location else ""
    # What torch allocates below a line may be kernels, plans and graphs, not what the line returns.
    is_known = bool(first.location) and not is_of_torch(first)
    keeper = case.sources.kept_in(first.file, first.line) if is_known else ""
    takers = handed_to(case, [(first.file, first.line)]) if is_known and not keeper else []
    rows = "; ".join(
        f"{n.name}{' at ' + n.location if n.location else ''} {human_bytes(n.gained_bytes)}"
        for n in native[:MOST_SITES]
    )
    located = [n.location for n in native[:MOST_SITES] if n.location]
    awaited = ", ".join(dict.fromkeys(n.location for n in native[:MOST_SITES] if n.is_awaited))
    by_threads = f" Threads of the library's own allocate it while {awaited} waits for them."
    return _of_term(
        term,
        f"Native memory grows in {first.library}{place}"
        f"{', whose result goes into ' + keeper if keeper else handed_on(takers)}",
        f"{_of_growth(term)} is in no Python "
        f"object. Of sampled native allocations these go on growing (estimates): {rows}."
        f"{by_threads if awaited else ''}"
        f"{_pinned(term)}{where_mapped(case, term.trend.tail_from)}{_other_growth(ledger)}",
        _empty(keeper, first.location) if keeper else CALL_LESS,
        [*located, *(taker.location for taker in takers)],
        falsifier="A warm-up of the library would have ended within the run.",
    )


def _empty(keeper: str, location: str) -> Remedy:
    return Remedy(
        title=f"Bound {keeper}, or close what it keeps",
        text=f"What is made at {location} is put into {keeper}: each has native memory of its own, "
        "which Python's sizes don't show. Close those that aren't needed any more and take them "
        "out, or keep a fixed number.",
    )


def _unreached(
    case: RunContext, term: Term, objects: list[NativeGrowth], ledger: Ledger
) -> Finding:
    """Return what is known of objects that the collector doesn't track and no name leads to.

    Arrays, texts and bytes are such objects. What is sampled where they are allocated goes on
    growing, and nothing that has a name does. Which line takes the next arena for small ones is
    chance: small objects are sampled by themselves.
    """
    sampled = (n.location for n in objects[:MOST_SITES] if n.location)
    sites = [(n.file, n.line) for n in objects if n.location]
    type_name = "numpy.ndarray" if objects[0].owner is NativeOwner.ARRAY else ""
    is_suspect = bool(sites) and bool(makers_at(case, sites[0], type_name))
    takers = [] if is_suspect else handed_to(case, sites)
    traced = case.small_object_lines[:MOST_SITES]
    places = (
        traced
        if traced and objects[0].owner is NativeOwner.INTERPRETER
        else list(dict.fromkeys(sampled))
    )
    rows = (
        f"objects {human_bytes(sum(n.gained_bytes for n in objects))}"
        if places == traced
        else "; ".join(
            f"{_OF_OBJECTS[n.owner].lower()}{' at ' + n.location if n.location else ''} "
            f"{human_bytes(n.gained_bytes)}"
            for n in objects[:MOST_SITES]
        )
    )
    is_walked = any(c.scope is CensusScope.FULL for c in case.table.censuses)
    reached = "to which nothing refers" if is_walked else "outside the names of the program"
    leads = "no name and no other object leads" if is_walked else "no name of the program's leads"
    elsewhere = (
        ", or a library keeps them in a container of its own, which a walk of the whole heap would "
        "name. None was taken in this run"
    )
    return _of_term(
        term,
        f"{_OF_OBJECTS[objects[0].owner]} {reached} are never freed"
        f"{', allocated at ' + places[0] if places else ''}{handed_on(takers)}",
        f"{_of_growth(term)} is in Python objects "
        f"to which {leads}. By sampled allocations, estimates: {rows}. "
        "Native code that makes them or is handed them leaks references to them, or keeps them in "
        f"a structure of its own{'' if is_walked else elsewhere}.{_other_growth(ledger)}",
        GIVE_BACK if is_walked else LOOK_AT_ALL,
        [*(taker.location for taker in takers), *places],
        kind="leaked_references",
        falsifier="A cache or queue of a library's would become smaller when it is emptied.",
        subject=UNREACHED,
    )


def _other_growth(ledger: Ledger) -> str:
    least = max(policy.GAUGE_NOISE_BYTES, policy.UNNAMED_SHARE * ledger.total_bytes)
    known = [e for e in ledger.entries if e.kind not in WITHOUT_NAME and e.bytes >= least]
    most = sorted(known, key=lambda e: -e.bytes)[:3]
    listed = ", ".join(f"{e.label.partition(':')[0]} {human_bytes(e.bytes)}" for e in most)
    return f" Beside it grew: {listed}." if listed else ""


def _of_shapes(case: RunContext, term: Term) -> Finding:
    return to_finding(
        "unexplained",
        LEAK_OR_SHAPES_TITLE,
        f"{_of_growth(term)} has no name, and "
        f"tensors of {plural(new_shapes(case, term), 'new shape')} were met all along. Libraries "
        "keep something for each shape, as oneDNN does a kernel in a cache that ends to grow when "
        "it is full, and larger batches need more at once. It may be a leak too.",
        FEWER_SHAPES,
        severity=Severity.NOTE,
        trend=term.trend,
        share=term.share,
        total_bytes=term.trend.net_bytes,
        falsifier=(FALSIFIER, None),
    )


def diagnose_native(case: RunContext, growth: SearchResult) -> list[Finding]:
    """Return a finding for each kind of object that grows and that only native code holds.

    These are held by autograd, queues in C++ or registries of the interpreter. May be confused with
    buffers that libraries allocate once.
    """
    leaked = diagnose_leaked_references(case, growth)
    found = [
        finding
        for path, row in enumerate(case.table.latest)
        if row.root is RootKind.NATIVE and not row.parent and row.type not in leaked
        for device in case.table.retained
        if (finding := _grows(case, growth, path, device)) is not None
    ]
    found.sort(key=lambda f: -f.total_bytes)
    return list(leaked.values()) + _each_loop_once(found)[:MOST_NATIVE_TYPES]


def _each_loop_once(found: list[Finding]) -> list[Finding]:
    """Return findings; of a loop on which objects of several types hang the heaviest has all."""
    kept: dict[str, Finding] = {}
    for finding in found:
        way = " ".join(step for circle in finding.circles for step in circle.steps)
        key = f"{finding.device} {way or finding.signature}"
        rate = f"{human_bytes(finding.bytes_per_unit)} per {finding.unit}"
        more = f"What else hangs on it grows by {rate}."
        kept[key] = with_more(kept[key], finding, more) if key in kept else finding
    return list(kept.values())


def with_more(first: Finding, other: Finding, sentence: str) -> Finding:
    """Return a finding that has what another grows by as well, with a further sentence."""
    (low, high), (lower, higher) = first.interval, other.interval
    return msgspec.structs.replace(
        first,
        text=f"{first.text} {sentence}",
        bytes_per_unit=first.bytes_per_unit + other.bytes_per_unit,
        interval=(low + lower, high + higher),
        total_bytes=first.total_bytes + other.total_bytes,
        share=min(first.share + other.share, 1.0),
    )


def _grows(case: RunContext, growth: SearchResult, path: int, device: str) -> Finding | None:
    table, row = case.table, case.table.latest[path]
    columns = np.flatnonzero(table.full)
    present = np.flatnonzero(np.isfinite(table.retained[device][path, columns]))
    if len(present) == 0:
        return None
    columns = columns[max(present[0] - 1, 0) :]  # where the walk before saw none there was none
    y = np.nan_to_num(table.retained[device][path, columns])
    x = case.work_done[table.at[columns]]
    is_circle = is_gradient_cycle(row)
    if is_circle or row.loop:  # there was none before the first step
        x, y = np.insert(x, 0, case.work_done[0]), np.insert(y, 0, 0.0)
    trend = judge(x, y, unit=case.unit.name, noise=policy.RATE_PER_PASS)
    if not trend.is_growing and device == HOST:
        trend = _carries(case, growth, columns, y[-len(columns) :]) or trend
    if not trend.is_growing and device == HOST and row.loop:
        trend = _loops_carry(case, growth, path) or trend
    if not trend.is_growing:
        return None
    cycle = gradient_cycle(case, row) if is_circle else None
    loop = explain_loop(case, row, trend)
    known = cycle or loop
    registration = None if known else find_registration(case, row)
    serious = policy.HORIZON * trend.net_bytes >= policy.HARMLESS_BYTES
    gain = case.device_gain(device) or 0.0
    takers = [] if known or registration else handed_to(case, case.unnamed_sites)
    fed_at = registration.places if registration is not None else case.unnamed_lines
    fed_at = known.fed_at if known is not None else [*fed_at, *(t.location for t in takers)]
    kind, (title, text, remedy) = "native_held", _words(row, trend, float(y[-1]), registration)
    if takers:
        text = f"{text} They are made at {case.unnamed_lines[0]}{handed_on(takers)}."
    if known is not None:
        kind, title, remedy = known.kind, known.title, known.remedy
        text = known.text if loop is known else f"{text} {known.text}"
    found = to_finding(
        kind,
        title,
        f"{text}{_pinned(growth.terms.get('elsewhere'))}",
        remedy,
        severity=Severity.WARNING if serious else Severity.NOTE,
        trend=trend,
        share=trend.net_bytes / gain if device == HOST and gain > trend.net_bytes else 0.0,
        total_bytes=float(y[-1]),
        device=device,
        fed_at=list(dict.fromkeys(fed_at)),
        falsifier=("gc.collect() would free them if they were garbage.", "They are referenced."),
        subject=row.path,
    )
    return msgspec.structs.replace(found, circles=[loop.circle] if loop and loop.circle else [])


def _words(
    row: CensusRow, trend: Trend, retained: float, registration: Registration | None
) -> tuple[str, str, Remedy]:
    """Return title, text and remedy; of what is known to be registered, that comes first."""
    # Of many that are light the walk weighed but some.
    is_all = retained >= trend.net_bytes
    seen = f"{human_bytes(retained)} in {plural(row.count, 'object')}, growing by"
    rate = f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}"
    measured = f"{seen if is_all else 'it grows by'} {rate}"
    sites = [f"{s.file}:{s.line}" for s in row.allocated_at[:3]]
    where = f" They were allocated at {', '.join(sites)}." if sites else ""
    if registration is not None:
        text = f"{registration.sentence}: {measured}; no Python name reaches it.{where}"
        return registration.registry.title, text, registration.registry.remedy
    text = f"{row.name}: {measured}; no Python name reaches them.{where}"
    return f"{row.type} objects that only native code holds", text, NATIVE_REMEDY


def _carries(
    case: RunContext, growth: SearchResult, columns: IntArray, retained: FloatArray
) -> Trend | None:
    """Return the trend of all that is new without a name, where these objects are most of it.

    Walks of the whole heap are few, and what they show is weighed at every census. Each selects the
    heaviest objects alone, so that of very many a part is seen: the largest part counts.
    """
    term = growth.terms.get("elsewhere")
    new = unnamed_at(case, columns)
    if term is None or not term.grows or not (new > 0).any():
        return None
    counts = (new > 0) & ((retained >= policy.HARMLESS_BYTES) | (columns == columns[-1]))
    share = min(float((retained[counts] / new[counts]).max(initial=0.0)), 1.0)
    return scaled_trend(term.trend, share) if share >= policy.MOST_SHARE else None


def _loops_carry(case: RunContext, growth: SearchResult, path: int) -> Trend | None:
    """Return the trend of what is new without a name, as far as loops like this hold it.

    No loop was there before the program began, and none is ever freed: one look that shows many is
    enough, where what every census weighs grows by no more than twice what they hold. May be
    confused with loops that were made at the beginning: they are few.
    """
    table, row, term = case.table, case.table.latest[path], growth.terms.get("elsewhere")
    alike = [p for p, other in enumerate(table.latest) if other.loop == row.loop]
    retained = np.nan_to_num(table.retained[HOST][alike][:, table.full])
    counts = np.nan_to_num(table.count[path, table.full])
    looks = counts[counts > 0]
    if term is None or not term.grows or not len(looks) or looks[-1] < policy.REGISTRY_ENTRIES:
        return None
    has_more = len(looks) == 1 or looks[-1] - looks[0] >= policy.MOST_SHARE * looks[-1]
    together = float(retained.sum(axis=0).max())
    if not has_more or together < policy.MOST_SHARE * term.trend.net_bytes:
        return None
    whole = min(together / term.trend.net_bytes, 1.0)
    part = whole * float(retained[alike.index(path)].max()) / together
    return scaled_trend(term.trend, part)


def diagnose_deep_graphs(case: RunContext, growth: SearchResult) -> Iterator[Finding]:
    """Yield a finding where memory grows without a name behind a graph that is too deep to walk.

    It is a note where the rate of a culprit has that memory in it already. May be confused with a
    graph that is cut now and then, which had become smaller before, while other memory grows.
    """
    deep = growth.deep
    if deep is None:
        return
    table, row = case.table, case.table.latest[deep.path]
    nodes = human_count(float(np.nanmax(table.nodes[deep.path])))
    lines = case.sources.feeding(row.owner, row) if row.owner is not None else []
    fed_at = list(dict.fromkeys(case.sources.location(f.file, f.line) for f in lines[:MOST_SITES]))
    counted = " and counts in its rate" if deep.is_counted else ""
    yield to_finding(
        "deep_graph",
        f"The graph of {row.name} is too deep to be walked",
        f"{row.name} kept {nodes} autograd nodes when it was last walked, and more since. So "
        f"long a chain is not walked again, for torch frees what was asked for by recursion. "
        f"What grows without a name, {human_bytes(deep.trend.net_bytes)}, is probably the "
        f"graph's{counted} (estimate).",
        Remedy(
            title=f"Detach {row.name} between steps",
            text=f"{row.name} = {row.name}.detach() lets the graph of earlier steps go; keep "
            "numbers or detached tensors of what is read later.",
        ),
        severity=Severity.NOTE if deep.is_counted else Severity.WARNING,
        trend=deep.trend,
        share=deep.share,
        total_bytes=deep.trend.net_bytes,
        fed_at=fed_at or case.unnamed_lines,
        falsifier=(f"With {row.name} detached in each step memory would rest.", None),
        subject=row.path,
    )


MORE_THAN_ALL_FACTOR = 1.2
FROM_WITHIN = Remedy(
    title="Run it under leakscope to learn what grows",
    text="From outside nothing has a name. Put `leakscope run` in front of the command, or one "
    "`with leakscope.profile():` around the loop: the report then names what grows and the line "
    "that feeds it, in DataLoader workers too.",
)


def diagnose_watched(case: RunContext) -> Iterator[Finding]:
    """Yield a finding when the memory of a process tree watched from outside grows.

    May be confused with a warm-up or data that is read into memory, both of which end. Pages of
    files that are mapped don't count: the kernel takes them back when it needs room.
    """
    if not case.is_watched:
        return
    x, y = _tree_series(case)
    trend = tree_trend(case)
    is_much = trend.points >= policy.FEW_READINGS and trend.net_bytes >= policy.GROWTH_BYTES
    if not trend.is_growing or not is_much:
        return
    ahead = forecast(
        limit_bytes=case.limit_bytes,
        used_bytes=float(y[-1]),
        rate=trend.bytes_per_unit,
        unit=trend.unit,
        done=float(x[-1]),
    )
    watched = float(x[-1] - x[0])
    fatal = ahead is not None and ahead.units_left <= policy.HORIZON * watched
    ends = f" It {ahead.text} of watching." if ahead is not None and fatal else ""
    yield to_finding(
        "tree_grows",
        "The process and its children take ever more",
        f"{human_bytes(trend.bytes_per_unit)} more per {trend.unit}, "
        f"{human_bytes(trend.net_bytes)} in all{_where_it_grows(case, trend)}.{ends}",
        FROM_WITHIN,
        severity=Severity.CRITICAL if fatal else Severity.WARNING,
        trend=trend,
        share=1.0,
        total_bytes=float(y.max()),
        falsifier=("A warm-up would have ended.", "It went on in each third."),
    )


def tree_trend(case: RunContext) -> Trend:
    """Return how the memory of a process with all its children moves, pages of files left out."""
    return case.trend_of(*_tree_series(case), noise=policy.HARMLESS_BYTES)


def _tree_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return minutes and the memory of the process with all its children at each reading, without
    pages of files.
    """
    own = gauge.PSS if case.track.has_gauge(gauge.PSS) else gauge.RSS
    values = case.track.gauge(own) + np.nan_to_num(case.track.gauge(gauge.CHILDREN_PSS))
    values -= np.nan_to_num(case.track.gauge(gauge.TREE_FILES))
    values = values[case.working]
    known = np.isfinite(values)
    return case.unit.done[case.working][known], values[known]


def _where_it_grows(case: RunContext, trend: Trend) -> str:
    share = case.children_gain() / max(trend.net_bytes, 1.0)
    if share > MORE_THAN_ALL_FACTOR:  # children read files, which don't count in the whole
        return ""
    if share >= policy.MOST_SHARE:
        return ", most of it in child processes"
    return ", most of it in the process itself" if share <= 1 - policy.MOST_SHARE else ""
