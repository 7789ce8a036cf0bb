"""How many censuses runs of all lengths get, where they lie, and what they cost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fake_session import FakeSession

from leakscope.capture.budget import WORKER_FLOOR, Due, costs_with
from leakscope.capture.policy import MOST_SLOWED, WHOLE_SECONDS_PER_BLOCK
from leakscope.model.boundary import BoundaryKind as Kind
from leakscope.model.census import CensusScope
from leakscope.model.record import CensusRecord, NoteRecord, OverheadRecord

FULL = CensusScope.FULL


class TestShortRuns:
    @pytest.fixture
    def run(self):
        """Six epochs of a second each, with a validation of ten batches."""
        run = FakeSession()
        for _ in range(6):
            run.train_pass(80)
            run.validation_pass(10)
        run.close()
        return run

    @pytest.mark.parametrize("kind", [Kind.PHASE_BEGIN, Kind.PHASE_END])
    @pytest.mark.parametrize("phase", ["train", "validation"])
    def test_every_end_of_every_phase_has_comparable_censuses(self, run, kind, phase):
        assert len(run.censuses(kind, phase)) >= 4

    def test_no_whole_walk_is_taken_where_it_would_be_much_of_the_run(self, run):
        assert Due.WHOLE not in run.taker.taken

    @pytest.mark.parametrize(("whole", "batch_seconds"), [(0.2, 0.01), (0.4, 0.02), (4.0, 0.2)])
    def test_the_heap_is_walked_where_what_rises_has_no_name(self, whole, batch_seconds):
        run = FakeSession(whole=whole, resumed=whole / 5, max_pause=10_000)
        for _ in range(12):
            run.train_pass(40, batch_seconds)
            run.fast.value += 1 << 20
        run.close()
        assert len(run.censuses(Kind.PHASE_BEGIN, "train", FULL)) >= 2
        assert run.taker.taken.count(Due.WHOLE) == 1

    @pytest.mark.parametrize(("gained", "walks"), [(1 << 20, 1), (0, 0)])
    def test_a_run_too_short_for_a_walk_ends_with_one_where_what_rises_has_no_name(
        self, gained, walks
    ):
        run = FakeSession(whole=0.5, resumed=0.1, max_pause=10_000)
        for _ in range(8):
            run.train_pass(10, 0.01)
            run.fast.value += gained
        run.close()
        assert run.elapsed < 2
        assert run.taker.taken.count(Due.WHOLE) == walks
        assert len(run.censuses(Kind.RUN_END, "", FULL)) == walks

    @pytest.mark.parametrize(("unnamed", "walks"), [(5 << 20, 1), (3 << 20, 0)])
    def test_one_with_much_outside_the_users_names_ends_with_a_walk(self, unnamed, walks):
        run = FakeSession(whole=0.5, resumed=0.1, max_pause=10_000)
        run.taker.elsewhere_bytes = 0
        run.train_pass(40, 0.01)
        run.taker.elsewhere_bytes = unnamed
        run.train_pass(40, 0.01)
        run.close()
        assert run.taker.taken.count(Due.WHOLE) == walks
        assert len(run.censuses(Kind.RUN_END, "", FULL)) == walks

    @pytest.mark.parametrize(("garbage", "walks"), [(17 << 20, 1), (15 << 20, 0)])
    def test_one_with_much_garbage_ends_with_a_walk_that_tells_its_circles(self, garbage, walks):
        run = FakeSession(whole=0.5, resumed=0.1, max_pause=10_000)
        run.taker.elsewhere_bytes = 0
        run.train_pass(40, 0.01)
        run.taker.garbage_bytes = garbage
        run.train_pass(40, 0.01)
        run.close()
        assert run.taker.taken.count(Due.WHOLE) == walks
        assert len(run.censuses(Kind.RUN_END, "", FULL)) == walks

    @pytest.mark.parametrize(("slowed", "walks"), [(4.0, 1), (1.0, 0)])
    def test_on_a_busy_machine_that_walk_may_wait(self, slowed, walks):
        run = FakeSession(whole=0.5, resumed=0.1, max_pause=10_000)
        run.taker.elsewhere_bytes = 5 << 20
        run.train_pass(40, 0.01)
        run.session._costs._blocks = lambda: 2.0 / WHOLE_SECONDS_PER_BLOCK
        run.session._costs.slowed = slowed
        run.close()
        assert run.taker.taken.count(Due.WHOLE) == walks

    @pytest.mark.parametrize(("part", "walks"), [(0.4, 1), (0.7, 0)])
    def test_that_walk_may_take_half_as_long_as_the_run(self, part, walks):
        run = FakeSession(whole=0.5, resumed=0.1, max_pause=10_000)
        run.taker.elsewhere_bytes = 5 << 20
        run.train_pass(400, 0.01)
        blocks = part * run.elapsed / WHOLE_SECONDS_PER_BLOCK
        run.session._costs._blocks = lambda: blocks
        run.close()
        assert run.taker.taken.count(Due.WHOLE) == walks

    def test_censuses_lie_spread_inside_the_first_validation(self, run):
        inside = [b for b in run.censuses(Kind.BATCH, "validation") if b.occurrence == 0]
        assert {1, 3, 9} <= {b.batch for b in inside}

    def test_what_dear_censuses_may_take_at_once_is_not_spent_on_the_first_steps(self):
        run = FakeSession(focused=0.035, whole=0.45)
        run.clock.sleep(2.0)
        run.steps(360, 0.008)
        run.close()
        steps = [b.step for b in run.censuses(Kind.STEP, "train")]
        assert len([step for step in steps if step > 40]) >= 3
        assert len([step for step in steps if step < 10]) <= 2

    def test_later_passes_are_measured_where_earlier_ones_were(self, run):
        inside = run.censuses(Kind.STEP, "train")
        places = [{b.batch for b in inside if b.occurrence == n} for n in (1, 2)]
        assert places[0] | places[1] <= {8, 24, 40, 56, 72}

    def test_the_floor_has_a_limit(self, run):
        assert run.spent <= 0.06 * run.elapsed + 0.3

    def test_the_run_ends_with_a_census(self, run):
        assert run.censuses(Kind.RUN_END, "")


class TestWorkers:
    """The training waits for its DataLoader's workers, of which there are many."""

    @pytest.mark.parametrize("slowed", [1.0, 3.0])
    def test_a_dear_census_is_taken_once_and_then_when_the_budget_pays(self, slowed):
        run = FakeSession(focused=0.6, slowed=slowed, floor=WORKER_FLOOR, max_pause=1000)
        run.taker.counts_objects = True
        for _ in range(6):
            run.train_pass(40)
        assert len(run.taker.taken) == 1
        run.steps(4000, 0.1)
        run.close()
        assert 2 <= len(run.taker.taken) <= 1 + 0.02 * run.elapsed / (0.6 * slowed)

    def test_none_is_taken_at_once_where_it_was_dear_in_the_workers_before(self):
        run = FakeSession(focused=0.6, floor=WORKER_FLOOR, costs=costs_with(0.6))
        for _ in range(6):
            run.train_pass(40)
        run.close()
        assert run.taker.taken == []

    @pytest.mark.parametrize(("known", "looks"), [(0.0, 1), (0.08, 0)])
    def test_one_of_a_hundred_thousand_objects_is_not_taken_for_cheap(self, known, looks):
        run = FakeSession(focused=0.08, floor=WORKER_FLOOR, costs=costs_with(known))
        run.taker.counts_objects = True
        for _ in range(6):
            run.train_pass(40)
        assert len(run.taker.taken) == looks
        run.steps(4000, 0.02)
        run.close()
        assert looks + 3 <= len(run.taker.taken)
        assert run.spent <= 0.08 * looks + 0.02 * run.elapsed

    @pytest.mark.parametrize("known", [0.0, 0.04])
    def test_cheap_ones_are_taken_at_once_at_every_kind_of_boundary(self, known):
        run = FakeSession(focused=0.04, floor=WORKER_FLOOR, costs=costs_with(known))
        for _ in range(6):
            run.train_pass(40)
        run.close()
        for kind in (Kind.PHASE_BEGIN, Kind.STEP, Kind.PHASE_END):
            assert len(run.censuses(kind, "train")) >= 2

    def test_few_of_the_first_batches_are_written_down(self):
        run = FakeSession(focused=0.6, floor=WORKER_FLOOR, costs=costs_with(0.6))
        run.train_pass(400, 0.002)
        assert len(run.writer.boundaries) <= 120

    def test_the_last_boundary_reads_what_no_census_does(self):
        run = FakeSession(focused=0.6, floor=WORKER_FLOOR, costs=costs_with(0.6))
        run.train_pass(40)
        reads = run.slow.reads
        run.close()
        assert run.slow.reads == reads + 1


