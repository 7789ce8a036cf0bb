"""Which calls write records to the handler that keeps them.

A record goes to the handlers of the logger that it is made by, and from there to those of its
parents, until one doesn't propagate. Where the sources don't show which loggers a handler was given
to, any call may reach it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.source.definitions import bindings_of
from leakscope.analysis.source.loggers import ROOT, UNKNOWN, Loggers, Names, named_entries
from leakscope.analysis.source.path import Step, parse_path
from leakscope.analysis.source.program import Scope, Statement, own_nodes
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import dotted, imported_name
from leakscope.model.census import CensusRow

_HANDLERS = Step("attr", "handlers")


@dataclass(frozen=True)
class _Attachment:
    """A handler that is given to a logger."""

    loggers: Names
    handler: object
    """The same for one handler that is given to several."""
    expr: ast.expr | None
    scope: Scope


class Handler:
    """The handler that a container belongs to, and the loggers that it hears."""

    def __init__(self, references: References, row: CensusRow) -> None:
        self._path = parse_path(row.path)
        self._references = references
        self._loggers = Loggers(references.program, references.types)
        self._heard = self._find_heard()

    def may_hear(self, logger: ast.expr, scope: Scope) -> bool:
        """Whether what this logger writes may come to the handler."""
        written = self._loggers.names_of(logger, scope)
        if not written or not self._heard:
            return True
        return any(self._comes_to(name, heard) for name in written for heard in self._heard)

    def _comes_to(self, name: str, heard: str) -> bool:
        while name != heard:
            if not name or name in self._loggers.silent:
                return False
            name = name.rpartition(".")[0]
        return True

    def _find_heard(self) -> Names:
        """Return the names of the loggers that have the handler; nothing where that's not sure."""
        named = self._on_path()
        attached = list(self._attachments())
        mine = [a for a in attached if self._is_mine(a, named)]
        handlers = {a.handler for a in mine}
        together = [a.loggers for a in attached if a.handler in handlers]
        return frozenset().union(*together) if all(together) else UNKNOWN

    def _is_mine(self, attachment: _Attachment, named: Names) -> bool:
        if named:
            return not attachment.loggers or bool(attachment.loggers & named)
        return bool(self._references.steps_from(attachment.expr, attachment.scope))

    def _on_path(self) -> Names:
        """Return the names of the logger whose ``handlers`` the path goes through."""
        path = self._path
        if path.root == "logging" and path.variable == "root":
            return ROOT
        before = next((i for i, step in enumerate(path.steps) if step == _HANDLERS), 0) - 1
        if before >= 0 and path.steps[before].kind == "key":
            return frozenset({path.steps[before].value.strip("'\"")})
        for place, steps in self._references.chain:
            if steps[:1] == (_HANDLERS,):
                return self._loggers.of_bindings(bindings_of(self._references, place))
        return UNKNOWN

    def _attachments(self) -> Iterator[_Attachment]:
        program = self._references.program
        for name in ("addHandler", "basicConfig", "handlers"):
            for statement in program.mentioning(name):
                yield from self._by_call(statement)
                for logger, entry in named_entries(own_nodes(statement.node)):
                    listed = entry.get("handlers")
                    for handler in listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else ():
                        key = ast.unparse(handler)
                        yield _Attachment(frozenset({logger}), key, None, statement.scope)

    def _by_call(self, statement: Statement) -> Iterator[_Attachment]:
        scope = statement.scope
        for call in own_nodes(statement.node):
            if not isinstance(call, ast.Call):
                continue
            if isinstance(call.func, ast.Attribute) and call.func.attr == "addHandler":
                loggers, given = self._loggers.names_of(call.func.value, scope), call.args[:1]
            elif imported_name(call.func, scope) == "logging.basicConfig":
                listed = {k.arg: k.value for k in call.keywords}.get("handlers")
                loggers = ROOT
                given = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
            else:
                continue
            for handler in given:
                written = dotted(handler)
                home = scope.resolve(written.partition(".")[0]) if written else None
                key: object = (home, written) if home is not None else handler
                yield _Attachment(loggers, key, handler, scope)
