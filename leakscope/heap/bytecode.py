"""What bytecode shows of variables: generators that only a ``for`` loop holds, how deep in loops a
variable is set, and how far a loop has come.

Read from the instructions (:mod:`dis`): a jump back closes a loop, whose body is what leads from
its target to the jump (natural loops; Aho, Lam, Sethi, Ullman: Compilers, 9.6.6). Handlers of
exceptions are left out, for they stand at the function's end and jump back from there.

No variable names them, and ``tp_traverse`` of a running frame doesn't visit its stack (CPython's
``Objects/frameobject.c``: how deep it is stands in a register of the interpreter). What lies where
while an instruction runs, the function's instructions say: each has a fixed effect on the stack
(:mod:`dis`), and a loop's iterator stays where it is until the loop is left.

An exception that leaves a loop takes the iterator from the stack meanwhile, and what that calls
when it dies may ask for a census: nothing may be read there any more. By then the interpreter has
made a traceback that refers to the frame (``Python/ceval.c``: ``PyTraceBack_Here`` comes before the
stack is unwound), or the instruction is one that raises again. So only frames are read to which
nobody but the interpreter refers, and not at such an instruction.
"""

from __future__ import annotations

import dis
import gc
import inspect
import sys
import types
from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from leakscope.heap.anatomy import _native
from leakscope.heap.labels import is_generator

_iterator_of: Callable[[types.FrameType, int], object] | None = getattr(_native, "stacked", None)
"""None where nothing was compiled, or for an interpreter whose stack isn't read."""
_STORES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
_PAIRS = {"STORE_FAST_STORE_FAST": 2, "STORE_FAST_LOAD_FAST": 1}
"""Instructions that do the work of two, and how many of their variables are given a value."""
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE", "RERAISE")
_GOES_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

_depths: WeakKeyDictionary[types.CodeType, dict[str, int]] = WeakKeyDictionary()


def loop_depths(code: types.CodeType) -> dict[str, int]:
    """Return in how many loops, at the least, each variable is given its value.

    Arguments, and what is given its value outside of all loops, are left out.
    """
    found = _depths.get(code)
    if found is None:
        found = _depths[code] = _read(code)
    return found


def _read(code: types.CodeType) -> dict[str, int]:
    instructions = list(dis.get_instructions(code))
    after = _successors(instructions)
    inside = [0] * len(instructions)
    for body in _loops(after):
        for at in body:
            inside[at] += 1
    depths: dict[str, int] = {}
    for at, instruction in enumerate(instructions):
        for name in _stored(instruction):
            depths[name] = min(depths.get(name, inside[at]), inside[at])
    flags = code.co_flags
    starred = bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]
    return {name: depth for name, depth in depths.items() if depth and name not in arguments}


def _stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that are given a value; from 3.13 on one instruction may give two."""
    if instruction.opname in _STORES:
        return (str(instruction.argval),)
    if instruction.opname in _PAIRS:
        names: tuple[str, str] = instruction.argval
        return names[: _PAIRS[instruction.opname]]
    return ()


def _successors(instructions: list[dis.Instruction]) -> dict[int, list[int]]:
    """Return which instructions may follow each, of those that are come to without an exception."""
    place = {instruction.offset: at for at, instruction in enumerate(instructions)}
    after: dict[int, list[int]] = {}
    ahead = [0] if instructions else []
    while ahead:
        at = ahead.pop()
        if at in after:
            continue
        name, operation = instructions[at].opname, instructions[at].opcode
        after[at] = []
        if operation in _JUMPS and not name.startswith("SETUP_"):
            after[at].append(place[instructions[at].argval])
        if not name.startswith((*_LEAVES, *_GOES_ELSEWHERE)) and at + 1 < len(instructions):
            after[at].append(at + 1)
        ahead += after[at]
    return after


def _loops(after: dict[int, list[int]]) -> list[set[int]]:
    """Return the bodies of the loops: of one that several jumps close, all that any comes from."""
    before: dict[int, list[int]] = {}
    for at, following in after.items():
        for then in following:
            before.setdefault(then, []).append(at)
    bodies: dict[int, set[int]] = {}
    for at, following in after.items():
        for head in (then for then in following if then <= at):
            body = bodies.setdefault(head, {head})
            ahead = [at]
            while ahead:
                block = ahead.pop()
                if block not in body:
                    body.add(block)
                    ahead += before.get(block, ())
    return list(bodies.values())


_MAY_RERAISE = ("END_ASYNC_FOR", "CLEANUP_THROW")
_MOST_OBJECTS = 64
"""So many objects are looked at behind an iterator: wrappers such as ``enumerate`` are few."""
_NEVER_A_WRAPPER = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
"""What leads to half of the heap and to no generator that a loop runs over."""
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, deque})
_OURS = 2
"""References of our own to the object whose references are read: a dict's and an argument's."""


class ValueStack(NamedTuple):
    """Where iterators of loops lie on the stack of a function, the outermost loop first."""

    offsets: array[int]
    """Of the instructions from which on others lie there than before, ascending."""
    iterators: list[tuple[int, ...]]
    """From each on, the depths at which iterators lie until the instruction's end."""
    heads: list[tuple[int, int]]
    """Where loops begin, and the depth at which the iterator of each lies."""

    def at(self, offset: int) -> tuple[int, ...]:
        """Return those depths for the instruction there; an offset may be that of its cache."""
        run = bisect_right(self.offsets, offset)
        return self.iterators[run - 1] if run else ()


