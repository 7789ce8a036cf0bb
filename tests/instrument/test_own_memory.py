"""What censuses make resident is charged to leakscope, without what stays free in the C heap."""

from __future__ import annotations

import mmap

from leakscope.instrument.own_memory import OwnMemory
from leakscope.model import gauge
from leakscope.probes import default_probes

MIB = 1 << 20


class Said:
    """A source that says what the test tells it to say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said: dict[str, int] = {}

    def gauges(self) -> dict[str, int]:
        return self.said


def test_real_pages_that_were_touched_meanwhile_are_charged():
    own = OwnMemory(probes := default_probes())
    before = {name: value for probe in probes for name, value in probe.read().items()}
    with mmap.mmap(-1, 16 * MIB) as block:
        block.write(b"\1" * (16 * MIB))
        own.charge(before)
    assert 15 * MIB < own.resident < 24 * MIB


def test_what_stays_free_in_the_c_heap_is_left_out():
    process, heap = Said("process"), Said("malloc")
    own = OwnMemory([process, heap])
    process.said = {gauge.RSS: 110 * MIB}
    heap.said = {gauge.MALLOC_IN_USE: 40 * MIB, gauge.MALLOC_FREE: 7 * MIB}
    own.charge({gauge.RSS: 100 * MIB, gauge.MALLOC_IN_USE: 40 * MIB, gauge.MALLOC_FREE: 1 * MIB})
    assert own.resident == 4 * MIB


def test_what_is_given_back_is_no_longer_charged():
    process = Said("process")
    own = OwnMemory([process])
    process.said = {gauge.RSS: 103 * MIB}
    own.charge({gauge.RSS: 100 * MIB})
    process.said = {gauge.RSS: 90 * MIB}
    own.charge({gauge.RSS: 100 * MIB})
    assert own.resident == 0


def test_nothing_is_charged_where_nothing_was_read():
    own = OwnMemory([])
    own.charge({gauge.RSS: 1})
    assert own.resident == 0
