"""Containers that live as long as the program: caches, default arguments, class attributes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from leakscope.analysis.remedies.containers import NO_ROUNDS, reached_bound
from leakscope.analysis.remedies.context import CulpritContext, Use, argument_of, calls_of
from leakscope.analysis.source.library_calls import cache_decorator, cached_function
from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.program import (
    CodeScope,
    FunctionNode,
    Statement,
    chain_end,
    decorators_of,
    dotted,
    keyword_of,
    parts_of,
)
from leakscope.model.path_pattern import parse_path
from leakscope.model.report import Remedy

_FUNCTION_CACHE_BOUND = 128


def recognise_function_cache(case: CulpritContext) -> Remedy | None:
    """Return how to bound the cache."""
    if case.row.capacity is not None:
        return None
    function = cached_function(case.references, case.row)
    decorator = cache_decorator(function) if function else None
    if function is None or decorator is None or not _is_unbounded(decorator):
        return None
    where = case.at(function, decorator)
    written = ast.unparse(decorator)
    if function.receiver and case.row.hits == 0:
        return case.remedy(
            f"Take the cache off {function.name}: it has answered no call",
            "",
            f"`@{written}` at {where} keeps every result of {function.name} "
            f"({case.measure() or 'without a bound'}), and with it `{function.receiver}`, which is "
            "one of the arguments by which it looks a result up: another object, another entry.",
            f"Keep the result in an attribute of `{function.receiver}`, or cache a function of "
            "what really decides it.",
            closing="gc.collect() can't help: the cache refers to all of it.",
            diff=case.edits(function).remove_decorator(decorator).diff(),
        )
    return case.remedy(
        f"Bound the cache of {function.name}: lru_cache(maxsize={_FUNCTION_CACHE_BOUND})",
        "",
        f"`@{written}` at {where} keeps every result of {function.name} for as long as the "
        f"program runs ({case.measure() or 'without a bound'}).",
        f"With lru_cache(maxsize={_FUNCTION_CACHE_BOUND}) the least recently used result goes "
        f"first; raise the bound as long as {function.name}.cache_info() has more hits by it.",
        _about_arguments(function),
        closing="gc.collect() can't help: the cache refers to all of it.",
        diff=_function_cache_diff(case, function, decorator),
    )


def _is_unbounded(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = chain_end(called)
    if name != "lru_cache" or not isinstance(decorator, ast.Call):
        return name == "cache"
    size = keyword_of(decorator, "maxsize") or next(iter(decorator.args), None)
    return isinstance(size, ast.Constant) and size.value is None


def _about_arguments(function: CodeScope) -> str:
    if function.receiver:
        return (
            f"As a method it also keeps `{function.receiver}` of each call alive: cache in an "
            "attribute of the object, or in a function of what really decides the result."
        )
    return "Arguments are kept as well, and tensors among them never hit: they compare by identity."


def _function_cache_diff(
    case: CulpritContext, function: CodeScope, decorator: ast.expr
) -> str | None:
    edits = case.edits(function)
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    kept = "".join(f", {ast.unparse(k)}" for k in keywords if k.arg == "typed")
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    prefix, dot, name = dotted(called).rpartition(".")
    if name == "cache" and not dot:
        edits.insert_import("from functools import lru_cache")
    bounded = f"{prefix}{dot}lru_cache(maxsize={_FUNCTION_CACHE_BOUND}{kept})"
    return edits.replace(decorator, bounded).diff()


_DICT_CACHE_BOUND = 128
_WHOLE = frozenset({"items", "values", "keys", "copy"})
_EVICTING = frozenset({"clear", "pop", "popitem"})


def recognise_dict_cache(case: CulpritContext) -> Remedy | None:
    """Return how to bound the dictionary."""
    node = case.node
    if case.row.kind != "dict" or not isinstance(node, ast.Assign) or not _is_looked_up(case):
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or _is_emptied(case):
        return None
    name = ast.unparse(target.value)
    bound = reached_bound(case.row.length, _DICT_CACHE_BOUND)
    diff = None
    if not _read_as_a_whole(case):
        evict = f"    {name}.pop(next(iter({name})))"
        edits = case.edits().insert_after(node, f"if len({name}) > {bound}:", evict)
        diff = edits.diff()
    return case.remedy(
        f"Bound {case.name}",
        "",
        f"{case.name} is a cache that never drops a key ({case.measure() or 'unbounded'}); "
        f"`{case.line_text}` at {case.where()} adds them.",
        f"Drop the oldest key once there are more than {bound} or as many as pay; where the "
        "function only computes a value from arguments that can be hashed, "
        "functools.lru_cache(maxsize=N) on it does so by use instead of by age.",
        diff=diff,
    )


def _is_looked_up(case: CulpritContext) -> bool:
    """Whether the function that stores also asks for the key: ``in``, ``get``."""
    return any(
        use.method in {"get", "__contains__"}
        or any(isinstance(op, (ast.In, ast.NotIn)) for op in getattr(use.parent, "ops", []))
        for use in case.reads
        if use.statement.scope is case.scope
    )


def _is_emptied(case: CulpritContext) -> bool:
    return any(
        isinstance(node, ast.Delete) or getattr(node, "attr", "") in _EVICTING
        for statement in case.releases
        for node in (statement.node, *parts_of(statement.node, ast.Attribute))
    )


def _read_as_a_whole(case: CulpritContext) -> bool:
    return any(
        isinstance(use.parent, (ast.For, ast.comprehension, ast.Return))
        or use.method in _WHOLE
        or use.passed_to
        for use in case.reads
    )


def recognise_weak_keys(case: CulpritContext) -> Remedy | None:
    """Return how to let entries go with their keys."""
    if not case.row.type.endswith("WeakKeyDictionary") or case.growth != "across":
        return None
    kept = _keeping(case)
    fact = (
        f"{kept}, so no entry ever goes"
        if kept
        else "Either the keys are kept elsewhere, or a value refers to its key, by a closure or a "
        "bound method too, and then the entry never goes"
    )
    return case.remedy(
        f"Store in {case.name} what doesn't refer to its key",
        case.opening(),
        "An entry goes when nothing refers to its key any more; the dictionary keeps the values, "
        f"and a value that refers to its key keeps the entry for ever. {fact}.",
        "Store only what was computed from the key, or have the value keep weakref.ref(key); or "
        "keep the value as an attribute of the key itself: both then go together.",
    )


def _keeping(case: CulpritContext) -> str:
    """Return how the stored value keeps its key, as far as the source shows, else an empty text."""
    node, scope = case.node, case.scope
    if not isinstance(node, ast.Assign) or scope is None:
        return ""
    key = next((ast.unparse(t.slice) for t in node.targets if isinstance(t, ast.Subscript)), None)
    if key is None:
        return ""
    value, written = node.value, ast.unparse(node.value)
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return f"`{written}` holds `{key}`" if key in map(ast.unparse, parts) else ""
        case ast.Lambda(body=body):
            is_used = key in map(ast.unparse, parts_of(body, ast.expr))
            return f"the lambda refers to `{key}`" if is_used else ""
        case ast.Call():
            for cls in case.sources.types.of(value, scope):
                is_dataclass = "dataclass" in map(chain_end, decorators_of(cls.node))
                if is_dataclass and key in map(ast.unparse, value.args):
                    return f"`{written}` keeps `{key}`"
                for maker in (c for c in cls.children if c.name == "__init__"):
                    stored = _stored(maker, value, key)
                    if stored is not None:
                        return f"`{written}` keeps `{key}` at {case.at(maker, stored)}"
    return ""


def _stored(maker: CodeScope, call: ast.Call, key: str) -> ast.Assign | None:
    for parameter in maker.params[1:]:
        passed = argument_of(call, maker, parameter)
        if passed is not None and ast.unparse(passed) == key:
            for node in parts_of(maker.node, ast.Assign):
                is_kept = any(isinstance(target, ast.Attribute) for target in node.targets)
                if is_kept and ast.unparse(node.value) == parameter:
                    return node
    return None


_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_TAKERS = frozenset({"clear", "pop", "popleft", "popitem", "remove"})
_BELOW, _ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE,
}  # fmt: skip


def recognise_source_bound(case: CulpritContext) -> Remedy | None:
    """Return which bound to lower."""
    found = _bound(case) if case.growth == "across" else None
    if found is None:
        return None
    limit, test, scope = found
    bound, where = ast.unparse(limit), case.at(scope, test)
    remedy = case.remedy(
        f"Lower {bound} if {case.name} takes too much",
        case.opening(),
        f"The source bounds it: `{ast.unparse(test)}` at {where} lets it grow to "
        f"{bound} and no further.",
        "Until then it grows, as a buffer that fills; only where memory doesn't suffice for so "
        f"many is there something to change: {bound}, or what each item takes.",
    )
    return msgspec.structs.replace(remedy, bound=f"{bound} at {where}")


def _bound(case: CulpritContext) -> tuple[ast.expr, ast.expr, CodeScope] | None:
    """Return the bound of the likeliest feeding line, and the test that heeds it."""
    statement = case.statement
    if statement is None or case.line is None or not case.line.is_direct:
        return None
    # No `==` but before feeding: a length that passes a number by two at once never equals it.
    gates: list[tuple[ast.expr, CodeScope, tuple[type[ast.cmpop], ...]]] = [
        (test, statement.scope, (*_BELOW, ast.NotEq) if passes else (*_ABOVE, ast.Eq))
        for test, passes in _gates(statement)
    ]
    gates += [
        (test, emptying.scope, _ABOVE if passes else _BELOW)
        for emptying in filter(_takes_out, case.releases)
        for test, passes in _gates(emptying)
    ]
    for test, scope, wanted in gates:
        limit = _compared(case, test, scope, wanted)
        if limit is not None:
            return limit, test, scope
    return None


def _takes_out(statement: Statement) -> bool:
    """Whether a statement takes something out, and doesn't only look it up by ``get``."""
    node = statement.node
    called = {part.attr for part in parts_of(node, ast.Attribute)}
    is_reset = isinstance(node, ast.Assign) and "get" not in called
    return is_reset or isinstance(node, ast.Delete) or bool(called & _TAKERS)


