"""What makes up most of what memory goes on to gain, though few looks tell how it grew itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leakscope.analysis.growth.search import _rests_at_last
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.record import HeaderRecord, RunManifest
from leakscope.model.report import Report, RunVerdict
from leakscope.model.run import Measurement, Recording, Run

MIB = 1 << 20
LOOKS = (3.06, 4.06, 5.05, 7.14, 9.23, 12.21, 13.58, 13.59, 13.6)


def read_by_time(kept: tuple[float | None, ...], later: float) -> Report:
    """Analyse a run whose registry had so many MiB at each look, while memory gained some more.

    Args:
        kept: MiB at each look; None where memory alone was read.
        later: MiB that memory gained, besides, in each second.

    """
    measurements = []
    size = 0
    for at, (time_s, mib) in enumerate(zip(LOOKS, kept, strict=True)):
        size = size if mib is None else round(mib * MIB)
        row = CensusRow(
            path="main()·registry", name="main.registry", root=RootKind.LOCAL, kind="dict",
            type="dict", host_bytes=size, length=round(10 * size / MIB),
        )  # fmt: skip
        census = Census(
            scope=CensusScope.FOCUSED, rows=[row], cutoff_bytes=0, objects=9, heap_bytes=size,
            pause_s=0.01,
        )  # fmt: skip
        private = 90 * MIB + size + round(later * time_s * MIB)
        boundary = Boundary(index=at, kind=BoundaryKind.TIME, time_s=time_s)
        gauges = {gauge.RSS: private + 10 * MIB, gauge.PRIVATE: private}
        measurements.append(Measurement(boundary, gauges, None if mib is None else census))
    recording = Recording(HeaderRecord(pid=1), measurements)
    return analyse(Run(Path("run"), RunManifest(run_id="run", project_root="/work"), [recording]))


FILLS = (6.44, 8.12, 9.81, 13.45, 15.13, 16.53, 16.53, 16.53, 16.53)
GROWS = (6.44, 8.12, 9.81, 13.45, 15.13, 19.5, 21.5, 21.5, 21.5)


def test_what_rested_in_its_last_looks_for_the_first_time_carries_no_growth() -> None:
    assert read_by_time(FILLS, later=0.4).verdict is not RunVerdict.LEAK


def test_what_goes_on_to_the_last_look_carries_it() -> None:
    found = read_by_time(GROWS, later=0.4)
    assert [culprit.name for culprit in found.culprits] == ["main.registry"]


@pytest.mark.parametrize(("before", "is_leak"), [(30, False), (0, True)])
def test_few_looks_at_something_large_tell_nothing_of_a_little_growth(
    before: int, is_leak: bool
) -> None:
    gains = (0.2, 0.6, None, 1.3, None, 2.6, None, None, None)
    kept = tuple(None if gain is None else before + gain for gain in gains)
    found = read_by_time(kept, later=0.1)
    assert (found.verdict is RunVerdict.LEAK) is is_leak
    assert found.verdict is not RunVerdict.CLEAN


@pytest.mark.parametrize(
    ("kept", "rests"),
    [
        ((1, 2, 3, 4, 4, 4, 4, 4, 4), True),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), False),
        ((1, 1, 1, 1, 2, 2, 2, 2, 2), False),  # steps rest as long
        ((1, 2, 3, 4, 5, 6, 7, 8, 8), False),  # two looks alike are no rest
    ],
)
def test_a_rest_is_longer_than_those_before(kept: tuple[int, ...], rests: bool) -> None:
    work = np.array([100 * time_s for time_s in LOOKS], dtype=np.int64)
    rises = np.diff(np.array(kept, dtype=float)) * MIB
    assert _rests_at_last(work, rises) is rests


SETTLES = (1.48, 1.81, 2.17, 2.48, 2.82, 2.98, 3.19, 3.19, 3.19)


@pytest.mark.parametrize(
    ("part", "verdict"), [(1.0, RunVerdict.INCONCLUSIVE), (0.5, RunVerdict.CLEAN)]
)
def test_a_small_open_rise_counts_where_it_is_most_of_what_memory_gained(
    part: float, verdict: RunVerdict
) -> None:
    kept = tuple(SETTLES[0] + part * (mib - SETTLES[0]) for mib in SETTLES)
    found = read_by_time(kept, later=0.05)
    assert found.verdict is verdict
    assert ("main.registry grew by 1.7 MiB" in found.headline) is (part == 1.0)
