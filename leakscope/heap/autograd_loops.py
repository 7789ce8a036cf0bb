"""Loops through autograd: how what only native code holds leads back to itself.

torch's graph refers to Python objects from C++: a node to the hooks registered with it, a saved
variable to the hook that unpacks it, a custom function to its ``ctx``. Python's collector sees none
of these references, so that a circle with one of them is never freed, and no name reaches it. Found
here is the shortest such circle through an object.

What a node saved, what follows it and what its hooks refer to can be read. Which hooks a node
has, nothing tells: its memory is searched for them, conservatively and by reading alone, as the
collector of Boehm and Weiser (Software: Practice and Experience 18, 1988) searches stacks. A node
has its hooks in vectors of pointers to objects that point to the dict in which Python keeps them
(``PyFunctionTensorPreHook`` and its like in torch/csrc/autograd/python_hook.h). Memory is read by
``/proc/self/mem``, which answers a wrong address with an error; where there is no such file, no
hook is found and no loop reported.

Two more references have a twin that the collector sees, which tells what they are to: that of a
tensor to the dict of its hooks that run after its gradient was accumulated, and that of the reducer
of ``DistributedDataParallel`` to a communication hook and its state.
"""

from __future__ import annotations

import gc
import os
import types
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from leakscope.heap import anatomy, labels
from leakscope.heap.adapters import tensor as tensors
from leakscope.heap.adapters.tensor import NodeFacts, TensorAccess
from leakscope.heap.anatomy import _native
from leakscope.heap.labels import ChainPart, Edge
from leakscope.heap.naming import whole_of
from leakscope.heap.pausing import autograd_changes
from leakscope.model.census import CensusRow, LoopStep, RootKind, StepKind
from leakscope.model.errors import ours

_keeping_lock: Callable[[int, int], bytes] | None = None if _native is None else _native.read_memory
"""Reads memory without letting go of the interpreter's lock, as reading a file does."""
MOST_OBJECTS = 4000
"""Objects looked at in one census: two microseconds each."""
_NODE_COST = 4
"""A node counts for so many: its memory is searched for hooks."""
_MOST_REFERENTS = 200
"""Of one object; a larger container is data and no part of the plumbing that closes loops."""
_LONGEST = 400
_NEVER_ENTERED = (
    type, types.ModuleType, types.CodeType, types.FrameType, types.BuiltinFunctionType,
    str, bytes, int, float,
)  # fmt: skip


_CUSTOM_FUNCTION = ("torch.autograd.function", "BackwardCFunction")
_REDUCER = ("torch._C._distributed_c10d", "Reducer")
_REDUCED = ("torch.nn.parallel.distributed", "DistributedDataParallel")
_LEADING = (OrderedDict, dict, list, tuple, set, types.CellType)
"""What leads from one step to the next and is none itself."""


_SAMPLES = 3
_NO_SUSPECTS = frozenset({"dict", "list", "tuple", "set", "type", "str", "bytes"})
"""What libraries keep in C by the thousand; looked at only where it has grown."""


