"""Feeding lines for what a library keeps behind the user's back.

Open figures hang on pyplot, hooks on modules, handlers on loggers, cached results on the decorated
function: no name of the user's leads there, but the calls that feed them are in the sources.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from leakscope.analysis.source.anchors import bindings_of
from leakscope.analysis.source.mutations import EXACT, SUSPECTED, Mutation
from leakscope.analysis.source.program import (
    Binding,
    CodeScope,
    Statement,
    UserProgram,
    arguments_of,
    bound_in,
    calls_in,
    chain_end,
    decorators_of,
    dotted,
    keyword_of,
    last_name,
    names_in,
    own_nodes,
    parts_of,
    targets_of,
)
from leakscope.analysis.source.references import ItemVariables, References
from leakscope.analysis.source.types import TypeInference, imported_name
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.path_pattern import Step, parse_path

_PUTTING = frozenset({"append", "appendleft", "insert", "add", "setdefault", "put", "put_nowait"})
"""Methods of containers and queues that put in one item, as it is."""
WARNINGS = "__warningregistry__"
"""Where a module's globals keep the texts of the warnings that it was given."""
_CACHES = frozenset({"lru_cache", "cache", "memoize", "cached"})
_LOG_RECORD = "logging.LogRecord"
_LOG_METHODS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "fatal", "log"}
)
_HOOK_STORE = re.compile(r"_\w+_hooks")
_MODULE_MAKERS = {"exec_module", "load_module", "import_module", "ModuleType"}
FIGURE_MAKERS = frozenset({"figure", "subplots", "subplot_mosaic"})


def suspect_mutations(references: References, row: CensusRow) -> list[Mutation]:
    """Return the calls known to feed this kind of object; empty for kinds without any."""
    program = references.program
    cached = cached_function(references, row)
    if cached is not None:
        return _calls(program, lambda call: _calls_function(call, cached), EXACT)
    if any(content.type == _LOG_RECORD for content in row.holds):
        return _logging_calls(references, row)
    if WARNINGS in row.path:
        return _calls(program, _named({"warn", "warn_explicit"}))
    if row.kind == "figure" or "Gcf" in row.path:
        return _calls(program, _makes_figure)
    if "hooks" in row.path or "Hook" in row.type or "RemovableHandle" in row.type:
        return _calls(program, _named(_registering(row))) or _calls(program, registers_hook)
    if registering := _calls(program, _adds_to(_stores(row))):
        return registering
    if "*" in parse_path(row.path).root:
        return _calls(program, _named(_MODULE_MAKERS))
    if row.root is RootKind.LIBRARY:
        return _calls_into(program, row)
    return list(_entries_of_callbacks(program, row))


_ADDING = ("add", "register", "attach", "append", "insert", "push", "subscribe")


def _stores(row: CensusRow) -> set[str]:
    """Return what a row's attributes keep, in the singular: ``handlers`` keeps ``handler``."""
    steps = [step.value for step in parse_path(row.path).steps if step.kind == "attr"]
    names = [*steps, *(["handlers"] if row.type.endswith("Handler") else [])]
    names += ["param_groups"] if row.kind == "optimizer" else []
    folded = (name.replace("_", "").lower() for name in names)
    return {name[:-1] for name in folded if name.endswith("s")}


def _adds_to(stores: set[str]) -> Callable[[ast.Call], bool]:
    """Match calls by the name of what they add: ``register_parametrization``, ``addHandler``."""
    names = {verb + store for verb in _ADDING for store in stores}
    return lambda call: chain_end(call.func).replace("_", "").lower() in names


def keeps_hooks(row: CensusRow) -> bool:
    """Return whether a row is an attribute in which torch keeps hooks."""
    return bool(_registering(row))


def _registering(row: CensusRow) -> set[str]:
    """Return what the methods are called that put hooks into a row; none for other rows.

    Modules' backward hooks have two of them, tensors' another. Those of all modules or optimizers
    are put in by functions.
    """
    path = parse_path(row.path)
    stores = [step.value for step in path.steps[-1:] if step.kind == "attr"]
    if row.root is RootKind.LIBRARY and not path.steps:
        stores = [path.variable]
    kept = {store[1:-1] for store in stores if _HOOK_STORE.fullmatch(store)}
    of_all = {hook.removeprefix("global_") for hook in kept if hook.startswith("global_")}
    names = {f"register_{hook}" for hook in kept}
    names |= {f"register_module_{hook}" for hook in of_all}
    names |= {f"register_{h.replace('optimizer_', 'optimizer_step_')}" for h in of_all}
    if "backward_hook" in kept:
        names |= {"register_full_backward_hook", "register_hook"}
    if of_all & {"backward_hook", "backward_pre_hook"}:
        names |= {f"register_module_full_{hook}" for hook in of_all}
    return names


