"""References that native code has: those it takes and never gives back, and those of registries.

An extension that returns a new reference after a second ``Py_INCREF`` leaves an object that nothing
refers to and nothing frees. A walk sees it: more references than it found, of every such object
equally many, and the objects never become fewer. A queue or cache in C++ looks the same for as long
as it only grows; one that drains is not meant here.

Registries of the interpreter, such as that of ``atexit``, refer to their entries from C alone. No
walk finds a name for what they keep. What tells is the type of the objects and a call in the
program's sources that is run again and again.

Many registries are counted as the program runs. Where one has ever more entries, memory that grows
without a name is put down to it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.accounting.ledger import unexplained_bytes
from leakscope.analysis.accounting.terms import Term
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import is_named
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import (
    SourceIndex,
    lines_that_fill,
    places_of,
    places_that_call,
)
from leakscope.analysis.source.program import CodeScope, calls_in
from leakscope.analysis.source.types import imported_name
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusRow, HeadObjects, RootKind
from leakscope.model.registries import REGISTRIES, CountedRegistry
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count, plural
from leakscope.model.trend import Trend

GIVE_BACK = Remedy(
    title="Have the extension give its references back",
    text="Look for a newer release of the library, or report it there. In C, a new object that is "
    "returned needs no Py_INCREF, and one that was appended or stored elsewhere a Py_DECREF after "
    "it. If the extension keeps the objects on purpose, empty or bound that. Until it is mended "
    "call it less often, or in a process that ends.",
)
NATIVE_REMEDY = Remedy(
    title="Look for what keeps them in native code",
    text="An autograd graph, a queue of a C++ extension, atexit or a hook registered again and "
    "again may hold them: detach what is kept, and remove what is registered.",
)
_OF_HOOKS = frozenset({"collections.OrderedDict"})
"""In what torch keeps hooks: C++ refers to those of every loop."""
_CALLABLES = frozenset({"function", "method", "functools.partial"})
"""What atexit, signal and their like keep in C: callbacks, which are registered and not leaked."""
_OF_ANYTHING = _CALLABLES | {"tuple", "dict", "list"}
"""What other native code than that of registries has as well."""


def diagnose_leaked_references(case: RunContext, growth: SearchResult) -> dict[str, Finding]:
    """Return a finding for each type of which native code leaks references, by type, the heaviest
    first.

    May be confused with a native container that only grows: the text names both.
    """
    term = growth.terms.get("elsewhere")
    if term is None or not term.grows:
        return {}
    looped = {row.type for row in case.table.latest if row.root is RootKind.NATIVE and row.loop}
    looped |= _OF_HOOKS if looped else set()
    found = {
        heads.type: _finding(case, term, heads, trend)
        for heads in _native_heads(case)
        if heads.type not in looped
        and not (heads.type.startswith("torch.") or heads.type.endswith("Backward"))
        if not any(
            heads.type in r.types - _OF_ANYTHING and _places(case, r) for r in _WITHOUT_COUNT
        )
        if (trend := _trend(case, heads)) is not None
    }
    return dict(sorted(found.items(), key=lambda item: -item[1].total_bytes))


def _native_heads(case: RunContext) -> list[HeadObjects]:
    last = next((c for c in reversed(case.table.censuses) if c.native_heads), None)
    if last is None:
        return []
    everywhere = {heads.type: heads.count for heads in last.elsewhere_heads}
    return [
        heads
        for heads in last.native_heads
        if heads.type not in _CALLABLES
        and heads.least_references == heads.most_references
        and heads.count >= policy.MOST_SHARE * everywhere.get(heads.type, 0)
    ]


def _trend(case: RunContext, heads: HeadObjects) -> Trend | None:
    """Return how the objects of a type go on to grow in bytes; None where many were released."""
    working = set(case.working.tolist())
    looks = [
        (position, next((h for h in census.elsewhere_heads if h.type == heads.type), None))
        for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True)
        if census.elsewhere_bytes is not None and position in working
    ]
    if len(looks) < policy.FEWEST_READINGS:
        return None
    at = np.array([position for position, _ in looks], dtype=np.int64)
    counts = np.array([seen.count if seen else 0 for _, seen in looks], float)
    sizes = np.array([seen.bytes if seen else 0 for _, seen in looks], float)
    released = float((np.maximum.accumulate(counts) - counts).max())
    if released > policy.LITTLE_SHARE * (counts[-1] - counts[0]):
        return None
    trend = case.trend_of(case.work_done[at], sizes)
    return trend if trend.is_growing and trend.net_bytes >= policy.HARMLESS_BYTES else None


def _finding(case: RunContext, term: Term, heads: HeadObjects, trend: Trend) -> Finding:
    made_by, takers = _call(case, heads.type), handed_to(case, _made_at(case, heads.type))
    call = made_by or (takers[0] if len(takers) == 1 else None)
    subject = f"{call.function} at {call.location}" if call is not None else "Native code"
    each = "a reference" if heads.most_references == 1 else f"{heads.most_references} references"
    objects = f"{heads.type} object"
    lines = [case.sources.location(*site) for site in _made_at(case, heads.type)]
    made = f" They were made at {lines[0]}{handed_on(takers)}." if lines and not made_by else ""
    taking = [taker.location for taker in takers]
    remedy = GIVE_BACK
    if call is not None:
        title = f"Have {call.function} give its references back"
        remedy = msgspec.structs.replace(GIVE_BACK, title=title)
    return to_finding(
        "leaked_references",
        f"References to {objects}s are leaked by {call.function if call else 'native code'}",
        f"{plural(heads.count, objects)} ({human_bytes(heads.bytes)}) each have {each} that no "
        f"object accounts for. They only became more, by {human_bytes(trend.bytes_per_unit)} per "
        f"{trend.unit}.{made} {subject} takes a reference and never gives it back, or keeps the "
        "objects in a structure of its own that is never emptied.",
        remedy,
        fed_at=lines if made_by else list(dict.fromkeys([*taking, *lines])),
        severity=Severity.WARNING,
        trend=trend,
        share=term.share * min(trend.net_bytes / max(term.trend.net_bytes, 1.0), 1.0),
        total_bytes=trend.net_bytes,
        falsifier=outlasted(
            "A cache or queue of the library's would become smaller when it is emptied.", trend
        ),
        subject=heads.type,
    )


@dataclass(frozen=True)
class LibraryCall:
    """A call into a library."""

    function: str
    location: str


_MOST_TAKERS = 2
"""Functions that objects are handed to: where there are more, none of them tells anything."""


def handed_to(case: RunContext, sites: Sequence[tuple[str, int]]) -> list[LibraryCall]:
    """Return the calls into libraries that are handed what the first of these lines makes; none
    where they are many.
    """
    found = case.sources.handed_to(*sites[0]) if sites else []
    calls = [LibraryCall(function, location) for function, location in found]
    return calls if len(calls) <= _MOST_TAKERS else []


def handed_on(takers: Sequence[LibraryCall]) -> str:
    """Return the end of a sentence that says to which functions objects are handed."""
    named = " and ".join(f"{taker.function} at {taker.location}" for taker in takers)
    return f", and handed to {named}" if named else ""


def _made_at(case: RunContext, type_name: str) -> list[tuple[str, int]]:
    """Return the lines that make the objects of a type: of one of the program's classes those that
    call it, else those below which what has no name was seen to be made.
    """
    if not case.sources.defines(type_name):
        return case.unnamed_sites
    return case.sources.calls_of_class(type_name.rpartition(".")[2]) or case.unnamed_sites


def _call(case: RunContext, type_name: str) -> LibraryCall | None:
    """Return the only call into a library at the line that made most of the objects, if there is
    just one.
    """
    if not case.unnamed_sites or case.sources.defines(type_name):
        return None
    site = case.unnamed_sites[0]
    makers = makers_at(case, site, type_name)
    return LibraryCall(makers.pop(), case.sources.location(*site)) if len(makers) == 1 else None


def makers_at(case: RunContext, site: tuple[str, int], type_name: str) -> set[str]:
    """Return the functions of libraries that are called at a line, without those that make objects
    of a type as a matter of course: of the standard library, and of the one that has the type.
    """
    file, line = site
    usual = sys.stdlib_module_names | {type_name.partition(".")[0], ""}
    found = {
        imported_name(call.func, statement.scope)
        for statement in case.sources.program.statements
        if statement.file == file
        for call in calls_in(statement.node)
        if call.lineno <= line <= (call.end_lineno or call.lineno)
    }
    return {name for name in found if name.partition(".")[0] not in usual}


@dataclass(frozen=True)
class Registry:
    """What keeps all that it is given until the program ends, known by the objects it has."""

    owners: frozenset[str]
    """What stands before the function's name in a call; none for a method of any object."""
    function: str
    types: frozenset[str]
    """What a walk shows of it: the type of its entries, or of the container that has them."""
    title: str
    keeps: str
    """Begins the sentence that goes on with what is kept: ``atexit.register``."""
    remedy: Remedy
    counted_as: str = ""
    """Where its entries are counted nevertheless, by what name: it is meant if these grow."""


