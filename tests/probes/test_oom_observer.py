"""torch's out-of-memory observer: attached once, silent without a listener, never raising."""

from __future__ import annotations

import sys
import types

import pytest

from leakscope.probes import out_of_memory
from leakscope.probes.out_of_memory import attach, attach_when_awake, listen, stop_listening


class Torch(types.ModuleType):
    """As much of torch as an observer needs."""

    def __init__(self, *, awake: bool) -> None:
        super().__init__("torch")
        self.attached: list[object] = []
        self.later: list[object] = []
        self._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=self.attached.append)
        self.cuda = types.SimpleNamespace(
            is_initialized=lambda: awake, _lazy_call=self.later.append, _tls=types.SimpleNamespace()
        )


class Listener:
    def __init__(self) -> None:
        self.reported: list[tuple[int, int, int, int]] = []
        self.error: BaseException | None = None

    def dispatch(self, *reported: int) -> None:
        self.reported.append(reported)
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(out_of_memory, "_is_attached", False)
    yield
    stop_listening()


@pytest.fixture
def torch(monkeypatch):
    fake = Torch(awake=True)
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_it_is_attached_once_however_many_sessions_there_are(torch):
    for _ in range(3):
        listener = Listener()
        listen(listener.dispatch)
        attach()
    assert len(torch.attached) == 1
    torch.attached[0](0, 10, 100, 5)
    assert listener.reported == [(0, 10, 100, 5)]


def test_nobody_listening_nothing_is_attached_or_sent(torch):
    attach()
    assert torch.attached == []
    listener = Listener()
    listen(listener.dispatch)
    attach()
    stop_listening()
    torch.attached[0](0, 10, 100, 5)
    assert listener.reported == []


def test_it_keeps_no_listener_alive(torch):
    listener = Listener()
    listen(listener.dispatch)
    attach()
    del listener
    torch.attached[0](0, 10, 100, 5)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("x"), SystemExit(3)])
def test_nothing_raised_by_a_listener_reaches_torch(torch, error):
    listener = Listener()
    listener.error = error
    listen(listener.dispatch)
    attach()
    torch.attached[0](0, 10, 100, 5)
    assert len(listener.reported) == 1


def test_an_interrupt_comes_after_torchs_own_error(torch):
    listener = Listener()
    listener.error = KeyboardInterrupt()
    listen(listener.dispatch)
    attach()
    with pytest.raises(KeyboardInterrupt):
        torch.attached[0](0, 10, 100, 5)
        for _ in range(1000):
            pass


def test_cuda_is_not_woken(monkeypatch):
    fake = Torch(awake=False)
    monkeypatch.setitem(sys.modules, "torch", fake)
    listener = Listener()
    listen(listener.dispatch)
    attach()
    assert fake.attached == []
    attach_when_awake(fake.cuda)
    (later,) = fake.later
    fake.cuda._tls.is_initializing = True
    later()
    assert len(fake.attached) == 1


def test_a_build_without_cuda_has_no_observer(torch):
    del torch._C._cuda_attach_out_of_memory_observer
    listener = Listener()
    listen(listener.dispatch)
    attach()
    assert torch.attached == []