def _entries_of_callbacks(program: UserProgram, row: CensusRow) -> Iterator[Mutation]:
    """Yield where a callback writes under the row's key: ``logs["similarity"] = table``.

    What is written to is an argument that the library hands to a method of a class derived from
    another, and the library copies it into what it keeps, under the same key.
    """
    steps = list(parse_path(row.path).steps)
    while steps and steps[-1].kind in {"any", "index"}:
        steps.pop()
    key = steps[-1].value.strip("'\"") if steps and steps[-1].kind == "key" else ""
    for statement in program.mentioning(key):
        node, method = statement.node, statement.scope
        owner = method.parent.node if method.receiver and method.parent else None
        if not isinstance(node, ast.Assign) or not getattr(owner, "bases", []):
            continue
        for target in node.targets:
            match target:
                case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=written)):
                    if written == key and name in method.params[1:]:
                        yield Mutation(statement, target, "setitem", SUSPECTED)


def cached_function(references: References, row: CensusRow) -> CodeScope | None:
    """Return the function whose results ``functools`` keeps in this row."""
    path = parse_path(row.path)
    names = [place.name for place, _ in references.chain]
    names += [step.value for step in reversed(path.steps) if step.kind == "attr"]
    functions = references.program.functions
    found = (f for name in [*names, path.variable] for f in functions.get(name, []))
    return next((function for function in found if cache_decorator(function) is not None), None)


def cache_decorator(function: CodeScope) -> ast.expr | None:
    """Return the decorator that makes a function keep its results."""
    decorators: list[ast.expr] = getattr(function.node, "decorator_list", [])
    names = (chain_end(made_by) for made_by in decorators_of(function.node))
    return next((d for d, name in zip(decorators, names, strict=True) if name in _CACHES), None)


def _calls(
    program: UserProgram, matches: Callable[[ast.Call], bool], distance: float = SUSPECTED
) -> list[Mutation]:
    return [
        Mutation(statement, call, "register" if registers_hook(call) else "call", distance)
        for statement in program.statements
        for call in filter(matches, calls_in(statement.node))
    ]


def _calls_into(program: UserProgram, row: CensusRow) -> list[Mutation]:
    """Return the calls of the library's class that has the row, and the entries made in it, or else
    the calls of its module.

    Of a module's functions only where a single one is called: of many nothing tells which it is.
    """
    path = parse_path(row.path)
    named = f"{path.root}.{path.variable}"
    of_class, by_function = [], defaultdict(list)
    for statement in program.statements:
        of_class += [
            Mutation(statement, target, "setitem", EXACT)
            for target in getattr(statement.node, "targets", [])
            if isinstance(target, ast.Subscript) and isinstance(target.ctx, ast.Store)
            if imported_name(target.value, statement.scope) == named
        ]
        for node in calls_in(statement.node):
            called = imported_name(node.func, statement.scope)
            call = Mutation(statement, node, "call", SUSPECTED)
            if called == named or called.startswith(f"{named}."):
                of_class.append(call)
            elif called.rpartition(".")[0] == path.root:
                by_function[called].append(call)
    only = next(iter(by_function.values())) if len(by_function) == 1 else []
    return of_class or only


def _logging_calls(references: References, row: CensusRow) -> list[Mutation]:
    """Return the calls whose records come to the handler that keeps the row's; else all."""
    handler = Handler(references, row)
    written = _calls(references.program, _writes_log)
    received = [
        mutation
        for mutation in written
        if isinstance(function := getattr(mutation.node, "func", None), ast.Attribute)
        and handler.may_receive(function.value, mutation.statement.scope)
    ]
    return received or written


def _writes_log(call: ast.Call) -> bool:
    """Whether something is logged: by a logger, as its name says, or by ``logging`` itself."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _LOG_METHODS:
        return False
    logger = function.value.func if isinstance(function.value, ast.Call) else function.value
    return "log" in chain_end(logger).lower()


def _calls_function(call: ast.Call, function: CodeScope) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == function.name and (function.is_method or bool(dotted(call.func)))
    return isinstance(call.func, ast.Name) and call.func.id == function.name


def _makes_figure(call: ast.Call) -> bool:
    head, _, name = dotted(call.func).rpartition(".")
    return name in FIGURE_MAKERS and not head.startswith("self")


def registers_hook(call: ast.expr) -> bool:
    """Return whether a call is that of a method that registers a hook."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name.startswith("register_") and "hook" in name
    return False