_WITHOUT_COUNT = (
    Registry(
        frozenset({"atexit"}),
        "register",
        _CALLABLES | {"tuple", "dict"},
        "Calls pile up that are to be made when the program ends",
        "What atexit.register is given at {place} stays until the program ends",
        Remedy(
            title="Register one function before the loop, or give it nothing large",
            text="atexit keeps each function that it is given, and its arguments, until it has "
            "called it. Register one that goes over what is to be done at the end, and hand it "
            "names or paths instead of the objects; atexit.unregister(function) takes back all "
            "calls of a function.",
        ),
        counted_as="exit-handlers",
    ),
    Registry(
        frozenset({"sys"}),
        "addaudithook",
        _CALLABLES,
        "Audit hooks pile up",
        "What sys.addaudithook is given at {place} stays until the program ends",
        Remedy(
            title="Add one audit hook before the loop",
            text="An audit hook can't be removed: it is called at each event, and kept with all "
            "that it refers to, until the program ends. Add one, and change what it reads.",
        ),
    ),
    Registry(
        frozenset({"codecs"}),
        "register",
        _CALLABLES | {"list"},
        "Search functions of codecs pile up",
        "What codecs.register is given at {place} stays until it is taken back",
        Remedy(
            title="Register the search function once",
            text="Each search function is asked for every encoding that isn't known yet, and kept "
            "with all that it refers to. Register it before the loop; codecs.unregister(function) "
            "takes it back.",
        ),
    ),
    Registry(
        frozenset({"codecs"}),
        "register_error",
        frozenset({"dict"}),
        "Error handlers of codecs pile up",
        "What codecs.register_error is given at {place} stays until the program ends",
        Remedy(
            title="Register each error handler once",
            text="A handler stays under its name, with all that it refers to, and there is no call "
            "that takes it back. Register it before the loop; under the same name the new one "
            "takes the place of the old.",
        ),
    ),
    Registry(
        frozenset(),
        "set",
        frozenset({"_contextvars.Context", "Context"}),
        "Values of context variables pile up",
        "What is set at {place} stays in the context, under a variable that is made each time",
        Remedy(
            title="Make each ContextVar once, at the top of a module",
            text="A context keeps the value of every variable that was set in it, and the "
            "variable. One that is made in a loop or a function is never freed: make it once, and "
            "take back a value with reset(token).",
        ),
    ),
)


