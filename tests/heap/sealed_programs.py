"""A library that changes, and the heap's answer on it from a seal and from a whole walk.

Run as a script it changes the library at random and prints where the two answers differ; with
``light`` it also changes many light objects of the user's:

    python tests/heap/sealed_programs.py [SEED [STEPS [light]]]
"""

from __future__ import annotations

import gc
import random
import re
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from leakscope.heap.graph import Seal, walk
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.roots import SealedRoots, find_roots, walk_request
from leakscope.heap.rows import RowMaker, SealedRows

LIBRARY = "a_library_that_changes"
CUTOFF = 2048
DOUBT = 4 * CUTOFF
"""So much may seem to be held by native code before all edges are looked at."""
ROUND = 17
"""Walks in which everything that is sealed is looked at."""


class Thing:
    """An instance with attributes of its own."""

    def __init__(self, weight: int) -> None:
        self.payload = bytearray(weight)
        self.tags = {"weight": weight}


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self, first: object, second: object) -> None:
        self.first = first
        self.second = second


class Pair(NamedTuple):
    first: float
    second: list[float]


class Named(dict[str, int]):
    """A dict with attributes."""

    def __init__(self, name: str) -> None:
        super().__init__({name: 1000})
        self.name = name + "!"


SHARED = [f"a label of several {i}" * (1 + 5 * i) for i in range(12)]


def library() -> types.ModuleType:
    """Return a module of nobody's code, with containers of every kind."""
    module = types.ModuleType(LIBRARY)
    module.__file__ = "/usr/lib/a_library_that_changes.py"
    module.registry = []
    module.cache = {}
    module.counts = {}
    module.queue = deque()
    module.ordered = OrderedDict()
    module.names = set()
    module.thing = Thing(64)
    module.slotted = Slotted([], {})
    module.nested = {"a": {"b": {"c": []}}}
    module.closure = _closure([])
    module.frozen = (1, "two", [3])
    return module


def _closure(kept: list[object]) -> Callable[[object], int]:
    def add(item: object) -> int:
        kept.append(item)
        return len(kept)

    return add


@dataclass
class Program:
    """A program whose library changes."""

    module: types.ModuleType
    mine: list[object]
    """What the user's own names keep."""
    random: random.Random

    def data(self) -> object:
        """Return something that weighs a little, of any type."""
        n = self.random.randrange(1, 40)
        make: list[Callable[[], object]] = [
            lambda: {"id": n, "text": "x" * (200 * n), "items": [n * 1.5] * n},
            lambda: [str(n) * 300, n],
            lambda: ("t" * 500, [n], {"n": n}),
            lambda: Thing(100 * n),
            lambda: Slotted([n] * n, ("s" * 700,)),
            lambda: bytes(300 * n),
            lambda: deque(range(1000, 1000 + 10 * n)),
            lambda: _closure([bytes(200 * n)]),
            lambda: {("k", n, i): i * 2000 for i in range(n)},
            lambda: frozenset((n, "f" * 400 + str(n))),
        ]
        return self.random.choice(make)()

    def light(self) -> object:
        """Return something of several objects that weighs next to nothing."""
        n = self.random.randrange(1, 40)
        shared = SHARED[n % len(SHARED)]
        make: list[Callable[[], object]] = [
            lambda: {"id": n, "score": n + 0.5, "box": [n * 1.5, n * 2.5], "label": shared},
            lambda: [str(n * 1000), (n, n * 3.5, {"label": shared, f"key {n * 7}": [n * 9.5]})],
            lambda: (n * 1000, shared, [shared, n * 1001], ()),
            lambda: Thing(n),
            lambda: Slotted([n * 1000], {"label": shared}),
            lambda: {n * 1000 + i: {shared, f"text {n} {i}"} for i in range(3)},
            lambda: deque([n * 1.5, [n * 2.5]], maxlen=3),
            lambda: defaultdict(list, {shared: [n * 1.5]}),
            lambda: OrderedDict([(f"a {n}", n * 1.5), (shared, [n])]),
            lambda: frozenset([(n, n * 1.5), "f" * n]),
            lambda: Pair(n * 1.5, [n * 2.5]),
            lambda: [[[[[[[[n * 1.5]]]]]]]],
            lambda: {
                "when": datetime(2026, 1, 1 + n % 28, tzinfo=timezone.utc),
                "kind": Slotted,
                "call": gc.collect,
            },
            lambda: [Named("x" * n), {"raw": bytes(n), "z": complex(n, n), "large": 10**n}],
            lambda: bytearray(n),
        ]
        return self.random.choice(make)()


Step = Callable[[Program], None]


def _containers(program: Program) -> list[list[object]]:
    module = program.module
    return [module.registry, module.slotted.first, module.nested["a"]["b"]["c"], module.frozen[2]]


def _keep(program: Program) -> None:
    program.random.choice(_containers(program)).append(program.data())


def _keep_many(program: Program) -> None:
    where = program.random.choice(_containers(program))
    where.extend(program.data() for _ in range(20))


