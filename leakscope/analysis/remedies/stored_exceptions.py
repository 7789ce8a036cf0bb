"""Exceptions kept after they were handled: ``errors.append(error)``.

An exception refers to its traceback, that to every frame it passed, and those to all locals, batch
and loss among them. Recognises storing the name of an ``except … as`` clause, there or in a
function that is called with it, containers in which exceptions were seen, whole tracebacks, and an
attribute of what a container holds, where that is an exception with most of its bytes. Offers a
diff, ``repr(error)``, where the stored ones are only counted or printed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from leakscope.analysis.remedies.calls import argument_of, calls_of
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import derived_attributes, reads
from leakscope.analysis.source.path import Steps, parse_steps
from leakscope.analysis.source.program import Scope
from leakscope.analysis.source.types import dotted
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy
from leakscope.model.sizes import human_bytes

_PRINTERS = frozenset({"len", "print", "str", "repr", "bool"})
_MARKS = frozenset({"traceback", "frame"})
"""Types that are seen where whole tracebacks are kept."""


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the message alone."""
    value = case.fed_value
    caught = _caught(case, value)
    inside = errors_in(case.inside, case.row)
    if inside is not None:
        return _of_its_items(case, inside)
    mentions = case.row.kind == "traceback" or (
        value is not None and ("exc_info" in ast.unparse(value) or "traceback" in case.row.type)
    )
    if caught is None and not mentions and not _seen(case):
        return None
    diff = None
    if caught is not None and _only_shown(case):
        edits = case.edits()
        diff = edits.replace(caught, f"repr({edits.source_of(caught)})").diff()
    return case.remedy(
        f"Keep the text of the errors in {case.name}",
        f"{case.opening()} An exception keeps its traceback, and that every local variable of the "
        "functions it passed through: batches, outputs, losses.",
        "Store repr(error) or traceback.format_exc(), or call error.with_traceback(None) first.",
        case.still_reachable(),
        diff=diff,
    )


def errors_in(inside: Sequence[CensusRow], row: CensusRow) -> CensusRow | None:
    """Return the row of the exceptions that what a container holds keeps, if most is theirs.

    Exceptions that are what it holds are not meant: ``failed[*].error``, not ``errors[*]``.
    """
    return next(
        (
            one
            for one in inside
            if one.kind == "traceback"
            and _hangs_on_an_item(parse_steps(one.path.removeprefix(row.path)))
            and 2 * one.host_bytes > row.host_bytes
        ),
        None,
    )


def _hangs_on_an_item(way: Steps) -> bool:
    return any(step.is_item for step in way[:-1])


def _of_its_items(case: Case, errors: CensusRow) -> Remedy:
    return case.remedy(
        f"Keep the text of the errors in {errors.name}",
        f"{case.opening()} Most of it ({human_bytes(errors.host_bytes)}) hangs on {errors.name}: "
        "an exception keeps its traceback, and that every local variable of the functions it "
        "passed through: batches, outputs, losses.",
        "Store repr(error) or traceback.format_exc() there, or call error.with_traceback(None) "
        "first.",
        case.still_reachable(),
    )


def _caught(case: Case, value: ast.expr | None) -> ast.Name | None:
    """Return the caught exception in what is stored: itself, or a part of a tuple or the like."""
    parts: list[ast.expr | None] = [value]
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = list(value.elts)
    elif isinstance(value, ast.Dict):
        parts = list(value.values)
    for part in parts:
        if isinstance(part, ast.Name) and case.scope and _is_caught(case, part.id, case.scope):
            return part
    return None


def _is_caught(case: Case, name: str, scope: Scope) -> bool:
    home = scope.resolve(name)
    if home is None:
        return False
    if any(binding.how == "except" for binding in home.bindings.get(name, [])):
        return True
    return name in home.params and _is_given_caught(case, home, name)


def _is_given_caught(case: Case, function: Scope, parameter: str) -> bool:
    """Whether a function is called from ``except`` clauses, with what they caught, alone."""
    given = [
        (statement.scope, argument_of(call, function, parameter))
        for statement, call in calls_of(case.sources, function)
    ]
    return bool(given) and all(
        isinstance(value, ast.Name)
        and (home := scope.resolve(value.id)) is not None
        and any(binding.how == "except" for binding in home.bindings.get(value.id, []))
        for scope, value in given
    )


def _seen(case: Case) -> bool:
    """Whether most of what the census saw in it are exceptions, or what their tracebacks keep."""
    held = [content for content in case.row.holds if content.type not in _MARKS]
    if not held:
        return False
    heaviest = max(held, key=lambda content: content.bytes)
    return 2 * heaviest.bytes > case.total and _is_exception(case, heaviest.type)


def _is_exception(case: Case, type_name: str) -> bool:
    name = type_name.rpartition(".")[2]
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type):
        return issubclass(builtin, BaseException)
    own = case.sources.program.classes.get(name, [])
    bases = {
        dotted(base).rpartition(".")[2]
        for cls in own
        for ancestor in case.sources.types.ancestors(cls)
        for base in getattr(ancestor.node, "bases", [])
    }
    names = bases if own else {name}
    return any(n.endswith(("Error", "Exception", "Warning", "Interrupt")) for n in names)


def _only_shown(case: Case) -> bool:
    """Whether nothing needs the exceptions themselves."""
    if derived_attributes(case.references):
        return False
    for use in reads(case.references):
        shown = use.passed_to in _PRINTERS or isinstance(use.parent, (ast.If, ast.FormattedValue))
        if not shown:
            return False
    return True
