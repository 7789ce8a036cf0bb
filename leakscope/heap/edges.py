"""What one object refers to, as the reference sees it: traversal, payloads, and what is cut."""

from __future__ import annotations

import gc
from enum import IntEnum
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

from leakscope.heap.adapters.array import (
    array_bytes,
    array_referents,
    image_bytes,
    is_image_core,
)
from leakscope.heap.adapters.autograd import (
    NodeFacts,
    is_saved_variable,
    node_facts,
    node_referents,
    saved_referents,
)
from leakscope.heap.adapters.keys import lone_texts
from leakscope.heap.adapters.tensor import TensorAccess, storage_of
from leakscope.heap.shallow import dict_of, mro_of, shallow_bytes


class Rank(IntEnum):
    """In which order edges are followed, so that explanations stay human."""

    PLAIN = 0
    CODE = 1
    """Functions, frames and tracebacks: only where no plain path leads."""
    LATE = 2
    """What a request names as late: only after all the user's names were followed."""
    GRAPH = 3
    """Autograd nodes: last, so that what they alone hold is known."""
    CUT = 4
    """Types and modules: never from user roots."""


class TypeFacts(NamedTuple):
    """What follows from an object's type."""

    rank: Rank
    tensor: bool
    parameter: bool
    has_storage: bool
    array: bool
    image: bool
    node: NodeFacts | None
    saved: bool
    dict: bool
    mark: int
    """Index of the marked class it is an instance of; -1 for none."""


_CODE = (FunctionType, FrameType, TracebackType)
_NOTHING = frozenset(id(x) for x in (None, True, False, ..., NotImplemented))


class EdgeReader:
    """Reads objects without running code of the user's. Facts are kept per type, by identity."""

    def __init__(
        self,
        access: TensorAccess | None,
        ndarray: type | None,
        marked: tuple[type, ...],
        late: tuple[type, ...] = (),
    ) -> None:
        self._access = access
        self._ndarray = ndarray
        self._marked = marked
        self._late = late
        self._facts: dict[int, TypeFacts] = {}

    def facts(self, value: object) -> TypeFacts:
        """Return what the type of an object tells."""
        kind = type(value)
        found = self._facts.get(id(kind))
        if found is None:
            found = self._facts[id(kind)] = self._study(kind)
        return found

    def _study(self, kind: type) -> TypeFacts:
        mro = mro_of(kind)
        access = self._access
        tensor = access is not None and _has(mro, access.tensor)
        node = node_facts(mro) if access is not None and not tensor else None
        return TypeFacts(
            rank=_rank(mro, node, self._late),
            tensor=tensor,
            parameter=access is not None and _has(mro, access.parameter),
            has_storage=tensor and access is not None and _plain_dispatch(mro, access),
            array=self._ndarray is not None and _has(mro, self._ndarray),
            image=is_image_core(kind),
            node=node,
            saved=is_saved_variable(kind),
            dict=_has(mro, dict),
            mark=next((i for i, m in enumerate(self._marked) if _has(mro, m)), -1),
        )

    def own_bytes(self, value: object) -> tuple[int, int]:
        """Return the shallow bytes of an object and the bytes of array data that it owns."""
        facts = self.facts(value)
        data = 0
        if facts.array:
            data = array_bytes(value, self._ndarray)
        elif facts.image:
            data = image_bytes(value)
        return shallow_bytes(value), data

    def referents(self, value: object, *, everything: bool) -> list[object]:
        """Return what an object keeps alive; a :class:`Storage` stands for a tensor's memory.

        The autograd node that made a tensor is not among them: see :meth:`maker`.

        Args:
            value: the object.
            everything: also the globals of functions and frames.

        """
        facts = self.facts(value)
        found = [r for r in gc.get_referents(value) if id(r) not in _NOTHING]
        if facts.rank is Rank.CODE and not everything:
            found = _without_namespaces(value, found)
        if facts.dict:
            shown = {id(r) for r in found}
            found += [key for key in lone_texts(value) if id(key) not in shown]
        if facts.tensor and self._access is not None:
            found += self._tensor_referents(value, facts, self._access)
        elif facts.node is not None:
            found += node_referents(value, facts.node)
        elif facts.saved:
            found += [r for r in saved_referents(value) if r is not None]
        elif facts.array:
            found += array_referents(value, self._ndarray)
        return found

    def _tensor_referents(
        self, tensor: object, facts: TypeFacts, access: TensorAccess
    ) -> list[object]:
        storage = storage_of(tensor, access) if facts.has_storage else None
        found = [storage, self.gradient(tensor), access.base.__get__(tensor)]
        return [f for f in found if f is not None]

    def gradient(self, tensor: object) -> object:
        """Return the gradient of a leaf; of other tensors asking would warn."""
        if self._access is None or not self.is_leaf(tensor):
            return None
        found: object = self._access.grad.__get__(tensor)
        return found

    def is_leaf(self, tensor: object) -> bool:
        """Return whether no autograd node made a tensor."""
        return self._access is None or bool(self._access.is_leaf.__get__(tensor))

    def maker(self, tensor: object) -> object:
        """Return the autograd node that made a tensor.

        Asking leaves a Python object behind that lives as long as the node.
        """
        found: object = None if self._access is None else self._access.grad_fn.__get__(tensor)
        return found


def _has(mro: tuple[type, ...], kind: type) -> bool:
    return any(base is kind for base in mro)


def _rank(mro: tuple[type, ...], node: NodeFacts | None, late: tuple[type, ...]) -> Rank:
    if node is not None:
        return Rank.GRAPH
    if any(mro[0] is kind for kind in _CODE):  # `in` would ask a metaclass for equality
        return Rank.CODE
    if any(_has(mro, kind) for kind in late):
        return Rank.LATE
    return Rank.CUT if _has(mro, type) or _has(mro, ModuleType) else Rank.PLAIN


def _plain_dispatch(mro: tuple[type, ...], access: TensorAccess) -> bool:
    """Wrapper subclasses claim the memory of what they wrap; they have none themselves."""
    for base in mro:
        dispatch = dict_of(base).get("__torch_dispatch__")
        if dispatch is not None:
            return _unwrapped(dispatch) is _unwrapped(access.plain_dispatch)
    return True


def _unwrapped(function: Any) -> Any:
    wraps = type(function) is staticmethod or type(function) is classmethod
    return function.__func__ if wraps else function


def _without_namespaces(value: Any, found: list[object]) -> list[object]:
    """Drop the globals and builtins of a function or frame."""
    if type(value) is TracebackType:
        return found
    prefix = "__" if type(value) is FunctionType else "f_"
    suffix = "__" if type(value) is FunctionType else ""
    cut = {id(getattr(value, f"{prefix}{name}{suffix}")) for name in ("globals", "builtins")}
    return [r for r in found if id(r) not in cut]
