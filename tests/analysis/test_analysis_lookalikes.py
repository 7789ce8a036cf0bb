"""What looks like a leak and isn't raises no alarm, and is cleared with its reason."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from synthetic_runs import KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import RootKind
from leakscope.model.report import Report, RunVerdict, Severity


def report_of(program: Program) -> Report:
    return analyse(program.build())


def assert_clean(report: Report) -> None:
    alarms = [c.sentence for c in report.culprits if c.severity is not Severity.NOTE]
    alarms += [f.text for f in report.findings if f.severity is not Severity.NOTE]
    assert alarms == []
    assert report.verdict is RunVerdict.CLEAN, report.headline


def reason_for(report: Report, name: str) -> str:
    return next(c.reason for c in report.cleared if c.name == name)


def bounded(path: str, per_step: float, most: float, **more: object) -> Thing:
    return Thing(
        path, lambda s: min(s.step * per_step, most), "dict", "OrderedDict",
        length=lambda s: min(s.step, most / per_step), **more,
    )  # fmt: skip


def test_a_run_that_only_computes() -> None:
    report = report_of(Program(epochs=8).constant("model", 100 * MIB))
    assert_clean(report)
    assert "8 epochs" in report.headline
    assert reason_for(report, "model").startswith("constant")


def test_a_list_recreated_in_each_epoch_of_more_steps() -> None:
    def size(state: State) -> float | None:
        begins = state.kind is BoundaryKind.PHASE_BEGIN
        is_there = state.phase == "train" and not begins
        return (state.epoch + 1) * state.batch * 40 * KIB if is_there else None

    maps = Thing("maps", size, length=lambda s: (s.epoch + 1) * s.batch)
    assert_clean(report_of(Program(epochs=8).plant(maps)))


def test_a_list_recreated_in_each_longer_epoch_that_the_whole_heap_was_seen_without() -> None:
    def outputs(state: State) -> float:
        begins = state.kind is BoundaryKind.PHASE_BEGIN and state.phase == "train"
        return 0 if begins else 80 * KIB * (state.epoch + 1)

    def library(state: State) -> float:
        return 5 * MIB

    program = Program(epochs=8, full_every=1).plant(
        Thing("main()·outputs", outputs, root=RootKind.LOCAL)
    )
    program.plant(Thing("torch.library·Library._def", library, user=False))
    assert_clean(report_of(program))


def test_the_parts_of_what_is_recreated_each_time_next_to_a_leak_of_their_size() -> None:
    def until_validated(per_epoch: float) -> Size:
        def size(state: State) -> float | None:
            held = state.phase == "train" or state.kind is BoundaryKind.PHASE_BEGIN
            return state.epoch * per_epoch if held else None

        return size

    computed = Thing("computed", until_validated(900 * KIB))
    parts = [
        Thing(f"computed[{n}]", until_validated(300 * KIB), parent="computed") for n in range(3)
    ]
    program = Program(epochs=5, inner=1).leak("batches", 30 * KIB, "validation batch")
    assert [c.name for c in report_of(program.plant(computed, *parts)).culprits] == ["batches"]


@pytest.mark.parametrize("fills_at", [20, 60, 130, 180])
def test_a_cache_that_fills_and_stays(fills_at: int) -> None:
    report = report_of(Program(epochs=8).plant(bounded("cache", 100 * KIB, fills_at * 100 * KIB)))
    assert_clean(report)
    reason = reason_for(report, "cache")
    assert reason.startswith(("bounded", "constant"))


def test_a_cleared_cache_says_how_many_entries_since_when() -> None:
    report = report_of(Program(epochs=8).plant(bounded("cache", 100 * KIB, 100 * 100 * KIB)))
    assert "100 entries since epoch 2" in reason_for(report, "cache") or (
        "100 entries since epoch 3" in reason_for(report, "cache")
    )


def test_a_cache_filling_in_an_endless_loop() -> None:
    program = Program(endless=True, steps=300).plant(bounded("cache", 100 * KIB, 150 * 100 * KIB))
    assert_clean(report_of(program))


def test_a_declared_bound_clears_what_still_fills() -> None:
    thing = Thing(
        "Trainer.recent", lambda s: s.step * 50 * KIB, "deque", "collections.deque",
        length=lambda s: s.step, capacity=5000,
    )  # fmt: skip
    report = report_of(Program(epochs=8).plant(thing))
    assert_clean(report)
    assert "5,000 entries at most" in reason_for(report, "Trainer.recent")


def test_a_declared_bound_beyond_memory_clears_nothing() -> None:
    thing = Thing(
        "replay", lambda s: s.step * 500 * KIB, "deque", "collections.deque",
        length=lambda s: s.step, capacity=1_000_000,
    )  # fmt: skip
    assert (
        report_of(Program(epochs=8, limit=16 * 1024 * MIB).plant(thing)).verdict is RunVerdict.LEAK
    )


def test_a_declared_bound_clears_what_may_or_may_not_grow() -> None:
    """Looked at early and at the end, a deque that filled on the way has no trend by itself."""

    def kept(state: State) -> int:
        return min(state.step, 600)

    thing = Thing(
        "Trainer.replay", lambda s: kept(s) * 40 * KIB, "deque", "collections.deque",
        length=kept, capacity=600,
    )  # fmt: skip
    run = Program(endless=True, steps=700).plant(thing).build()
    recorded = run.main.measurements
    for place, m in enumerate(recorded):
        if 60 < m.boundary.step < 690:
            recorded[place] = replace(m, census=None)
    report = analyse(run)
    assert [d.rule for d in report.decisions if d.subject == "Trainer.replay"] == [
        "growth",
        "declares_a_bound",
    ]
    assert_clean(report)


def test_a_variable_of_varying_size_is_not_open_where_memory_gained_nothing() -> None:
    """Of documents that are read one after the other the last one looked at was the largest."""
    sizes = [1, 3, 2, 1, 4, 2, 1, 3, 1, 5, 2, 6, 1, 4, 3, 6, 2, 5, 7, 6]

    def body(state: State) -> float:
        return sizes[min(state.step // 15, 19)] * 500 * KIB

    program = Program(endless=True, steps=300).plant(Thing("main()·content", body, "dict", "dict"))
    run = program.build()
    for m in run.main.measurements:
        m.gauges[gauge.RSS] = 500 * MIB
        m.gauges[gauge.MALLOC_IN_USE] = 300 * MIB
    report = analyse(run)
    assert "inconclusive: scattered" in [
        d.outcome for d in report.decisions if d.subject == "main.content"
    ]
    assert_clean(report)


def test_a_full_deque() -> None:
    thing = Thing(
        "Trainer.recent", lambda s: min(s.step, 30) * 500 * KIB, "deque", "collections.deque",
        length=lambda s: min(s.step, 30), capacity=30,
    )  # fmt: skip
    report = report_of(Program(epochs=8).plant(thing))
    assert_clean(report)
    assert reason_for(report, "Trainer.recent").startswith("bounded: 30 entries")


def test_optimizer_state_appears_at_the_first_step() -> None:
    state = Thing("main()·optimizer.state", lambda s: 200 * MIB if s.step else 0, "dict", "dict")
    assert_clean(report_of(Program(epochs=8).plant(state)))
    assert_clean(report_of(Program(epochs=4).plant(state)))
    assert_clean(report_of(Program(endless=True, steps=100).plant(state)))


def test_a_batch_that_is_big_but_constant() -> None:
    batch = Thing(
        "train()·batch", lambda s: 300 * MIB if s.inner and s.phase == "train" else None, "tuple",
        "tuple", root=RootKind.LOCAL, role="batch",
    )  # fmt: skip
    assert_clean(report_of(Program(epochs=6).plant(batch)))


def test_batches_of_varying_size() -> None:
    chance = random.Random(3)
    sizes = [chance.uniform(50, 300) * MIB for _ in range(1000)]
    batch = Thing(
        "train()·batch", lambda s: sizes[s.step] if s.inner else None, "tuple", "tuple",
        root=RootKind.LOCAL,
    )  # fmt: skip
    assert_clean(report_of(Program(epochs=6).plant(batch)))
    assert_clean(report_of(Program(endless=True, steps=300, validate_every=40).plant(batch)))


def test_small_lists_gathered_and_dropped_in_each_validation_are_a_note() -> None:
    report = report_of(Program(epochs=6).local("validate()·preds", 300 * KIB))
    assert_clean(report)
    assert [c.severity for c in report.culprits] == [Severity.NOTE]
    assert report.culprits[0].growth == "within"


def test_large_lists_next_to_a_larger_validation_are_a_note() -> None:
    program = Program(epochs=6).local("validate()·preds", 3 * MIB)
    program.swell(lambda s: 200 * MIB if s.phase == "validation" and s.inner else 0)
    assert_clean(report_of(program))


def test_lists_kept_until_the_next_validation_are_no_leak() -> None:
    kept = Thing(
        "Trainer.outputs",
        lambda s: 100 * KIB * (s.batch if s.phase == "validation" else (s.validations > 0) * 10),
    )
    assert_clean(report_of(Program(epochs=8).plant(kept)))


@pytest.mark.parametrize("per", ["step", "epoch"])
def test_a_history_of_floats_is_at_most_a_note(per: str) -> None:
    for epochs in (8, 40):
        assert_clean(report_of(Program(epochs=epochs).leak("history", 40, per)))


def test_sawtooth_garbage() -> None:
    program = Program(epochs=10)
    program.garbage = lambda s: (s.occurrence % 4) * 8 * MIB
    program.swell(lambda s: (s.occurrence % 4) * 8 * MIB)
    assert_clean(report_of(program))


def test_slow_warm_up_of_resident_memory() -> None:
    program = Program(epochs=10, rss_noise=MIB)
    program.swell(lambda s: 300 * MIB * (1 - 0.98**s.step))
    assert_clean(report_of(program))


def test_arenas_that_keep_freed_memory() -> None:
    def held(state: State) -> float:
        return min(state.step, 100) * 2 * MIB

    program = Program(epochs=10).swell(held).gauge(gauge.MALLOC_FREE, held)
    report = report_of(program)
    assert_clean(report)


@pytest.mark.parametrize("seed", range(6))
def test_noise_of_resident_memory(seed: int) -> None:
    assert_clean(
        report_of(Program(epochs=10, rss_noise=20 * MIB, seed=seed).constant("m", 9 * MIB))
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_of_resident_memory(seed: int) -> None:
    chance = random.Random(seed)
    level = [0.0]
    for _ in range(2000):
        level.append(level[-1] + chance.gauss(0, 0.3 * MIB))
    program = Program(epochs=10).swell(lambda s: level[s.step])
    assert not [c for c in report_of(program).culprits if c.severity is not Severity.NOTE]


@pytest.mark.parametrize("at", [60, 120, 200, 300])
def test_one_step_up(at: int) -> None:
    thing = Thing("main()·teacher", lambda s: 80 * MIB if s.step >= at else 0, "module", "Net")
    assert_clean(report_of(Program(epochs=10).plant(thing)))


def test_growth_that_ends_in_the_middle_of_the_run() -> None:
    thing = Thing("Trainer.best", lambda s: min(s.epochs_done, 5) * 20 * MIB)
    assert_clean(report_of(Program(epochs=12).plant(thing)))


def test_an_object_that_moves_from_name_to_name() -> None:
    def here(state: State) -> float:
        return 20 * MIB * max(10 - state.epochs_done, 0)

    def there(state: State) -> float:
        return 20 * MIB * min(state.epochs_done, 10)

    assert_clean(report_of(Program(epochs=9).plant(Thing("todo", here), Thing("done", there))))


def test_a_name_that_comes_and_goes_with_a_function() -> None:
    def alias(state: State) -> float | None:
        return 50 * MIB if state.phase == "validation" else None

    def attribute(state: State) -> float | None:
        return None if state.phase == "validation" else 50 * MIB

    program = Program(epochs=8).plant(
        Thing("validate()·cache", alias, root=RootKind.LOCAL), Thing("Trainer.cache", attribute)
    )
    assert_clean(report_of(program))


def test_library_caches_that_fill_during_warm_up() -> None:
    cache = Thing(
        "torch._dynamo.cache", lambda s: min(s.step, 90) * 200 * KIB, "dict", "dict",
        root=RootKind.LIBRARY, user=False,
    )  # fmt: skip
    assert_clean(report_of(Program(epochs=12, full_every=1).plant(cache)))


def test_two_epochs_of_equal_steps_are_evidence() -> None:
    report = report_of(Program(epochs=2).constant("model", 100 * MIB))
    assert report.verdict is RunVerdict.CLEAN


def test_growth_without_a_name_that_goes_on_is_a_leak() -> None:
    report = report_of(Program(epochs=6).swell(lambda s: s.step * 2 * MIB))
    assert report.verdict is RunVerdict.LEAK
    assert [f.kind for f in report.findings if f.severity is not Severity.NOTE] == ["unexplained"]


def test_a_staircase_without_a_name_is_a_leak_and_a_warm_up_is_none() -> None:
    rising = Program(epochs=6).swell(lambda s: s.epochs_done * 10 * MIB)
    assert report_of(rising).verdict is RunVerdict.LEAK
    warming = Program(epochs=6).swell(lambda s: min(s.epochs_done, 3) * 20 * MIB)
    assert report_of(warming).verdict is RunVerdict.CLEAN


def test_what_a_library_gathers_in_each_validation_is_no_news_while_it_is_little() -> None:
    program = Program(epochs=6).local(
        "trainers.Trainer.evaluate()·predictions", 500 * KIB,
        root=RootKind.LIBRARY, user=False, of_a_call=True,
    )  # fmt: skip
    report = report_of(program)
    assert_clean(report)
    assert report.culprits == []


@pytest.mark.parametrize(
    "size",
    [lambda s: min(s.step, 60) * 200 * KIB, lambda s: (s.step % 40) * 300 * KIB],
    ids=["fills", "is emptied every epoch"],
)
def test_what_a_running_function_of_a_library_has_in_bounds(size: Size) -> None:
    window = Thing(
        "trainers.Trainer.train()·self.window", size,
        root=RootKind.LIBRARY, user=False, of_a_call=True,
    )  # fmt: skip
    kept = Thing("trainers.Trainer.train()·self", lambda _: 40 * MIB, user=False, of_a_call=True)
    assert_clean(report_of(Program(epochs=8, full_every=5).plant(kept).plant(window)))


def test_locals_alive_at_the_end_of_validation_are_not_kept_by_it() -> None:
    def preds(state: State) -> float | None:
        alive = state.phase == "validation" and state.kind is not BoundaryKind.PHASE_BEGIN
        return state.batch * 100 * KIB if alive else None

    report = report_of(Program(epochs=8).plant(Thing("validate()·p", preds, root=RootKind.LOCAL)))
    assert_clean(report)
    assert all(c.growth == "within" for c in report.culprits)


@pytest.mark.parametrize(
    ("feeding", "noted"), [("trainer.fit(model)", []), ("trainer.log.append(row)", ["note"])]
)
def test_little_is_noted_only_where_the_user_feeds_it(feeding: str, noted: list[str]) -> None:
    log = Thing("__main__·trainer.log", lambda s: 20 * KIB + 2 * KIB * s.epochs_done)
    run = Program(epochs=12).plant(log).build()
    source = f"trainer = Trainer(loader)\nfor row in rows:\n    {feeding}\n"
    run.main.sources["/project/train.py"] = source
    assert [c.severity.value for c in analyse(run).culprits] == noted


@pytest.mark.parametrize(
    ("source", "of", "noted"),
    [
        ("trainer = Trainer()\ntrainer.train()\n", "trainers.Trainer", []),
        ("trainer = Trainer()\nuse(trainer.loaders)\n", "trainers.Trainer", ["note"]),
        ("class Trainer: ...\ntrainer = Trainer()\n", "train.Trainer", ["note"]),
        ("trainer = Trainer()\ntrainer.train()\n", "__main__.Trainer", ["note"]),
    ],
)
def test_little_that_a_librarys_object_gathers_in_itself_is_not_noted(
    source: str, of: str, noted: list[str]
) -> None:
    trainer = Thing("__main__·trainer", lambda s: 60 * KIB + 2 * KIB * s.epochs_done, "object", of)
    loaders = Thing(
        "__main__·trainer.loaders", lambda s: 20 * KIB + 2 * KIB * s.epochs_done,
        parent=trainer.path,
    )  # fmt: skip
    run = Program(epochs=12).plant(trainer, loaders).build()
    run.main.sources["/project/train.py"] = source
    assert [c.severity.value for c in analyse(run).culprits] == noted


def touched(in_use_rate: float, payload: float) -> Report:
    """Resident memory rises steadily; so does the C heap, and what arrays hold is given."""
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 900 * MIB + s.step * in_use_rate)
    run = program.build()
    for measurement in run.recordings[0].measurements:
        if measurement.census is not None:
            measurement.census.payload_bytes["host"] = int(payload)
    return analyse(run)


def test_pages_of_an_array_that_are_written_for_the_first_time_are_no_growth() -> None:
    assert_clean(touched(in_use_rate=0.0, payload=800 * MIB))


@pytest.mark.parametrize(("in_use_rate", "payload"), [(MIB, 800 * MIB), (0.0, 100 * MIB)])
def test_memory_that_no_array_had_room_for_still_grows_without_a_name(
    in_use_rate: float, payload: float
) -> None:
    report = touched(in_use_rate, payload)
    assert [f.kind for f in report.findings if f.severity is not Severity.NOTE] == ["unexplained"]


def test_an_end_and_the_beginning_that_follows_at_once_are_one_look() -> None:
    """Three looks at growth are thin evidence, however many boundaries lie at those moments."""

    def size(state: State) -> float:
        return 20 * KIB + (state.step - 200) * 130 if state.step >= 200 else 0

    thing = Thing("main()·trainer", size, "object", "Trainer")
    report = report_of(Program(epochs=7, validation=0).plant(thing))
    assert_clean(report)
    assert report.culprits == []
    report = report_of(Program(epochs=8, validation=0).plant(thing))
    assert [culprit.name for culprit in report.culprits] == ["main.trainer"]


@pytest.mark.parametrize(
    ("begins", "verdict"), [(0.85, RunVerdict.INCONCLUSIVE), (1.0, RunVerdict.CLEAN)]
)
def test_what_begins_to_grow_just_before_the_end_is_not_called_clean(begins, verdict) -> None:
    """The few looks that are left can't tell it from what fills once, nor acquit it."""
    thing = Thing(
        "outbox.unsent", lambda s: max(s.step - 1000 * begins, 0) * 64 * KIB, "list", "list",
        length=lambda s: max(int(s.step - 1000 * begins), 0),
    )  # fmt: skip
    run = Program(endless=True, steps=1000).plant(thing).build()
    recorded = run.main.measurements
    looked = [place for place, m in enumerate(recorded) if m.census is not None]
    kept = {
        min(looked, key=lambda place: abs(recorded[place].boundary.step - step))
        for step in (100, 300, 500, 700, 800, 960, 1000)
    }
    for place in {*looked} - kept:
        recorded[place] = replace(recorded[place], census=None)
    report = analyse(run)
    assert report.verdict is verdict
    assert ("outbox.unsent grew by" in report.headline) == (begins < 1)


@pytest.mark.parametrize(
    ("items", "gained", "is_full"),
    [
        (lambda s: 150, 0.07, True),
        (lambda s: 150, 0.6, False),  # its items gain far more than by chance
        (lambda s: 150 + s.step, 0.07, False),
    ],
)
def test_a_full_container_whose_latest_items_are_larger(items, gained, is_full) -> None:
    thing = Thing(
        "sessions", lambda s: 100 * MIB * (1 + gained * s.step / 100), "dict", "dict",
        length=items,
    )  # fmt: skip
    run = Program(endless=True, steps=100).plant(thing).build()
    recorded = run.main.measurements
    looked = [place for place, m in enumerate(recorded) if m.census is not None]
    for place in {*looked} - {*looked[:: len(looked) // 6]}:
        recorded[place] = replace(recorded[place], census=None)
    report = analyse(run)
    assert ("as_many_items" in {d.rule for d in report.decisions}) == is_full
    if is_full:
        assert_clean(report)
