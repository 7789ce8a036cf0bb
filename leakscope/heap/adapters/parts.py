"""Tensors that consist of others: sparse ones, and what oneDNN keeps in a form of its own.

Only operations tell of their parts, and those release the GIL: the heap would change under a walk.
So a walk reports whom it met, and only then are they asked, and the next walk is told.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from leakscope.heap.adapters.tensor import TensorAccess
from leakscope.model.interrupts import ours


class Part(NamedTuple):
    """The memory of one of the tensors that another consists of."""

    storage: Any
    """None where it has none."""
    address: int
    nbytes: int = 0
    """Of memory without a storage."""


Parts = dict[int, tuple[Part, ...]]
"""By the address of a tensor."""

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

    Neither autograd nor modes see the operations; nothing but their storages is kept. A profiler of
    torch's would list them among the program's, so that under one nothing is asked.
    """
    if access is None or not tensors:
        return {}
    core: Any = sys.modules["torch._C"]
    if core._autograd._profiler_enabled():
        return {}
    with core._DisableTorchDispatch(), core._AutoDispatchBelowAutograd():
        return {id(tensor): parts for tensor in tensors if (parts := _read(tensor, access))}


def _read(tensor: Any, access: TensorAccess) -> tuple[Part, ...]:
    base = vars(access.tensor)
    try:
        layout = str(base["layout"].__get__(tensor))
        if layout == _ONEDNN:
            return _memory_of_onednn(tensor)
        parts = [base[name](tensor) for name in _PARTS.get(layout, ())]
        return tuple(_part(part, access) for part in parts)
    except ours(Exception):
        return ()


def _part(part: Any, access: TensorAccess) -> Part:
    address = 0 if access.tensor_address is None else access.tensor_address(part)
    return Part(access.untyped_storage(part), address)


def _memory_of_onednn(tensor: Any) -> tuple[Part, ...]:
    operations = sys.modules["torch"].ops.mkldnn
    return (Part(None, operations.data_ptr(tensor), operations._nbytes(tensor)),)
