"""NumPy arrays and Pillow images: data that the collector can't see."""

from __future__ import annotations

import sys
from typing import Any

_HEAP_TYPE_FLAG = 1 << 9
_WIDE_PIXELS = 4
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}


def array_type() -> type | None:
    """Return ``numpy.ndarray``, or None where the program has not imported numpy."""
    found = getattr(sys.modules.get("numpy"), "ndarray", None)
    return found if isinstance(found, type) else None


def array_referents(array: Any, ndarray: Any) -> list[object]:
    """Return what an array shares its memory with and, for an array of objects, its elements."""
    accessors = vars(ndarray)
    base = accessors["base"].__get__(array)
    referents = [] if base is None else [base]
    if _owns(array, accessors) and accessors["dtype"].__get__(array).char == "O":
        referents += ndarray.tolist(ndarray.ravel(array, order="K"))
    return referents


def array_bytes(array: Any, ndarray: Any) -> int:
    """Return the bytes of the data that this array owns; 0 for a view."""
    accessors = vars(ndarray)
    return int(accessors["nbytes"].__get__(array)) if _owns(array, accessors) else 0


def _owns(array: Any, accessors: Any) -> bool:
    return bool(accessors["flags"].__get__(array).owndata)


def is_image_core(kind: type) -> bool:
    """Return whether a type is Pillow's pixel storage, which is no class made at run time."""
    made_at_run_time = type.__dict__["__flags__"].__get__(kind) & _HEAP_TYPE_FLAG
    return not made_at_run_time and type.__dict__["__name__"].__get__(kind) == "ImagingCore"


def image_bytes(core: Any) -> int:
    """Return the bytes of an image's pixels, lines unpadded."""
    width, height = core.size
    return int(width * height * _PIXEL_BYTES.get(core.mode, _WIDE_PIXELS))
