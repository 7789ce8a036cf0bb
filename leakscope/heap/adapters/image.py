"""Pillow's images and what matplotlib draws on: pixels in C memory."""

from __future__ import annotations

from typing import Any

_HEAP_TYPE_FLAG = 1 << 9
_WIDE_PIXELS = 4
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}


def is_image_core(kind: type) -> bool:
    """Return whether a type is Pillow's pixel storage, which is no class made at run time."""
    made_at_run_time = type.__dict__["__flags__"].__get__(kind) & _HEAP_TYPE_FLAG
    return not made_at_run_time and type.__dict__["__name__"].__get__(kind) == "ImagingCore"


def canvas_bytes(renderer: Any) -> int:
    """Return the bytes of the pixels of matplotlib's ``_backend_agg.RendererAgg``."""
    with memoryview(renderer) as pixels:
        return pixels.nbytes


def image_bytes(core: Any) -> int:
    """Return the bytes of an image's pixels, lines unpadded."""
    width, height = core.size
    return int(width * height * _PIXEL_BYTES.get(core.mode, _WIDE_PIXELS))
