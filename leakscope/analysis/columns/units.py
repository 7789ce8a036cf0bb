"""Units of work: in which place of training a path grows, and the counter that goes with it.

One leak is reported once: a list that grows at every step also grows from epoch to epoch, but its
unit is the step, because that is where one more of the same always adds as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from leakscope.analysis.columns.series import (
    INNER,
    NOWHERE,
    BoundaryTable,
    FloatArray,
    IntArray,
    RowTable,
    code_of,
)
from leakscope.analysis.growth import policy, theil_sen
from leakscope.model.boundary import Boundary, BoundaryKind


@dataclass(frozen=True)
class WorkUnit:
    """A unit of work and how much of it was done at each measurement."""

    name: str
    phase: str
    done: FloatArray

    @property
    def total(self) -> float:
        """Units done in the whole recording."""
        return float(self.done[-1] - self.done[0]) if len(self.done) else 0.0

    @property
    def noun(self) -> str:
        """What reports call one."""
        return unit_noun(self.name, self.phase)


def unit_noun(unit: str, phase: str) -> str:
    """Return what reports call a unit of work: what comes in no loop has no batches."""
    return _FORWARD_PASS if unit == "batch" and phase == INFERENCE else unit


INFERENCE = "inference"
"""The phase of passes through a model that no training, no validation and no loader encloses."""
_FORWARD_PASS = "forward pass"  # noqa: S105
MOST_PASSAGES = 50
"""Passages by which the usual one is known."""
WORKER_PHASE = "pass"
"""The phase of a loader's worker, a way through its loader, and the unit of what it does."""


def is_training(phase: str) -> bool:
    """Return whether a phase is the training phase (or a second one)."""
    return phase.partition(":")[0] == "train"


def steps_done(track: BoundaryTable) -> int:
    """Return the steps of this recording; one that resumes a training counts on from its step."""
    if not len(track):
        return 0
    inside = np.flatnonzero(track.phase)
    from_the_start = len(inside) > 0 and track.batch[inside[0]] == 0
    return int(track.step.max()) - (int(track.step[inside[0]]) if from_the_start else 0)


def unit_of_phase(track: BoundaryTable, phase: str) -> WorkUnit:
    """Return the unit of growth inside a phase: steps of training, passes of anything else.

    Of a phase that began once, such as a service that answers, batches are the unit. What is
    predicted in evaluation mode as a part of nearly every step is no unit of its own.
    """
    training = next((name for name in track.phases if is_training(name)), "")
    steps = max(steps_done(track), policy.FEWEST_STEPS)
    if training and track.begun(phase) >= policy.MAIN_SHARE * steps:
        phase = training
    if is_training(phase):
        if track.step.any():
            return WorkUnit("step", phase, track.step.astype(np.float64))
        return WorkUnit("batch", phase, batches_done(track, phase))
    batches = batches_done(track, phase)
    if track.begun(phase) == 1 and np.ptp(batches) > 1:
        return WorkUnit("batch", phase, batches)
    return WorkUnit(phase.partition(":")[0], phase, passes_done(track, phase))


def unit_within(track: BoundaryTable, phase: str) -> WorkUnit:
    """Return the unit of growth that climbs through a phase and falls back after it."""
    if is_training(phase) and track.step.any():
        return unit_of_phase(track, phase)
    return WorkUnit("batch", phase, batches_done(track, phase))


def passage_length(track: BoundaryTable, phase: str) -> float:
    """Return the usual work of a passage through a phase, in its unit of growth within; 0 where no
    work was counted.
    """
    done, mine = unit_within(track, phase).done, track.phase == track.phase_code(phase)
    passages = np.unique(track.occurrence[mine])[:MOST_PASSAGES]
    work = [np.ptp(done[mine & (track.occurrence == passage)]) for passage in passages]
    counted = [length for length in work if length > 0]
    return float(np.median(counted)) if counted else 0.0


def epochs_are_visible(boundaries: Iterable[Boundary]) -> bool:
    """Return whether epochs can be seen: the program says them, or a loader or phase ends them.

    Without these a single phase holds the whole training, however many epochs it has.
    """
    return any(
        b.kind is BoundaryKind.EPOCH_END
        or (is_training(b.phase) and (b.occurrence > 0 or b.expected_batches is not None))
        for b in boundaries
    )


def epochs(track: BoundaryTable) -> WorkUnit:
    """Return epochs as a unit: those the program announced, else training phases begun."""
    ended = track.kind == code_of(BoundaryKind.EPOCH_END)
    done = np.cumsum(ended) if ended.any() else track.epoch
    return WorkUnit("epoch", "train", done.astype(np.float64))


