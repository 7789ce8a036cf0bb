"""The statements that put something into a container."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leakscope.analysis.source.program import (
    COMPREHENSIONS,
    CodeScope,
    Statement,
    UserProgram,
    arguments_of,
    bound_in,
    calls_in,
    chain_end,
    dotted,
    has_comprehension,
    last_name,
    names_in,
    own_nodes,
    own_nodes_in_place,
    parts_of,
    targets_of,
)
from leakscope.analysis.source.references import (
    CONTAINER_MAKERS,
    ContainerPlace,
    ItemVariables,
    References,
)
from leakscope.model.census import CensusRow
from leakscope.model.path_pattern import Steps

BUILTIN_FEEDERS = frozenset(
    {
        "append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault",
        "put", "put_nowait", "__setitem__",
    }
)  # fmt: skip
"""Methods of the built-in containers and queues that put something in."""
FEEDERS = BUILTIN_FEEDERS | {
    "push", "write", "writelines", "send", "register", "addHandler", "add_param_group", "heappush",
    "insort", "enqueue",
}  # fmt: skip
_LENGTHENING = frozenset({"append", "extend", "insert"})
_FED_ARGUMENT = {
    "heappush": 0, "heappushpop": 0, "insort": 0, "insort_left": 0, "insort_right": 0,
    "setattr": 0, "setitem": 0, "save": 1, "dump": 1,
}  # fmt: skip
_STORES = {
    "queue": {"put", "put_nowait"},
    "_queue": {"put", "put_nowait"},
    "_buffer": {"put", "put_nowait", "write"},
    "handlers": {"addHandler"},
    "buffer": {"emit", "handle", "write"},
    "param_groups": {"add_param_group"},
    "state": {"step", "add_param_group"},
    "_callbacks": {"add_done_callback"},
    "_done_callbacks": {"add_done_callback"},
    "_hooks": {"register_hook"},
}
"""Attributes of library objects, and the methods of their owner that fill them."""
_UNBOUND = frozenset({"list", "dict", "set", "deque", "collections.deque", "OrderedDict"})
"""Classes whose methods are called with the container as the first argument: ``list.append``."""
_REARRANGERS = frozenset({"sorted", "list", "reversed", "random.sample"})
_PASSIVE = frozenset(
    {
        "to", "eval", "train", "parameters", "named_parameters", "zero_grad", "compute", "reset",
        "item", "keys", "values", "items", "get", "state_dict", "load_state_dict", "join",
        "format", "clear", "pop", "popleft", "remove", "close", "copy", "cpu", "cuda", "detach",
        "size", "numel", "backward", "mean", "sum", "modules", "children", "start", "flush",
        "clip_grad_norm_", "clip_grad_value_", "gather", "gather_for_metrics", "unwrap_model",
        "wait_for_everyone", "autocast", "no_sync", "print",
    }
)  # fmt: skip

_WRITING = frozenset({"write", "writelines", "writerow", "writerows", "writestr", "dump"})
_DERIVED_FROM = frozenset({"list", "dict", "set", "deque"})

EXACT = 0.0
INNER = 0.5
ASIDE = 0.75
"""Fills by another act: reading a defaultdict, an optimizer's step for parameters it was given."""
OUTER = 1.0
REBOUND = 6.0
CALLED = 10.0
SUSPECTED = 20.0


@dataclass(frozen=True)
class Mutation:
    """A statement that feeds the container, or may."""

    statement: Statement
    node: ast.AST
    form: str
    distance: float
    """0: this very container; more: something in it, something around it, only suspected."""
    repeated: bool = False
    """Whether it stands in a comprehension."""


def find_mutations(references: References, row: CensusRow) -> list[Mutation]:
    """Return all candidates, in the order of the program."""
    program = references.program
    returning = {p.scope.name for p in references.places if p.kind == "return"}
    seen = dict.fromkeys(program.mentioning_any(references.names | returning))
    inside = ItemVariables(references, seen)
    for home, name in inside.names:
        seen |= dict.fromkeys(s for s in program.mentioning(name) if s.scope.resolve(name) is home)
    seen |= dict.fromkeys(program.mentioning_any(function.name for function in inside.functions))
    ordered = sorted(seen, key=lambda statement: (statement.file, statement.line))
    finder = _Finder(references, row, inside)
    found = [mutation for statement in ordered for mutation in finder.in_statement(statement)]
    found += _written_through(references, ordered)
    found += _reading_the_other_ends(references, row)
    if finder.is_object:
        found += _naming_parts(program, row)
    # What makes a list longer comes before what overwrites its items, where that is there.
    is_longer = row.kind == "list" and any(map(_lengthens, found))
    return [m for m in found if not _overwrites(m)] if is_longer else found


