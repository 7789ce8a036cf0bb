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
"""A rank that came late or ended early, so that it has less than this part of the steps that most
have, saw another part of the training: its course is not held against theirs."""


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


def odd_one_out(courses: Mapping[int, Course]) -> OddRank | None:
    """Return the rank that was the first to leave the others' course for good, if one did."""
    usual = float(np.median([course.span for course in courses.values()])) if courses else 0.0
    together = {r: course for r, course in courses.items() if course.span >= COMPARABLE * usual}
    if len(together) < 2:
        return None
    begin = max(float(course.steps[0]) for course in together.values())
    end = min(float(course.steps[-1]) for course in together.values())
    if end <= begin:
        return None
    steps = np.linspace(begin, end, POINTS)
    ranks = list(together)
    risen = np.array([_risen(steps, together[rank]) for rank in ranks])
    away = _away(risen)
    least = max(DIFFERS_BYTES, DIFFERS_SHARE * float(risen[:, -1].max()))
    found = [
        (float(steps[left]), rank, int(course[-1]))
        for rank, course in zip(ranks, away, strict=True)
        if (left := _left_at(course, least)) is not None
    ]
    if not found:
        return None
    # Of two ranks each is away from the other: the one that has more is the odd one.
    return _told(*min(found, key=lambda one: (one[0], -one[2])))


def _told(step: float, rank: int, size: int) -> OddRank:
    word = "more" if size > 0 else "less"
    sentence = (
        f"Rank {rank} is the first that differs: from about step {step:,.0f} on its memory leaves "
        f"the others' course, and at the end it has {human_bytes(abs(size))} {word} than they."
    )
    return OddRank(rank=rank, step=round(step), bytes=size, sentence=sentence)


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
