"""What a training loop keeps longer than it is of use: gradients, locals, numbered names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leakscope.analysis.columns.series import HOST, INNER, FloatArray, own_bytes
from leakscope.analysis.columns.units import is_training
from leakscope.analysis.findings.loops import ExplainedLoop
from leakscope.analysis.findings.native_references import host_share
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.remedies.context import Edits
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.anchors import find_scope
from leakscope.analysis.source.index import calls_that_create_graphs
from leakscope.analysis.source.program import own_nodes
from leakscope.analysis.source.training_loops import (
    Clearing,
    Fate,
    Lifetime,
    clearings,
    freezing,
    lifetime,
    never_clears,
    training_loop,
)
from leakscope.analysis.verdict.wording import listed, to_finding
from leakscope.model import gauge
from leakscope.model.census import Census, CensusRow, RootKind
from leakscope.model.report import Finding, Remedy, Severity
from leakscope.model.text import human_bytes, plural
from leakscope.model.trend import Trend

_VARIABLE_ROOTS = (RootKind.LOCAL, RootKind.GLOBAL)
_VARIABLE_ROLES = ("batch", "graph", "accumulation", "other")
_LASTING_KINDS = ("module", "optimizer", "function", "generator", "lru_cache", "object", "queue")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class _KeptGradients:
    """Gradients that are kept longer than they are of use: how many bytes, and why."""

    kind: str
    kept: int
    title: str
    text: str
    remedy: Remedy


def diagnose_gradients(case: RunContext) -> Iterator[Finding]:
    """Yield, per device, gradients that are kept longer than they are of use.

    The censuses weigh them; the source says why: cleared only after the next forward pass, filled
    with zeros, never cleared, kept through a validation that makes the highest peak, or left on
    frozen parameters. May be confused with gradients that are accumulated over several steps on
    purpose, whose clearing is conditional. The size of the model bounds them: never more than a
    note.
    """
    for device in [HOST, *case.track.devices]:
        for look in (_through_forward, _in_validation, _frozen):
            if (found := look(case, device)) is not None:
                whole = max(found.kept, *(_payload(c, device) for c in case.table.censuses))
                yield to_finding(
                    found.kind,
                    found.title,
                    found.text,
                    found.remedy,
                    severity=Severity.NOTE,
                    growth="constant",
                    total_bytes=found.kept,
                    share=found.kept / whole,
                    device=device,
                )


def _payload(census: Census, device: str) -> int:
    return census.payload_bytes.get(device, 0)


def _through_forward(case: RunContext, device: str) -> _KeptGradients | None:
    """Return the gradients that lie in memory during the next forward pass, for no use."""
    kept = _gradients(case, device, training=True)
    if not kept:
        return None
    program = case.sources.program
    known = clearings(program)
    late = next((c for c in known if c.late_after is not None), None)
    zeros = next((c for c in known if c.keeps_zeros), None)
    if late is not None:
        return _late(case, kept, late)
    if zeros is not None:
        return _zeros(case, kept, zeros)
    if (unending := never_clears(program)) is None:
        return None
    return _KeptGradients(
        "gradients_never_cleared",
        kept,
        f"Gradients are never cleared: {human_bytes(kept)} stay for good",
        f"The recorded sources call backward() ({case.sources.place(unending)}) and clear "
        "gradients nowhere, so each step also adds to those of all steps before.",
        Remedy(
            title="Clear the gradients in each step",
            text="Call optimizer.zero_grad() before the forward pass.",
        ),
    )


def _late(case: RunContext, kept: int, clearing: Clearing) -> _KeptGradients:
    statement = clearing.statement
    assert clearing.late_after is not None
    edits = Edits(case.sources, statement.file)
    line = edits.source_of(statement.node)
    edits.insert_before(clearing.late_after, line).remove(statement.node)
    return _KeptGradients(
        "gradients_through_forward",
        kept,
        f"Gradients of the last step ({human_bytes(kept)}) stay through the next forward pass",
        f"They are cleared only at {case.sources.place(statement)}, when the forward pass "
        "has made its activations: both lie in memory together, where it is highest.",
        Remedy(
            title="Clear the gradients before the forward pass",
            text=f"Move `{line}` above the forward pass: the step computes the same.",
            diff=edits.diff(),
        ),
    )


def _zeros(case: RunContext, kept: int, clearing: Clearing) -> _KeptGradients:
    statement = clearing.statement
    edits = Edits(case.sources, statement.file)
    call = next(n for n in ast.walk(statement.node) if isinstance(n, ast.Call))
    text = f"{ast.unparse(call.func)}(set_to_none=True)"
    return _KeptGradients(
        "gradients_kept_as_zeros",
        kept,
        f"Gradients ({human_bytes(kept)}) are filled with zeros instead of dropped",
        f"{case.sources.place(statement)} keeps them in memory through the forward pass, "
        "where nothing reads them.",
        Remedy(
            title="Let zero_grad drop them",
            text="zero_grad(set_to_none=True), torch's default since 2.0, frees them until the "
            "next backward pass and spares the filling.",
            diff=edits.replace(call, text).diff(),
        ),
    )


def _in_validation(case: RunContext, device: str) -> _KeptGradients | None:
    """Return the gradients kept through a phase without training that makes the highest peak.

    Only where an allocator tells its peak: resident memory doesn't move as tensors come and go.
    """
    if device == HOST:
        return None
    peaks = case.track.gauge(f"{device}.{gauge.DEVICE_PEAK}")
    known = np.flatnonzero(np.isfinite(peaks))
    raised = known[1:][np.diff(peaks[known]) > 0]
    phase = case.track.boundaries[int(raised[-1])].phase if len(raised) else ""
    kept = _gradients(case, device, training=False)
    if not phase or is_training(phase) or not kept:
        return None
    return _KeptGradients(
        "gradients_in_validation",
        kept,
        f"Gradients of {human_bytes(kept)} lie beside {phase}, which makes the highest peak",
        f"Nothing in {phase} reads the gradients of the last step.",
        Remedy(
            title=f"Drop the gradients before {phase}",
            text="optimizer.zero_grad(set_to_none=True) after the last step of the epoch lowers "
            f"the peak by up to {human_bytes(kept)}.",
        ),
    )


def _frozen(case: RunContext, device: str) -> _KeptGradients | None:
    sizes = [c.frozen_gradient_bytes.get(device, 0) for c in case.table.censuses]
    steady = sizes[len(sizes) // 2 :]
    kept = int(np.median(steady)) if steady else 0
    if kept < policy.GAUGE_NOISE_BYTES:
        return None
    statement = freezing(case.sources.program)
    where = f" ({case.sources.place(statement)})" if statement is not None else ""
    return _KeptGradients(
        "frozen_gradients",
        kept,
        f"Frozen parameters keep {human_bytes(kept)} of gradients",
        f"Parameters that no longer require gradients{where} still have those of their last step; "
        "zero_grad() frees them only where the optimizer still knows the parameters.",
        Remedy(
            title="Drop the gradients where parameters are frozen",
            text="Set `parameter.grad = None` beside `parameter.requires_grad = False`.",
        ),
    )


def _gradients(case: RunContext, device: str, *, training: bool) -> int:
    censuses = list(_inside(case, training=training))
    sizes = [c.components.get("gradients", {}).get(device, 0) for c in censuses]
    whole = [_payload(census, device) for census in censuses]
    if len(sizes) < policy.FEWEST_READINGS:
        return 0
    kept, least = float(np.median(sizes)), policy.HARMLESS_SHARE * float(np.median(whole))
    return int(kept) if kept >= max(policy.NOTED_BYTES, least) else 0


def _inside(case: RunContext, *, training: bool, after_step: int = -1) -> Iterator[Census]:
    """Yield the censuses at the ends of training steps, or of batches of other phases."""
    for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True):
        boundary = case.track.boundaries[position]
        is_meant = is_training(boundary.phase) == training and boundary.step > after_step
        if is_meant and case.track.kind[position] in INNER:
            yield census


def is_gradient_cycle(row: CensusRow) -> bool:
    """Return whether objects that only native code holds are parameters in such circles."""
    return row.type.endswith("Parameter") and row.graph_nodes > 0


def gradient_cycle(case: RunContext, row: CensusRow) -> ExplainedLoop:
    """Return what is known of parameters that keep themselves alive through
    ``backward(create_graph=True)``.

    Such a gradient has a graph that leads back to the parameter. The circle runs through C++, where
    the collector sees nothing. May be confused with a graph that a C++ extension keeps on purpose.
    """
    lines = [
        case.sources.location(line.file, line.line)
        for line in calls_that_create_graphs(case.sources)
    ]
    where = f" {lines[0]} calls backward(create_graph=True)." if lines else ""
    return ExplainedLoop(
        kind="gradient_cycle",
        title="Parameters and their gradients keep each other alive",
        text=f"Their gradients' graphs ({plural(row.graph_nodes, 'autograd node')}) lead back to "
        f"them, a circle that gc.collect() can't free.{where}",
        remedy=Remedy(
            title="Use torch.autograd.grad instead of backward(create_graph=True)",
            text="torch.autograd.grad(loss, parameters, create_graph=True) returns the gradients "
            "and leaves none behind in .grad. Where backward() must stay, set every .grad to None "
            "once it was used: that opens the circle, and the graph goes.",
        ),
        fed_at=lines,
    )


@dataclass(frozen=True)
class Outliving:
    """A variable and what it alone holds when a step is over."""

    life: Lifetime
    bytes: int


def diagnose_outliving(case: RunContext, growth: SearchResult) -> Iterator[Finding]:
    """Yield, per device, what the loop's variables hold while the next step runs.

    A step ends where the next batch is fetched. What local variables hold then lies in memory
    during the next forward pass, until they are assigned again. The source says when that is and
    whether a ``del`` may be written. May be confused with what the loop carries on purpose (a
    hidden state, a running total), which the source tells apart. Never more than a note.
    """
    grown = {case.table.paths[g.path] for g in growth.growers}
    censuses = list(_inside(case, training=True, after_step=1))  # not at the very first
    if len(censuses) < policy.FEWEST_READINGS:
        return
    for device in sorted({device for census in censuses for device in census.payload_bytes}):
        yield from _of_device(case, censuses, device, grown)


def _of_device(
    case: RunContext, censuses: list[Census], device: str, grown: set[str]
) -> Iterator[Finding]:
    outliving = _outliving(case, censuses, device, grown)
    whole = float(np.median([_payload(census, device) for census in censuses]))
    staying = [o for o in outliving if o.life.fate is Fate.STAYS]
    useful = [o for o in outliving if o.life.fate is not Fate.NEXT_BATCH]
    kept = _total_bytes(staying)
    some, least, until = staying, policy.HARMLESS_SHARE * whole, "through each step"
    if kept < max(policy.NOTED_BYTES, least):
        kept, some, until = _total_bytes(useful), useful, "into the next step"
        least = policy.CONSIDERABLE_SHARE * whole
    if kept < max(policy.NOTED_BYTES, least):
        return
    yield to_finding(
        "outlives_iteration",
        f"{_names(some)} {_verb(some, 'keep')} {human_bytes(kept)} {until}",
        _text(outliving, device, whole),
        Remedy(
            title=f"Let go of {_names(useful)} after the last use",
            text="A tensor is freed when its last name goes; `empty_cache()` frees nothing that a "
            "name still holds, and what `del` frees is reused without it.",
            diff=_del_diff(case, useful),
        ),
        severity=Severity.NOTE,
        share=kept / whole if whole else 0.0,
        total_bytes=kept,
        device=device,
        falsifier=(
            "With the del in place the peak is as high: it lies where they are gone already.",
            None,
        ),
        subject=",".join(sorted(o.life.name for o in useful)),
        growth="constant",
    )


def _total_bytes(some: list[Outliving]) -> int:
    return sum(o.bytes for o in some)


def _outliving(
    case: RunContext, censuses: list[Census], device: str, grown: set[str]
) -> list[Outliving]:
    """Return the loop's variables by what they hold in the middle of the run, most first."""
    sizes: dict[str, list[int]] = defaultdict(list)
    latest: dict[str, CensusRow] = {}
    for census in censuses:
        for row in census.rows:
            if _is_variable(row) and row.path not in grown:
                latest[row.path] = row
                sizes[row.path].append(own_bytes(row, device))
    found = []
    for path, row in latest.items():
        usual = float(np.median([*sizes[path], *[0] * (len(censuses) - len(sizes[path]))]))
        life = _life(case, row) if usual >= policy.GAUGE_NOISE_BYTES else None
        if life is not None:
            found.append(Outliving(life, int(usual)))
    return sorted(found, key=lambda o: (-o.bytes, o.life.name))


