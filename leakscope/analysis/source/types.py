"""What class an expression's value is of, as far as the sources tell."""

from __future__ import annotations

import ast

from leakscope.analysis.source.program import (
    Binding,
    CodeScope,
    Module,
    UserProgram,
    alternatives,
    chain_end,
    descendants,
    dotted,
    parts_of,
)

Classes = frozenset[CodeScope]

FOREIGN = CodeScope("class", "", "", ast.Module(body=[], type_ignores=[]), Module("", ()))
"""Stands for every class that the sources don't define: a literal's, a library's."""

UNKNOWN: Classes = frozenset()
_MAX_DEPTH = 6


class TypeInference:
    """Infers classes by following assignments, annotations, calls and returns."""

    def __init__(self, program: UserProgram) -> None:
        self._program = program
        self._families: dict[CodeScope, Classes] = {}
        self._ancestors: dict[CodeScope, Classes] = {}
        self._known: dict[tuple[ast.expr, CodeScope], Classes] = {}
        self._open: set[ast.expr] = set()

    def family(self, owner: CodeScope) -> Classes:
        """Return the classes whose methods may see an attribute of ``owner``'s instances."""
        if owner not in self._families:
            classes = (cls for group in self._program.classes.values() for cls in group)
            heirs = (cls for cls in classes if owner in self.ancestors(cls))
            self._families[owner] = self.ancestors(owner).union(*map(self.ancestors, heirs))
        return self._families[owner]

    def ancestors(self, owner: CodeScope) -> Classes:
        """Return the class and its base classes among the sources."""
        if owner not in self._ancestors:
            self._ancestors[owner] = frozenset({owner})
            found = {owner}
            for base in getattr(owner.node, "bases", []):
                for cls in self._named_classes(base, owner.parent or owner):
                    found |= self.ancestors(cls)
            self._ancestors[owner] = frozenset(found)
        return self._ancestors[owner]

    def binders(self, attribute: str) -> list[CodeScope]:
        """Return the classes that bind ``attribute`` in their body or on ``self``."""
        return [
            cls
            for group in self._program.classes.values()
            for cls in group
            if attribute in cls.attributes or attribute in cls.bindings
        ]

    def only_binder(self, attribute: str) -> list[CodeScope]:
        """Return the first of these where they are all of its family, else none."""
        binders = self.binders(attribute)
        return binders[:1] if binders and set(binders) <= self.family(binders[0]) else []

    def of(self, expr: ast.expr | None, scope: CodeScope, depth: int = 0) -> Classes:
        """Return the possible classes of the value, or of the class that it is; empty: unknown."""
        if expr is None or depth > _MAX_DEPTH or expr in self._open:
            return UNKNOWN
        if (expr, scope) in self._known:
            return self._known[expr, scope]
        self._open.add(expr)
        found = self._infer(expr, scope, depth)
        self._open.discard(expr)
        if not self._open:
            self._known[expr, scope] = found
        return found

    def _infer(self, expr: ast.expr, scope: CodeScope, depth: int) -> Classes:
        if isinstance(expr, ast.Name):
            return self._of_name(expr.id, scope, depth)
        if isinstance(expr, ast.Attribute):
            return self._of_attribute(expr, scope, depth)
        if isinstance(expr, ast.Call):
            return self._of_call(expr, scope, depth)
        if isinstance(expr, (ast.NamedExpr, ast.Await)):
            return self.of(expr.value, scope, depth)
        if values := alternatives(expr):
            return UNKNOWN.union(*(self.of(value, scope, depth) for value in values))
        is_none = isinstance(expr, ast.Constant) and expr.value is None
        literals = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp)
        return frozenset({FOREIGN}) if isinstance(expr, literals) and not is_none else UNKNOWN

    def of_bindings(self, bindings: list[Binding], depth: int = 0) -> Classes:
        """Return the classes that a name's or attribute's bindings give it."""
        found: Classes = UNKNOWN
        for binding in bindings:
            if binding.how != "for":
                annotated = self._annotated(binding.annotation, binding.scope)
                found |= annotated or self.of(binding.value, binding.scope, depth + 1)
        return found

    def _of_name(self, name: str, scope: CodeScope, depth: int) -> Classes:
        home = scope.resolve(name)
        if home is None:
            return UNKNOWN
        if home.receiver == name and home.parent is not None:
            return frozenset({home.parent})
        if named := self._named_classes(ast.Name(id=name), scope):
            return named
        if home.kind == "module" and name in home.module.imports:
            return UNKNOWN if self.imported_scope(name, home) else frozenset({FOREIGN})
        return self.of_bindings(home.bindings[name], depth)

    def _of_attribute(self, expr: ast.Attribute, scope: CodeScope, depth: int) -> Classes:
        if named := self._named_classes(expr, scope):
            return named
        owners = self.of(expr.value, scope, depth + 1)
        if expr.attr == "__class__":
            return owners
        classes = (cls for owner in owners for cls in self.family(owner))
        return UNKNOWN.union(*(self.of_bindings(c.member(expr.attr), depth + 1) for c in classes))

    def _of_call(self, expr: ast.Call, scope: CodeScope, depth: int) -> Classes:
        function = expr.func
        name = function.id if isinstance(function, ast.Name) else ""
        if name == "type" and expr.args:
            return self.of(expr.args[0], scope, depth + 1)
        if name == "super":
            owner = scope.enclosing_class()
            return frozenset({owner}) if owner else UNKNOWN
        if named := self._named_classes(function, scope):
            return named
        if called := self.called_functions(function, scope, depth):
            return self._returned(called, depth)
        if name and scope.resolve(name) is None:
            return frozenset({FOREIGN})  # a builtin
        if not isinstance(function, (ast.Name, ast.Attribute)):
            return UNKNOWN
        source = function.value if isinstance(function, ast.Attribute) else function
        return self.of(source, scope, depth + 1) & {FOREIGN}

    def _returned(self, functions: list[CodeScope], depth: int) -> Classes:
        found: Classes = UNKNOWN
        for function in functions:
            found |= self._annotated(getattr(function.node, "returns", None), function)
            for node in parts_of(function.node, ast.Return):
                found = found or self.of(node.value, function, depth + 2)
        return found

    def called_functions(
        self, function: ast.expr, scope: CodeScope, depth: int = 0
    ) -> list[CodeScope]:
        """Return the functions of the sources that a call of ``function`` may run."""
        if isinstance(function, ast.Name):
            return self._functions_named(function.id, scope)
        if not isinstance(function, ast.Attribute):
            return []
        module = self.module_of(function.value, scope)
        if module is not None:
            return [c for c in module.children if c.name == function.attr and c.kind == "function"]
        owners = self.of(function.value, scope, depth + 1)
        methods = [m for m in self._program.functions.get(function.attr, []) if m.is_method]
        if owners:
            families = frozenset().union(*(self.family(owner) for owner in owners))
            return [method for method in methods if method.parent in families]
        return methods if len(methods) == 1 else []

    def _functions_named(self, name: str, scope: CodeScope) -> list[CodeScope]:
        home = scope.resolve(name)
        if home is None:
            return []
        found = [c for c in home.children if c.name == name and c.kind == "function"]
        source = self.imported_scope(name, home) if not found else None
        return [source] if source is not None and source.kind == "function" else found

    def module_of(self, expr: ast.expr, scope: CodeScope) -> CodeScope | None:
        """Return the module of the sources that an expression names, if it does."""
        head, _, rest = dotted(expr).partition(".")
        home = scope.resolve(head) if head else None
        if home is None or head not in home.module.imports:
            return None
        name = ".".join(filter(None, (*home.module.imports[head], rest)))
        return self._program.module_named(name, importer=home.root)

    def imported_scope(self, name: str, home: CodeScope) -> CodeScope | None:
        """Return the module, class or function of the sources that ``name`` was imported as."""
        module, attribute = home.module.imports.get(name, ("", ""))
        source = self._program.module_named(module, importer=home.root)
        if not attribute:
            return source
        if source is None:
            return self._program.module_named(f"{module}.{attribute}", importer=home.root)
        found = next((scope for scope in source.children if scope.name == attribute), None)
        if found is None and attribute in source.module.imports and source is not home.root:
            return self.imported_scope(attribute, source)
        return found or (source if attribute in source.bindings else None)

    def _annotated(self, annotation: ast.expr | None, scope: CodeScope) -> Classes:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return UNKNOWN
        if isinstance(annotation, ast.BinOp):
            left = self._annotated(annotation.left, scope)
            return left | self._annotated(annotation.right, scope)
        if isinstance(annotation, ast.Subscript) and dotted(annotation.value).endswith("Optional"):
            return self._annotated(annotation.slice, scope)
        return self._named_classes(annotation, scope)

    def _named_classes(self, expr: ast.expr | None, scope: CodeScope) -> Classes:
        text = dotted(expr)
        candidates = self._program.classes.get(chain_end(expr), [])
        if not candidates or text.startswith("self."):
            return UNKNOWN
        home = scope.resolve(text.partition(".")[0])
        if home is None:
            return frozenset(candidates[:1]) if "." in text else UNKNOWN
        if local := [c for c in candidates if c.parent is home]:
            return frozenset(local)
        imported = self.imported_scope(text.partition(".")[0], home)
        return frozenset(candidates).intersection(descendants(imported) if imported else ())


def imported_name(expr: ast.expr, scope: CodeScope) -> str:
    """Return the full name of what was imported, ``weakref.finalize``, else an empty text."""
    head, dot, rest = dotted(expr).partition(".")
    module, attribute = scope.module.imports.get(head, ("", ""))
    name = f"{module}.{attribute}" if attribute else module
    return f"{name}{dot}{rest}" if name else ""
