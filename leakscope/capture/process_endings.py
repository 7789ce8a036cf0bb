"""Notices processes that end by themselves: killed, crashed, or left with an exit code.

multiprocessing learns of it in one place, whoever started the process: a DataLoader, a pool or the
program itself. A process that got ``terminate()`` or ``kill()`` did not end by itself.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from leakscope.capture.torch_hooks.patching import ImportWatch, PatchedMethod, without_our_frame
from leakscope.model.errors import ours
from leakscope.model.record import ProcessEndRecord
from leakscope.model.text import human_bytes, plural

STARTERS = {
    "multiprocessing.util": "multiprocessing.popen_fork",
    "multiprocessing.spawn": "multiprocessing.popen_forkserver",
}
"""What starts processes, by what it imports itself: that is there when torch is, so that the wait
for it ends then, and no import of the program's is looked at any more."""
MOST_KEPT = 64
"""Between two measurements."""
MOST_KNOWN = 4096
WORTH_SECONDS = 1.0
"""Processor time of child processes that may be the program's work."""


class ProcessEndings:
    """Gathers the ends of child processes, until somebody takes them."""

    def __init__(
        self, boundary: Callable[[], int], is_recorded: Callable[[int], bool] = lambda pid: False
    ) -> None:
        self._boundary = boundary
        self._is_recorded = is_recorded
        self._pid = os.getpid()
        self._signalled: set[int] = set()
        self._loaders: dict[int, int] = {}
        self._others: Counter[str] = Counter()
        """How many of each name ended that recorded nothing."""
        self._used_before = _used()
        self._used_by_recorded = 0.0
        self._ended: deque[ProcessEndRecord] = deque(maxlen=MOST_KEPT)
        self._patches: list[PatchedMethod] = []
        self._watch = ImportWatch(dict.fromkeys(STARTERS, self._arrived))

    def install(self) -> None:
        """Listen, now or as soon as the program starts a process."""
        for name in STARTERS:
            module = sys.modules.get(name)
            if module is not None:
                self._watch.arrived(name)
                self._arrived(module)
        self._watch.start()

    def uninstall(self) -> None:
        """Leave multiprocessing as it was found."""
        self._watch.stop()
        for patch in self._patches:
            patch.remove()
        self._patches.clear()

    def belong(self, pids: Iterable[int], loader: int) -> None:
        """Note that these are workers of a DataLoader, by its number."""
        if len(self._loaders) < MOST_KNOWN:
            self._loaders.update(dict.fromkeys(pids, loader))

    def take(self) -> list[ProcessEndRecord]:
        """Return what has ended since the last time, oldest first."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def work_of_others(self) -> str:
        """Return a sentence if child processes that have ended did most of the work unrecorded."""
        here, there = (now - before for now, before in zip(_used(), self._used_before, strict=True))
        there -= self._used_by_recorded
        count = self._others.total()
        if not count or there < max(WORTH_SECONDS, here):
            return ""
        names = ", ".join(name for name, _ in self._others.most_common(3) if name)
        noun = plural(count, "child process") + (f" ({names})" if names else "")
        return (
            f"{noun} did most of the work: {there:.0f} s of processor time against {here:.0f} s in "
            f"this process. The largest held {human_bytes(_largest())}. What they kept was not "
            "recorded: children begin to record half a second after their start, unless --children "
            "is off; `with leakscope.profile():` in the function that they run begins at once."
        )

    def _arrived(self, module: ModuleType) -> None:
        try:
            starter = importlib.import_module(STARTERS[module.__name__]).Popen
        except ImportError:
            return  # this system has no such way to start a process
        wraps = {"poll": self._wrap_poll, "_send_signal": self._wrap_send}
        names = sorted(wraps.keys() & vars(starter).keys())
        self._patches += [PatchedMethod(starter, name, wraps[name]) for name in names]

    def _wrap_poll(self, original: Callable[..., int | None]) -> Callable[..., int | None]:
        @functools.wraps(original)
        def poll(process: Any, *args: Any, **kwargs: Any) -> int | None:
            was_known = getattr(process, "returncode", None) is not None
            before = 0.0 if was_known else _used()[1]
            try:
                code = original(process, *args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                raise
            if code is not None and not was_known:
                self._record_end(process, code, _used()[1] - before)
            return code

        return poll

    def _wrap_send(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _send_signal(process: Any, *args: Any) -> None:
            if len(self._signalled) < MOST_KNOWN and getattr(process, "returncode", 0) is None:
                self._signalled.add(process.pid)
            original(process, *args)

        return _send_signal

    def _record_end(self, process: Any, code: int, used: float) -> None:
        """Note an end and the processor time it ``used``; raises nothing of ours, in any thread."""
        try:
            if os.getpid() != self._pid:
                return
            loader = self._loaders.pop(process.pid, 0)
            was_signalled = process.pid in self._signalled
            self._signalled.discard(process.pid)
            if self._is_recorded(process.pid):
                self._used_by_recorded += used
            elif not loader and len(self._others) < MOST_KEPT:
                self._others[_name_of(process)] += 1
            if code != 0 and not was_signalled:
                self._ended.append(
                    ProcessEndRecord(
                        boundary=self._boundary(),
                        pid=process.pid,
                        exit_code=code,
                        name=_name_of(process),
                        loader=loader,
                    )
                )
        except ours(Exception):
            return


def _used() -> tuple[float, float]:
    """Return seconds of processor time of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def _largest() -> int:
    """Return the most resident bytes that any child had which has ended."""
    import resource

    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _name_of(popen: Any) -> str:
    """Return the name of a process without its number: ``ForkPoolWorker``."""
    from multiprocessing import process

    for known in list(process._children):  # type: ignore[attr-defined]
        if getattr(known, "_popen", None) is popen:
            return str(known.name).rstrip("0123456789:-")[:100]
    return ""
