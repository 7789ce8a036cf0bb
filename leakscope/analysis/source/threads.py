"""Which functions run in threads, processes or tasks of their own, as far as the sources tell."""

from __future__ import annotations

import ast

from leakscope.analysis.source.index import SourceIndex
from leakscope.analysis.source.program import Scope, Statement, own_nodes
from leakscope.analysis.source.types import dotted

_STARTERS = frozenset(
    {
        "Thread", "Process", "Timer", "submit", "apply_async", "run_in_executor", "to_thread",
        "create_task", "ensure_future", "start_new_thread",
    }
)  # fmt: skip
_RUNNERS = frozenset({"Thread", "Process", "Timer"})


def run_in_threads(sources: SourceIndex) -> dict[Scope, set[Scope]]:
    """Return the functions that run beside the main thread, each with where its thread begins."""
    found: dict[Scope, set[Scope]] = {}
    for start in _starts(sources):
        pending = [start]
        while pending:
            function = pending.pop()
            starts = found.setdefault(function, set())
            if start not in starts:
                starts.add(start)
                pending += _called_by(sources, function)
    return found


def _starts(sources: SourceIndex) -> list[Scope]:
    """Return the functions that a thread begins with."""
    program = sources.program
    found = [
        function
        for function in program.functions.get("run", [])
        if function.parent is not None and _is_runner(sources, function.parent)
    ]
    for starter in sorted(_STARTERS):
        for statement in program.mentioning(starter):
            for node in own_nodes(statement.node):
                if isinstance(node, ast.Call) and _name(node.func) == starter:
                    found += _given(sources, statement, node)
    return found


def _is_runner(sources: SourceIndex, cls: Scope) -> bool:
    return any(
        dotted(base).rpartition(".")[2] in _RUNNERS
        for ancestor in sources.types.ancestors(cls)
        for base in getattr(ancestor.node, "bases", [])
    )


def _given(sources: SourceIndex, statement: Statement, call: ast.Call) -> list[Scope]:
    """Return the functions of the program among a call's arguments."""
    found: list[Scope] = []
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        function = argument.func if isinstance(argument, ast.Call) else argument
        found += sources.types.called_functions(function, statement.scope)
    return found


def _called_by(sources: SourceIndex, function: Scope) -> list[Scope]:
    scope_statements = (s for s in sources.program.statements if s.scope is function)
    return [
        called
        for statement in scope_statements
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Call)
        for called in sources.types.called_functions(node.func, statement.scope)
    ]


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
