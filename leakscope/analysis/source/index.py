"""The index of the user's sources: who feeds a container, where it was defined.

The candidate statements are ranked by evidence, strongest first. Also answered here: where the
sources call a function of a library, and which functions run in threads of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from leakscope.analysis.source.anchors import anchor, find_definition
from leakscope.analysis.source.library_calls import (
    ItemWork,
    cache_decorator,
    cached_function,
    find_keeper,
    find_takers,
    keeps_hooks,
    suspect_mutations,
)
from leakscope.analysis.source.mutations import (
    CALLED,
    EXACT,
    INNER,
    OUTER,
    REBOUND,
    Mutation,
    counts,
    find_mutations,
    grows_in_place,
    makes_room,
    opens_empty,
    opens_once,
    replaces,
    takes_back,
)
from leakscope.analysis.source.program import (
    DEFINITIONS,
    CodeScope,
    SourceFiles,
    Statement,
    UserProgram,
    arguments_of,
    bases_of,
    bound_in,
    calls_in,
    dotted,
    has_comprehension,
    keyword_of,
    last_name,
    own_names,
    own_parts,
)
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import TypeInference, imported_name
from leakscope.model.census import CensusRow, Owner, Site
from leakscope.model.registries import CountedRegistry, registry_of
from leakscope.model.report import Excerpt

_ASSIGNED = frozenset({"assign", "setattr"})
_MOST_LINES = 8


class SourceIndex:
    """Answers questions about a container from the recorded sources; never reads a file.

    Shown paths are relative to ``project_root``; ``titles`` are what the cells of a notebook are
    called, by their paths.
    """

    def __init__(
        self, sources: dict[str, str], project_root: str = "", titles: dict[str, str] | None = None
    ) -> None:
        self.files = SourceFiles(sources, project_root, titles)
        self._found: dict[tuple[str, str, Owner | None], References] = {}

    @cached_property
    def program(self) -> UserProgram:
        """The parsed sources."""
        return UserProgram(self.files)

    @cached_property
    def types(self) -> TypeInference:
        """What the sources tell about classes."""
        return TypeInference(self.program)

    @cached_property
    def heat(self) -> Heat:
        """Which functions run repeatedly."""
        return Heat(self.program)

    def defines(self, type_name: str) -> bool:
        """Return whether a class, by its qualified name, is one of the program's own."""
        module, _, name = type_name.rpartition(".")
        return module.startswith("__main__") or name in self.program.classes

    def references(self, owner: Owner | None, row: CensusRow) -> References:
        """Return every expression that refers to the row's container."""
        key = (row.path, row.name, owner)
        if key not in self._found:
            self._found[key] = anchor(self.program, self.types, owner, row)
        return self._found[key]

    def mutations(
        self,
        owner: Owner | None,
        row: CensusRow,
        phase: str = "",
        *,
        grows_inside: bool = False,
        sampled: Sequence[Site] = (),
    ) -> list[Mutation]:
        """Return the statements behind ``feeding``, best first."""
        row = self._in_texts(row)
        references = self.references(owner, row)
        found = find_mutations(references, row)
        # Only hooks that are registered come to where hooks are kept, not what is put around it.
        least = OUTER if keeps_hooks(row) else CALLED
        if all(mutation.distance >= least for mutation in found):
            found = suspect_mutations(references, row) or found
        sampled = [*map(self.files.in_text, sampled)]
        ranked = rank(found, row, self.heat, phase, sampled, grows_inside=grows_inside)
        return ranked[:_MOST_LINES]

    def feeding(
        self,
        owner: Owner | None,
        row: CensusRow,
        phase: str = "",
        *,
        grows_inside: bool = False,
        sampled: Sequence[Site] = (),
    ) -> list[FeedingLine]:
        """Return the lines that put something into the row's container, likeliest first.

        ``grows_inside`` says that it has no more items than before, and that those become larger.
        Else the lines come first at which an insertion was seen. ``sampled`` is where the program
        allocates what it has ever more of, whoever holds it.
        """
        row = self._in_texts(row)
        if row.role == "optimizer_state":
            # A step fills it, whoever adds the parameters.
            row = replace(row, inserted_at=[])
        found = self.mutations(owner, row, phase, grows_inside=grows_inside, sampled=sampled)
        if grows_inside and any(mutation.distance < CALLED for mutation in found):
            return list(map(self._line, found))
        known = [mutation.statement for mutation in found]
        new = [at for at in map(self._statement_at, row.inserted_at) if at and at not in known]
        found += [Mutation(at, at.node, "insert", EXACT) for at in new]
        row = self._with_what_is_passed_on(row, [mutation.statement for mutation in found])
        ordered = sorted(found, key=lambda mutation: _seen_first(mutation.statement, row))
        return list(dict.fromkeys(map(self._line, ordered)))

    def _with_what_is_passed_on(self, row: CensusRow, feeding: list[Statement]) -> CensusRow:
        """Return a row whose feeding lines have the bytes too of what lines before them in the same
        function made and gave a name that they use.
        """
        passed_on = [
            replace(site, line=statement.line)
            for site in row.allocated_at
            if (made := self._statement_at(site))
            for statement in feeding
            if statement.scope is made.scope
            and statement.line > made.line
            and own_names(made.node, ast.Store) & own_names(statement.node, ast.Load)
        ]
        return replace(row, allocated_at=[*row.allocated_at, *passed_on])

    def kept_in(self, file: str, line: int) -> str:
        """Return the container into which what a line makes is put, as a person would name it;
        empty where the source shows none.
        """
        made = self._statement_at(self.files.in_text(Site(file=file, line=line)))
        return find_keeper(self.program, made) if made is not None else ""

    def calls_of_class(self, name: str) -> list[tuple[str, int]]:
        """Return where a class of the program's is called, as files and lines."""
        return [(statement.file, call.lineno) for statement, call in self.program.calls_of(name)]

    def place(self, around: Statement | CodeScope, node: ast.AST | None = None) -> str:
        """Return where a statement is, or a node in it or in a scope, as a person writes it."""
        return self.location(around.file, getattr(node or around.node, "lineno", 0))

    def handed_to(self, file: str, line: int) -> list[tuple[str, str]]:
        """Return the functions of libraries that are handed what a line makes, each as it is
        written, with where it is called.
        """
        made = self._statement_at(self.files.in_text(Site(file=file, line=line)))
        found = find_takers(self.program, self.types, made) if made is not None else []
        return [(dotted(call.func), self.place(statement, call)) for call, statement in found]

    def _statement_at(self, site: Site) -> Statement | None:
        path = self.files.find(site.file)
        around = (s for s in self.program.statements if s.file == path and s.spans(site.line))
        return max(around, key=lambda statement: statement.line, default=None)

    def _in_texts(self, row: CensusRow) -> CensusRow:
        return replace(
            row,
            allocated_at=[*map(self.files.in_text, row.allocated_at)],
            inserted_at=[*map(self.files.in_text, row.inserted_at)],
            items_made_at=[*map(self.files.in_text, row.items_made_at)],
        )

    def works_on_items(self, owner: Owner | None, row: CensusRow, phase: str, site: Site) -> bool:
        """Return whether a line makes what the row's container gets, or works on an item of it."""
        at = self._statement_at(site)
        if at is None:
            return False
        feeding = [mutation.statement for mutation in self.mutations(owner, row, phase)]
        return ItemWork(self.references(owner, row), feeding).includes(at)

    def assigning(self, owner: Owner | None, row: CensusRow, phase: str = "") -> list[FeedingLine]:
        """Return the lines that make the row's own attribute refer to something else, likeliest
        first: not those that fill what holds it.
        """
        references = self.references(owner, row)
        found = [m for m in find_mutations(references, row) if m.form in _ASSIGNED]
        return [self._line(m) for m in rank(found, row, self.heat, phase)[:_MOST_LINES]]

    def _line(self, mutation: Mutation) -> FeedingLine:
        statement = mutation.statement
        makes = mutation.form in _ASSIGNED or isinstance(statement.node, DEFINITIONS)
        return FeedingLine(
            file=statement.file,
            line=statement.line,
            text=self.files.text_at(statement.file, statement.line),
            form=mutation.form,
            is_direct=mutation.distance < REBOUND,
            makes_once=makes and not self.heat.of(statement),
        )

    def defined_at(self, owner: Owner | None, row: CensusRow) -> str | None:
        """Return ``file:line`` of the container's first binding, None where unknown."""
        references = self.references(owner, row)
        cached = cached_function(references, row)
        decorator = cache_decorator(cached) if cached is not None else None
        if cached is not None and decorator is not None:
            return self.location(cached.module.file, decorator.lineno)
        found = find_definition(references)
        return self.location(*found) if found else None

    def excerpt(self, file: str, lines: list[int], context: int = 4) -> Excerpt | None:
        """Return the source around some lines, None where it wasn't recorded."""
        return self.files.excerpt(file, lines, context)

    def location(self, file: str, line: int) -> str:
        """Return ``train.py:12`` as a person would write it, ``In [5]:3`` of a cell."""
        return self.files.location(file, line)