def minutes(track: BoundaryTable) -> WorkUnit:
    """Return minutes since the recording began as a unit, where nothing better was seen; those of a
    loop at its mean pace, as what it keeps comes with its passes however long they take.
    """
    done = track.time_s / 60 if track.loop is None else track.work / 6000
    return WorkUnit("minute", NOWHERE, done)


def in_part(track: BoundaryTable, unit: WorkUnit) -> FloatArray:
    """Return how much of a unit was done at each measurement, the running epoch by its steps.

    A walk of the whole heap lies wherever the budget allows one: near the end of an epoch it has
    seen nearly all that the epoch adds.
    """
    turns = np.flatnonzero(np.diff(unit.done) > 0) + 1
    inside = np.flatnonzero(track.phase)
    if unit.name != "epoch" or not len(turns) or not len(inside) or not track.step.any():
        return unit.done
    begins = np.concatenate([inside[:1], turns])
    steps = track.step[begins].astype(np.float64)
    lengths = np.diff(steps) / np.maximum(np.diff(unit.done[begins]), 1.0)
    last = float(track.step[-1]) - steps[-1]
    lengths = np.append(lengths, max(float(np.median(lengths)), last))
    running = np.maximum(np.searchsorted(begins, np.arange(len(track)), side="right") - 1, 0)
    since = np.maximum(track.step - steps[running], 0.0)
    parts: FloatArray = np.minimum(since / np.maximum(lengths[running], 1.0), 1.0)
    return unit.done + parts


def marks(track: BoundaryTable, label: str) -> WorkUnit:
    """Return the user's own marks of one label as a unit."""
    mine = [b.kind is BoundaryKind.MARK and b.label == label for b in track.boundaries]
    return WorkUnit(label or "mark", "", np.cumsum(mine).astype(np.float64))


def batches_done(track: BoundaryTable, phase: str) -> FloatArray:
    """Return the batches of a phase that had ended at each measurement, over all occurrences."""
    mine = np.flatnonzero(track.phase == track.phase_code(phase))
    batch, occurrence = track.batch[mine], track.occurrence[mine]
    same = np.diff(occurrence, prepend=-1) == 0
    gained = np.where(same, np.diff(batch, prepend=0), batch)
    done = np.zeros(len(track))
    done[mine] = np.maximum(gained, 0)
    return np.cumsum(done)


def work_of(track: BoundaryTable, phase: str) -> FloatArray:
    """Return the work done in a phase at each measurement: steps of training, batches else."""
    if is_training(phase) and track.step.any():
        return track.step.astype(np.float64)
    return batches_done(track, phase)


def passes_done(track: BoundaryTable, phase: str) -> FloatArray:
    """Return the occurrences of a phase done at each measurement, the running one in part."""
    completed = track.completed(phase).astype(np.float64)
    usual = track.batches_per_occurrence(phase)
    inside = (track.phase == track.phase_code(phase)) & np.isin(track.kind, INNER)
    if usual > 0:
        completed[inside] += np.minimum(track.batch[inside] / usual, 1.0)
    return np.maximum.accumulate(completed) if len(completed) else completed


class Places:
    """The stretches between consecutive censuses, by the phase in which they lie."""

    def __init__(self, track: BoundaryTable, table: RowTable) -> None:
        self._track = track
        self._at = table.at
        at = table.at
        self.phase = np.array([_only(track.after[i:j]) for i, j in pairwise(at)], dtype=np.int64)
        inner = np.isin(track.kind[at], INNER)
        same = track.occurrence[at][1:] == track.occurrence[at][:-1]
        self.inner = inner[1:] & inner[:-1] & same & (self.phase >= 0)
        self.partly_inner = (inner[1:] | inner[:-1]) & (self.phase >= 0)
        self._progress = {p: work_of(track, p) for p in track.phases}

    def growth_by_phase(self, values: FloatArray, first: int, last: int) -> dict[str, float]:
        """Return how much a path gained inside each phase, between two censuses.

        What it gained from batch to batch is taken, scaled to all batches of the phase: what comes
        and goes with the phase itself (a batch, an activation) is no growth inside it. Where no two
        censuses lie so close, what it gained to and from single ones is. A phase that no census saw
        between the two is taken to have gone on as it had been seen at other times.
        """
        whole = (0, len(values) - 1)
        found = {}
        for phase in self._progress:
            gained = self._gained(values, phase, first, last, (first, last))
            if gained is None:
                gained = self._gained(values, phase, first, last, whole)
            found[phase] = gained or 0.0
        return found

    def _gained(
        self, values: FloatArray, phase: str, first: int, last: int, seen: tuple[int, int]
    ) -> float | None:
        """Return what a phase gained between two censuses, by those that are ``seen``."""
        gains = np.diff(values)
        inside = np.zeros(len(gains), dtype=bool)
        inside[slice(*seen)] = True
        here = np.isfinite(gains) & inside & (self.phase == self._track.phase_code(phase))
        progress = self._progress[phase][self._at]
        for mine in (here & self.inner, here & self.partly_inner):
            work = np.diff(progress)[mine].sum()
            if work > 0:
                return float(gains[mine].sum() / work * (progress[last] - progress[first]))
        per_pass = self._begin_to_end(values, phase, *seen)
        if per_pass is None:
            return None
        done = passes_done(self._track, phase)[self._at]
        return per_pass * float(done[last] - done[first])

    def _begin_to_end(self, values: FloatArray, phase: str, first: int, last: int) -> float | None:
        """Return the usual gain from begin to end of a phase that has no census inside.

        What a phase gained while another one ran inside it (a validation between two steps) isn't
        known to be its own.
        """
        track, at, code = self._track, self._at, self._track.phase_code(phase)
        columns = [c for c in range(first, last + 1) if track.phase[at[c]] == code]
        gains = [
            values[b] - values[a]
            for a, b in pairwise(columns)
            if track.occurrence[at[a]] == track.occurrence[at[b]]
            and (self.phase[a:b] == code).all()
            and np.isfinite(values[b] - values[a])
        ]
        return float(np.median(gains)) if gains else None