def _is_variable(row: CensusRow) -> bool:
    variable = row.owner.variable if row.owner else ""
    plain = bool(variable) and row.path.endswith(f"·{variable}")
    fits = row.role in _VARIABLE_ROLES and row.kind not in _LASTING_KINDS
    return plain and fits and row.user and row.root in _VARIABLE_ROOTS


def _life(case: RunContext, row: CensusRow) -> Lifetime | None:
    program = case.sources.program
    scope = find_scope(program, row.owner)
    loop = training_loop(program, scope) if scope is not None else None
    if scope is None or loop is None or row.owner is None:
        return None
    return lifetime(program, scope, loop, row.owner.variable)


def _text(outliving: list[Outliving], device: str, whole: float) -> str:
    where = "in host memory" if device == HOST else f"on {device}"
    fates = {fate: [o for o in outliving if o.life.fate is fate] for fate in Fate}
    staying, replaced, next_batch = fates[Fate.STAYS], fates[Fate.REPLACED], fates[Fate.NEXT_BATCH]
    sentences = [f"When a step is over, {human_bytes(whole)} of tensors are alive {where}."]
    if staying:
        sentences.append(
            f"{_listed(staying)} {_verb(staying, 'live')} on through the whole next step: `del` "
            f"after the last use lowers its peak by {human_bytes(_total_bytes(staying))}."
        )
    if replaced:
        lines = sorted({o.life.replaced_at or 0 for o in replaced})
        sentences.append(
            f"{_listed(replaced)} {_verb(replaced, 'go')} when the next step gets to "
            f"line{'s' * (len(lines) > 1)} {listed([str(line) for line in lines])}: `del` helps "
            "only if memory is highest before that."
        )
    if next_batch:
        sentences.append(
            f"No use in a `del` of {_listed(next_batch)}: the next batch replaces it at once."
        )
    return " ".join(sentences)