def _lengthens(mutation: Mutation) -> bool:
    """Whether it makes a list longer; ``append(None)`` makes room for slots that are filled."""
    call = mutation.node
    puts = isinstance(call, ast.Call) and not all(isinstance(a, ast.Constant) for a in call.args)
    return puts and mutation.form in _LENGTHENING and mutation.distance == EXACT


def _overwrites(mutation: Mutation) -> bool:
    target = mutation.node
    is_slot = isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice)
    return is_slot and mutation.form == "setitem" and mutation.distance == EXACT


def _methods_of(program: UserProgram, row: CensusRow) -> frozenset[str]:
    """Return the methods that a class of the program's adds to the container that it derives from:
    what they put into it they do by other calls.
    """
    if row.kind not in _DERIVED_FROM:
        return frozenset()
    classes = program.classes.get(row.type.rpartition(".")[2], [])
    names = (method.name for cls in classes for method in cls.children if method.receiver)
    return frozenset(names) - BUILTIN_FEEDERS


def _written_through(references: References, statements: Sequence[Statement]) -> Iterator[Mutation]:
    """Yield the calls that write into a stream through what a library made of it.

    ``self.rows = csv.writer(self.out)``, and then ``self.rows.writerow(values)``.
    """
    for statement in statements:
        scope = statement.scope
        for target, made in bound_in(statement.node):
            if not isinstance(made, ast.Call):
                continue
            arguments = arguments_of(made)
            found = [steps for part in arguments for steps in references.steps_from(part, scope)]
            is_of_it = any(all(step.is_item for step in steps) for steps in found)
            if not is_of_it or references.types.called_functions(made.func, scope):
                continue
            for other, call in references.program.calls_mentioning(last_name(target)):
                match call.func:
                    case ast.Attribute(value=stream, attr=method) if method in _WRITING:
                        if _is_same(target, scope, stream, other.scope):
                            yield Mutation(other, call, "write", EXACT)


def _is_same(bound: ast.expr, scope: CodeScope, used: ast.expr, elsewhere: CodeScope) -> bool:
    """Whether what is used elsewhere is what was bound here: a variable, an attribute of self."""
    if ast.unparse(used) != ast.unparse(bound):
        return False
    if isinstance(bound, ast.Name):
        return elsewhere.resolve(bound.id) is scope.resolve(bound.id)
    of_class = scope.enclosing_class()
    return of_class is not None and of_class is elsewhere.enclosing_class()