def unit_of_growth(
    track: BoundaryTable,
    places: Places,
    values: FloatArray,
    columns: IntArray,
    at: IntArray,
    gained: float,
) -> WorkUnit:
    """Return the unit that a path's growth across phases is counted in.

    ``values`` is what the path retained at every census, ``at`` where these lie in the recording;
    by ``columns`` of them its growth was judged, from the first to the last ``gained``.
    """
    if track.is_timed:
        return minutes(track)
    if not track.phases:
        return _unit_of_marks(track)
    shares = places.growth_by_phase(values, int(columns[0]), int(columns[-1]))
    net = float(values[columns[-1]] - values[columns[0]])
    if 0 < net < gained:
        gained = net  # a line through censuses that lie close in one phase only goes beyond it
    if gained <= 0:
        return unit_of_phase(track, max(shares, key=lambda phase: shares[phase]))
    rivals = [phase for phase, share in shares.items() if share >= policy.MAIN_SHARE * gained]
    if rivals:
        # A share is scaled up from the stretches that were measured: far too great for a phase of
        # which they saw a moment only. Where two phases claim the growth, its course decides.
        all_along = slice(int(columns[0]), int(columns[-1]) + 1)
        units = [unit_of_phase(track, phase) for phase in rivals]
        return min(units, key=lambda u: _usual_error(u.done[at][all_along], values[all_along]))
    return _unit_between(track, at[columns], values[columns])


def _unit_of_marks(track: BoundaryTable) -> WorkUnit:
    labels = [b.label for b in track.boundaries if b.kind is BoundaryKind.MARK]
    if labels:
        return marks(track, max(set(labels), key=labels.count))
    if not track.step.any() and (track.kind == code_of(BoundaryKind.EPOCH_END)).any():
        return epochs(track)
    return WorkUnit("step", NOWHERE, track.step.astype(np.float64))


def _unit_between(track: BoundaryTable, at: IntArray, y: FloatArray) -> WorkUnit:
    """Return the unit of growth that happens between phases: the counter that fits it best."""
    candidates = [epochs(track)]
    candidates += [unit_of_phase(track, p) for p in track.phases if not is_training(p)]
    moving = [u for u in candidates if u.done[at[-1]] - u.done[at[0]] >= 2]
    if not moving:
        steps = next((p for p in track.phases if is_training(p)), track.phases[0])
        return unit_of_phase(track, steps)
    return min(
        moving, key=lambda u: _misfit(u.done[at], y) + policy.EPOCH_PREFERENCE * (u.name != "epoch")
    )


def _misfit(x: FloatArray, y: FloatArray) -> float:
    """Return the share of the variation of y that a straight line over x leaves."""
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(y) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 1.0
    return 1.0 - float(np.corrcoef(x, y)[0, 1] ** 2)


def _usual_error(x: FloatArray, y: FloatArray) -> float:
    """Return the median distance of y from its line over x, whatever single values stand out."""
    known = np.isfinite(y)
    if not known.any():
        return np.inf
    rest = y[known] - theil_sen(x[known], y[known]).rate * x[known]
    return float(np.median(np.abs(rest - np.median(rest))))


def _only(codes: IntArray) -> int:
    """Return the one code among these, −1 when there are several."""
    return int(codes[0]) if len(codes) and bool((codes == codes[0]).all()) else -1
