"""Moments in which nothing is measured, because what Python does there is recorded, replaced or
run by autograd.

A look at a tensor inside ``torch.jit.trace`` becomes part of the traced graph; inside a transform
of functorch, Dynamo or a CUDA graph's capture a call of ours may fail, or have the program fail. So
whoever is about to measure asks :func:`inside` first. What was due there is taken at the next
boundary outside, and how often that was is part of the report.

Some of these states may last for a whole run: a program may count its floating-point operations by
a dispatch mode, profile itself from end to end, or step its optimizers from hooks of the backward
pass. Our looks call accessors of torch's that dispatch nothing, so none of these sees them; they
are waited out only as long as that costs few readings.

Only modules are used that the program has imported by itself.

A census is safe where the interpreter stands still. Autograd changes the graph without it, in
threads of its own too, and modules that run in further threads do while the calling one waits.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from leakscope.capture.budget import Due
from leakscope.heap.pausing import frames_of_other_threads, is_collecting, keeping_lock
from leakscope.model.boundary import BoundaryKind
from leakscope.model.errors import ours

LASTING_SECONDS = 1.0
LASTING_SHARE = 0.1
"""A state that may last is how the program runs, and measured in, once it was met at every boundary
for so many seconds and so much of the time since the recording began."""

_ENDS = (BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END)


class UnobservableState(NamedTuple):
    """What the program is in the middle of."""

    reason: str
    may_last: bool
    """Whether our looks don't show there, so that it is only waited out for a while."""
    gauges_only: bool = False
    """Whether looks at objects would show, so that gauges alone are read after that while."""


_FRAMES: dict[str, tuple[str, frozenset[str]]] = {
    "jit/_trace.py": (
        "torch.jit.trace",
        frozenset({"trace", "_trace_impl", "trace_module", "_check_trace"}),
    ),
    "jit/_script.py": ("torch.jit.script", frozenset({"script", "_script_impl"})),
    "jit/_recursive.py": ("torch.jit.script", frozenset()),
    "export/_trace.py": ("torch.export", frozenset()),
    "fx/_symbolic_trace.py": ("torch.fx tracing", frozenset({"trace", "symbolic_trace"})),
    "fx/experimental/proxy_tensor.py": ("make_fx", frozenset()),
    "_dynamo/convert_frame.py": ("torch.compile", frozenset()),
    "onnx/utils.py": ("torch.onnx.export", frozenset({"export", "_export"})),
}
"""Functions of torch's below which Python runs only to be recorded, by file; all where none is
named. Other functions of these files also run what was made."""


def unobservable_state() -> UnobservableState | None:
    """Return what the calling thread is in the middle of, or None where it may be measured."""
    if is_collecting():
        return UnobservableState("garbage collection", may_last=False)
    torch = sys.modules.get("torch")
    core = getattr(torch, "_C", None)
    found = _state_of(core)
    if found is not None and not found.may_last:
        return found
    return _below(sys._getframe(1), torch) or found


class DeferredReadings:
    """What was due where nothing may be measured, until a boundary is reached where it may."""

    def __init__(self, where: Callable[[], UnobservableState | None] = unobservable_state) -> None:
        self.due = Due.NOTHING
        self.counts: dict[str, int] = {}
        self._where = where
        self._reason = ""
        self._since = 0.0

    def settle(self, kind: BoundaryKind, due: Due, now: float) -> Due | None:
        """Return what is due at this boundary, together with what was put off; None inside."""
        state = self._where()
        if state is not None and not self._is_lasting(state, kind, now):
            if due is not Due.NOTHING:
                self.counts[state.reason] = self.counts.get(state.reason, 0) + 1
                self.due = max(self.due, due)
            return None
        if state is None:
            self._reason = ""
        elif state.gauges_only and due > Due.RECORD:
            self.counts[state.reason] = self.counts.get(state.reason, 0) + 1
            self.due = max(self.due, due)
            return Due.RECORD
        due, self.due = max(due, self.due), Due.NOTHING
        return due

    def _is_lasting(self, state: UnobservableState, kind: BoundaryKind, now: float) -> bool:
        if state.reason != self._reason:
            self._reason, self._since = state.reason, now
        lasts = now - self._since >= max(LASTING_SECONDS, LASTING_SHARE * now)
        return state.may_last and (lasts or kind in _ENDS)


def _state_of(core: Any) -> UnobservableState | None:
    """Ask torch itself: a handful of flags and stacks of the calling thread."""
    lasting = None
    for reason, is_active, may_last in _STATES if core is not None else _STATES[-1:]:
        if _answer(is_active, core):
            if not may_last:
                return UnobservableState(reason, may_last=False)
            if reason == _WITH_STACKS:
                return UnobservableState(reason, may_last=True, gauges_only=True)
            lasting = lasting or UnobservableState(reason, may_last=True)
    return lasting


def _answer(is_active: Callable[[Any], bool], core: Any) -> bool:
    try:
        return is_active(core)
    except ours(Exception):  # another version of torch, or one that is being imported
        return False