def _named(names: set[str]) -> Callable[[ast.Call], bool]:
    def matches(call: ast.Call) -> bool:
        if isinstance(call.func, ast.Name):
            return call.func.id in names and call.func.id.startswith(_FUNCTIONS)
        return isinstance(call.func, ast.Attribute) and call.func.attr in names

    return matches


_FUNCTIONS = ("register_module_", "register_optimizer_step_")
"""How functions that put in hooks are called, which no object's name stands before."""
_HANDLERS = Step("attr", "handlers")


@dataclass(frozen=True)
class _Attachment:
    """A handler that is given to a logger."""

    loggers: Names
    handler: object
    """The same for one handler that is given to several."""
    expr: ast.expr | None
    scope: CodeScope


class Handler:
    """The handler that a container belongs to, and the loggers that it handles."""

    def __init__(self, references: References, row: CensusRow) -> None:
        self._path = parse_path(row.path)
        self._references = references
        self._loggers = Loggers(references.program, references.types)
        self._received = self._find_received()

    def may_receive(self, logger: ast.expr, scope: CodeScope) -> bool:
        """Whether what this logger writes may come to the handler."""
        written = self._loggers.names_of(logger, scope)
        reached = {above for name in written for above in self._loggers.reached_from(name)}
        return not written or not self._received or not reached.isdisjoint(self._received)

    def _find_received(self) -> Names:
        """Return the names of the loggers that have the handler; nothing where that's not sure."""
        named, attached = self._on_path(), list(self._attachments())
        handlers = {a.handler for a in attached if self._is_mine(a, named)}
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
                    for handler in _elements(entry.get("handlers")):
                        key = ast.unparse(handler)
                        yield _Attachment(frozenset({logger}), key, None, statement.scope)

    def _by_call(self, statement: Statement) -> Iterator[_Attachment]:
        scope = statement.scope
        for call in calls_in(statement.node):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "addHandler":
                loggers, arguments = self._loggers.names_of(call.func.value, scope), call.args[:1]
            elif imported_name(call.func, scope) == "logging.basicConfig":
                loggers, arguments = ROOT, _elements(keyword_of(call, "handlers"))
            else:
                continue
            for handler in arguments:
                written = dotted(handler)
                home = scope.resolve(written.partition(".")[0]) if written else None
                key: object = (home, written) if home is not None else handler
                yield _Attachment(loggers, key, handler, scope)


def _elements(listed: ast.expr | None) -> list[ast.expr]:
    return listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []


Names = frozenset[str]
"""What a logger may be called, empty where nothing tells; the root logger is called nothing."""

ROOT: Names = frozenset({""})
UNKNOWN: Names = frozenset()
_MAX_DEPTH = 6


