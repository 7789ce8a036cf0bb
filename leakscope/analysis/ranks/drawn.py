"""Which courses of ranks a chart shows: all of few, of many the middle and those that stand out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from leakscope.analysis.ranks.courses import COMPARABLE, POINTS, Course
from leakscope.model.rank import RankCourse

FEW = 6
"""A chart has as many colours."""


def shown_courses(courses: Mapping[int, Course], odd: int | None) -> list[RankCourse]:
    """Return the courses that a chart shows, that of the rank that differs first before others."""
    if len(courses) < 2:
        return []
    first = [odd] if odd in courses and odd is not None else []
    if len(courses) <= FEW:
        ranks = first + [rank for rank in sorted(courses) if rank != odd]
        return [_of_rank(rank, courses[rank]) for rank in ranks]
    last = {rank: float(course.memory[-1]) for rank, course in courses.items()}
    highest = max(last, key=lambda rank: last[rank])
    standing_out = list(dict.fromkeys([*first, highest]))
    return [*(_of_rank(rank, courses[rank]) for rank in standing_out), *_middle(courses)]


def _of_rank(rank: int, course: Course) -> RankCourse:
    points = zip(course.steps.tolist(), course.memory.tolist(), strict=True)
    return RankCourse(label=f"rank {rank}", points=list(points))


def _middle(courses: Mapping[int, Course]) -> list[RankCourse]:
    """Return the tenth from above, the median and the tenth from below of all ranks by step."""
    begin = min(float(course.steps[0]) for course in courses.values())
    end = max(float(course.steps[-1]) for course in courses.values())
    steps = np.linspace(begin, end, POINTS)
    memory = np.array(
        [
            np.interp(steps, course.steps, course.memory, left=np.nan, right=np.nan)
            for course in courses.values()
        ]
    )
    # Where few have readings the middle would be that of others than before.
    known = np.isfinite(memory).mean(axis=0) >= COMPARABLE
    if not known.any():
        return []
    labels = {90: "nine tenths below", 50: "half below", 10: "a tenth below"}
    return [
        RankCourse(
            label=label,
            points=list(
                zip(
                    steps[known].tolist(),
                    np.nanpercentile(memory[:, known], share, axis=0).tolist(),
                    strict=True,
                )
            ),
        )
        for share, label in labels.items()
    ]
