"""What a program keeps of its own run: exceptions, log records, warnings, figures, cells."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Sequence

import msgspec

from leakscope.analysis.remedies.context import CulpritContext, argument_of, calls_of
from leakscope.analysis.source.index import places_that_call
from leakscope.analysis.source.library_calls import FIGURE_MAKERS, WARNINGS
from leakscope.analysis.source.program import (
    CodeScope,
    bases_of,
    chain_end,
    dotted,
    names_in,
    parts_of,
)
from leakscope.model.census import OUTPUT_HISTORY, REMEDY, CensusRow
from leakscope.model.path_pattern import parse_steps
from leakscope.model.report import Remedy
from leakscope.model.text import human_bytes

_PRINTERS = frozenset({"len", "print", "str", "repr", "bool"})
_MARKS = frozenset({"traceback", "frame"})
"""Types that are seen where whole tracebacks are kept."""


def recognise_stored_exceptions(case: CulpritContext) -> Remedy | None:
    """Return how to keep the message alone."""
    value, inside = case.fed_value, errors_in(case.inside, case.row)
    caught = _caught(case, value)
    if inside is not None:
        return case.remedy(
            f"Keep the text of the errors in {inside.name}",
            case.opening(),
            f"{_weight(case, inside)}: batches, outputs, losses.",
            "Store repr(error) or traceback.format_exc() there, or call "
            "error.with_traceback(None) first.",
        )
    mentions = case.row.kind == "traceback" or (
        value is not None and ("exc_info" in ast.unparse(value) or "traceback" in case.row.type)
    )
    if caught is None and not mentions and not _seen(case):
        return None
    only_shown = not case.derived_attributes and all(
        use.passed_to in _PRINTERS or isinstance(use.parent, (ast.If, ast.FormattedValue))
        for use in case.reads
    )
    diff, edits = None, case.edits()
    if caught is not None and only_shown:
        diff = edits.replace(caught, f"repr({edits.source_of(caught)})").diff()
    return case.remedy(
        f"Keep the text of the errors in {case.name}",
        case.opening(),
        f"{_an_exception(case, case.row)} {_KEEPS}: batches, outputs, losses.",
        "Store repr(error) or traceback.format_exc(), or call error.with_traceback(None) first.",
        diff=diff,
    )


def errors_in(inside: Sequence[CensusRow], row: CensusRow) -> CensusRow | None:
    """Return the row of the exceptions that what a container holds keeps, if most is theirs.

    Exceptions that are what it holds are not meant: ``failed[*].error``, not ``errors[*]``.
    """
    return _most_of_items((below for below in inside if below.kind == "traceback"), row)


def _most_of_items(rows: Iterable[CensusRow], row: CensusRow) -> CensusRow | None:
    for below in rows:
        way = parse_steps(below.path.removeprefix(row.path))[:-1]
        if 2 * below.host_bytes > row.host_bytes and any(step.is_item for step in way):
            return below
    return None


def _weight(case: CulpritContext, errors: CensusRow) -> str:
    """Return what exceptions that hang on items keep, as two sentences without the last stop."""
    return (
        f"Most of it ({human_bytes(errors.host_bytes)}) hangs on {errors.name}. "
        f"{_an_exception(case, errors)} {_KEEPS}"
    )


_KEEPS = "keeps its traceback, and that every local variable of the functions it passed through"


def _an_exception(case: CulpritContext, errors: CensusRow) -> str:
    """Return what a sentence about these exceptions begins with: their class where it is known."""
    holder = next((row for row in case.inside if row.path == errors.parent), case.row)
    contents = sorted([*errors.holds, *holder.holds], key=lambda content: -content.bytes)
    types = [errors.type, *(content.type for content in contents)]
    name = next((name for name in types if _is_exception(case, name)), "")
    return f"{'An' if name[:1] in 'AEIOU' else 'A'} {name}" if name else "An exception"


def with_kept_errors(case: CulpritContext, remedy: Remedy) -> Remedy:
    """Return a remedy that also says so where tracebacks keep most of what its items keep."""
    # Exceptions of the items may keep the frames in C, as those of tasks do.
    frames = (b for b in case.inside if b.type == "frame" and b.path.endswith(".tb_frame"))
    errors = errors_in(case.inside, case.row) or _most_of_items(frames, case.row)
    if errors is None or "traceback" in remedy.text:
        return remedy
    return msgspec.structs.replace(remedy, text=f"{_weight(case, errors)}. {remedy.text}")


_SUSPENDED = {"generator": "generators", "coroutine": "coroutines", "async_generator": "generators"}


def recognise_suspended(case: CulpritContext) -> Remedy | None:
    """Return how to end what is suspended and keeps its local variables."""
    heaviest = case.heaviest
    if heaviest is None or heaviest.type not in _SUSPENDED or case.growth == "within":
        return None
    if 2 * heaviest.bytes < case.total:
        return None
    what = _SUSPENDED[heaviest.type]
    close = "await its aclose()" if heaviest.type == "async_generator" else "call its close()"
    return case.remedy(
        f"Close the suspended {what} in {case.name}",
        case.opening(),
        f"{heaviest.count:,} {what} that wait for their next step keep all local variables of the "
        "functions they are in.",
        f"Run each to its end or {close} when no more of it is wanted, and keep what it gave "
        "instead.",
    )


def _caught(case: CulpritContext, value: ast.expr | None) -> ast.Name | None:
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            pass
        case _:
            parts = [value] if value is not None else []
    for part in parts:
        if isinstance(part, ast.Name) and case.scope and _is_caught(case, part, case.scope):
            return part
    return None


def _is_caught(case: CulpritContext, name: ast.Name, scope: CodeScope) -> bool:
    """Whether ``except`` gives a variable its value, or every call does that passes it."""
    home = scope.resolve(name.id)
    if home is None or name.id not in home.params:
        return _is_bound_by_except(name, scope)
    passed = [
        (argument_of(call, home, name.id), statement.scope)
        for statement, call in calls_of(case.sources, home)
    ]
    all_caught = bool(passed) and all(_is_bound_by_except(*argument) for argument in passed)
    return all_caught or _is_bound_by_except(name, scope)


def _is_bound_by_except(value: ast.expr | None, scope: CodeScope) -> bool:
    name = value.id if isinstance(value, ast.Name) else ""
    home = scope.resolve(name)
    return any(bound.how == "except" for bound in (home.bindings.get(name, []) if home else ()))


def _seen(case: CulpritContext) -> bool:
    """Whether most of what the census saw in it are exceptions, or what their tracebacks keep."""
    contents = (content for content in case.row.holds if content.type not in _MARKS)
    most = max(contents, key=lambda content: content.bytes, default=None)
    return most is not None and 2 * most.bytes > case.total and _is_exception(case, most.type)


def _is_exception(case: CulpritContext, type_name: str) -> bool:
    name = type_name.rpartition(".")[2]
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type):
        return issubclass(builtin, BaseException)
    own = case.sources.program.classes.get(name, [])
    ancestors = (ancestor for cls in own for ancestor in case.sources.types.ancestors(cls))
    names = set().union(*map(bases_of, ancestors)) if own else {name}
    return any(n.endswith(("Error", "Exception", "Warning", "Interrupt")) for n in names)


def recognise_log_records(case: CulpritContext) -> Remedy | None:
    """Return how to log without keeping what is logged."""
    if not any(content.type == "logging.LogRecord" for content in case.row.holds):
        return None
    errors = errors_in(case.inside, case.row)
    if errors is not None:
        return case.remedy(
            "Let records keep the text of an exception, not the exception",
            case.opening(),
            f"{_weight(case, errors)}.",
            "Format each record when it comes, then set record.exc_info to None, as "
            "logging.handlers.QueueHandler.prepare() does, or keep what format(record) returns.",
        )
    return case.remedy(
        "Log numbers and short texts, and let the handler write sooner",
        case.opening(),
        "A record keeps the arguments of its call until it is written, whole tensors too.",
        "Log .item() or a shape instead, give the handler a smaller capacity, or flush() it.",
    )


def recognise_warnings(case: CulpritContext) -> Remedy | None:
    """Return how to warn without a new text each time."""
    if not case.row.path.endswith(WARNINGS):
        return None
    return case.remedy(
        "Warn with the same text each time, or log what differs",
        case.opening(),
        "Python keeps the text of each warning in the module that is warned, so that it shows none "
        "twice, and never forgets one.",
        "Leave numbers, paths and names out of the text, or hand them to logging.",
    )


_FIGURE = "matplotlib.figure.Figure"
_KEEPERS = frozenset({"append", "add", "put", "extend", "setdefault", "update"})


def recognise_figures(case: CulpritContext) -> Remedy | None:
    """Return how to close the figures."""
    is_figure = case.row.kind == "figure" or "Gcf" in case.row.path
    maker = _maker(case.node)
    if not is_figure or maker is None:
        return None
    pyplot, figure = dotted(maker.func).rpartition(".")[0], ""
    match case.node:
        case ast.Assign(targets=[ast.Name(id=name) | ast.Tuple(elts=[ast.Name(id=name), *_])]):
            figure = name
    return case.remedy(
        "Close each figure after saving it",
        "",
        f"`{case.line_text}` at {case.where()} opens a figure that pyplot "
        f"keeps until it is closed ({case.measure() or 'one more each time'}).",
        f"Call {pyplot or 'plt'}.close({figure or 'fig'}) after the last use, or build it without "
        "pyplot: matplotlib.figure.Figure() is freed like any object.",
        closing="gc.collect() can't help: pyplot's own list refers to every open figure.",
        diff=_figure_diff(case, pyplot, figure),
    )


def recognise_kept_figures(case: CulpritContext) -> Remedy | None:
    """Return how to close figures that a container of the program's keeps besides pyplot."""
    if case.row.kind == "figure" or not any(content.type == _FIGURE for content in case.row.holds):
        return None
    mentioning = map(case.sources.program.mentioning, sorted(FIGURE_MAKERS))
    makers = (_maker(statement.node) for group in mentioning for statement in group)
    maker = next(filter(None, makers), None)
    if maker is None:
        return None
    pyplot = dotted(maker.func).rpartition(".")[0]
    closed_at = places_that_call(case.sources, {pyplot.rpartition(".")[2]}, {"close"})
    until = f"until it is closed, as at {closed_at[0]}" if closed_at else "until it is closed"
    return case.remedy(
        f"Close each figure, and keep it in {case.name} no longer",
        case.opening(),
        f"pyplot keeps a figure as well, {until}: a shorter {case.name} alone frees none that is "
        "open.",
        f"Call {pyplot or 'plt'}.close(figure) once it is saved, and keep its file or the numbers "
        "in it.",
        closing="gc.collect() can't help: pyplot's own list refers to every open figure.",
    )


