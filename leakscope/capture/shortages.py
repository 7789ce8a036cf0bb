"""Records that memory ran out: at the allocator, before the exception unwinds, and as it leaves
the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import EventDispatcher
from leakscope.capture.measuring import Measuring
from leakscope.capture.torch_hooks.patching import ImportWatch
from leakscope.capture.unobservable import unobservable_state
from leakscope.heap.pausing import is_in_backward
from leakscope.model.boundary import Boundary
from leakscope.model.record import OutOfMemoryRecord
from leakscope.probes.cuda import awake_cuda
from leakscope.probes.out_of_memory import (
    HOST,
    OutOfMemoryMessage,
    Room,
    attach,
    attach_when_awake,
    device_room,
    host_room,
    listen,
    message_of,
    read_message,
    shortage_behind,
    stop_listening,
)
from leakscope.recording import redact_text

MOST_RECORDED = 16
"""A program may try and catch any number of times; after so many only the last is recorded."""
SAME_REQUEST = 0.01
"""How far the size in a message, written with two decimals, may be from the real one."""
_MESSAGE_CHARACTERS = 2000


class Shortages:
    """Watches for out-of-memory errors of one session."""

    def __init__(
        self,
        measuring: Measuring,
        gate: EventDispatcher,
        costs: Costs,
        moment: Callable[[], Boundary],
        *,
        budget: float,
    ) -> None:
        self._measuring = measuring
        self._gate = gate
        self._costs = costs
        self._moment = moment
        self._budget = budget
        self._imports = ImportWatch({"torch.cuda": _await_device})
        self._seen = 0
        self._last: OutOfMemoryRecord | None = None

    def start(self) -> None:
        """Listen to torch's observer, now or as soon as the program uses CUDA."""
        listen(self.observe)
        cuda = sys.modules.get("torch.cuda")
        if cuda is None:
            self._imports.start()
        else:
            _await_device(cuda)

    def stop(self) -> None:
        """Do nothing any more, though torch goes on calling."""
        self._imports.stop()
        stop_listening()

    def observe(self, device: int, requested: int, total: int, free: int) -> None:
        """Record that a device had no room; called by torch inside the allocation that fails."""
        if not self._gate.is_open:
            return
        self._seen += 1
        if self._seen > MOST_RECORDED:
            return
        oom = OutOfMemoryMessage(f"cuda:{device}", requested=requested, free=free, total=total)
        state = unobservable_state()
        # A census would race with autograd's threads.
        if self._gate.thread not in (0, get_ident()) or is_in_backward():
            self._record(oom, "observer", no_census="a backward pass was under way")
        elif state is not None and not state.may_last:
            self._record(oom, "observer", no_census=f"{state.reason} was under way")
        elif not self._gate.seize(self._record, oom, "observer"):
            self._record(oom, "observer", no_census="another census was under way")

    def left(self, error: BaseException) -> None:
        """Record that an exception left the program, or the block, if it says memory ran out."""
        cause = shortage_behind(error)
        if cause is None:
            return
        oom, cuda = read_message(cause), awake_cuda()
        if oom.device == "cuda" and cuda is not None:  # the message names none
            oom = replace(oom, device=f"cuda:{cuda.current_device()}")
        self._seen += not self._was_observed(oom)
        errors = (error, cause) if cause is not error else (error,)
        self._record(
            oom,
            "exception",
            error=type(cause).__name__,
            message=redact_text(message_of(cause))[:_MESSAGE_CHARACTERS],
            unwound=[frame for each in errors for frame, _ in walk_tb(each.__traceback__)],
        )

    def _record(
        self,
        oom: OutOfMemoryMessage,
        seen: str,
        *,
        no_census: str = "",
        unwound: Sequence[FrameType] = (),
        error: str = "",
        message: str = "",
    ) -> None:
        moment = self._moment()
        census, why = None, no_census or self._why_not(oom, seen)
        if not why:
            census = self._measuring.census_of_failure(host_room().free, unwound)
            why = "" if census else "there was no room or no time for one"
        record = OutOfMemoryRecord(
            boundary=moment.index,
            time_s=moment.time_s,
            phase=moment.phase,
            epoch=moment.epoch,
            step=moment.step,
            batch=moment.batch,
            seen=seen,
            device=oom.device,
            requested=oom.requested,
            census=census,
            no_census=why,
            number=self._seen,
            **_figures(oom, _room(oom, seen)),
            error=error,
            message=message,
        )
        self._measuring.keep_failure(record)
        self._last = record

    def _why_not(self, oom: OutOfMemoryMessage, seen: str) -> str:
        """Return why no census is taken; empty where one is: the first is likely to be the end."""
        if seen == "exception":
            has_census = self._was_observed(oom) and self._last is not None and self._last.census
            return "there is one from before the exception" if has_census else ""
        if self._last is None:
            return ""
        moment = self._moment()
        cost = self._costs.total + self._costs.expect(self._costs.full)
        if self._last.boundary == moment.index or cost > self._budget * moment.time_s:
            return "it would have cost more than the budget"
        return ""

    def _was_observed(self, oom: OutOfMemoryMessage) -> bool:
        last = self._last
        if last is None or last.device != oom.device or last.boundary != self._moment().index:
            return False
        if oom.requested is None or last.requested is None:
            return True
        return abs(oom.requested - last.requested) <= SAME_REQUEST * last.requested


def _await_device(cuda: ModuleType) -> None:
    attach()
    attach_when_awake(cuda)


def _room(oom: OutOfMemoryMessage, seen: str) -> Room:
    """Return what there was; of a device nothing once the exception has let go of its tensors."""
    if oom.device == HOST:
        return host_room()
    if seen == "exception":
        return Room(limits={} if oom.total is None else {"device": oom.total})
    kind, _, number = oom.device.partition(":")
    if kind != "cuda" or not number.isdigit():
        return Room()
    return device_room(int(number), oom.requested, total=oom.total, free=oom.free)


def _figures(oom: OutOfMemoryMessage, room: Room) -> dict[str, Any]:
    """Return what the message says of that moment, else what is found now."""
    return {
        "allocated": room.allocated if oom.allocated is None else oom.allocated,
        "reserved": room.reserved if oom.reserved is None else oom.reserved,
        "free": room.free if oom.free is None else oom.free,
        "limits": room.limits,
        "largest_hole": room.largest_hole,
        "snapshot": room.snapshot,
    }
