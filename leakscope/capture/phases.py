"""The state machine of training: events in, boundaries out.

A state machine without torch and without a clock. Its inputs are loaders, optimizer steps, modes
and the user's own calls, and emits a boundary whenever a piece of training has ended.
"""

from __future__ import annotations

from collections.abc import Callable

from leakscope.capture.iterations import (
    Call,
    ExternalPhases,
    ForwardPasses,
    Iterations,
    NamedPhases,
    OtherThreads,
)
from leakscope.capture.phase_stack import (
    TRAIN,
    TRAIN_ON,
    Emit,
    Pass,
    PassSites,
    Phase,
    PhaseStack,
    Verdict,
)
from leakscope.capture.sites import Site, call_site

STALE_AFTER_STEPS = 200
"""A loader that isn't read for so many optimizer steps no longer drives the training."""
DEEPEST = 8
"""Phases open at once; beyond this an iterator was kept and forgotten."""


class PhaseTracker:
    """Tells phases, steps and batches from events. Not re-entrant: one event at a time."""

    def __init__(self, emit: Emit) -> None:
        self.surroundings: Callable[[], tuple[bool, bool]] = lambda: (True, True)
        """Tells whether gradients are recorded, and whether any optimizer was made so far."""
        self.place: Callable[[], Site] = call_site
        self.listens = True
        """Whether forward passes matter just now."""
        self.on_listening: Callable[[bool], None] = lambda listens: None
        self.iterations = Iterations(emit)
        self.elsewhere = OtherThreads()
        self._stack = PhaseStack(emit, self.iterations.flush)
        self.external = ExternalPhases(self._stack, self.iterations)
        self.open_phases = self._stack.inwards  # innermost first
        self.sites = PassSites()
        self.forwards = ForwardPasses(self._stack, self.iterations, self.sites)
        named = NamedPhases(self._stack, self.iterations, self.forwards, self._settle)
        self.phase_begin, self.phase_end = named.phase_begin, named.phase_end
        self.pass_over = self._stack.pass_over
        self.steps_begin, self.steps_next = named.steps_begin, named.steps_next
        self.steps_end, self.step_over = named.steps_end, named.step_over
        self._passes: dict[int, Pass] = {}
        self._entered = 0
        self._undecided: list[Pass] = []
        self._last_training: Pass | None = None
        self.evaluated = Evaluated()
        self.tuning = Tuning(self.evaluated, self.sites)
        self._optimizers: set[int] = set()
        self._stepped = self._fed_before = False
        self._steady: Phase | None = None
        self._moment = 0

    @property
    def step(self) -> int:
        """Training iterations with an optimizer step that have ended, in all threads."""
        return self.iterations.steps + self.elsewhere.steps

    @property
    def epoch(self) -> int:
        """Training phases begun so far, less one; 0 before the first."""
        return max(0, self._stack.trainings - 1)

    @property
    def trained(self) -> int:
        """How far training has come: changes with every step and every phase of it."""
        return self.iterations.steps + self._stack.trainings

    @property
    def phase(self) -> Phase | None:
        """The innermost open phase."""
        return self._stack.top

    @property
    def is_idle(self) -> bool:
        """Whether nothing was begun that is not over: what comes next may be anybody's."""
        return self._stack.top is None and not self._passes and not self.forwards.is_in_series

    # Loaders

    def loader_begin(
        self,
        token: int,
        *,
        site: Site,
        route: int = 0,
        loader: int = 0,
        expected: int | None = None,
    ) -> None:
        """A loader's iterator, named ``token``, was made; asking for a batch begins the pass."""
        self.loader_end(token)
        self._passes[token] = Pass(
            token, site, route=route, loader=loader, expected=expected, born=self._entered
        )
        self.forwards.disarm()

    def loader_next(self, token: int) -> None:
        """The next batch of a pass is fetched: whatever was done with the last one is done."""
        run = self._passes.get(token)
        if run is None:
            return
        phase = run.phase
        if phase is None or phase is not self._stack.top or phase.owner is None:
            if run.first:
                self._resume(run)
            else:
                self._enter(run)
            phase = run.phase
        if phase is not None:
            if run.requests:
                self.iterations.batch_requested(run, phase)
            run.seen = phase.batch
        run.requests += 1
        run.moment = self._moment = self._moment + 1

    def loader_end(self, token: int, *, dropped: bool = False) -> None:
        """A pass is exhausted, or ``dropped`` (``break``, ``islice``)."""
        run = self._passes.get(token)
        if run is None:
            return
        phase, run.phase = run.phase, None
        if run in self._undecided:
            self._undecided.remove(run)
            if run.requests > 1:
                self.sites.learn(run, Verdict.VALIDATION)
        elif phase is not None and phase.owner is run and phase in self._stack:
            self.iterations.left(run, phase, dropped=dropped)
            if phase.training and not phase.explicit and run.requests > 1:
                self._last_training = run
                trains = phase.steps or run.gradients
                self.sites.learn(run, Verdict.TRAINING if trains else Verdict.VALIDATION)
            if not phase.explicit:
                self._stack.end(phase)
            if not phase.training:
                self.evaluated.validation_ends()
        self._forget_pass(token)
        self._settle()

    def loader_dropped(self, token: int) -> None:
        """A pass is dropped."""
        self.loader_end(token, dropped=True)

    # Optimizers

    def optimizer_step(self, key: int) -> None:
        """An optimizer has stepped; ``key`` tells optimizers apart, 0 those that nobody knows."""
        phase = self._steady
        if phase is not None and key in self._optimizers and phase.pending < STALE_AFTER_STEPS:
            phase.pending += 1
        else:
            self._first_or_odd_step(key)

    def forget(self, gone: set[int]) -> None:
        """Optimizers are no more: others may be known by the same numbers."""
        self._optimizers -= gone
        self.iterations.forget(gone)
        self.tuning.forget(gone)

    def forget_optimizers(self) -> None:
        """The thread that trained has ended: the optimizer of the next one leads at once."""
        self.forget(set(self._optimizers))

    def step_elsewhere(self) -> bool:
        """Another thread steps optimizers; return whether that belongs to the training here."""
        phase = self._stack.live_training()
        if phase is not None:
            phase.pending += 1
        return phase is not None

    # Modes

    def evaluate(self, key: int, site: Site) -> None:
        """A module was put into evaluation mode."""
        self.evaluated.add(key)
        if self._takes_forwards():
            self.forwards.evaluate(key, site)
        self._settle()

    def train(self, keys: set[int]) -> None:
        """A module, and the modules inside it named by ``keys``, went back to training mode."""
        self.evaluated.remove(keys, between_phases=self._stack.top is None)
        self.forwards.train(keys)
        if not self.evaluated and not self._stepped:
            for run in [r for r in self._undecided if r.requests and r.evaluating]:
                run.evaluating = False  # its batches were fetched ahead of the training
                self._decide(run, Verdict.TRAINING)
        self._settle()

    def forward(self, call: Call) -> None:
        """An outermost module is called."""
        if self.listens and self._takes_forwards():
            optimizers = not self.forwards.is_open and self.surroundings()[1]
            self.forwards.called(
                call, stepped=self._stepped, optimizers=optimizers, place=self.place
            )
            self._settle()

    def gradients(self) -> None:
        """A backward pass has filled gradients: what it belongs to trains."""
        self.evaluated.look_again()
        if self.evaluated:
            return  # those of what a model is given
        for run in self._undecided:
            if run.requests and run.moment == self._moment:
                self._decide(run, Verdict.TRAINING)
                self._settle()
                return
        top = self._stack.top
        if top is not None and top.owner is not None:
            top.owner.gradients = True

    # The end

    def finish(self) -> None:
        """The run is over: close what is open."""
        self.yield_to_external()
        while (phase := self._stack.top) is not None:
            self._stack.end(phase)

    def yield_to_external(self) -> None:
        """Close what was found: nothing is to be found from now on."""
        self.forwards.forget()
        self._stack.leave_to(None)
        for token in list(self._passes):
            self._forget_pass(token)
        self._undecided.clear()
        self._steady = None
        self._listen(False)

    # Where a pass belongs

    def _enter(self, run: Pass) -> None:
        self._entered += 1
        run.first = self._entered
        run.grad, optimizers = self.surroundings()
        self.evaluated.look_again()
        run.evaluating = bool(self.evaluated)
        run.validated = self.evaluated.all_validated or self.forwards.is_open
        run.verdict = self.sites.judge(run, optimizers=optimizers, stepped=self._stepped)
        self.forwards.end()
        if not self._inherit(run):
            if run.verdict is None:  # an earlier pass over the loader may have ended only now
                run.verdict = self.sites.judge(run, optimizers=optimizers, stepped=self._stepped)
            self._place(run)
        self._settle()

    def _inherit(self, run: Pass) -> bool:
        """End the unfinished pass over the same loader; True if ``run`` takes its phase over."""
        if not run.loader:
            return False
        others = (p for p in self._passes.values() if p is not run and p.first)
        for old in [p for p in others if p.loader == run.loader]:
            phase = old.phase
            unused = phase is not None and phase.owner is old and not phase.steps + phase.pending
            if unused and phase in self._stack and old.verdict is run.verdict and old.requests < 2:
                assert phase is not None
                self._forget_pass(old.token)
                self._feed(run, phase)
                return True
            self.loader_dropped(old.token)
        return False

    def _place(self, run: Pass) -> None:
        top = self._stack.top
        training = self._stack.live_training()
        if top is not None and top.explicit and not top.training:
            self._feed(run, top)
        elif run.verdict is Verdict.VALIDATION:
            self._begin_validation(run)
        elif training is not None and not (run.verdict is None and run.evaluating):
            self._feed(run, training)
        elif run.verdict is Verdict.TRAINING:
            self._begin_training(run)
        else:
            self._undecided.append(run)

    def _begin_training(self, run: Pass) -> None:
        self._stack.leave_to(None)
        self._stack.begin(TRAIN, training=True, owner=run)
        self._fed_before = True

    def _begin_validation(self, run: Pass) -> None:
        top = self._stack.top
        if top is not None and top.training:
            self.iterations.flush(top)
        name = self.sites.validation_name(run.site, run.loader, self.trained)
        if top is not None and not top.training and not top.explicit:
            if top.is_fed and top.owner is not None and run.born < top.owner.first:
                run.phase = top  # zip(a, b): the first one leads
                return
            again = top.name == name or (top.owner is not None and top.owner.site == run.site)
            if again or len(self._stack) >= DEEPEST:
                self._stack.end(top)
        self._stack.begin(name, training=False, owner=run)

    def _feed(self, run: Pass, phase: Phase) -> None:
        run.phase = phase
        if not phase.is_fed:
            phase.owner, phase.expected = run, run.expected

    def _resume(self, run: Pass) -> None:
        """Bring the phase of a pass back to the top: what lies inside was left without notice."""
        self.forwards.disarm()
        if run.phase is None:
            if run.requests > self.iterations.patience(run, stepped=self._stepped):
                self._decide(run, Verdict.VALIDATION)
        elif run.phase in self._stack:
            if run.phase.owner is run or not self._take_validation(run):
                self._stack.leave_to(run.phase)
                self._feed(run, run.phase)
        else:
            # zip(strict=True) asks once more when all is over: only a step makes it training again.
            run.requests = 0
            if run.verdict is Verdict.TRAINING:
                run.verdict, run.evaluating = None, False
            run.phase = None
            self._place(run)
        self._settle()

    def _take_validation(self, run: Pass) -> bool:
        """Assign to a pass the phase of the forward passes that its last batch was used for.

        Some trainers switch the mode only once they hold a batch, and never exhaust a loader.
        """
        taken = self.forwards.hand_over()
        if taken is None:
            return False
        phase, site = taken
        self.sites.name_alike(run.site, run.loader, site, self.trained)
        self.sites.learn(run, Verdict.VALIDATION)
        run.verdict, run.seen = Verdict.VALIDATION, phase.batch
        self._feed(run, phase)
        return True

    def _decide(self, run: Pass, verdict: Verdict) -> None:
        self._undecided.remove(run)
        run.verdict = verdict
        self.sites.learn(run, verdict)
        self._place(run)
        phase = run.phase
        if phase is not None and phase.owner is run and not phase.batch:
            phase.batch = phase.micro = run.seen = run.requests - 1

    # Where a step belongs

    def _first_or_odd_step(self, key: int) -> None:
        waiting, top = self._undecided and self._waiting(), self._stack.top
        if waiting:
            self._decide(waiting, Verdict.TRAINING)
        elif top is not None and not top.training and not top.explicit:
            trains = not self._stepped or key in self._optimizers
            if not trains and self.tuning.is_tuning(key, top.owner):
                return
            self._leave_validation(top)
        self._optimizers = {*self._optimizers, key} if len(self._optimizers) < KEYS_KEPT else {key}
        self.evaluated.clear()
        self.forwards.stepped()
        self._stepped = True
        self._count_step(key)
        self._settle()

    def _leave_validation(self, top: Phase) -> None:
        """An optimizer of the training steps: validation is over, or never was one."""
        run = top.owner if top.is_fed else None
        self._stack.leave_validation()
        if run is not None and not len(self._stack):
            run.verdict = Verdict.TRAINING
            self.sites.learn(run, Verdict.TRAINING)
            self._begin_training(run)

    def _count_step(self, key: int) -> None:
        phase = self._stack.target()
        if phase is None:
            if self.iterations.by_hand or self._trails():
                return
            name = TRAIN_ON if self._fed_before else TRAIN
            phase = self._stack.begin(name, training=True)
        if phase.pending >= STALE_AFTER_STEPS and not phase.manual:
            phase.owner = None
        if phase.manual or phase.is_fed:
            phase.pending += 1
        elif not self.iterations.silent(phase) and self.iterations.leads(key):
            self.iterations.step_ends(phase)

    def _trails(self) -> bool:
        """Whether this is the one step after a pass, for gradients gathered until its end."""
        run, self._last_training = self._last_training, None
        if run is None:
            return False
        self.sites.learn(run, Verdict.TRAINING)
        self.iterations.steps += 1
        return True

    def _waiting(self) -> Pass | None:
        """Return an undecided pass whose batch may be the step's: not one kept from long ago."""
        live = self._stack.live_training()
        fed = 0 if live is None or live.owner is None else live.owner.moment
        return next((run for run in self._undecided if run.moment > fed), None)

    def _forget_pass(self, token: int) -> None:
        self._passes.pop(token).is_over = True

    def _settle(self) -> None:
        """Find the phase to which every further optimizer step plainly belongs, if there is one."""
        top = self._stack.top
        plain = top is not None and top.training and (top.manual or top.is_fed)
        odd = self.evaluated or (self._undecided and self._waiting())
        self._steady = top if plain and not odd else None
        listens = not self._passes or self.forwards.is_expected
        listens = listens or not (self._undecided or self._stack.is_any_fed)
        if listens is not self.listens:
            self._listen(listens)

    def _listen(self, listens: bool) -> None:
        self.listens = listens
        self.on_listening(listens)

    def _takes_forwards(self) -> bool:
        """Return whether forward passes may be batches where the program stands."""
        top = self._stack.top
        return top is None or top.training or self.forwards.owns(top)


