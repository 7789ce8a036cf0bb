"""The heap as a graph: the request to a walk and its answer, whichever engine does it.

Two engines answer: ``_native`` (C, no Python runs while it walks) and ``reference`` (Python, the
fallback). Both follow ``tp_traverse`` from the roots, see through the payloads that it can't see
(tensor storages, autograd graphs, array data), find the dominators and keep strong references only
to what the answer names. The fallback leaves ``others``, ``holders``, ``circle``, ``unused_bytes``
and the graph of an answer empty.

What is never entered from any root, unless it is a root itself: types, modules, and the globals
and builtins of functions and frames. A class or module of the user's is walked by making it (or its
dict) a root. Those that came while the program ran and that nobody can import are entered, where a
:class:`GraphBaseline` tells: who refers to them keeps all that they have.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from leakscope.heap import reference
from leakscope.heap.adapters.buffers import known_types
from leakscope.heap.adapters.tensor import Parts, TensorAccess, read_parts, tensor_access
from leakscope.heap.anatomy import _native
from leakscope.heap.pausing import is_in_backward, letting_others_go_on, wait_for_autograd

NATIVE = -1
"""Root of what only native code holds: more references than the walk found."""
GARBAGE = -2
"""Root of what nothing reaches: it awaits the collector."""
OTHER = -3
"""Root of what only barriers reach, such as classes made at run time."""


SEALED_ROOT = 1 << 24
"""From this number on the root is a lasting one of an earlier walk: see :class:`Seal`."""
PATIENCE_SECONDS = 0.02
"""So long a walk waits for other threads that change gradients: its roots were found before."""
MOST_GROUPS = 62


@dataclass(frozen=True)
class WalkRequest:
    """What to walk and what to answer."""

    roots: list[object]
    """Objects with names, the most human first; the user's before the library's. An object may be
    given twice: the first counts."""
    library_from: int | None = None
    """Index of the first library root, walked only over what the user's roots did not reach."""
    stages: list[int] = field(default_factory=list)
    """Indices of user roots at which a stage begins. What the roots of a stage reach is theirs
    before those of the next are looked at, which only add what they alone reach: an object is not
    renamed because a function that is running has another name for it."""
    lasting_from: int = 0
    """Index of the first library root that lasts, which a seal may keep: the locals of running
    functions before it don't."""
    root_base: int = 0
    """The number that a seal gives to that root: how many lasting roots it was given before."""
    full: bool = False
    """Walk the rest of the collector's objects too: library roots, native-held, garbage."""
    barriers: list[object] = field(default_factory=list)
    """Objects not entered from user roots (a full walk enters them from library roots)."""
    hidden: list[object] = field(default_factory=list)
    """leakscope's own objects: never entered, never answered; weighed apart in a full walk."""
    marked_types: tuple[type, ...] = ()
    """Classes that tensors are attributed to, such as ``(Module, Optimizer)``: ``Tensors.mark``."""
    late_types: tuple[type, ...] = ()
    """Classes whose instances are entered after everything else that the user's names reach:
    optimizers and caches refer to what has a better name elsewhere."""
    cutoff_bytes: int = 16384
    """Objects are selected that retain this much, or under a user root reach this much first."""
    max_selected: int = 400
    max_depth: int = 64
    """Objects further than this from their root are not selected: nobody would write that name."""
    graph_budget: int = 200_000
    folds: bool = False
    """Let light objects that only one container of the user's holds, with all that only they keep,
    count for it: they have no nodes of their own. What is answered is the same, but for what
    ``Group`` says of objects that several references within such an object share. The reference
    engine doesn't, nor does a walk that reports pinned objects or types."""
    keep_graph: bool = False
    pinned: list[object] = field(default_factory=list)
    """Objects that are selected whatever they weigh and at any depth, and all that name them.
    Those that refer to them are answered too: ``Nodes.referrers``."""
    count_types: bool = False
    """Add up all objects by type: ``WalkResult.types``."""
    circle_bytes: int = 1 << 20
    """Circles of selected garbage are looked for if it retains this much together."""
    needs_autograd: bool = True
    """Wait a moment where other threads change gradients and graphs; otherwise neither is read."""
    own_passes: int = 0
    """How many of the backward passes under way are the calling thread's: :func:`walk` sees."""
    max_groups: int = 6
    max_samples: int = 3
    new_samples: int = 0
    """Objects of each type that are answered of what is new and no name reaches, with a baseline:
    ``TypeTotal.samples``."""