_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_BEGUN = (
    1 - dis.stack_effect(dis.opmap["RETURN_GENERATOR"]) if "RETURN_GENERATOR" in dis.opmap else 1
)
"""What lies on the stack of a generator when it is begun, as far as no instruction tells."""

_stacks: WeakKeyDictionary[types.CodeType, ValueStack] = WeakKeyDictionary()


def looped_over(owns: Callable[[types.FrameType], bool]) -> dict[int, list[object]]:
    """Return the generators that running loops of this thread lead to, by the id of the frame.

    A generator behind others' iterators (``enumerate``, ``zip``, ``itertools``, a loader's) is one
    of them, as long as nothing else refers to it. Only frames are read that ``owns`` accepts and
    nothing refers to, such as a traceback; none without the native module or from 3.14 on.

    """
    found: dict[int, list[object]] = {}
    if _iterator_of is None:
        return found
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if sys.getrefcount(frame) <= _ALONE and owns(frame):
            depths = _stack_of(frame.f_code).at(frame.f_lasti)
            iterators = [_iterator_of(frame, depth) for depth in depths]
            generators = []
            while iterators:
                generators += _generators_behind([iterators.pop(0)])
            if generators:
                found[id(frame)] = generators
        frame = frame.f_back
    return found


def _references_to_a_frame() -> int:
    """Return how many a frame has that the interpreter, a variable and an argument refer to."""

    def of_the_caller() -> int:
        frame = sys._getframe(0)
        assert frame.f_back is not None
        frame = frame.f_back
        return sys.getrefcount(frame)

    return of_the_caller()


_ALONE = _references_to_a_frame()


def _generators_behind(iterators: list[object]) -> list[object]:
    """Return the generators to which only an iterator and what lies behind it refer.

    It is taken from the list, so that nobody up the stack refers to it.
    """
    visited = {id(iterators[0]): iterators.pop()}
    inside = Counter(visited.keys())
    left = deque(visited)
    while left and len(visited) < _MOST_OBJECTS:
        number = left.popleft()
        if _may_wrap(visited[number]):
            behind = {id(referent): referent for referent in gc.get_referents(visited[number])}
            inside.update(map(id, gc.get_referents(visited[number])))
            left += [n for n in behind if n not in visited]
            visited |= behind
            del behind
    generators = [number for number, obj in visited.items() if is_generator(obj)]
    return [visited[n] for n in generators if sys.getrefcount(visited[n]) - _OURS <= inside[n]]


def _may_wrap(obj: object) -> bool:
    if type(obj) in _CONTAINERS:
        return len(obj) <= _MOST_OBJECTS  # type: ignore[arg-type]
    return not is_generator(obj) and not issubclass(type(obj), _NEVER_A_WRAPPER)


def _stack_of(code: types.CodeType) -> ValueStack:
    found = _stacks.get(code)
    if found is None:
        found = _stacks[code] = stack_in(code)
    return found