class LoopMemory:
    """Which rows were searched for loops, and what came of it; no object is kept.

    A row is searched again once it has twice as many objects.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[LoopStep]]] = {}

    def with_loops(
        self,
        rows: list[CensusRow],
        objects_of: Callable[[str], list[Any]],
        growth_of: Callable[[str], int],
        heads: list[object],
    ) -> list[CensusRow]:
        """Return the rows; those that only native code holds with their loops.

        ``objects_of`` returns the objects of a row of ``rows`` by its path, the heaviest first, and
        ``growth_of`` by how many bytes it has grown. ``heads`` are further objects that only native
        code holds: what a row has may hang on a loop that goes through these.

        """
        finder = LoopFinder()
        return [
            msgspec.structs.replace(row, loop=self._of(row, finder, objects_of, heads))
            if _is_suspect(row, growth_of(row.path))
            else row
            for row in rows
        ]

    @property
    def own_bytes(self) -> int:
        """Roughly what is kept, in bytes."""
        return sum(200 + 150 * len(loop) for _, loop in self._known.values())

    def _of(
        self,
        row: CensusRow,
        finder: LoopFinder,
        objects_of: Callable[[str], list[Any]],
        heads: list[object],
    ) -> list[LoopStep]:
        count, known = self._known.get(row.path, (0, []))
        loop = known
        if row.count >= 2 * count and not finder.is_exhausted:
            samples = objects_of(row.path)
            samples = samples[:: max(1, len(samples) // _SAMPLES)][:_SAMPLES]
            found = [loop for sample in samples if (loop := finder.find(sample))]
            loop = found[0] if 2 * len(found) >= len(samples) > 0 else []
            if not loop and samples:
                below = (finder.find_below(head, row.type) for head in heads)
                loop = next(filter(None, below), known)
            self._known[row.path] = (row.count, loop)
        return loop


def _is_suspect(row: CensusRow, growth: int) -> bool:
    if row.root is not RootKind.NATIVE or row.parent:
        return False
    return growth > 0 or row.type not in _NO_SUSPECTS


class LoopFinder:
    """Finds loops; what it looks at for all of them together is bounded."""

    def __init__(self, most: int = MOST_OBJECTS) -> None:
        self._left = most
        self._nodes: dict[int, NodeFacts | None] = {}
        self._reduced: dict[int, bool] = {}
        self._access: TensorAccess | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether it has looked at as much as it may."""
        return self._left <= 0

    def find(self, target: object) -> list[LoopStep]:
        """Return the steps of the shortest loop through an object; empty where none is found.

        No code of the program's runs, and nothing is kept.
        """
        self._access = access = tensors.tensor_access()
        if access is None or self._left <= 0:
            return []
        try:
            with tensors.no_overrides(access), _Memory() as memory:
                circle = self._circle(target, memory)
                return self._steps(circle) if circle else []
        except ours(Exception):
            return []

    def find_below(self, head: object, type_name: str) -> list[LoopStep]:
        """Return the steps of the loop through ``head`` if objects of a type hang on it."""
        steps = self.find(head)
        access = self._access
        if not steps or access is None:
            return []
        try:
            with tensors.no_overrides(access):
                return steps if self._reaches(head, type_name) else []
        except ours(Exception):
            return []

    def _reaches(self, head: object, type_name: str) -> bool:
        visited, waiting = {id(head)}, [head]
        for obj in waiting:  # which gets longer meanwhile
            if self._left <= 0:
                break
            self._left -= 1
            if obj is not head and anatomy.qualified_name(type(obj)) == type_name:
                return True
            for referent in self._referents(obj):
                if id(referent) not in visited and not _is_closed(referent):
                    visited.add(id(referent))
                    waiting.append(referent)
        return False

    def _circle(self, target: object, memory: _Memory) -> list[Any]:
        """Return objects from ``target`` on of which each refers to the next, the last to it.

        The collector can't see all of the way: one that it sees is no reason for what lives on, and
        may lead along the same objects as one that it doesn't.
        """
        may_be_hooks = anatomy.is_instance(target, dict)
        begins = _WayPlace(target, None, is_unseen=self._facts(target) is not None)
        visited, waiting = {begins.key}, [begins]
        for place in waiting:  # which gets longer meanwhile
            if self._left <= 0:
                break
            obj = place.obj
            is_searched = may_be_hooks and self._facts(obj) is not None
            self._left -= _NODE_COST if is_searched else 1
            if is_searched and memory.holds_hooks(obj, id(target)):
                return _simple(place.way())
            unseen = self._unseen(obj)
            for via, referent in [*unseen, *((None, each) for each in self._referents(obj))]:
                is_unseen = place.is_unseen or via is not None or self._facts(referent) is not None
                before = place if via is obj or via is None else _WayPlace(via, place)
                if referent is target and is_unseen:
                    return _simple(before.way())
                known = {(id(referent), True), (id(referent), is_unseen)}
                if visited.isdisjoint(known) and not _is_closed(referent):
                    further = _WayPlace(referent, before, is_unseen=is_unseen)
                    visited.add(further.key)
                    waiting.append(further)
        return []

    def _unseen(self, obj: Any) -> list[tuple[Any, object]]:
        """Return what C++ refers to for an object, each with the object that has the reference."""
        access = self._access
        if access is not None and anatomy.is_instance(obj, access.tensor):
            hooks = vars(access.tensor).get("_post_accumulate_grad_hooks")
            found = None if hooks is None else hooks.__get__(obj)
            return [] if found is None else [(obj, found)]
        if self._is_reduced(type(obj)):
            parts = anatomy.instance_dict(obj) or {}
            reducer, hooks = parts.get("reducer"), parts.get("_comm_hooks")
            if reducer is not None and type(hooks) is list:
                pairs = [pair for pair in hooks if type(pair) is tuple]
                return [(reducer, each) for pair in pairs for each in pair]
        return []

    def _is_reduced(self, kind: type) -> bool:
        if id(kind) not in self._reduced:
            self._reduced[id(kind)] = anatomy.inherits(kind, *_REDUCED)
        return self._reduced[id(kind)]

    def _referents(self, obj: Any) -> list[object]:
        kind = type(obj)
        if kind is types.FunctionType:
            return _of_function(obj)
        if autograd_changes():
            raise RuntimeError("another thread changes gradients")
        facts = self._facts(obj)
        found = gc.get_referents(obj)
        if len(found) > _MOST_REFERENTS:
            return []
        if facts is not None:
            return found + tensors.node_referents(obj, facts)
        if tensors.is_saved_variable(kind):
            return found + tensors.saved_referents(obj)
        access = self._access
        if access is not None and anatomy.is_instance(obj, access.tensor):
            found += self._of_tensor(obj, access)
        return found

    def _of_tensor(self, tensor: Any, access: TensorAccess) -> list[object]:
        is_leaf = access.is_leaf.__get__(tensor)
        found = [access.base.__get__(tensor)]
        if is_leaf or access.retains_grad.__get__(tensor):
            found.append(access.grad.__get__(tensor))
        if not is_leaf:
            found.append(access.grad_fn.__get__(tensor))
        return [referent for referent in found if referent is not None]

    def _facts(self, obj: object) -> NodeFacts | None:
        kind = type(obj)
        if id(kind) not in self._nodes:
            self._nodes[id(kind)] = tensors.node_facts(anatomy.mro(kind))
        return self._nodes[id(kind)]

    def _steps(self, circle: list[Any]) -> list[LoopStep]:
        first = next((i for i, obj in enumerate(circle) if _function_of(obj) is not None), 0)
        circle = circle[first:] + circle[:first]
        places = [place for place, obj in enumerate(circle) if not _is_leading(obj)]
        return list(_without_middles([self._step(circle, place) for place in places]))

    def _step(self, circle: list[Any], place: int) -> LoopStep:
        obj = circle[place]
        before = circle[place - 1]
        function = _function_of(obj)
        if function is not None:
            return LoopStep(
                kind=self._kind_of_function(before),
                name=anatomy.without_locals(function.__qualname__),
                file=function.__code__.co_filename,
                line=function.__code__.co_firstlineno,
            )
        if self._facts(obj) is not None:
            is_custom = anatomy.inherits(type(obj), *_CUSTOM_FUNCTION)
            name = anatomy.qualname(type(obj))
            return LoopStep(kind=StepKind.CONTEXT if is_custom else StepKind.NODE, name=name)
        if self._access is not None and anatomy.is_instance(obj, self._access.tensor):
            name = _name_of(circle, place) or _class_name(obj)
            return LoopStep(kind=StepKind.TENSOR, name=name)
        return LoopStep(kind=StepKind.OBJECT, name=_class_name(obj))

    def _kind_of_function(self, before: Any) -> StepKind:
        if self._facts(before) is not None or tensors.is_saved_variable(type(before)):
            return StepKind.UNPACK_HOOK
        is_hook = type(before) in (OrderedDict, dict) or anatomy.inherits(type(before), *_REDUCER)
        return StepKind.HOOK if is_hook else StepKind.FUNCTION