_CALLBACK = re.compile(r"(^|_)(step|hook|callback|forward|collate|wrapper)$|^(on_|__call__|__get)")
_RUN_ONCE = frozenset({"__init__", "main", "setup", "__post_init__"})
_WORD = re.compile(r"[a-z]{3,}")
_PHASE_WORDS = {
    "validation": re.compile(r"val|eval|test"),
    "test": re.compile(r"test|eval"),
    "train": re.compile(r"train|fit"),
}


class Heat:
    """Which functions run again and again, judged by where they are called."""

    def __init__(self, program: UserProgram) -> None:
        self._functions: dict[str, list[CodeScope]] = {}
        for name, group in program.functions.items():
            for scope in group:
                called = scope.parent.name if name == "__init__" and scope.parent else name
                self._functions.setdefault(called, []).append(scope)
        self._hot: set[CodeScope] = set()
        self._warm(program)

    def of(self, statement: Statement) -> bool:
        """Whether the statement is run more than once; what only a library calls is."""
        return bool(statement.loops) or statement.scope in self._hot

    def _warm(self, program: UserProgram) -> None:
        """Spread from what is called in loops, or by nobody known, to what that calls."""
        calls: dict[CodeScope, set[str]] = {}
        repeated: set[str] = set()
        for statement in program.statements:
            names = _called_names(statement)
            calls.setdefault(statement.scope, set()).update(names)
            if statement.loops or has_comprehension(statement.node):
                repeated |= names
        called = set().union(*calls.values())
        pending = [
            scope
            for name, group in self._functions.items()
            for scope in group
            if name in repeated
            or _CALLBACK.search(scope.name)
            or (name not in called and scope.name not in _RUN_ONCE)
        ]
        while pending:
            scope = pending.pop()
            if scope not in self._hot:
                self._hot.add(scope)
                for name in calls.get(scope, ()):
                    pending += self._functions.get(name, [])