def _listed(some: list[Outliving]) -> str:
    return ", ".join(
        f"`{o.life.name}` ({human_bytes(o.bytes)}, line {o.life.made_at})" for o in some
    )


def _names(some: list[Outliving]) -> str:
    return listed([o.life.name for o in some])


def _verb(some: list[Outliving], verb: str) -> str:
    if len(some) > 1:
        return verb
    return f"{verb}es" if verb.endswith("o") else f"{verb}s"


def _del_diff(case: RunContext, useful: list[Outliving]) -> str | None:
    edits = Edits(case.sources, useful[0].life.file)
    by_statement: dict[int, list[Outliving]] = defaultdict(list)
    for o in useful:
        if o.life.last_used is not None and o.life.file == useful[0].life.file:
            by_statement[id(o.life.last_used)].append(o)
    for together in by_statement.values():
        last = together[0].life.last_used
        assert last is not None
        edits.insert_after(last, f"del {', '.join(o.life.name for o in together)}")
    return edits.diff() if by_statement else None


NUMBERED_NAMES_REMEDY = Remedy(
    title="Keep one variable, or a container with a bound",
    text="Each new name keeps what it refers to until the program ends. Assign to the same name, "
    "so that the last one is freed, or put what is needed later into a dict or a deque of a fixed "
    "length, and delete names that exist already (del, globals().pop(name)).",
)