class _WayPlace(NamedTuple):
    obj: Any
    before: _WayPlace | None
    is_unseen: bool = False

    @property
    def key(self) -> tuple[int, bool]:
        """What tells places apart: an object is met again where the way to it is unseen."""
        return id(self.obj), self.is_unseen

    def way(self) -> list[Any]:
        """Return the objects up to this; nothing where they are too many to tell."""
        found: list[Any] = []
        place: _WayPlace | None = self
        while place is not None:
            found.append(place.obj)
            place = place.before
        return found[::-1] if len(found) <= _LONGEST else []


def _simple(way: list[Any]) -> list[Any]:
    """Return the circle in a way that meets an object twice: between them lies what is unseen."""
    first: dict[int, int] = {}
    for place, obj in enumerate(way):
        if id(obj) in first:
            return way[first[id(obj)] : place]
        first[id(obj)] = place
    return way


def _is_closed(obj: object) -> bool:
    return issubclass(type(obj), _NEVER_ENTERED)


def _of_function(function: types.FunctionType) -> list[object]:
    found = [*(function.__closure__ or ()), *(function.__defaults__ or ())]
    found += (function.__kwdefaults__ or {}).values()
    return found + list((anatomy.instance_dict(function) or {}).values())


def _function_of(obj: Any) -> types.FunctionType | None:
    found = obj.__func__ if type(obj) is types.MethodType else obj
    return found if type(found) is types.FunctionType else None


def _is_leading(obj: object) -> bool:
    kind = type(obj)
    return any(kind is leading for leading in _LEADING) or tensors.is_saved_variable(kind)


