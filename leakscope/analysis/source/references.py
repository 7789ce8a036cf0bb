"""Which expressions of a program refer to one container, and what is still between."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from leakscope.analysis.source.program import (
    Binding,
    CodeScope,
    Statement,
    UserProgram,
    alternatives,
    arguments_of,
    body_nodes,
    bound_in,
    chain_end,
    decorators_of,
    keyword_of,
    last_name,
    own_nodes,
)
from leakscope.analysis.source.types import FOREIGN, TypeInference
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
    """``name`` in a scope, ``attr`` of a class, ``return`` of a function."""

    kind: str
    scope: CodeScope
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
        is_receiver = any(place.scope.receiver == place.name for place in self.places)
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
            owners = self.classes_of(place) or {*self.types.only_binder(steps[0].value)}
            for owner in owners - {FOREIGN}:
                attribute = ContainerPlace("attr", owner, steps[0].value)
                self.add(attribute, steps[1:], level=level, on_path=on_path)

    def classes_of(self, place: ContainerPlace) -> frozenset[CodeScope]:
        """Return the classes of the value at a place."""
        if place.kind == "return":
            return frozenset()
        if place.kind == "name":
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
            name = place.scope.name if place.kind == "return" else place.name
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
        return set().union(*(self.steps_from(value, scope) for value in alternatives(expr)))

    def is_container(self, expr: ast.expr | None, scope: CodeScope) -> bool:
        """Return whether an expression is the container itself."""
        return () in self.steps_from(expr, scope)

    def _from_name(self, name: str, scope: CodeScope) -> set[Steps]:
        home = scope.resolve(name)
        if home is None:
            return set()
        found = set(self.places.get(ContainerPlace("name", home, name), ()))
        for owner, steps in self._from_owners(name) if home.kind == "class" else ():
            if home in self.types.family(owner):
                found |= steps
        if name in home.module.imports:
            module, attribute = home.module.imports[name]
            source = self.program.module_named(module, importer=home.root) if attribute else None
            if source is not None and source is not home:
                found |= self._from_name(attribute, source)
        return found

    def _from_owners(self, attribute: str) -> list[tuple[CodeScope, set[Steps]]]:
        found = ((p, s) for p, s in self.places.items() if (p.kind, p.name) == ("attr", attribute))
        return [(place.scope, steps) for place, steps in found]

    def _from_attribute(self, expr: ast.Attribute, scope: CodeScope) -> set[Steps]:
        wanted = Step("attr", expr.attr)
        found = {s[1:] for s in self.steps_from(expr.value, scope) if s and s[0] == wanted}
        for owner, steps in self._from_owners(expr.attr):
            family, receivers = self.types.family(owner), self.types.of(expr.value, scope)
            # Of an unknown receiver it is the owner's where no other class binds such an attribute.
            if family & receivers or not (receivers or {*self.types.binders(expr.attr)} - family):
                found |= steps
        module = self.types.module_of(expr.value, scope)
        return found | self._from_name(expr.attr, module) if module else found

    def _from_call(self, expr: ast.Call, scope: CodeScope) -> set[Steps]:
        if is_super(expr):
            return self._from_name(scope.receiver, scope)
        function = expr.func
        found: set[Steps] = set()
        match expr:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _ITEM_GETTERS:
                key = _constant(expr.args[0]) if expr.args else None
                found = _after_item(self.steps_from(owner, scope), key)
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(written), *_]):
                read = ast.Attribute(value=owner, attr=str(written))
                found = self._from_attribute(read, scope)
        if last_name(function) in {p.scope.name for p in self.places if p.kind == "return"}:
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
        for target, value in bound_in(node):
            self.assigned(target, value)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assigned(node.target, node.value)
        elif isinstance(node, ast.Assign) and makes_container(node.value):
            # `self.pool = pool = []`: one list under two names
            for target, other in permutations(node.targets, 2):
                self.assigned(target, other)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.looped(node.target, node.iter)
        elif isinstance(node, ast.Return):
            place = ContainerPlace("return", self.scope, "")
            for steps in self.references.steps_from(node.value, self.scope):
                self.references.add(place, steps, level=self.level)
        elif isinstance(node, ast.ImportFrom):
            for name in (ast.Name(id=alias.asname or alias.name) for alias in node.names):
                self.bind(name, self.references.steps_from(name, self.scope))
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
        arguments, types = arguments_of(call), self.references.types
        self.listened(call.func, arguments)
        self.started(call)
        if not any(self.references.steps_from(value, self.scope) for value in arguments):
            return
        self.into_each(call.func, call.args, call.keywords)
        for cls in types.of(call, self.scope) - {FOREIGN}:
            for member in types.ancestors(cls) if cls.name == last_name(call.func) else ():
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
        target = keyword_of(call, "target") or next(iter(call.args), None)
        packed = keyword_of(call, "args")
        arguments = packed.elts if isinstance(packed, ast.Tuple) else call.args[1:]
        if target is not None:
            self.into_each(target, arguments, call.keywords)

    def into_each(
        self, called: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> None:
        """Follow arguments into each function that a call may run."""
        for function in self.references.types.called_functions(called, self.scope):
            self.into(function, arguments, keywords, called)

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
        return chain_end(value.func) in CONTAINER_MAKERS
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
_PROPERTIES = frozenset({"property", "cached_property"})
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
        is_run = isinstance(expr, ast.Call) or all(
            not _PROPERTIES.isdisjoint(map(last_name, getattr(f.node, "decorator_list", [])))
            for f in called
        )
        return is_run and bool(called) and all(f in self.functions for f in called)

    def _bind(self, statements: list[Statement]) -> None:
        for statement in statements:
            scope, node = statement.scope, statement.node
            for variable, taken in _bound(node):
                if _refers(self._references, taken, scope) or self._is_item_inside(taken, scope):
                    self.names.add((scope.resolve(variable.id), variable.id))
            if isinstance(node, ast.Assign) and self.gives(node.value, scope):
                names = (target.id for target in node.targets if isinstance(target, ast.Name))
                self.names |= {(scope.resolve(name), name) for name in names}

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
                values = [end.value if isinstance(end, ast.Return) else None for end in returns]
                if all(self._may_return(value, function) for value in values):
                    self.functions.append(function)

    def _may_return(self, value: ast.expr | None, scope: CodeScope) -> bool:
        match value:
            case ast.Name(id=name):
                bindings = scope.bindings.get(name, [])
                return bool(bindings) and all(map(self._is_bound_inside, bindings))
            case None | ast.Call(func=ast.Attribute(attr="get"), args=[_, _, *_]):
                return False  # `results.get(name, [])` may give what isn't in there
        source = _source(value)
        is_item = source is not None and _refers(self._references, source, scope)
        return is_item or self.gives(value, scope)

    def _is_bound_inside(self, binding: Binding) -> bool:
        node = binding.statement.node if binding.statement else None
        if not isinstance(node, ast.Assign):
            return False
        values = [t for t in node.targets if isinstance(t, ast.Subscript)] + [node.value]
        values = [value for value in values if not isinstance(value, ast.Name)]
        return any(self._may_return(value, binding.scope) for value in values)


def _bound(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    if isinstance(node, ast.Assign):
        written = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
        # `rows.get(key) or rows.setdefault(key, [])` is one of two.
        sources = map(_source, alternatives(node.value) or [node.value])
        taken = [*written, *filter(None, sources)]
        yield from product((t for t in node.targets if isinstance(t, ast.Name)), taken)
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
