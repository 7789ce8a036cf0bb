"""Has the last boundary reached before what the program worked with is gone.

Most programs do their work in ``main()``, and when that has returned its variables are gone: a look
at the end of the process finds nothing that they held. So as a function returns that the main
module has called, and nothing of the module's code that comes after it can be work, the session is
concluded with the function's frame still on the stack. Where an exception ends the program, its
traceback keeps the frames, which are looked at before it goes.

Nothing is looked at where other threads still work, and by the evaluator's hook only up to
Python 3.11 (``native/returning.c``): from 3.12 on the interpreter clears a frame before anybody
learns that it has returned.
"""

from __future__ import annotations

import builtins
import dis
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from traceback import walk_tb
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from leakscope.capture.dispatch import leave_hook
from leakscope.capture.policy import RETURN_CALLS, RETURN_FOREIGN_CALLS, RETURN_LEAST_SECONDS
from leakscope.model.errors import is_interrupt

try:
    from leakscope.capture import _returning as _native
except ImportError:  # nothing was compiled
    _native = None  # type: ignore[assignment]

IS_SUPPORTED = hasattr(_native, "watch")
_NO_WORK = frozenset({*sys.stdlib_module_names, "torch", "wandb", "mlflow"})
"""Modules whose functions a program calls when its work is done: to exit, save and shut down."""
_DATA = (bool, int, float, str, bytes, tuple, list, dict, set)
_EVENTS_OF_CALLS = sys.version_info >= (3, 11)
"""Whether a called name can be distinguished from others in a code object."""
_LOOKS_UP = frozenset({"LOAD_NAME", "LOAD_GLOBAL"})
_BINDS = frozenset({"STORE_NAME", "STORE_GLOBAL"})
_BEGINS_WORK = frozenset(
    {
        "FOR_ITER", "GET_ITER", "GET_YIELD_FROM_ITER", "IMPORT_NAME", "LOAD_BUILD_CLASS",
        "MAKE_FUNCTION", "SETUP_WITH", "BEFORE_WITH", "BEFORE_ASYNC_WITH",
    }
)  # fmt: skip


def watch(conclude: Callable[[], object], launch: dict[str, Any]) -> None:
    """Have ``conclude`` called as the program's last work returns."""
    if not IS_SUPPORTED:
        return
    main = sys.modules["__main__"].__dict__

    def returned() -> None:
        try:
            module = _main_module_below(sys._getframe(1), main)
            if module is not None and is_alone() and is_done_after(module):
                conclude()
        except BaseException as fault:
            if is_interrupt(fault):
                leave_hook(fault)
                raise

    through = (launch, runpy.__dict__)
    _native.watch(returned, main, through, RETURN_LEAST_SECONDS, RETURN_CALLS, RETURN_FOREIGN_CALLS)


def stop() -> None:
    """Stop watching returns."""
    if IS_SUPPORTED:
        _native.stop()


def frames_left_by(error: BaseException) -> list[FrameType]:
    """Return the frames of functions that an exception has left, outermost first."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return [frame for frame in frames if frame.f_code.co_flags & _IS_FUNCTION]


def is_alone() -> bool:
    """Return whether no thread is left that the interpreter would wait for at its exit."""
    me = threading.current_thread()
    return all(thread is me or thread.daemon for thread in threading.enumerate())


def is_done_after(module: FrameType) -> bool:
    """Return whether nothing that comes after where a module's frame stands can be work.

    All that may run is taken to run. Loops, imports and ``with`` may be work, and so are calls of
    what is no function of Python's own or of torch's.
    """
    code, names = module.f_code, module.f_globals
    (called, attribute), *waiting = _operands(code, module.f_lasti)
    calls_back = not attribute and called not in names and called in _CALLS_BACK
    if calls_back or not all(_waits_idly(operand, names) for operand in waiting):
        return False
    before, loaded, is_called = "", "", False
    bound: set[str] = set()
    for name, argument, at in _instructions(code, module.f_lasti + 2):
        if name in _BEGINS_WORK or _leads_back(name, argument, at):
            return False
        if name == "LOAD_METHOD" and before == "BINARY_SUBSCR":
            return False
        if loaded and name in ("LOAD_ATTR", "LOAD_METHOD"):
            if (is_called or name == "LOAD_METHOD") and not _has_no_work(loaded, names):
                return False
            is_called = False  # what is called is an attribute of it
            loaded = loaded if name == "LOAD_ATTR" else ""
        else:
            if loaded and is_called and not _is_no_work(loaded, names):
                return False
            loaded = ""
        if name in _BINDS:
            bound.add(code.co_names[argument])
        if name in _LOOKS_UP:
            loaded = _looked_up(code, name, argument)
            is_called = before == "PUSH_NULL" or not _EVENTS_OF_CALLS
            if _may_be_handed_on(loaded, names):
                return False
            if loaded in bound:  # to what this call, or a later one, returns
                names = {**names, loaded: _UNKNOWN}
        before = name
    return True


def _may_be_handed_on(name: str, names: dict[str, Any]) -> bool:
    """Return whether it is a function or class of the program's: whoever gets it may call it."""
    value = names.get(name)
    return type(value) in (FunctionType, type) and not _is_of_no_work(value)


class _Unknown:
    """What a name will be bound to, of which nothing is known yet."""


_UNKNOWN = _Unknown()

