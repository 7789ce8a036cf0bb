"""Reading one file into scopes, bindings and statements."""

from __future__ import annotations

import ast
import warnings

from leakscope.analysis.source.program import (
    LOOPS,
    Binding,
    FunctionNode,
    Module,
    Scope,
    Statement,
    own_nodes,
)

_ATTRIBUTE_MAKERS = frozenset(
    {"setattr", "__setattr__", "register_buffer", "register_parameter", "add_state", "add_module"}
)


def read_module(file: str, text: str) -> tuple[Scope | None, list[Statement]]:
    """Return the module's scope and its statements; ``(None, [])`` where it can't be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        reader = _Reader(file, tree)
        reader.block(tree.body, reader.root, ())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, []
    return reader.root, reader.statements


class _Reader:
    def __init__(self, file: str, tree: ast.Module) -> None:
        self.module = Module(file=file, names=_import_names(file))
        name = self.module.names[-1] if self.module.names else ""
        self.root = Scope("module", name, "", tree, self.module)
        self.statements: list[Statement] = []

    def block(self, body: list[ast.stmt], scope: Scope, loops: tuple[ast.stmt, ...]) -> None:
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

    def child(self, kind: str, node: ast.ClassDef | FunctionNode, parent: Scope) -> Scope:
        qualname = f"{parent.qualname}.{node.name}" if parent.qualname else node.name
        scope = Scope(kind, node.name, qualname, node, self.module, parent)
        parent.children.append(scope)
        return scope

    def function(self, node: FunctionNode, parent: Scope) -> Scope:
        scope = self.child("function", node, parent)
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args]
        scope.params = [argument.arg for argument in (*plain, *arguments.kwonlyargs)]
        defaults: dict[str, ast.expr] = dict(
            zip(reversed([a.arg for a in plain]), reversed(arguments.defaults), strict=False)
        )
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                defaults[argument.arg] = default
        extra = [a for a in (arguments.vararg, arguments.kwarg) if a]
        for argument in (*plain, *arguments.kwonlyargs, *extra):
            value = defaults.get(argument.arg)
            binding = Binding("param", argument.lineno, parent, value, argument.annotation)
            scope.bindings.setdefault(argument.arg, []).append(binding)
        _declare(scope)
        return scope

    def bind(self, statement: Statement) -> None:
        node, scope = statement.node, statement.scope
        if isinstance(node, (FunctionNode, ast.ClassDef)):
            how = "class" if isinstance(node, ast.ClassDef) else "def"
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            self.name(node.name, Binding(how, first, scope, statement=statement))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imported(node, statement)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.target(target, node.value, statement)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
            if isinstance(node, ast.AnnAssign) or isinstance(node.target, ast.Name):
                self.target(node.target, node.value, statement, annotation)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.target(node.target, None, statement, how="for")
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self.target(item.optional_vars, item.context_expr, statement, how="with")
        self.caught(statement)
        self.expressions(statement)

    def caught(self, statement: Statement) -> None:
        for handler in getattr(statement.node, "handlers", ()):
            if handler.name:
                binding = Binding("except", handler.lineno, statement.scope, statement=statement)
                self.name(handler.name, binding, statement.scope)

    def expressions(self, statement: Statement) -> None:
        """Bind what walruses and ``setattr``-like calls bind."""
        for node in own_nodes(statement.node):
            if isinstance(node, ast.NamedExpr):
                self.target(node.target, node.value, statement)
            elif isinstance(node, ast.Call):
                self.made_attribute(node, statement)

    def made_attribute(self, call: ast.Call, statement: Statement) -> None:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        if name not in _ATTRIBUTE_MAKERS:
            return
        texts = [a for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        owner = statement.scope.enclosing_class()
        if texts and owner is not None and statement.scope.kind == "function":
            value = next((k.value for k in call.keywords if k.arg == "default"), call.args[-1])
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
            for index, part in enumerate(target.elts):
                self.target(part, _part(value, index, len(target.elts)), statement, None, how)
            return
        binding = Binding(how, statement.line, statement.scope, value, annotation, statement)
        if isinstance(target, ast.Name):
            self.name(target.id, binding)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self.attribute(target.value.id, target.attr, binding)

    def name(self, name: str, binding: Binding, scope: Scope | None = None) -> None:
        home = (scope or binding.scope).home(name)
        home.bindings.setdefault(name, []).append(binding)

    def attribute(self, receiver: str, attribute: str, binding: Binding) -> None:
        scope = binding.scope.resolve(receiver)
        owner = scope.parent if scope and scope.receiver == receiver else None
        if owner is not None:
            owner.attributes.setdefault(attribute, []).append(binding)

    def imported(self, node: ast.Import | ast.ImportFrom, statement: Statement) -> None:
        for alias in node.names:
            local = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom):
                source = ("." * node.level + (node.module or ""), alias.name)
            else:
                source = (alias.name if alias.asname else local, "")
            self.module.imports[local] = source
            self.name(local, Binding("import", node.lineno, statement.scope, statement=statement))


def _part(value: ast.expr | None, index: int, count: int) -> ast.expr | None:
    """Return the element that a tuple's value gives to one target, where it can be told."""
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == count:
        return value.elts[index]
    return None


def _declare(scope: Scope) -> None:
    """Note ``global`` and ``nonlocal`` before the first assignment is read."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope.node))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global):
            scope.declared_global.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.declared_nonlocal.update(node.names)
        elif not isinstance(node, (FunctionNode, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))


def _names(node: ast.stmt) -> frozenset[str]:
    names: set[str] = set()
    for part in own_nodes(node):
        if isinstance(part, ast.Name):
            names.add(part.id)
        elif isinstance(part, ast.Attribute):
            names.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            if part.value.isidentifier():
                names.add(part.value)
        elif isinstance(part, ast.alias):
            names.update({part.asname or part.name, part.name})
    return frozenset(names)


def _import_names(file: str) -> tuple[str, ...]:
    """Return every dotted tail of a path: ``a/b/c.py`` may be imported as b.c or c."""
    parts = file.replace("\\", "/").removesuffix(".py").removesuffix("/__init__").split("/")
    parts = [part for part in parts if part]
    tails = [".".join(parts[start:]) for start in range(len(parts))]
    return tuple(tail for tail in tails if tail and not tail.startswith("."))