@dataclass(frozen=True)
class Registration:
    """A registry that keeps what a row has, and where the program fills it."""

    registry: Registry
    places: list[str]

    @property
    def sentence(self) -> str:
        """What is kept, and until when."""
        return self.registry.keeps.format(place=self.places[0])


def find_registration(case: RunContext, row: CensusRow) -> Registration | None:
    """Return what is registered again and again and would keep what a row has, if it is known."""
    types = {row.type, row.path.rpartition("·")[2]}
    for registry in _WITHOUT_COUNT:
        if types & registry.types and not _rests(case, registry):
            places = _places(case, registry)
            if places:
                return Registration(registry, places)
    return None


def _places(case: RunContext, registry: Registry) -> list[str]:
    """Return where the program fills a registry again and again: of several such lines those that
    made what grows, where there are any.
    """
    places = places_that_call(
        case.sources, set(registry.owners), {registry.function}, repeatedly=True
    )
    return [place for place in places if place in case.unnamed_lines] or places


def _rests(case: RunContext, registry: Registry) -> bool:
    if not registry.counted_as or not case.track.has_gauge(gauge.registry(registry.counted_as)):
        return False
    trend = case.gauge_trend(gauge.registry(registry.counted_as), policy.COUNT_NOISE)
    gained = trend.net_bytes + trend.gained_before
    return not trend.is_growing and gained < policy.FEWEST_COUNTED


_MOST_LINES = 3
"""Reported lines that fill a registry."""
_TAKE_BACK = "Register once before the loop, or take back in each round what it added."


@dataclass(frozen=True)
class _Growing:
    """A registry that has ever more entries."""

    registry: CountedRegistry
    trend: Trend
    places: list[str]
    """Lines that add entries again and again."""
    is_stored: bool
    """Whether the program itself stores there, under a key."""

    @property
    def entries(self) -> float:
        """How many it gained."""
        return self.trend.net_bytes + self.trend.gained_before


