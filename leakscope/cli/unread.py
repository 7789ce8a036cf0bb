"""Why a file of ours could not be read, in words instead of a library's."""

from __future__ import annotations

import msgspec


def why_unread(fault: BaseException) -> str:
    """Return what is wrong with a file, as the end of a sentence about it."""
    if isinstance(fault, FileNotFoundError):
        return "it does not exist"
    if isinstance(fault, OSError):
        return f"it can't be read ({fault.strerror or fault})"
    if isinstance(fault, msgspec.ValidationError):
        return "it is JSON, but not as leakscope writes it"
    return "it is not JSON, or was cut off"
