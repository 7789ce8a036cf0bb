"""The program's calls of empty_cache() are timed, and what they free is reported by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType
from typing import Any

import pytest
import torch

from leakscope.capture.events import CleaningCalls
from leakscope.model.record import CleaningCall

MIB = 1 << 20


class Device:
    """What stands for a device's allocator: none is here."""

    def __init__(self) -> None:
        self.reserved = 0
        self.returns = 0
        self.fault: BaseException | None = None
        self.now = 0.0
        self.queried = 0

    def empty(self) -> str:
        self.now += 0.5
        if self.fault is not None:
            raise self.fault
        self.reserved -= self.returns
        return "its own answer"

    def read(self) -> int:
        self.queried += 1
        self.now += 0.1
        return self.reserved


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch._C, "_cuda_emptyCache", device.empty, raising=False)
    return device


@pytest.fixture
def cleaning(device: Device) -> Iterator[CleaningCalls]:
    cleaning = CleaningCalls(lambda: device.now, device.read)
    cleaning.install()
    yield cleaning
    cleaning.uninstall()


def empty_cache() -> Any:
    return torch._C._cuda_emptyCache()


def emptied(cleaning: CleaningCalls) -> list[CleaningCall]:
    return [call for call in cleaning.calls() if call.call == "torch.cuda.empty_cache()"]


def test_time_and_what_is_returned_are_reported_by_line(
    cleaning: CleaningCalls, device: Device
) -> None:
    device.reserved, device.returns = 100 * MIB, 10 * MIB
    assert [empty_cache() for _ in range(3)] == ["its own answer"] * 3
    (call,) = emptied(cleaning)
    assert (call.file, call.times, call.objects) == (__file__, 3, None)
    assert call.seconds == pytest.approx(1.5)
    assert call.longest_s == pytest.approx(0.5)
    assert call.freed_bytes == call.weighed * 10 * MIB
    assert call.most_freed_bytes == 10 * MIB


def test_reading_memory_takes_a_small_part_of_the_time(
    cleaning: CleaningCalls, device: Device
) -> None:
    for _ in range(200):
        empty_cache()
    (call,) = emptied(cleaning)
    assert call.times == 200
    assert 0 < call.weighed < 100
    assert 0.1 * device.queried / 2 < 0.06 * call.seconds


def test_memory_that_others_take_meanwhile_is_no_gain(
    cleaning: CleaningCalls, device: Device
) -> None:
    device.reserved, device.returns = 100 * MIB, -5 * MIB
    empty_cache()
    assert emptied(cleaning)[0].freed_bytes == 0


def test_a_fault_goes_on_without_a_frame_of_ours(cleaning: CleaningCalls, device: Device) -> None:
    device.fault = RuntimeError("the driver says no")
    with pytest.raises(RuntimeError, match="the driver says no") as raised:
        empty_cache()
    files = [entry.path for entry in raised.traceback]
    assert not [file for file in files if str(file).endswith("capture/events.py")][1:]
    assert emptied(cleaning)[0].times == 1


def test_torch_is_left_as_it_was_found(device: Device) -> None:
    before: Callable[[], object] = torch._C._cuda_emptyCache
    cleaning = CleaningCalls()
    cleaning.install()
    assert torch._C._cuda_emptyCache is not before
    cleaning.uninstall()
    assert torch._C._cuda_emptyCache is before


def test_lines_beyond_a_number_are_left_out(cleaning: CleaningCalls, device: Device) -> None:
    for number in range(60):
        code = compile(
            "\n" * number + "import torch; torch._C._cuda_emptyCache()", "made.py", "exec"
        )
        exec(code, {})
    assert len(emptied(cleaning)) == 32


def test_a_torch_that_is_imported_later_is_noticed(
    monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    module = sys.modules["torch.cuda.memory"]
    monkeypatch.delitem(sys.modules, "torch.cuda.memory")
    cleaning = CleaningCalls()
    cleaning.install()
    try:
        assert torch._C._cuda_emptyCache() == "its own answer"
        assert not emptied(cleaning)
        cleaning._patches._arrived(module)
        torch._C._cuda_emptyCache()
        assert [call.times for call in emptied(cleaning)] == [1]
    finally:
        cleaning.uninstall()


def test_a_torch_without_such_a_function_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C", ModuleType("torch._C"))
    cleaning = CleaningCalls(lambda: next(count()) * 1.0, int)
    cleaning.install()
    cleaning.uninstall()
    assert not emptied(cleaning)
