"""When gauges that are slow to read are read again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fake_session import FakeClock, FakeProbe, FakeSession

from leakscope.capture.dispatch import Guard
from leakscope.capture.gauges import SlowGauges
from leakscope.model import gauge

BUDGET = 0.02


class FakeChildren(FakeProbe):
    """Reads how many child processes there are and what they hold, in milliseconds."""

    seconds = 0.01
    children = 2

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, "children", slow=True)
        self.read_at: list[float] = []

    def gauges(self) -> dict[str, int]:
        self.read_at.append(self.clock.now)
        self.read()
        return {gauge.CHILDREN: self.children, gauge.CHILDREN_PSS: self.children << 28}


def pass_of(seconds: float, children: FakeChildren, *others: FakeProbe) -> None:
    """Reach a boundary each 5 milliseconds, none of which wants everything but the first."""
    clock = children.clock
    slow = SlowGauges([children, *others], clock, Guard(), BUDGET)
    began = clock.now
    while clock.now - began < seconds:
        slow.read(clock.now - began, everything=clock.now == began)
        clock.sleep(0.005)


def test_children_are_read_throughout_a_pass_of_any_length():
    for seconds in (2, 20, 200, 2000):
        children = FakeChildren(FakeClock())
        pass_of(seconds, children)
        read = [at - children.read_at[0] for at in children.read_at]
        assert len(read) >= 6
        assert read[-1] >= 0.7 * seconds
        assert len([at for at in read if at < seconds / 2]) >= 3


def test_they_cost_their_part_of_the_budget_after_a_while():
    children = FakeChildren(FakeClock())
    pass_of(600, children)
    assert sum(children.seconds for _ in children.read_at) < 0.25 * BUDGET * 600


def test_ends_of_short_epochs_do_not_each_read_them():
    """In a training of ten minutes with an epoch in each 0.2 s the budget pays, not the floor."""
    clock = FakeClock()
    children = FakeChildren(clock)
    slow = SlowGauges([children], clock, Guard(), BUDGET)
    for _ in range(3000):
        slow.read(clock.now, everything=False, between=True)
        clock.sleep(0.2)
    spent = [children.seconds for _ in children.read_at]
    assert len(spent) > 20
    assert sum(spent) < BUDGET * 600 / 4


def test_children_that_are_dear_to_read_are_read_seldom_at_first_too():
    children = FakeChildren(FakeClock())
    children.seconds = 0.8
    pass_of(60, children)
    assert len(children.read_at) <= 4


def test_without_children_they_are_read_as_seldom_as_anything_slow():
    alone, other = FakeChildren(FakeClock()), FakeChildren(FakeClock())
    alone.children = 0
    pass_of(30, alone)
    pass_of(30, other)
    assert len(alone.read_at) <= 4 < len(other.read_at)


def test_children_that_ended_are_forgotten_until_there_are_some_again():
    clock = FakeClock()
    children = FakeChildren(clock)
    slow = SlowGauges([children], clock, Guard(), BUDGET)
    slow.read(0.0, everything=True)
    children.children = 0
    slow.read(1.0, everything=True)
    slow.read(5.0, everything=False)
    assert len(children.read_at) == 2


def test_memory_shared_with_children_is_read_together_with_them():
    clock = FakeClock()
    children, shares = FakeChildren(clock), FakeProbe(clock, gauge.PSS, slow=True)
    threads = FakeProbe(clock, gauge.THREADS, slow=True)
    shares.seconds = threads.seconds = 0.1
    pass_of(60, children, shares, threads)
    assert shares.reads >= len(children.read_at)
    assert threads.reads <= 2


def test_reading_children_does_not_spread_out_the_boundaries_that_are_recorded():
    recorded = []
    for seconds in (0.0, 0.03):
        run = FakeSession(focused=0.001, whole=0.001, resumed=0.001)
        children = FakeChildren(run.clock)
        children.seconds = seconds
        run.session._measuring._slow = SlowGauges([children], run.clock, run.session._guard, BUDGET)
        run.train_pass(3000, known=False)
        run.close()
        recorded.append(len(run.writer.boundaries))
    assert recorded[1] > 0.8 * recorded[0]


def test_a_reading_that_waited_by_chance_does_not_put_off_the_next():
    probe = FakeProbe(FakeClock(), slow=True)
    slow = SlowGauges([probe], probe.clock, Guard(), BUDGET)
    read_at = []
    for number in range(2000):
        now = 0.005 * number
        probe.seconds = 0.5 if len(read_at) == 10 else 1e-4
        before = probe.reads
        slow.read(now, everything=False)
        read_at += [now] * (probe.reads - before)
    gaps = [later - earlier for earlier, later in pairwise(read_at)]
    assert max(gaps) < 0.2


def test_readings_that_become_dear_are_soon_spaced_by_what_they_cost():
    probe = FakeProbe(FakeClock(), slow=True)
    slow = SlowGauges([probe], probe.clock, Guard(), BUDGET)
    for number in range(4000):
        probe.seconds = 1e-4 if number < 1000 else 0.01
        slow.read(0.005 * number, everything=False)
    assert probe.reads < 70


def read_at(
    probe: FakeProbe, seconds: float, *, between: bool, import_s: float = 0.0
) -> list[float]:
    """Return when a source is read in a program that imports for a time and then works."""
    slow = SlowGauges([probe], probe.clock, Guard(), BUDGET)
    began, found = probe.clock.now, []
    slow.read(0.0, everything=False)
    probe.clock.sleep(import_s)
    while (now := probe.clock.now - began - import_s) < seconds:
        before = probe.reads
        slow.read(probe.clock.now - began, everything=False, between=between)
        found += [now] * (probe.reads - before)
        probe.clock.sleep(0.005)
    return found


@pytest.mark.parametrize("import_s", [0.0, 10.0])
def test_a_dear_source_is_read_throughout_a_run_and_not_six_times_at_once(import_s):
    for seconds in (3, 30, 300):
        probe = FakeProbe(FakeClock(), slow=True)
        probe.seconds = 0.03
        read = read_at(probe, seconds, between=True, import_s=import_s)
        assert len(read) >= 5
        assert read[-1] >= 0.6 * seconds


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("import_s", [0.0, 10.0])
def test_kinds_of_mappings_are_read_throughout_any_run(between, import_s):
    for seconds in (3, 30, 300):
        probe = FakeProbe(FakeClock(), gauge.MAPPED_ANONYMOUS, slow=True)
        probe.seconds = 0.004
        read = read_at(probe, seconds, between=between, import_s=import_s)
        assert len([*read, "the end"]) >= 6
        assert read[-1] >= 0.6 * seconds
        assert len([at for at in read if at < seconds / 2]) >= 3


@pytest.mark.parametrize("cost", [0.004, 0.05, 0.4])
@pytest.mark.parametrize("between", [False, True])
def test_kinds_of_mappings_keep_their_part_of_the_budget_however_many_there_are(cost, between):
    probe = FakeProbe(FakeClock(), gauge.MAPPED_ANONYMOUS, slow=True)
    probe.seconds = cost
    read = read_at(probe, 60, between=between)
    assert len(read) * cost <= 0.25 * BUDGET * 60 + 3 * cost


@pytest.mark.parametrize("name", [gauge.PSS, gauge.copied("dataset.samples")])
def test_the_own_memory_of_a_child_is_read_throughout_as_children_are(name):
    for seconds in (2, 20, 200):
        probe = FakeProbe(FakeClock(), name, slow=True)
        probe.seconds = 0.01
        slow = SlowGauges([probe], probe.clock, Guard(), BUDGET, in_child=True)
        began, read_at = probe.clock.now, []
        while (now := probe.clock.now - began) < seconds:
            before = probe.reads
            slow.read(now, everything=False)
            read_at += [now] * (probe.reads - before)
            probe.clock.sleep(0.005)
        assert len(read_at) >= 6
        assert read_at[-1] >= 0.7 * seconds
        assert probe.reads * probe.seconds <= 0.05 * seconds


def test_pages_are_divided_among_processes_where_there_are_others():
    alone, with_children = (FakeProbe(FakeClock(), gauge.PSS, slow=True) for _ in range(2))
    alone.seconds = with_children.seconds = 0.01
    assert len(read_at(alone, 60, between=True)) <= 0.05 * BUDGET * 60 / alone.seconds + 3
    children = FakeChildren(with_children.clock)
    pass_of(60, children, with_children)
    assert with_children.reads == len(children.read_at)


def test_nobody_who_is_answered_waits_for_sums_over_mappings():
    probe = FakeProbe(FakeClock(), gauge.MAPPED_ANONYMOUS, slow=True)
    probe.seconds = 0.02
    slow = SlowGauges([probe], probe.clock, Guard(), BUDGET)
    assert slow.read(0.0, everything=False) == {probe.name: probe.value}
    assert slow.read_ahead(1.0) == 0.0
    slow.reads_ahead = True
    found, ahead = [], 0
    for at in range(1, 6000):
        now = at / 100
        before = probe.reads
        assert slow.read_ahead(now) == pytest.approx((probe.reads - before) * probe.seconds)
        ahead += probe.reads - before
        before = probe.reads
        found += [now] * (probe.name in slow.read(now, everything=False))
        assert slow.last_seconds == 0.0
        assert probe.reads == before
    assert len(found) == ahead >= 6
    assert found[-1] >= 36
    before = probe.reads
    assert slow.read(60.0, everything=True) == {probe.name: probe.value}
    assert probe.reads == before + 1
