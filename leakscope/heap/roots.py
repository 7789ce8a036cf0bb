"""Where names begin: the roots of a walk in the order in which a person would use them, and the
request made of them.

What lives long gives the better name: globals come before the locals of running functions, and
outer functions before those they call. So ``self.history`` stays ``main()·trainer.history`` however
many functions are running with an alias of it. Of one function's variables those come first that
are given their values outside of its loops: ``entry = journal[task]`` names a thing for a while.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import re
import signal
import sys
import threading
import types
from collections.abc import Iterable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any

from leakscope.heap import anatomy, compiled_code
from leakscope.heap.anatomy import locals_of, running_frames, without_locals
from leakscope.heap.bytecode import loop_depths, looped_over
from leakscope.heap.graph import SEALED_ROOT, WalkRequest
from leakscope.heap.labels import Facet, frame_of, is_generator
from leakscope.heap.ownership import Definitions, Ownership, all_modules, is_own_file, module_of
from leakscope.heap.waiting import alive_tasks, awaiting, loop_of
from leakscope.model.census import OUTPUT_HISTORY, Owner, RootKind

WORKER = "worker"
"""The function that a worker's own names are attributed to."""
_PACKAGE = __name__.partition(".")[0]
_SHELLS = frozenset({"IPython", "ipykernel"})
_MOST_TASKS = 500
"""Tasks whose variables are looked at: a service may have thousands that are alike."""
_MOST_CONTEXTS = 20
_QUEUES = ("_scheduled", "_ready", "_selector")
"""Where a loop of asyncio's keeps its timers, what it calls next, and its connections."""
_PYTHON_CALLABLES = (types.FunctionType, types.MethodType)
_MARKED = (("torch.nn.modules.module", "Module"), ("torch.optim.optimizer", "Optimizer"))
_NO_NAME = ".@"
"""What variables begin with that nobody wrote: those of comprehensions, and of pytest's asserts."""
_HISTORY = re.compile(r"__main__·_(_{0,2}|\d+|i{1,3}|i\d+|ih|oh|dh)")


@dataclass(slots=True)
class Root:
    """An object with a name of its own, and how that name is written."""

    obj: Any
    kind: RootKind
    path: str
    """``main()·trainer``, ``__main__·cache``; the bare module for the globals of a library, and
    ``library.run·self`` for a running function of one at which only full walks begin."""
    name: str
    owner: Owner | None
    user: bool = True
    facet: Facet = Facet.ITSELF


@dataclass(slots=True)
class Compiled:
    """How much of a function ``torch.compile`` keeps."""

    entries: int
    codes: int
    """Code objects that have the entries: each has a limit of its own."""
    bound: int | None
    """How many entries there may be; None where nothing bounds them."""


@dataclass(slots=True)
class Roots:
    """All roots of a census."""

    named: list[Root]
    """The user's, and after them the locals of running library functions."""
    user_count: int
    library_objects: list[tuple[Any, str]]
    """Namespaces and classes of libraries, with the module's name for a namespace."""
    hidden: list[Any]
    stages: list[int]
    """Indices of the user's roots at which those of one running function begin."""
    ownership: Ownership
    sealed: SealedRoots | None = None
    """Those of earlier walks, which go by numbers from :data:`SEALED_ROOT` on."""
    loops: list[object] = field(default_factory=list)
    """Event loops: every task leads to its own, and that to all that waits."""
    compiled: dict[str, Compiled] = field(default_factory=dict)
    """What was compiled, by the path of its roots."""
    _by_id: dict[int, list[str]] | None = None

    def objects(self) -> list[Any]:
        """Return what to walk from, in order."""
        return [root.obj for root in self.named] + [obj for obj, _ in self.library_objects]

    def root(self, number: int, obj: Any) -> Root:
        """Return the root of that number in the walk, which is ``obj``."""
        if number < len(self.named):
            return self.named[number]
        if number >= SEALED_ROOT and self.sealed is not None:
            module = self.sealed.modules[number - SEALED_ROOT]
        else:
            obj, module = self.library_objects[number - len(self.named)]
        return _library_root(obj, self.ownership.spoken_module(module))

    def is_namespace(self, number: int) -> bool:
        """Return whether a root is the globals of a library's module."""
        at = number - len(self.named)
        return 0 <= at < len(self.library_objects) and bool(self.library_objects[at][1])

    def is_of_a_call(self, number: int) -> bool:
        """Return whether a root is a local of a running function of a library."""
        return self.user_count <= number < len(self.named)

    def names_of(self, obj: object) -> list[str]:
        """Return the names of the user's that lead to an object at once."""
        if self._by_id is None:
            self._by_id = {}
            for root in self.named[: self.user_count]:
                self._by_id.setdefault(id(root.obj), []).append(root.name)
        return self._by_id.get(id(obj), [])

    def kind(self, number: int) -> RootKind:
        """Return from what kind of name that root starts."""
        return self.named[number].kind if number < len(self.named) else RootKind.LIBRARY