class _Finder:
    def __init__(self, references: References, row: CensusRow, inside: ItemVariables) -> None:
        self.references = references
        self.inside = inside
        self.grows_by_reading = "defaultdict" in row.type
        self.is_object = row.kind in {"object", "module", "other"}
        self.is_module = row.kind == "module"
        self.own_methods = _methods_of(references.program, row)

    def in_statement(self, statement: Statement) -> Iterator[Mutation]:
        node, scope = statement.node, statement.scope
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self.assignment(statement, target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from self.assignment(statement, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            yield from self.augmented(statement, node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            bound = self.references.is_container(node.target, scope)
            bound &= () not in self.references.items_of(node.iter, scope)[0]  # it only reads them
            yield from [Mutation(statement, node.target, "assign", REBOUND, True)] * bound
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            yield from self.entered(statement, node)
        for part, around in own_nodes_in_place(node):
            repeated = any(isinstance(parent, COMPREHENSIONS) for parent in around)
            found: Iterator[tuple[str, float]] = iter(())
            if isinstance(part, ast.Call):
                found = self.call(part, statement)
            elif isinstance(part, ast.NamedExpr):
                found = self.rebinding(part.target, part.value, statement)
            elif self.grows_by_reading and isinstance(part, ast.Subscript):
                is_read = self.references.is_container(part.value, scope)
                found = iter([("setitem", ASIDE)] * is_read)
            for form, distance in found:
                yield Mutation(statement, part, form, distance, repeated)

    def entered(self, statement: Statement, node: ast.With | ast.AsyncWith) -> Iterator[Mutation]:
        """Yield what enters an object that has the container, as one that limits or tracks does."""
        for entered in (item.context_expr for item in node.items):
            for steps in self.references.steps_from(entered, statement.scope):
                if steps and steps[0].kind == "attr":
                    yield Mutation(statement, entered, "call", CALLED + len(steps) + 1)

    def assignment(
        self, statement: Statement, target: ast.expr, value: ast.expr
    ) -> Iterator[Mutation]:
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, (ast.Tuple, ast.List)):
            for part, part_value in _taken_apart(target, value):
                yield from self.assignment(statement, part, part_value)
            return
        scope = statement.scope
        if isinstance(target, ast.Subscript):
            if self.only_rearranges(target, value, scope):
                return
            for distance in self.distances(target.value, scope):
                yield Mutation(statement, target, "setitem", distance)
        elif isinstance(target, ast.Attribute) and self.is_object:
            is_own = self.references.is_container(target.value, scope)
            yield from [Mutation(statement, target, "setattr", EXACT)] * is_own
        for form, distance in self.rebinding(target, value, statement):
            yield Mutation(statement, target, form, distance, has_comprehension(value))
            source = self.reading(value, statement, depth=3) if distance == EXACT else None
            # A new object refers to the container: `rollout = Rollout(prev=self.last)`.
            if source and source is not statement and made_from(self.references, source):
                yield Mutation(source, source.node, "link", distance)

    def only_rearranges(self, target: ast.Subscript, value: ast.expr, scope: CodeScope) -> bool:
        """``rows[:] = sorted(rows)``, ``rows[:] = rows[-9:]``: nothing is there that was not."""
        is_whole = ast.unparse(target.slice) == ":"
        if isinstance(value, ast.ListComp):
            taken = value.generators[0]
            if ast.unparse(taken.target) != ast.unparse(value.elt) or len(value.generators) > 1:
                return False
            value = taken.iter
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
            value = value.value
        elif isinstance(value, ast.Call) and dotted(value.func) in _REARRANGERS and value.args:
            value = value.args[0]
        else:
            return False
        return is_whole and self.references.is_container(value, scope)

    def rebinding(
        self, target: ast.expr, value: ast.expr, statement: Statement
    ) -> Iterator[tuple[str, float]]:
        scope = statement.scope
        of_target = self.references.steps_from(target, scope)
        is_alias = self.references.is_container(value, scope)
        if () not in of_target and of_target and self.wraps(target, value):
            # What is around the container is put into a new one of its kind, and so on.
            yield "assign", OUTER + min(map(len, of_target))
        if is_alias or () not in of_target or self.is_only_read(target, scope):
            return
        if self.reading(value, statement, depth=3) is not None:
            yield "assign", EXACT
        elif not _is_empty(value):
            yield "assign", REBOUND

    def is_only_read(self, target: ast.expr, scope: CodeScope) -> bool:
        """Whether a variable is another name of the container that nothing is stored back from:
        ``node = self.root``, and then ``node = node.next`` leaves ``self.root`` as it is.
        """
        if not isinstance(target, ast.Name):
            return False
        home = scope.home(target.id)
        places = {place for place, _ in self.references.chain}
        if ContainerPlace("name", home, target.id) in places or home.kind != "function":
            return False
        return not any(
            isinstance(statement.node, (ast.Assign, ast.AnnAssign))
            and target.id in names_in(statement.node.value)
            and any(
                self.references.is_container(other, statement.scope)
                for other in targets_of(statement.node)
                if not isinstance(other, ast.Name) or other.id != target.id
            )
            for statement in self.references.program.mentioning(target.id)
            if statement.scope.resolve(target.id) is home
        )

    def wraps(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether a call gets what its result replaces: ``data = Concat([data, more])``."""
        written, alike = ast.unparse(target), parts_of(value, type(target))
        return isinstance(value, ast.Call) and any(ast.unparse(part) == written for part in alike)

    def reading(self, value: ast.expr, statement: Statement, depth: int) -> Statement | None:
        """Return the statement that makes the value from the container, or a variable in it."""
        scope = statement.scope
        if any(self.references.is_container(part, scope) for part in parts_of(value, ast.expr)):
            return statement
        if depth == 0:
            return None
        bindings = [b for name in names_in(value) for b in scope.bindings.get(name, [])]
        sources = [b.statement for b in bindings if b.how == "assign" and b.statement]
        found = (
            self.reading(source.node.value, source, depth - 1)
            for source in sources
            if source is not statement and isinstance(source.node, ast.Assign)
        )
        return next((source for source in found if source is not None), None)

    def augmented(self, statement: Statement, node: ast.AugAssign) -> Iterator[Mutation]:
        scope, target = statement.scope, node.target
        if self.references.is_container(target, scope):
            yield Mutation(statement, target, "augmented", EXACT)
        if isinstance(target, ast.Subscript):
            for distance in self.distances(target.value, scope):
                yield Mutation(statement, target, "setitem", distance)

    def call(self, call: ast.Call, statement: Statement) -> Iterator[tuple[str, float]]:
        function, scope = call.func, statement.scope
        if isinstance(function, ast.Attribute):
            yield from self.method(function, call, statement)
        elif isinstance(function, ast.Name):
            home, methods = scope.resolve(function.id), self.references.methods
            place = ContainerPlace("name", home, function.id) if home is not None else None
            for method, steps in methods.get(place, ()) if place else ():
                if not steps and method in FEEDERS:
                    yield method, EXACT
            for steps in self.references.steps_from(function, scope):
                if call.args and (not steps or steps[0].kind == "attr"):
                    yield "call", self.called_itself(steps)
        name = chain_end(function)
        if name in _FED_ARGUMENT and len(call.args) > _FED_ARGUMENT[name]:
            fed = call.args[_FED_ARGUMENT[name]]
            if self.references.is_container(fed, scope):
                yield ("setattr" if name == "setattr" else "call"), EXACT

    def method(
        self, function: ast.Attribute, call: ast.Call, statement: Statement
    ) -> Iterator[tuple[str, float]]:
        name, scope = function.attr, statement.scope
        if name in FEEDERS and dotted(function.value) in _UNBOUND and len(call.args) > 1:
            yield from [(name, EXACT)] * (self.references.is_container(call.args[0], scope))
        if name in FEEDERS and (call.args or call.keywords):
            for distance in self.distances(function.value, scope):
                is_own = distance == EXACT and name in self.own_methods
                yield name, CALLED if is_own else distance
        if is_named_at_runtime(name, call) and self.references.is_container(function.value, scope):
            yield name, EXACT
        if name == "set" and call.args and self.puts_back(function.value, call.args[0], statement):
            yield "assign", EXACT
        may_feed = bool(call.args or call.keywords) and name not in _PASSIVE
        for steps in self.references.steps_from(function.value, scope):
            if self.fills_store(name, steps):
                yield name, ASIDE if name == "step" else EXACT
            elif may_feed and (steps[0].kind == "attr" if steps else name not in FEEDERS):
                yield "call", CALLED + len(steps) + (not _sounds_feeding(name))
        for steps in self.references.steps_from(function, scope):
            if call.args and steps and steps[0].kind == "attr":
                yield "call", self.called_itself(steps)

    def called_itself(self, steps: Steps) -> float:
        """Return how far an object that is called, as metrics are, is from the container.

        A module that is called makes no modules: a method that sounds like it comes first.
        """
        return CALLED + len(steps) + (0.5 if self.is_module else 0.0)

    def puts_back(self, variable: ast.expr, value: ast.expr, statement: Statement) -> bool:
        """Whether a context variable is set to what was made of what it held: ``v.get()``."""
        found = self.references.steps_from(variable, statement.scope)
        is_variable = any(len(steps) == 1 and steps[0].is_item for steps in found)
        return is_variable and self.reading(value, statement, depth=3) is not None

    def fills_store(self, method: str, steps: Steps) -> bool:
        """Whether a library object's method fills the attribute that the path goes on with."""
        if not steps or steps[0].kind != "attr" or any(not s.is_item for s in steps[1:]):
            return False
        store = steps[0].value
        if "hooks" in store:
            return method.startswith("register_") and "hook" in method
        return method in _STORES.get(store, ())

    def distances(self, receiver: ast.expr, scope: CodeScope) -> Iterator[float]:
        """Yield how far the receiver of a mutation is from the container, nearest first."""
        found = self.references.steps_from(receiver, scope)
        if () in found:
            yield EXACT
            return
        if self.is_inside(receiver, scope):
            yield INNER
            return
        around = [len(steps) for steps in found if all(step.is_item for step in steps[:1])]
        if around:
            yield OUTER + min(around)

    def is_inside(self, expr: ast.expr, scope: CodeScope) -> bool:
        """Whether the expression goes from the container to something in it."""
        while True:
            if self.inside.gives(expr, scope):
                return True
            if isinstance(expr, ast.Name):
                return (scope.resolve(expr.id), expr.id) in self.inside.names
            if isinstance(expr, (ast.Subscript, ast.Attribute)):
                expr = expr.value
            elif isinstance(expr, ast.Call):
                expr = expr.func
            else:
                return False
            if self.references.is_container(expr, scope):
                return True


def made_from(
    references: References, statement: Statement | None, *, by_any: bool = False
) -> tuple[ast.Call, ast.expr] | None:
    """Return the call by which a statement makes an object, and the argument that is the container.

    The object is of a class of the program's, or made ``by_any`` function.
    """
    call = getattr(statement.node, "value", None) if statement is not None else None
    if statement is None or not isinstance(call, ast.Call):
        return None
    may_link = by_any or chain_end(call.func) in references.program.classes
    for part in arguments_of(call) if may_link else ():
        if references.is_container(part, statement.scope):
            return call, part
    return None


def _taken_apart(
    target: ast.Tuple | ast.List, value: ast.expr
) -> Iterator[tuple[ast.expr, ast.expr]]:
    values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    is_plain = not any(isinstance(part, ast.Starred) for part in (*target.elts, *values))
    if is_plain and len(values) == len(target.elts):
        yield from zip(target.elts, values, strict=True)
    else:
        yield from ((part, value) for part in target.elts)


def opens_empty(mutation: Mutation) -> bool:
    """Whether the statement only makes room: ``history[epoch] = []``."""
    node = mutation.statement.node
    is_empty = isinstance(node, ast.Assign) and _is_empty(node.value)
    return opens_once(mutation) or (mutation.form == "setitem" and is_empty)


def opens_once(mutation: Mutation) -> bool:
    """Whether it makes room where there is none yet: ``history.setdefault(name, [])``."""
    call = mutation.node
    made = call.args[1:] if isinstance(call, ast.Call) and mutation.form == "setdefault" else []
    return bool(made) and _is_empty(made[0])


def makes_room(mutation: Mutation) -> bool:
    """Whether it puts only what is still to be filled into the container, or into what is there."""
    is_read = mutation.form == "setitem" and mutation.distance == ASIDE
    is_inner = mutation.distance > EXACT and opens_empty(mutation)
    return opens_once(mutation) or is_read or is_inner


def counts(mutation: Mutation) -> bool:
    """Whether it puts a number in the place of another: ``trace["count"] += 1``."""
    node, target = mutation.statement.node, mutation.node
    is_alone = isinstance(node, ast.Assign) and mutation.distance == EXACT
    is_alone |= isinstance(node, ast.AugAssign) and target is node.target
    return is_alone and _is_fixed(target) and _is_number(getattr(node, "value", None))


def _is_fixed(target: ast.AST) -> bool:
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)


def takes_back(mutation: Mutation) -> bool:
    """Return whether the function that registers something removes it again by its handle."""
    made = mutation.statement.node
    if not mutation.form.startswith("register_") or not isinstance(made, ast.Assign):
        return False
    removals = {f"{target.id}.remove" for target in made.targets if isinstance(target, ast.Name)}
    calls = parts_of(mutation.statement.scope.node, ast.Call)
    return any(dotted(call.func) in removals for call in calls)


def grows_in_place(mutation: Mutation) -> bool:
    """Whether it puts something larger in the place of what was there: ``sums[name] += loss``."""
    node = mutation.statement.node
    if isinstance(node, ast.AugAssign) or mutation.form == "assign":
        return not counts(mutation)
    written, parts = ast.unparse(mutation.node), parts_of(getattr(node, "value", None), ast.expr)
    return mutation.form == "setitem" and any(ast.unparse(part) == written for part in parts)


def replaces(mutation: Mutation) -> bool:
    """Whether it puts something in the place of what it put there before: ``entry["size"] = n``."""
    is_fixed = mutation.form == "setitem" and _is_fixed(mutation.node)
    return is_fixed and not grows_in_place(mutation)


def _is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Call(func=ast.Attribute(attr=method)):
            return method == "item"
        case ast.Call(func=function):
            return dotted(function) in {"int", "float", "len", "round", "bool"}
    return False


def _sounds_feeding(method: str) -> bool:
    words = ("add", "log", "update", "append", "push", "record", "put")
    return any(word in method.lower() for word in words)


def _is_empty(value: ast.expr) -> bool:
    """Whether a value is a beginning rather than a content: ``[]``, ``0``, ``None``, ``dict()``."""
    match value:
        case ast.Constant():
            return True
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return not items
        case ast.Dict(values=items):
            return all(map(_is_empty, items))
        case ast.Call(func=function):
            name = chain_end(function)
            return name in CONTAINER_MAKERS | {"field", "SimpleQueue"}
    return False


_NAMERS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})
"""Methods of modules that give what they are handed the name that comes first."""
_RECEIVER = "self"