def stack_in(code: types.CodeType) -> ValueStack:
    """Return where iterators lie on a function's stack; nowhere where only exceptions lead to."""
    instructions = list(dis.get_instructions(code))
    place = {instruction.offset: at for at, instruction in enumerate(instructions)}
    iterators: dict[int, tuple[int, ...]] = {}
    heads: dict[int, int] = {}
    begun = _BEGUN if code.co_flags & _GENERATORS else 0
    ahead: list[tuple[int, int, tuple[int, ...]]] = [(0, begun, ())]
    while ahead:
        at, depth, on_stack = ahead.pop()
        while at < len(instructions) and at not in iterators:
            name, operation = instructions[at].opname, instructions[at].opcode
            argument = instructions[at].arg if operation >= dis.HAVE_ARGUMENT else None
            if operation in _JUMPS:
                there = depth + dis.stack_effect(operation, argument, jump=True)
                left = tuple(d for d in on_stack if d < there)
                ahead.append((place[instructions[at].argval], there, left))
            if name == "FOR_ITER":
                heads[instructions[at].offset] = depth - 1
                if depth - 1 not in on_stack:
                    on_stack = (*on_stack, depth - 1)
            depth += dis.stack_effect(operation, argument, jump=False)
            on_stack = tuple(d for d in on_stack if d < depth)
            iterators[at] = () if name.startswith((*_LEAVES, *_MAY_RERAISE)) else on_stack
            if name.startswith((*_LEAVES, *_GOES_ELSEWHERE)):
                break
            at += 1
    return _by_runs([step.offset for step in instructions], iterators, sorted(heads.items()))


def _by_runs(
    offsets: list[int], iterators: dict[int, tuple[int, ...]], heads: list[tuple[int, int]]
) -> ValueStack:
    """Keep only where it changes: one of these is kept for every function that ran a census."""
    if not any(iterators.values()):
        return _NOTHING
    before: tuple[int, ...] = ()
    stack = ValueStack(array("l"), [], heads)
    for at, offset in enumerate(offsets):
        on_stack = iterators.get(at, ())
        if on_stack != before:
            stack.offsets.append(offset)
            stack.iterators.append(on_stack)
            before = on_stack
    return stack


_NOTHING = ValueStack(array("l"), [], [])


class LoopPass(NamedTuple):
    """How far a loop has come."""

    file: str
    line: int
    done: int
    """Passes so far, less a constant."""


def outermost_loop(thread: int, owns: Callable[[types.FrameType], bool]) -> LoopPass | None:
    """Return the outermost ``for`` loop of a thread whose passes can be counted.

    Those over a range, a list or a tuple can, also by ``enumerate``, ``zip`` and generators, such
    as those of progress bars.

    Args:
        thread: its number.
        owns: says which frames to look at.

    """
    found = None
    frame = sys._current_frames().get(thread)
    while frame is not None and _iterator_of is not None:
        if sys.getrefcount(frame) <= _ALONE and owns(frame):
            found = _outermost_in(frame) or found
        frame = frame.f_back
    return found


def _outermost_in(frame: types.FrameType) -> LoopPass | None:
    code, offset = frame.f_code, frame.f_lasti
    stack = _stack_of(code)
    for depth in stack.at(offset):
        assert _iterator_of is not None
        done = _passes(_iterator_of(frame, depth))
        begins = [at for at, of in stack.heads if of == depth and at <= offset]
        if done is not None and begins:
            lines = (line for start, end, line in code.co_lines() if start <= begins[-1] < end)
            return LoopPass(code.co_filename, next(lines, None) or code.co_firstlineno, done)
    return None


_RANGES: tuple[type, ...] = (type(iter(range(0))), type(iter(range(1 << 64))))
_INDEXED: tuple[type, ...] = (*_RANGES, type(iter([])), type(iter(())))


def _passes(iterator: Any) -> int | None:
    """Return how often an iterator was advanced, less a constant; None where it can't be read.

    Reading these runs no code of the program's, and doesn't advance them.
    """
    if type(iterator) in _INDEXED:
        # Exhausted ones have no index; from 3.12 on that of a range is where it begins by now.
        _, arguments, index = (*iterator.__reduce__(), None)[:3]
        if index is None and arguments and type(iterator) in _RANGES:
            return int(arguments[0].start // arguments[0].step)
        return index if isinstance(index, int) else None
    if type(iterator) is enumerate:
        return int(iterator.__reduce__()[1][1])
    if type(iterator) is zip:
        passes = map(_passes, iterator.__reduce__()[1])
        return next((done for done in passes if done is not None), None)
    if type(iterator) is types.GeneratorType and not iterator.gi_running and iterator.gi_frame:
        inside = _outermost_in(iterator.gi_frame)
        return None if inside is None else inside.done
    return None
