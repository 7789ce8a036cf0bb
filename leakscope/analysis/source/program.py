"""The user's program as files, scopes, bindings and statements: what the questions are about.

Files are found under other paths, located and quoted; the disk is never read. The cells of a
notebook are one program. A module that can't be parsed takes part with nothing. Comprehensions and
lambdas open no scope of their own here: the names that they bind are those of the function around
them.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from msgspec.structs import replace

from leakscope.model.census import Site
from leakscope.model.report import Excerpt

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_Node = TypeVar("_Node", bound=ast.AST)


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
    scope: CodeScope
    """Where the value is to be read."""
    value: ast.expr | None = None
    annotation: ast.expr | None = None
    statement: Statement | None = None


@dataclass(eq=False)
class CodeScope:
    """A module, class or function."""

    kind: str
    name: str
    qualname: str
    node: Definition
    module: Module
    parent: CodeScope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)
    """Classes only: attributes bound on the instance in methods."""
    children: list[CodeScope] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)

    @property
    def root(self) -> CodeScope:
        """The module's own scope."""
        return self if self.parent is None else self.parent.root

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.module.file

    @property
    def first_line(self) -> int:
        """Line of the first decorator, or of the definition."""
        return 0 if isinstance(self.node, ast.Module) else first_line_of(self.node)

    @property
    def is_method(self) -> bool:
        """Whether it is defined in the body of a class."""
        return self.parent is not None and self.parent.kind == "class"

    def member(self, name: str) -> list[Binding]:
        """Return the bindings of a class's attribute: on instances, then in the body."""
        return [*self.attributes.get(name, []), *self.bindings.get(name, [])]

    def resolve(self, name: str) -> CodeScope | None:
        """Return the scope in which ``name`` lives when it is read here."""
        if name in self.declared_global:
            return self.root if name in self.root.bindings else None
        scope: CodeScope | None = self.parent if name in self.declared_nonlocal else self
        while scope is not None:
            readable = scope is self or scope.kind != "class"
            if readable and name in scope.bindings:
                return scope
            scope = scope.parent
        return None

    def home(self, name: str) -> CodeScope:
        """Return the scope that an assignment to ``name`` here binds."""
        if name in self.declared_global:
            return self.root
        if name in self.declared_nonlocal and self.parent:
            return self.parent.resolve(name) or self
        return self

    def enclosing_class(self) -> CodeScope | None:
        """Return the class whose method this is, or lies in."""
        scope: CodeScope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    @property
    def receiver(self) -> str:
        """Name of the first parameter of a method: ``self``, ``cls``; empty elsewhere."""
        is_static = "staticmethod" in map(last_name, getattr(self.node, "decorator_list", []))
        return self.params[0] if self.is_method and self.params and not is_static else ""


@dataclass(eq=False)
class Statement:
    """A statement without those nested in it, and where it stands."""

    node: ast.stmt
    scope: CodeScope
    loops: tuple[Loop, ...]
    """Enclosing loops of the same function, outermost first."""
    block: list[ast.stmt]
    """The statements among which it stands."""
    names: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.scope.module.file

    @property
    def line(self) -> int:
        """Its first line."""
        return self.node.lineno

    def spans(self, line: int) -> bool:
        """Whether a line is one of its lines; for a compound statement of its header's."""
        body: list[ast.stmt] = getattr(self.node, "body", [])
        end = body[0].lineno - 1 if body else self.node.end_lineno or 0
        return self.line <= line <= max(self.line, end)


