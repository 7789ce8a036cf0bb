"""Generators that only a ``for`` loop refers to: they lie on the value stack of its frame.

No variable names them, and ``tp_traverse`` of a running frame doesn't tell of its stack (CPython's
``Objects/frameobject.c``: how deep it is stands in a register of the interpreter). How deep it is
at a loop, the function's instructions say: each has a fixed effect on the stack (:mod:`dis`), and
as long as a loop runs, its iterator stays where it was put.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections import Counter, deque
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from leakscope.heap.labels import is_generator

_iterators_of: Callable[[FrameType, list[Loop]], list[object]] | None
try:
    from leakscope.heap._native import looped_over as _iterators_of
except ImportError:  # nothing was compiled, or an interpreter whose stack isn't read
    _iterators_of = None

_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_GOES_ELSEWHERE = frozenset(
    {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"}
)
_MOST_OBJECTS = 64
"""So many objects are looked at behind an iterator: wrappers such as ``enumerate`` are few."""
_NEVER_A_WRAPPER = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""What leads to half of the heap and to no generator that a loop runs over."""
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, deque})
_OURS = 2
"""References of our own to what is asked for its references: a dict's and an argument's."""


class Loop(NamedTuple):
    """A ``for`` loop of a function."""

    begin: int
    """Offset of the instruction that fetches the next item."""
    end: int
    """Offset of what comes after the last one."""
    depth: int
    """Where on the stack its iterator lies."""


_loops_by_code: WeakKeyDictionary[CodeType, list[Loop]] = WeakKeyDictionary()


def looped_over(frame: FrameType) -> list[object]:
    """Return the generators that the running loops of a frame lead to, the outermost loop first.

    A generator behind others' iterators (``enumerate``, ``zip``, ``itertools``, a loader's) is one
    of them, as long as nothing else refers to it. Without the native module, and from Python 3.14
    on, it returns nothing.
    """
    found: list[object] = []
    loops = _loops_of(frame.f_code) if _iterators_of is not None else []
    iterators = _iterators_of(frame, loops) if _iterators_of is not None and loops else []
    while iterators:
        found += _held_generators([iterators.pop(0)])
    return found


def _held_generators(iterators: list[object]) -> list[object]:
    """Return the generators to which only an iterator and what lies behind it refer.

    It is taken from the list, so that nobody up the stack refers to it.
    """
    met = {id(iterators[0]): iterators.pop()}
    inside = Counter(met.keys())
    left = deque(met)
    while left and len(met) < _MOST_OBJECTS:
        number = left.popleft()
        if _may_wrap(met[number]):
            behind = {id(referent): referent for referent in gc.get_referents(met[number])}
            inside.update(map(id, gc.get_referents(met[number])))
            left += [n for n in behind if n not in met]
            met |= behind
            del behind
    generators = [number for number, obj in met.items() if is_generator(obj)]
    return [met[n] for n in generators if sys.getrefcount(met[n]) - _OURS <= inside[n]]


def _may_wrap(obj: object) -> bool:
    if type(obj) in _CONTAINERS:
        return len(obj) <= _MOST_OBJECTS  # type: ignore[arg-type]
    return not is_generator(obj) and not issubclass(type(obj), _NEVER_A_WRAPPER)


def _loops_of(code: CodeType) -> list[Loop]:
    found = _loops_by_code.get(code)
    if found is None:
        found = _loops_by_code[code] = sorted(loops_in(code))
    return found


def loops_in(code: CodeType) -> list[Loop]:
    """Return the ``for`` loops of a function, those left out that only an exception leads to."""
    instructions = list(dis.get_instructions(code))
    place = {instruction.offset: at for at, instruction in enumerate(instructions)}
    met: set[int] = set()
    ahead = [(0, 0)]
    found = []
    while ahead:
        start, depth = ahead.pop()
        for instruction in instructions[start:]:
            if instruction.offset in met:
                break
            met.add(instruction.offset)
            name = instruction.opname
            argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
            if name == "FOR_ITER":
                found.append(Loop(instruction.offset, instruction.argval, depth - 1))
            if instruction.opcode in _JUMPS:
                effect = dis.stack_effect(instruction.opcode, argument, jump=True)
                ahead.append((place[instruction.argval], depth + effect))
            if name in _ENDS or name in _GOES_ELSEWHERE:
                break
            depth += dis.stack_effect(instruction.opcode, argument, jump=False)
    return found


_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