def _let_go(program: Program) -> None:
    where = program.random.choice(_containers(program))
    del where[: program.random.randrange(len(where) + 1)]


def _replace(program: Program) -> None:
    where = program.random.choice(_containers(program))
    if where:
        where[program.random.randrange(len(where))] = program.data()


def _remember(program: Program) -> None:
    program.module.cache[program.random.randrange(30)] = program.data()


def _forget(program: Program) -> None:
    program.module.cache.pop(program.random.randrange(30), None)


def _count(program: Program) -> None:
    for _ in range(50):
        program.module.counts[f"key {program.random.random()}"] = program.random.randrange(
            1000, 9999
        )


def _forget_counts(program: Program) -> None:
    program.module.counts.clear()


def _set_attribute(program: Program) -> None:
    setattr(program.module.thing, f"extra{program.random.randrange(4)}", program.data())


def _set_global(program: Program) -> None:
    setattr(program.module, f"name{program.random.randrange(6)}", program.data())


def _queue(program: Program) -> None:
    program.module.queue.append(program.data())
    if len(program.module.queue) > 12:
        program.module.queue.popleft()


def _order(program: Program) -> None:
    program.module.ordered[program.random.randrange(50)] = program.data()


def _add_name(program: Program) -> None:
    program.module.names.add("n" * 300 + str(program.random.random()))


def _close_over(program: Program) -> None:
    program.module.closure(program.data())


def _replace_closure(program: Program) -> None:
    program.module.closure = _closure([program.data()])


def _grow_within(program: Program) -> None:
    """Let something grow that the library has kept for a while."""
    found = [item for item in program.module.registry if type(item) is dict and "items" in item]
    if found:
        program.random.choice(found)["items"].append(program.data())


def _take_over(program: Program) -> None:
    """Let a name of the user's lead to what the library keeps."""
    if program.module.registry:
        program.mine.append(program.random.choice(program.module.registry))


def _hand_over(program: Program) -> None:
    """Let the library keep what a name of the user's leads to."""
    if program.mine:
        program.module.registry.append(program.random.choice(program.mine))


def _give_up(program: Program) -> None:
    program.mine.clear()


def _make_mine(program: Program) -> None:
    program.mine.append(program.data())


def _make_many_light(program: Program) -> None:
    program.mine.append([program.light() for _ in range(60)])


def _mine(program: Program) -> list[Any]:
    """Return a list of many light objects that the user's names lead to."""
    found = [item for item in program.mine if type(item) is list and len(item) >= 40]
    return program.random.choice(found) if found else [program.light() for _ in range(2)]


def _replace_light(program: Program) -> None:
    where = _mine(program)
    where[program.random.randrange(len(where))] = program.light()


def _let_go_light(program: Program) -> None:
    where = _mine(program)
    for _ in range(5):
        where[program.random.randrange(len(where))] = None


def _grow_within_light(program: Program) -> None:
    """Let something grow that lies deep in a light object of the user's."""
    found = program.random.choice(_mine(program))
    if type(found) is dict:
        found.setdefault("grows", []).extend(program.light() for _ in range(12))
    elif type(found) is list:
        found.append(program.data())
    elif isinstance(found, Thing):
        found.tags[program.random.random()] = program.data()


def _tie_light(program: Program) -> None:
    """Let a light object refer to another, to itself, or to a container that others hold."""
    where = _mine(program)
    found = program.random.choice(where)
    other = program.random.choice([found, program.random.choice(where), where, program.mine])
    if type(found) is dict:
        found["other"] = other
    elif type(found) is list:
        found.append(other)


def _share_light(program: Program) -> None:
    """Let a container of the user's hold parts of light objects too."""
    where = _mine(program)
    program.mine.append([v for r in where if type(r) is dict for v in r.values()])


def _hand_over_light(program: Program) -> None:
    """Let the library keep light objects alone, or the user what the library kept."""
    where, theirs = _mine(program), program.module.registry
    theirs.extend(where.pop() for _ in range(min(len(where), 10)))
    where.extend(theirs.pop() for _ in range(min(len(theirs), 5)))


def _collect(_: Program) -> None:
    gc.collect()


def _freeze(_: Program) -> None:
    gc.freeze()


def _unfreeze(_: Program) -> None:
    gc.unfreeze()


def _import(program: Program) -> None:
    name = f"{LIBRARY}_{len(sys.modules)}"
    module = types.ModuleType(name)
    module.__file__ = f"/usr/lib/{name}.py"
    module.table = [program.data() for _ in range(10)]
    module.Table = type("Table", (), {"rows": [program.data()]})
    sys.modules[name] = module


def _reuse_addresses(program: Program) -> None:
    """Free objects and make others of their types in their places."""
    module = program.module
    kept = [dict(item) for item in module.registry if type(item) is dict]
    module.registry[:] = [item for item in module.registry if type(item) is not dict]
    module.slotted.first.extend({"again": [i, "y" * 100]} for i in range(len(kept)))