class Loggers:
    """Tells the names of loggers, and which of them keep their records to themselves."""

    def __init__(self, program: UserProgram, types: TypeInference) -> None:
        self._program = program
        self._types = types
        self.silent = self._not_propagating()
        """Names of loggers whose records don't go to the handlers of their parents."""

    def names_of(self, expr: ast.expr | None, scope: CodeScope, depth: int = 0) -> Names:
        """Return the names that the logger may have which an expression stands for."""
        if depth > _MAX_DEPTH or expr is None:
            return UNKNOWN
        if isinstance(expr, ast.Call):
            return self._of_call(expr, scope, depth)
        if imported_name(expr, scope) in {"logging", "logging.root"}:
            return ROOT
        if isinstance(expr, ast.Attribute):
            return self._of_attribute(expr, scope, depth)
        home = scope.resolve(expr.id) if isinstance(expr, ast.Name) else None
        return self._of_name(last_name(expr), home, depth) if home is not None else UNKNOWN

    def reached_from(self, name: str) -> Iterator[str]:
        """Yield the loggers whose handlers get what one writes: itself and those above it."""
        yield name
        while name and name not in self.silent:
            name = name.rpartition(".")[0]
            yield name

    def of_bindings(self, bindings: list[Binding], depth: int = 0) -> Names:
        """Return what any of the bindings may give; nothing if that of one is unknown."""
        found = [self.names_of(b.value, b.scope, depth + 1) for b in bindings if b.how == "assign"]
        is_known = len(found) == len(bindings) and all(found)
        return frozenset().union(*found) if is_known else UNKNOWN

    def _of_attribute(self, expr: ast.Attribute, scope: CodeScope, depth: int) -> Names:
        module = self._types.module_of(expr.value, scope)
        if module is not None:
            return self._of_name(expr.attr, module, depth)
        owners = self._types.of(expr.value, scope)
        classes = (cls for owner in owners for cls in self._types.family(owner))
        return self.of_bindings([b for cls in classes for b in cls.member(expr.attr)], depth)

    def _of_name(self, name: str, home: CodeScope, depth: int) -> Names:
        if name in home.module.imports:
            module, attribute = home.module.imports[name]
            source = self._program.module_named(module, importer=home.root) if attribute else None
            if source is None or source is home.root:
                return UNKNOWN
            return self._of_name(attribute, source, depth + 1) if depth < _MAX_DEPTH else UNKNOWN
        return self.of_bindings(home.bindings.get(name, []), depth)

    def _of_call(self, call: ast.Call, scope: CodeScope, depth: int) -> Names:
        function = call.func
        if imported_name(function, scope) == "logging.getLogger":
            return _written_name(call.args[0], scope) if call.args else ROOT
        if isinstance(function, ast.Attribute) and function.attr == "getChild" and call.args:
            parents = self.names_of(function.value, scope, depth + 1)
            ends = _written_name(call.args[0], scope)
            return frozenset(f"{parent}.{end}".lstrip(".") for parent in parents for end in ends)
        return UNKNOWN

    def _not_propagating(self) -> Names:
        found: set[str] = set()
        for statement in self._program.mentioning("propagate"):
            for target, value in bound_in(statement.node):
                match target:
                    case ast.Attribute(value=logger, attr="propagate") if _is_false(value):
                        found |= self.names_of(logger, statement.scope)
            entries = named_entries(own_nodes(statement.node))
            found |= {name for name, entry in entries if _is_false(entry.get("propagate"))}
        return frozenset(found)


