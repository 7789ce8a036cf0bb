"""How deep in its loops a function gives a variable its value: what is made outside lives longer.

Read from the instructions (:mod:`dis`): a jump back closes a loop, whose body is what leads from
its target to the jump (natural loops; Aho, Lam, Sethi, Ullman: Compilers, 9.6.6). Handlers of
exceptions are left out, for they stand at the function's end and jump back from there.
"""

from __future__ import annotations

import dis
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from weakref import WeakKeyDictionary

_STORES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
_PAIRS = {"STORE_FAST_STORE_FAST": 2, "STORE_FAST_LOAD_FAST": 1}
"""Instructions that do the work of two, and how many of their variables are given a value."""
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE", "RERAISE")
_GOES_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

_depths: WeakKeyDictionary[CodeType, dict[str, int]] = WeakKeyDictionary()


def loop_depths(code: CodeType) -> dict[str, int]:
    """Return in how many loops, at the least, each variable is given its value.

    Arguments, and what is given its value outside of all loops, are left out.
    """
    found = _depths.get(code)
    if found is None:
        found = _depths[code] = _read(code)
    return found


def _read(code: CodeType) -> dict[str, int]:
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
    given = code.co_varnames[: _arguments(code)]
    return {name: depth for name, depth in depths.items() if depth and name not in given}


def _stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that are given a value; from 3.13 on one instruction may give two."""
    if instruction.opname in _STORES:
        return (str(instruction.argval),)
    if instruction.opname in _PAIRS:
        names: tuple[str, str] = instruction.argval
        return names[: _PAIRS[instruction.opname]]
    return ()


def _arguments(code: CodeType) -> int:
    starred = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + starred


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
                one = ahead.pop()
                if one not in body:
                    body.add(one)
                    ahead += before.get(one, ())
    return list(bodies.values())