class SealedRoots:
    """The libraries' roots that walks with a seal were given: their modules' names, no object."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        """By the number that the seal gives a root: the module of a namespace, "" of a class."""
        self._seen: set[str] = set()

    def objects(self, ownership: Ownership) -> list[tuple[Any, str]]:
        """Return the libraries' roots that no walk was given so far, and remember them."""
        new = [name for name in list(sys.modules) if type(name) is str and name not in self._seen]
        self._seen.update(new)
        found = _library_objects(ownership, new)
        self.modules += [module for _, module in found]
        return found

    @property
    def own_bytes(self) -> int:
        """What is kept, in bytes."""
        return sys.getsizeof(self.modules) + sys.getsizeof(self._seen)


def find_roots(
    ownership: Ownership,
    definitions: Definitions,
    *,
    full: bool,
    sealed: SealedRoots | None = None,
    imported: Sequence[str] = (),
    unwound: Sequence[types.FrameType] = (),
    work_items: Mapping[str, Any] | None = None,
) -> Roots:
    """Return the roots: the user's and the locals of what they call; in full the library's too.

    ``work_items`` come before all others, by the names that they get. ``unwound`` are frames,
    outermost first, that a traceback keeps: what they hold has the names that it had while they
    ran. ``imported`` are modules whose globals and classes are library roots even if not in full.
    ``sealed`` has the libraries' roots that earlier walks were given: only new ones are returned.

    """
    generators = looped_over(lambda f: ownership.owns_code(f.f_code, f.f_globals))
    hidden: list[Any] = []
    stages: list[int] = []
    library: list[Root] = []
    user = _work_item_roots({**actors_of_ray(), **(work_items or {})}, definitions)
    found = _globals(ownership, definitions, hidden)
    history = [root for root in found if _is_history(root)]
    made = [root for root in found if not _is_history(root)]
    _add_by_depth(user, stages, made, _depths_of_globals())
    if history:
        stages.append(len(user))
        user += history
    calls = _called_by_user(ownership)
    tasks = _tasks()
    waiting = list(tasks)
    for frame in _outermost_first(unwound):
        if waiting and frame.f_code.co_flags & inspect.CO_COROUTINE:
            for locals_ in _locals_of_tasks(waiting, ownership, definitions, hidden):
                stages.append(len(user))
                user += locals_
            waiting = []
        if is_own_file(frame.f_code.co_filename):
            hidden += [value for _, value in locals_of(frame) if _is_own(value)]
        elif ownership.owns_code(frame.f_code, frame.f_globals):
            stages.append(len(user))
            made = _locals(frame, ownership, definitions, hidden)
            _add_by_depth(user, stages, made, loop_depths(frame.f_code))
            if id(frame) in generators:
                stages.append(len(user))
                function = definitions.qualname(frame.f_code)
                user += _generators(generators[id(frame)], function, definitions)
        elif full or frame in calls:
            made = _locals(frame, ownership, definitions, hidden, user=False)
            # What a full walk alone reaches is no call that every census shows.
            as_seen_in_full = (replace(r, path=r.path.replace("()·", "·", 1)) for r in made)
            library += made if frame in calls else as_seen_in_full
    for locals_ in _locals_of_tasks(waiting, ownership, definitions, hidden):
        stages.append(len(user))
        user += locals_
    kept, compiled = _compiled(definitions)
    kept += _signal_handlers(ownership)
    loops = {id(loop): loop for loop in map(loop_of, tasks)}
    kept += _queues_of_loops(loops.values())
    stages.append(len(user))
    user += kept
    if kept and not full:
        stages.append(len(user))
    objects = _library_objects(ownership, imported) if imported else []
    if full:
        objects = sealed.objects(ownership) if sealed else _library_objects(ownership)
    hidden += [anatomy.module_dict(module) for module in ownership.own_modules()]
    hidden += [finder for finder in list(sys.meta_path) if _is_own(finder)]
    return Roots(
        user + library,
        len(user),
        objects,
        hidden,
        stages,
        ownership,
        sealed,
        [*loops.values()],
        compiled,
    )


