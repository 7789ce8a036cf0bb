"""Planted leaks are found, once, in their own unit and at their true rate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_runs import KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import RootKind
from leakscope.model.report import Culprit, Report, RunVerdict, Severity


def report_of(program: Program) -> Report:
    return analyse(program.build())


def only(report: Report) -> Culprit:
    serious = [c for c in report.culprits if c.severity is not Severity.NOTE]
    assert [c.name for c in serious] == [serious[0].name] if serious else False, report.headline
    return serious[0]


@pytest.mark.parametrize(
    ("per", "size", "unit", "rate"),
    [
        ("step", 40 * KIB, "step", 40 * KIB),
        ("validation batch", 200 * KIB, "validation", 2000 * KIB),
        ("epoch", 3 * MIB, "epoch", 3 * MIB),
    ],
)
@pytest.mark.parametrize("epochs", [5, 8, 20])
def test_a_leak_is_reported_once_in_its_own_unit(
    per: str, size: float, unit: str, rate: float, epochs: int
) -> None:
    report = report_of(Program(epochs=epochs).leak("Trainer.history", size, per))
    culprit = only(report)
    assert report.verdict is RunVerdict.LEAK
    assert (culprit.name, culprit.growth, culprit.unit) == ("Trainer.history", "across", unit)
    assert culprit.bytes_per_unit == pytest.approx(rate, rel=0.02)
    assert culprit.interval[0] <= culprit.bytes_per_unit <= culprit.interval[1]
    assert culprit.kind == "list"
    assert culprit.path == "Trainer.history"
    assert 0.7 <= culprit.share <= 1.0


@pytest.mark.parametrize("seed", range(5))
def test_rates_stay_true_under_noise(seed: int) -> None:
    import random

    chance = random.Random(seed)
    jitter = {i: chance.uniform(0.9, 1.1) for i in range(1000)}

    def size(state: State) -> float:
        return sum(40 * KIB * jitter[i] for i in range(state.step))

    thing = Thing("Trainer.losses", size, length=lambda s: s.step)
    culprit = only(report_of(Program(epochs=8, seed=seed).plant(thing)))
    assert culprit.unit == "step"
    assert culprit.bytes_per_unit == pytest.approx(40 * KIB, rel=0.05)
    assert culprit.items_per_unit == pytest.approx(1, rel=0.02)


def test_what_two_phases_claim_belongs_to_the_one_whose_work_it_follows() -> None:
    def size(state: State) -> float:
        borrowed = state.phase == "train" and state.occurrence == 3 and state.batch > 8
        return state.validation_batches * 200 * KIB + (9 * MIB if borrowed else 0)

    predictions = Thing("Trainer.predictions", size, length=lambda s: s.validation_batches)
    culprit = only(report_of(Program(epochs=8).plant(predictions)))
    assert (culprit.unit, culprit.phase) == ("validation", "validation")
    assert culprit.bytes_per_unit == pytest.approx(2000 * KIB, rel=0.05)


def test_a_list_that_came_in_sight_late_is_named_and_not_its_owner() -> None:
    def owner(state: State) -> float:
        return 40 * KIB + max(state.step - 180, 0) * 100 * KIB

    path = "main()·fitter"
    program = Program(epochs=7, validation=0, inner=1).plant(Thing(path, owner, "object", "Fitter"))
    program.leak(f"{path}.incidents", 100 * KIB, start=180, parent=path)
    assert only(report_of(program)).name == "main.fitter.incidents"


@pytest.mark.parametrize("per_epoch", [3.6, 4.0, 4.4, 4.8])
def test_culprits_are_ranked_by_the_growth_that_they_explain(per_epoch: float) -> None:
    program = Program(epochs=6).leak("batches", 100 * KIB).leak("rounds", per_epoch * MIB, "epoch")
    report = report_of(program.leak("outputs", 410 * KIB, "validation batch")).culprits
    assert len(report) == 3
    assert [c.share for c in report] == sorted((c.share for c in report), reverse=True)


def test_what_an_object_recreates_of_what_it_keeps_and_drops_is_not_reported_next_to_it() -> None:
    def of_training(size: float) -> Size:
        return lambda state: size * state.epoch if state.phase == "train" else None

    metric = Thing(
        "main()·metric",
        lambda s: s.validations * 300 * KIB + (of_training(600 * KIB)(s) or 0.0),
        "object",
        "Precision",
    )
    computed = Thing(
        f"{metric.path}._computed", of_training(600 * KIB), "tuple", parent=metric.path
    )
    parts = [
        Thing(f"{computed.path}[{n}]", of_training(300 * KIB), parent=computed.path)
        for n in range(2)
    ]
    batches = Thing(
        f"{metric.path}.batches", lambda s: s.validations * 300 * KIB, parent=metric.path
    )
    report = report_of(Program(epochs=8).plant(metric, computed, *parts, batches)).culprits
    assert {c.name for c in report} == {"main.metric.batches"}


def test_an_endless_loop_counts_in_steps() -> None:
    report = report_of(Program(endless=True, steps=300).leak("main()·losses", 40 * KIB))
    culprit = only(report)
    assert culprit.unit == "step"
    assert culprit.bytes_per_unit == pytest.approx(40 * KIB, rel=0.02)


def test_validation_nested_in_an_endless_loop_keeps_the_units_apart() -> None:
    program = (
        Program(endless=True, steps=300, validate_every=50)
        .leak("main()·losses", 40 * KIB)
        .leak("Trainer.preds", 200 * KIB, "validation batch")
        .local("validate()·outs", 5 * MIB)
    )
    found = {c.name: c for c in report_of(program).culprits}
    assert found["main.losses"].unit == "step"
    assert found["main.losses"].bytes_per_unit == pytest.approx(40 * KIB, rel=0.02)
    assert found["Trainer.preds"].unit == "validation"
    assert found["Trainer.preds"].bytes_per_unit == pytest.approx(2000 * KIB, rel=0.05)
    assert (found["validate.outs"].growth, found["validate.outs"].unit) == ("within", "batch")


def test_leaks_of_different_size_under_one_owner_are_all_found() -> None:
    def owner(state: State) -> float:
        return 600 * KIB * state.epochs_done + state.step * (40 * KIB) + state.step * 4 * KIB

    program = Program(epochs=8).plant(Thing("main()·trainer", owner, "object", "Trainer"))
    for path, size, per in (
        ("main()·trainer.losses", 40 * KIB, "step"),
        ("main()·trainer.logs", 4 * KIB, "step"),
        ("main()·trainer.images", 600 * KIB, "epoch"),
    ):
        program.leak(path, size, per, parent="main()·trainer")
    report = report_of(program)
    found = {c.name: c for c in report.culprits if c.severity is not Severity.NOTE}
    assert set(found) == {"main.trainer.losses", "main.trainer.logs", "main.trainer.images"}
    assert found["main.trainer.images"].unit == "epoch"
    assert found["main.trainer.logs"].unit == "step"
    assert report.culprits[0].name == "main.trainer.losses"
    assert sum(c.share for c in report.culprits) <= 1.0 + 1e-9


def test_a_leak_that_starts_late_is_priced_from_its_start() -> None:
    report = report_of(Program(epochs=14).leak("Trainer.history", 3 * MIB, "epoch", start=6))
    assert only(report).bytes_per_unit == pytest.approx(3 * MIB, rel=0.05)


def test_the_outer_dict_of_lists_per_epoch_is_the_culprit() -> None:
    def whole(state: State) -> float:
        return state.epochs_done * 2 * MIB

    program = Program(epochs=8).plant(
        Thing("main()·trainer", whole, "object", "Trainer"),
        Thing("main()·trainer.history", whole, "dict", "dict", "main()·trainer",
              length=lambda s: s.epochs_done),
        Thing("main()·trainer.history[*]", whole, "list", "list", "main()·trainer.history",
              count=lambda s: s.epochs_done),
    )  # fmt: skip
    assert only(report_of(program)).path == "main()·trainer.history"


def test_lists_under_fixed_keys_are_culprits_each() -> None:
    program = Program(epochs=8).plant(
        Thing("history", lambda s: s.step * 100 * KIB, "dict", "dict", length=lambda s: 2)
    )
    program.leak("history['loss']", 60 * KIB, parent="history")
    program.leak("history['acc']", 40 * KIB, parent="history")
    names = [c.name for c in report_of(program).culprits]
    assert names == ["history['loss']", "history['acc']"]


def test_many_similar_lists_in_one_dict_are_one_culprit() -> None:
    keys = ["boxes", "scores", "labels", "masks", "ids", "areas"]
    program = Program(epochs=8).plant(
        Thing("results", lambda s: s.step * 60 * KIB, "dict", "dict", length=lambda s: 6)
    )
    for key in keys:
        program.leak(f"results['{key}']", 10 * KIB, parent="results")
    culprit = only(report_of(program))
    assert culprit.name == "results"
    assert culprit.bytes_per_unit == pytest.approx(60 * KIB, rel=0.02)


def test_attributes_of_an_object_stay_apart() -> None:
    names = ["boxes", "scores", "labels", "masks", "ids", "areas"]
    program = Program(epochs=8).plant(
        Thing("trainer", lambda s: s.step * 60 * KIB, "object", "Trainer")
    )
    for name in names:
        program.leak(f"trainer.{name}", 10 * KIB, parent="trainer")
    assert {c.name for c in report_of(program).culprits} == {f"trainer.{n}" for n in names}


def test_a_graph_is_blamed_on_the_variable_that_holds_it() -> None:
    total = Thing(
        "train()·total_loss", lambda s: s.step * 80 * KIB, "graph", "torch.Tensor",
        root=RootKind.LOCAL, graph_nodes=500,
    )  # fmt: skip
    saved = Thing(
        "train()·total_loss.grad_fn", lambda s: s.step * 79 * KIB, "tensor", "torch.Tensor",
        "train()·total_loss",
    )  # fmt: skip
    culprit = only(report_of(Program(endless=True, steps=200).plant(total, saved)))
    assert (culprit.name, culprit.kind, culprit.unit) == ("train.total_loss", "graph", "step")


def test_containers_that_share_their_contents_are_named_by_length() -> None:
    program = Program(epochs=8).plant(
        Thing("trainer", lambda s: s.step * 50 * KIB, "object", "Trainer"),
        Thing("trainer.seen", lambda s: 17 * KIB + s.step * 8, "list", "list", "trainer",
              length=lambda s: s.step),
        Thing("trainer.by_name", lambda s: 17 * KIB + s.step * 8, "dict", "dict", "trainer",
              length=lambda s: s.step),
    )  # fmt: skip
    culprit = only(report_of(program))
    assert culprit.name in {"trainer.seen", "trainer.by_name"}
    assert culprit.bytes_per_unit == pytest.approx(50 * KIB, rel=0.02)


def test_a_leak_on_a_device_is_measured_there() -> None:
    program = Program(epochs=8).leak("Trainer.feats", 500 * KIB, device="cuda:0")
    program.gauge("cuda:0.allocated", lambda s: 200 * MIB + s.step * 500 * KIB)
    program.gauge("cuda:0.reserved", lambda s: 220 * MIB + s.step * 500 * KIB)
    report = report_of(program)
    culprit = only(report)
    assert (culprit.device, culprit.unit) == ("cuda:0", "step")
    assert culprit.bytes_per_unit == pytest.approx(500 * KIB, rel=0.02)
    assert culprit.share == pytest.approx(1.0, abs=0.05)
    ledger = next(x for x in report.ledgers if x.metric == "cuda:0.reserved")
    assert sum(e.bytes for e in ledger.entries) == ledger.total_bytes


def test_lists_local_to_validation_climb_within_it() -> None:
    report = report_of(Program(epochs=5).local("validate()·preds", 10 * MIB))
    culprit = only(report)
    assert (culprit.growth, culprit.unit, culprit.phase) == ("within", "batch", "validation")
    assert culprit.bytes_per_unit == pytest.approx(10 * MIB, rel=0.02)
    assert culprit.total_bytes == pytest.approx(100 * MIB, rel=0.02)
    assert culprit.falsifier is not None
    assert str(culprit.falsifier.result).startswith("It climbed in 5 passages and fell back. ")
    assert report.verdict is RunVerdict.LEAK


def test_three_censuses_inside_show_a_climb_where_that_at_the_begin_shows_its_base() -> None:
    run = Program(epochs=5).local("validate()·preds", 10 * MIB).build()
    (recording,) = run.recordings
    inside = (2, 6)
    kept = [
        measurement
        if measurement.boundary.phase != "validation"
        or measurement.boundary.kind is not BoundaryKind.BATCH
        or (measurement.boundary.occurrence == 0 and measurement.boundary.batch in inside)
        else replace(measurement, census=None)
        for measurement in recording.measurements
    ]
    report = analyse(replace(run, recordings=[replace(recording, measurements=kept)]))
    culprit = only(report)
    assert (culprit.growth, culprit.unit) == ("within", "batch")
    assert culprit.bytes_per_unit == pytest.approx(10 * MIB, rel=0.02)


@pytest.mark.parametrize(
    ("phase", "severity"), [("validation", Severity.CRITICAL), ("train", Severity.WARNING)]
)
def test_a_climb_is_critical_where_its_phase_comes_near_the_limit_between_boundaries(
    phase: str, severity: Severity
) -> None:
    program = Program(epochs=5, limit=600 * MIB).local("validate()·preds", 8 * MIB)
    ends = (phase, BoundaryKind.PHASE_END)
    reached = {False: 400 * MIB, True: 590 * MIB}
    program.gauge(gauge.RSS_PEAK, lambda s: reached[s.epoch > 0 or (s.phase, s.kind) == ends])
    assert only(report_of(program)).severity is severity


@pytest.mark.parametrize(
    ("kept", "copied", "epoch", "limit", "severity"),
    [
        (3 * MIB, 0, 1, None, Severity.WARNING),
        (3 * MIB, 40 * MIB, 1, None, Severity.NOTE),
        (3 * MIB, 40 * MIB, 0, None, Severity.WARNING),
        (3 * MIB, 40 * MIB, 1, 480 * MIB, Severity.CRITICAL),
        (6 * MIB, 90 * MIB, 1, None, Severity.WARNING),
    ],
    ids=["most of it", "less than a copy", "warm-up once", "near the limit", "much"],
)
def test_what_is_little_and_released_is_held_against_what_stands_between_boundaries(
    kept: int, copied: int, epoch: int, limit: int | None, severity: Severity
) -> None:
    program = Program(epochs=5, limit=limit).local("validate()·preds", kept)
    ends, at_height = ("validation", BoundaryKind.PHASE_END), 10 * kept + copied

    def highest(state: State) -> int:
        at_the_end = state.epoch == epoch and (state.phase, state.kind) == ends
        reached = state.epoch > epoch or at_the_end
        return 400 * MIB + at_height * reached

    program.gauge(gauge.RSS_PEAK, highest)
    report = report_of(program)
    assert [c.severity for c in report.culprits] == [severity]
    alarmed = severity is not Severity.NOTE
    assert report.verdict is (RunVerdict.LEAK if alarmed else RunVerdict.CLEAN)


def test_what_a_validation_gathers_and_gives_back_is_a_note_only_where_it_is_more_than_little() -> (
    None
):
    little, more = (
        report_of(Program(epochs=8).local("__main__·model.outputs", kept * KIB))
        for kept in (150, 300)
    )
    assert not little.culprits
    assert little.verdict is RunVerdict.CLEAN
    assert [(c.name, c.severity) for c in more.culprits] == [
        ("__main__.model.outputs", Severity.NOTE)
    ]


@pytest.mark.parametrize("gains", [2 * KIB, 20 * MIB])
def test_a_climb_is_reported_though_its_owner_gains_something_else_across_epochs(
    gains: float,
) -> None:
    def held(state: State) -> float:
        climbed = 10 * MIB * state.batch if state.phase == "validation" else 0
        return climbed + 100 * KIB + gains * state.epochs_done

    owner = Thing("__main__·trainer", held, "object", "lightning.Trainer")
    records = Thing(
        "__main__·trainer.history", lambda s: 40 * KIB + gains * s.epochs_done, parent=owner.path
    )
    outputs = Program(epochs=8).local("__main__·trainer.outputs", 10 * MIB, parent=owner.path)
    found = {c.name: c for c in report_of(outputs.plant(owner, records)).culprits}
    climbing, kept = found["__main__.trainer.outputs"], found["__main__.trainer.history"]
    assert (climbing.growth, climbing.severity) == ("within", Severity.WARNING)
    assert kept.growth == "across"
    assert (kept.severity is Severity.WARNING) == (gains > MIB)


def test_a_climb_is_not_reported_next_to_what_it_is_a_part_of() -> None:
    program = Program(epochs=8).leak("Trainer.history", 200 * KIB, "validation batch")
    assert [c.name for c in report_of(program).culprits] == ["Trainer.history"]


def test_what_a_running_function_of_a_library_gathers_climbs_within_it() -> None:
    program = Program(epochs=5).local(
        "trainers.Trainer.evaluate()·predictions", 10 * MIB,
        root=RootKind.LIBRARY, user=False, of_a_call=True,
    )  # fmt: skip
    culprit = only(report_of(program))
    assert culprit.name == "trainers.Trainer.evaluate.predictions"
    assert (culprit.growth, culprit.unit, culprit.phase) == ("within", "batch", "validation")


def test_what_a_running_function_of_a_library_keeps_is_reported_by_censuses_of_names() -> None:
    history = Thing(
        "trainers.Trainer.train()·self.history", lambda s: 50 * KIB + s.step * 100 * KIB,
        root=RootKind.LIBRARY, user=False, of_a_call=True, length=lambda s: s.step,
    )  # fmt: skip
    report = report_of(Program(epochs=6, full_every=5).plant(history))
    culprit = only(report)
    assert culprit.name == "trainers.Trainer.train.self.history"
    assert (culprit.growth, culprit.unit) == ("across", "step")
    assert culprit.bytes_per_unit == pytest.approx(100 * KIB, rel=0.02)
    host = next(x for x in report.ledgers if x.metric == "rss")
    others = [e.bytes for e in host.entries if e.label == "all other named objects"]
    assert all(abs(nbytes) < MIB for nbytes in others)


def test_modules_that_are_added_under_names_of_their_own_are_growth_of_what_has_them() -> None:
    adapters = Thing(
        "main()·model.layer.adapters", lambda s: 50 * KIB + s.epochs_done * 2 * MIB,
        "module", "torch.nn.modules.container.ModuleDict",
    )  # fmt: skip
    program = Program(epochs=9).plant(adapters)
    for task in range(9):
        added = Thing(
            f"{adapters.path}.task{task}", lambda s, n=task: 2 * MIB if s.epochs_done > n else None,
            "module", "torch.nn.modules.linear.Linear", adapters.path,
        )  # fmt: skip
        program.plant(added)
    culprit = only(report_of(program))
    assert culprit.name == "main.model.layer.adapters"
    assert culprit.bytes_per_unit == pytest.approx(2 * MIB, rel=0.05)


def test_six_lists_of_one_validation_are_judged_together() -> None:
    program = Program(epochs=5)
    for i in range(6):
        program.local(f"validate()·preds_{i}", 2 * MIB)
    report = report_of(program)
    assert len(report.culprits) == 6
    assert {c.severity for c in report.culprits} == {Severity.WARNING}


def test_a_sum_that_is_reset_each_epoch_grows_within_training_by_steps() -> None:
    total = Thing(
        "train_epoch()·total", lambda s: s.batch * MIB if s.phase == "train" else None, "graph",
        "torch.Tensor", root=RootKind.LOCAL, graph_nodes=99,
    )  # fmt: skip
    culprit = only(report_of(Program(epochs=5).plant(total)))
    assert (culprit.growth, culprit.unit) == ("within", "step")
    assert culprit.bytes_per_unit == pytest.approx(MIB, rel=0.02)


def test_one_long_evaluation_is_evidence_of_fewer_readings() -> None:
    once = only(report_of(Program(epochs=1).local("validate()·preds", 10 * MIB)))
    often = only(report_of(Program(epochs=6).local("validate()·preds", 10 * MIB)))
    assert once.growth == "within"
    assert once.readings <= often.readings


def test_a_near_limit_makes_a_leak_critical_and_says_when() -> None:
    program = Program(epochs=8, limit=600 * MIB).leak("Trainer.history", 3 * MIB, "epoch")
    report = report_of(program)
    culprit = only(report)
    assert culprit.severity is Severity.CRITICAL
    assert culprit.forecast is not None
    used = 400 + 8 * 3
    assert culprit.forecast.units_left == pytest.approx((600 - used) / 3, rel=0.1)
    assert "reaches 600 MiB in epoch" in report.headline


def test_three_validations_suffice_when_every_batch_adds() -> None:
    culprit = only(
        report_of(Program(epochs=3).leak("Trainer.preds", 400 * KIB, "validation batch"))
    )
    assert culprit.unit == "validation"
    assert culprit.bytes_per_unit == pytest.approx(4000 * KIB, rel=0.05)


def test_censuses_scattered_over_many_validations_still_show_the_climb() -> None:
    """A slow machine gets only some batches of each validation: they make one line together."""
    run = Program(epochs=6, validation=80, inner=80).local("validate()·preds", MIB).build()
    shown = {(0, 1), (0, 2), (1, 56), (1, 72), (2, 72), (3, 8), (3, 40)}
    for i, m in enumerate(run.main.measurements):
        b = m.boundary
        inner = b.phase == "validation" and b.kind.value == "batch"
        if inner and (b.occurrence, b.batch) not in shown:
            run.main.measurements[i] = type(m)(b, m.gauges, None)
    culprit = only(analyse(run))
    assert culprit.growth == "within"
    assert culprit.bytes_per_unit == pytest.approx(MIB, rel=0.05)
    assert culprit.total_bytes == pytest.approx(80 * MIB, rel=0.02)


def test_graphs_too_large_to_be_counted_grow_on() -> None:
    def counted(state: State) -> float:
        return 56 + 40 * KIB * min(state.step, 120)

    losses = Thing("Trainer.losses", counted, length=lambda s: s.step, graph_nodes=1000)
    program = Program(epochs=8).plant(losses)
    program.truncated_from = 121
    culprit = only(report_of(program))
    assert (culprit.name, culprit.unit) == ("Trainer.losses", "step")
    assert culprit.bytes_per_unit == pytest.approx(40 * KIB, rel=0.02)


def test_the_parts_of_a_tuple_that_is_recreated_are_one_culprit() -> None:
    def part(state: State) -> float:
        return MIB * (1 + state.validations)

    whole = Thing("curve._computed", lambda s: 3 * part(s), "tuple", "tuple", "curve")
    parts = [
        Thing(f"curve._computed[{i}]", part, "tensor", "torch.Tensor", whole.path) for i in range(3)
    ]
    culprit = only(report_of(Program().plant(whole, *parts)))
    assert culprit.name == "curve._computed"


def test_lists_in_a_tuple_are_culprits_of_their_own() -> None:
    def size(state: State) -> float:
        return 40 * KIB * state.step

    whole = Thing("gathered", lambda s: 2 * size(s), "tuple", "tuple")
    lists = [
        Thing(f"gathered[{i}]", size, parent="gathered", length=lambda s: s.step) for i in range(2)
    ]
    report = report_of(Program().plant(whole, *lists))
    assert [c.name for c in report.culprits] == ["gathered[0]", "gathered[1]"]


def test_what_is_recreated_from_a_list_next_to_it_comes_after_the_list() -> None:
    holder = Thing("curve", lambda s: 64 * KIB + 5 * MIB * s.validations, "object", "Curve")
    preds = Thing(
        "curve.preds", lambda s: 2 * MIB * s.validations, parent="curve",
        length=lambda s: 10 * s.validations,
    )  # fmt: skip
    computed = Thing(
        "curve._computed", lambda s: 3 * MIB * s.validations, "tensor", "torch.Tensor", "curve"
    )
    report = report_of(Program().plant(holder, preds, computed))
    assert [c.name for c in report.culprits] == ["curve.preds", "curve._computed"]


def test_a_list_that_a_trainer_empties_before_the_phase_ends_sets_the_peak() -> None:
    def size(state: State) -> float | None:
        return 56 + 20 * MIB * state.batch if state.phase == "validation" and state.inner else 56

    outputs = Thing("LitModel.validation_outputs", size, length=lambda s: s.batch)
    culprit = only(report_of(Program(validation=12).plant(outputs)))
    assert (culprit.name, culprit.growth) == ("LitModel.validation_outputs", "within")
    assert culprit.bytes_per_unit == pytest.approx(20 * MIB, rel=0.02)


def test_a_table_that_grows_is_named_itself_not_its_blocks() -> None:
    def values(state: State) -> float:
        return MIB + 600 * KIB * state.validations

    program = Program(epochs=8).plant(
        Thing(
            "Run.rows", lambda s: values(s) + 20 * KIB * s.validations, "object", "pandas.DataFrame"
        ),
        Thing("Run.rows._mgr[0]", values, "array", "numpy.ndarray", parent="Run.rows"),
    )
    culprit = only(report_of(program))
    assert culprit.name == "Run.rows"
    assert culprit.bytes_per_unit == pytest.approx(620 * KIB, rel=0.02)


class SeldomInTraining(Program):
    """A busy machine: validations are looked at, the steps between them once in a while."""

    def _is_due(self, state: State) -> bool:
        if state.phase == "train":
            return state.kind is BoundaryKind.STEP and state.step in (28, 50, 92)
        return state.kind in (BoundaryKind.PHASE_BEGIN, BoundaryKind.PHASE_END)


def test_the_unit_of_a_leak_is_found_where_no_two_steps_were_looked_at_in_a_row() -> None:
    program = SeldomInTraining(endless=True, steps=120, validate_every=20)
    report = analyse(program.leak("main()·losses", 170 * KIB).build())
    assert [(c.name, c.unit) for c in report.culprits] == [("main.losses", "step")]


def test_what_another_containers_contents_lose_their_names_to_is_no_move() -> None:
    size, steps = 100 * KIB, 40
    program = Program(epochs=8, steps=steps).leak("history", 20 * KIB)
    cache = Thing("cache", lambda s: s.step * size, "lru_cache", "functools._lru_cache_wrapper")
    named = Thing(
        "cache[*]", lambda s: 30 * MIB - s.step * 30 * KIB, "tensor", "torch.Tensor",
        parent="cache", count=lambda s: s.step,
    )  # fmt: skip
    report = analyse(program.plant(cache, named).build())
    assert [culprit.path for culprit in report.culprits] == ["cache", "history"]


@pytest.mark.parametrize("looks", [(40, 60, 80, 560), (40, 60, 560)])
def test_a_part_seen_at_the_first_looks_alone_is_not_reported_next_to_its_owner(
    looks: tuple[int, ...],
) -> None:
    registry = Thing(
        "weakref·finalize._registry", lambda s: 64 * KIB * s.step, "dict", "dict",
        root=RootKind.LIBRARY, user=False, length=lambda s: s.step,
    )  # fmt: skip
    layer = Thing(
        "weakref·finalize._registry[*].func.model[2]",
        lambda s: 40 * KIB * s.step if s.step < 100 else None, "module", "torch.nn.Linear",
        "weakref·finalize._registry", RootKind.LIBRARY, user=False, count=lambda s: s.step,
    )  # fmt: skip
    program = Program(endless=True, steps=600, full_at=looks).plant(registry, layer)
    assert [c.name for c in report_of(program).culprits] == ["weakref.finalize._registry"]
