"""What an object of a library keeps of the calls to it: ``trainer._event_handlers``.

Recognises a container that is an attribute of an object whose class the sources don't define, and
that no statement of theirs binds; one without a leading underscore mustn't be mentioned at all.
Offers no diff. No bound can be set there: less must be given to it, or be taken back.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.path import parse_steps
from leakscope.analysis.source.program import own_nodes
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.report import Remedy

_REGISTERING = re.compile(r"^(add|attach|callback|connect|enter|listen|on|register|subscribe)(_|$)")
_COUNTERPARTS = {("ignite", "add_event_handler"): "remove_event_handler"}


def recognise(case: Case) -> Remedy | None:
    """Return how to have the library keep less."""
    holder = _holder(case)
    if holder is None or case.growth != "across" or case.row.root is RootKind.LIBRARY:
        return None
    library, _, _ = holder.type.partition(".")
    class_name = holder.type.rpartition(".")[2]
    belongs = f"It belongs to {class_name} of {library}, so no bound can be set on it from outside."
    call = _registering(case)
    if call is None:
        return case.remedy(
            f"Give {class_name} less to keep",
            case.opening(),
            belongs,
            "Give it a number or a summary instead of the whole, or begin anew with another "
            f"{class_name} where the library lets you.",
            case.about_views(),
            case.still_reachable(),
        )
    undo = _COUNTERPARTS.get((library, call.attr), "")
    return case.remedy(
        f"Call {ast.unparse(call)} once, or take back what it adds",
        case.opening(),
        f"{belongs} What each call adds stays, and what it refers to, until it is taken back.",
        "Make the call once, outside what is repeated, or undo it when the round is done"
        + (f": {ast.unparse(call.value)}.{undo}(…)." if undo else " (remove, detach, unregister)."),
        case.still_reachable(),
    )


def _holder(case: Case) -> CensusRow | None:
    """Return the library's object of which the container is a part."""
    for row in reversed(case.above):
        way = parse_steps(case.row.path.removeprefix(row.path))
        names = [step.value for step in way if step.kind == "attr"]
        if names:
            ours = all(_is_library_own(case, name) for name in names)
            return row if ours and way[0].kind == "attr" and _is_of_library(case, row) else None
    return None


def _is_of_library(case: Case, row: CensusRow) -> bool:
    is_ours = case.sources.defines(row.type)
    return "." in row.type and not is_ours and row.role != "optimizer_state"


def _is_library_own(case: Case, name: str) -> bool:
    """Whether no statement of the user's made the attribute."""
    mentions = case.sources.program.mentioning(name)
    if not name.startswith("_"):
        return not mentions
    return not any(
        _binds(node, name) for statement in mentions for node in own_nodes(statement.node)
    )


def _binds(node: ast.AST, name: str) -> bool:
    """Whether an attribute is bound, or its name is written out, as ``setattr`` wants it."""
    if isinstance(node, ast.Constant):
        return node.value == name
    is_stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return is_stored and isinstance(node, ast.Attribute) and node.attr == name


def _registering(case: Case) -> ast.Attribute | None:
    """Return the method by which the feeding line adds something that stays."""
    for node in own_nodes(case.node) if case.node else ():
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and _REGISTERING.match(function.attr):
            return function
    return None