def _called_names(statement: Statement) -> set[str]:
    return {last_name(call.func) for call in calls_in(statement.node)}


def rank(
    mutations: list[Mutation],
    row: CensusRow,
    heat: Heat,
    phase: str = "",
    sampled: Sequence[Site] = (),
    *,
    grows_inside: bool = False,
) -> list[Mutation]:
    """Return the best tier of candidates, best first, one per statement.

    Where that only makes room in the container, the lines that fill the room follow; they come
    before those that make it once. They also come first where it ``grows_inside``: it has no more
    items than before, and those become larger.
    """
    mutations = [m for m in mutations if not (counts(m) or takes_back(m))] or mutations
    if not mutations:
        return []
    tier = _tier(min(m.distance for m in mutations))
    best = [m for m in mutations if _tier(m.distance) == tier]
    hot = [m for m in best if m.repeated or heat.of(m.statement)]
    candidates = _one_per_statement(hot or best)
    filling = {id(m.statement) for m in mutations if not makes_room(m)}
    ranked = sorted(
        candidates,
        key=lambda m: (id(m.statement) not in filling, _weakness(m, row, heat, phase, sampled)),
    )
    is_opened = all(opens_empty(m) for m in ranked)
    if tier > EXACT or not (is_opened or grows_inside):
        return ranked
    rest = [m for m in mutations if m.distance > EXACT]
    if not is_opened:
        rest = [m for m in rest if m.distance == INNER and not makes_room(m)]
    fill = rank(rest, row, heat, phase, sampled)
    fills_first = grows_inside and not any(grows_in_place(m) for m in ranked)
    fills_first = fills_first or all(opens_once(m) or m not in hot for m in ranked)
    return _one_per_statement([*fill, *ranked] if fills_first else [*ranked, *fill])