def _naming_parts(program: UserProgram, row: CensusRow) -> Iterator[Mutation]:
    """Yield the calls in methods of the object's class that add to it what has no fixed name.

    A name that is written out is the same at each call: what it held before is replaced.
    """
    classes = program.classes.get(row.type.rpartition(".")[2], [])
    for statement in program.mentioning(_RECEIVER) if classes else ():
        if statement.scope.receiver != _RECEIVER or statement.scope.parent not in classes:
            continue
        for call in filter(_names_a_part, calls_in(statement.node)):
            yield Mutation(statement, call, "setattr", EXACT)


def is_named_at_runtime(method: str, call: ast.Call) -> bool:
    """Return whether a module's method gives it a part under a name that is made as it runs."""
    return method in _NAMERS and bool(call.args) and not isinstance(call.args[0], ast.Constant)


def _names_a_part(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=named, attr=method), args=[name, *_]):
            is_namer = method in _NAMERS
        case ast.Call(func=ast.Name(id="setattr"), args=[named, name, *_]):
            is_namer = True
        case _:
            return False
    is_own = isinstance(named, ast.Name) and named.id == _RECEIVER
    return is_namer and is_own and not isinstance(name, ast.Constant)


TEE = "itertools._tee"
"""The type of an end."""


def _reading_the_other_ends(references: References, row: CensusRow) -> Iterator[Mutation]:
    """Yield the statements that take items from the ends made alongside this one."""
    for made in references.program.mentioning("tee") if row.type == TEE else ():
        for end in _other_ends(references, made):
            for statement in references.program.mentioning(last_name(end)):
                for node in own_nodes(statement.node) if statement is not made else ():
                    read = [p for source in _read_by(node) for p in parts_of(source, ast.expr)]
                    if any(_is_same(end, made.scope, part, statement.scope) for part in read):
                        yield Mutation(statement, node, "read", EXACT)


def _other_ends(references: References, made: Statement) -> list[ast.expr]:
    match made.node:
        case ast.Assign(
            targets=[ast.Tuple(elts=ends) | ast.List(elts=ends), *_], value=ast.Call(func=function)
        ) if chain_end(function) == "tee":
            others = [end for end in ends if not references.is_container(end, made.scope)]
            return others if len(others) < len(ends) else []
    return []


def _read_by(node: ast.AST) -> list[ast.expr]:
    """Return what a node takes items from: a loop, a comprehension, ``next``."""
    match node:
        case ast.For(iter=source) | ast.AsyncFor(iter=source):
            return [source]
        case ast.Call(func=ast.Name(id="next"), args=[source, *_]):
            return [source]
    return [part.iter for part in getattr(node, "generators", [])]