class Group(msgspec.Struct, frozen=True):
    """Objects of one type that a selected node alone keeps alive, one dominator step below it.

    A walk answers with tens of thousands of them: a ``Struct`` is made in C.
    """

    type: type
    count: int
    bytes: int
    """What they retain, on all devices."""
    samples: list[object]
    unused_bytes: int = 0
    """What of that no tensor and no array can read, on all devices."""


@dataclass
class Nodes:
    """The selected objects and the ancestors that name them, as columns; a parent comes first."""

    objects: list[Any]
    parent: list[int]
    """Index here of the object on the shortest path from the root; -1 at a root."""
    root: list[int]
    """Index in the request's roots, or NATIVE, GARBAGE, OTHER."""
    dominator: list[int]
    """Index here of the nearest *selected* object that retains this one; -1 without one."""
    selected: list[bool]
    """False: only here because it names another."""
    shallow_bytes: list[int]
    host_bytes: list[int]
    device_bytes: list[dict[str, int]]
    """Retained bytes per device other than the host."""
    reached_bytes: list[dict[str, int]]
    """Bytes per device, ``host`` included, whose name leads through this object: what it retains
    and what others keep alive too. Every byte is reached through one object of a level only."""
    unused_bytes: list[dict[str, int]]
    """Of the retained bytes per device, ``host`` included, what no tensor and no array can read:
    see ``native/unread.c``. Empty where all can be read."""
    graph_nodes: list[int]
    keeps_graph: list[bool]
    """It is a tensor with a ``grad_fn``."""
    holds: list[list[Group]]
    """For selected objects: what they hold, the heaviest types first."""
    number: list[int]
    referrers: list[list[int]]
    """For pinned objects: indices here of the first objects, eight at most, that were seen to
    refer to them, from wherever. A class's own instances are not among them."""
    others: list[list[int]]
    """For selected lists, dicts, sets and deques of the user's: indices here of those that refer to
    them alongside the one that names them."""
    holders: list[list[list[int]]]
    """For selected containers of the user's that name much and keep little of it alive alone: of
    each of some sampled items, indices here of the others that hold it. See
    ``native/holders.c``."""
    circle: list[list[int]]
    """For the heaviest garbage: indices here of those on the circle that keeps it from being freed
    at once, each referring to the next, the last to the first. See
    ``native/circles.c``."""
    sealed: list[int]
    """Number of the object in the seal; -1 where the walk reached it. Where something changed that
    leads to the object, its name may be another: there it is -2 less the number."""
    recent_bytes: list[int]
    """Of the reached bytes of the host, those of objects that came since the baseline was made; -1
    unless the walk was a whole one that was given a baseline."""


def lineage(column: list[int], node: int) -> Iterator[int]:
    """Yield a node and all above it by a column such as ``Nodes.parent``, the nearest first."""
    while node >= 0:
        yield node
        node = column[node]


@dataclass
class Tensors:
    """Every tensor that was reached, as columns; a storage is shared by all its views."""

    storage: array[int]
    """Number of the storage; -1 without one (meta, functorch). A tensor that consists of several
    stands here once for each."""
    nbytes: array[int]
    device: array[int]
    holder: array[int]
    """Index in ``Nodes`` of the nearest selected object on the path from the root, itself included;
    -1 without one."""
    root: array[int]
    mark: array[int]
    """Index in ``marked_types`` of the nearest instance on the path from the root; -1 without."""
    flags: array[int]
    """``PARAMETER | GRADIENT | KEEPS_GRAPH | BY_GRAPH | FROZEN``."""
    address: array[int]
    """Where the tensor's storage lies, on its device; 0 where that isn't known."""


PARAMETER = 1
GRADIENT = 2
"""The ``.grad`` of a leaf."""
KEEPS_GRAPH = 4
BY_GRAPH = 8
"""Reached through an autograd graph only."""
FROZEN = 16
"""The gradient of a tensor that doesn't require any."""


@dataclass(frozen=True)
class TypeTotal:
    """All objects of one type that were walked."""

    type: type
    count: int
    bytes: int
    """Shallow bytes, with the data that they own; a tensor's storage is not among them."""
    payload_bytes: dict[str, int]
    """Storages, mappings and buffers per device, ``host`` included; what several share is counted
    once, for the object through which it was reached first."""
    samples: list[object] = field(default_factory=list)
    """Some of them, the youngest first, where that was requested."""