_MAKE_ONCE = (
    "Each stays with all that it has, and with what libraries keep for it, under its own name. Make"
    " one and give it what differs as an argument; what is done with goes by `del`, where nothing "
    "else registered it."
)
_NOUNS = {"type": "classes", "function": "functions"}
_MAKERS = frozenset(
    {"type", "new_class", "make_dataclass", "namedtuple", "create_model", "exec", "FunctionType"}
)
"""Calls that make a class or function whose name is computed."""


def diagnose_numbered_names(case: RunContext, growth: SearchResult) -> Iterator[Finding]:
    """Yield a finding for variables that are made by number to the end of the run.

    ``globals()[f"outputs_{epoch}"] = outputs`` makes a variable that stays as large as it is, so
    that no container grows, and so does a class that is made under such a name. May be confused
    with the stages of a script: names count only where no source has them, where their numbers
    alone tell them apart, and where they come all along.
    """
    growing = {g.path for g in growth.growers}
    for pattern, paths in _numbered(case).items():
        trend = case.trend_of(case.work_done[case.table.at], _summed_series(case, paths))
        if trend.is_growing and not growing.intersection(paths):
            yield _numbered_names_finding(case, pattern, paths, trend)


def _numbered(case: RunContext) -> dict[str, list[int]]:
    """Return the user's module variables and classes that differ in numbers alone, by what they
    share.

    What the program calls by its name was written by hand; without sources all may have been.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for path, row in enumerate(case.table.latest if case.recording.sources else []):
        is_variable = row.root in _NUMBERED_ROOTS and case.table.parent(path) is None
        variable = row.path.rpartition("·")[2]
        is_numbered = variable.isidentifier() and _NUMBER.search(variable) is not None
        if not (row.user and is_variable and is_numbered):
            continue
        if not case.sources.program.mentioning(variable):
            groups[_NUMBER.sub("N", row.path)].append(path)
    return {name: paths for name, paths in groups.items() if len(paths) >= policy.SIMILAR_NAMES}


_NUMBERED_ROOTS = (RootKind.GLOBAL, RootKind.CLASS_ATTRIBUTE)


def _summed_series(case: RunContext, paths: list[int]) -> FloatArray:
    total: FloatArray = np.nan_to_num(case.table.retained[HOST][paths]).sum(axis=0)
    return total


def _numbered_names_finding(
    case: RunContext, pattern: str, paths: list[int], trend: Trend
) -> Finding:
    table = case.table
    first_seen = [int(np.isfinite(table.retained[HOST][path]).argmax()) for path in paths]
    names = [table.latest[path].name for path in paths]
    numbers = [list(map(int, _NUMBER.findall(name))) for name in names]
    ordered = [name for *_, name in sorted(zip(first_seen, numbers, names, strict=True))]
    series = _summed_series(case, paths)
    total = float(series.max())
    (kind, *others) = {table.latest[path].type for path in paths}
    noun = "variables" if others else _NOUNS.get(kind, "variables")
    is_plain = noun not in _NOUNS.values()
    is_much = trend.net_bytes * policy.HORIZON >= policy.HARMLESS_BYTES
    lines = [] if is_plain else _making_lines(case, names[0])
    made = f", made at {listed(lines)}" if lines else " of one module"
    return to_finding(
        "numbered_names",
        f"New {'names' if is_plain else noun} are made all along",
        f"{ordered[0]}, {ordered[1]}, … {ordered[-1]}: {len(paths)} {noun}{made}, which differ in "
        f"their numbers alone and hold {human_bytes(total)}, {human_bytes(total / len(paths))} "
        "each. None of them grows; there are ever more.",
        NUMBERED_NAMES_REMEDY
        if is_plain
        else Remedy(title=f"Make {noun} once, and not again and again", text=_MAKE_ONCE),
        severity=Severity.WARNING if is_much else Severity.NOTE,
        trend=trend,
        share=host_share(case, trend.net_bytes),
        total_bytes=total,
        fed_at=lines,
        falsifier=("If they were the stages of the program, no more of them would come.", None),
        subject=pattern,
    )


def _making_lines(case: RunContext, name: str) -> list[str]:
    stem = _NUMBER.split(name.rpartition(".")[2])[0]
    found = [
        case.sources.place(statement, node)
        for maker in sorted(_MAKERS)
        for statement in (case.sources.program.mentioning(maker) if stem else [])
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == maker
        and any(_has_text(argument, stem) for argument in node.args)
    ]
    return list(dict.fromkeys(found))


def _has_text(argument: ast.expr, stem: str) -> bool:
    texts = (node.value for node in ast.walk(argument) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and stem in text for text in texts)
