"""When allocations on devices are recorded: in short windows, once live memory grows."""

from __future__ import annotations

import pytest
from fake_session import FakeHistory, FakeSession

from leakscope.capture.budget import Costs
from leakscope.capture.policy import TRACING_BATCHES as BATCHES
from leakscope.capture.policy import TRACING_FLOOR_SECONDS
from leakscope.capture.policy import TRACING_WINDOWS as WINDOWS
from leakscope.capture.profiles import HistoryWindows
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import BlockListRecord

MIB = 1 << 20


def step(n: int, phase: str = "train", seconds: float = 0.1) -> Boundary:
    return Boundary(
        index=n, kind=BoundaryKind.STEP, time_s=n * seconds, phase=phase, step=n, batch=n
    )


def driven(
    windows: HistoryWindows, allocated: list[int], *, first: int = 0, seconds: float = 0.1
) -> None:
    for n, size in enumerate(allocated, first):
        boundary = step(n, seconds=seconds)
        if windows.closes_at(boundary):
            windows.close()
        windows.learn(boundary, {"cuda:0.allocated": size, "rss": size})
        windows.open_here(boundary)


def growing(steps: int, start: int = 100) -> list[int]:
    return [(start + n) * MIB for n in range(steps)]


def test_a_window_opens_once_live_memory_grows_and_closes_after_some_batches() -> None:
    recorder = FakeHistory()
    windows = HistoryWindows(recorder)
    driven(windows, growing(9))
    assert recorder.log == ["open"]
    driven(windows, growing(BATCHES, start=109), first=9)
    assert recorder.log[:2] == ["open", "close"]


def test_memory_that_comes_with_the_first_steps_opens_none() -> None:
    recorder = FakeHistory()
    driven(HistoryWindows(recorder), [n * 100 * MIB for n in range(6)] + [600 * MIB] * 50)
    assert recorder.log == []


def test_memory_that_goes_up_and_down_opens_none() -> None:
    recorder = FakeHistory()
    driven(HistoryWindows(recorder), [(100 + 50 * (n % 3)) * MIB for n in range(60)])
    assert recorder.log == []


def test_there_are_few_windows_however_long_it_grows() -> None:
    recorder = FakeHistory()
    driven(HistoryWindows(recorder), growing(400))
    assert recorder.log == ["open", "close"] * WINDOWS


def test_a_slow_step_ends_a_window_by_its_time() -> None:
    recorder = FakeHistory()
    driven(HistoryWindows(recorder), growing(10), seconds=5.0)
    assert recorder.log[:2] == ["open", "close"]


def slowed_training(costs: Costs, inside: float) -> tuple[FakeHistory, float]:
    """A training whose steps of 0.1 s take longer while it is recorded; return what that added."""
    recorder, now, added = FakeHistory(), 0.0, 0.0
    windows = HistoryWindows(recorder, costs, 0.02)
    for n in range(60):
        more = inside if windows.is_open else 0.0
        now, added = now + 0.1 + more, added + more
        boundary = Boundary(
            index=n, kind=BoundaryKind.STEP, time_s=now, phase="train", step=n, batch=n
        )
        if windows.closes_at(boundary):
            windows.close()
        windows.learn(boundary, {"cuda:0.allocated": (100 + n) * MIB})
        windows.open_here(boundary)
    windows.close()
    return recorder, added


def test_a_window_that_slows_the_program_down_ends_when_its_share_is_spent() -> None:
    recorder, added = slowed_training(costs := Costs(), inside=0.2)
    assert recorder.log.count("open") == 1
    assert added <= TRACING_FLOOR_SECONDS + 0.4  # what it is, three steps tell
    assert costs.seconds["history"] == pytest.approx(added, rel=0.2)


def test_windows_that_slow_nothing_down_are_as_many_and_as_long_as_they_may_be() -> None:
    recorder, added = slowed_training(costs := Costs(), inside=0.0)
    assert recorder.log.count("open") == WINDOWS
    assert added == 0.0
    assert costs.seconds["history"] == pytest.approx(0.0, abs=1e-6)


def test_a_recording_of_the_programs_own_is_looked_up_once_and_left_alone() -> None:
    recorder = FakeHistory(is_free=False)
    driven(HistoryWindows(recorder), growing(60))
    assert recorder.log == ["refused"]


def test_without_the_option_nothing_is_watched() -> None:
    run = leaking_session(cuda_history="off")
    assert run.history.log == []


def leaking_session(**options: str) -> FakeSession:
    run = FakeSession(**options)
    run.devices.in_use = True
    live = 100 * MIB
    read = run.fast.read

    def read_more() -> dict[str, int]:
        nonlocal live
        live += MIB
        return {**read(), "cuda:0.allocated": live}

    run.fast.read = read_more  # type: ignore[method-assign]
    run.train_pass(40, 0.05)
    return run


def test_a_session_lists_the_blocks_while_their_stacks_are_known() -> None:
    run = leaking_session(cuda_history="window")
    assert run.history.log[:2] == ["open", "close"]
    before = leaking_session(cuda_history="off")
    lists = [len(r.writer.of(BlockListRecord)) for r in (run, before)]
    assert lists[0] >= lists[1] + 1


def test_a_session_that_ends_in_a_window_closes_it() -> None:
    run = leaking_session(cuda_history="window")
    run.session.close(status="completed")
    assert run.history.log.count("close") >= run.history.log.count("open")