def actors_of_ray() -> dict[str, Any]:
    """Return the actors that this worker of Ray's has, by the names of their classes."""
    if "ray" not in sys.modules:
        return {}
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    actors = getattr(worker, "actors", None)
    return {type(actor).__qualname__: actor for actor in list(actors.values())} if actors else {}


def _signal_handlers(ownership: Ownership) -> list[Root]:
    """Return the roots for the user's handlers of signals, which C code alone refers to."""
    roots = []
    for number in signal.Signals:
        handler: Any = signal.getsignal(number)
        code = handler.__code__ if type(handler) in _PYTHON_CALLABLES else None
        if code is not None and ownership.owns_code(code, handler.__globals__):
            owner = Owner(kind="module", name="signal", module="signal")
            name = f"getsignal({number.name})"
            path = f"signal·{name}"
            roots.append(Root(handler, RootKind.LIBRARY, path, f"signal.{name}", owner, user=False))
    return roots


def _queues_of_loops(loops: Iterable[object]) -> list[Root]:
    """Return the roots for what event loops of asyncio's are to call, and for their connections."""
    owner = Owner(kind="module", name="loop", module="asyncio")
    queues = (
        (name, parts[name])
        for parts in (anatomy.instance_dict(loop) or {} for loop in loops)
        for name in _QUEUES
        if name in parts
    )
    return [
        Root(queue, RootKind.LIBRARY, f"asyncio·loop.{name}", f"loop.{name}", owner, user=False)
        for name, queue in queues
    ]


def _compiled(definitions: Definitions) -> tuple[list[Root], dict[str, Compiled]]:
    found: dict[str, list[compiled_code.CachedCode]] = {}
    for compiled in compiled_code.compiled_code():
        name = definitions.qualname(compiled.code)
        before, dot, own = name.rpartition(".")
        spoken = compiled_code.spoken_name(own, compiled.code.co_filename)
        if spoken == compiled_code.spoken_name(own):
            spoken = f"{before}{dot}{spoken}"
        found.setdefault(without_locals(spoken), []).append(compiled)
    roots, counts, bound = [], {}, compiled_code.limits().bound
    for name, codes in found.items():
        path = f"{compiled_code.MARK}·{name}"
        owner = definitions.function(codes[0].code, "", "", name)
        roots += [
            Root(part, RootKind.GLOBAL, path, f"compiled code of {name}", owner)
            for code in codes
            for part in code.parts()
        ]
        entries = sum(len(code.entries) for code in codes)
        counts[path] = Compiled(entries, len(codes), bound if len(codes) == 1 else None)
    return roots, counts


def _add_by_depth(
    user: list[Root], stages: list[int], found: list[Root], depths: Mapping[str, int]
) -> None:
    """Add roots to the user's: those that loops make come after the others, in stages of theirs."""
    by_depth: dict[int, list[Root]] = {}
    for root in found:
        by_depth.setdefault(depths.get(_variable(root), 0), []).append(root)
    for depth in sorted(by_depth):
        if depth:
            stages.append(len(user))
        user += by_depth[depth]


def _variable(root: Root) -> str:
    """Return what :func:`_depths_of_globals` and :func:`loop_depths` call it."""
    return root.path if root.kind is RootKind.GLOBAL else root.path.rpartition("·")[2]


def _depths_of_globals() -> dict[str, int]:
    """Return how deep in its loops a running module makes its variables, by their paths."""
    depths: dict[str, int] = {}
    for _, frame in running_frames():
        if frame.f_code.co_name == "<module>":
            module = module_of(frame.f_globals)
            made = loop_depths(frame.f_code)
            depths |= {f"{module}·{name}": depth for name, depth in made.items()}
    return depths


def _called_by_user(ownership: Ownership) -> list[types.FrameType]:
    """Return the frames of the calling thread from the outermost of the user's inwards."""
    me = threading.get_ident()
    mine = [frame for thread, frame in running_frames() if thread == me]
    while mine and not ownership.owns_code(mine[-1].f_code, mine[-1].f_globals):
        mine.pop()
    return mine


def _outermost_first(unwound: Sequence[types.FrameType]) -> list[types.FrameType]:
    """Return the frames of all threads: the calling thread's, the main thread's, the others'.

    A census by time comes from a thread without frames of the program's. What several threads hold
    has the main thread's name then too.
    """
    first = (threading.get_ident(), threading.main_thread().ident or 0)
    by_thread: dict[int, list[types.FrameType]] = {thread: [] for thread in first}
    for thread, frame in running_frames():
        by_thread.setdefault(thread, []).append(frame)
    mine, *others = ([*reversed(stack)] for stack in by_thread.values())
    left = [frame for frame in unwound if frame not in mine]
    # Before the frames that now handle the exception, and may have a name for it.
    handler = max((at for at, frame in enumerate(mine, 1) if frame in unwound), default=len(mine))
    return [*mine[:handler], *left, *mine[handler:], *(f for stack in others for f in stack)]