def _maker(node: ast.stmt | None) -> ast.Call | None:
    match node:
        case ast.Assign(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
            return call if chain_end(call.func) in FIGURE_MAKERS else None
    return None


def _figure_diff(case: CulpritContext, pyplot: str, figure: str) -> str | None:
    statement = case.statement
    if statement is None or not figure or not pyplot:
        return None
    if any(a.attr == "close" for a in parts_of(statement.scope.node, ast.Attribute)):
        return None
    names = names_in(statement.node, ast.Store) | {"plt", "pyplot"}
    block = statement.block[statement.block.index(statement.node) :]
    using = [part for part in block if names & names_in(part)] or block[:1]
    if any(_escapes(part, figure) for part in using):
        return None
    return case.edits().insert_after(using[-1], f"{pyplot}.close({figure})").diff()


def _escapes(part: ast.stmt, figure: str) -> bool:
    """Whether a statement hands the figure on to something that may keep it."""
    for node in ast.walk(part):
        match node:
            case ast.Return() | ast.Yield() | ast.Break() | ast.Continue():
                return True
            case ast.Assign(value=ast.Name(id=name)) if name == figure:
                return True
            case ast.Call(func=ast.Attribute(attr=method), args=passed) if method in _KEEPERS:
                if figure in map(dotted, passed):
                    return True
    return False


_CELL = re.compile(r"\bOut\[\d+\]")


def recognise_output_history(case: CulpritContext) -> Remedy | None:
    """Return how to have a notebook keep less of what it displays."""
    if not case.row.name.startswith(OUTPUT_HISTORY):
        return None
    cells = dict.fromkeys(
        cell for content in case.row.holds for cell in _CELL.findall(content.detail)
    )
    most = f" Most of it: {', '.join(cells)}." if cells else ""
    opening = f"{case.opening()}{most}"
    return case.remedy("Display less, or clear the output history", opening, REMEDY, closing="")
