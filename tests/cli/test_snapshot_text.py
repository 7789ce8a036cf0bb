"""What ``leakscope snapshot`` shows of a census, without a process that takes one."""

from __future__ import annotations

from pathlib import Path

from leakscope.cli.snapshot import CensusTaken, RecordedProcess, as_text
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import HeaderRecord, SnapshotRecord

MIB = 1 << 20


def text(**gauges: int) -> str:
    boundary = Boundary(index=3, kind=BoundaryKind.STEP, time_s=4.0, phase="train", step=3)
    taken = SnapshotRecord(
        boundary=boundary, gauges=gauges, census=None, at_once=False, seconds=0.1
    )
    return as_text(
        CensusTaken(RecordedProcess(7, Path("run/main-7.journal"), HeaderRecord(pid=7)), taken)
    )


def test_child_processes_are_reported_next_to_the_process() -> None:
    reported = text(rss=324 * MIB, **{gauge.CHILDREN: 2, gauge.CHILDREN_PSS: 214 * MIB})
    assert (
        "\n324 MiB resident, and 214 MiB in 2 child processes (shared pages divided)\n" in reported
    )


def test_where_there_are_none_nothing_is_reported_of_them() -> None:
    reported = text(rss=324 * MIB, **{gauge.CHILDREN: 0, gauge.CHILDREN_PSS: 0})
    assert "\n324 MiB resident\n" in reported
