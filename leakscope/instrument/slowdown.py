"""By how much a probe slows the program down while it is on: the program's pace inside and before.

What a probe takes itself is measured by a clock around it. One that makes every allocation
dearer is paid by the program, between boundaries, so the program's own pace is what tells: seconds
between boundaries, less what leakscope measured there, for each batch of a phase, for the rest of a
phase after its last batch, or for a whole phase of which no batches are seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from leakscope.instrument.policy import TRACING_PACES_KEPT, TRACING_PHASES_KEPT, TRACING_PILOT
from leakscope.model.boundary import Boundary, BoundaryKind

INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)


class Unit(NamedTuple):
    """A piece of work that comes again."""

    phase: str
    part: str
    """``batch``, ``rest``, ``whole``, or empty where it compares with nothing."""


class Stretch(NamedTuple):
    """What the program did between two boundaries."""

    unit: Unit
    units: int
    seconds: float
    """The program's own."""
    blocks: int | None
    """Blocks of memory that Python handed out meanwhile, where they were counted."""

    @property
    def pace(self) -> float:
        """Seconds for each unit."""
        return self.seconds / self.units


class Pace:
    """Learns how fast the program is, and by how much it is slower inside a window."""

    def __init__(self, spent: Callable[[], float] = lambda: 0.0) -> None:
        """``spent`` returns the seconds that leakscope itself has taken so far."""
        self._spent = spent
        self._from: tuple[Boundary, float] | None = None
        self._usual: dict[Unit, deque[float]] = {}
        self._inside: dict[Unit, list[Stretch]] = {}
        self._is_inside = False

    def begin(self, boundary: Boundary) -> None:
        """Know that the program goes on from here."""
        self._from = (boundary, self._spent())

    def end(self, boundary: Boundary, blocks: int | None = None) -> Stretch | None:
        """Learn from what the program did up to here; return it, unless nothing was begun."""
        if self._from is None:
            return None
        (begun, spent), self._from = self._from, None
        seconds = boundary.time_s - begun.time_s - (self._spent() - spent)
        unit, units = _unit_of(begun, boundary)
        stretch = Stretch(unit, units, max(seconds, 0.0), blocks)
        if self._is_inside:
            self._inside.setdefault(unit, []).append(stretch)
        elif unit.part and (unit in self._usual or len(self._usual) < TRACING_PHASES_KEPT):
            paces = self._usual.setdefault(unit, deque(maxlen=TRACING_PACES_KEPT))
            paces.append(stretch.pace)
        return stretch

    def usual(self, unit: Unit) -> float | None:
        """Return the seconds that a unit takes outside a window; None where that isn't known."""
        paces = self._usual.get(unit, ())
        return median(paces) if len(paces) >= TRACING_PILOT else None

    def enter(self) -> None:
        """Know that a window opens."""
        self._is_inside = True
        self._inside = {}

    def leave(self) -> None:
        """Know that it is closed."""
        self._is_inside = False
        self._inside = {}

    def slowdown(self, otherwise: Callable[[Stretch], float]) -> float:
        """Return the seconds that the window has cost the program so far.

        Of units that were done several times both inside and before the medians tell: one of them
        may be slow by chance. What of the others was caused is what ``otherwise`` says of each.
        """
        cost = 0.0
        for unit, stretches in self._inside.items():
            usual = self.usual(unit)
            if usual is None or len(stretches) < TRACING_PILOT:
                cost += sum(map(otherwise, stretches))
            else:
                units = sum(stretch.units for stretch in stretches)
                cost += units * (median(stretch.pace for stretch in stretches) - usual)
        return max(cost, 0.0)


def _unit_of(begun: Boundary, ended: Boundary) -> tuple[Unit, int]:
    same = begun.phase == ended.phase and begun.occurrence == ended.occurrence
    batches = ended.batch - begun.batch
    if same and batches > 0:
        return Unit(ended.phase, "batch"), batches
    if same and ended.kind is BoundaryKind.PHASE_END:
        whole = begun.kind is BoundaryKind.PHASE_BEGIN
        return Unit(ended.phase, "whole" if whole else "rest"), 1
    return Unit(ended.phase, ""), 1