class UserProgram:
    """All modules of a run."""

    def __init__(self, files: SourceFiles) -> None:
        self.files = files
        self.modules: dict[str, CodeScope] = {}
        self.statements: list[Statement] = []
        self.classes: dict[str, list[CodeScope]] = {}
        self.functions: dict[str, list[CodeScope]] = {}
        self._mentions: dict[str, list[Statement]] = {}
        for file, text in files.texts.items():
            self._add(file, text)

    def _add(self, file: str, text: str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader = _ModuleReader(file, ast.parse(text))
        except _UNREADABLE:
            return
        self.modules[file] = reader.root
        self.statements += reader.statements
        for statement in reader.statements:
            for name in statement.names:
                self._mentions.setdefault(name, []).append(statement)
        for scope in [*descendants(reader.root)][1:]:
            register = self.classes if scope.kind == "class" else self.functions
            register.setdefault(scope.name, []).append(scope)

    def mentioning(self, name: str) -> list[Statement]:
        """Return the statements in which ``name`` occurs as a name, attribute or text."""
        return self._mentions.get(name, [])

    def mentioning_any(self, names: Iterable[str]) -> list[Statement]:
        """Return the statements in which one of some names occurs, by file and line."""
        found = dict.fromkeys(statement for name in names for statement in self.mentioning(name))
        return sorted(found, key=lambda statement: (statement.file, statement.line))

    def calls_mentioning(self, name: str) -> Iterator[tuple[Statement, ast.Call]]:
        """Yield the calls in these statements."""
        for statement in self.mentioning(name):
            for call in calls_in(statement.node):
                yield statement, call

    def calls_of(self, name: str) -> Iterator[tuple[Statement, ast.Call]]:
        """Yield the calls of what is called so, as a function or a method."""
        for statement, call in self.calls_mentioning(name):
            if last_name(call.func) == name:
                yield statement, call

    def statements_of(self, scope: CodeScope) -> list[Statement]:
        """Return the statements of a function, class or module, without those in its functions."""
        return [statement for statement in self.statements if statement.scope is scope]

    def module_named(self, name: str, *, importer: CodeScope | None = None) -> CodeScope | None:
        """Return the module that ``import name`` would mean."""
        tail = name.lstrip(".")
        found = [root for root in self.modules.values() if tail and tail in root.module.names]
        if len(found) > 1 and importer:
            near = importer.module.file.rpartition("/")[0]
            found.sort(key=lambda root: not root.module.file.startswith(near))
        return found[0] if found else None

    def scope_of_file(self, file: str) -> CodeScope | None:
        """Return the module recorded for ``file`` under whatever path."""
        return self.modules.get(self.files.find(file) or "")


def descendants(scope: CodeScope) -> Iterator[CodeScope]:
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


def own_nodes_in_place(
    node: ast.AST, parents: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Yield the same, each with the nodes around it, the innermost first."""
    yield node, parents
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from own_nodes_in_place(child, (node, *parents))


def own_parts(node: ast.AST, kind: type[_Node]) -> Iterator[_Node]:
    """Yield the nodes of a kind in a statement, without the statements nested in it."""
    return (part for part in own_nodes(node) if isinstance(part, kind))


def parts_of(node: ast.AST | None, kind: type[_Node]) -> Iterator[_Node]:
    """Yield the nodes of a kind anywhere in a node; nothing without one."""
    return (part for part in (ast.walk(node) if node else ()) if isinstance(part, kind))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls among the nodes of a statement, without the statements nested in it."""
    return own_parts(node, ast.Call)


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return what a call passes, by place or by keyword."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return what a call passes by a keyword, None where it doesn't."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def bound_in(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return what a plain assignment or a ``with`` binds, and to what; nothing for others."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    items = node.items if isinstance(node, (ast.With, ast.AsyncWith)) else []
    return [(item.optional_vars, item.context_expr) for item in items if item.optional_vars]


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Return what an assignment binds; nothing for another node."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) else []


def alternatives(expr: ast.expr | None) -> list[ast.expr]:
    """Return the parts of which one is the value: ``a or b``, ``a if c else b``; else none."""
    if isinstance(expr, ast.IfExp):
        return [expr.body, expr.orelse]
    return expr.values if isinstance(expr, ast.BoolOp) else []


def names_in(node: ast.AST | None, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Return the names that stand anywhere in a node, or those that it only reads or binds."""
    return {name.id for name in parts_of(node, ast.Name) if isinstance(name.ctx, context)}


def own_names(node: ast.stmt, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a statement reads or binds, without the statements nested in it."""
    return {name.id for name in own_parts(node, ast.Name) if isinstance(name.ctx, context)}


def body_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a function, without what is in functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (*DEFINITIONS, ast.Lambda)):
            yield from body_nodes(child)


def last_name(expr: ast.expr) -> str:
    """Return ``c`` of ``a().b.c``, else an empty text."""
    if isinstance(expr, ast.Attribute):
        return expr.attr
    return expr.id if isinstance(expr, ast.Name) else ""


def dotted(expr: ast.expr | None) -> str:
    """Return ``a.b.c`` for a plain chain of names, else an empty text."""
    if isinstance(expr, ast.Attribute):
        head = dotted(expr.value)
        return f"{head}.{expr.attr}" if head else ""
    return expr.id if isinstance(expr, ast.Name) else ""


def chain_end(expr: ast.expr | None) -> str:
    """Return ``c`` of a plain chain of names ``a.b.c``, else an empty text."""
    return dotted(expr).rpartition(".")[2]


def decorators_of(node: ast.AST) -> list[ast.expr]:
    """Return what a definition is decorated by, without the arguments."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return [d.func if isinstance(d, ast.Call) else d for d in decorators]


def bases_of(cls: CodeScope) -> set[str]:
    """Return the last names of what a class is derived from."""
    return set(map(chain_end, getattr(cls.node, "bases", [])))


def first_line_of(node: ast.stmt) -> int:
    """Return the line of the first decorator, or of the statement."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def has_comprehension(node: ast.AST) -> bool:
    """Return whether a comprehension is among a statement's or expression's own nodes."""
    return any(own_parts(node, ast.comprehension))


_ATTRIBUTE_MAKERS = frozenset(
    {"setattr", "__setattr__", "register_buffer", "register_parameter", "add_state", "add_module"}
)


class _ModuleReader:
    def __init__(self, file: str, tree: ast.Module) -> None:
        self.module = Module(file=file, names=_import_names(file))
        name = self.module.names[-1] if self.module.names else ""
        self.root = CodeScope("module", name, "", tree, self.module)
        self.statements: list[Statement] = []
        self.block(tree.body, self.root, ())

    def block(self, body: list[ast.stmt], scope: CodeScope, loops: tuple[Loop, ...]) -> None:
        for node in body:
            statement = Statement(node, scope, loops, body, _names(node))
            self.statements.append(statement)
            self.bind(statement)
            self.nested(statement)

    def nested(self, statement: Statement) -> None:
        node, scope, loops = statement.node, statement.scope, statement.loops
        if isinstance(node, FunctionNode):
            self.block(node.body, self.function(node, scope), ())
        elif isinstance(node, ast.ClassDef):
            self.block(node.body, self.child("class", node, scope), loops)
        else:
            inner = (*loops, node) if isinstance(node, LOOPS) else loops
            for container in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                self.block(getattr(container, "body", []), scope, inner)
            self.block(getattr(node, "orelse", []), scope, loops)
            self.block(getattr(node, "finalbody", []), scope, loops)

    def child(self, kind: str, node: ast.ClassDef | FunctionNode, parent: CodeScope) -> CodeScope:
        qualname = f"{parent.qualname}.{node.name}" if parent.qualname else node.name
        scope = CodeScope(kind, node.name, qualname, node, self.module, parent)
        parent.children.append(scope)
        return scope

    def function(self, node: FunctionNode, parent: CodeScope) -> CodeScope:
        scope = self.child("function", node, parent)
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args]
        named = [*plain, *arguments.kwonlyargs]
        scope.params = [argument.arg for argument in named]
        without_default = [None] * (len(plain) - len(arguments.defaults))
        defaults = [*without_default, *arguments.defaults, *arguments.kw_defaults]
        extra = [(a, None) for a in (arguments.vararg, arguments.kwarg) if a]
        for argument, value in [*zip(named, defaults, strict=True), *extra]:
            binding = Binding("param", argument.lineno, parent, value, argument.annotation)
            scope.bindings.setdefault(argument.arg, []).append(binding)
        # `global` and `nonlocal` are noted before the first assignment is read.
        for part in body_nodes(node):
            if isinstance(part, (ast.Global, ast.Nonlocal)):
                is_global = isinstance(part, ast.Global)
                declared = scope.declared_global if is_global else scope.declared_nonlocal
                declared.update(part.names)
        return scope

    def bind(self, statement: Statement) -> None:
        node, scope = statement.node, statement.scope
        if isinstance(node, (FunctionNode, ast.ClassDef)):
            how = "class" if isinstance(node, ast.ClassDef) else "def"
            self.name(node.name, Binding(how, first_line_of(node), scope, statement=statement))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imported(node, statement)
        elif isinstance(node, ast.AnnAssign):
            self.target(node.target, node.value, statement, node.annotation)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.target(node.target, node.value, statement)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.target(node.target, None, statement, how="for")
        else:
            how = "with" if isinstance(node, (ast.With, ast.AsyncWith)) else "assign"
            for target, value in bound_in(node):
                self.target(target, value, statement, how=how)
        for handler in getattr(node, "handlers", ()):
            if handler.name:
                binding = Binding("except", handler.lineno, scope, statement=statement)
                self.name(handler.name, binding)
        for part in own_nodes(node):
            if isinstance(part, ast.NamedExpr):
                self.target(part.target, part.value, statement)
            elif isinstance(part, ast.Call):
                self.made_attribute(part, statement)

    def made_attribute(self, call: ast.Call, statement: Statement) -> None:
        if last_name(call.func) not in _ATTRIBUTE_MAKERS:
            return
        texts = [a for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        owner = statement.scope.enclosing_class()
        if texts and owner is not None and statement.scope.kind == "function":
            value = keyword_of(call, "default") or call.args[-1]
            binding = Binding("assign", statement.line, statement.scope, value, statement=statement)
            owner.attributes.setdefault(str(texts[0].value), []).append(binding)

    def target(
        self,
        target: ast.expr,
        value: ast.expr | None,
        statement: Statement,
        annotation: ast.expr | None = None,
        how: str = "assign",
    ) -> None:
        if isinstance(target, ast.Starred):
            target, value = target.value, None
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            is_known = len(values) == len(target.elts)
            for index, part in enumerate(target.elts):
                self.target(part, values[index] if is_known else None, statement, None, how)
            return
        binding = Binding(how, statement.line, statement.scope, value, annotation, statement)
        if isinstance(target, ast.Name):
            self.name(target.id, binding)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            receiver = target.value.id
            scope = binding.scope.resolve(receiver)
            if scope and scope.receiver == receiver and scope.parent:
                scope.parent.attributes.setdefault(target.attr, []).append(binding)

    def name(self, name: str, binding: Binding) -> None:
        binding.scope.home(name).bindings.setdefault(name, []).append(binding)

    def imported(self, node: ast.Import | ast.ImportFrom, statement: Statement) -> None:
        for alias in node.names:
            local = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom):
                source = ("." * node.level + (node.module or ""), alias.name)
            else:
                source = (alias.name if alias.asname else local, "")
            self.module.imports[local] = source
            self.name(local, Binding("import", node.lineno, statement.scope, statement=statement))


def _names(node: ast.stmt) -> frozenset[str]:
    names: set[str] = set()
    for part in own_nodes(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                names.add(text)
            case ast.alias(name=name, asname=local):
                names.update({local or name, name})
    return frozenset(names)


def _import_names(file: str) -> tuple[str, ...]:
    """Return every dotted tail of a path: ``a/b/c.py`` may be imported as b.c or c."""
    parts = file.replace("\\", "/").removesuffix(".py").removesuffix("/__init__").split("/")
    parts = [part for part in parts if part]
    tails = [".".join(parts[start:]) for start in range(len(parts))]
    return tuple(tail for tail in tails if tail and not tail.startswith("."))


_INSTALLED = re.compile(r"^/.*?/lib(?:64)?/(?=python\d)")
"""The folders above those of an interpreter's own and installed files."""


class SourceFiles:
    """Texts by path, as recorded; one text recorded under two paths counts once."""

    def __init__(
        self, sources: dict[str, str], project_root: str = "", titles: dict[str, str] | None = None
    ) -> None:
        self._titles = titles or {}
        cells = {path: sources[path] for path in sources if path in self._titles}
        self._cells = Cells(cells, self._titles)
        sources = {path: text for path, text in sources.items() if path not in cells}
        if cells:
            sources[NOTEBOOK] = self._cells.text
        self._root = f"{_normal(project_root).rstrip('/')}/" if project_root else ""
        self.texts: dict[str, str] = {}
        self._same: dict[str, str] = {}
        for path in sorted(sources, key=lambda path: (-len(path), path)):
            twin = self._twin(path, sources[path])
            if twin is None:
                self.texts[path] = sources[path]
            else:
                self._same[path] = twin
        self._lines: dict[str, list[str]] = {}

    def _twin(self, path: str, text: str) -> str | None:
        name = posixpath.basename(_normal(path))
        same = (known for known in self.texts if posixpath.basename(_normal(known)) == name)
        return next((known for known in same if self.texts[known] == text and text.strip()), None)

    def find(self, file: str) -> str | None:
        """Return the recorded path of ``file``, also where it was recorded under another one."""
        if file in self.texts:
            return file
        if file in self._titles:
            return NOTEBOOK
        if file in self._same:
            return self._same[file]
        return self._by_suffix(_normal(file)) if file else None

    def _by_suffix(self, wanted: str) -> str | None:
        """Return the one recorded path that shares the longest tail of components."""
        shared = {path: _shared_tail(wanted, _normal(path)) for path in self.texts}
        longest = max(shared.values(), default=0)
        best = [path for path, length in shared.items() if length == longest]
        return best[0] if longest and len(best) == 1 else None

    def lines(self, path: str) -> list[str]:
        """Return the lines of a recorded file without their ends; none for an unknown one."""
        if path not in self._lines:
            self._lines[path] = split_lines(self.texts.get(path, ""))
        return self._lines[path]

    def text_at(self, path: str, line: int) -> str:
        """Return a line without its indentation; empty where it isn't known."""
        lines = self.lines(path)
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def relative(self, file: str) -> str:
        """Return the path as a person of the project would write it."""
        return self._titles.get(file) or _normal(file).removeprefix(self._root)

    def location(self, file: str, line: int) -> str:
        """Return ``train.py:12`` as a person would write it, ``In [5]:3`` of a cell, and
        ``lib/python3.11/threading.py:9`` wherever that lies.
        """
        if file == NOTEBOOK and self._titles:
            file, line = self._cells.place(line)
        if file in self._titles:
            return f"{self._titles[file]}:{line}"
        path = self.relative(self.find(file) or file)
        # Of a library's or Python's own file nobody needs the folders above.
        return f"{_INSTALLED.sub('lib/', path, count=1)}:{line}"

    def line_in_text(self, file: str, line: int) -> int:
        """Return the line of the text that stands for a file: all cells of a notebook are one."""
        return self._cells.line_in_all(file, line) if file in self._titles else line

    def in_text(self, site: Site) -> Site:
        """Return a place where something was allocated, as a place of the text it stands in."""
        if site.file not in self._titles:
            return site
        return replace(site, file=NOTEBOOK, line=self.line_in_text(site.file, site.line))

    def excerpt(self, file: str, marked: list[int], context: int = 4) -> Excerpt | None:
        """Return the lines around the marked ones, or None where the text isn't known."""
        path = self.find(file)
        if path == NOTEBOOK and self._titles and marked:
            return self._excerpt_of_cell([self.line_in_text(file, n) for n in marked], context)
        lines = self.lines(path) if path else []
        known = sorted({line for line in marked if 1 <= line <= len(lines)})
        if not known:
            return None
        first, last = max(1, known[0] - context), min(len(lines), known[-1] + context)
        while known[-1] - known[0] > 10 * (context + 1):
            known.pop()
            last = min(len(lines), known[-1] + context)
        return Excerpt(
            file=self.relative(path or file),
            first_line=first,
            lines=lines[first - 1 : last],
            marked=known,
        )

    def _excerpt_of_cell(self, marked: list[int], context: int) -> Excerpt:
        first, last = self._cells.bounds(marked[0])
        known = sorted({line for line in marked if first <= line <= last})
        begin = max(first, known[0] - context)
        end = min(last, known[-1] + context, begin + 10 * (context + 1))
        return Excerpt(
            file=self.relative(self._cells.place(first)[0]),
            first_line=begin - first + 1,
            lines=self.lines(NOTEBOOK)[begin - 1 : end],
            marked=[line - first + 1 for line in known if line <= end],
        )


def split_lines(text: str) -> list[str]:
    """Return the lines as Python counts them: form feeds and the like end none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _normal(path: str) -> str:
    return posixpath.normpath(path.replace("\\", "/"))


def _shared_tail(left: str, right: str) -> int:
    pairs = zip(*(reversed(path.strip("/").split("/")) for path in (left, right)), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


NOTEBOOK = "notebook"
"""The path under which all cells are known as one text."""


class Cells:
    """The cells that were recorded, in the order in which they were run last.

    ``titles`` are what each is called, by the path of its code: ``In [5]``.
    """

    def __init__(self, sources: dict[str, str], titles: dict[str, str]) -> None:
        lines: list[str] = []
        self._firsts: dict[str, int] = {}
        for path, of_cell in _still_meant(sources, titles).items():
            self._firsts[path] = len(lines) + 1
            lines += of_cell
        self.text = "".join(f"{line}\n" for line in lines)
        self._end = len(lines)

    def line_in_all(self, path: str, line: int) -> int:
        """Return the line of the whole text at which a line of a cell lies; others as they are."""
        return line + self._firsts.get(path, 1) - 1

    def place(self, line: int) -> tuple[str, int]:
        """Return the cell in which a line of the whole text lies, and its line there."""
        path, first = [*self._firsts.items()][self._index(line)]
        return path, line - first + 1

    def bounds(self, line: int) -> tuple[int, int]:
        """Return the first and last line, in the whole text, of the cell that a line lies in."""
        at, firsts = self._index(line), [*self._firsts.values()]
        return firsts[at], firsts[at + 1] - 1 if at + 1 < len(firsts) else self._end

    def _index(self, line: int) -> int:
        return max(0, bisect_right([*self._firsts.values()], line) - 1)


def _still_meant(sources: dict[str, str], titles: dict[str, str]) -> dict[str, list[str]]:
    """Return the lines of the cells; empty where a later cell defines the same again."""
    ordered = sorted(sources, key=lambda path: (_number(titles.get(path, "")), path))
    found: dict[str, list[str]] = {}
    defined: set[str] = set()
    for path in reversed(ordered):
        lines = sources[path].splitlines()
        try:
            body = ast.parse(sources[path]).body
        except _UNREADABLE:
            found[path] = [""] * len(lines)
            continue
        definitions = [node for node in body if isinstance(node, DEFINITIONS)]
        for definition in definitions:
            if definition.name in defined:
                first = first_line_of(definition)
                last = definition.end_lineno or definition.lineno
                lines[first - 1 : last] = [""] * (last - first + 1)
        defined |= {definition.name for definition in definitions}
        found[path] = lines
    return {path: found[path] for path in ordered}


def _number(title: str) -> int:
    digits = re.search(r"\d+", title)
    return int(digits.group()) if digits else 0
