"""`oom_guard` lets go before it cleans, explains, tries again, and passes exceptions unchanged."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from leakscope import cleanup

MIB = 1 << 20
IMPOSSIBLE = 2**62


class Collections:
    """Notes, each time the collector is started on purpose, whether something is still alive."""

    def __init__(self) -> None:
        self.alive: Callable[[], object | None] = lambda: None
        self.seen: list[bool] = []

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            self.seen.append(self.alive() is not None)


@pytest.fixture
def collections() -> Iterator[Collections]:
    gc.collect()
    gc.disable()
    watch = Collections()
    gc.callbacks.append(watch)
    yield watch
    gc.callbacks.remove(watch)
    gc.enable()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("leakscope.cleanup")
    logger.addHandler(handler := logging.NullHandler())
    yield
    logger.removeHandler(handler)


def run_out(watch: Collections | None = None) -> None:
    big = torch.ones(64 * MIB, dtype=torch.uint8)
    if watch is not None:
        watch.alive = weakref.ref(big)
    torch.empty(IMPOSSIBLE, dtype=torch.uint8)


def lines(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_a_block_lets_go_of_the_failed_frames_before_it_cleans(collections: Collections) -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"), cleanup.oom_guard():
        run_out(collections)
    assert collections.seen == [False]


def test_an_attempt_lets_go_of_the_failed_frames_before_it_cleans(
    collections: Collections,
) -> None:
    for attempt in cleanup.oom_guard.attempts(retries=1):
        with attempt:
            if attempt.number == 1:
                run_out(collections)
    assert collections.seen == [False]


def test_a_function_lets_go_of_the_failed_frames_each_time(collections: Collections) -> None:
    guarded = cleanup.oom_guard(retries=2)(run_out)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        guarded(collections)
    assert collections.seen == [False, False, False]


def test_without_a_guard_the_frames_hold_it(collections: Collections) -> None:
    try:
        run_out(collections)
    except RuntimeError:
        gc.collect()
    assert collections.seen == [True]


def test_locals_are_left_to_a_debugger_on_request(collections: Collections) -> None:
    try:
        with cleanup.oom_guard(keep_locals=True):
            run_out(collections)
    except RuntimeError as error:
        assert error.__traceback__ is not None
        assert error.__traceback__.tb_next is not None
        assert "big" in error.__traceback__.tb_next.tb_frame.f_locals
    assert collections.seen == [True]


def test_what_letting_go_freed_is_reported() -> None:
    with pytest.raises(RuntimeError), cleanup.oom_guard() as attempt:
        run_out()
    assert attempt.let_go is not None
    assert attempt.let_go.host_bytes > 60 * MIB


def test_the_exception_goes_on_as_it_was() -> None:
    def guarded_block() -> None:
        with cleanup.oom_guard():
            run_out()

    def bare_block() -> None:
        run_out()

    shown = []
    for block in (bare_block, guarded_block):
        with pytest.raises(RuntimeError) as caught:
            block()
        shown.append((lines(caught.value)[2:], str(caught.value).splitlines()[0]))
        assert caught.value.__context__ is None
        assert not hasattr(caught.value, "__notes__")
    assert shown[0] == shown[1]


def test_a_guarded_function_adds_one_line_to_the_traceback() -> None:
    with pytest.raises(RuntimeError) as caught:
        cleanup.oom_guard(retries=1)(run_out)()
    assert lines(caught.value)[-2:] == ["calling", "run_out"]
    assert lines(caught.value).count("calling") == 1
    assert caught.value.__context__ is None


def test_an_exception_that_is_being_handled_keeps_its_locals() -> None:
    def fail() -> None:
        evidence = [1]
        raise ValueError(evidence)

    try:
        fail()
    except ValueError as error:
        with pytest.raises(RuntimeError), cleanup.oom_guard():
            run_out()
        assert error.__traceback__ is not None
        assert error.__traceback__.tb_next is not None
        assert "evidence" in error.__traceback__.tb_next.tb_frame.f_locals


def test_a_generator_that_failed_once_and_goes_on_is_not_ended() -> None:
    def sizes() -> Iterator[RuntimeError | int]:
        kept = 7
        try:
            run_out()
        except RuntimeError as error:
            yield error
        yield kept

    generator = sizes()
    with pytest.raises(RuntimeError), cleanup.oom_guard():
        failed = next(generator)
        assert isinstance(failed, RuntimeError)
        raise failed
    assert next(generator) == 7


def test_a_generator_that_ended_by_it_lets_go(collections: Collections) -> None:
    def batches() -> Iterator[int]:
        yield 1
        big = torch.ones(64 * MIB, dtype=torch.uint8)
        collections.alive = weakref.ref(big)
        torch.empty(IMPOSSIBLE, dtype=torch.uint8)

    with pytest.raises(RuntimeError), cleanup.oom_guard():
        list(batches())
    assert collections.seen == [False]


def test_a_second_failure_behind_the_first_is_let_go_of_too(collections: Collections) -> None:
    def fail_twice() -> None:
        try:
            run_out(collections)
        except RuntimeError:
            torch.empty(IMPOSSIBLE, dtype=torch.uint8)

    with pytest.raises(RuntimeError), cleanup.oom_guard():
        fail_twice()
    assert collections.seen == [False]


def test_a_callback_may_halve_the_batch() -> None:
    sizes = [IMPOSSIBLE]

    @cleanup.oom_guard(retries=100, on_retry=lambda attempt: sizes.append(sizes[-1] // 2**11))
    def step() -> int:
        size = sizes[-1] if sizes[-1] < 2**32 else IMPOSSIBLE
        return len(torch.empty(size, dtype=torch.uint8))

    assert step() == 2**29
    assert sizes == [2**62, 2**51, 2**40, 2**29]


def test_a_callback_sees_what_failed() -> None:
    seen: list[cleanup.Attempt] = []
    for attempt in cleanup.oom_guard.attempts(retries=1, on_retry=seen.append):
        with attempt:
            if attempt.number == 1:
                run_out()
    (failed,) = seen
    assert failed.number == 1
    assert failed.failure is not None
    assert failed.failure.requested == IMPOSSIBLE
    assert failed.cleared is not None


def test_attempts_end_with_the_first_that_succeeds() -> None:
    numbers = []
    for attempt in cleanup.oom_guard.attempts(retries=5):
        with attempt:
            numbers.append(attempt.number)
            if attempt.number < 3:
                run_out()
    assert numbers == [1, 2, 3]
    assert attempt.failure is None


def test_attempts_whose_block_was_never_entered_end_too() -> None:
    assert len(list(cleanup.oom_guard.attempts(retries=5))) == 1


def test_the_last_attempts_exception_goes_on() -> None:
    numbers = []
    with pytest.raises(RuntimeError, match="can't allocate"):
        for attempt in cleanup.oom_guard.attempts(retries=2):
            with attempt:
                numbers.append(attempt.number)
                run_out()
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), KeyboardInterrupt()])
def test_other_exceptions_pass_untouched(error: BaseException) -> None:
    calls = []

    @cleanup.oom_guard(retries=3)
    def fail() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert calls == [1]


def test_arrays_and_plain_memory_errors_are_guarded_too() -> None:
    for allocate in (lambda: np.empty(2**60, np.uint8), lambda: bytearray(2**60)):
        with pytest.raises(MemoryError), cleanup.oom_guard() as attempt:
            allocate()
        assert attempt.failure is not None
        assert attempt.failure.place == "host"


def test_a_block_that_cant_be_run_again_says_so() -> None:
    with (
        pytest.raises(TypeError, match=r"oom_guard\.attempts"),
        cleanup.oom_guard(retries=1),
    ):
        pass


def test_wrong_uses_are_refused_with_a_sentence() -> None:
    def batches() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="body runs after the call"):
        cleanup.oom_guard()(batches)
    with pytest.raises(ValueError, match="negative"):
        cleanup.oom_guard(retries=-1)


def test_a_coroutine_is_tried_again() -> None:
    calls = []

    @cleanup.oom_guard(retries=1)
    async def step() -> int:
        await asyncio.sleep(0)
        calls.append(1)
        if len(calls) == 1:
            run_out()
        return 7

    assert asyncio.run(step()) == 7
    assert len(calls) == 2


def test_guards_within_each_other_explain_once(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RuntimeError),
        cleanup.oom_guard(),
        cleanup.oom_guard(),
    ):
        run_out()
    shown = [record for record in caplog.records if "Out of memory on host" in record.message]
    assert len(shown) == 1
    assert shown[0].levelname == "WARNING"
    assert "64 MiB in 1 × uint8[67108864] on cpu" in shown[0].message


def test_nothing_keeps_the_exception_afterwards() -> None:
    class ScarceError(MemoryError):
        pass

    guard = cleanup.oom_guard()
    try:
        with guard as attempt:
            raise ScarceError
    except ScarceError as error:
        alive = weakref.ref(error)
    assert alive() is None
    assert attempt.failure is not None
    assert sys.exc_info() == (None, None, None)


def test_a_guard_in_a_loop_keeps_nothing() -> None:
    @cleanup.oom_guard()
    def fail() -> Any:
        return torch.empty(IMPOSSIBLE, dtype=torch.uint8)

    def objects() -> int:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                fail()
        gc.collect()
        return len(gc.get_objects())

    objects()
    first = objects()
    assert objects() - first < 20