_CONSTANT, _RESULT = "constant", "result"
_Operand = tuple[str, str]
"""A name that was looked up and the attribute of it, if any; or what has no name."""
_ENDS_STATEMENT = ("POP_TOP", "STORE_", "DELETE_", "JUMP", "RESUME", "RETURN", "FOR_ITER")
_CALLS_BACK = frozenset(
    {"map", "filter", "list", "tuple", "set", "dict", "sum", "max", "min", "any", "all", "sorted",
     "next", "exec", "eval", "enumerate", "zip"}
)  # fmt: skip


def _operands(code: CodeType, at: int) -> list[_Operand]:
    """Return what is called by the call at a place, then what its statement has put aside for
    later: a function whose argument this is, the other arguments, the left side of a sum.
    """
    stack: list[_Operand] = []
    called: _Operand = (_RESULT, "")
    operands: list[_Operand] | None = None
    for name, argument, place in _instructions(code, 0):
        if operands is None and place > at:
            operands = [called, *stack[:-1]]  # the topmost will be what it returns
        ends = _ends_statement(name)
        if operands is not None and len(stack) < _effect(name, argument)[0]:
            return [*operands, (_RESULT, "")]  # what stands before a condition is taken later on
        called = _execute(stack, code, name, argument)
        if ends and operands is not None:
            break
        if ends:
            stack.clear()
    return operands or [called]


def _execute(stack: list[_Operand], code: CodeType, name: str, argument: int) -> _Operand:
    pops, pushes = _effect(name, argument)
    taken = [stack.pop() for _ in range(min(pops, len(stack)))]
    if name in _LOOKS_UP:
        stack.append((_looked_up(code, name, argument), ""))
    elif name in ("LOAD_ATTR", "LOAD_METHOD") and taken:
        stack += [(taken[0][0], code.co_names[argument])] * pushes
    elif name in ("LOAD_CONST", "PUSH_NULL"):
        stack.append((_CONSTANT, ""))
    else:
        stack += [(_RESULT, "")] * pushes
    named = [operand for operand in taken if operand[0] not in (_CONSTANT, _RESULT)]
    return named[-1] if named else (_RESULT, "")


def _effect(name: str, argument: int) -> tuple[int, int]:
    if name == "LOAD_ATTR":
        return 1, 1
    if name == "LOAD_METHOD":
        return 1, 2
    if name in ("CALL", "CALL_METHOD", "CALL_FUNCTION_KW"):
        return argument + 2, 1
    if name == "CALL_FUNCTION":
        return argument + 1, 1
    if name in ("PRECALL", "KW_NAMES"):
        return 0, 0
    code = dis.opmap[name]
    net = dis.stack_effect(code, argument if code >= dis.HAVE_ARGUMENT else None)
    if net < 0 and not _ends_statement(name):
        return 1 - net, 1
    return max(0, -net), max(0, net)


def _ends_statement(name: str) -> bool:
    return any(part in name for part in _ENDS_STATEMENT)


def _waits_idly(operand: _Operand, names: dict[str, Any]) -> bool:
    """Return whether an operand is no work when it is called."""
    name, attribute = operand
    if name == _CONSTANT:
        return True
    if name == _RESULT:
        return False
    if attribute:
        return _has_no_work(name, names)
    if name not in names:
        return name not in _CALLS_BACK
    return _is_data(names[name]) or _is_no_work(name, names)


_IS_FUNCTION = 1
"""``CO_OPTIMIZED``: variables of its own."""


def _main_module_below(frame: FrameType | None, main: dict[str, Any]) -> FrameType | None:
    while frame is not None and not (
        frame.f_globals is main and frame.f_code.co_name == "<module>"
    ):
        frame = frame.f_back
    return frame


def _instructions(code: CodeType, begin: int) -> Iterator[tuple[str, int, int]]:
    text, argument = code.co_code, 0
    for at in range(begin, len(text), 2):
        name, argument = dis.opname[text[at]], argument << 8 | text[at + 1]
        if name == "CACHE":
            argument = 0
        elif name != "EXTENDED_ARG":
            yield name, argument, at
            argument = 0


def _leads_back(name: str, argument: int, at: int) -> bool:
    if "JUMP" not in name:
        return False
    is_absolute = dis.opmap[name] in dis.hasjabs
    return "BACKWARD" in name or (is_absolute and argument * 2 <= at)


def _looked_up(code: CodeType, name: str, argument: int) -> str:
    is_shifted = name == "LOAD_GLOBAL" and sys.version_info >= (3, 11)
    return code.co_names[argument >> 1 if is_shifted else argument]


def _is_no_work(name: str, names: dict[str, Any]) -> bool:
    if name not in names:
        return hasattr(builtins, name)
    value = names[name]
    is_function = type(value) in (FunctionType, BuiltinFunctionType, type)
    return (is_function and _is_of_no_work(value)) or (not _EVENTS_OF_CALLS and _is_data(value))


def _has_no_work(name: str, names: dict[str, Any]) -> bool:
    if name not in names:
        return hasattr(builtins, name)
    value = names[name]
    if type(value) is ModuleType:
        return value.__name__.partition(".")[0] in _NO_WORK
    return _is_data(value) or _is_of_no_work(type(value), but="torch")


def _is_data(value: object) -> bool:
    return type(value) in (*_DATA, ModuleType)


def _is_of_no_work(defined: Any, but: str = "") -> bool:
    """Return whether a function or class is Python's own, or of another library that is no work."""
    module = defined.__module__
    home = module.partition(".")[0] if type(module) is str else ""
    return home in _NO_WORK and home not in ("__main__", but)
