"""Tensors and autograd graphs, read through torch's C accessors only.

The accessors are taken from ``torch._C`` by descriptor, so that no attribute lookup of a subclass,
no ``__torch_function__`` and no property of the user's runs.

Only operations give the parts of sparse tensors, and those release the GIL: the heap would
change under a walk. So a walk lists those it visited; then their parts are read, and the next walk
gets them.

``node._saved_x`` would unpack, and under non-reentrant checkpointing *recompute*; the raw saved
variables hand out what they hold as it is: the tensor, or whatever a pack hook made of it.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import GetSetDescriptorType
from typing import Any, NamedTuple

from leakscope.heap.adapters.buffers import HOST, SHARED, Memory
from leakscope.heap.anatomy import attempt
from leakscope.model.errors import ours

Accessor = Any
"""A getset or method descriptor implemented in C."""


class TensorAccess(NamedTuple):
    """torch's own accessors; the native engine reads the fields by position."""

    tensor: type
    parameter: type
    untyped_storage: Accessor
    grad: Accessor
    grad_fn: Accessor
    base: Accessor
    is_leaf: Accessor
    requires_grad: Accessor
    storage_key: Accessor
    storage_nbytes: Accessor
    storage_device: Accessor
    plain_dispatch: Any
    """The ``__torch_dispatch__`` of classes that don't override it."""
    storage: type
    is_shared: Accessor
    is_resizable: Accessor
    """Whether torch's allocator made the storage's memory; otherwise it may be another object's."""
    storage_address: Accessor
    """Never read from a storage that is copied on write: it would become private."""
    tensor_address: Accessor | None
    """Where the storage of a tensor lies; 0 for wrappers, which only claim memory."""
    is_wrapped: Accessor | None
    unwrapped: Accessor | None
    """The tensor within a wrapper of functorch's."""
    retains_grad: Accessor
    nbytes: Accessor
    shape: Accessor
    stride: Accessor
    offset: Accessor
    item_bytes: Accessor
    use_count: Accessor
    """How many refer to torch's own object of a tensor, its Python object among them."""
    storage_use_count: Accessor | None
    """The same of a storage; None of a torch whose Python objects are counted otherwise."""
    without_overrides: Any
    """Context in which neither subclasses nor modes are called."""


def tensor_access() -> TensorAccess | None:
    """Return torch's accessors, or None where the program has not imported torch."""
    global _access
    torch = sys.modules.get("torch")
    core: Any = getattr(torch, "_C", None)
    if _access is not None and _access.tensor is getattr(core, "TensorBase", None):
        return _access
    functorch = getattr(core, "_functorch", None)
    try:
        base, storage = vars(core.TensorBase), vars(core.StorageBase)
        _access = TensorAccess(
            tensor=core.TensorBase,
            parameter=torch.nn.Parameter,  # type: ignore[union-attr]
            untyped_storage=base["untyped_storage"],
            grad=base["grad"],
            grad_fn=base["grad_fn"],
            base=base["_base"],
            is_leaf=base["is_leaf"],
            requires_grad=base["requires_grad"],
            storage_key=storage["_cdata"],
            storage_nbytes=storage["nbytes"],
            storage_device=storage["device"],
            plain_dispatch=core._disabled_torch_dispatch_impl,
            storage=core.StorageBase,
            is_shared=storage["is_shared"],
            is_resizable=storage["resizable"],
            storage_address=storage["data_ptr"],
            tensor_address=getattr(core, "_data_address", None),
            is_wrapped=getattr(functorch, "is_functorch_wrapped_tensor", None),
            unwrapped=getattr(functorch, "get_unwrapped", None),
            retains_grad=base["retains_grad"],
            nbytes=base["nbytes"],
            shape=base["shape"],
            stride=base["stride"],
            offset=base["storage_offset"],
            item_bytes=base["element_size"],
            use_count=base.get("_use_count"),
            storage_use_count=_storage_use_count(torch),
            without_overrides=core.DisableTorchFunction,
        )
        return _access
    except ours(AttributeError, KeyError, TypeError):
        return None  # no torch, or one that is still being imported


_access: TensorAccess | None = None
"""As they were found first: versions of torch are slow to compare."""


def _storage_use_count(torch: Any) -> Accessor | None:
    """From 2.10 on a Python object and torch's own always count as references to each other."""
    core = torch._C
    if not hasattr(core, "_data_address") or "_use_count" not in vars(core.TensorBase):
        return None
    return getattr(core, "_storage_Use_Count", None) if torch.__version__ >= (2, 10) else None


def no_overrides(access: TensorAccess) -> AbstractContextManager[None]:
    """Return the context in which the accessors may be called."""
    guard: AbstractContextManager[None] = access.without_overrides()
    return guard


def tensor_memory(tensor: object, access: TensorAccess) -> Memory | None:
    """Return the memory of a tensor; None where it has none (meta, fake, sparse, a wrapper)."""
    try:
        address = None if access.tensor_address is None else access.tensor_address(tensor)
        if address == 0:  # what a wrapper claims would get a Python object that torch keeps
            return None
        return _memory(access.untyped_storage(tensor), access, address)
    except ours(Exception):
        return None


def lacks_storage(tensor: object, access: TensorAccess) -> bool:
    """Return whether a tensor has no storage of its own and wraps no other tensor."""
    has_storage = attempt(access.untyped_storage, tensor) is not None
    return not has_storage and wrapped_by(tensor, access) is None


