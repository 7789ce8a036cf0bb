"""Recognises that an exception means that memory ran out, and reads what its message tells.

A message was written at the moment of the failure, so its figures are better than any read later.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from leakscope.model.interrupts import ours

HOST = "host"
_OF_HOST = ("DefaultCPUAllocator: can't allocate memory", "not enough memory: you tried")
_OF_DEVICES = (
    "CUDA out of memory",
    "HIP out of memory",
    "XPU out of memory",
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_KINDS = {"XPU": "xpu", "MPS": "mps"}
"""Devices by the first word of the message; all others, ROCm's too, are called CUDA."""
_UNITS = {"B": 0, "bytes": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}
_SIZE = rf"(\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})\b"
_FIGURES = {
    "requested": rf"(?:[Tt]ried to allocate|Unable to allocate) {_SIZE}",
    "total": rf"total capac(?:i)?ty of {_SIZE}|; {_SIZE} total capacity",
    "free": rf"of which {_SIZE} is free|; {_SIZE} free",
    "process": rf"this process has {_SIZE} memory in use",
    "allowed": rf"{_SIZE} allowed;",
    "allocated": rf"allocated memory {_SIZE} is allocated by PyTorch|; {_SIZE} already allocated",
    "reserved": rf"; {_SIZE} reserved in total",
    "holes": rf"{_SIZE} is reserved by PyTorch but unallocated",
}
"""As torch 2 words them, and as torch 1 did where that differs."""
_PATTERNS = {name: re.compile(pattern) for name, pattern in _FIGURES.items()}
_OTHER_PROCESS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_DEVICE = re.compile(r"\bGPU (\d+)")


@dataclass(frozen=True)
class Told:
    """What the message of an out-of-memory error says, in bytes; None for what it doesn't."""

    device: str
    """``host``, ``cuda:0``, or ``cuda`` where the message doesn't say which."""
    requested: int | None = None
    allocated: int | None = None
    """Live in torch's tensors."""
    reserved: int | None = None
    """Held by torch's allocator."""
    holes: int | None = None
    """Reserved and not allocated."""
    free: int | None = None
    total: int | None = None
    process: int | None = None
    """Used on the device by this process in all."""
    allowed: int | None = None
    """What the program has limited itself to."""
    others: int | None = None
    """Used on the device by the other processes that it lists."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception itself says that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError) or is_of_device(error):
        return True
    return isinstance(error, RuntimeError) and _says(error, _OF_HOST)


def is_of_device(error: BaseException) -> bool:
    """Return whether it was a device's memory that ran out."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None) or getattr(
        getattr(torch, "cuda", None), "OutOfMemoryError", None
    )
    if kind is not None and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and _says(error, _OF_DEVICES)


def shortage_behind(error: BaseException) -> BaseException | None:
    """Return the out-of-memory error that an exception is, or that it was raised ``from``.

    An exception that merely came while another was handled is not followed: a program that has
    recovered from one shortage may fail of something else.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if is_out_of_memory(cause):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__
    return None


def read_message(error: BaseException) -> Told:
    """Return what an out-of-memory error tells of itself."""
    text = message_of(error)
    figures = {name: _bytes(pattern.search(text)) for name, pattern in _PATTERNS.items()}
    allocated, holes = figures["allocated"], figures["holes"]
    if allocated is not None and holes is not None:
        figures["reserved"] = allocated + holes
    elif allocated is not None and figures["reserved"] is not None:
        figures["holes"] = figures["reserved"] - allocated
    listed = [_bytes(match) or 0 for match in _OTHER_PROCESS.finditer(text)]
    device = _device(text) if is_of_device(error) else HOST
    return Told(device, **figures, others=sum(listed) if listed else None)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, empty if it can't tell."""
    try:
        return str(error)[:4000]
    except ours(Exception):
        return ""


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    text = message_of(error)
    return any(word in text for word in words)


def _device(text: str) -> str:
    kind = _KINDS.get(text.partition(" ")[0], "cuda")
    number = _DEVICE.search(text)
    return f"{kind}:{number[1]}" if number else kind


def _bytes(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    scale = 1 << (10 * _UNITS[unit])
    return round(float(number) * scale) if "." in number else int(number) * scale