def _name_of(circle: list[Any], place: int) -> str:
    """Return what the step before calls this one: a variable, an attribute, a key; or nothing."""
    first = place - 1
    while place - first < len(circle) and _is_leading(circle[first]):
        first -= 1
    part, name = ChainPart(circle[first]), ""
    for at in range(first + 1, place + 1):
        step = _label(part, circle, at)
        if step.edge in (Edge.CELL, Edge.LOCAL, Edge.DEFAULT):
            name = step.variable
        elif step.edge is Edge.ATTRIBUTE:
            name = f"{_class_name(circle[first])}.{step.variable}"
        elif step.edge is Edge.ITEM and name:
            name += step.text
        part = ChainPart(circle[at], step.facet, whole_of(part, step))
    is_grad = not name and first == place - 1 and _is_gradient(circle[first], circle[place])
    return f"{_class_name(circle[first])}.grad" if is_grad else name


def _class_name(obj: object) -> str:
    return anatomy.qualname(type(obj)).rpartition(".")[2]


def _is_gradient(tensor: Any, obj: object) -> bool:
    access = tensors.tensor_access()
    if access is None or not anatomy.is_instance(tensor, access.tensor):
        return False
    if autograd_changes():
        return False
    keeps = access.is_leaf.__get__(tensor) or access.retains_grad.__get__(tensor)
    return bool(keeps and access.grad.__get__(tensor) is obj)


def _label(part: ChainPart, circle: list[Any], at: int) -> labels.Label:
    """Return how a part refers to the next object; a function's cell is known by its place."""
    obj = circle[at]
    if type(part.obj) is types.FunctionType and part.facet is labels.Facet.ITSELF:
        names = part.obj.__code__.co_freevars
        for name, cell in zip(names, part.obj.__closure__ or (), strict=False):
            if cell is obj:
                return labels.Label("", Edge.CELL, name, labels.Facet.CELL)
    return labels.label(part, obj)


def _without_middles(steps: list[LoopStep]) -> Iterator[LoopStep]:
    """Yield the steps; of a long way through a graph the first and last, and between them a gap."""
    for place, step in enumerate(steps):
        inside = place > 0 and place + 1 < len(steps) and _is_node(steps[place - 1])
        if inside and _is_node(step) and _is_node(steps[place + 1]):
            is_first = not (place > 1 and _is_node(steps[place - 2]))
            if is_first:
                yield LoopStep(kind=StepKind.GAP, name="…")
        else:
            yield step


def _is_node(step: LoopStep) -> bool:
    return step.kind is StepKind.NODE


_WORD = 8
_NODE_BYTES = 512
"""torch's ``Node`` takes less; what a subclass adds comes after it."""
_MOST_HOOKS = 16
_HOOK_WORDS = 4
_LOWEST, _HIGHEST = 1 << 16, 1 << 47


class _Memory:
    """Reads this process's memory by address; what isn't mapped is empty."""

    def __enter__(self) -> _Memory:
        self._file = -1
        if _keeping_lock is not None:
            return self
        try:
            self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        except ours(OSError):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)

    def holds_hooks(self, node: object, hooks: int) -> bool:
        """Say whether the C++ part of a node refers to the dict of hooks that lies there."""
        if self._file < 0 and _keeping_lock is None:
            return False
        own = self._words(id(node), type(node).__basicsize__ // _WORD)[2:]
        return any(
            hooks in self._words(hook, _HOOK_WORDS)
            for address in filter(_may_point, own)
            for begin, end in _vectors(self._words(address, _NODE_BYTES // _WORD))
            for hook in filter(_may_point, self._words(begin, (end - begin) // _WORD))
        )

    def _words(self, address: int, count: int) -> array[int]:
        read = self._read(address, count * _WORD)
        return array("Q", read[: len(read) // _WORD * _WORD])

    def _read(self, address: int, size: int) -> bytes:
        if _keeping_lock is not None:
            return _keeping_lock(address, size)
        try:
            return os.pread(self._file, size, address)
        except ours(OSError):
            return b""


def _may_point(word: int) -> bool:
    return word % _WORD == 0 and _LOWEST <= word < _HIGHEST


def _vectors(words: array[int]) -> list[tuple[int, int]]:
    """Return begin and end of what looks like a vector of some pointers."""
    return [
        (begin, end)
        for begin, end, capacity in zip(words, words[1:], words[2:], strict=False)
        if begin < end <= begin + _MOST_HOOKS * _WORD
        and end <= capacity <= begin + 4 * _MOST_HOOKS * _WORD
        and _may_point(begin)
        and end % _WORD == 0
    ]