def _tasks() -> list[Any]:
    named = [(type(task).get_name(task), task) for task in alive_tasks()]
    return [task for _, task in sorted(named, key=lambda pair: (len(pair[0]), pair[0]))]


def _locals_of_tasks(
    tasks: Sequence[Any], ownership: Ownership, definitions: Definitions, hidden: list[Any]
) -> list[list[Root]]:
    """Return the roots for the variables of tasks, of each the outermost frame's first.

    While the loop waits for events no frame of theirs is running, and what their variables hold
    would have no name. Those of the oldest task of each loop, its main one, come first: what a
    thousand calls hold that wait has the name of what they wait in. The others are one stage,
    whichever is running: each leads to others that wait for the same, and names must not depend on
    that.
    """
    oldest = {id(loop_of(task)): task for task in reversed(tasks)}
    mains = [task for task in tasks if task is oldest[id(loop_of(task))]]
    others = [task for task in tasks if task is not oldest[id(loop_of(task))]]
    return [
        [
            root
            for task in some[:_MOST_TASKS]
            for frame in awaiting(type(task).get_coro(task))
            if ownership.owns_code(frame.f_code, frame.f_globals)
            for root in _locals(frame, ownership, definitions, hidden)
        ]
        for some in (mains, others)
    ]


def _globals(ownership: Ownership, definitions: Definitions, hidden: list[Any]) -> list[Root]:
    roots: list[Root] = []
    classes: dict[int, type] = {}
    contexts: list[Context] = []
    for module, names in ownership.user_modules():
        for name, value in list(names.items()):
            if type(name) is not str:
                continue
            if anatomy.is_instance(value, types.ModuleType) or _is_of_a_shell(value):
                continue
            if _is_own(value):
                hidden.append(value)
            elif anatomy.is_instance(value, type):
                _add_class(value, ownership, classes)
            elif not _is_plumbing(name) and not compiled_code.is_made_by_dynamo(name):
                owner = definitions.module(module, names, name)
                called = ownership.spoken_module(module)
                spoken = name if module == "__main__" else f"{called}.{name}"
                if name == "Out" and names.get("_oh") is value:
                    spoken = OUTPUT_HISTORY
                roots.append(Root(value, RootKind.GLOBAL, f"{called}·{name}", spoken, owner))
                if type(value) is ContextVar:
                    contexts = contexts or _contexts()
                    roots += _values_of(value, contexts, roots[-1])
    return roots + [_class_root(cls, definitions) for cls in classes.values()]


def _contexts() -> list[Context]:
    """Return the calling thread's context and those of the oldest tasks, which others copy."""
    parts = (item for task in _tasks()[:_MOST_CONTEXTS] for item in gc.get_referents(task))
    return [copy_context(), *(item for item in parts if type(item) is Context)]


def _values_of(variable: ContextVar[Any], contexts: list[Context], root: Root) -> list[Root]:
    """Return the roots for what a context variable has in each context, each value once."""
    values = {id(v := context[variable]): v for context in contexts if variable in context}
    path = f"{root.path}[*]"
    return [Root(value, RootKind.GLOBAL, path, root.name, root.owner) for value in values.values()]


def _is_history(root: Root) -> bool:
    """IPython keeps what it printed as ``Out[3]``, ``_3`` and ``_``: the first says it best."""
    return _HISTORY.fullmatch(root.path) is not None


def _is_of_a_shell(value: Any) -> bool:
    """IPython puts ``get_ipython`` and ``exit`` among the user's names: they lead to all it has."""
    if type(value) is types.FunctionType:
        home = module_of(value.__globals__)
    else:
        owner = value.__self__ if type(value) is types.MethodType else value
        home = anatomy.module_name(type(owner))
    return home.partition(".")[0] in _SHELLS


def _add_class(cls: type, ownership: Ownership, classes: dict[int, type]) -> None:
    if id(cls) in classes or not ownership.owns_class(cls):
        return
    classes[id(cls)] = cls
    for _, value in anatomy.class_items(cls):
        if anatomy.is_instance(value, type):
            _add_class(value, ownership, classes)


def _class_root(cls: type, definitions: Definitions) -> Root:
    spoken = anatomy.qualname(cls)
    path = f"{anatomy.module_name(cls)}·{spoken}"
    return Root(cls, RootKind.CLASS_ATTRIBUTE, path, spoken, definitions.class_(cls, ""))