def _gates(statement: Statement) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests that a statement stands behind, and whether each must hold for it to run."""
    block = statement.block
    for node in ast.walk(statement.scope.node):
        if isinstance(node, (ast.If, ast.While)) and node.body is block:
            yield node.test, True
        elif isinstance(node, ast.If) and node.orelse is block:
            yield node.test, False
    for earlier in block[: block.index(statement.node)]:
        if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], _LEAVING):
            yield earlier.test, False


def _compared(
    case: CulpritContext, test: ast.expr, scope: CodeScope, wanted: tuple[type[ast.cmpop], ...]
) -> ast.expr | None:
    """Return what the container's length is compared with in this direction."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, operator, right = test.left, type(test.ops[0]), test.comparators[0]
    if _is_length(case, right, scope):
        left, operator, right = right, _MIRRORED.get(operator, operator), left
    if operator not in wanted or not _is_length(case, left, scope):
        return None
    return right if _stays(right, scope) and not _is_raised(case, right) else None


def _is_length(case: CulpritContext, node: ast.expr, scope: CodeScope) -> bool:
    """Whether an expression is the container's length: by ``__len__`` of what owns it, too."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "len" or len(node.args) != 1:
        return False
    measured = node.args[0]
    if case.references.is_container(measured, scope):
        return True
    owner = scope.enclosing_class()
    if not isinstance(measured, ast.Name) or measured.id != scope.receiver or owner is None:
        return False
    return any(
        end.value is not None and _is_length(case, end.value, method)
        for method in owner.children
        if method.name == "__len__"
        for end in parts_of(method.node, ast.Return)
    )


def _is_raised(case: CulpritContext, bound: ast.expr) -> bool:
    """Whether an attribute in the bound is changed in place somewhere: ``self.capacity *= 2``."""
    names = {part.attr for part in parts_of(bound, ast.Attribute)}
    return any(
        isinstance(statement.node, ast.AugAssign)
        and getattr(statement.node.target, "attr", None) in names
        for statement in case.sources.program.mentioning_any(names)
    )


def _stays(node: ast.expr, scope: CodeScope) -> bool:
    """Whether an expression is a bound: a number above one, or a name that is bound once."""
    match node:
        case ast.Constant(value=int(number)):
            return number > 1
        case ast.Attribute(value=value):
            return isinstance(value, ast.Name)
        case ast.BinOp(left=left, right=right):
            stays = [_stays(side, scope) for side in (left, right)]
            return any(stays) and all(
                isinstance(side, ast.Constant) or it_stays
                for side, it_stays in zip((left, right), stays, strict=True)
            )
        case ast.Name(id=name):
            home = scope.resolve(name)
            made = home.bindings.get(name, []) if home else []
            return len(made) == 1 and made[0].how in {"assign", "param", "import"}
    return False


_DISPLAYS = (ast.List, ast.Dict, ast.Set)
_MAKERS = frozenset({"list", "dict", "set", "deque", "defaultdict"})
_MEANT = re.compile(r"cache|memo|seen|registry", re.IGNORECASE)
_SHOWING = frozenset({"print", "repr", "str", "id", "type", "isinstance"})


def recognise_default_argument(case: CulpritContext) -> Remedy | None:
    """Return how to create the container in each call."""
    found = _parameter(case)
    if found is None:
        return None
    function, name, default = found
    written = ast.unparse(default)
    where = case.at(function, default)
    if _MEANT.search(name):
        return case.remedy(
            f"Bound the default argument {name} of {function.name}",
            "",
            f"`{name}={written}` at {where} is one object for all calls and serves as a cache "
            f"without a bound ({case.measure() or 'it only grows'}).",
            "Use functools.lru_cache(maxsize=N) on the function, or drop the oldest entries.",
        )
    reading = (u for u in case.uses if not (u.is_stored or u.passed_to in _SHOWING))
    # Contents that earlier calls may have left are read.
    remembering = (u for u in reading if not (_only_feeds(case, u) or _returns_it(case, u)))
    if (remembered := next(remembering, None)) is not None:
        return case.remedy(
            f"Bound what {function.name} remembers in {name}",
            "",
            f"`{name}={written}` at {where} is one object for all calls that don't pass {name}, "
            f"and it only grows. {case.opening()}",
            f"{case.at(remembered.statement)} reads what earlier calls left there, so creating it "
            "in each call would lose that and change what the program computes. Drop the entries "
            "that aren't read any more, or keep the state in an object that its user makes, "
            "empties and lets go.",
        )
    return case.remedy(
        f"Create {name} in each call of {function.name}",
        "",
        f"`{name}={written}` at {where} is evaluated once, so all calls that don't pass {name} "
        f"share one object, and it only grows ({case.measure() or 'no bound'}).",
        f"Use None as the default and make a new {type(default).__name__.lower()} in the body.",
        diff=_default_argument_diff(case, function, name, default),
    )


def _parameter(case: CulpritContext) -> tuple[CodeScope, str, ast.expr] | None:
    steps = parse_path(case.row.path).steps
    by_path = any(step.kind == "default" for step in steps)
    for place, rest in case.references.chain:
        function = place.scope
        if place.name in function.params and (by_path or not rest):
            default = function.bindings[place.name][0].value
            called = default.func if isinstance(default, ast.Call) else None
            is_made = isinstance(called, ast.Name) and called.id in _MAKERS
            if default is not None and (is_made or isinstance(default, _DISPLAYS)):
                return function, place.name, default
    return None


def _only_feeds(case: CulpritContext, use: Use) -> bool:
    """Whether something is put in, and what is there already has no part in it."""
    statement = use.statement.node
    if isinstance(use.parent, ast.Subscript):
        stored = isinstance(use.parent.ctx, ast.Store)
        return stored and not isinstance(statement, ast.AugAssign)
    if use.method == "setdefault":
        return any(getattr(parent, "attr", "") in FEEDERS for parent in use.parents[2:3])
    return use.feeds or any(
        isinstance(parent, ast.Call)
        and bool(case.sources.types.called_functions(parent.func, use.statement.scope))
        for parent in use.parents[:2]
    )


def _returns_it(case: CulpritContext, use: Use) -> bool:
    """Whether the container is returned, or its length to callers that have no use for it."""
    if not isinstance(use.statement.node, ast.Return):
        return False
    if isinstance(use.parent, ast.Return):
        return True
    return use.passed_to == "len" and all(
        isinstance(statement.node, ast.Expr) and statement.node.value is call
        for statement, call in calls_of(case.sources, use.statement.scope)
    )


def _default_argument_diff(
    case: CulpritContext, function: CodeScope, name: str, default: ast.expr
) -> str | None:
    node = function.node
    if not isinstance(node, FunctionNode) or node.body[0].lineno == node.lineno:
        return None
    edits = case.edits(function)
    lines = (f"if {name} is None:", f"    {name} = {edits.source_of(default)}")
    edits.replace(default, "None")
    insert = edits.insert_after if ast.get_docstring(node) is not None else edits.insert_before
    return insert(node.body[0], *lines).diff()


def recognise_class_attribute(case: CulpritContext) -> Remedy | None:
    """Return how to give each instance its own container."""
    found = _shared(case)
    if found is None:
        return None
    owner, name, value, line = found
    if not _used_through_instances_only(case, owner):
        return None
    where = case.sources.location(owner.module.file, line)
    made_once = _made_once(case, owner)
    if made_once and case.growth == "across":
        has_rounds = case.unit not in NO_ROUNDS
        title = f"Empty {case.name} after each {case.unit or 'round'}"
        return case.remedy(
            title if has_rounds else f"Bound or empty {case.name}",
            case.opening(),
            f"`{name}` at {where} stands in the body of class {owner.name}.",
            f"{made_once} makes the only instance that the source shows, once, so that a container "
            "of its own would grow as well: empty it once its contents were used"
            f"{', where the next round begins' if has_rounds else ', or keep the last of them'}.",
            f"Bind it in __init__ as well: self.{name} = {ast.unparse(value)}.",
        )
    return case.remedy(
        f"Give each {owner.name} its own {name}",
        "",
        f"`{name}` at {where} stands in the body of class {owner.name}: all instances share one "
        f"object, which outlives every one of them ({case.measure() or 'it only grows'}).",
        f"Bind it in __init__: self.{name} = {ast.unparse(value)}. If only one {owner.name} lives "
        "all the time, that alone doesn't bound it: empty it after use as well.",
        diff=_class_attribute_diff(case, owner, name, value),
    )


def _shared(case: CulpritContext) -> tuple[CodeScope, str, ast.expr, int] | None:
    classes = (
        (cls, place.name)
        for place, _ in case.references.chain
        if place.kind == "attr"
        for cls in case.sources.types.ancestors(place.scope)
    )
    for owner, name in classes:
        is_plain = name not in owner.attributes and not getattr(owner.node, "decorator_list", [])
        for binding in owner.bindings.get(name, []) if is_plain else ():
            if isinstance(binding.value, _DISPLAYS):
                return owner, name, binding.value, binding.line
    return None


def _used_through_instances_only(case: CulpritContext, owner: CodeScope) -> bool:
    elsewhere = [u.node for u in case.uses if u.statement.scope is not owner]
    return all(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id not in {"cls", owner.name}
        for node in elsewhere
    )


def _made_once(case: CulpritContext, owner: CodeScope) -> str:
    types = case.sources.types
    found = {
        case.at(statement, call): case.sources.heat.of(statement)
        for cls in types.family(owner)
        if owner in types.ancestors(cls)
        for statement, call in case.sources.program.calls_mentioning(cls.name)
        if cls in types.of(call, statement.scope)
    }
    return next(iter(found)) if len(found) == 1 and not any(found.values()) else ""


def _class_attribute_diff(
    case: CulpritContext, owner: CodeScope, name: str, value: ast.expr
) -> str | None:
    makers = [c for c in owner.children if c.name == "__init__"]
    if len(makers) != 1 or not isinstance(makers[0].node, FunctionNode):
        return None
    edits, first = case.edits(owner), makers[0].node.body[0]
    line = f"{makers[0].params[0]}.{name} = {edits.source_of(value)}"
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    goes_after = is_docstring or "super()" in ast.unparse(first)
    return (edits.insert_after if goes_after else edits.insert_before)(first, line).diff()