def _tier(distance: float) -> float:
    """Return the class of evidence: exact, inside, around by level, rebound, only called."""
    return distance if distance < CALLED else CALLED


def _weakness(
    mutation: Mutation, row: CensusRow, heat: Heat, phase: str, sampled: Sequence[Site]
) -> tuple[int, bool, bool, bool, bool, float, int, bool, bool, bool, bool, str, int]:
    statement = mutation.statement
    return (
        -_witnessed(mutation, row),
        not (mutation.repeated or heat.of(statement)),
        not _in_phase(statement, phase),
        mutation.form != "link",
        replaces(mutation),
        mutation.distance,
        -(_bytes_on(statement, sampled) or 0),
        mutation.distance >= CALLED and not _call_name_matches(statement, row),
        mutation.distance >= CALLED and not _argument_name_matches(mutation, row),
        not (statement.loops or mutation.repeated),
        statement.scope.name == "__init__",  # once for each object
        statement.file,
        statement.line,
    )


def _witnessed(mutation: Mutation, row: CensusRow) -> int:
    """Return 2 where an allocation was seen on the statement's lines, 1 in its function."""
    statement = mutation.statement
    lines = [site.line for site in row.allocated_at if _same_file(site.file, statement.file)]
    if any(map(statement.spans, lines)):
        return 2
    first, last = statement.scope.first_line, getattr(statement.scope.node, "end_lineno", -1)
    return int(any(first <= line <= last for line in lines))


def _seen_first(statement: Statement, row: CensusRow) -> tuple[bool, int]:
    """Order statements: where an insertion was seen, or an item made, those of most bytes first."""
    is_seen = _bytes_on(statement, [*row.inserted_at, *row.items_made_at]) is not None
    return not is_seen, -(_bytes_on(statement, row.allocated_at) or 0) if is_seen else 0


def _bytes_on(statement: Statement, sites: Sequence[Site]) -> int | None:
    """Return the bytes that places on a statement's lines made, None where there is none."""
    file = statement.file
    found = [s.bytes for s in sites if statement.spans(s.line) and _same_file(s.file, file)]
    return sum(found) if found else None


def _same_file(left: str, right: str) -> bool:
    left, right = left.removeprefix("./"), right.removeprefix("./")
    return left == right or left.endswith("/" + right) or right.endswith("/" + left)


def _in_phase(statement: Statement, phase: str) -> bool:
    words = _PHASE_WORDS.get(phase.partition(":")[0])
    if words is None:
        return False
    iterated = [loop.iter for loop in statement.loops if isinstance(loop, (ast.For, ast.AsyncFor))]
    texts = [statement.scope.qualname, *map(ast.unparse, iterated)]
    return any(words.search(text.lower()) for text in texts)


def _call_name_matches(statement: Statement, row: CensusRow) -> bool:
    words = _WORD.findall(row.path)
    return any(not set(_WORD.findall(n)).isdisjoint(words) for n in _called_names(statement))


def _argument_name_matches(mutation: Mutation, row: CensusRow) -> bool:
    attribute = row.path.rpartition(".")[2].lower()
    arguments = mutation.node.args if isinstance(mutation.node, ast.Call) else []
    words = {word for value in arguments for word in _WORD.findall(dotted(value).lower())}
    return any(word in attribute for word in words)


def _one_per_statement(mutations: list[Mutation]) -> list[Mutation]:
    best: dict[tuple[str, int], Mutation] = {}
    for mutation in mutations:
        key = (mutation.statement.file, mutation.statement.line)
        if key not in best or mutation.distance < best[key].distance:
            best[key] = mutation
    return list(best.values())


@dataclass(frozen=True)
class FeedingLine:
    """The first line of a statement that puts something into a container."""

    file: str
    line: int
    text: str
    """The statement's first line, without its indentation."""
    form: str
    """How: ``append``, ``setitem``, ``augmented``, ``assign``, ``put``, ``setattr``, ``link``,
    ``read``, ``call``, … or ``insert``, which was seen as it ran."""
    is_direct: bool = True
    """Whether the statement itself puts it there: not what it calls, nor by making the container
    again."""
    makes_once: bool = False
    """Whether it makes the container, or defines a function, and runs once."""


