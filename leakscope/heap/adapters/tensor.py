"""Tensors: their storage, gradient, base and graph, read through torch's C accessors only.

The accessors are taken from ``torch._C`` by descriptor, so that no attribute lookup of a subclass,
no ``__torch_function__`` and no property of the user's runs.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

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
    without_overrides: Any
    """Context in which neither subclasses nor modes are asked."""


class Storage(NamedTuple):
    """The memory behind a tensor."""

    key: int
    nbytes: int
    device: str


def tensor_access() -> TensorAccess | None:
    """Return torch's accessors, or None where the program has not imported torch."""
    torch = sys.modules.get("torch")
    core: Any = getattr(torch, "_C", None)
    try:
        base, storage = vars(core.TensorBase), vars(core.StorageBase)
        return TensorAccess(
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
            without_overrides=core.DisableTorchFunction,
        )
    except (AttributeError, KeyError, TypeError):
        return None  # no torch, or one that is still being imported


def no_overrides(access: TensorAccess) -> AbstractContextManager[None]:
    """Return the context in which the accessors may be called."""
    guard: AbstractContextManager[None] = access.without_overrides()
    return guard


def storage_of(tensor: object, access: TensorAccess) -> Storage | None:
    """Return the storage of a tensor; None where it has no memory (meta, fake, sparse)."""
    try:
        storage = access.untyped_storage(tensor)
        device = str(access.storage_device.__get__(storage))
        nbytes = access.storage_nbytes(storage)
        key = access.storage_key.__get__(storage)
    except Exception:
        return None
    if device == "meta" or nbytes <= 0:
        return None
    return Storage(key, nbytes, "host" if device == "cpu" else device)