KEYS_KEPT = 1024


class Evaluated:
    """Modules that were put into evaluation mode since the last training step, by their keys."""

    def __init__(self) -> None:
        self.still: Callable[[set[int]], set[int]] = lambda keys: keys
        """Returns which of these modules are in evaluation mode: not every change is reported."""
        self.keys: set[int] = set()
        self._validated: set[int] = set()
        """Those with which a validation was made that is over."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def all_validated(self) -> bool:
        """Whether all of them have had their validation."""
        return self.keys <= self._validated

    def look_again(self) -> None:
        """Forget those that left evaluation mode without telling."""
        self.keys = self.still(self.keys)

    def add(self, key: int) -> None:
        """A module was put into evaluation mode."""
        if len(self.keys) < KEYS_KEPT:
            self.keys.add(key)
        self._validated.discard(key)

    def remove(self, keys: set[int], *, between_phases: bool) -> None:
        """Modules went back to training mode.

        Between phases that also decides the others, where all have done their validation: their
        user goes on with another module and leaves them as they are.
        """
        self.keys -= keys
        if between_phases and self.keys <= self._validated:
            self.keys.clear()

    def validation_ends(self) -> None:
        """A validation with all of them is over."""
        self._validated = set(self.keys)

    def clear(self) -> None:
        """A step of the training was made."""
        self.keys.clear()


TRAINS_AFTER_BATCHES = 2
"""One that still steps so many batches after its first trains; inner loops recreate theirs."""


class Tuning:
    """Tells whether an optimizer that steps within a validation belongs to it."""

    def __init__(self, evaluated: Evaluated, sites: PassSites) -> None:
        self.tunes: Callable[[set[int]], bool] = lambda keys: True
        """Tells whether the optimizer that steps just now has parameters of these modules."""
        self._evaluated = evaluated
        self._sites = sites
        self._newcomer: tuple[int, Pass] | None = None
        self._since = 0

    def is_tuning(self, optimizer: int, run: Pass | None) -> bool:
        """Return whether an optimizer that never trained belongs to a validation.

        ``run`` is the pass over a loader that the validation is, if it is one.
        """
        if run is None and not self.tunes(self._evaluated.keys):
            return False  # a student trains alongside a teacher's forward passes
        if not self._evaluated:
            return run is not None and not run.grad
        return run is None or not self._trains(optimizer, run)

    def forget(self, gone: set[int]) -> None:
        """Optimizers are no more: another may be known by the same number."""
        if self._newcomer is not None and self._newcomer[0] in gone:
            self._newcomer = None

    def _trains(self, optimizer: int, run: Pass) -> bool:
        """Return whether a pass was taken for a validation for modules that were left behind.

        An exception that ends a trial in its validation, and is kept, keeps the model in evaluation
        mode. The next trial passes over a loader where nothing but training ever was.
        """
        if not self._sites.only_trained(run) or self.tunes(self._evaluated.keys):
            return False
        if self._newcomer != (optimizer, run):
            self._newcomer, self._since = (optimizer, run), run.requests
        return run.requests >= self._since + TRAINS_AFTER_BATCHES