def with_registries(
    case: RunContext,
    growth: SearchResult,
    ledgers: list[Ledger],
    found: list[Finding],
    piled_up: Collection[str] = (),
) -> list[Finding]:
    """Return findings and one for each registry that has ever more entries and no culprit names.

    Memory without a name is put down to one of them: to one that the program's own lines fill, and
    of those to the one with the most entries. What else was found of objects that the same function
    makes, and that tells no holder, is left out then. May be confused with a registry that is
    filled while libraries are imported, or has a bound: both end to grow.
    No memory is put down to the registries of what many run, ``task`` or ``thread``, that is in
    ``piled_up``: that tells more.
    """
    rows = [case.table.latest[grower.path] for grower in growth.growers]
    paths = [row.path for row in rows if not row.user]
    growing = [
        each
        for registry in REGISTRIES
        if (each := _growing(case, registry)) is not None
        if not any(map(registry.has, paths))  # a culprit is what has its entries, or lies in it
    ]
    if not growing:
        return found
    filling = _functions(case.sources, {line for each in growing for line in each.places})
    nameable = [f for f in found if f.severity is not Severity.NOTE and f.kind in _NAMES_MEMORY]
    taken = [
        f
        for f in nameable
        if f.remedy.title in _KNOWS_NO_HOLDER
        and filling.intersection(_functions(case.sources, set(f.fed_at)))
    ]
    nameable = [f for f in nameable if f not in taken]
    shared = [f for f in found if f.severity is not Severity.NOTE and f.kind == "shared_memory"]
    lines = {line for finding in (*nameable, *shared) for line in finding.fed_at}
    growing = [each for each in growing if not lines.intersection(each.places)]
    growing.sort(key=lambda each: (not each.places, -each.entries))
    nameless = without_name(case, growth, ledgers) - sum(f.total_bytes for f in nameable)
    leaks = [f for f in found if f.kind == "unexplained" and f.severity is not Severity.NOTE]
    leaks += taken
    allocating = {line for finding in leaks for line in finding.fed_at}
    making = {scope for scope in _functions(case.sources, allocating) if scope.parent is not None}
    filled = []
    for each in growing:
        # Where growth without a name is a leak by itself, less is enough to say what it is, unless
        # another function allocates it: of a registry in which the program stores that isn't
        # certain, for what is stored may be made in any.
        is_there = bool(leaks) and (
            not each.places
            or not allocating
            or each.is_stored
            or bool(allocating.intersection(each.places))
            or bool(making & _functions(case.sources, set(each.places)))
        )
        least = policy.HARMLESS_BYTES if is_there else policy.NOTEWORTHY_BYTES
        is_much = nameless >= least and each.registry.piles_up_as not in piled_up
        is_memory = is_much and moves_with(case, each.registry, case.host_metric)
        trend = _nameless_trend(growth, each.trend, nameless) if is_memory else None
        filled.append(_registry_finding(case, each, trend))
        nameless = 0.0 if is_memory else nameless
    if any(f.severity is not Severity.NOTE for f in filled):
        found = [f for f in found if f not in taken]
    return found + filled


_NAMES_MEMORY = frozenset(
    {"native_held", "leaked_references", "open_figures", "autograd_loop", "deep_graph"}
)
"""Findings that say what memory without a Python name is."""
_KNOWS_NO_HOLDER = frozenset({NATIVE_REMEDY.title, GIVE_BACK.title})


def _functions(sources: SourceIndex, lines: set[str]) -> set[CodeScope]:
    return {
        statement.scope
        for statement in (sources.program.statements if lines else ())
        for line in range(statement.node.lineno, (statement.node.end_lineno or 0) + 1)
        if sources.location(statement.file, line) in lines
    }


def _nameless_trend(growth: SearchResult, count: Trend, nameless: float) -> Trend:
    """Return how memory without a name grows: as it was weighed, else as the count does."""
    term = growth.terms.get("elsewhere")
    if term is None or not (term.grows or term.may_grow):
        return imputed_trend(count, nameless)
    return scaled_trend(term.trend, min(nameless / max(term.trend.net_bytes, 1.0), 1.0))


def _growing(case: RunContext, registry: CountedRegistry) -> _Growing | None:
    name = gauge.registry(registry.name)
    if registry.is_bounded or not case.track.has_gauge(name):
        return None
    if places_of(case.sources, registry.emptied_by):
        return None
    trend = case.gauge_trend(name, policy.COUNT_NOISE)
    stores = _stores(case.sources, registry)
    lines = list(dict.fromkeys([*stores, *lines_that_fill(case.sources, registry)]))
    each = _Growing(registry, trend, lines[:_MOST_LINES], bool(stores))
    return each if trend.is_growing and each.entries >= policy.REGISTRY_ENTRIES else None


