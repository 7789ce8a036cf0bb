"""Recognises that an exception means that memory ran out, and reads what its message tells."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

HOST = "host"
_CPU_ALLOCATOR = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough")
_DRIVER = "CUDA error: out of memory"
_UNITS = {"bytes": 1, "B": 1} | {
    f"{prefix}{end}": 1 << 10 * power
    for power, prefix in enumerate("KMGTP", 1)
    for end in ("iB", "B")
}
_AMOUNT = r"([\d.]+) ?(bytes|[KMGTP]?i?B)\b"
_REQUESTED = re.compile(rf"(?:[Tt]ried to allocate|Unable to allocate) {_AMOUNT}")
_DEVICE = re.compile(r"\bGPU (\d+)")
_FREE = re.compile(rf"of which {_AMOUNT} is free|; {_AMOUNT} free")
_TOTAL = re.compile(rf"total capacity of {_AMOUNT}|; {_AMOUNT} total capacity")
_LIVE = re.compile(rf"{_AMOUNT} is allocated by PyTorch|; {_AMOUNT} already allocated")
_UNUSED = re.compile(rf"and {_AMOUNT} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"; {_AMOUNT} reserved in total")


@dataclass(frozen=True)
class Told:
    """What the message of an out-of-memory error says, in bytes; None for what it doesn't."""

    device: str
    requested: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    free: int | None = None
    total: int | None = None


def shortage_behind(error: BaseException) -> BaseException | None:
    """Return the out-of-memory error that an exception is, or that it was raised ``from``.

    An exception that merely came while another was handled is not followed: a program that has
    recovered from one shortage may fail of something else.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if is_shortage(cause):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__
    return None


def is_shortage(error: BaseException) -> bool:
    """Return whether an exception itself says that memory ran out, on the host or a device."""
    if isinstance(error, MemoryError) or _is_of_torch(error):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = message_of(error)
    return any(words in text for words in (*_CPU_ALLOCATOR, _DRIVER))


def read_message(error: BaseException) -> Told:
    """Return what an out-of-memory error tells of itself."""
    text = message_of(error)
    live, unused = _amount(_LIVE, text), _amount(_UNUSED, text)
    reserved = _amount(_RESERVED, text)
    if reserved is None and live is not None and unused is not None:
        reserved = live + unused
    return Told(
        device=_device_of(error, text),
        requested=_amount(_REQUESTED, text),
        allocated=live,
        reserved=reserved,
        free=_amount(_FREE, text),
        total=_amount(_TOTAL, text),
    )


def message_of(error: BaseException) -> str:
    """Return the message of an exception, empty if it can't tell."""
    try:
        return str(error)[:4000]
    except Exception:
        return ""


def _is_of_torch(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None) or getattr(
        getattr(torch, "cuda", None), "OutOfMemoryError", None
    )
    return isinstance(kind, type) and isinstance(error, kind)


def _device_of(error: BaseException, text: str) -> str:
    if not _is_of_torch(error) and _DRIVER not in text:
        return HOST
    kind = next((name for name in ("XPU", "MPS", "HIP") if text.startswith(name)), "CUDA").lower()
    number = _DEVICE.search(text)
    kind = "cuda" if kind == "hip" else kind
    return f"{kind}:{number[1]}" if number else kind


def _amount(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = (group for group in found.groups() if group is not None)
    try:
        return round(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        return None
