"""Counts steps and batches, and says when one has ended."""

from __future__ import annotations

from threading import Lock

from leakscope.instrument.passes import NO_BATCH, Pass
from leakscope.instrument.stack import Emit, Phase
from leakscope.model.boundary import BoundaryKind

MOST_ACCUMULATION = 32
LEAD_LOST_AFTER = 32
"""Another optimizer takes the lead after so many steps without the first one."""
ALONE_FOR = 64
"""One that comes when another has led for so many steps alone is that of a next training."""
NEXT_TRAINING_AFTER = 4
"""It takes the lead after so many steps without the first one: fewer are a game of two."""
TRAINED_FOR = 8
"""One that led for so many steps may have been a whole training."""


class Iterations:
    """Ends steps and batches of phases, unless the user alone says where they end."""

    def __init__(self, emit: Emit) -> None:
        self.steps = 0
        """Training iterations with an optimizer step that have ended."""
        self.accumulation = 0
        """The most batches without a step that lay between two steps."""
        self.by_hand = False
        """Whether the user calls ``scope.step()``."""
        self._emit = emit
        self._lead: int | None = None
        self._since_lead = 0
        self._led = 0
        self._companions: set[int] = set()
        self._beside: dict[int, None] = {}
        """Optimizers that stepped while another led, the last to come at the end."""
        self._made = self._made_before_lead = 0
        """Steps of all optimizers: so far, and before the leading one took the lead."""
        self._made_at: dict[int, int] = {}
        """How many had been made at the last one of each that stepped before the last."""
        self._last, self._in_a_row = 0, 0
        """The optimizer that stepped last, and how often without another in between."""
        self._newcomer = 0
        """The one that was met last."""
        self._longest_game = 0
        """The most steps of others between two of one optimizer."""

    def silent(self, phase: Phase) -> bool:
        """Return whether the user alone says where this phase's steps end."""
        return phase.manual or (self.by_hand and phase.training)

    def step_ends(self, phase: Phase) -> None:
        """End an iteration in which an optimizer stepped."""
        self.steps += 1
        phase.steps += 1
        self.accumulation = max(self.accumulation, min(phase.micro, MOST_ACCUMULATION))
        phase.micro = phase.pending = 0
        phase.batch += 1
        self._emit(BoundaryKind.STEP, phase, "")

    def batch_ends(self, phase: Phase) -> None:
        """End a batch without a step."""
        phase.batch += 1
        self._emit(BoundaryKind.BATCH, phase, "")

    def leads(self, optimizer: int) -> bool:
        """Return whether this optimizer's steps are the ones that count, without a loader."""
        self._since_lead += 1
        self._made += 1
        if optimizer == self._last:
            self._in_a_row += 1
        else:
            self._meet(optimizer)
        if optimizer != self._lead and not self._takes_the_lead(optimizer):
            if len(self._beside) < ALONE_FOR:
                self._beside[optimizer] = None
            return False
        self._since_lead = 0
        self._led += 1
        return True

    def _takes_the_lead(self, optimizer: int) -> bool:
        patience = self._patience_with(optimizer)
        if self._lead is not None and self._since_lead <= patience:
            return False
        self._led = self._in_a_row - 1 if patience < LEAD_LOST_AFTER else 0
        self.steps += self._led
        self._lead, self._made_before_lead = optimizer, self._made - self._in_a_row
        self._companions.clear()
        return True

    def _meet(self, optimizer: int) -> None:
        """Another optimizer steps than before: note how long others did since its last step."""
        self._made_at[self._last] = self._made - 1
        before = self._made_at.pop(optimizer, None)
        if before is None:
            self._newcomer = optimizer
        else:
            self._longest_game = max(self._longest_game, self._made - 1 - before)
        self._last, self._in_a_row = optimizer, 1
        if len(self._made_at) > ALONE_FOR:
            del self._made_at[next(iter(self._made_at))]

    def forget(self, gone: set[int]) -> None:
        """Optimizers are no more: another leads at once, one that stepped beside them before all.

        A client of federated learning makes one for a few steps; so does the inner loop of
        meta-learning, but beside it the outer one goes on.
        """
        for known in (self._beside, self._made_at):
            for optimizer in gone & known.keys():
                del known[optimizer]
        self._last = 0 if self._last in gone else self._last
        if self._lead in gone:
            others = (o for o in reversed(self._beside) if self._stepped_beside(o))
            self._lead, self._since_lead, self._led = next(others, None), 0, 0
            self._companions.clear()

    def _stepped_beside(self, optimizer: int) -> bool:
        """Return whether it made a step since the leading one leads."""
        made_at = self._made if optimizer == self._last else self._made_at.get(optimizer, 0)
        return made_at > self._made_before_lead

    def _patience_with(self, optimizer: int) -> int:
        """Return after how many steps without the leading one another takes the lead.

        Trials of a search, folds and clients make an optimizer each, and those before may live on,
        as an exception keeps them: one that was never met leads soon, unless it is a part of a game
        with those met before.
        """
        if optimizer == self._newcomer and self._led >= TRAINED_FOR:
            return max(NEXT_TRAINING_AFTER, self._longest_game)
        if self._led < ALONE_FOR and len(self._companions) < ALONE_FOR:
            self._companions.add(optimizer)
        return LEAD_LOST_AFTER if optimizer in self._companions else NEXT_TRAINING_AFTER

    def patience(self, run: Pass, *, stepped: bool) -> int:
        """Return after how many batches without a step a pass is none of training.

        Libraries ask ahead for all batches of a step, and switch to training mode after that.
        """
        ahead = run.route and run.evaluating and not stepped
        return MOST_ACCUMULATION if ahead else self.accumulation

    def asked(self, run: Pass, phase: Phase) -> None:
        """A pass is asked for its next batch: end what its last one was used for."""
        if self.silent(phase):
            phase.pending = 0
        elif phase.pending and (phase.training or phase.explicit):
            self.step_ends(phase)
        elif phase.owner is run and phase.batch == run.seen:
            phase.micro += 1
            self.batch_ends(phase)

    def left(self, run: Pass, phase: Phase, *, dropped: bool) -> None:
        """A pass is over: end what was not ended by asking."""
        if not self.silent(phase):
            if phase.pending and (phase.training or phase.explicit):
                self.step_ends(phase)
            elif dropped and run.asked and not phase.training:
                self.batch_ends(phase)
        run.seen = NO_BATCH

    def flush(self, phase: Phase) -> None:
        """End what is under way in a phase that is interrupted or about to be closed.

        A loop that was left without notice has used the batch it had in hand. That is counted, but
        no boundary: the moment at which it was done with has passed.
        """
        if self.silent(phase):
            return
        run = phase.owner
        if phase.pending:
            self.step_ends(phase)
        elif phase.in_hand:
            phase.in_hand = False
            phase.batch += 1
        elif run is not None and run.asked and run.seen == phase.batch and not phase.training:
            phase.batch += 1


class OtherThreads:
    """Counts the steps of threads that train each for itself: they reach no boundary."""

    def __init__(self) -> None:
        self.steps = 0
        self._threads: dict[int, Iterations] = {}
        self._lock = Lock()

    def step(self, thread: int, optimizer: int) -> None:
        """An optimizer has stepped in a thread."""
        with self._lock:
            if thread not in self._threads and len(self._threads) >= ALONE_FOR:
                self._threads.clear()
            iterations = self._threads.setdefault(thread, Iterations(_nowhere))
            before = iterations.steps
            counts = iterations.leads(optimizer)
            iterations.steps += counts
            self.steps += iterations.steps - before


def _nowhere(kind: BoundaryKind, phase: Phase | None, label: str) -> None:
    """Be told of boundaries and reach none."""
