"""What an object refers to, as the reference sees it: traversal, payloads, and what is cut."""

from __future__ import annotations

import gc
import sys
from enum import Enum, IntEnum
from types import FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, NamedTuple

from leakscope.heap.adapters import buffers
from leakscope.heap.adapters import tensor as tensors
from leakscope.heap.adapters.buffers import KnownTypes, Memory
from leakscope.heap.adapters.tensor import NodeFacts, Parts, TensorAccess, TensorPart
from leakscope.heap.anatomy import Sizes, attempt, class_dict, header_bytes, mro, outwards


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


class Payload(Enum):
    """What an object has that traversal can't see."""

    NONE = 0
    ARRAY = 1
    RECORD = 2
    MAPPING = 3
    BYTES_BUFFER = 4
    """Its bytes have a node, and its own size counts them too."""
    EXPORTER = 5
    """Its own memory, which it lends to others."""
    IMAGE = 6
    STORAGE = 7
    """torch's, held by itself."""


class TypeFacts(NamedTuple):
    """What follows from an object's type."""

    rank: Rank
    tensor: bool
    parameter: bool
    has_storage: bool
    plain: bool
    """Of a tensor: nothing that is read of it is dispatched to code of its class."""
    payload: Payload
    node: NodeFacts | None
    saved: bool
    dict: bool
    mark: int
    """Index of the marked class it is an instance of; -1 for none."""


_CODE = (FunctionType, FrameType, TracebackType, MethodType)
"""What names things only where nothing else does: most has a name of its own."""
_NOTHING = frozenset(id(x) for x in (None, True, False, ..., NotImplemented))


