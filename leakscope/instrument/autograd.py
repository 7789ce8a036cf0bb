"""Whether torch is at work on objects of Python's in ways that the interpreter doesn't order.

A census is safe where the interpreter stands still. Autograd changes the graph without it, in
threads of its own too, and modules that run in further threads do while the calling one waits.
"""

from __future__ import annotations

import sys
from threading import get_ident

_AT_WORK = ("torch/nn/modules/module.py", "torch/autograd/", "torch/_dynamo/")


def is_in_backward() -> bool:
    """Return whether the calling thread is inside a backward pass."""
    torch = sys.modules.get("torch")
    task = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return task is not None and task() != -1


def other_threads_compute() -> bool:
    """Return whether another thread is inside a module's call, a backward pass or the compiler."""
    me = get_ident()
    for thread, top in sys._current_frames().items():
        frame = None if thread == me else top
        while frame is not None:
            if any(part in frame.f_code.co_filename for part in _AT_WORK):
                return True
            frame = frame.f_back
    return False
