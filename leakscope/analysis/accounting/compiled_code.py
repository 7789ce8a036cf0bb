"""What ``torch.compile`` keeps, function by function: entries, limits, why it compiled again.

Entries come from dynamo's cache, bytes from the rows that a census has for them, reasons from its
own account of each compilation. A function's entries end at the limit of its code object. Where
code is made again and again, as by ``exec``, each has a limit of its own, and nothing ends.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from leakscope.analysis.accounting.native import growing_allocations
from leakscope.analysis.growth import policy
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import places_that_call
from leakscope.analysis.verdict.wording import listed, to_finding
from leakscope.model.census import CensusRow
from leakscope.model.record import CompilationRecord, CompiledFunction
from leakscope.model.report import (
    CapturedGraph,
    CompiledCode,
    CompiledEntry,
    Finding,
    RecompileCause,
    RecompileReason,
    Remedy,
    Severity,
)
from leakscope.model.text import human_bytes, human_count, plural

KIND = "compiled"
"""Of rows: what is kept of a compiled function."""
MOST_FUNCTIONS = 40
MOST_REASONS = 4
MOST_PLACES = 3
_TENSORS = frozenset({"tensor", "graph"})
_CAUSES = (
    (RecompileCause.SHAPE, ("size mismatch", "stride mismatch", "dynamic", ".size(", ".shape")),
    (RecompileCause.MODE, ("grad_mode", "GLOBAL_STATE", "global_state", "torch_function")),
    (RecompileCause.TYPE, ("dtype mismatch", "device mismatch", "requires_grad", "type_id")),
    (RecompileCause.TYPE, ("dispatch key", "rank mismatch", "expected type", "type(")),
    (RecompileCause.OBJECT, ("obj_id", "id_match", "ID_MATCH", "weakref", "aliasing", " is ")),
    (RecompileCause.LENGTH, ("len(", "keys()", "dict_contains", "set_contains")),
    (RecompileCause.VALUE, ("==", "!=", "<", ">", " in ")),
)
"""What guards say, the surest first."""

_SIZES = re.compile(r"\. expected .*", re.DOTALL)
"""Which sizes differ each time."""

_ADVICE = {
    RecompileCause.SHAPE: (
        "Compile it for any size",
        (
            "Shapes differ from call to call: torch.compile(dynamic=True), or "
            "torch._dynamo.mark_dynamic(x, 0) for the dimension that varies, makes one entry do "
            "for all; or pad to few sizes."
        ),
    ),
    RecompileCause.VALUE: (
        "Keep the changing number or text out of what is compiled",
        (
            "A Python value is part of the guards: pass a number as a tensor "
            "(torch.tensor(value)), and decide by a text or a flag outside of what is "
            "compiled."
        ),
    ),
    RecompileCause.TYPE: (
        "Call it with one form of tensor",
        (
            "Data type, device, number of dimensions or requires_grad of an argument changes: "
            "bring arguments into one form before the call."
        ),
    ),
    RecompileCause.OBJECT: (
        "Pass the same object each time",
        (
            "It is guarded by which object it gets, and gets another one: make the function, "
            "module or container once, and hand over tensors."
        ),
    ),
    RecompileCause.LENGTH: (
        "Keep containers at one length",
        (
            "A container has other items each time: pass one of fixed length, or stack what it "
            "holds to a tensor."
        ),
    ),
    RecompileCause.MODE: (
        "Call it in one mode",
        (
            "Gradient mode, autocast or another global state changes between calls: compile one "
            "function for training and one for evaluation."
        ),
    ),
    RecompileCause.OTHER: (
        "Have it compiled less often",
        ("TORCH_LOGS=recompiles prints the guard that failed each time."),
    ),
}
_ONCE = (
    "Compile it once, before the loop",
    (
        "Each round makes code again (exec, eval, a cell or module that is loaded again) and has "
        "it compiled; dynamo keeps the code object and all that was compiled of it, and its limit "
        "is one per code object. Make the function once and pass what differs to it, or call "
        "torch._dynamo.reset() after each round."
    ),
)
_LOWER = " torch._dynamo.config.recompile_limit was raised to {limit}; without that it ends at 8."


def find_compiled_code(case: RunContext) -> CompiledCode | None:
    """Return what is known of compiled code; None where nothing was compiled."""
    kept = case.recording.compiled_code
    if kept is None:
        return None
    rows = {_key(row): row for row in case.table.latest if is_compiled(row)}
    entries = [
        _entry(case, function, rows.get((function.file, function.line)))
        for function in kept.functions[:MOST_FUNCTIONS]
    ]
    return CompiledCode(
        functions=entries,
        limit=kept.limit,
        cap=kept.cap,
        is_raised=kept.is_raised,
        is_error=kept.is_error,
        workers=kept.workers,
        worker_bytes=kept.worker_bytes,
        ends_idle_workers=kept.ends_idle_workers,
        graphs=[
            CapturedGraph(device=each.device, shapes=each.shapes, graphs=each.graphs)
            for each in kept.graphs
        ],
    )


def is_compiled(row: CensusRow) -> bool:
    """Return whether a row is what is kept of a compiled function."""
    return row.kind == KIND


def compiled_entry(case: RunContext, row: CensusRow) -> CompiledEntry | None:
    """Return what is known of the function that a row is of."""
    kept = case.recording.compiled_code
    for function in kept.functions if kept is not None else ():
        if (function.file, function.line) == _key(row):
            return _entry(case, function, row)
    return None


def bound_of(case: RunContext, entry: CompiledEntry) -> str:
    """Return how far a function is from its limit, and what happens there, as a sentence."""
    kept = case.recording.compiled_code
    if kept is None:
        return ""
    if entry.codes > 1:
        return (
            f"{plural(entry.codes, 'code object')} of it were compiled, and each has a limit of "
            "its own: nothing bounds them."
        )
    if entry.hit_limit:
        return (
            f"It has reached its limit of {human_count(kept.limit)} entries: it is compiled no "
            "more, and calls that fit none of them run uncompiled."
        )
    left = max(kept.limit - entry.most, 0)
    then = "the program fails" if kept.is_error else "it runs uncompiled"
    return (
        f"It has {human_count(entry.most)} of {human_count(kept.limit)} entries that dynamo allows "
        f"(recompile_limit); after {human_count(left)} more {then} where no entry fits."
    )


def remedy_of(case: RunContext, entry: CompiledEntry) -> Remedy:
    """Return what to change so that a function is compiled less often."""
    kept = case.recording.compiled_code
    cause = entry.reasons[0].cause if entry.reasons else RecompileCause.OTHER
    title, advice = _ONCE if entry.codes > 1 else _ADVICE[cause]
    if kept is not None and kept.is_raised and entry.codes == 1:
        advice += _LOWER.format(limit=human_count(kept.limit))
    why = f"{_compilations_sentence(entry)} {bound_of(case, entry)}"
    return Remedy(title=title, text=f"{why} {advice}", advice=advice)


def diagnose_compiled_code(case: RunContext) -> list[Finding]:
    """Return a note for each function that has reached its limit, or is on the way to it.

    May be confused with a function that is compiled for a few forms of its arguments and then
    rests, which is what the limit is there for: one that is far from it isn't reported.
    """
    kept = case.recording.compiled_code
    if kept is None:
        return []
    least = max(policy.COMPILED_ENTRIES, policy.MOST_SHARE * kept.limit)
    return [
        _finding(case, entry)
        for entry in map(partial(_entry, case, row=None), kept.functions[:MOST_FUNCTIONS])
        if entry.codes == 1 and (entry.hit_limit or entry.most >= least)
    ]


def _finding(case: RunContext, entry: CompiledEntry) -> Finding:
    state = "is compiled no more" if entry.hit_limit else "comes near its limit of entries"
    return to_finding(
        "compiled_code",
        f"{entry.function} {state}",
        f"{_compilations_sentence(entry)} {bound_of(case, entry)} Its memory ends there.",
        remedy_of(case, entry),
        severity=Severity.NOTE,
        fed_at=entry.called_at or [entry.place],
        falsifier=("If it leaked, it would have more entries than the limit.", None),
        subject=entry.function,
    )


def _compilations_sentence(entry: CompiledEntry) -> str:
    if not entry.recompilations:
        return f"{entry.function} ({entry.place}) has {plural(entry.entries, 'entry')}."
    why = listed([f"{each.guard} ({human_count(each.count)})" for each in entry.reasons[:2]])
    because = f", because of {why}" if why else ""
    times = plural(entry.recompilations, "time")
    return f"{entry.function} ({entry.place}) was compiled again {times}{because}."


def _entry(case: RunContext, function: CompiledFunction, row: CensusRow | None) -> CompiledEntry:
    key = (function.function, function.file, function.line)
    compiled = [c for c in case.recording.compilations if (c.function, c.file, c.line) == key]
    again = [c for c in compiled if c.number and not c.hit_limit]
    reasons = Counter(_guard(c.reason) for c in again if c.reason)
    called = _called_at(case, function, compiled)
    lines = set(called)
    retained = None if row is None else row.host_bytes + sum(row.device_bytes.values())
    return CompiledEntry(
        function=function.function,
        place=case.sources.location(function.file, function.line),
        entries=function.entries,
        most=function.most,
        codes=function.codes,
        compilations=sum(not c.hit_limit for c in compiled),
        recompilations=len(again),
        hit_limit=any(c.hit_limit for c in compiled),
        guards=next((c.guards for c in reversed(compiled) if c.guards), 0),
        reasons=[
            RecompileReason(cause=cause_of(guard), guard=guard, count=count)
            for guard, count in reasons.most_common(MOST_REASONS)
        ],
        called_at=called,
        bytes=retained,
        tensor_bytes=0 if row is None else _tensor_bytes(case, row),
        native_bytes=round(
            sum(n.gained_bytes for n in growing_allocations(case) if n.location in lines)
        ),
    )


def _guard(reason: str) -> str:
    """Return a reason without the number of the entry whose guard failed, ``0/3: …``, or sizes."""
    before, colon, after = reason.partition(": ")
    number, slash, other = before.partition("/")
    is_numbered = bool(colon) and bool(slash) and number.isdigit() and other[:1].isdigit()
    return _SIZES.sub("", after if is_numbered else reason).strip()


def cause_of(guard: str) -> RecompileCause:
    """Return the kind of a guard, from dynamo's description."""
    found = (cause for cause, texts in _CAUSES if any(text in guard for text in texts))
    return next(found, RecompileCause.OTHER)


