"""The types that adapters look for, found only where the program has imported them itself."""

from __future__ import annotations

import gc
import sys
from typing import NamedTuple


class KnownTypes(NamedTuple):
    """Types with memory that ``tp_traverse`` can't see; the native engine reads them by position.

    A field is None where the program has not imported the module.
    """

    array: type | None
    record: type | None
    """Items of structured arrays: ``numpy.void``."""
    mapping: type | None
    numbers: type | None
    """``array.array``."""
    c_data: type | None
    """What ``ctypes`` makes."""
    text_buffer: type | None
    bytes_buffer: type | None
    """``io.BytesIO`` where its traversal tells of its bytes, which its own size counts too."""
    arrow_buffer: type | None
    arrow_array: type | None
    arrow_dictionary: type | None
    arrow_chunked: type | None
    arrow_table: type | None
    arrow_batch: type | None
    arrow_extension: type | None
    """Types of data that Python code defines."""
    canvas: type | None
    """What matplotlib draws on: pixels in C++ memory, which it lends as a buffer."""


def known_types() -> KnownTypes:
    """Return the types of this moment."""
    simple = _found("_ctypes", "_SimpleCData")
    return KnownTypes(
        array=_found("numpy", "ndarray"),
        record=_found("numpy", "void"),
        mapping=_found("mmap", "mmap"),
        numbers=_found("array", "array"),
        c_data=None if simple is None else type.__dict__["__base__"].__get__(simple),
        text_buffer=_found("_io", "StringIO"),
        bytes_buffer=_found("_io", "BytesIO") if _tells_of_bytes() else None,
        arrow_buffer=_found("pyarrow.lib", "Buffer"),
        arrow_array=_found("pyarrow.lib", "Array"),
        arrow_dictionary=_found("pyarrow.lib", "DictionaryArray"),
        arrow_chunked=_found("pyarrow.lib", "ChunkedArray"),
        arrow_table=_found("pyarrow.lib", "Table"),
        arrow_batch=_found("pyarrow.lib", "RecordBatch"),
        arrow_extension=_found("pyarrow.lib", "BaseExtensionType"),
        canvas=_found("matplotlib.backends._backend_agg", "RendererAgg"),
    )


def _tells_of_bytes() -> bool:
    buffer = sys.modules["_io"].BytesIO(b"some")
    return any(type(referent) is bytes for referent in gc.get_referents(buffer))


def _found(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None