class EdgeReader:
    """Reads objects without running code of the user's. Facts are kept per type, by identity."""

    def __init__(
        self,
        access: TensorAccess | None,
        known: KnownTypes,
        marked: tuple[type, ...],
        late: tuple[type, ...] = (),
        parts: Parts | None = None,
        *,
        reads_autograd: bool = True,
    ) -> None:
        self.reads_autograd = reads_autograd
        self.access = access
        self.known = known
        self._marked = marked
        self._late = late
        self._parts = parts or {}
        self._facts: dict[int, TypeFacts] = {}
        self._sizes = Sizes()

    def facts(self, value: object) -> TypeFacts:
        """Return what the type of an object tells."""
        kind = type(value)
        found = self._facts.get(id(kind))
        if found is None:
            found = self._facts[id(kind)] = self._study(kind)
        return found

    def _study(self, kind: type) -> TypeFacts:
        bases = mro(kind)
        access = self.access
        tensor = access is not None and _has(bases, access.tensor)
        node = tensors.node_facts(bases) if access is not None and not tensor else None
        plain = tensor and access is not None and _has_plain_dispatch(bases, access)
        # Wrapper subclasses claim the memory of what they wrap. That they have none is seen by its
        # address, where torch tells; otherwise by their dispatch.
        has_address = tensor and access is not None and access.tensor_address is not None
        return TypeFacts(
            rank=_rank(bases, node, self._late),
            tensor=tensor,
            parameter=access is not None and _has(bases, access.parameter),
            has_storage=has_address or plain,
            plain=plain,
            payload=Payload.NONE if tensor else self._payload(kind, bases),
            node=node,
            saved=tensors.is_saved_variable(kind),
            dict=_has(bases, dict),
            mark=next((i for i, m in enumerate(self._marked) if _has(bases, m)), -1),
        )

    def _payload(self, kind: type, mro: tuple[type, ...]) -> Payload:
        known = self.known
        if self.access is not None and _has(mro, self.access.storage):
            return Payload.STORAGE
        for payload, types in (
            (Payload.ARRAY, (known.array,)),
            (Payload.RECORD, (known.record,)),
            (Payload.MAPPING, (known.mapping,)),
            (Payload.BYTES_BUFFER, (known.bytes_buffer,)),
            (Payload.EXPORTER, (bytes, bytearray, known.numbers)),
        ):
            if any(kind is not None and _has(mro, kind) for kind in types):
                return payload
        return Payload.IMAGE if buffers.is_image_core(kind) else Payload.NONE

    def own_bytes(self, value: object) -> tuple[int, int]:
        """Return the shallow bytes of an object and the bytes of data that it owns."""
        shallow = self._sizes(value)
        payload = self.facts(value).payload
        if payload is Payload.NONE:
            return shallow, 0
        match payload:
            case Payload.ARRAY:
                shallow += buffers.frame_bytes(value, self.known.array)
                return shallow, buffers.array_bytes(value, self.known.array)
            case Payload.RECORD:
                return shallow, buffers.record_bytes(value, self.known.record)
            case Payload.IMAGE:
                return shallow, buffers.image_bytes(value)
            case Payload.BYTES_BUFFER:
                return object.__sizeof__(value) + header_bytes(type(value)), 0
        return shallow, 0

    def exported_memory(self, value: object) -> tuple[int, int]:
        """Return address and bytes of the memory that an object owns and lends; 0 without."""
        if type(value) is Memory:
            return 0, 0
        match self.facts(value).payload:
            case Payload.ARRAY:
                return buffers.array_memory(value, self.known.array)
            case Payload.EXPORTER:
                return buffers.exported_memory(value)
        return 0, 0

    def referents(self, value: object, *, everything: bool) -> list[object]:
        """Return what an object keeps alive; a :class:`Memory` stands for what is no object.

        The autograd node that made a tensor is not among them: see :meth:`maker`. With
        ``everything`` the globals of functions and frames are.
        """
        facts = self.facts(value)
        found = [r for r in gc.get_referents(value) if id(r) not in _NOTHING]
        if facts.rank is Rank.CODE and not everything:
            found = _without_namespaces(value, found)
        if facts.dict:
            shown = {id(r) for r in found}
            found += [key for key in buffers.lone_texts(value) if id(key) not in shown]
        if facts.tensor and self.access is not None:
            of_tensor = self._data(value, self.access) if facts.has_storage else []
            of_tensor += [self.gradient(value), self.access.base.__get__(value)]
            found += [r for r in of_tensor if r is not None]
        elif facts.node is not None:
            found += tensors.node_referents(value, facts.node)
        elif facts.saved:
            found += [r for r in tensors.saved_referents(value) if r is not None]
        else:
            found += self._payload_referents(value, facts.payload)
        return found

    def leaf_alone(self, node: object) -> list[object]:
        """Return the leaf into which a node accumulates, where nobody else in C++ refers to it.

        The reference that torch adds to the leaf's Python object is the node's then.
        """
        facts, access = self.facts(node).node, self.access
        if facts is None or facts.variable is None:
            return []
        if access is None or access.storage_use_count is None:
            return []
        leaf = facts.variable.__get__(node)
        return [leaf] if leaf is not None and access.use_count(leaf) == _OWN_AND_ONE else []

    def _payload_referents(self, value: object, payload: Payload) -> list[object]:
        if payload is Payload.NONE:
            return []
        found: list[object | None] = []
        match payload:
            case Payload.ARRAY:
                found += buffers.array_referents(value, self.known.array)
            case Payload.RECORD:
                found.append(buffers.record_base(value, self.known.record))
            case Payload.MAPPING:
                found.append(buffers.mapped_memory(value))
            case Payload.STORAGE:
                found.append(tensors.storage_memory(value, self.access) if self.access else None)
        return [r for r in found if id(r) not in _NOTHING]

    def _data(self, tensor: object, access: TensorAccess) -> list[object]:
        parts = self._parts.get(id(tensor))
        if parts is None:
            return [tensors.tensor_memory(tensor, access) or tensors.wrapped_by(tensor, access)]
        return [self._part(part, access) for part in parts]

    def _part(self, part: TensorPart, access: TensorAccess) -> Memory | None:
        if part.storage is None:
            return Memory(part.address, part.nbytes, address=part.address) if part.nbytes else None
        memory = tensors.storage_memory(part.storage, access)
        if memory is None or memory.address:
            return memory
        return memory._replace(address=part.address)

    def has_parts(self, tensor: object) -> bool:
        """Return whether a tensor is known to consist of others."""
        return id(tensor) in self._parts

    def is_opaque(self, value: object) -> bool:
        """Return whether a value is a tensor of a plain kind that shows no storage."""
        access = self.access
        if access is None or type(value) is Memory or not self.facts(value).plain:
            return False
        return not self.has_parts(value) and tensors.lacks_storage(value, access)

    def handed_in(self) -> list[object]:
        """Return the objects in which parts were handed in."""
        found: list[object] = [self._parts, *self._parts.values()]
        for parts in self._parts.values():
            found += [*parts, *(part.storage for part in parts if part.storage is not None)]
        return found

    def storage_of(self, value: object) -> object:
        """Return the Python object of a tensor's storage: the storage itself keeps it."""
        facts = self.facts(value)
        if self.access is None or not facts.has_storage:
            return None
        return attempt(self.access.untyped_storage, value)

    def gradient(self, tensor: object) -> object:
        """Return the gradient of a leaf or with ``retain_grad()``: of others asking would warn."""
        access = self.access
        if access is None or not self.reads_autograd:
            return None
        if not (self.is_leaf(tensor) or access.retains_grad.__get__(tensor)):
            return None
        return access.grad.__get__(tensor)

    def is_frozen(self, tensor: object) -> bool:
        """Return whether a tensor requires no gradient."""
        return self.access is not None and not self.access.requires_grad.__get__(tensor)

    def is_leaf(self, tensor: object) -> bool:
        """Return whether no autograd node made a tensor."""
        return self.access is None or bool(self.access.is_leaf.__get__(tensor))

    def maker(self, tensor: object) -> object:
        """Return the autograd node that made a tensor.

        Asking leaves a Python object behind that lives as long as the node.
        """
        return None if self.access is None else self.access.grad_fn.__get__(tensor)


_OWN_AND_ONE = 2
"""References to a tensor of torch's: its Python object's, and one more."""


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


def _has_plain_dispatch(mro: tuple[type, ...], access: TensorAccess) -> bool:
    for base in mro:
        dispatch = class_dict(base).get("__torch_dispatch__")
        if dispatch is not None:
            return _unwrapped(dispatch) is _unwrapped(access.plain_dispatch)
    return True


def _unwrapped(function: Any) -> Any:
    wraps = type(function) is staticmethod or type(function) is classmethod
    return function.__func__ if wraps else function


def _without_namespaces(value: Any, found: list[object]) -> list[object]:
    """Drop the globals and builtins of a function or frame, and all that a running frame holds.

    That is a root. From 3.11 on the collector doesn't look into running frames either.
    """
    if type(value) is TracebackType or type(value) is MethodType:
        return found
    if type(value) is FrameType and sys.version_info < (3, 11):
        tops = sys._current_frames().values()
        if any(running is value for top in tops for running in outwards(top)):
            return []
    prefix = "__" if type(value) is FunctionType else "f_"
    suffix = "__" if type(value) is FunctionType else ""
    cut = {id(getattr(value, f"{prefix}{name}{suffix}")) for name in ("globals", "builtins")}
    return [r for r in found if id(r) not in cut]