def test_a_short_run_with_a_large_heap_has_four_comparable_censuses():
    run = FakeSession(focused=0.4)
    for _ in range(6):
        run.train_pass(40, 0.005)
    run.close()
    assert len(run.censuses(Kind.PHASE_BEGIN, "train")) >= 4


@pytest.mark.parametrize("epochs", [12, 24])
def test_epochs_of_a_short_run_are_looked_at_until_its_end(epochs):
    run = FakeSession()
    for _ in range(epochs):
        run.train_pass(20, 0.01)
    seen = [b.occurrence for b in run.censuses(Kind.PHASE_BEGIN, "train")]
    assert seen[:4] == [*range(4)]
    assert any(occurrence > epochs // 2 for occurrence in seen)
    assert run.spent <= 0.08 * run.elapsed + 1.5


@pytest.mark.parametrize(("rise", "looks"), [(1 << 20, 3), (0, 0)])
def test_growth_that_begins_late_is_looked_at_even_where_censuses_are_dear(rise, looks):
    run = FakeSession(focused=0.06)
    for epoch in range(48):
        run.train_pass(20, 0.01)
        run.fast.value += rise * (epoch >= 10)
    late = [b for b in run.censuses(Kind.PHASE_BEGIN, "train") if b.occurrence > 10]
    assert len(late) >= looks
    assert bool(late) == bool(looks)


def test_quick_tasks_of_a_worker_are_looked_at_throughout_its_run():
    run = FakeSession(focused=0.006)
    for _ in range(300):
        run.session.end_task(calls=8)
        run.clock.sleep(0.04)
    seen = [b.occurrence for b in run.censuses(Kind.PHASE_BEGIN, "task")]
    assert len([occurrence for occurrence in seen if occurrence > 8 * 100]) >= 4
    assert seen[-1] > 8 * 200
    assert run.spent <= 0.05 * run.elapsed


def test_passes_are_looked_at_throughout_a_run_that_trains_nothing():
    run = FakeSession()
    run.fast.seconds = 0.0022  # gauges alone take more than the floor has
    for _ in range(150):
        run.validation_pass(24, 0.003)
    seen = {b.occurrence for b in run.censuses(Kind.PHASE_BEGIN, "validation")}
    assert len([occurrence for occurrence in seen if occurrence > 30]) >= 4
    assert max(seen) > 100
    assert run.spent <= 0.08 * run.elapsed


@pytest.mark.parametrize("focused", [0.01, 0.025, 0.08])
def test_a_busy_machine_costs_a_short_run_few_of_its_censuses(focused):
    seen = []
    for slowed in (1.0, 4.0):
        run = FakeSession(focused=focused, slowed=slowed)
        for _ in range(8):
            run.train_pass(20, 0.01)
        run.close()
        assert run.spent <= 0.08 * run.elapsed + (1.5 + 0.2) * slowed
        seen.append(len(run.censuses(Kind.PHASE_BEGIN, "train")))
    quiet, busy = seen
    assert busy >= 0.8 * quiet


def test_a_census_that_only_waited_holds_nothing_up_for_long():
    run = FakeSession(focused=0.01, slowed=100.0)
    for _ in range(40):
        run.train_pass(20, 0.0001)
    assert run.spent <= 0.08 * run.elapsed + MOST_SLOWED * 1.5 + 100 * 0.2


def set_up(run: FakeSession, seconds: int) -> None:
    """Let the program reach no boundary by itself for so long; time makes one each second."""
    for _ in range(seconds):
        run.clock.sleep(1.0)
        run.session._reach_by_time()


def looks_inside(run: FakeSession) -> int:
    run.steps(400, 0.01)
    run.close()
    return len(run.censuses(Kind.STEP, "train"))


def test_a_long_set_up_takes_no_looks_from_the_training_after_it():
    run, waited = FakeSession(focused=0.08), FakeSession(focused=0.08)
    set_up(run, 8)
    waited.clock.sleep(8.0)
    assert len(run.taker.taken) >= 3
    assert looks_inside(run) >= looks_inside(waited) - 1


def test_one_census_that_takes_in_what_was_imported_forbids_no_later_ones():
    usual, imports = FakeSession(focused=0.02), FakeSession(focused=0.02)
    usual.steps(10, 0.01)
    imports.steps(1, 0.01)
    imports.taker.focused = 0.3
    imports.steps(1, 0.01)
    imports.taker.focused = 0.02
    imports.steps(8, 0.01)
    assert looks_inside(imports) >= looks_inside(usual) - 3


@pytest.mark.parametrize("known", [True, False])
def test_a_heap_too_large_for_any_pause_is_looked_at_at_ever_longer_intervals(known):
    run = FakeSession(focused=2.0, whole=9.0, resumed=None)
    run.train_pass(36_000, 0.1, known=known)
    run.close()
    times = [b.time_s for b in run.censuses(Kind.STEP, "train")]
    assert 4 <= len(times) <= 8
    assert all(later >= 1.9 * earlier for earlier, later in pairwise(times))
    assert run.spent <= 0.02 * run.elapsed


def test_twenty_seconds_of_steps_without_a_loader_get_full_censuses():
    run = FakeSession()
    for _ in range(400):
        run.steps(1, 0.05)
        run.fast.value += 1 << 20
    run.close()
    assert len(run.censuses(Kind.STEP, "train", FULL)) >= 4
    assert len(run.censuses(Kind.STEP, "train")) >= 9


def test_one_long_pass_of_unknown_length_is_measured_early_and_late():
    run = FakeSession()
    run.train_pass(3000, 0.1, known=False)
    batches = [b.batch for b in run.censuses(Kind.STEP, "train")]
    assert batches[:4] == [1, 2, 3, 4]
    assert any(1000 < batch < 2000 for batch in batches)
    assert any(batch > 2500 for batch in batches)


def test_steps_that_take_longer_from_some_point_on_are_looked_at_as_often_in_time():
    run = FakeSession()
    run.steps(200, 0.01)
    run.steps(140, 0.08)
    times = [b.time_s for b in run.censuses(Kind.STEP, "train") if b.step > 200]
    assert len(times) >= 4
    assert max(after / before for before, after in pairwise(times)) < 1.6


def test_evaluation_alone_gets_full_censuses_at_its_ends():
    run = FakeSession()
    for _ in range(40):
        run.validation_pass(20, 0.05)
    assert len(run.censuses(Kind.PHASE_END, "validation", FULL)) >= 3


class TestKinds:
    """One kind of census as soon as there is a seal to go on from."""

    def test_all_are_full_once_the_floor_is_spent(self):
        run = FakeSession()
        while run.elapsed < 600:
            run.train_pass(100, 0.05)
            run.validation_pass(10, 0.05)
        sealed = run.taker.taken.index(Due.WHOLE)
        assert set(run.taker.taken[:sealed]) == {Due.FOCUSED}
        late = run.taker.taken[2 * len(run.taker.taken) // 3 :]
        assert set(late) <= {Due.FULL, Due.CHECK}

    def test_all_are_full_from_the_first_whole_walk_where_those_are_cheap(self):
        run = FakeSession(whole=0.05, resumed=0.01)
        run.session._costs._blocks = lambda: 60_000
        for _ in range(30):
            run.train_pass(20, 0.02)
        sealed = run.taker.taken.index(Due.WHOLE)
        assert sealed < 20
        assert set(run.taker.taken[sealed + 1 :]) <= {Due.FULL, Due.CHECK}

    def test_a_heap_that_is_the_programs_own_is_sealed_early(self):
        run = FakeSession(focused=0.3, whole=0.4, resumed=0.05)
        for _ in range(12):
            run.train_pass(20, 0.02)
        assert run.taker.taken.count(Due.FOCUSED) <= 6
        assert run.taker.taken.count(Due.FULL) > 3

    def test_a_process_that_can_not_seal_is_looked_at_by_the_users_names(self):
        run = FakeSession(whole=2.0, resumed=None)
        while run.elapsed < 1200:
            run.train_pass(100, 0.1)
        assert run.taker.taken.count(Due.WHOLE) == 1
        assert Due.FULL not in run.taker.taken
        assert run.taker.taken[-20:].count(Due.FOCUSED) >= 10
        assert run.spent <= 0.02 * run.elapsed + 2.5

    def test_a_worker_never_walks_the_whole_heap(self):
        run = FakeSession(floor=WORKER_FLOOR)
        run.steps(4000, 0.1)
        run.close()
        assert set(run.taker.taken) == {Due.FOCUSED}


class TestChecks:
    """Now and then what goes on from a seal is held against a whole walk."""

    @staticmethod
    def trained(seconds: float, **options: float) -> FakeSession:
        run = FakeSession(max_pause=1000, **options)
        while run.elapsed < seconds:
            run.train_pass(100, 0.05)
            run.validation_pass(10, 0.05)
            run.fast.value += 2 << 20
        run.close()
        return run

    def test_they_are_rare_and_cheap(self):
        run = self.trained(3600)
        checks = run.taker.taken.count(Due.CHECK)
        assert 1 <= checks <= run.taker.taken.count(Due.FULL) / 50 + 1
        assert checks * 0.4 <= 0.1 * 0.02 * run.elapsed + 0.4

    def test_a_short_run_has_none(self):
        assert Due.CHECK not in self.trained(60).taker.taken

    def test_the_recording_tells_how_far_they_were_apart(self):
        run = self.trained(3600)
        records = [r.census for r in run.writer.of(CensusRecord)]
        drifts = [c.drift_bytes for c in records if c.drift_bytes is not None]
        assert drifts == [run.taker.drift] * run.taker.taken.count(Due.CHECK)


class TestPauses:
    """A census that would hold the program up for too long is left out or looks at less."""

    @staticmethod
    def overhead(run: FakeSession) -> OverheadRecord:
        run.close()
        return run.writer.of(OverheadRecord)[-1]

    def test_the_first_whole_walk_is_exempt(self):
        run = FakeSession(max_pause=100)
        while run.elapsed < 60:
            run.train_pass(100, 0.05)
        assert run.taker.taken.count(Due.WHOLE) == 1
        assert sorted(run.taker.pauses)[-2] <= 0.1

    def test_one_that_is_too_long_looks_at_the_users_names(self):
        run = FakeSession(resumed=0.5, max_pause=100)
        while run.elapsed < 120:
            run.train_pass(100, 0.05)
        assert run.taker.taken.count(Due.FULL) <= 1
        assert run.taker.taken[-1] is Due.FOCUSED
        assert self.overhead(run).made_cheaper_by_pause > 5

    def test_where_that_takes_too_long_as_well_it_is_left_out_and_counted(self):
        run = FakeSession(focused=0.5, whole=2.0, resumed=0.6, max_pause=100)
        while run.elapsed < 300:
            run.train_pass(100, 0.05)
            run.validation_pass(10, 0.05)
        late = [r.time_s for r in run.writer.boundaries if r.index in taken_at(run)]
        assert not [at for at in late if at > 100]
        assert self.overhead(run).left_out_by_pause > 5
        assert run.censuses(Kind.RUN_END, "")

    def test_a_longer_pause_may_be_allowed(self):
        run = FakeSession(focused=0.5, whole=2.0, resumed=0.6, max_pause=1000)
        while run.elapsed < 300:
            run.train_pass(100, 0.05)
        assert run.taker.taken.count(Due.FULL) > 4
        assert self.overhead(run).left_out_by_pause == 0

    def test_a_slow_moment_does_not_end_full_censuses(self):
        run = FakeSession()
        while run.elapsed < 60:
            run.train_pass(100, 0.05)
        run.taker.resumed = 0.15
        while run.taker.pauses[-1] != 0.15:
            run.train_pass(100, 0.05)
        run.taker.resumed = 0.08
        while run.elapsed < 400:
            run.train_pass(100, 0.05)
        assert run.taker.taken[-3:] == [Due.FULL] * 3

    def test_memory_that_runs_out_is_looked_at_whatever_it_takes(self):
        run = FakeSession(focused=0.5, whole=30.0, max_pause=100)
        run.train_pass(100, 0.05)
        before = len(run.taker.taken)
        run.slow.value = 180 << 20
        run.train_pass(3, 0.05)
        run.validation_pass(3, 0.05)
        assert len(run.taker.taken) > before


def taken_at(run: FakeSession) -> set[int]:
    return {record.boundary for record in run.writer.of(CensusRecord)}


class TestLongRuns:
    @pytest.mark.parametrize(("whole", "resumed"), [(0.1, 0.02), (0.5, 0.1), (0.5, None)])
    def test_an_hour_stays_within_the_budget(self, whole, resumed):
        run = FakeSession(whole=whole, resumed=resumed)
        while run.elapsed < 3600:
            run.train_pass(500, 0.05)
            run.validation_pass(50, 0.05)
        assert run.spent <= 0.02 * run.elapsed + 0.5

    def test_censuses_go_on_until_the_end(self):
        run = FakeSession()
        for _ in range(100):
            run.train_pass(100, 0.1)
            run.validation_pass(10, 0.1)
        for kind in (Kind.PHASE_BEGIN, Kind.PHASE_END):
            for phase in ("train", "validation"):
                times = [b.time_s for b in run.censuses(kind, phase)]
                assert len(times) >= 12, (kind, phase)
                assert times[-1] > 0.8 * run.elapsed, (kind, phase)

    def test_a_day_of_training_does_not_record_without_end(self):
        run = FakeSession()
        while run.elapsed < 86_400:
            run.train_pass(200, 1.0)
        assert len(run.taker.taken) < 1500
        assert run.writer.count < 30_000

    def test_tiny_steps_are_thinned(self):
        run = FakeSession()
        run.train_pass(100_000, 0.00005, known=False)
        assert len(run.writer.boundaries) < 2000

    def test_while_nothing_grows_half_of_the_budget_is_enough(self):
        def spent(rise: int) -> float:
            run = FakeSession()
            while run.elapsed < 300:
                run.train_pass(100, 0.05)
                run.validation_pass(10, 0.05)
                run.fast.value += rise
            return run.spent / run.elapsed

        calm, growing = spent(0), spent(2 << 20)
        assert calm <= 0.0115
        assert growing <= 0.021
        assert growing > 1.3 * calm

    def test_a_bigger_budget_measures_more(self):
        def censuses(budget: float) -> int:
            run = FakeSession(budget=budget)
            for _ in range(200):
                run.train_pass(20, 0.05)
            return len(run.taker.taken)

        assert censuses(0.10) > 1.5 * censuses(0.01)


class TestExpensiveCensuses:
    def test_slow_down_and_say_so(self):
        run = FakeSession(focused=2.0, whole=20.0, resumed=4.0, max_pause=60_000)
        for _ in range(60):
            run.train_pass(10, 1.0)
            run.validation_pass(5, 1.0)
        assert run.spent < 0.2 * run.elapsed
        notes = run.writer.of(NoteRecord)
        assert [note.slug for note in notes] == ["census-sparse"]

    def test_are_left_out_while_memory_is_short(self):
        run = FakeSession()
        run.slow.value = 10 << 20
        run.train_pass(10)
        run.train_pass(10)
        assert run.taker.taken == []
        reported = [note.slug for note in run.writer.of(NoteRecord)]
        assert reported == ["census-skipped-memory", "memory-low"]
        assert run.writer.boundaries


def test_marks_of_one_name_have_censuses_and_their_kinds_are_bounded():
    run = FakeSession()
    for number in range(1000):
        run.clock.sleep(0.1)
        run.session.boundary(Kind.MARK, label="same" if number % 2 else f"mark {number}")
    assert len([b for b in run.censuses(Kind.MARK, "") if b.label == "same"]) >= 6
    assert len(run.session._schedule._keys) <= 260


def test_overhead_says_what_was_spent():
    run = FakeSession()
    run.train_pass(50)
    run.close()
    overhead = run.writer.of(OverheadRecord)[-1]
    assert overhead.censuses == len(run.taker.taken)
    assert overhead.recorded_boundaries == len(run.writer.boundaries)
    assert overhead.boundaries == run.writer.boundaries[-1].index + 1
    assert overhead.own_bytes > 0


def test_after_two_minutes_few_answers_of_a_server_feel_a_census(monkeypatch):
    def share(requests: int) -> float:
        run = FakeSession()
        monkeypatch.setattr(type(run.session.events), "served", requests)
        validations = 0.0
        for minute in range(20):
            if minute == 2:
                validations = run.spent
            for _ in range(12):
                run.validation_pass(50, 0.1)
        assert len(run.censuses(Kind.PHASE_END, "validation")) >= 20
        return (run.spent - validations) / (18 * 60)

    assert share(1000) < 0.005 < 0.007 < share(0)


def test_censuses_that_took_in_imports_while_a_program_was_set_up_forbid_no_later_ones():
    usual, imports = FakeSession(focused=0.02), FakeSession(focused=0.02)
    usual.clock.sleep(8.0)
    imports.taker.focused = 0.7
    set_up(imports, 8)
    imports.taker.focused = 0.02
    assert looks_inside(imports) >= looks_inside(usual) - 1


def session_of_passes(requests: int, *, rises: int = 0) -> FakeSession:
    """A minute of passes of a model, a hundred a second, after so many requests; memory without a
    name rises by so many bytes a pass.
    """
    run = FakeSession(max_pause=10_000)
    dispatch, external = run.session.gate.dispatch, run.session.tracker.external
    run.session.events._counts["request"] = requests
    phase = dispatch(external.begin, "inference")
    for _ in range(6000):
        dispatch(external.batch, phase)
        run.fast.value += rises
        run.clock.sleep(0.01)
    run.taken_while_it_served = [*run.taker.taken]
    run.close()
    return run


def test_the_passes_of_a_server_are_measured_as_rarely_as_by_time():
    served, alone = session_of_passes(100), session_of_passes(0)
    assert 30 <= len(served.writer.boundaries) <= 70 < len(alone.writer.boundaries)
    assert 8 <= len(served.writer.of(CensusRecord)) <= 20


@pytest.mark.parametrize(
    ("requests", "rises", "walks"),
    [(100, 0, False), (100, 50_000, True), (0, 0, True)],
    ids=["a server", "a server whose memory rises without a name", "no server"],
)
def test_no_answer_waits_for_a_walk_of_the_whole_heap_unless_it_is_needed(requests, rises, walks):
    run = session_of_passes(requests, rises=rises)
    long = {Due.WHOLE, Due.FULL, Due.CHECK}
    assert bool(long & {*run.taken_while_it_served}) is walks
    assert long & {*run.taker.taken}, "nobody waits at the end"
