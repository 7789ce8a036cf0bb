"""The user's program as scopes, bindings and statements: what the questions are asked of.

A module that can't be parsed takes part with nothing. Comprehensions and lambdas open no scope of
their own here: the names that they bind are rarely those of a container that outlives them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from leakscope.analysis.source.files import SourceFiles

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Module:
    """One parsed file."""

    file: str
    names: tuple[str, ...]
    """Every dotted name under which it could be imported, longest first."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name → (module, attribute); the attribute is empty for a module itself."""


@dataclass(eq=False)
class Binding:
    """One place where a name or attribute gets a value."""

    how: str
    """``assign``, ``param``, ``import``, ``def``, ``class``, ``for``, ``with``, ``except``."""
    line: int
    scope: Scope
    """Where the value is to be read."""
    value: ast.expr | None = None
    annotation: ast.expr | None = None
    statement: Statement | None = None


@dataclass(eq=False)
class Scope:
    """A module, class or function."""

    kind: str
    name: str
    qualname: str
    node: Definition
    module: Module
    parent: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)
    """Classes only: attributes bound on the instance in methods."""
    children: list[Scope] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)

    @property
    def root(self) -> Scope:
        """The module's own scope."""
        return self if self.parent is None else self.parent.root

    @property
    def first_line(self) -> int:
        """Line of the first decorator, or of the definition."""
        if isinstance(self.node, ast.Module):
            return 0
        return min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])

    def resolve(self, name: str) -> Scope | None:
        """Return the scope in which ``name`` lives when it is read here."""
        if name in self.declared_global:
            return self.root
        scope: Scope | None = self.parent if name in self.declared_nonlocal else self
        while scope is not None:
            readable = scope is self or scope.kind != "class"
            if readable and name in scope.bindings:
                return scope
            scope = scope.parent
        return None

    def home(self, name: str) -> Scope:
        """Return the scope that an assignment to ``name`` here binds."""
        if name in self.declared_global:
            return self.root
        if name in self.declared_nonlocal and self.parent:
            return self.parent.resolve(name) or self
        return self

    def enclosing_class(self) -> Scope | None:
        """Return the class whose method this is, or lies in."""
        scope: Scope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    def is_static(self) -> bool:
        """Whether this is a static method: its first parameter is no instance."""
        return isinstance(self.node, FunctionNode) and any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list
        )

    @property
    def receiver(self) -> str:
        """Name of the first parameter of a method: ``self``, ``cls``; empty elsewhere."""
        in_class = self.parent is not None and self.parent.kind == "class"
        return self.params[0] if in_class and self.params and not self.is_static() else ""


@dataclass(eq=False)
class Statement:
    """A statement without those nested in it, and where it stands."""

    node: ast.stmt
    scope: Scope
    loops: tuple[ast.stmt, ...]
    """Enclosing loops of the same function, outermost first."""
    block: list[ast.stmt]
    """The statements among which it stands."""
    names: frozenset[str] = frozenset()

    @property
    def line(self) -> int:
        """Its first line."""
        return self.node.lineno

    @property
    def end_line(self) -> int:
        """Its last line; for a compound statement that of its header."""
        body: list[ast.stmt] = getattr(self.node, "body", [])
        if body:
            return max(self.line, body[0].lineno - 1)
        return self.node.end_lineno or self.line


class Program:
    """All modules of a run."""

    def __init__(self, files: SourceFiles) -> None:
        self.files = files
        self.modules: dict[str, Scope] = {}
        self.statements: list[Statement] = []
        self.classes: dict[str, list[Scope]] = {}
        self.functions: dict[str, list[Scope]] = {}
        self._mentions: dict[str, list[Statement]] = {}
        for file, text in files.texts.items():
            self._read(file, text)

    def _read(self, file: str, text: str) -> None:
        from leakscope.analysis.source.reading import read_module

        root, statements = read_module(file, text)
        if root is None:
            return
        self.modules[file] = root
        for statement in statements:
            self.statements.append(statement)
            for name in statement.names:
                self._mentions.setdefault(name, []).append(statement)
        for scope in descendants(root):
            register = {"class": self.classes, "function": self.functions}.get(scope.kind)
            if register is not None:
                register.setdefault(scope.name, []).append(scope)

    def mentioning(self, name: str) -> list[Statement]:
        """Return the statements in which ``name`` occurs as a name, attribute or text."""
        return self._mentions.get(name, [])

    def module_named(self, name: str, *, importer: Scope | None = None) -> Scope | None:
        """Return the module that ``import name`` would mean."""
        if not name:
            return None
        tail = name.lstrip(".")
        found = [root for root in self.modules.values() if tail and tail in root.module.names]
        if len(found) > 1 and importer:
            near = importer.module.file.rpartition("/")[0]
            found.sort(key=lambda root: not root.module.file.startswith(near))
        return found[0] if found else None

    def scope_of_file(self, file: str) -> Scope | None:
        """Return the module recorded for ``file`` under whatever path."""
        path = self.files.find(file)
        return self.modules.get(path) if path else None


def descendants(scope: Scope) -> Iterator[Scope]:
    """Yield the scope and all scopes in it."""
    yield scope
    for child in scope.children:
        yield from descendants(child)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement in order, without the statements nested in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from own_nodes(child)
