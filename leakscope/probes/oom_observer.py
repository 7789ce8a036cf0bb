"""torch's out-of-memory observer: what torch calls when a device has no room, before it raises.

It can't be detached again, so that one function is attached once per process, and tells whoever
listens just then; nobody listening, it does nothing. torch's lock is released when it is called,
and whatever is raised in it would reach the program in place of torch's own error.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from weakref import WeakMethod

Listener = Callable[[int, int, int, int], None]
"""Takes the device's number, bytes asked for, bytes it may use in all, and bytes it has left."""

_listener: WeakMethod[Listener] | None = None
_process = 0
_is_attached = False


def listen(listener: Listener) -> None:
    """Have a bound method told from now on, as long as its object lives."""
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
    if attach_to_torch is not None and _is_awake(cuda):
        _is_attached = True
        attach_to_torch(_tell)


def attach_when_awake(cuda: object) -> None:
    """Attach as soon as the program wakes CUDA, which this doesn't do itself."""
    call_later = getattr(cuda, "_lazy_call", None)
    if call_later is not None:
        call_later(_attach_quietly)


def _attach_quietly() -> None:
    try:
        attach()
    except Exception:
        return


def _is_awake(cuda: object) -> bool:
    # While torch runs what was put off until now it isn't initialized by its own account.
    waking = hasattr(getattr(cuda, "_tls", None), "is_initializing")
    return waking or bool(cuda.is_initialized())  # type: ignore[attr-defined]


def _tell(device: int, requested: int, total: int, free: int) -> None:
    try:
        listener = None if _listener is None else _listener()
        if listener is not None and os.getpid() == _process:
            listener(device, requested, total, free)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # raised again once torch's own error is on its way
    except BaseException:
        return
