"""Where a census row's path touches the sources: the places to start looking from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from leakscope.analysis.source.mutations import BUILTIN_FEEDERS
from leakscope.analysis.source.program import (
    Binding,
    CodeScope,
    UserProgram,
    chain_end,
    decorators_of,
    keyword_of,
    own_parts,
    parts_of,
)
from leakscope.analysis.source.references import ContainerPlace, References, is_super
from leakscope.analysis.source.types import FOREIGN, TypeInference
from leakscope.model.census import CensusRow, Owner
from leakscope.model.path_pattern import PathPattern, Step, Steps, parse_path


def anchor(
    program: UserProgram, types: TypeInference, owner: Owner | None, row: CensusRow
) -> References:
    """Return the references to the row's container, spread through the program."""
    references = References(program, types)
    path = parse_path(row.path)
    renaming = [i for i, step in enumerate(path.steps) if step.kind in {"cell", "default"}]
    if renaming:
        cut = renaming[-1]
        for place in _renamed(program, path, cut, owner):
            references.start(place, path.steps[cut + 1 :])
    else:
        _start_at_owner(references, owner, path)
        _start_at_root(references, path)
        _start_at_named_class(references, row, path)
        if not references.chain:
            _start_at_any_attribute(references, path)
        _trace_back(references)
    references.spread()
    for method in own_methods(references, row):
        references.add(ContainerPlace("name", method, method.receiver), (), level=0)
    references.spread()
    return references


def find_scope(program: UserProgram, owner: Owner | None) -> CodeScope | None:
    """Return the module, class or function that an owner stands for."""
    if owner is None:
        return None
    root = program.scope_of_file(owner.file) or program.module_named(owner.module or owner.name)
    name = _plain(owner.name)
    if owner.kind == "module" or name in {"<module>", "__main__"}:
        return root or _main_module(program, owner.variable)
    register = program.classes if owner.kind == "class" else program.functions
    candidates = register.get(name.rpartition(".")[2], [])
    inside = [c for c in candidates if root is None or c.root is root]
    line = program.files.line_in_text(owner.file, owner.line) if owner.line else 0
    by_line = [c for c in inside if line and c.first_line <= line <= getattr(c.node, "lineno", 0)]
    by_name = [c for c in inside if c.qualname == name]
    return next(iter([*by_line, *by_name, *inside]), None)


def _start_at_owner(references: References, owner: Owner | None, path: PathPattern) -> None:
    scope = find_scope(references.program, owner)
    if scope is None or owner is None or not owner.variable:
        return
    wanted, steps = Step("attr", owner.variable), path.steps
    if path.variable != owner.variable:
        steps = steps[steps.index(wanted) + 1 :] if wanted in steps else ()
    if scope.kind == "class":
        references.start(ContainerPlace("attr", scope, owner.variable), steps)
    else:
        home = scope.resolve(owner.variable) or scope
        references.start(ContainerPlace("name", home, owner.variable), steps)


def _start_at_root(references: References, path: PathPattern) -> None:
    """Start at the function or module that the path itself begins with, unless that is done."""
    root, program = path.root, references.program
    begun = any(place.kind == "name" and steps == path.steps for place, steps in references.chain)
    if not path.variable or begun:
        return
    scopes: Iterable[CodeScope | None]
    if root.endswith("()"):
        name = _plain(root[:-2])
        functions = program.functions.get(name.rpartition(".")[2], [])
        exact = [f for f in functions if f.qualname == name]
        scopes = exact or [f for f in functions if f.qualname.endswith("." + name)]
    elif root in {"__main__", ""}:
        scopes = [] if references.chain else [_main_module(program, path.variable)]
    else:
        scopes = [program.module_named(root)]
    for scope in scopes:
        if scope is not None and path.variable in scope.bindings:
            references.start(ContainerPlace("name", scope, path.variable), path.steps)