def _stores(sources: SourceIndex, registry: CountedRegistry) -> list[str]:
    places = {place.replace(":", ".") for place in registry.places}
    return [
        sources.place(statement)
        for last in sorted({place.rpartition(".")[2] for place in places})
        for statement in sources.program.mentioning(last)
        if isinstance(statement.node, ast.Assign) and sources.heat.of(statement)
        for target in statement.node.targets
        if isinstance(target, ast.Subscript)
        and imported_name(target.value, statement.scope) in places
    ]


def moves_with(case: RunContext, registry: CountedRegistry, metric: str) -> bool:
    """Return whether memory grows with the number of entries, and not at other times."""
    x, counts = case.gauge_series(gauge.registry(registry.name))
    done, memory = case.gauge_series(metric)
    if len(x) < policy.FEWEST_READINGS or len(done) < policy.FEWEST_READINGS:
        return False
    memory_there = np.interp(x, done, memory)
    if np.ptp(memory_there) <= 0 or np.ptp(counts) <= 0:
        return False
    return bool(np.corrcoef(counts, memory_there)[0, 1] >= policy.MAIN_SHARE)


def _registry_finding(case: RunContext, growing: _Growing, memory: Trend | None) -> Finding:
    registry, trend, place = growing.registry, growing.trend, growing.registry.kept_by
    lines = growing.places or (case.unnamed_lines if memory else [])
    added = f" They are added at {', '.join(lines)}." if growing.places else ""
    nameless = memory.net_bytes if memory else 0.0
    records = case.recording.registry_entries
    names = records[-1].entries.get(registry.name, []) if records else []
    latest = f" Among the latest: {', '.join(f'`{name}`' for name in names)}." if names else ""
    if registry.is_weak:
        kept = "."
        remedy = Remedy(title=f"Let go of {registry.noun}", text=registry.advice)
        falsifier = f"If there are no more {registry.noun} and memory grows on, it was not this."
    else:
        kept = f": {place} keeps each until it is taken back."
        remedy = Remedy(
            title=f"Take back what {place} keeps, or add it once",
            text=f"{registry.advice} {_TAKE_BACK}".strip(),
        )
        falsifier = f"If {place} is emptied in each round and memory grows on, it was not this."
    return to_finding(
        "registry",
        f"More and more {registry.noun}",
        f"{human_count(growing.entries)} more {registry.noun} than at the beginning, "
        f"{human_count(trend.bytes_per_unit)} per {trend.unit}{kept}"
        f"{latest}{added}{may_hold(nameless) if memory else ''}",
        remedy,
        severity=Severity.WARNING if memory else Severity.NOTE,
        trend=memory or imputed_trend(trend, 0.0),
        share=host_share(case, nameless),
        total_bytes=nameless,
        fed_at=lines,
        falsifier=(falsifier, None),
        subject=registry.name,
    )


def without_name(case: RunContext, growth: SearchResult, ledgers: list[Ledger]) -> float:
    """Return what memory gained without a name, where it goes on and in the stretch accounted.

    What may go on counts as well: that of which there is ever more tells that it does.
    """
    terms = (growth.terms.get(kind) for kind in ("unexplained", "elsewhere"))
    going = [t for t in terms if t is not None and (t.grows or t.may_grow)]
    named = [t for t in going if t.kind == "elsewhere" and is_named(case, growth.growers, t)]
    going_on = sum(t.trend.net_bytes for t in going if t not in named)
    return going_on if named else max(unexplained_bytes(ledgers), going_on)


def imputed_trend(trend: Trend, total: float) -> Trend:
    """Return the trend of a count as one of the bytes that are put down to it."""
    scaled = scaled_trend(trend, total / max(trend.net_bytes, 1.0))
    return msgspec.structs.replace(scaled, net_bytes=total)


def scaled_trend(trend: Trend, share: float) -> Trend:
    """Return the trend of a share of what grows."""
    low, high = trend.interval
    return msgspec.structs.replace(
        trend,
        bytes_per_unit=trend.bytes_per_unit * share,
        interval=(low * share, high * share),
        net_bytes=trend.net_bytes * share,
    )


def host_share(case: RunContext, gained: float) -> float:
    """Return which part it is of what resident memory gained."""
    resident = case.device_gain(HOST) or 0.0
    return gained / resident if resident > 0 else 0.0


def may_hold(total: float) -> str:
    """Return the sentence that puts memory without a name down to what piles up."""
    return f" They may hold the {human_bytes(total)} that nothing else explains (estimate)."


def outlasted(sentence: str, trend: Trend) -> tuple[str, str]:
    """Return the falsifier of what went on growing, with the result."""
    return sentence, f"It grew through the last {plural(trend.points, 'reading')}."