def _called_at(
    case: RunContext, function: CompiledFunction, compiled: list[CompilationRecord]
) -> list[str]:
    """Return the lines that call a function, by dynamo's account or by its name.

    Of code that is made again and again, those that have it compiled.
    """
    if function.codes > 1:
        calls = places_that_call(case.sources, {"torch"}, {"compile"}, repeatedly=True)
        calls = calls or places_that_call(case.sources, {"torch"}, {"compile"})
        if calls:
            return calls[:MOST_PLACES]
    callers = [(c.caller_file, c.caller_line) for c in compiled if c.caller_file]
    seen = Counter(case.sources.location(*caller) for caller in callers)
    if seen:
        return [place for place, _ in seen.most_common(MOST_PLACES)]
    name = function.function.partition(" ")[0]
    return places_that_call(case.sources, {""}, {name}, repeatedly=True)[:MOST_PLACES]


def _tensor_bytes(case: RunContext, row: CensusRow) -> int:
    """Return what tensors take that are kept by what was compiled alone, on all devices."""
    table = case.table
    number = table.number.get(row.path)
    below = [] if number is None else table.descendants(number)
    found = [table.latest[path] for path in below if table.latest[path].kind in _TENSORS]
    outer = [tensor for tensor in found if not any(o.path == tensor.parent for o in found)]
    return sum(tensor.host_bytes + sum(tensor.device_bytes.values()) for tensor in outer)


def _key(row: CensusRow) -> tuple[str, int]:
    return (row.owner.file, row.owner.line) if row.owner is not None else ("", 0)


def describe_bytes(entry: CompiledEntry) -> str:
    """Return what an entry takes on average, as a sentence; empty where nothing was weighed."""
    if not entry.bytes or not entry.entries:
        return ""
    each = human_bytes(entry.bytes / entry.entries)
    pinned = (
        f" {human_bytes(entry.tensor_bytes)} of it are tensors that nothing else keeps."
        if entry.tensor_bytes
        else ""
    )
    return f"Each entry keeps some {each}.{pinned}"