def _start_at_named_class(references: References, row: CensusRow, path: PathPattern) -> None:
    """``Trainer.history`` in the row's name says whose attribute the path's step is."""
    head = row.name.partition("[")[0].split(".")
    for index, step in enumerate(path.steps):
        if step.kind != "attr" or step.value not in head[1:]:
            continue
        before = head[head.index(step.value, 1) - 1]
        for cls in references.program.classes.get(before, []):
            references.start(ContainerPlace("attr", cls, step.value), path.steps[index + 1 :])


def _start_at_any_attribute(references: References, path: PathPattern) -> None:
    """Last resort: an attribute that only one family of classes binds."""
    for index, step in enumerate(path.steps):
        for cls in references.types.only_binder(step.value) if step.kind == "attr" else ():
            references.start(ContainerPlace("attr", cls, step.value), path.steps[index + 1 :])


def _trace_back(references: References) -> None:
    """A variable that was assigned from an attribute or argument is an alias of that."""
    for place, steps in list(references.chain):
        if place.kind != "name" or place.name == place.scope.receiver:
            continue
        bindings = place.scope.bindings.get(place.name, [])
        for binding in bindings if len(bindings) == 1 else ():
            if binding.how == "assign" and isinstance(binding.value, ast.Attribute):
                owners = references.types.of(binding.value.value, binding.scope) - {FOREIGN}
                for owner in owners:
                    references.start(ContainerPlace("attr", owner, binding.value.attr), steps)
            elif binding.how == "assign" and isinstance(binding.value, ast.Name):
                _start_at_name(references, binding.value.id, binding.scope, steps)
            elif binding.how == "param" and place.name in place.scope.params:
                _start_at_arguments(references, place, steps)


def _start_at_name(references: References, name: str, scope: CodeScope, steps: Steps) -> None:
    home = scope.resolve(name)
    if home is not None and name != home.receiver:
        references.start(ContainerPlace("name", home, name), steps)


def _start_at_arguments(references: References, place: ContainerPlace, steps: Steps) -> None:
    function = place.scope
    index = function.params.index(place.name) - bool(function.receiver)
    for statement, call in references.program.calls_mentioning(function.name):
        if chain_end(call.func) == function.name:
            passed = keyword_of(call, place.name) or next(iter(call.args[index : index + 1]), None)
            if isinstance(passed, ast.Name):
                _start_at_name(references, passed.id, statement.scope, steps)


def _renamed(
    program: UserProgram, path: PathPattern, cut: int, owner: Owner | None
) -> list[ContainerPlace]:
    step = path.steps[cut]
    holder = _holder_name(path, cut)
    if step.kind == "default":
        everywhere = (f for group in program.functions.values() for f in group)
        functions = [*program.functions.get(holder, []), *everywhere]
        found = [function for function in functions if step.value in function.params]
    else:
        found_in = ((s.scope, s.scope.resolve(step.value)) for s in program.mentioning(step.value))
        homes = dict.fromkeys(home for scope, home in found_in if home and home is not scope)
        makers = [home for home in homes if home.kind == "function"]
        scope = find_scope(program, owner)
        exact = [m for m in makers if scope is not None and scope in (m.parent, *m.children)]
        by_name = [m for m in makers if _makes(program, m, holder)]
        found = [scope] if scope is not None and scope in makers else by_name or exact or makers
    return [ContainerPlace("name", function, step.value) for function in found[:1]]


def _makes(program: UserProgram, maker: CodeScope, holder: str) -> bool:
    """Whether ``maker`` defines, decorates or returns what is called ``holder``."""
    if maker.name == holder or any(child.name == holder for child in maker.children):
        return True
    names = {maker.name, getattr(maker.parent, "name", None)}
    decorated = program.functions.get(holder, [])
    decorators = (called for function in decorated for called in decorators_of(function.node))
    if any(chain_end(called) in names for called in decorators):
        return True
    assigned = [s for s in program.mentioning(holder) if isinstance(s.node, ast.Assign)]
    return any(maker.name in statement.names for statement in assigned)


def _holder_name(path: PathPattern, cut: int) -> str:
    named = (s.value for s in reversed(path.steps[:cut]) if s.kind in {"attr", "cell"})
    root = _plain(path.root.removesuffix("()")).rpartition(".")[2]
    return next(named, path.variable or root)


