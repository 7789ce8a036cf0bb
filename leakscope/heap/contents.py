"""What objects hold, described from a few samples: types, counts, and the form of arrays."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from leakscope.heap import anatomy, kinds
from leakscope.heap.graph import Group
from leakscope.model.census import Content
from leakscope.model.interrupts import ours
from leakscope.model.sizes import human_bytes

_LONGEST_SHAPE = 8
_TOLD_FROM = 10
"""Of what is retained, the part that nothing can read is told from a tenth on."""


def contents(groups: list[Group]) -> list[Content]:
    """Return what one or several objects hold directly, by type, the heaviest first."""
    by_type: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_type[anatomy.qualified_name(group.type)].append(group)
    found = [
        Content(
            type=name,
            count=sum(group.count for group in same),
            bytes=sum(group.bytes for group in same),
            detail=_detail(same),
        )
        for name, same in by_type.items()
    ]
    return sorted(found, key=lambda content: -content.bytes)


def _detail(groups: list[Group]) -> str:
    formed = [group for group in groups if kinds.kind_of_class(group.type) in _FORMS]
    form = commonest_form([sample for group in formed for sample in group.samples])
    unused = sum(group.unused_bytes for group in groups)
    told = form and unused * _TOLD_FROM >= sum(group.bytes for group in groups) > 0
    return f"{form}, {human_bytes(unused)} unused" if told else form


def commonest_form(samples: list[object]) -> str:
    """Return the form that most of the samples have, e.g. ``float32 (256, 4) on cpu``."""
    forms = Counter(form for sample in samples if (form := form_of(sample)))
    return forms.most_common(1)[0][0] if forms else ""


def form_of(obj: Any) -> str:
    """Return dtype, shape and device of a tensor or array, mode and size of an image, else ''."""
    try:
        form = _FORMS.get(kinds.kind_of(obj))
        return form(obj) if form else ""
    except ours(Exception):
        return ""


def _tensor_form(tensor: Any) -> str:
    """Read from C; neither a subclass nor a mode is asked.

    A class with a dispatch of its own may compute shape and device itself: only its type is told.
    """
    core: Any = sys.modules["torch._C"]
    base = vars(core.TensorBase)
    with core.DisableTorchFunction(), core._DisableTorchDispatch():
        dtype = str(base["dtype"].__get__(tensor)).removeprefix("torch.")
        if not _has_plain_dispatch(type(tensor), core):
            return dtype
        shape = _shape(base["shape"].__get__(tensor))
        device = str(base["device"].__get__(tensor))
        backing = _backing(tensor, core) if device == "cpu" else ""
        return f"{dtype} {shape} on {device}{backing}"


def _has_plain_dispatch(cls: type, core: Any) -> bool:
    found = anatomy.class_attribute(cls, "__torch_dispatch__")
    found = found.__func__ if type(found) in (staticmethod, classmethod) else found
    return found is anatomy.MISSING or found is core._disabled_torch_dispatch_impl


def _backing(tensor: Any, core: Any) -> str:
    """Say of host memory that it is shared or page-locked, as torch calls it."""
    base, storage = vars(core.TensorBase), vars(core.StorageBase)
    try:
        if storage["is_shared"](base["untyped_storage"](tensor)):
            return ", shared"
        asks = _has_cuda() and not core._autograd._profiler_enabled()
        return ", pinned" if asks and base["is_pinned"](tensor) else ""
    except ours(Exception):
        return ""  # a tensor without a storage


def _has_cuda() -> bool:
    """Return whether this process uses CUDA; asking of memory must not be what begins it."""
    cuda: Any = sys.modules.get("torch.cuda")
    return bool(getattr(cuda, "_initialized", False)) and not cuda._is_in_bad_fork()


def _array_form(array: Any) -> str:
    base = vars(sys.modules["numpy"].ndarray)
    return f"{base['dtype'].__get__(array)} {_shape(base['shape'].__get__(array))}"


def _image_form(image: Any) -> str:
    names = anatomy.instance_dict(image) or {}
    size, mode = names.get("_size"), names.get("_mode", names.get("mode"))
    return f"{mode} {_shape(size)}" if type(size) is tuple and type(mode) is str else ""


def _shape(sizes: Iterable[Any]) -> str:
    numbers = [int(size) for size in sizes][:_LONGEST_SHAPE]
    return str(tuple(numbers))


_FORMS: dict[str, Callable[[Any], str]] = {
    "tensor": _tensor_form,
    "array": _array_form,
    "image": _image_form,
}
"""How to tell the form, by kind of object; others have none."""
