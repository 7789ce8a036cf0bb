"""Locals of running frames: read by name, nothing left behind."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from leakscope.heap import anatomy
from leakscope.heap.anatomy import locals_of, running_frames


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read both with the native module's help and without."""
    if request.param == "plain":
        monkeypatch.setattr(anatomy, "_read_variables", None)
    elif anatomy._read_variables is None:
        pytest.skip("not compiled, or not needed")


class Thing:
    pass


def caller() -> FrameType:
    return sys._getframe(1)


def test_locals_are_read_by_name() -> None:
    def function(a: int, *rest: int, b: int = 2, **options: int) -> dict[str, object]:
        c = a + b
        if c < 0:
            unset = 1  # noqa: F841
        return dict(locals_of(caller()))

    assert function(1, 5, x=3) == {"a": 1, "b": 2, "rest": (5,), "options": {"x": 3}, "c": 3}


def test_cells_and_free_variables_are_dereferenced() -> None:
    shared = Thing()

    def outer(argument: Thing) -> Callable[[], list[dict[str, object]]]:
        mine = [1]

        def inner() -> list[dict[str, object]]:
            return [dict(locals_of(caller())), shared, mine, argument]  # type: ignore[list-item]

        seen = dict(locals_of(caller()))
        assert seen["mine"] is mine
        assert seen["argument"] is argument
        assert seen["shared"] is shared
        return inner

    found = outer(Thing())()[0]
    assert found["shared"] is shared
    assert found["mine"] == [1]


def freed_at_once(thing: weakref.ref[Any]) -> bool:
    return thing() is None


def test_a_local_deleted_after_the_reading_is_freed_at_once() -> None:
    thing = Thing()
    alive = weakref.ref(thing)
    assert dict(locals_of(caller()))["thing"] is thing
    del thing
    assert freed_at_once(alive)


def test_a_cell_variable_deleted_after_the_reading_is_freed_at_once() -> None:
    thing = Thing()
    alive = weakref.ref(thing)

    def uses() -> object:
        return thing  # noqa: F821

    assert dict(locals_of(caller()))["thing"] is thing
    del thing
    assert freed_at_once(alive)


def test_a_comprehension_leaves_nothing_behind() -> None:
    alive = []

    def look(thing: Thing) -> bool:
        alive.append(weakref.ref(thing))
        frame = sys._getframe(1)
        assert any(value is thing for _, value in locals_of(frame))
        return True

    assert [look(thing) for thing in (Thing() for _ in range(3))] == [True] * 3
    assert all(map(freed_at_once, alive))


def test_a_generator_leaves_nothing_behind() -> None:
    def generate() -> Iterator[weakref.ref[Thing]]:
        thing = Thing()
        alive = weakref.ref(thing)
        assert dict(locals_of(caller()))["thing"] is thing
        del thing
        yield alive

    assert freed_at_once(next(generate()))


def test_the_users_own_locals_stay_intact() -> None:
    thing = Thing()
    mine = locals()
    mine["extra"] = 1
    locals_of(caller())
    assert mine["thing"] is thing
    assert mine["extra"] == 1


def test_frames_of_modules_and_classes_give_nothing() -> None:
    found = []

    class Body:
        attribute = 1
        found.append(locals_of(caller()))

    exec("found.append(locals_of(caller()))", {**globals(), "found": found})
    assert found == [[], []]


def test_frames_of_all_threads_are_found() -> None:
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        in_thread = 42
        ready.set()
        done.wait(in_thread)

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        names = {
            identity: dict(locals_of(frame)).get("in_thread")
            for identity, frame in running_frames()
            if frame.f_code is work.__code__
        }
    finally:
        done.set()
        thread.join()
    assert names == {thread.ident: 42}