def _locals(
    frame: types.FrameType,
    ownership: Ownership,
    definitions: Definitions,
    hidden: list[Any],
    *,
    user: bool = True,
) -> list[Root]:
    code = frame.f_code
    values = locals_of(frame)
    function = definitions.qualname(code, values[0][1] if values and code.co_argcount else None)
    module = module_of(frame.f_globals)
    spoken = without_locals(function)
    if not user:
        function, spoken = f"{module}.{function}", f"{module}.{spoken}"
    roots = []
    for name, value in values:
        if _is_own(value):
            hidden.append(value)
        elif name[0] not in _NO_NAME and not _is_foreign(value, ownership):
            owner = definitions.function(code, name, module, function)
            path = f"{function}()·{name}"
            kind = RootKind.LOCAL if user else RootKind.LIBRARY
            roots.append(Root(value, kind, path, f"{spoken}.{name}", owner, user))
    return roots


def _work_item_roots(work_items: Mapping[str, Any], definitions: Definitions) -> list[Root]:
    roots = []
    for name, value in work_items.items():
        if is_generator(value):
            roots += _generators([value], WORKER, definitions)
        else:
            roots.append(Root(value, RootKind.LOCAL, f"{WORKER}()·{name}", name, None))
    return roots


def _generators(generators: list[object], function: str, definitions: Definitions) -> list[Root]:
    """Return the roots for the generators that a function's loops run over and nobody else has."""
    roots = []
    for generator in generators:
        suspended = frame_of(generator)
        if suspended is not None:
            name = definitions.qualname(suspended.f_code)
            path = f"{function}()·{name}()"
            roots.append(Root(generator, RootKind.GENERATOR, path, without_locals(name), None))
    return roots


def _library_objects(
    ownership: Ownership, modules: Sequence[str] | None = None
) -> list[tuple[Any, str]]:
    """Return the globals of modules that are not the user's, by module, and their classes."""
    found: dict[int, tuple[Any, str]] = {}
    seen = {id(names) for _, names in ownership.user_modules()}
    for module, names in all_modules(modules):
        if id(names) not in seen and not _is_own_module(module):
            found.setdefault(id(names), (names, module))
            for cls in anatomy.classes_in(names):
                found.setdefault(id(cls), (cls, ""))
    return list(found.values())


def _library_root(obj: Any, module: str) -> Root:
    """Return the root for the globals of a library's module, or for one of its classes."""
    facet, path, name = Facet.GLOBALS, module, module
    if anatomy.is_instance(obj, type):
        module, own = anatomy.module_name(obj), anatomy.qualname(obj)
        facet, path, name = Facet.ITSELF, f"{module}·{own}", f"{module}.{own}"
    owner = Owner(kind="module", name=module, module=module)
    return Root(obj, RootKind.LIBRARY, path, name, owner, user=False, facet=facet)


def _is_own_module(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def _is_own(value: object) -> bool:
    if type(value) is types.FunctionType:  # one with a closure wraps a function of the user's
        return value.__closure__ is None and is_own_file(value.__code__.co_filename)
    cls = value if anatomy.is_instance(value, type) else type(value)
    return _is_own_module(anatomy.module_name(cls))  # type: ignore[arg-type]


def _is_foreign(value: Any, ownership: Ownership) -> bool:
    """A class or module of somebody else's says nothing about who refers to it."""
    if anatomy.is_instance(value, type):
        return not ownership.owns_class(value)
    return anatomy.is_instance(value, types.ModuleType)


def _is_plumbing(name: str) -> bool:
    """Return whether a global is the interpreter's; warnings gather in one, each text once."""
    return name.startswith("__") and name.endswith("__") and name != "__warningregistry__"


def walk_request(roots: Roots, *, full: bool, own: Sequence[object] = ()) -> WalkRequest:
    """Return the request of a walk from ``roots``, to be refined by the caller.

    In ``full`` it walks libraries, native-held objects and garbage too; ``own`` are further objects
    of leakscope's.
    """
    marked: list[Any] = [getattr(sys.modules.get(module), name, None) for module, name in _MARKED]
    module_and_optimizer = tuple(itertools.takewhile(lambda cls: cls is not None, marked))
    return WalkRequest(
        roots=roots.objects(),
        library_from=roots.user_count if full else len(roots.named),
        full=full,
        barriers=roots.loops,
        hidden=[*roots.hidden, *own, roots],
        stages=roots.stages,
        marked_types=module_and_optimizer,
        late_types=(*module_and_optimizer[1:], functools._lru_cache_wrapper),
    )
