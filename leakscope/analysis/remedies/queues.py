"""A queue that is filled faster than it is emptied: ``q.put(item)``.

Recognises lines that ``put``. Offers no diff: a bound makes ``put`` wait, and whether that ends is
a question of who takes items out. A bound is advised only where another
thread does meanwhile.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import uses
from leakscope.analysis.source.program import Statement, own_nodes
from leakscope.analysis.source.threads import run_in_threads
from leakscope.model.report import Remedy

_TAKERS = frozenset({"get", "get_nowait", "popleft", "pop"})


def recognise(case: Case) -> Remedy | None:
    """Return how to drain or bound the queue."""
    if case.line is None or case.line.form not in {"put", "put_nowait", "enqueue"}:
        return None
    taking = _taking(case)
    beside = _beside(case, taking)
    meanwhile = beside or case.shrank or any(_runs_with_putting(case, s) for s in taking)
    return case.remedy(
        f"Bound {case.name}" if meanwhile else f"Drain {case.name}",
        case.opening(),
        _advice(case, taking, beside) if meanwhile else _nobody_takes(case, taking),
        case.still_reachable(),
    )


def _taking(case: Case) -> list[Statement]:
    """Return the statements that take items out of the queue, or of what it is in."""
    found = {id(use.statement): use.statement for use in uses(case.references)}
    found = {key: s for key, s in found.items() if _takes_directly(case, s)}
    mentioned = [s for name in case.references.names for s in case.sources.program.mentioning(name)]
    for statement in mentioned:
        for node in own_nodes(statement.node):
            value = getattr(node, "value", None)
            if getattr(node, "attr", "") not in _TAKERS or value is None:
                continue
            if case.references.steps_from(value, statement.scope):
                found[id(statement)] = statement
    return sorted(found.values(), key=lambda s: (s.scope.module.file, s.line))


def _takes_directly(case: Case, statement: Statement) -> bool:
    return any(use.method in _TAKERS for use in uses(case.references) if use.statement is statement)


def _beside(case: Case, taking: list[Statement]) -> list[Statement]:
    """Return the statements that take items out in another thread while items are put in.

    The main thread may do so after everything was put: it counts where the queue was seen shorter.
    """
    threads = run_in_threads(case.sources)
    putting = threads.get(case.scope, set()) if case.scope else set()
    return [
        statement
        for statement in taking
        if (statement.scope in threads or (case.shrank and putting))
        and not threads.get(statement.scope, set()) & putting
    ]


def _runs_with_putting(case: Case, taking: Statement) -> bool:
    """Whether items are taken out in the loop that puts them in."""
    putting = case.statement
    if putting is None or taking.scope is not putting.scope:
        return False
    return any(loop in putting.loops for loop in taking.loops)


def _advice(case: Case, taking: list[Statement], beside: list[Statement]) -> str:
    if beside:
        return (
            f"{_place(case, beside[0])} takes items out in another thread, but not as fast: "
            "bound the queue with maxsize so that putting waits, or take several at a time."
        )
    where = f"{_place(case, taking[0])} does" if taking else "Something does"
    return (
        f"{where} take items out, but not as fast: take as many as are put. A maxsize makes "
        "putting wait, for ever where the same thread would have to take something out first."
    )


def _nobody_takes(case: Case, taking: list[Statement]) -> str:
    if not taking:
        return "Nothing in the source takes items out of it: start the consumer, or don't put."
    return (
        f"Nothing was seen to take items out while it is filled; {_place(case, taking[0])} does so "
        "at another time. Use the items as they come, or empty the queue after each "
        f"{case.unit or 'round'}. A maxsize would not help: putting would wait for what comes only "
        "later, and the program would stand still."
    )


def _place(case: Case, statement: Statement) -> str:
    nodes = [n for n in own_nodes(statement.node) if isinstance(n, ast.Attribute)]
    line = next((n.lineno for n in nodes if n.attr in _TAKERS), statement.line)
    return case.sources.location(statement.scope.module.file, line)
