"""Which of the candidate statements feed the container most likely.

Evidence, strongest first: that the statement changes this very container, that an allocation of
its contents was seen there, that it is run again and again, that it lies in the right phase.
Statements that run once while others are repeated initialise and don't feed. Of calls
into a library that say no more, one called like what it fills: ``predict`` and ``_predictions``.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.source.mutations import (
    CALLED,
    EXACT,
    INNER,
    Mutation,
    counts,
    grows_in_place,
    makes_room,
    opens_empty,
    opens_once,
    replaces,
)
from leakscope.analysis.source.program import COMPREHENSIONS, Program, Scope, Statement, own_nodes
from leakscope.analysis.source.types import dotted
from leakscope.model.census import CensusRow

_CALLBACK = re.compile(r"(^|_)(step|hook|callback|forward|collate|wrapper)$|^(on_|__call__|__get)")
_WORD = re.compile(r"[a-z]{3,}")
_PHASE_WORDS = {
    "validation": re.compile(r"val|eval|test"),
    "test": re.compile(r"test|eval"),
    "train": re.compile(r"train|fit"),
}


class Heat:
    """Which functions run again and again, judged by where they are called."""

    def __init__(self, program: Program) -> None:
        self._functions: dict[str, list[Scope]] = {}
        for name, group in program.functions.items():
            for scope in group:
                is_maker = name == "__init__" and scope.parent is not None
                called = scope.parent.name if is_maker and scope.parent else name
                self._functions.setdefault(called, []).append(scope)
        self._calls: dict[Scope, set[str]] = {}
        self._hot: set[Scope] = set()
        self._warm(program)

    def of(self, statement: Statement) -> bool:
        """Whether the statement is run more than once; what only a library calls is."""
        return bool(statement.loops) or statement.scope in self._hot

    def _warm(self, program: Program) -> None:
        """Spread from what is called in loops, or by nobody known, to what that calls."""
        called: set[str] = set()
        repeated: set[str] = set()
        for statement in program.statements:
            names = _called_names(statement)
            called |= names
            self._calls.setdefault(statement.scope, set()).update(names)
            if statement.loops or _has_comprehension(statement):
                repeated |= names
        for name, group in self._functions.items():
            uncalled = name not in called
            self._heat([s for s in group if _starts_hot(s, uncalled, name in repeated)])

    def _heat(self, scopes: list[Scope]) -> None:
        pending = list(scopes)
        while pending:
            scope = pending.pop()
            if scope not in self._hot:
                self._hot.add(scope)
                for name in self._calls.get(scope, ()):
                    pending += self._functions.get(name, [])


def _called_names(statement: Statement) -> set[str]:
    return {
        dotted(node.func).rpartition(".")[2] or _last_name(node.func)
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Call)
    }


def _has_comprehension(statement: Statement) -> bool:
    return any(isinstance(node, COMPREHENSIONS) for node in own_nodes(statement.node))


def _starts_hot(scope: Scope, uncalled: bool, repeated: bool) -> bool:
    once = scope.name in {"__init__", "main", "setup", "__post_init__"}
    return repeated or bool(_CALLBACK.search(scope.name)) or (uncalled and not once)


def rank(
    mutations: list[Mutation],
    row: CensusRow,
    heat: Heat,
    phase: str = "",
    *,
    grows_inside: bool = False,
) -> list[Mutation]:
    """Return the best tier of candidates, best first, one per statement.

    Where that only makes room in the container, the lines that fill the room follow; they come
    before those that make it once. They also come first where it ``grows_inside``: it has no more
    items than before, and those become larger.
    """
    mutations = [m for m in mutations if not counts(m)] or mutations
    if not mutations:
        return []
    tier = _tier(min(m.distance for m in mutations))
    best = [m for m in mutations if _tier(m.distance) == tier]
    hot = [m for m in best if m.repeated or heat.of(m.statement)]
    candidates = _one_per_statement(hot or best)
    filling = {id(m.statement) for m in mutations if not makes_room(m)}
    ranked = sorted(
        candidates,
        key=lambda m: (id(m.statement) not in filling, _weakness(m, row, heat, phase)),
    )
    is_opened = all(opens_empty(m) for m in ranked)
    if tier > EXACT or not (is_opened or grows_inside):
        return ranked
    rest = [m for m in mutations if m.distance > EXACT]
    if not is_opened:
        rest = [m for m in rest if m.distance == INNER and not makes_room(m)]
    fill = rank(rest, row, heat, phase)
    fills_first = grows_inside and not any(grows_in_place(m) for m in ranked)
    fills_first = fills_first or all(opens_once(m) or m not in hot for m in ranked)
    return _one_per_statement([*fill, *ranked] if fills_first else [*ranked, *fill])


def _tier(distance: float) -> float:
    """Return the class of evidence: exact, inside, around by level, rebound, only called."""
    return distance if distance < CALLED else CALLED


def _weakness(
    mutation: Mutation, row: CensusRow, heat: Heat, phase: str
) -> tuple[int, bool, bool, bool, bool, float, bool, bool, bool, str, int]:
    statement = mutation.statement
    return (
        -_witnessed(mutation, row),
        not (mutation.repeated or heat.of(statement)),
        not _in_phase(statement, phase),
        mutation.form != "link",
        replaces(mutation),
        mutation.distance,
        mutation.distance >= CALLED and not _is_called_alike(statement, row),
        mutation.distance >= CALLED and not _is_given_alike(mutation, row),
        not (statement.loops or mutation.repeated),
        statement.scope.module.file,
        statement.line,
    )


def _witnessed(mutation: Mutation, row: CensusRow) -> int:
    """Return 2 where an allocation was seen on the statement's lines, 1 in its function."""
    statement = mutation.statement
    file = statement.scope.module.file
    best = 0
    for site in row.allocated_at:
        if _same_file(site.file, file):
            if statement.line <= site.line <= statement.end_line:
                return 2
            if _spans(statement.scope, site.line):
                best = 1
    return best


def _same_file(left: str, right: str) -> bool:
    left, right = left.removeprefix("./"), right.removeprefix("./")
    return left == right or left.endswith("/" + right) or right.endswith("/" + left)


def _spans(scope: Scope, line: int) -> bool:
    if isinstance(scope.node, ast.Module):
        return False
    return scope.first_line <= line <= (scope.node.end_lineno or line)


def _in_phase(statement: Statement, phase: str) -> bool:
    words = _PHASE_WORDS.get(phase.partition(":")[0])
    if words is None:
        return False
    text = statement.scope.qualname.lower()
    for loop in statement.loops:
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            text += " " + ast.unparse(loop.iter).lower()
    return bool(words.search(text))


def _is_called_alike(statement: Statement, row: CensusRow) -> bool:
    words = set(_WORD.findall(row.path))
    return any(words & set(_WORD.findall(name)) for name in _called_names(statement))


def _is_given_alike(mutation: Mutation, row: CensusRow) -> bool:
    """Return whether what is handed over is called like what it fills: ``prepare(loader)``."""
    attribute = row.path.rpartition(".")[2].lower()
    given = mutation.node.args if isinstance(mutation.node, ast.Call) else []
    words = {word for value in given for word in _WORD.findall(dotted(value).lower())}
    return any(word in attribute for word in words)


def _one_per_statement(mutations: list[Mutation]) -> list[Mutation]:
    best: dict[tuple[str, int], Mutation] = {}
    for mutation in mutations:
        key = (mutation.statement.scope.module.file, mutation.statement.line)
        if key not in best or mutation.distance < best[key].distance:
            best[key] = mutation
    return list(best.values())


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""