def places_that_call(
    sources: SourceIndex, owners: set[str], functions: set[str], *, repeatedly: bool = False
) -> list[str]:
    """Return where ``owner.function(…)`` is called, as ``file:line``, each place once.

    The owner is known by its name alone: ``gc``, ``plt``; the empty one stands for no owner. With
    no owners given, methods of any object are meant. Places that are run once can be left out. A
    decorator is a call, with or without arguments.
    """
    found = [
        sources.location(statement.file, line)
        for function in sorted(functions)
        for statement in sources.program.mentioning(function)
        if not repeatedly or sources.heat.of(statement)
        for called, line in _calls_in(statement)
        if _is_one_of(called, owners, functions)
    ]
    return list(dict.fromkeys(found))


def _calls_in(statement: Statement) -> Iterator[tuple[ast.expr, int]]:
    for call in calls_in(statement.node):
        yield call.func, call.lineno
    for decorator in getattr(statement.node, "decorator_list", []):
        yield decorator, decorator.lineno


def lines_that_call(sources: SourceIndex, names: Sequence[str]) -> list[str]:
    """Return where functions or classes are called by their full names, however imported."""
    found = [
        sources.location(statement.file, line)
        for name in names
        for statement in sources.program.mentioning(name.rpartition(".")[2])
        for called, line in _calls_in(statement)
        if imported_name(called, statement.scope) == name
    ]
    return list(dict.fromkeys(found))


_ANYTHING = "*"
"""Stands for any owner of a function in :attr:`CountedRegistry.filled_by`."""
_MOST_FILLING = 3
"""Reported lines that fill a registry."""


def lines_that_fill(sources: SourceIndex, registry: CountedRegistry) -> list[str]:
    """Return where the program adds entries to a registry again and again."""
    found = places_of(sources, registry.filled_by) or places_of(sources, registry.filled_through)
    return found[:_MOST_FILLING]


def places_of(sources: SourceIndex, calls: Iterable[str]) -> list[str]:
    """Return where such calls are made again and again, written as in the table of registries."""
    found: list[str] = []
    for call in calls:
        owner, _, function = call.rpartition(".")
        owners = set() if owner == _ANYTHING else {owner}
        found += places_that_call(sources, owners, {function}, repeatedly=True)
    return list(dict.fromkeys(found))


def lines_that_fill_registry_of(sources: SourceIndex, row: CensusRow) -> list[str]:
    """Return the same for the registry that a container is, if it is one."""
    registry = registry_of(row.path)
    return lines_that_fill(sources, registry) if registry is not None else []


_MANAGED = {
    "list": {"append", "extend", "insert"},
    "dict": {"update", "setdefault"},
    "Queue": {"put", "put_nowait"},
    "JoinableQueue": {"put", "put_nowait"},
}
"""What a Manager makes, and the methods that add to it."""


@dataclass(frozen=True)
class Managed:
    """A name that the program gives to something that a ``multiprocessing.Manager`` keeps."""

    name: str
    kind: str
    """``list``, ``dict`` or ``Queue``."""
    made_at: str
    filled_at: list[str]
    """Lines that add to it again and again, by its name alone."""


def managed_names(sources: SourceIndex) -> list[Managed]:
    """Return what the program has Managers keep."""
    program = sources.program
    made = program.mentioning("Manager")
    managers = set().union(*(_given_names(s.node, {"Manager"}, set()) for s in made))
    found = []
    for kind, methods in _MANAGED.items() if managers else ():
        for statement in program.mentioning(kind):
            for name in sorted(_given_names(statement.node, {kind}, managers)):
                adding = places_that_call(sources, {name}, methods, repeatedly=True)
                adding += [
                    sources.place(s)
                    for s in (program.mentioning(name) if kind == "dict" else [])
                    for target in (s.node.targets if isinstance(s.node, ast.Assign) else [])
                    if isinstance(target, ast.Subscript) and dotted(target.value) == name
                    if sources.heat.of(s)
                ]
                filled_at = list(dict.fromkeys(adding))
                found.append(Managed(name, kind, sources.place(statement), filled_at))
    return found


