"""That memory ran out: recognised from an exception, observed at torch's allocator, with what room
there was.

A message was written at the moment of the failure, so its figures are better than any read later.

Reads what is cheap and needs no memory to speak of; never synchronises a device.

torch's out-of-memory observer can't be detached again, so one function is attached once per
process, and calls whoever is registered just then; nobody listening, it does nothing. torch's lock
is released when it is called, and whatever is raised in it would reach the program in place of
torch's own error.
"""

from __future__ import annotations

import _thread
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakMethod

import psutil

from leakscope.model.errors import ours
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.probes.cgroup import limiting_group
from leakscope.probes.cuda import allocator_segments, awake_cuda, summarise

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
class OutOfMemoryMessage:
    """What the message of an out-of-memory error says, in bytes; None for what it doesn't."""

    device: str
    """``host``, ``cuda:0``, or ``cuda`` where the message doesn't say which."""
    requested: int | None = None
    allocated: int | None = None
    """Live in torch's tensors."""
    reserved: int | None = None
    holes: int | None = None
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
    return isinstance(error, RuntimeError) and _mentions(error, _OF_HOST)


def is_of_device(error: BaseException) -> bool:
    """Return whether it was a device's memory that ran out."""
    torch = sys.modules.get("torch")
    of_cuda = getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    kind = getattr(torch, "OutOfMemoryError", None) or of_cuda
    is_of_kind = kind is not None and isinstance(error, kind)
    return is_of_kind or (isinstance(error, RuntimeError) and _mentions(error, _OF_DEVICES))


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


def read_message(error: BaseException) -> OutOfMemoryMessage:
    """Return what the message of an out-of-memory error contains."""
    text = message_of(error)
    figures = {name: _bytes(pattern.search(text)) for name, pattern in _PATTERNS.items()}
    allocated, holes = figures["allocated"], figures["holes"]
    if allocated is not None and holes is not None:
        figures["reserved"] = allocated + holes
    elif allocated is not None and figures["reserved"] is not None:
        figures["holes"] = figures["reserved"] - allocated
    listed = [_bytes(match) or 0 for match in _OTHER_PROCESS.finditer(text)]
    device = _device(text) if is_of_device(error) else HOST
    return OutOfMemoryMessage(device, **figures, others=sum(listed) if listed else None)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, empty if it can't be had."""
    try:
        return str(error)[:4000]
    except ours(Exception):
        return ""


def _mentions(error: BaseException, words: tuple[str, ...]) -> bool:
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


SMALL_REQUEST = 1 << 20
"""Up to this size torch serves a request from small segments, beyond from large ones."""


@dataclass(frozen=True)
class Room:
    """Memory in use and what is left, in bytes; None where it can't be read."""

    allocated: int | None = None
    reserved: int | None = None
    free: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    largest_hole: int | None = None
    snapshot: DeviceSnapshotRecord | None = None


def host_room() -> Room:
    """Return resident memory, address space, and the least that any limit leaves."""
    resident, space = _resident_and_space()
    memory = psutil.virtual_memory()
    limits, left = {"machine": int(memory.total)}, [int(memory.available)]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY and space is not None:
        limits["address_space"] = soft
        left.append(soft - space)
    group = limiting_group()
    limit = None if group is None else group.limit()
    if group is not None and limit is not None:
        limits["cgroup"] = limit
        left.append(limit - group.used())
    return Room(resident, space, max(0, min(left)), limits)


def device_room(
    device: int, requested: int | None, *, total: int | None = None, free: int | None = None
) -> Room:
    """Return what torch's allocator holds of a device; empty where CUDA isn't in use.

    ``total`` and ``free`` are from the allocator's own message, as asking the device would
    synchronise it.
    """
    cuda = awake_cuda()
    if cuda is None:
        return Room(free=free)
    segments_listed = [] if cuda.is_current_stream_capturing() else allocator_segments()
    segments = [s for s in segments_listed if s.get("device", 0) == device]
    return Room(
        allocated=int(cuda.memory_allocated(device)),
        reserved=int(cuda.memory_reserved(device)),
        free=free,
        limits={} if total is None else {"device": total},
        largest_hole=_largest_hole(segments, requested) if segments else None,
        snapshot=next(iter(summarise(segments)), None),
    )


def _largest_hole(segments: Iterable[Mapping[str, Any]], requested: int | None) -> int:
    """Return the largest free block of the kind of segment that would have served the request.

    Of any stream, which is generous: a hole of another stream can't be taken.
    """
    kind = "small" if requested is not None and requested <= SMALL_REQUEST else "large"
    return max(
        (
            int(block.get("size", 0))
            for segment in segments
            if segment.get("segment_type", kind) == kind
            and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
            for block in segment.get("blocks", ())
            if block.get("state") == "inactive"
        ),
        default=0,
    )


def _resident_and_space() -> tuple[int | None, int | None]:
    try:
        pages = Path("/proc/self/statm").read_bytes().split()
        return int(pages[1]) * resource.getpagesize(), int(pages[0]) * resource.getpagesize()
    except ours(OSError, ValueError, IndexError):
        return int(psutil.Process().memory_info().rss), None


Listener = Callable[[int, int, int, int], None]
"""Takes the device's number, bytes requested, bytes it may use in all, and bytes it has left."""

_listener: WeakMethod[Listener] | None = None
_process = 0
_is_attached = False


def listen(listener: Listener) -> None:
    """Call a bound method from now on, as long as its object lives."""
    global _listener, _process
    _listener = WeakMethod(listener)
    _process = os.getpid()


def stop_listening() -> None:
    """Tell nobody any more."""
    global _listener
    _listener = None


def attach() -> None:
    """Attach to torch if somebody listens and the program has CUDA in use; once per process."""
    global _is_attached
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if _is_attached or _listener is None or cuda is None:
        return
    attach_to_torch = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # type: ignore[union-attr]
    # While torch runs what was put off until now it isn't initialized by its own account.
    is_waking = hasattr(getattr(cuda, "_tls", None), "is_initializing")
    if attach_to_torch is not None and (is_waking or cuda.is_initialized()):
        _is_attached = True
        attach_to_torch(_notify)


def attach_when_awake(cuda: object) -> None:
    """Attach as soon as the program wakes CUDA, which this doesn't do itself."""
    call_later = getattr(cuda, "_lazy_call", None)
    if call_later is not None:
        call_later(_attach_quietly)


def _attach_quietly() -> None:
    with suppress(Exception):
        attach()


def _notify(device: int, requested: int, total: int, free: int) -> None:
    try:
        listener = None if _listener is None else _listener()
        if listener is not None and os.getpid() == _process:
            listener(device, requested, total, free)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # raised again once torch's own error is on its way
    except BaseException:
        return
