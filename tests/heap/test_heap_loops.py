"""Generators that a running loop alone refers to: found, named, and let go of."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from types import FrameType, GeneratorType
from typing import Any

import pytest

from leakscope.heap.bytecode import LoopPass, looped_over, outermost_loop
from leakscope.heap.census import CensusTaker
from leakscope.model.census import CensusScope, RootKind

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="the value stack is read up to 3.13"
)


def found_in(frame: int) -> list[object]:
    return looped_over(lambda _: True).get(frame, [])


def found_here() -> list[object]:
    return found_in(id(sys._getframe(1)))


def caller() -> int:
    return id(sys._getframe(1))


def gathering(items: Iterable[int] = range(3)) -> Iterator[str]:
    buffer: list[bytes] = []
    for number in items:
        buffer.append(bytes(100_000))
        yield str(number)


def names_of(found: list[object]) -> list[str]:
    assert all(isinstance(generator, GeneratorType) for generator in found)
    return [generator.__name__ for generator in found]  # type: ignore[attr-defined]


def test_the_generator_of_a_running_loop_is_found() -> None:
    for _ in gathering():
        assert names_of(found_here()) == ["gathering"]


def test_nothing_is_found_before_a_loop_and_after_it() -> None:
    assert found_here() == []
    for _ in gathering():
        break
    else:
        raise AssertionError
    assert found_here() == []
    for _ in gathering():
        pass
    else:
        assert found_here() == []


def test_nested_loops_are_reported_from_the_outermost_inwards() -> None:
    def inner() -> Iterator[int]:
        yield 1

    with contextlib.nullcontext():
        for _ in gathering():
            try:
                for _ in (inner() for _ in range(1)):
                    for _ in inner():
                        assert names_of(found_here()) == [
                            "gathering",
                            "<genexpr>",
                            "inner",
                        ]
            finally:
                assert names_of(found_here()) == ["gathering"]


@pytest.mark.parametrize(
    "wrap",
    [
        enumerate,
        lambda stream: zip(stream, range(9), strict=False),
        lambda stream: map(len, stream),
        lambda stream: enumerate(itertools.islice(itertools.chain(stream), 5)),
    ],
    ids=["enumerate", "zip", "map", "itertools"],
)
def test_a_wrapped_generator_is_found(wrap: Any) -> None:
    for _ in wrap(gathering()):
        assert names_of(found_here()) == ["gathering"]


def test_what_somebody_else_refers_to_has_a_name_there() -> None:
    named = gathering()
    for _ in named:
        assert found_here() == []


def test_one_whose_next_item_is_being_fetched_is_found() -> None:
    class Fetching:
        def __init__(self) -> None:
            self.stream = gathering()

        def __iter__(self) -> Fetching:
            return self

        def __next__(self) -> str:
            found.append(names_of(found_in(outer)))
            return next(self.stream)

    found: list[list[str]] = []
    outer = caller()
    for _ in enumerate(Fetching()):
        assert found == [["gathering"]]
        break


def test_a_frame_that_a_traceback_keeps_is_not_read() -> None:
    for _ in gathering():
        assert names_of(found_here()) == ["gathering"]
        try:
            int("no number")
        except ValueError:
            assert found_here() == []
        assert names_of(found_here()) == ["gathering"]


def test_nothing_is_read_where_an_exception_is_raised_again() -> None:
    def raising(shown: list[int]) -> None:
        for _ in Asking(caller(), shown):
            try:
                raise ValueError
            except ValueError as error:
                error.__traceback__ = None
                raise

    shown: list[int] = []
    for _ in range(50):
        with contextlib.suppress(ValueError):
            raising(shown)
    assert shown == [20] * 50


class Leaving:
    """A context that asks for the loops of a frame when it is left."""

    def __init__(self, frame: int, shown: list[object]) -> None:
        self.frame, self.shown = frame, shown

    def __enter__(self) -> Leaving:
        return self

    def __exit__(self, *_: object) -> None:
        others = [bytearray(256) for _ in range(20)]
        self.shown.append(len(found_in(self.frame)) + len(others))


def test_a_loop_that_was_left_by_a_return_or_a_break_is_not_read() -> None:
    def returns(shown: list[object], *, early: bool) -> object:
        for _ in range(1):
            with Leaving(caller(), shown):
                for value in gathering():
                    if early:
                        return value * 2
                    break
        return None

    def ends(shown: list[object]) -> None:
        with Leaving(caller(), shown):
            for _ in gathering():
                pass

    shown: list[object] = []
    for _ in range(50):
        returns(shown, early=True)
        returns(shown, early=False)
        ends(shown)
    assert shown == [20] * 150


def test_what_asks_when_a_loop_ends_may_ask() -> None:
    def loops(shown: list[int], *, until: int) -> int:
        for number in Ending(caller(), shown):
            if number == until:
                break
        return 1

    shown: list[int] = []
    watched: list[object] = []
    for _ in range(50):
        loops(shown, until=2)
        loops(shown, until=9)
    assert shown == [20] * 100
    here = caller()

    def made() -> Ending:
        item = Ending(0, shown)
        watched.append(weakref.ref(item, lambda _: shown.append(len(found_in(here)))))
        return item

    shown.clear()
    for _ in range(50):
        for _ in made():
            pass
    assert shown == [20, 0] * 50 or shown == [0, 20] * 50


def test_other_iterators_are_left_alone() -> None:
    for _ in [1]:
        for _ in {"a": 1}.items():
            for _ in zip("a", "b", strict=True):
                assert found_here() == []


def test_what_a_large_container_holds_is_not_gone_through() -> None:
    many = [object() for _ in range(1000)]
    for _ in zip(many, gathering(), strict=False):
        assert names_of(found_here()) == ["gathering"]


def test_no_code_of_the_users_runs() -> None:
    class Lying:
        def __init__(self) -> None:
            self.stream = gathering()

        @property
        def __class__(self) -> Any:  # type: ignore[override]
            requested.append("class")
            return int

        def __iter__(self) -> Lying:
            return self

        def __next__(self) -> str:
            return next(self.stream)

        def __getattribute__(self, name: str) -> Any:
            requested.append(name)
            return super().__getattribute__(name)

    requested: list[str] = []
    for _ in Lying():
        requested.clear()
        assert names_of(found_here()) == ["gathering"]
        assert requested == []


def test_a_loop_of_a_module_and_of_a_class_is_seen() -> None:
    names: dict[str, Any] = {"gathering": gathering, "look": found_here}
    exec("for _ in gathering():\n    found = look()\n    break\n", names)
    assert names_of(names["found"]) == ["gathering"]
    exec("class Body:\n    for _ in gathering():\n        found = look()\n", names)
    assert names_of(names["Body"].found) == ["gathering"]


def test_loops_of_callers_are_seen_through_calls_of_every_kind() -> None:
    def outer() -> list[object]:
        for _ in gathering():
            return inner(*[1], key=max([2], key=lambda _: called.append(found_in(mine)) or 0))
        raise AssertionError

    def inner(*_: int, key: int) -> list[object]:
        return found_in(id(sys._getframe(1)))

    called: list[list[object]] = []
    mine = caller()
    assert names_of(outer()) == ["gathering"]
    assert called == [[]]


def test_the_generator_lives_no_longer() -> None:
    watched: list[weakref.ref[object]] = []
    for _ in gathering():
        watched += [weakref.ref(found) for found in found_here()]
        break
    assert [watch() for watch in watched] == [None]


@pytest.mark.parametrize("scope", CensusScope)
def test_what_it_gathers_is_named_after_its_function(scope: CensusScope) -> None:
    taker = CensusTaker(project_root=__file__.rpartition("/")[0])
    for number, _ in enumerate(gathering()):
        rows = taker.take(scope).rows
        (row,) = [row for row in rows if row.name == "gathering.buffer"]
        assert row.host_bytes > (number + 1) * 100_000
        assert row.length == number + 1
        assert row.root is RootKind.GENERATOR


def test_a_name_that_a_person_wrote_comes_first() -> None:
    taker = CensusTaker(project_root=__file__.rpartition("/")[0])
    behind = enumerate(gathering())
    for _ in behind:
        named = [row.path for row in taker.take(CensusScope.FOCUSED).rows]
        assert any("comes_first()·behind" in path and "buffer" in path for path in named)
        assert not any("gathering()" in path for path in named)


def test_what_an_exception_has_unwound_is_not_read() -> None:
    taker = CensusTaker(project_root=__file__.rpartition("/")[0])

    def fails() -> None:
        for _ in gathering():
            raise ValueError

    try:
        fails()
    except ValueError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        left = error.__traceback__.tb_next.tb_frame
        names = [row.name for row in taker.take(CensusScope.FOCUSED, [left]).rows]
    assert "gathering.buffer" not in names


class Asking:
    """An iterator that asks for the loops of a frame when it is let go of, as a finalizer may."""

    def __init__(self, frame: int, shown: list[int]) -> None:
        self.frame, self.shown, self.payload = frame, shown, bytearray(256)

    def __iter__(self) -> Asking:
        return self

    def __next__(self) -> int:
        return 1

    def __del__(self) -> None:
        others = [bytearray(256) for _ in range(20)]
        self.shown.append(len(found_in(self.frame)) + len(others))


class Ending(Asking):
    """One that ends."""

    def __iter__(self) -> Ending:
        self.left = 3
        return self

    def __next__(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return 3 - self.left


def test_an_exception_may_unwind_loops_whose_iterators_ask_for_them() -> None:
    for _ in range(50):
        shown: list[int] = []
        here = caller()
        try:
            for _ in Asking(here, shown):
                for _ in Asking(here, shown):
                    for _ in Asking(here, shown):
                        raise ValueError("left by an exception")
        except ValueError:
            pass
        assert shown == [20, 20, 20]


class Watched:
    """An iterator that can be referred to weakly."""

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> int:
        return 1


def test_an_exception_may_unwind_loops_whose_iterators_are_watched() -> None:
    shown: list[int] = []
    watches = []
    here = caller()

    def watched() -> Watched:
        made = Watched()
        watches.append(weakref.ref(made, lambda _: shown.append(len(found_in(here)))))
        return made

    for _ in range(50):
        with contextlib.suppress(ValueError):
            for _ in watched():
                for _ in watched():
                    raise ValueError("left by an exception")
    assert shown == [0] * 100


def test_generators_of_loops_in_coroutines_and_generators_are_found() -> None:
    found: list[list[str]] = []

    async def answers() -> None:
        for _ in gathering(range(2)):
            found.append(names_of(found_here()))
            await asyncio.sleep(0)

    def passes_on() -> Iterator[str]:
        for text in gathering(range(2)):
            found.append(names_of(found_here()))
            yield text

    asyncio.run(answers())
    assert list(passes_on()) == ["0", "1"]
    assert found == [["gathering"]] * 4


class Reading:
    """Passes through the outermost loop of functions here, as another thread reads them."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, int]] = []

    def read(self) -> None:
        thread = threading.get_ident()
        found: list[LoopPass | None] = []
        reader = threading.Thread(target=lambda: found.append(outermost_loop(thread, is_looped)))
        reader.start()
        reader.join()
        self.passes += [(loop.line, loop.done) for loop in found if loop is not None]

    @property
    def steps(self) -> list[int]:
        """By how much the count rose from reading to reading, all of the same loop."""
        assert len({line for line, _ in self.passes}) == 1
        return [later - earlier for (_, earlier), (_, later) in pairwise(self.passes)]


