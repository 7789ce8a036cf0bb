"""Courses of ranks: memory by step, and which rank was the first to leave that of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.model.rank import OddRank
from leakscope.model.sizes import human_bytes

DIFFERS_BYTES = 32 * MIB
DIFFERS_SHARE = 0.1
"""Another course than the others' is one that leads away from theirs by so much, of what they have
gained at most too: ranks get other batches."""
POINTS = 200
"""Steps at which the courses of ranks are compared."""
COMPARABLE = 0.8
"""A rank that has less than this part of the steps that most have saw another part of the training:
the others aren't held against it, and it against them only up to where it got."""
ENOUGH = 0.2
"""Of less than this part of the steps, all may be warm-up."""
LASTING = 0.05
"""A rank that ended early must have been away for this part of its own steps: what it did to end
is no course."""


@dataclass(frozen=True)
class Course:
    """Memory of a rank at steps, ascending, at no more than so many of them as are compared."""

    steps: FloatArray
    memory: FloatArray

    @property
    def span(self) -> float:
        """How many steps it covers."""
        return float(self.steps[-1] - self.steps[0])


def course_of(case: Case) -> Course | None:
    """Return steps and memory, one reading a step, while the rank was at work."""
    readings = case.track.gauge(case.host_metric)[: case.track.last_work + 1]
    known = np.isfinite(readings) & (case.track.step[: len(readings)] > 0)
    numbers, first = np.unique(case.track.step[: len(readings)][known], return_index=True)
    if len(numbers) < 2:
        return None
    steps, memory = numbers.astype(np.float64), readings[known][first]
    if len(steps) > POINTS:
        evenly = np.linspace(steps[0], steps[-1], POINTS)
        steps, memory = evenly, np.interp(evenly, steps, memory)
    return Course(steps, memory)


@dataclass(frozen=True)
class _Left:
    """A rank that left the others' course for good."""

    step: float
    """From which on it is away by so much as no rank is that keeps with the others."""
    begun: float
    """The step at which that began."""
    rank: int
    size: int
    """How much more than the others it has at the end, or where one of them ended."""
    ended: float | None = None
    """The step up to which it was held against them, where that is not the end."""


def odd_one_out(courses: Mapping[int, Course]) -> OddRank | None:
    """Return the rank that was the first to leave the others' course for good, if one did."""
    usual = float(np.median([course.span for course in courses.values()])) if courses else 0.0
    together = {r: course for r, course in courses.items() if course.span >= COMPARABLE * usual}
    found = _among(together)
    for rank, course in courses.items():
        if together and rank not in together and course.span >= ENOUGH * usual:
            left = _beside(rank, course, together)
            found += [] if left is None else [left]
    if not found:
        return None
    # Of two ranks each is away from the other: the one that has more is the odd one.
    return _told(min(found, key=lambda one: (one.step, -one.size)))


def _among(together: Mapping[int, Course]) -> list[_Left]:
    """Return those of ranks with the same steps that left the course of the others."""
    if len(together) < 2:
        return []
    begin = max(float(course.steps[0]) for course in together.values())
    end = min(float(course.steps[-1]) for course in together.values())
    if end <= begin:
        return []
    steps = np.linspace(begin, end, POINTS)
    risen = np.array([_risen(steps, course) for course in together.values()])
    away = _away(risen)
    least = max(DIFFERS_BYTES, DIFFERS_SHARE * float(risen[:, -1].max()))
    return [
        _Left(float(steps[left]), _begun(steps, course, left), rank, int(course[-1]))
        for rank, course in zip(together, away, strict=True)
        if (left := _left_at(course, least)) is not None
    ]


def _beside(rank: int, course: Course, together: Mapping[int, Course]) -> _Left | None:
    """Return where a rank that ended early left the others, as far as it got.

    One that began late is let off: it warms up where the others have done so.
    """
    begin = max(float(other.steps[0]) for other in together.values())
    end = float(course.steps[-1])
    if course.steps[0] > begin + LASTING * course.span or end <= begin:
        return None
    steps = np.linspace(max(begin, float(course.steps[0])), end, POINTS)
    risen = np.array([_risen(steps, other) for other in together.values()])
    own = _risen(steps, course)
    away = own - np.median(risen, axis=0)
    least = max(DIFFERS_BYTES, DIFFERS_SHARE * max(float(risen[:, -1].max()), float(own[-1])))
    left = _left_at(away, least)
    if left is None or POINTS - left < LASTING * POINTS:
        return None
    size = int(away[-1])
    if len(together) == 1 and size < 0:
        rank, size = next(iter(together)), -size
    return _Left(float(steps[left]), _begun(steps, away, left), rank, size, ended=end)


def _told(odd: _Left) -> OddRank:
    word = "more" if odd.size > 0 else "less"
    ended = f"at step {odd.ended:,.0f}, where one of them ended," if odd.ended else ""
    when = ended or "at the end"
    sentence = (
        f"Rank {odd.rank} is the first that differs: from about step {odd.begun:,.0f} on its "
        f"memory leaves the others' course, and {when} it has "
        f"{human_bytes(abs(odd.size))} {word} than they."
    )
    return OddRank(rank=odd.rank, step=round(odd.begun), bytes=odd.size, sentence=sentence)


def _risen(steps: FloatArray, course: Course) -> FloatArray:
    """Return by how much memory has risen at each step since the first."""
    memory = np.interp(steps, course.steps, course.memory)
    return np.asarray(memory - memory[0], dtype=np.float64)


def _away(risen: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> FloatArray:
    """Return for each rank how far it is from the median of the others."""
    ordered = np.sort(risen, axis=0)
    count, middle = len(risen), (len(risen) - 1) // 2
    # Without one of them the median is one of the three in the middle, or between two of them.
    place = np.argsort(np.argsort(risen, axis=0, kind="stable"), axis=0, kind="stable")
    if count % 2:
        low = np.where(place <= middle - 1, ordered[middle], ordered[middle - 1])
        high = np.where(place <= middle, ordered[middle + 1], ordered[middle])
        return np.asarray(risen - (low + high) / 2, dtype=np.float64)
    return np.asarray(
        risen - np.where(place <= middle, ordered[middle + 1], ordered[middle]), dtype=np.float64
    )


def _left_at(away: FloatArray, least: float) -> int | None:
    """Return the point from which on a rank is away from the others to the end."""
    near = np.flatnonzero(np.abs(away) < least)
    start = int(near[-1]) + 1 if len(near) else 0
    return start if start < len(away) else None


def _begun(steps: FloatArray, away: FloatArray, left: int) -> float:
    """Return the step at which a rank began to go away that at ``left`` was away for good.

    It is where a level that bends into a slope comes closest to the distance up to then: a distance
    that is there from the warm-up on is level, and no single reading decides.
    """
    until, place = away[: left + 1], np.arange(left + 1)
    if left < 2:
        return float(steps[0])
    slopes = np.maximum(0, place[None, :] - place[:-1, None]).astype(np.float64)
    slopes -= slopes.mean(axis=1, keepdims=True)
    told = (slopes @ (until - until.mean())) ** 2 / (slopes**2).sum(axis=1)
    return float(steps[int(np.argmax(told))])