@dataclass(frozen=True)
class HeadTotal:
    """New objects of one type to which somebody refers whom the walk can't see: heads of what hangs
    there.
    """

    type: type
    count: int
    bytes: int
    """Host bytes that are reached through them first."""
    least_references: int
    most_references: int
    """Such references of one of them."""
    samples: list[object]


@dataclass
class WalkResult:
    """The answer. Drop it soon: it keeps the selected objects alive."""

    nodes: Nodes
    tensors: Tensors
    devices: list[str]
    """Device names; the first is ``host``."""
    objects: int
    edges: int
    heap_bytes: int
    """Shallow bytes of the Python objects walked, payloads excluded."""
    payload_bytes: dict[str, int]
    """Storages and data of arrays and buffers per device, ``host`` included; ``shared`` and
    ``file`` as in :attr:`~leakscope.model.census.Census.payload_bytes`."""
    graph_bytes: dict[str, int]
    """The part of the payload that was reached through autograd graphs only, per device."""
    graph_nodes: int
    graph_truncated: bool
    """Whether some autograd nodes were not entered: too many, too long a chain of them, or other
    threads changed them, and gradients too."""
    graph_is_deep: bool
    """Whether a chain was too long to be read: no later walk of this process tries,
    for what asking leaves behind adds up. See ``native/chains.c``."""
    garbage_bytes: int | None
    """Host bytes (payload included) awaiting the collector; where what is new was weighed, those of
    it; None in other walks of the user's names."""
    elsewhere_bytes: int | None
    """Host bytes of what is new and no name of the user's reaches, garbage apart; None unless the
    walk had a :class:`Baseline` to tell."""
    native_bytes: int | None
    """Host bytes that only native code holds; None unless full."""
    hidden_bytes: int
    """Host bytes of what only leakscope's own objects reach; 0 unless full."""
    pause_s: float
    scratch_bytes: int
    """Peak of the engine's own working memory."""
    types: list[TypeTotal]
    """Of all objects but leakscope's own, the heaviest first; empty unless requested. With a
    baseline of those whose bytes ``elsewhere_bytes`` counts."""
    engine: str
    heads: list[HeadTotal] = field(default_factory=list)
    """Where a :class:`GraphBaseline` tells what is new: of a walk of the user's names, what
    libraries or native code refer to; of a full one, what only native code does. The heaviest
    first."""
    graph: Any = None
    """What :func:`leak_shares` asks, where the request wants it: numbers only, no object."""


class Share(NamedTuple):
    """What a group of objects accounts for, by device, ``host`` included."""

    bytes: dict[str, int]
    """Its leak share: of what several groups reach, each has an even part of every byte."""
    exclusive: dict[str, int]
    """The part that it reaches alone: what would be freed if it let go and the others did not."""
    others: list[int]
    """Indices of the groups with which it shares."""


def leak_shares(result: WalkResult, groups: list[list[int]]) -> list[Share]:
    """Return what growing containers that hold the same objects account for, a share per group.

    A group is the ``Nodes.number`` of its objects; there are at most :data:`MOST_GROUPS`. What can
    be reached from the roots past all groups belongs to none; of a group within another, the inner
    one has what both reach.
    """
    shares = _engine(result.engine).leak_shares(result.graph, groups)
    return [
        Share(_by_device(result, share), _by_device(result, exclusive), others)
        for share, exclusive, others in shares
    ]


def _by_device(result: WalkResult, column: list[int]) -> dict[str, int]:
    return {d: n for d, n in zip(result.devices, column, strict=True) if n or d == "host"}


def engine_name() -> str:
    """Return which engine walks: ``native`` or ``reference``."""
    return "reference" if _native is None else "native"


def _engine(name: str | None) -> Any:
    return reference if _native is None or name == "reference" else _native


_has_deep_graph = False