def is_looped(frame: FrameType) -> bool:
    return frame.f_code.co_name in {"looped", "inner"}


def counted(items: Iterable[Any]) -> Iterator[Any]:
    """As a progress bar does."""
    for item in items:  # noqa: UP028
        yield item


COUNTED: dict[str, Callable[[], Iterable[Any]]] = {
    "a range": lambda: range(5),
    "a range with a step": lambda: range(100, 50, -10),
    "a range of large numbers": lambda: range(1 << 70, (1 << 70) + 5),
    "a list": lambda: [0.5] * 5,
    "a tuple": lambda: (0.5,) * 5,
    "enumerate": lambda: enumerate("abcde"),
    "zip": lambda: zip(range(5), "abcde", strict=True),
    "enumerate of a generator": lambda: enumerate(gathering(range(5))),
    "a progress bar": lambda: counted(range(5)),
}


@pytest.mark.parametrize("items", COUNTED)
def test_passes_through_a_loop_are_counted(items: str) -> None:
    reading = Reading()

    def looped() -> None:
        for _ in COUNTED[items]():
            reading.read()

    looped()
    assert reading.steps == [1, 1, 1, 1]


def test_of_loops_in_each_other_the_outermost_is_counted() -> None:
    reading = Reading()

    def inner() -> None:
        for _ in range(3):
            reading.read()

    def looped() -> None:
        for _ in range(2):
            for _ in [1, 2]:
                inner()

    looped()
    assert reading.steps == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_loops_that_cannot_be_counted_are_left_out() -> None:
    reading = Reading()

    def looped() -> None:
        for _ in map(str, range(3)):
            reading.read()
        left = 3
        while left:
            left -= 1
            reading.read()
        for _ in range(3):
            pass
        reading.read()

    looped()
    assert reading.passes == []


def test_a_frame_that_an_exception_has_left_is_not_read() -> None:
    reading = Reading()

    def looped() -> None:
        for _ in range(3):
            raise ValueError

    def reads_while_it_is_handled() -> None:
        try:
            looped()
        except ValueError as error:
            assert error.__traceback__ is not None
            reading.read()

    reads_while_it_is_handled()
    assert reading.passes == []
