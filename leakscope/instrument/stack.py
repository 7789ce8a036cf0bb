"""The stack of open phases: who lies in whom, and the boundaries of opening and closing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from leakscope.model.boundary import BoundaryKind

if TYPE_CHECKING:
    from leakscope.instrument.passes import Pass

TRAIN = "train"
TRAIN_ON = "train:2"
"""Training without a loader after that with one: no epoch of its own."""
NAMES_KEPT = 1024


class Phase:
    """An open phase."""

    __slots__ = (
        "batch",
        "expected",
        "explicit",
        "in_hand",
        "loop",
        "manual",
        "micro",
        "name",
        "occurrence",
        "owner",
        "pending",
        "plan",
        "steps",
        "training",
    )

    def __init__(self, name: str, occurrence: int, *, training: bool, explicit: bool) -> None:
        self.name = name
        self.occurrence = occurrence
        self.training = training
        self.explicit = explicit
        """Opened by the user's call, closed only by it."""
        self.owner: Pass | None = None
        """The pass whose batches count; the phase ends with it unless it is explicit."""
        self.manual = False
        """Whether the user says where steps end."""
        self.loop = False
        """Whether it was opened for a named loop of steps and ends with it."""
        self.batch = 0
        self.steps = 0
        self.micro = 0
        """Batches since the last step."""
        self.pending = 0
        """Optimizer steps since the last boundary."""
        self.in_hand = False
        """Whether a forward pass was made that no boundary has ended."""
        self.expected: int | None = None
        self.plan: Any = None
        """The schedule's own notes about this phase."""

    @property
    def is_fed(self) -> bool:
        """Whether a pass over a loader feeds it that is not over."""
        return self.owner is not None and not self.owner.is_over


Emit = Callable[[BoundaryKind, "Phase | None", str], None]


class PhaseStack:
    """Open phases, outermost first. Only phases that nobody opened by hand are closed unasked."""

    def __init__(self, emit: Emit, flush: Callable[[Phase], None]) -> None:
        self.trainings = 0
        """Training phases begun so far, those without a loader after some with one left out."""
        self.top: Phase | None = None
        self._emit = emit
        self._flush = flush
        self._open: list[Phase] = []
        self._occurrences: dict[str, int] = {}

    def __contains__(self, phase: object) -> bool:
        return phase in self._open

    def __len__(self) -> int:
        return len(self._open)

    def inwards(self) -> Iterator[Phase]:
        """Iterate over the open phases, innermost first."""
        return reversed(self._open)

    @property
    def is_any_fed(self) -> bool:
        """Whether a loader is at work."""
        return any(phase.is_fed for phase in self._open)

    def live_training(self) -> Phase | None:
        """Return the innermost training that a loader feeds, or that the user opened."""
        live = (p for p in self.inwards() if p.training and (p.explicit or p.is_fed))
        return next(live, None)

    def target(self) -> Phase | None:
        """Return the phase to which a step belongs."""
        for phase in self.inwards():
            if phase.training or (phase.explicit and (phase.manual or phase.is_fed)):
                return phase
        return self.top if self.top is not None and self.top.explicit else None

    def begin(
        self,
        name: str,
        *,
        training: bool,
        explicit: bool = False,
        owner: Pass | None = None,
        expected: int | None = None,
    ) -> Phase:
        """Open a phase inside the innermost one and return it."""
        if name not in self._occurrences and len(self._occurrences) >= NAMES_KEPT:
            self._occurrences.clear()
        occurrence = self._occurrences.get(name, 0)
        self._occurrences[name] = occurrence + 1
        self.trainings += training and name == TRAIN
        phase = Phase(name, occurrence, training=training, explicit=explicit)
        phase.expected = expected
        if owner is not None:
            phase.owner, phase.expected, owner.phase = owner, owner.expected, phase
        self._open.append(phase)
        self.top = phase
        self._emit(BoundaryKind.PHASE_BEGIN, phase, "")
        return phase

    def end(self, phase: Phase) -> None:
        """Close a phase and what was left open inside it."""
        self.leave_to(phase)
        self._end(phase)

    def leave_to(self, phase: Phase | None) -> None:
        """Close the phases inside ``phase`` (None: all) up to one that the user opened."""
        while self.top is not None and self.top is not phase and not self.top.explicit:
            self._end(self.top)

    def leave_validation(self) -> None:
        """Close the innermost phases that neither train nor were opened by the user."""
        while self.top is not None and not (self.top.training or self.top.explicit):
            self._end(self.top)

    def _end(self, phase: Phase) -> None:
        try:
            self._flush(phase)
            self._emit(BoundaryKind.PHASE_END, phase, "")
        finally:  # even if an interrupt strikes in there
            phase.owner = phase.plan = None  # no cycles: the program may have switched the gc off
            rest = [other for other in self._open if other is not phase]
            self._open, self.top = rest, rest[-1] if rest else None