def storage_memory(storage: object, access: TensorAccess) -> Memory | None:
    """Return the memory of a storage that a program holds by itself."""
    try:
        resizable = access.is_resizable(storage)
        return _memory(storage, access, None if resizable else access.storage_address(storage))
    except ours(Exception):
        return None


def _memory(storage: Any, access: TensorAccess, address: int | None) -> Memory | None:
    device = str(access.storage_device.__get__(storage))
    nbytes = access.storage_nbytes(storage)
    key = access.storage_key.__get__(storage)
    shared = device == "cpu" and access.is_shared(storage)
    resizable = access.is_resizable(storage)
    if device == "meta" or nbytes <= 0:
        return None
    return Memory(
        key,
        nbytes,
        HOST if device == "cpu" else device,
        SHARED if shared else HOST,
        address or 0,
        is_foreign=not resizable,
    )


def wrapped_by(tensor: object, access: TensorAccess) -> object:
    """Return what functorch wraps; None for any other tensor."""
    if access.is_wrapped is None or access.unwrapped is None:
        return None
    return attempt(access.unwrapped, tensor) if attempt(access.is_wrapped, tensor) else None


class TensorPart(NamedTuple):
    """The memory of one of the tensors that another consists of."""

    storage: Any
    """None where it has none."""
    address: int
    nbytes: int = 0
    """Of memory without a storage."""


Parts = dict[int, tuple[TensorPart, ...]]

MOST_OPAQUE = 10_000
"""Of so many tensors a walk reports that it saw no memory."""

_BY_ROW = ("crow_indices", "col_indices", "values")
_BY_COLUMN = ("ccol_indices", "row_indices", "values")
_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _BY_ROW,
    "torch.sparse_bsr": _BY_ROW,
    "torch.sparse_csc": _BY_COLUMN,
    "torch.sparse_bsc": _BY_COLUMN,
}
_ONEDNN = "torch._mkldnn"


def read_parts(tensors: list[object], access: TensorAccess | None) -> Parts:
    """Return what tensors consist of; those of other kinds are left out.

    Neither autograd nor modes see the operations. A profiler of torch's would list them among the
    program's: under one nothing is read.
    """
    if access is None or not tensors:
        return {}
    core: Any = sys.modules["torch._C"]
    if core._autograd._profiler_enabled():
        return {}
    with core._DisableTorchDispatch(), core._AutoDispatchBelowAutograd():
        return {id(tensor): parts for tensor in tensors if (parts := _read_parts(tensor, access))}


def _read_parts(tensor: Any, access: TensorAccess) -> tuple[TensorPart, ...]:
    base = vars(access.tensor)
    try:
        layout = str(base["layout"].__get__(tensor))
        if layout == _ONEDNN:
            operations = sys.modules["torch"].ops.mkldnn
            return (TensorPart(None, operations.data_ptr(tensor), operations._nbytes(tensor)),)
        parts = [base[name](tensor) for name in _PARTS.get(layout, ())]
        return tuple(_part(part, access) for part in parts)
    except ours(Exception):
        return ()


def _part(part: Any, access: TensorAccess) -> TensorPart:
    address = 0 if access.tensor_address is None else access.tensor_address(part)
    return TensorPart(access.untyped_storage(part), address)


_RAW = "_raw_saved_"


class NodeFacts(NamedTuple):
    """The accessors of one type of autograd nodes."""

    next_functions: Any
    saved: tuple[Any, ...]
    variable: Any | None
    """Of ``AccumulateGrad``: the leaf it accumulates into."""


def node_facts(mro: tuple[type, ...]) -> NodeFacts | None:
    """Return the accessors of a node type by its bases; None for any other type."""
    found: dict[str, Any] = {}
    for base in reversed(mro):
        found.update(
            (name, value)
            for name, value in type.__dict__["__dict__"].__get__(base).items()
            if type(value) is GetSetDescriptorType
        )
    if "next_functions" not in found or "_input_metadata" not in found:
        return None
    saved = tuple(value for name, value in found.items() if name.startswith(_RAW))
    return NodeFacts(found["next_functions"], saved, found.get("variable"))


def node_referents(node: object, facts: NodeFacts) -> list[object]:
    """Return the next nodes, the leaf and what was saved; nothing of what was freed already."""
    # What backward has freed raises.
    referents = [follower for follower, _ in attempt(facts.next_functions.__get__, node) or ()]
    if facts.variable is not None:
        referents.append(attempt(facts.variable.__get__, node))
    for accessor in facts.saved:
        saved = attempt(accessor.__get__, node)
        for variable in saved if type(saved) is tuple else (saved,):
            referents += saved_referents(variable)
    return [r for r in referents if r is not None]


def is_saved_variable(kind: type) -> bool:
    """Return whether a type is that of raw saved variables: checkpointing keeps some in lists."""
    name = type.__dict__["__name__"].__get__(kind)
    names = type.__dict__["__dict__"].__get__(kind)
    return bool(name == "SavedTensor" and names.get("__module__") == "torch._C._autograd")


def saved_referents(variable: Any) -> list[object]:
    """Return what a saved variable holds, and the hook that would unpack it, which never runs."""
    return [attempt(getattr, variable, name) for name in ("data", "unpack_hook")]