def _would_compile(core: Any) -> bool:
    """Return whether Dynamo would compile what is called here, inside what it has compiled."""
    if "torch._dynamo" not in sys.modules:
        return False
    return callable(core._dynamo.eval_frame.get_eval_frame_callback())


def _is_fx_tracing(core: Any) -> bool:
    tracer = sys.modules.get("torch.fx._symbolic_trace")
    return tracer is not None and bool(getattr(tracer, "_is_fx_tracing_flag", False))


def _is_captured(core: Any) -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    if not getattr(cuda, "_initialized", False) or cuda._is_in_bad_fork():
        return False
    return bool(core._cuda_isCurrentStreamCapturing())


def _has_function_mode(core: Any) -> bool:
    """A default device, alone on the stack, records nothing and replaces nothing of ours."""
    depth = core._len_torch_function_stack()
    devices = sys.modules.get("torch.utils._device")
    default = getattr(devices, "DeviceContext", None)
    return any(type(core._get_function_stack_at(i)) is not default for i in range(depth))


_WITH_STACKS = "torch.profiler, which records Python's stacks"
_STATES: tuple[tuple[str, Callable[[Any], bool], bool], ...] = (
    ("torch.jit.trace", lambda core: core._get_tracing_state() is not None, False),
    ("torch.compile", _would_compile, False),
    ("torch.fx tracing", _is_fx_tracing, False),
    ("functorch", lambda core: core._functorch.peek_interpreter_stack() is not None, False),
    ("CUDA graph capture", _is_captured, False),
    (_WITH_STACKS, lambda _: type(sys.getprofile()).__name__ == "TraceContext", True),
    ("a dispatch mode", lambda core: core._len_torch_dispatch_stack() > 0, True),
    ("a function mode", _has_function_mode, True),
    ("torch.profiler", lambda core: core._autograd._profiler_enabled(), True),
    ("a backward pass", lambda core: core._current_graph_task_id() != -1, True),
    ("a profiler of Python's", lambda core: sys.getprofile() is not None, True),
)


def _below(frame: FrameType | None, torch: ModuleType | None) -> UnobservableState | None:
    """Look for whoever called: what records from Python, a finalizer, a signal's handler."""
    files = _files_of(torch)
    handlers = _handlers()
    while frame is not None:
        code = frame.f_code
        if code.co_filename in files:
            reason, functions = files[code.co_filename]
            if not functions or code.co_name in functions:
                return UnobservableState(reason, may_last=False)
        if code.co_name == "__del__":
            return UnobservableState("a finalizer", may_last=False)
        if handlers and id(code) in handlers:
            return UnobservableState("a signal handler", may_last=False)
        frame = frame.f_back
    return None


_known_files: dict[str, dict[str, tuple[str, frozenset[str]]]] = {"": {}}


def _files_of(torch: ModuleType | None) -> dict[str, tuple[str, frozenset[str]]]:
    """Return :data:`_FRAMES` by the names that the files have in this process."""
    place = getattr(torch, "__file__", None) or ""
    found = _known_files.get(place)
    if found is None:
        folder = Path(place).parent
        found = {str(folder.joinpath(*name.split("/"))): reason for name, reason in _FRAMES.items()}
        _known_files[place] = found
    return found


def _handlers() -> set[int]:
    """Return where the code lies of the program's handlers of signals, as far as it is Python's."""
    core: Any = sys.modules["_signal"]
    found = set()
    for number in _NUMBERS:
        handler = core.getsignal(number)
        if handler is None or type(handler) is int:
            continue
        if type(handler) is MethodType:
            handler = handler.__func__
        if type(handler) is FunctionType and handler.__module__ != _OURS:
            found.add(id(handler.__code__))
    return found


_OURS = "leakscope.capture.requests"
"""Has a handler of ours, which asks where it broke in."""
_FIRST_OF_REAL_TIME = 32
_NUMBERS = tuple(sorted(int(n) for n in signal.valid_signals() if int(n) < _FIRST_OF_REAL_TIME))


_CHANGE_GRAPHS = ("torch/autograd/", "torch/_dynamo/")
_AT_WORK = ("torch/nn/modules/module.py", *_CHANGE_GRAPHS)


def other_threads_compute() -> bool:
    """Return whether another thread is inside a module's call, a backward pass or the compiler."""
    return keeping_lock(lambda: _any_inside(_AT_WORK, frames_of_other_threads()))


def changes_graphs(frames: Mapping[int, FrameType]) -> bool:
    """Return whether a thread, by its innermost frame, is in a backward pass or the compiler."""
    return _any_inside(_CHANGE_GRAPHS, frames)


def _any_inside(places: Sequence[str], frames: Mapping[int, FrameType]) -> bool:
    for innermost in frames.values():
        frame: FrameType | None = innermost
        while frame is not None:
            if any(part in frame.f_code.co_filename for part in places):
                return True
            frame = frame.f_back
    return False
