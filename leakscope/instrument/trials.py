"""Tries the popular cleaning calls at a few boundaries, on the user's request, and measures them.

They run where a phase has just ended, so never inside a step: after the first ends of each phase,
and then after ever longer pauses. The first few are tried at once, since the user asked for them;
those after them wait until the budget pays. A collection takes with it the garbage that would have
waited, so a run with trials is not the run without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leakscope.instrument.costs import Costs
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import CleanupRecord, CleanupStep

if TYPE_CHECKING:
    from leakscope.cleanup.clearing import ClearedMemory, ClearedStep

ACTIVITY = "cleanup"
AT_ONCE = 6
AT_ONCE_SECONDS = 3.0
"""So many trials are made before the budget has paid for them, if they take no longer together;
the first however long it takes."""
FIRST_ENDS = 3
"""Ends of a phase after which the next trial is twice as far away."""
KINDS = frozenset({BoundaryKind.PHASE_END, BoundaryKind.EPOCH_END, BoundaryKind.MARK})
_KEYS_KEPT = 64
_RECENT = 0.5

Clear = Callable[[], "ClearedMemory"]
Read = Callable[[], dict[str, int]]


class Trials:
    """Decides where the calls are tried, and returns what came of it."""

    def __init__(
        self,
        costs: Costs,
        *,
        budget: float,
        clock: Callable[[], float],
        clear: Clear | None = None,
        read: Read | None = None,
    ) -> None:
        self._costs = costs
        self._budget = budget
        self._clock = clock
        self._clear = clear or _clear
        self._read = read or _read
        self._seen: dict[tuple[BoundaryKind, str, str], int] = {}
        self._next: dict[tuple[BoundaryKind, str, str], int] = {}
        self._made = 0
        self._expected = 0.0

    def at(self, boundary: Boundary) -> CleanupRecord | None:
        """Try the calls if this boundary is one of the chosen; return what each changed."""
        if boundary.kind not in KINDS or not self._has_turn(boundary):
            return None
        if not self._is_early() and not self._affords(boundary.time_s):
            return None
        began = self._clock()
        before = self._read()
        cleared = self._clear()
        record = CleanupRecord(
            boundary=boundary.index,
            steps=[_step(step) for step in cleared.steps],
            before=before,
            after=self._read(),
            remarks=list(cleared.remarks),
        )
        self._learn(boundary, self._clock() - began)
        return record

    def _has_turn(self, boundary: Boundary) -> bool:
        key = (boundary.kind, boundary.phase, boundary.label)
        if key not in self._seen and len(self._seen) >= _KEYS_KEPT:
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        return seen >= self._next.get(key, 1)

    def _is_early(self) -> bool:
        spent = self._costs.seconds.get(ACTIVITY, 0.0)
        return self._made < AT_ONCE and (not spent or spent + self._expected <= AT_ONCE_SECONDS)

    def _affords(self, now: float) -> bool:
        return self._costs.total + self._expected <= self._budget * now

    def _learn(self, boundary: Boundary, seconds: float) -> None:
        key = (boundary.kind, boundary.phase, boundary.label)
        seen = self._seen[key]
        self._next[key] = seen + 1 if seen < FIRST_ENDS else 2 * seen
        self._costs.spend(ACTIVITY, seconds)
        known = self._expected or seconds
        self._expected = known + _RECENT * (seconds - known)
        self._made += 1


def _step(step: ClearedStep) -> CleanupStep:
    return CleanupStep(
        call=step.name,
        seconds=step.seconds,
        objects=step.objects,
        host_freed=step.host_freed,
        host_returned=step.host_returned,
        device_freed=step.device_freed,
        device_returned=step.device_returned,
        pinned_returned=step.pinned_returned,
    )


def _clear() -> ClearedMemory:
    from leakscope.cleanup.clearing import clear_memory

    return clear_memory(force=True)


def _read() -> dict[str, int]:
    from leakscope.probes import default_probes

    gauges: dict[str, int] = {}
    for probe in default_probes():
        if probe.name in _SOURCES:
            gauges |= probe.read()
    return {name: size for name, size in gauges.items() if name.rpartition(".")[2] in _GAUGES}


_SOURCES = ("process", "mappings", "malloc", "cuda", "accelerator")
_GAUGES = (
    gauge.RSS,
    gauge.PSS,
    gauge.MALLOC_FREE,
    gauge.DEVICE_ALLOCATED,
    gauge.DEVICE_RESERVED,
)