def _main_module(program: UserProgram, variable: str) -> CodeScope | None:
    candidates = [root for root in program.modules.values() if variable in root.bindings]
    guarded = {statement.scope for statement in program.mentioning("__name__")}
    return min(candidates, key=lambda root: root not in guarded, default=None)


def _plain(name: str) -> str:
    return name.replace("<locals>.", "")


_CONTAINERS = frozenset({"list", "dict", "set", "deque", "queue"})


def own_methods(references: References, row: CensusRow) -> list[CodeScope]:
    """Return the methods of the container's class that are run on this very container.

    Those that the program calls on it, those that the interpreter does by itself
    (``__missing__``), and what these call in turn; all where no call of one is found. One called
    like what feeds the built-in containers is left out: each call of it is a feeding line.
    """
    classes = references.program.classes.get(row.type.rpartition(".")[2], [])
    if row.kind not in _CONTAINERS or "." not in row.type or len(classes) != 1:
        return []
    bases = references.types.ancestors(classes[0]) - {classes[0]}
    methods = {**_methods(*bases), **_methods(classes[0])}
    called = {
        name
        for name in methods
        for statement in references.program.mentioning(name)
        for node in own_parts(statement.node, ast.Attribute)
        if node.attr == name and references.is_container(node.value, statement.scope)
    }
    by_itself = {name for name in methods if name.startswith("__")}
    pending = [methods[name] for name in (called | by_itself if called else methods)]
    reached: list[CodeScope] = []
    while pending:
        method = pending.pop()
        if method not in reached:
            reached.append(method)
            pending += _called_by(method, methods, references.types)
    return reached


def _methods(*classes: CodeScope) -> dict[str, CodeScope]:
    """Return the methods of classes by name, without those named as a built-in container's are."""
    found = (method for cls in classes for method in cls.children if method.receiver)
    return {method.name: method for method in found if method.name not in BUILTIN_FEEDERS}


def _called_by(
    method: CodeScope, methods: dict[str, CodeScope], types: TypeInference
) -> Iterator[CodeScope]:
    above = types.ancestors(method.parent) - {method.parent} if method.parent else ()
    for node in parts_of(method.node, ast.Attribute):
        is_own = isinstance(node.value, ast.Name) and node.value.id == method.receiver
        source = methods if is_own else _methods(*above) if is_super(node.value) else {}
        if node.attr in source:
            yield source[node.attr]


_PREFERENCE = {"assign": 0, "def": 0, "class": 0, "with": 1, "for": 2, "param": 2, "import": 4}


def find_definition(references: References) -> tuple[str, int] | None:
    """Return the file and line of the binding nearest to the container on its own path."""
    found = [
        (sum(step.kind == "attr" for step in steps), _PREFERENCE.get(binding.how, 3), binding)
        for place, steps in sorted(references.chain, key=lambda entry: len(entry[1]))
        for binding in bindings_of(references, place)[:1]
    ]
    best = min(found, key=lambda entry: entry[:2], default=None)
    return (best[2].scope.module.file, best[2].line) if best else None


def bindings_of(references: References, place: ContainerPlace) -> list[Binding]:
    """Return the bindings of a place, the first that a reader would call its definition first."""
    owner = place.scope
    if place.kind == "name":
        return sorted(owner.bindings.get(place.name, []), key=_order)
    family = references.types.family(owner)
    nearest = sorted(family, key=lambda cls: (cls is not owner, cls.module.file, cls.first_line))
    found: list[Binding] = []
    for cls in nearest:
        found += sorted(cls.bindings.get(place.name, []), key=_order)
        found += sorted(cls.attributes.get(place.name, []), key=_order)
    return found


def _order(binding: Binding) -> tuple[bool, bool, int]:
    """Order: before use, in ``__init__``, by line."""
    is_late = binding.how in {"import", "except"}
    in_init = binding.scope.name in {"__init__", "__post_init__", "__new__", "setup"}
    is_update = isinstance(getattr(binding.statement, "node", None), ast.AugAssign)
    return (is_late or is_update, not in_init, binding.line)