def _make_cycle(program: Program) -> None:
    """Leave garbage behind that only the collector frees."""
    first: dict[str, object] = {"data": program.data()}
    first["self"] = first


def _start_thread(program: Program) -> None:
    started, end = threading.Event(), program.module.__dict__.setdefault("ends", [])
    stop = threading.Event()
    end.append(stop)

    def wait(data: object) -> None:
        started.set()
        stop.wait()
        del data

    threading.Thread(target=wait, args=(program.data(),), daemon=True).start()
    started.wait()


def _end_threads(program: Program) -> None:
    ends = program.module.__dict__.setdefault("ends", [])
    for stop in ends:
        stop.set()
    ends.clear()
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(5)


def _generate(data: object) -> Iterator[object]:
    yield data
    yield data


def _suspend(program: Program) -> None:
    generator = _generate(program.data())
    next(generator)
    program.module.registry.append(generator)


_ALL: dict[str, Step] = {
    name.lstrip("_"): step
    for name, step in list(globals().items())
    if isinstance(step, types.FunctionType)
    and name.startswith("_")
    and name not in {"_closure", "_containers", "_generate", "_mine"}
}
STEPS = {name: step for name, step in _ALL.items() if "light" not in name}
"""What may happen between two looks, by name."""
LIGHT_STEPS = {name: step for name, step in _ALL.items() if "light" in name}
"""What may happen to many light objects that the user keeps."""


@dataclass
class Answer:
    """What a walk says, in numbers."""

    heap_bytes: int
    native_bytes: int
    garbage_bytes: int
    rows: dict[str, int]
    """Bytes that are retained by path, of the user's names and of the library's."""


class Looker:
    """Looks at the same moment by a whole walk and from a seal."""

    def __init__(self, root: str) -> None:
        self._ownership = Ownership(root)
        self._definitions = Definitions(self._ownership)
        self._seal, self._roots, self._rows = Seal(), SealedRoots(), SealedRows()
        self.own: list[object] = []
        """Objects of ours that the next walks are given."""

    def whole(self) -> Answer:
        return self._look(None, None, None)

    def sealed(self) -> Answer:
        return self._look(self._seal, self._roots, self._rows)

    def differences(self) -> list[str]:
        """Return in what the two answers differ by more than they may.

        Immutable objects are looked at in turns: the answer from the seal is that of a round.
        """
        for _ in range(ROUND):
            self.sealed()
        return differences(self.whole(), self.sealed())

    def _look(
        self, seal: Seal | None, sealed: SealedRoots | None, known: SealedRows | None
    ) -> Answer:
        roots = find_roots(self._ownership, self._definitions, full=True, sealed=sealed)
        base = len(sealed.modules) - len(roots.library_objects) if sealed else 0
        request = replace(
            walk_request(roots, full=True, own=[self, *self.own]),
            cutoff_bytes=CUTOFF,
            max_selected=20_000,
            folds=seal is not None,
            lasting_from=len(roots.named),
            root_base=base,
        )
        result = walk(request, seal=seal)
        maker = RowMaker(result, roots, self._ownership, self._definitions, known)
        rows = {
            draft.path: sum(result.nodes.host_bytes[n] for n in (*draft.nodes, *draft.inner))
            for draft in maker.drafts()
            if maker.is_user(draft.first)
            or (
                re.fullmatch(rf"{LIBRARY}(_\d+|_\*)?·\w+", draft.path)
                and gc.is_tracked(result.nodes.objects[draft.first])
            )
        }
        assert result.native_bytes is not None
        assert result.garbage_bytes is not None
        return Answer(result.heap_bytes, result.native_bytes, result.garbage_bytes, rows)


def program(seed: int) -> Program:
    """Return a program whose library is imported."""
    module = library()
    sys.modules[LIBRARY] = module
    return Program(module, [], random.Random(seed))


def differences(whole: Answer, sealed: Answer) -> list[str]:
    """Return in what the answers differ by more than may be."""
    found = []
    for what in ("heap_bytes", "native_bytes", "garbage_bytes"):
        value, other = getattr(whole, what), getattr(sealed, what)
        if abs(value - other) > DOUBT + 0.001 * value:
            found.append(f"{what}: {value} by a whole walk, {other} from the seal")
    for path in whole.rows.keys() | sealed.rows.keys():
        value, other = whole.rows.get(path, 0), sealed.rows.get(path, 0)
        if abs(value - other) > DOUBT + 0.02 * value:
            found.append(f"{path}: {value} by a whole walk, {other} from the seal")
    return sorted(found)


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    run = program(seed)
    looker = Looker("/nowhere")
    looker.sealed()
    chosen = STEPS | LIGHT_STEPS if "light" in sys.argv else STEPS
    names = list(chosen)
    for at in range(steps):
        done = run.random.choices(names, k=run.random.randrange(1, 8))
        for name in done:
            chosen[name](run)
        for line in looker.differences():
            print(f"seed {seed}, look {at}, after {' '.join(done)}: {line}")
    _end_threads(run)


if __name__ == "__main__":
    main()
