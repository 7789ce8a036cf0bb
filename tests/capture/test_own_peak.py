"""What a census raised the kernel's mark to is no peak of the program's."""

from __future__ import annotations

from leakscope.capture.gauges import OwnMemory
from leakscope.model import gauge

MIB = 1 << 20


class Process:
    """The process as a probe reads it."""

    name = "process"

    def __init__(self) -> None:
        self.resident = self.mark = 100 * MIB

    def reaches(self, mebibytes: int) -> None:
        self.mark = max(self.mark, mebibytes * MIB)

    def gauges(self) -> dict[str, int]:
        return {gauge.RSS: self.resident, gauge.RSS_PEAK: self.mark}


def peak_mib(own: OwnMemory, process: Process) -> int:
    return own.peak(process.gauges())[gauge.RSS_PEAK] // MIB


def test_what_the_program_reaches_between_two_boundaries_is_its_peak() -> None:
    process = Process()
    own = OwnMemory([process])
    assert peak_mib(own, process) == 100
    process.reaches(160)
    assert peak_mib(own, process) == 160
    process.reaches(130)
    assert peak_mib(own, process) == 160


def test_what_a_census_reaches_is_left_out() -> None:
    process = Process()
    own = OwnMemory([process])
    own.peak(before := process.gauges())
    process.reaches(180)
    own.charge(before)
    assert peak_mib(own, process) == 100
    process.reaches(170)
    assert peak_mib(own, process) == 100
    process.reaches(190)
    assert peak_mib(own, process) == 190


def test_resident_memory_at_a_boundary_counts_below_the_mark_of_a_census() -> None:
    process = Process()
    own = OwnMemory([process])
    own.peak(before := process.gauges())
    process.reaches(180)
    own.charge(before)
    process.resident = 150 * MIB
    assert peak_mib(own, process) == 150


def test_a_mark_that_the_program_sets_back_rises_again_from_there() -> None:
    process = Process()
    own = OwnMemory([process])
    process.reaches(160)
    assert peak_mib(own, process) == 160
    process.mark = 100 * MIB
    assert peak_mib(own, process) == 160
    process.reaches(140)
    assert peak_mib(own, process) == 160
    process.reaches(170)
    assert peak_mib(own, process) == 170


def test_without_a_mark_there_is_no_peak() -> None:
    assert OwnMemory([]).peak({gauge.RSS: 5}) == {}