def named_entries(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Yield what dictionaries say of each name, such as those that ``dictConfig`` is given."""
    for node in nodes:
        for name, entry in _texts(node).items():
            if isinstance(entry, ast.Dict):
                yield ("" if name == "root" else name), _texts(entry)


def _texts(node: ast.AST) -> dict[str, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value in (False, 0)


def _written_name(expr: ast.expr, scope: CodeScope) -> Names:
    if isinstance(expr, ast.Constant):
        return ROOT if expr.value in (None, "", "root") else frozenset({str(expr.value)})
    if isinstance(expr, ast.Name) and expr.id == "__name__":
        return frozenset(scope.module.names)
    return UNKNOWN


class ItemWork:
    """Tells which statements make the items of a container or work on one.

    ``tree = parse(text)`` where ``title = tree.find("title")`` is appended, ``message.extend(x)``
    before the message is appended, ``volume[0]`` where ``volume = self.open[name]``: what a library
    allocates there, the items own. What a function was given to make an item needn't be part of it.
    """

    def __init__(self, references: References, feeding: Iterable[Statement]) -> None:
        self._references = references
        mentioned = references.program.mentioning_any(references.names)
        self._names = set(ItemVariables(references, mentioned).names)
        pending = [found for statement in feeding for found in self._handed_in(statement)]
        while pending:
            scope, name = pending.pop()
            if (scope, name) not in self._names:
                self._names.add((scope, name))
                for bound in scope.bindings[name]:
                    pending += self._root_of(bound.value, bound.scope)
        self._makers = {
            scope.name
            for scope, name in self._names
            if scope is not None
            and scope.kind == "function"
            and name in map(dotted, (end.value for end in parts_of(scope.node, ast.Return)))
            and len(references.program.functions.get(scope.name, [])) == 1
        }
        """Functions that return what they put into the container, by names that no others have."""

    def includes(self, statement: Statement) -> bool:
        """Return whether a statement gives an item its name, or calls, reads or goes over one."""
        scope, iterated = statement.scope, getattr(statement.node, "iter", None)
        used: list[ast.expr | None] = [iterated] if isinstance(iterated, ast.Name) else []
        for node in own_nodes(statement.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                used.append(node)
            elif isinstance(node, (ast.Call, ast.Subscript)):
                used.append(_receiver(node))
        return any(self._is_item(value, scope) for value in used)

    def _handed_in(self, statement: Statement) -> Iterator[tuple[CodeScope, str]]:
        node = statement.node
        values: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
            values.append(node.value)
        for call in calls_in(node):
            if self._leads_there(call.func, statement.scope):
                values += arguments_of(call)
        for name in (name for value in values for name in parts_of(value, ast.Name)):
            yield from self._variable(name, statement.scope)

    def _variable(self, name: ast.Name, scope: CodeScope) -> Iterator[tuple[CodeScope, str]]:
        home = scope.resolve(name.id)
        if home is None or self._references.steps_from(name, scope):
            return
        if all(bound.how in {"assign", "param", "for", "with"} for bound in home.bindings[name.id]):
            yield home, name.id

    def _root_of(self, value: ast.expr | None, scope: CodeScope) -> Iterator[tuple[CodeScope, str]]:
        """Yield the variable of which a value is a part, or by which it was made."""
        while (inner := _receiver(value)) is not None:
            value = inner
        if isinstance(value, ast.Name):
            yield from self._variable(value, scope)

    def _is_item(self, value: ast.expr | None, scope: CodeScope, *, follows: bool = True) -> bool:
        """Whether an expression is an item, or a part, a method or the result of one."""
        while value is not None:
            if isinstance(value, ast.Name):
                home = scope.resolve(value.id)
                return (home, value.id) in self._names or (
                    follows and home is not None and self._is_result(home, value.id)
                )
            inner = _receiver(value)
            if isinstance(value, ast.Call) and last_name(value.func) in self._makers:
                return True
            is_taken = isinstance(value, ast.Subscript) or isinstance(inner, ast.Call)
            if is_taken and self._references.is_container(inner, scope):
                return True
            value = inner
        return False

    def _is_result(self, home: CodeScope, name: str) -> bool:
        values = [bound.value for bound in home.bindings[name] if bound.how == "assign"]
        return bool(values) and all(
            isinstance(value, ast.Call) and self._is_item(value, home, follows=False)
            for value in values
        )

    def _leads_there(self, value: ast.expr, scope: CodeScope) -> bool:
        inner = _receiver(value)
        return inner is not None and (
            bool(self._references.steps_from(inner, scope)) or self._leads_there(inner, scope)
        )


def _receiver(value: ast.expr | None) -> ast.expr | None:
    if isinstance(value, (ast.Attribute, ast.Subscript, ast.Await, ast.Starred)):
        return value.value
    return value.func if isinstance(value, ast.Call) else None


def find_keeper(program: UserProgram, made: Statement) -> str:
    """Return the container into which a function puts what a statement of it makes, as its methods
    are written: ``Shipper.streams``. Empty where the source shows none, or several.
    """
    targets = [target for node in own_nodes(made.node) for target in targets_of(node)]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    found = [*_containers(made.node, None)]
    for statement in program.mentioning_any(names):
        if statement.scope is made.scope:
            found += _containers(statement.node, names)
    kept_in = {_as_written(container, made.scope) for container in found}
    return kept_in.pop() if len(kept_in) == 1 else ""


def _containers(node: ast.stmt, names: set[str] | None) -> Iterator[ast.expr]:
    """Yield what gets an item by a statement: one of these variables, or whatever it makes."""

    def is_meant(value: ast.expr | None) -> bool:
        if names is None:
            return any(parts_of(value, ast.Call))
        return isinstance(value, ast.Name) and value.id in names

    if isinstance(node, ast.Assign) and is_meant(node.value):
        yield from (t.value for t in node.targets if isinstance(t, ast.Subscript))
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(value=container, attr=method), args=arguments)):
            if method in _PUTTING and any(map(is_meant, arguments)):
                yield container


def _as_written(container: ast.expr, scope: CodeScope) -> str:
    """Return a container's name: of an attribute of ``self`` by the class, of others as written."""
    written = dotted(container)
    holder, dot, rest = written.partition(".")
    owner = scope.enclosing_class()
    if owner is None or not holder or holder not in {"self", scope.receiver}:
        return written
    return f"{owner.name}{dot}{rest}"


def find_takers(
    program: UserProgram, types: TypeInference, made: Statement
) -> list[tuple[ast.Call, Statement]]:
    """Return the calls of functions that aren't the program's which are handed what a statement
    makes: by a variable, in a literal, as the result or an argument of the program's functions.
    """
    finder = _TakerFinder(program, types)
    finder.follow_statement(made, 0)
    return list({(s.scope.module.file, c.lineno): (c, s) for c, s in finder.found}.values())


_MOST_HANDINGS = 4
"""From a function to a function, or from a variable to a variable."""
_BUILTINS = frozenset(dir(builtins))
_TRUSTED = sys.stdlib_module_names - {"ctypes"}
"""Libraries that give back what they are handed; ``ctypes`` calls those of others."""


class _TakerFinder:
    def __init__(self, program: UserProgram, types: TypeInference) -> None:
        self._program, self._types = program, types
        self._seen: set[tuple[CodeScope, str]] = set()
        self.found: list[tuple[ast.Call, Statement]] = []

    def follow_statement(self, statement: Statement, level: int) -> None:
        for node in own_nodes(statement.node):
            for target in targets_of(node):
                if isinstance(target, ast.Name):
                    self._follow_variable(statement.scope.home(target.id), target.id, level)
        if isinstance(statement.node, ast.Return):
            self._follow_result(statement.scope, level)

    def _follow_variable(self, home: CodeScope, name: str, level: int) -> None:
        if (home, name) in self._seen or level > _MOST_HANDINGS:
            return
        self._seen.add((home, name))
        for statement in self._program.mentioning(name):
            if statement.scope.resolve(name) is home:
                for call in calls_in(statement.node):
                    self._follow_call(call, statement, name, level)
                if name in _names_outside_calls(getattr(statement.node, "value", None)):
                    self.follow_statement(statement, level + 1)
                elif isinstance(statement.node, (ast.For, ast.AsyncFor)):
                    self._follow_items(statement.node, statement.scope, name, level)

    def _follow_items(
        self, loop: ast.For | ast.AsyncFor, scope: CodeScope, name: str, level: int
    ) -> None:
        for target in parts_of(loop.target, ast.Name) if name in names_in(loop.iter) else ():
            self._follow_variable(scope.home(target.id), target.id, level + 1)

    def _follow_result(self, function: CodeScope, level: int) -> None:
        for statement, call in self._program.calls_mentioning(function.name):
            if function not in self._types.called_functions(call.func, statement.scope):
                continue
            outer = [c for c in calls_in(statement.node) if call in arguments_of(c)]
            for taker in outer:
                self._take(taker, statement)
            if not outer and level < _MOST_HANDINGS:
                self.follow_statement(statement, level + 1)

    def _follow_call(self, call: ast.Call, statement: Statement, name: str, level: int) -> None:
        functions = self._types.called_functions(call.func, statement.scope)
        if not functions and any(name in _names_outside_calls(v) for v in arguments_of(call)):
            self._take(call, statement)
        for function in functions:
            params = function.params[bool(function.receiver) :]
            handed = [*zip(params, call.args, strict=False)]
            handed += [(word.arg, word.value) for word in call.keywords if word.arg in params]
            for param, value in handed:
                if name in _names_outside_calls(value):
                    self._follow_variable(function, param, level + 1)

    def _take(self, call: ast.Call, statement: Statement) -> None:
        function = last_name(call.func)
        is_own = bool(self._types.called_functions(call.func, statement.scope))
        is_own |= any(map(_constructs_itself, self._program.classes.get(function, [])))
        is_builtin = isinstance(call.func, ast.Name) and function in _BUILTINS
        library = imported_name(call.func, statement.scope).partition(".")[0]
        if not (is_own or is_builtin or library in _TRUSTED or function in _PUTTING):
            self.found.append((call, statement))


def _constructs_itself(cls: CodeScope) -> bool:
    bases = cls.node.bases if isinstance(cls.node, ast.ClassDef) else []
    is_library = any(last_name(base) not in _BUILTINS for base in bases)
    return not is_library or any(child.name in {"__init__", "__new__"} for child in cls.children)


def _names_outside_calls(value: ast.expr | None) -> set[str]:
    """Return the variables that an expression hands on as they are, or in a literal."""
    match value:
        case ast.Name(id=name):
            return {name}
        case (
            ast.Tuple(elts=parts)
            | ast.List(elts=parts)
            | ast.Set(elts=parts)
            | ast.Dict(values=parts)
        ):
            return set().union(*map(_names_outside_calls, parts))
        case ast.Starred(value=inner) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
            return _names_outside_calls(inner)
        case ast.IfExp(body=one_way, orelse=other_way):
            return _names_outside_calls(one_way) | _names_outside_calls(other_way)
    return set()
