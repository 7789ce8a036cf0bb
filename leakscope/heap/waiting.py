"""Tasks of asyncio and threads, by what they run: how many there are, and where they wait.

A few of each are looked at for whether anything but themselves can wake them: what they wait for is
then referred to by nobody else. That is decided as the collector does it, by counting the
references within some hundred objects around them. A reference that isn't found there counts as
somebody else's, and so does a weak one.
"""

from __future__ import annotations

import gc
import heapq
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any

from leakscope.heap import anatomy
from leakscope.heap.anatomy import locals_of, outwards, without_locals
from leakscope.heap.labels import frame_of
from leakscope.heap.ownership import Definitions, Ownership, is_own_file, module_of
from leakscope.heap.pausing import frames_of_other_threads
from leakscope.model.census import Waiting, WaitKind, WaitPlace

MOST_GROUPS = 12
FEWEST_ALIKE = 4
"""Fewer that run the same are no group."""
MOST_LOOKED_AT = 500
"""Of more tasks or threads, so many are looked at evenly."""
_MOST_PLACES = 3
_MOST_FRAMES = 64
_JUDGED = 3
"""Of each group, so many are looked at for who can wake them."""
_MOST_AROUND = 600
"""Objects that are entered, and entries that one of them may have."""
_MOST_KNOWN = 200
"""Groups whose first number is kept: a program may make up any number of functions."""
_TASK_SETS = ("_all_tasks", "_scheduled_tasks")
"""Weak sets of :mod:`asyncio.tasks`: of CPython up to 3.11, and of 3.12 and 3.13."""
_AWAITED: dict[type, Any] = {
    types.CoroutineType: vars(types.CoroutineType)["cr_await"],
    types.GeneratorType: vars(types.GeneratorType)["gi_yieldfrom"],
}
_RUNNING: dict[type, Any] = {
    types.CoroutineType: vars(types.CoroutineType)["cr_running"],
    types.GeneratorType: vars(types.GeneratorType)["gi_running"],
}
_MODULES = ("threading", "queue")
"""Those with what a thread waits for."""
_LIST_AND_ARGUMENT = 2
"""References to an object that only our list has, while its number is read."""


@dataclass
class _Group:
    kind: WaitKind
    name: str
    file: str
    line: int
    count: int = 0
    places: Counter[tuple[str, int, str, str]] = field(default_factory=Counter)
    samples: list[Any] = field(default_factory=list)


def waiting_groups(
    ownership: Ownership,
    definitions: Definitions,
    *,
    judges: bool = False,
    at_first: dict[tuple[WaitKind, str, int], int] | None = None,
) -> list[Waiting]:
    """Return the tasks and threads that run the same function, the most numerous first.

    ``judges`` also says of how many nothing else can wake them, judging by a few. Where
    ``at_first`` is given, which keeps how many of a group there were when it was first seen, groups
    that have no more since aren't judged again: that takes milliseconds.
    """
    groups: dict[tuple[WaitKind, str, int], _Group] = {}
    looker = _Looker(ownership, definitions, groups)
    tasks = alive_tasks()
    taken = _evenly(tasks)
    for task in taken:
        looker.add_task(task)
    task_scale = len(tasks) / max(len(taken), 1)
    threads = _threads()
    taken_threads = _evenly(threads)
    for thread, frames in taken_threads:
        looker.add_thread(thread, frames)
    thread_scale = len(threads) / max(len(taken_threads), 1)
    del taken, tasks  # what is judged next has no references of ours
    del taken_threads, threads
    scales = {WaitKind.TASK: task_scale, WaitKind.THREAD: thread_scale}
    found = [group for group in groups.values() if group.count >= FEWEST_ALIKE]
    found.sort(key=lambda group: -group.count)
    records = []
    for group in found[:MOST_GROUPS]:
        key = (group.kind, group.name, group.line)
        first = -1 if at_first is None else at_first.get(key, -1)
        if at_first is not None and len(at_first) < _MOST_KNOWN:
            at_first.setdefault(key, group.count)
        is_judged = judges and group.count > first
        records.append(_waiting_record(group, scales[group.kind], judges=is_judged))
    return records


def _waiting_record(group: _Group, scale: float, *, judges: bool) -> Waiting:
    samples, group.samples = group.samples, []
    lost = 0.0
    if judges and samples:
        is_lost = _is_lost_task if group.kind is WaitKind.TASK else _is_lost_thread
        lost = sum(map(is_lost, samples)) / len(samples)
    return Waiting(
        kind=group.kind,
        name=group.name,
        file=group.file,
        line=group.line,
        count=round(group.count * scale),
        lost=round(group.count * scale * lost) if lost == 1.0 else 0,
        places=[
            WaitPlace(count=round(count * scale), file=file, line=line, function=function, at=at)
            for (file, line, function, at), count in heapq.nlargest(
                _MOST_PLACES, group.places.items(), key=itemgetter(1)
            )
        ],
    )