class Seal:
    """What is known of the libraries' objects, so that they need not be walked each time.

    A walk that is given an empty seal fills it. One that is given a filled seal walks what the
    user's names reach and what is new, looks for changes in what is sealed, and answers as a whole
    walk would. It keeps addresses and numbers, and no object alive. The reference engine has none.
    """

    def __init__(self) -> None:
        self.handle: Any = None if _native is None else _native.new_seal()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is sealed: the next walk is a whole one."""
        return self._facts()[0] == 0

    @property
    def own_bytes(self) -> int:
        """What it takes itself."""
        return 0 if _native is None else _native.seal_bytes(self.handle)

    @property
    def count(self) -> int:
        """How many objects are sealed and not known to be gone."""
        sealed, gone = self._facts()
        return sealed - gone

    def _facts(self) -> tuple[int, int]:
        return (0, 0) if _native is None else _native.seal_facts(self.handle)


class GraphBaseline:
    """Which objects were there when measuring began.

    The first walk of the user's names that is given one takes note of the addresses of all that the
    collector tracks. Those after it also weigh what is new and no name of the user's reaches, which
    costs what is new, not what a process consists of. What such a walk is given as library roots,
    the modules imported since, becomes part of it: its weight is kept. It keeps no object alive.
    The reference engine has none.
    """

    def __init__(self) -> None:
        self.handle: Any = None if _native is None else _native.new_baseline()

    @property
    def own_bytes(self) -> int:
        """What it takes itself."""
        return 0 if _native is None else _native.baseline_bytes(self.handle)


def can_seal() -> bool:
    """Return whether walks can go on from a seal: only the native engine's can."""
    return _native is not None


def walk(
    request: WalkRequest,
    *,
    engine: str | None = None,
    seal: Seal | None = None,
    baseline: GraphBaseline | None = None,
) -> WalkResult:
    """Walk the heap as requested. The process stands still meanwhile; no code of the user's runs.

    With a ``seal`` the walk must be a full one. With a ``baseline`` one of the user's names weighs
    what is new, and a whole one tells how much of what it reaches is.
    """
    global _has_deep_graph
    chosen = _engine(engine)
    sealed: tuple[Any, ...] = ()
    if chosen is not reference and (seal is not None or baseline is not None):
        sealed = (getattr(seal, "handle", None), getattr(baseline, "handle", None))
    if _has_deep_graph:
        request = replace(request, graph_budget=0)
    access = tensor_access()
    guard = contextlib.nullcontext() if access is None else access.without_overrides()
    with guard:
        columns = _walk(chosen, request, access, sealed)
    columns.setdefault("elsewhere_bytes", None)
    columns["nodes"]["holds"] = [[Group(*g) for g in h] for h in columns["nodes"]["holds"]]
    totals = [TypeTotal(*total) for total in columns.pop("types")]
    heads = [HeadTotal(*total) for total in columns.pop("heads", [])]
    _has_deep_graph = _has_deep_graph or columns["graph_is_deep"]
    return WalkResult(
        nodes=Nodes(**columns.pop("nodes")),
        tensors=Tensors(**{k: array("q", v) for k, v in columns.pop("tensors").items()}),
        types=sorted(totals, key=lambda total: (-total.bytes, -total.count)),
        heads=sorted(heads, key=lambda total: (-total.bytes, -total.count)),
        engine="reference" if chosen is reference else "native",
        **columns,
    )


def _walk(
    chosen: Any, request: WalkRequest, access: TensorAccess | None, seal: tuple[Any, ...]
) -> dict[str, Any]:
    """Walk, and where that met tensors that consist of others, again with what these are."""
    columns = _answer(chosen, request, access, {}, seal)
    # Operations of torch's let go of the interpreter's lock, where there is any to be called.
    parts = letting_others_go_on(read_parts, columns.pop("opaque"), access)
    if not parts or columns["graph_is_deep"]:
        return columns
    pause_s = columns["pause_s"]
    del columns  # it keeps objects alive, and would be found
    columns = _answer(chosen, request, access, parts, seal)
    del columns["opaque"]
    columns["pause_s"] += pause_s
    return columns


def _answer(
    chosen: Any,
    request: WalkRequest,
    access: TensorAccess | None,
    parts: Parts,
    seal: tuple[Any, ...],
) -> dict[str, Any]:
    """Walk once; where other threads change gradients, when they have done so, or without."""
    known, deadline = known_types(), perf_counter() + PATIENCE_SECONDS
    request = replace(request, own_passes=int(is_in_backward()))
    while True:
        columns: dict[str, Any] | None = chosen.walk(request, access, known, parts, *seal)
        if columns is not None:
            return columns
        waited = wait_for_autograd(deadline - perf_counter())
        request = replace(request, needs_autograd=waited)
