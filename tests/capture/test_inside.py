from __future__ import annotations

import gc
import signal
from collections.abc import Callable

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from leakscope.capture.budget import Due
from leakscope.capture.unobservable import DeferredReadings, UnobservableState, unobservable_state
from leakscope.model.boundary import BoundaryKind

STEP = BoundaryKind.STEP


def reported_by(run: Callable[[Callable[[], None]], object]) -> list[UnobservableState | None]:
    """Return what is reported where ``run`` calls what it is given."""
    found: list[UnobservableState | None] = []
    run(lambda: found.append(unobservable_state()))
    return found


class DispatchMode(TorchDispatchMode):
    pass


class FunctionMode(TorchFunctionMode):
    pass


def traced(ask: Callable[[], None]) -> None:
    torch.jit.trace(lambda x: (ask(), x + 1)[1], torch.ones(2), check_trace=False)


def transformed(ask: Callable[[], None]) -> None:
    torch.func.vmap(lambda x: (ask(), x + 1)[1])(torch.ones(2))


def symbolic(ask: Callable[[], None]) -> None:
    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ask()
            return x + 1

    torch.fx.symbolic_trace(Asks())


def in_mode(mode: TorchDispatchMode | TorchFunctionMode) -> Callable[[Callable[[], None]], None]:
    def run(ask: Callable[[], None]) -> None:
        with mode:
            ask()

    return run


def in_backward(ask: Callable[[], None]) -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: ask())
    x.sum().backward()


def profiled(ask: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        ask()


def collected(ask: Callable[[], None]) -> None:
    def callback(phase: str, facts: dict[str, int]) -> None:
        ask()

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


def finalized(ask: Callable[[], None]) -> None:
    class Last:
        def __del__(self) -> None:
            ask()

    Last()


def handled(ask: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGUSR2, lambda number, frame: ask())
    try:
        signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("run", "reason", "may_last"),
    [
        (traced, "torch.jit.trace", False),
        (transformed, "functorch", False),
        (symbolic, "torch.fx tracing", False),
        (collected, "garbage collection", False),
        (finalized, "a finalizer", False),
        (handled, "a signal handler", False),
        (in_mode(DispatchMode()), "a dispatch mode", True),
        (in_mode(FunctionMode()), "a function mode", True),
        (in_backward, "a backward pass", True),
        (profiled, "torch.profiler", True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_records_or_replaces_python_is_known(
    run: Callable[[Callable[[], None]], object], reason: str, may_last: bool
) -> None:
    reported = reported_by(run)
    assert reported
    assert {*reported} == {UnobservableState(reason, may_last)}
    assert unobservable_state() is None


def test_a_default_device_is_no_reason_to_wait() -> None:
    with torch.device("cpu"):
        assert unobservable_state() is None


class TestPutOff:
    def test_what_was_due_is_taken_at_the_next_boundary_outside(self) -> None:
        where: list[UnobservableState | None] = [
            UnobservableState("torch.jit.trace", may_last=False)
        ]
        put_off = DeferredReadings(lambda: where[0])
        assert put_off.settle(STEP, Due.FULL, 1.0) is None
        assert put_off.settle(STEP, Due.RECORD, 2.0) is None
        assert put_off.settle(STEP, Due.NOTHING, 3.0) is None
        where[0] = None
        assert put_off.settle(STEP, Due.NOTHING, 4.0) is Due.FULL
        assert put_off.settle(STEP, Due.NOTHING, 5.0) is Due.NOTHING
        assert put_off.counts == {"torch.jit.trace": 2}

    def test_a_trace_is_never_measured_in_however_long_it_takes(self) -> None:
        put_off = DeferredReadings(lambda: UnobservableState("torch.jit.trace", may_last=False))
        assert put_off.settle(STEP, Due.FULL, 1.0) is None
        assert put_off.settle(STEP, Due.FULL, 1000.0) is None
        assert put_off.settle(BoundaryKind.RUN_END, Due.FULL, 2000.0) is None

    def test_a_mode_that_lasts_is_measured_in_after_a_while(self) -> None:
        put_off = DeferredReadings(lambda: UnobservableState("a dispatch mode", may_last=True))
        assert put_off.settle(STEP, Due.FOCUSED, 100.0) is None
        assert put_off.settle(STEP, Due.RECORD, 105.0) is None
        assert put_off.settle(STEP, Due.NOTHING, 115.0) is Due.FOCUSED

    def test_a_short_mode_in_every_step_is_waited_out_each_time(self) -> None:
        where: list[UnobservableState | None] = [None]
        put_off = DeferredReadings(lambda: where[0])
        for second in range(100):
            where[0] = UnobservableState("a dispatch mode", may_last=True)
            assert put_off.settle(STEP, Due.RECORD, second) is None
            where[0] = None
            assert put_off.settle(STEP, Due.NOTHING, second + 0.5) is Due.RECORD

    def test_the_ends_of_a_run_within_a_mode_are_recorded(self) -> None:
        put_off = DeferredReadings(lambda: UnobservableState("a dispatch mode", may_last=True))
        assert put_off.settle(BoundaryKind.RUN_BEGIN, Due.RECORD, 0.0) is Due.RECORD
        assert put_off.settle(BoundaryKind.RUN_END, Due.FULL, 0.5) is Due.FULL