def _given_names(node: ast.AST, functions: set[str], owners: set[str]) -> set[str]:
    found = set()
    for target, value in bound_in(node):
        called = value.func if isinstance(value, ast.Call) else target
        is_named = called is not target and last_name(called) in functions
        if is_named and (not owners or _is_one_of(called, owners, functions)):
            found.add(last_name(target))
    return found - {""}


def calls_that_create_graphs(sources: SourceIndex) -> list[FeedingLine]:
    """Return the calls of ``backward`` with ``create_graph``: gradients keep their graphs by it."""
    found = [
        FeedingLine(
            file=statement.file,
            line=call.lineno,
            text=sources.files.text_at(statement.file, call.lineno),
            form="call",
        )
        for statement, call in sources.program.calls_of("backward")
        if isinstance(call.func, ast.Attribute)
        and (value := keyword_of(call, "create_graph")) is not None
        and not (isinstance(value, ast.Constant) and not value.value)
    ]
    return list(dict.fromkeys(found))


def _is_one_of(called: ast.expr, owners: set[str], functions: set[str]) -> bool:
    match called:
        case ast.Name(id=name):
            return "" in owners and name in functions
        case ast.Attribute(value=owner, attr=name) if name in functions:
            return not owners or last_name(owner) in owners
    return False


_STARTERS = frozenset(
    {
        "Thread", "Process", "Timer", "submit", "apply_async", "run_in_executor", "to_thread",
        "create_task", "ensure_future", "start_new_thread",
    }
)  # fmt: skip
_RUNNERS = frozenset({"Thread", "Process", "Timer"})


def run_in_threads(sources: SourceIndex) -> dict[CodeScope, set[CodeScope]]:
    """Return the functions that run beside the main thread, each with where its thread begins."""
    found: dict[CodeScope, set[CodeScope]] = {}
    for start in _starts(sources):
        pending = [start]
        while pending:
            function = pending.pop()
            starts = found.setdefault(function, set())
            if start not in starts:
                starts.add(start)
                pending += [
                    called
                    for statement in sources.program.statements_of(function)
                    for call in calls_in(statement.node)
                    for called in sources.types.called_functions(call.func, statement.scope)
                ]
    return found


_TAKE_COROUTINES = frozenset({"start_soon", "run_coroutine_threadsafe"})


def places_that_start(sources: SourceIndex, name: str, file: str, line: int) -> list[str]:
    """Return where tasks or threads of a function are started, as ``file:line``, each once.

    It is given by its qualified name, its file and its first line. Where no call of a library that
    starts them has it as an argument, the places that call it, or hand it on, count:
    ``self.spawn(self.heartbeat())``.
    """
    found: list[tuple[Statement, ast.Call]] = []
    if name.endswith(".run"):
        found = [*sources.program.calls_of(name.split(".")[-2])]
    for starter in sorted(_STARTERS | _TAKE_COROUTINES):
        found += [
            (statement, call)
            for statement, call in sources.program.calls_of(starter)
            for function in _functions_among_arguments(sources, statement, call)
            if _same_file(function.module.file, file) and function.first_line == line
        ]
    if not found:
        last = name.rpartition(".")[2]
        handing_on = [
            (statement, call)
            for statement, call in sources.program.calls_mentioning(last)
            if last in map(last_name, arguments_of(call))
        ]
        found = [
            (statement, call)
            for statement, call in (*sources.program.calls_of(last), *handing_on)
            if not any(node.value is call for node in own_parts(statement.node, ast.Await))
        ]
    return list(dict.fromkeys(sources.place(statement, call) for statement, call in found))


def _starts(sources: SourceIndex) -> list[CodeScope]:
    program = sources.program
    runs = program.functions.get("run", [])
    found = [
        run
        for run in runs
        if run.parent is not None
        and any(bases_of(cls) & _RUNNERS for cls in sources.types.ancestors(run.parent))
    ]
    for starter in sorted(_STARTERS):
        for statement, call in program.calls_of(starter):
            found += _functions_among_arguments(sources, statement, call)
    return found


def _functions_among_arguments(
    sources: SourceIndex, statement: Statement, call: ast.Call
) -> list[CodeScope]:
    found: list[CodeScope] = []
    for argument in arguments_of(call):
        function = argument.func if isinstance(argument, ast.Call) else argument
        found += sources.types.called_functions(function, statement.scope)
    return found
