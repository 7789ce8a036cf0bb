"""Which expressions of a program refer to one container, and what is still between."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from leakscope.analysis.source.program import (
    Binding,
    CodeScope,
    Statement,
    UserProgram,
    arguments_of,
    body_nodes,
    decorators_of,
    last_name,
    own_nodes,
    targets_of,
)
from leakscope.analysis.source.types import FOREIGN, TypeInference, dotted
from leakscope.model.path_pattern import Step, Steps

_MAX_LEVEL = 6
_ITEM_GETTERS = frozenset({"setdefault", "get", "pop", "__getitem__", "popleft", "popitem"})
_WRAPPERS = frozenset({"iter", "reversed", "sorted", "list", "tuple", "tqdm", "next", "enumerate"})
CONTAINER_MAKERS = frozenset(
    {"list", "dict", "set", "deque", "OrderedDict", "Counter", "Queue", "defaultdict"}
)
_STARTERS = frozenset({"Thread", "Process", "submit", "partial", "apply_async", "Timer"})


@dataclass(frozen=True)
class ContainerPlace:
    """``name`` in a scope, ``attr`` of a class (None: of any), ``return`` of a function."""

    kind: str
    scope: CodeScope | None
    name: str


class References:
    """All places from which one container can be reached."""

    def __init__(self, program: UserProgram, types: TypeInference) -> None:
        self.program = program
        self.types = types
        self.places: dict[ContainerPlace, set[Steps]] = {}
        self.methods: dict[ContainerPlace, set[tuple[str, Steps]]] = {}
        """Variables that hold a bound method: its name, and the steps left from its object."""
        self.chain: list[tuple[ContainerPlace, Steps]] = []
        """The places on the path itself, in the order of its steps; the others are aliases."""
        self._pending: list[tuple[ContainerPlace, int]] = []

    @property
    def names(self) -> set[str]:
        """The identifiers under which the container may be met."""
        names = {place.name for place in (*self.places, *self.methods)}
        is_receiver = any(p.scope is not None and p.scope.receiver == p.name for p in self.places)
        return names | {"super"} if is_receiver else names

    def start(self, place: ContainerPlace, steps: Steps) -> None:
        """Declare that the container is ``steps`` away from ``place``."""
        self.add(place, steps, level=0, on_path=True)

    def add(
        self, place: ContainerPlace, steps: Steps, *, level: int, on_path: bool = False
    ) -> None:
        """Record a place, and the attribute of its class that the next step leads to."""
        known = self.places.setdefault(place, set())
        if steps in known or level > _MAX_LEVEL or len(known) > 12:
            return
        known.add(steps)
        if on_path:
            self.chain.append((place, steps))
        self._pending.append((place, level))
        if steps and steps[0].kind == "attr":
            for owner in self._owners(place, steps[0].value):
                attribute = ContainerPlace("attr", owner, steps[0].value)
                self.add(attribute, steps[1:], level=level, on_path=on_path)

    def _owners(self, place: ContainerPlace, attribute: str) -> list[CodeScope]:
        if owners := self.classes_of(place):
            return [owner for owner in owners if owner is not FOREIGN]
        binders = self.types.binders(attribute)
        return binders[:1] if binders and set(binders) <= self.types.family(binders[0]) else []

    def classes_of(self, place: ContainerPlace) -> frozenset[CodeScope]:
        """Return the classes of the value at a place."""
        if place.scope is None or place.kind == "return":
            return frozenset()
        if place.kind == "name":
            if place.name == place.scope.receiver and place.scope.parent:
                return frozenset({place.scope.parent})
            return self.types.of(ast.Name(id=place.name), place.scope)
        members = (cls.member(place.name) for cls in self.types.family(place.scope))
        return frozenset().union(*map(self.types.of_bindings, members))

    def spread(self) -> None:
        """Follow the places through the program until no new one turns up."""
        seen: set[tuple[ContainerPlace, int]] = set()
        while self._pending:
            place, level = self._pending.pop()
            if (place, len(self.places.get(place, ()))) in seen:
                continue
            seen.add((place, len(self.places.get(place, ()))))
            name = place.scope.name if place.kind == "return" and place.scope else place.name
            for statement in self.program.mentioning(name):
                _Follower(self, statement, level).follow()

    def steps_from(self, expr: ast.expr | None, scope: CodeScope) -> set[Steps]:
        """Return the steps left from the expression's value; empty if it leads nowhere."""
        if isinstance(expr, ast.Name):
            return self._from_name(expr.id, scope)
        if isinstance(expr, ast.Attribute):
            return self._from_attribute(expr, scope)
        if isinstance(expr, ast.Subscript):
            return _after_item(self.steps_from(expr.value, scope), _constant(expr.slice))
        if isinstance(expr, ast.Call):
            return self._from_call(expr, scope)
        if isinstance(expr, (ast.NamedExpr, ast.Await, ast.Starred)):
            return self.steps_from(expr.value, scope)
        if isinstance(expr, ast.IfExp):
            return self.steps_from(expr.body, scope) | self.steps_from(expr.orelse, scope)
        if isinstance(expr, ast.BoolOp):
            return set().union(*(self.steps_from(value, scope) for value in expr.values))
        return set()

    def is_container(self, expr: ast.expr | None, scope: CodeScope) -> bool:
        """Return whether an expression is the container itself."""
        return () in self.steps_from(expr, scope)

    def _from_name(self, name: str, scope: CodeScope) -> set[Steps]:
        home = scope.resolve(name)
        if home is None:
            return set()
        found = set(self.places.get(ContainerPlace("name", home, name), ()))
        if home.kind == "class":
            for owner in self._attribute_owners(name):
                if owner is None or home in self.types.family(owner):
                    found |= self.places[ContainerPlace("attr", owner, name)]
        if name in home.module.imports:
            module, attribute = home.module.imports[name]
            source = self.program.module_named(module, importer=home.root) if attribute else None
            if source is not None and source is not home:
                found |= self._from_name(attribute, source)
        return found

    def _attribute_owners(self, name: str) -> list[CodeScope | None]:
        return [p.scope for p in self.places if p.kind == "attr" and p.name == name]

    def _from_attribute(self, expr: ast.Attribute, scope: CodeScope) -> set[Steps]:
        wanted = Step("attr", expr.attr)
        found = {s[1:] for s in self.steps_from(expr.value, scope) if s and s[0] == wanted}
        owners = self._attribute_owners(expr.attr)
        if owners:
            receivers = self.types.of(expr.value, scope)
            for owner in owners:
                if self._may_be(receivers, owner, expr.attr):
                    found |= self.places[ContainerPlace("attr", owner, expr.attr)]
        module = self.types.module_of(expr.value, scope)
        return found | self._from_name(expr.attr, module) if module else found

    def _may_be(
        self, receivers: frozenset[CodeScope], owner: CodeScope | None, attribute: str
    ) -> bool:
        if owner is None:
            return True
        family = self.types.family(owner)
        if receivers:
            return not family.isdisjoint(receivers)
        return set(self.types.binders(attribute)) <= family

    def _from_call(self, expr: ast.Call, scope: CodeScope) -> set[Steps]:
        if is_super(expr):
            return self._from_name(scope.receiver, scope)
        function = expr.func
        found: set[Steps] = set()
        if isinstance(function, ast.Attribute) and function.attr in _ITEM_GETTERS:
            key = _constant(expr.args[0]) if expr.args else None
            found |= _after_item(self.steps_from(function.value, scope), key)
        if isinstance(function, ast.Name) and function.id == "getattr" and len(expr.args) > 1:
            name = expr.args[1]
            if isinstance(name, ast.Constant):
                read = ast.Attribute(value=expr.args[0], attr=str(name.value))
                found |= self._from_attribute(read, scope)
        returns = [place for place in self.places if place.kind == "return"]
        if returns and last_name(function) in {p.scope.name for p in returns if p.scope}:
            for called in self.types.called_functions(function, scope):
                found |= self.places.get(ContainerPlace("return", called, ""), set())
        return found

    def items_of(self, expr: ast.expr, scope: CodeScope) -> tuple[set[Steps], bool]:
        """Return the steps left from what a loop over ``expr`` yields, and whether in pairs."""
        method = expr.func if isinstance(expr, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in {"values", "items"}:
            inner = self.steps_from(method.value, scope)
            return _after_item(inner, None), method.attr == "items"
        if isinstance(expr, ast.Call) and last_name(expr.func) in _WRAPPERS and expr.args:
            steps, paired = self.items_of(expr.args[0], scope)
            return steps, paired or last_name(expr.func) == "enumerate"
        return _after_item(self.steps_from(expr, scope), None), False


class _Follower:
    """Follows what one statement hands on."""

    def __init__(self, references: References, statement: Statement, level: int) -> None:
        self.references = references
        self.scope = statement.scope
        self.node = statement.node
        self.level = level

    def follow(self) -> None:
        node = self.node
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = targets_of(node)
            for target in targets:
                self.assigned(target, node.value)
            if makes_container(node.value):  # `self.pool = pool = []`: one list under two names
                for target, other in permutations(targets, 2):
                    self.assigned(target, other)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.looped(node.target, node.iter)
        elif isinstance(node, ast.Return):
            place = ContainerPlace("return", self.scope, "")
            for steps in self.references.steps_from(node.value, self.scope):
                self.references.add(place, steps, level=self.level)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self.assigned(item.optional_vars, item.context_expr)
        elif isinstance(node, ast.ImportFrom):
            self.imported(node)
        self.expressions()

    def expressions(self) -> None:
        for decorator in decorators_of(self.node):
            self.listened(decorator, [ast.Name(id=getattr(self.node, "name", ""))])
        for node in own_nodes(self.node):
            if isinstance(node, ast.NamedExpr):
                self.assigned(node.target, node.value)
            elif isinstance(node, ast.comprehension):
                self.looped(node.target, node.iter)
            elif isinstance(node, ast.Call):
                self.passed(node)

    def assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                for part, element in zip(target.elts, value.elts, strict=True):
                    self.assigned(part, element)
            return
        if isinstance(target, ast.Name) and isinstance(value, ast.Attribute):
            self.method_kept(target.id, value)
        self.bind(target, self.references.steps_from(value, self.scope))

    def imported(self, node: ast.ImportFrom) -> None:
        for name in (ast.Name(id=alias.asname or alias.name) for alias in node.names):
            self.bind(name, self.references.steps_from(name, self.scope))

    def method_kept(self, name: str, value: ast.Attribute) -> None:
        found = {(value.attr, s) for s in self.references.steps_from(value.value, self.scope)}
        place = ContainerPlace("name", self.scope.home(name), name)
        known = self.references.methods.setdefault(place, set()) if found else set()
        if not found <= known:
            known |= found
            self.references._pending.append((place, self.level))

    def bind(self, target: ast.expr, found: set[Steps]) -> None:
        for steps in found:
            if isinstance(target, ast.Name):
                place = ContainerPlace("name", self.scope.home(target.id), target.id)
                self.references.add(place, steps, level=self.level)
            elif isinstance(target, ast.Attribute):
                for owner in self.references.types.of(target.value, self.scope) - {FOREIGN}:
                    place = ContainerPlace("attr", owner, target.attr)
                    self.references.add(place, steps, level=self.level)

    def looped(self, target: ast.expr, iterated: ast.expr) -> None:
        if isinstance(iterated, ast.Call) and last_name(iterated.func) == "zip":
            if isinstance(target, ast.Tuple) and len(target.elts) == len(iterated.args):
                for part, source in zip(target.elts, iterated.args, strict=True):
                    self.looped(part, source)
            return
        steps, paired = self.references.items_of(iterated, self.scope)
        if paired and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
        self.bind(target, steps)

    def passed(self, call: ast.Call) -> None:
        arguments = arguments_of(call)
        self.listened(call.func, arguments)
        self.started(call)
        if not any(self.references.steps_from(value, self.scope) for value in arguments):
            return
        types = self.references.types
        for function in types.called_functions(call.func, self.scope):
            self.into(function, call.args, call.keywords, call.func)
        for cls in types.of(call, self.scope) - {FOREIGN}:
            if cls.name == last_name(call.func):
                for member in types.ancestors(cls):
                    self.constructed(member, call)

    def hand_on(self, place: ContainerPlace, value: ast.expr) -> None:
        for steps in self.references.steps_from(value, self.scope):
            self.references.add(place, steps, level=self.level + 1)

    def listened(self, function: ast.expr, arguments: Sequence[ast.expr]) -> None:
        """``trainer.add_event_handler(event, f)``, ``@trainer.on(event)``: who calls ``f`` hands
        itself on, if ``f`` then goes on from its argument by the same attributes.
        """
        if not isinstance(function, ast.Attribute):
            return
        found = self.references.steps_from(function.value, self.scope)
        through = {steps for steps in found if steps and steps[0].kind == "attr"}
        for value in arguments if through else ():
            for listener in self.references.types.called_functions(value, self.scope):
                for name in listener.params[bool(listener.receiver) :][:1]:
                    for steps in through:
                        place = ContainerPlace("name", listener, name)
                        self.references.add(place, steps, level=self.level + 1)

    def constructed(self, cls: CodeScope, call: ast.Call) -> None:
        makers = [c for c in cls.children if c.name == "__init__"]
        for maker in makers:
            self.into(maker, call.args, call.keywords, call.func)
        if not makers and call.args:
            fields = [n for n, b in cls.bindings.items() if b[0].annotation is not None]
            for name, value in _paired(fields, call.args, call.keywords, fields):
                self.hand_on(ContainerPlace("attr", cls, name), value)

    def started(self, call: ast.Call) -> None:
        """``Thread(target=f, args=(out,))``, ``partial(f, out)``: the arguments arrive in ``f``."""
        if last_name(call.func) not in _STARTERS:
            return
        keywords = {k.arg: k.value for k in call.keywords}
        target = keywords.get("target", call.args[0] if call.args else None)
        packed = keywords.get("args")
        arguments = packed.elts if isinstance(packed, ast.Tuple) else call.args[1:]
        if target is not None:
            for function in self.references.types.called_functions(target, self.scope):
                self.into(function, arguments, call.keywords, target)

    def into(
        self,
        function: CodeScope,
        arguments: list[ast.expr],
        keywords: list[ast.keyword],
        written: ast.expr,
    ) -> None:
        is_method = bool(function.receiver)
        if isinstance(written, ast.Attribute) and isinstance(written.value, ast.Name):
            is_method = is_method and written.value.id != getattr(function.parent, "name", "")
        params = function.params[is_method:]
        for name, value in _paired(params, arguments, keywords, function.params):
            self.hand_on(ContainerPlace("name", function, name), value)


def _paired(
    places: list[str], arguments: list[ast.expr], keywords: list[ast.keyword], names: list[str]
) -> list[tuple[str, ast.expr]]:
    by_keyword = ((k.arg, k.value) for k in keywords if k.arg and k.arg in names)
    return [*zip(places, arguments, strict=False), *by_keyword]


def is_super(expr: ast.expr) -> bool:
    """Whether an expression is ``super()``, which stands for the method's own object."""
    function = expr.func if isinstance(expr, ast.Call) else None
    return isinstance(function, ast.Name) and function.id == "super"


def makes_container(value: ast.expr) -> bool:
    """Whether a value is a new container for sure: a display, a comprehension, ``deque()``."""
    if isinstance(value, ast.Call):
        return dotted(value.func).rpartition(".")[2] in CONTAINER_MAKERS
    displays = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    return isinstance(value, displays)


def _after_item(found: set[Steps], key: str | None) -> set[Steps]:
    """Return what is left after an item is taken; ``key`` None may be any."""
    after = set()
    for steps in found:
        if steps and steps[0].is_item:
            is_fixed = steps[0].kind != "any" and key is not None
            if not is_fixed or steps[0].value.strip("'\"") == (key or "").strip("'\""):
                after.add(steps[1:])
    return after


def _constant(expr: ast.expr) -> str | None:
    return repr(expr.value) if isinstance(expr, ast.Constant) else None


_GETTERS = frozenset({"setdefault", "get", "__getitem__"})
_PARTS = {"values": 0, "items": 1}
"""Methods to loop over, and which part of what they yield is in the container."""


Names = set[tuple[CodeScope | None, str]]
"""Variables, each with the scope that it lives in."""


class ItemVariables:
    """Tells which variables and which calls stand for something in the container.

    ``entry = results[name]``, ``rows = results.setdefault(name, [])``, ``for rows in
    results.values()``, what is taken from such a variable by keys, and ``rows = gallery.page(3)``
    where every return of that method gives such a thing.
    """

    def __init__(self, references: References, statements: Iterable[Statement]) -> None:
        self._references = references
        self.names: Names = set()
        self.functions: list[CodeScope] = []
        """Functions of which every return is something in the container."""
        pending = list(statements)
        while pending:
            names, functions = set(self.names), len(self.functions)
            self._bind(pending)
            self._find_functions(pending)
            new = {name for _, name in self.names - names}
            new |= {function.name for function in self.functions[functions:]}
            pending = [s for name in sorted(new) for s in references.program.mentioning(name)]

    def gives(self, expr: ast.expr, scope: CodeScope) -> bool:
        """Whether a call, or a property, gives what every return of its function is."""
        function = expr.func if isinstance(expr, ast.Call) else expr
        if not any(last_name(function) == known.name for known in self.functions):
            return False
        called = self._references.types.called_functions(function, scope)
        is_run = isinstance(expr, ast.Call) or all(_is_property(f) for f in called)
        return is_run and bool(called) and all(f in self.functions for f in called)

    def _bind(self, statements: list[Statement]) -> None:
        for statement in statements:
            scope, node = statement.scope, statement.node
            for variable, taken in _bound(node):
                if _refers(self._references, taken, scope) or self._is_item_inside(taken, scope):
                    self.names.add((scope.resolve(variable.id), variable.id))
            if isinstance(node, ast.Assign) and self.gives(node.value, scope):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.names.add((scope.resolve(target.id), target.id))

    def _is_item_inside(self, expr: ast.expr, scope: CodeScope) -> bool:
        """Whether it is taken from such a variable by keys: ``block = entry["blocks"][name]``."""
        while (source := _source(expr)) is not None:
            expr = source
        return isinstance(expr, ast.Name) and (scope.resolve(expr.id), expr.id) in self.names

    def _find_functions(self, statements: list[Statement]) -> None:
        for statement in statements:
            function = statement.scope
            if isinstance(statement.node, ast.Return) and function not in self.functions:
                ends = (ast.Return, ast.Yield, ast.YieldFrom)
                returns = [node for node in body_nodes(function.node) if isinstance(node, ends)]
                if all(
                    isinstance(e, ast.Return) and self._may_return(e.value, function)
                    for e in returns
                ):
                    self.functions.append(function)

    def _may_return(self, value: ast.expr | None, scope: CodeScope) -> bool:
        if isinstance(value, ast.Name):
            bindings = scope.bindings.get(value.id, [])
            return bool(bindings) and all(self._is_bound_inside(b) for b in bindings)
        if value is None or (isinstance(value, ast.Call) and _has_default(value)):
            return False
        source = _source(value)
        is_item = source is not None and _refers(self._references, source, scope)
        return is_item or self.gives(value, scope)

    def _is_bound_inside(self, binding: Binding) -> bool:
        node = binding.statement.node if binding.statement else None
        if not isinstance(node, ast.Assign):
            return False
        values = [t for t in node.targets if isinstance(t, ast.Subscript)] + [node.value]
        return any(
            not isinstance(value, ast.Name) and self._may_return(value, binding.scope)
            for value in values
        )


def _has_default(call: ast.Call) -> bool:
    """``results.get(name, [])`` may give what isn't in there."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "get" and len(call.args) > 1


def _is_property(function: CodeScope) -> bool:
    names = map(last_name, getattr(function.node, "decorator_list", []))
    return not {"property", "cached_property"}.isdisjoint(names)


def _bound(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    if isinstance(node, ast.Assign):
        written = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
        sources = [source for value in _choices(node.value) if (source := _source(value))]
        for target in node.targets:
            for taken in [*written, *sources]:
                if isinstance(target, ast.Name):
                    yield target, taken
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _looped(node.target, node.iter)


def _looped(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[ast.Name, ast.expr]]:
    method = iterated.func if isinstance(iterated, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in _PARTS:
        iterated = method.value
        if _PARTS[method.attr] and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
    if isinstance(target, ast.Name):
        yield target, iterated


def _choices(value: ast.expr) -> list[ast.expr]:
    """Return what a value may be: ``rows.get(key) or rows.setdefault(key, [])`` is one of two."""
    if isinstance(value, ast.BoolOp):
        return value.values
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]


def _source(value: ast.expr) -> ast.expr | None:
    if isinstance(value, ast.Subscript):
        return value.value
    function = value.func if isinstance(value, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr in _GETTERS:
        return function.value
    return None


def _refers(references: References, value: ast.expr, scope: CodeScope) -> bool:
    """Return whether an expression is the container, or an item of an item of it."""
    source: ast.expr | None = value
    while source is not None and not references.is_container(source, scope):
        source = _source(source)
    return source is not None