def _evenly(every: Sequence[Any]) -> Sequence[Any]:
    return every[:: -(-len(every) // MOST_LOOKED_AT)] if len(every) > MOST_LOOKED_AT else every


class _Looker:
    def __init__(
        self,
        ownership: Ownership,
        definitions: Definitions,
        groups: dict[tuple[WaitKind, str, int], _Group],
    ) -> None:
        self._ownership = ownership
        self._definitions = definitions
        self._groups = groups
        self._owned: dict[int, bool] = {}
        self._names: dict[tuple[int, bool], str] = {}

    def add_task(self, task: Any) -> None:
        self._add(WaitKind.TASK, [*awaiting(type(task).get_coro(task))], task)

    def add_thread(self, thread: Any, frames: list[types.FrameType]) -> None:
        if any(is_own_file(frame.f_code.co_filename) for frame in frames):
            return
        own = [frame for frame in frames if module_of(frame.f_globals) != "threading"]
        begins = frames.index(own[0]) if own else 0
        self._add(WaitKind.THREAD, frames[begins:], thread)

    def _add(self, kind: WaitKind, frames: list[types.FrameType], sample: Any) -> None:
        if not frames:
            return
        users = [at for at, frame in enumerate(frames) if self._is_users(frame)]
        runs = frames[users[0]] if users else frames[0]
        waits = users[-1] if users else len(frames) - 1
        code = runs.f_code
        key = kind, code.co_filename, code.co_firstlineno
        group = self._groups.get(key)
        if group is None:
            name = self._name(runs, spoken=not users)
            group = _Group(kind, name, code.co_filename, code.co_firstlineno)
            self._groups[key] = group
        group.count += 1
        frame = frames[waits]
        inner = frames[waits + 1] if waits + 1 < len(frames) else None
        at = self._name(inner, spoken=True) if inner is not None else ""
        function = self._name(frame, spoken=not users)
        group.places[frame.f_code.co_filename, frame.f_lineno or 0, function, at] += 1
        if len(group.samples) < _JUDGED:
            group.samples.append(sample)

    def _is_users(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        if id(code) not in self._owned:
            self._owned[id(code)] = self._ownership.owns_code(code, frame.f_globals)
        return self._owned[id(code)]

    def _name(self, frame: types.FrameType, *, spoken: bool) -> str:
        key = id(frame.f_code), spoken
        if key not in self._names:
            values = locals_of(frame)
            first = values[0][1] if values and frame.f_code.co_argcount else None
            name = without_locals(self._definitions.qualname(frame.f_code, first))
            self._names[key] = f"{_public_module(frame, name)}.{name}" if spoken else name
        return self._names[key]


def _public_module(frame: types.FrameType, name: str) -> str:
    """Return ``asyncio`` for ``asyncio.tasks``, where that has the same function or class."""
    module = module_of(frame.f_globals)
    first = name.partition(".")[0]
    value = frame.f_globals.get(first)
    parts = module.split(".")
    for end in range(1, len(parts) if value is not None else 1):
        package = sys.modules.get(".".join(parts[:end]))
        if (anatomy.instance_dict(package) or {}).get(first) is value:
            return ".".join(parts[:end])
    return module


def alive_tasks() -> list[Any]:
    """Return asyncio's tasks that aren't done, in no order."""
    task_type = getattr(sys.modules.get("_asyncio"), "Task", None)
    if task_type is None:
        return []
    is_done = task_type.done
    found = {id(t): t for t in _tasks_of_running_loops() if not is_done(t)}
    for name in _TASK_SETS:
        known = anatomy.instance_dict(getattr(sys.modules.get("asyncio.tasks"), name, None))
        alive = [reference() for reference in list((known or {}).get("data", ()))]
        found |= {id(t): t for t in alive if type(t) is task_type and not is_done(t)}
    return list(found.values())


def _tasks_of_running_loops() -> list[Any]:
    """Return the tasks of loops that run, where asyncio lists them in C: from 3.14 on."""
    core: Any = sys.modules.get("_asyncio")
    all_tasks = getattr(core, "all_tasks", None)
    if all_tasks is None:
        return []
    loops = {id(loop): loop for loop in (core._get_running_loop(), *_loops_of_frames()) if loop}
    return [t for loop in loops.values() for t in all_tasks(loop) if type(t) is core.Task]


def _loops_of_frames() -> Iterator[Any]:
    for innermost in frames_of_other_threads().values():  # asyncio knows that of this thread
        for frame in islice(outwards(innermost), _MOST_FRAMES):
            is_of_asyncio = module_of(frame.f_globals) == "asyncio.base_events"
            if is_of_asyncio and frame.f_code.co_name == "run_forever":
                yield dict(locals_of(frame)).get("self")


def awaiting(coroutine: Any) -> Iterator[types.FrameType]:
    """Yield the frames of a coroutine and of those that it awaits."""
    for waiting in _awaited(coroutine):
        frame = frame_of(waiting)
        if frame is None:
            return
        yield frame


def _awaited(coroutine: Any) -> Iterator[Any]:
    """Yield a coroutine and those that it awaits, as far as they are suspended.

    What one that runs awaits isn't read. CPython 3.11 takes the word behind its current
    instruction, which may be no instruction, for what says whether it awaits anything, and then
    reads its stack where there is none (``_PyGen_yf`` in ``Objects/genobject.c``).
    """
    while (kind := type(coroutine)) in _AWAITED:
        yield coroutine
        if anatomy.slot_value(_RUNNING[kind], coroutine):
            return
        coroutine = anatomy.slot_value(_AWAITED[kind], coroutine)


def loop_of(task: Any) -> object:
    """Return the event loop of a task."""
    return vars(type(task))["_loop"].__get__(task)


def _threads() -> list[tuple[Any, list[types.FrameType]]]:
    tops = frames_of_other_threads()
    tops.pop(threading.main_thread().ident or 0, None)
    return [
        (thread, [*islice(outwards(tops[number]), _MOST_FRAMES)][::-1])
        for number, thread in list(threading._active.items())  # type: ignore[attr-defined]
        if number in tops
    ]


def _is_lost_task(task: Any) -> bool:
    waiter = vars(type(task))["_fut_waiter"].__get__(task)
    if type(waiter) is not getattr(sys.modules.get("_asyncio"), "Future", None):
        return False
    coroutine = type(task).get_coro(task)
    own = [task]
    for each in _awaited(coroutine):
        own.append(each)
        if (frame := frame_of(each)) is not None:
            own.append(frame)
    del coroutine
    around = _Around(own, [waiter], [loop_of(task)])
    number = id(waiter)
    del waiter, task, own
    return not around.has_other_holders(number)


def _is_lost_thread(thread: Any) -> bool:
    if type(thread) is not threading.Thread:  # its own attributes may be what wakes it
        return False
    frames = [*outwards(frames_of_other_threads().get(thread.ident or 0))]
    inward = [*takewhile(lambda frame: module_of(frame.f_globals) in _MODULES, frames)]
    if not inward or len(inward) == len(frames):
        return False
    waits_for = dict(locals_of(inward[-1])).get("self")
    if anatomy.module_name(type(waits_for)) not in _MODULES:
        return False
    locals_ = [value for frame in frames for _, value in locals_of(frame)]
    state = anatomy.instance_dict(thread) or {}
    own = [thread, *(state.get(name) for name in ("_target", "_args", "_kwargs"))]
    around = _Around([each for each in own if each is not None], [waits_for], [], locals_)
    number = id(waits_for)
    del waits_for, own, locals_, state, frames, inward, thread
    return not around.has_other_holders(number)


class _Around:
    def __init__(
        self,
        own: list[Any],
        others: list[Any],
        barriers: list[Any],
        in_frames: Iterable[object] = (),
    ) -> None:
        """Look around.

        ``own`` is the waiting one itself: where a way from it leads does not matter. ``others`` is
        where to begin as well, ``barriers`` what is not entered, and ``in_frames`` what variables
        of running frames hold, once for each of them.
        """
        self._own = {id(obj) for obj in own}
        self._objects: list[Any] = []
        self._index: dict[int, int] = {}
        self._referrers: dict[int, list[int]] = {}
        self._inside: Counter[int] = Counter()
        outside = {id(obj) for obj in barriers}
        for obj in [*own, *others, *in_frames]:
            self._add(obj)
        at = 0
        while at < len(self._objects) and at < _MOST_AROUND:
            refers_to = () if id(self._objects[at]) in outside else _referents(self._objects[at])
            for obj in refers_to:
                if self._add(obj):
                    self._inside[id(obj)] += 1
                    self._referrers.setdefault(id(obj), []).append(id(self._objects[at]))
            del refers_to
            at += 1
        for obj in in_frames:
            self._inside[id(obj)] += 1

    def _add(self, obj: object) -> bool:
        if id(obj) in self._index:
            return True
        if isinstance(obj, (type, types.ModuleType, str, int, float, type(None), types.CodeType)):
            return False
        self._index[id(obj)] = len(self._objects)
        self._objects.append(obj)
        return True

    def has_other_holders(self, number: int) -> bool:
        pending, seen = [number], {number}
        while pending:
            at = pending.pop()
            if at in self._own:
                continue
            count = sys.getrefcount(self._objects[self._index[at]]) - _LIST_AND_ARGUMENT
            if count > self._inside[at] or weakref.getweakrefcount(self._objects[self._index[at]]):
                return True
            further = set(self._referrers.get(at, ())) - seen
            seen |= further
            pending += further
        return False


def _referents(obj: object) -> list[Any]:
    if type(obj) is types.FunctionType:  # its globals lead everywhere
        return list(obj.__closure__ or ())
    if (anatomy.plain_length(obj) or 0) > _MOST_AROUND:
        return []  # data: what it refers to is thousands of objects, none of which waits
    return gc.get_referents(obj)
