"""Which boundaries a program's events make: every kind of training loop, event by event."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count

import pytest

from leakscope.capture.iterations import PLAIN_STEPS, Call
from leakscope.capture.phases import STALE_AFTER_STEPS, PhaseTracker
from leakscope.model.boundary import BoundaryKind

SHORT = {
    BoundaryKind.PHASE_BEGIN: "begin",
    BoundaryKind.PHASE_END: "end",
    BoundaryKind.STEP: "step",
    BoundaryKind.BATCH: "batch",
}


class Loader:
    """A loader of some batches; each of them has an identity as a DataLoader object has."""

    numbers = count(1)

    def __init__(self, batches: int, site: str = "train.py", line: int = 1) -> None:
        self.batches = batches
        self.site = (site, line)
        self.number = next(self.numbers)


class Program:
    """Plays a training program to a tracker and notes the boundaries that come of it."""

    tokens = count(1)

    def __init__(self, optimizers: bool = True) -> None:
        self.tracker = PhaseTracker(self._note)
        self.tracker.surroundings = lambda: (self.grad, self.optimizers)
        self.grad = True
        self.optimizers = optimizers
        self.evaluating: set[int] = set()
        self.seen: list[str] = []
        self.batches_at_end: list[int] = []

    def _note(self, kind, phase, label):
        if kind is BoundaryKind.PHASE_END:
            self.batches_at_end.append(phase.batch)
        if kind in (BoundaryKind.PHASE_BEGIN, BoundaryKind.PHASE_END):
            self.seen.append(f"{SHORT[kind]} {phase.name}#{phase.occurrence}")
        else:
            self.seen.append(f"{SHORT[kind]} {phase.name} {phase.batch}")

    def iter(self, loader: Loader) -> int:
        token = next(self.tokens)
        self.tracker.loader_begin(
            token, site=loader.site, loader=loader.number, expected=loader.batches
        )
        return token

    def next(self, token: int) -> None:
        self.tracker.loader_next(token)

    def over(self, loader: Loader):
        """Iterate over a loader as ``for batch in loader`` does, ``break`` included."""
        token = self.iter(loader)
        exhausted = False
        try:
            for batch in range(loader.batches):
                self.next(token)
                yield batch
            self.next(token)
            exhausted = True
        finally:
            if exhausted:
                self.tracker.loader_end(token)
            else:
                self.tracker.loader_dropped(token)

    def step(self, optimizer: int = 100) -> None:
        self.tracker.optimizer_step(optimizer)

    def eval(self, module: int = 500, line: int = 40) -> None:
        self.evaluating.add(module)
        self.tracker.evaluate(module, ("train.py", line))

    def train(self, *modules: int) -> None:
        self.evaluating -= set(modules or (500,))
        self.tracker.train(set(modules or (500,)))

    def forward(self, module: int = 500, *, large: bool = True) -> None:
        mode = module in self.evaluating
        evaluating = mode or not self.grad
        self.tracker.forward(Call(module, evaluating=evaluating, mode=mode, large=large))

    @contextmanager
    def no_grad(self):
        before, self.grad = self.grad, False
        try:
            yield
        finally:
            self.grad = before

    def take(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def program() -> Program:
    return Program()


def train_epoch(program: Program, loader: Loader) -> None:
    program.train()
    for _ in program.over(loader):
        program.step()


def validate(program: Program, loader: Loader) -> None:
    program.eval()
    with program.no_grad():
        for _ in program.over(loader):
            pass


TRAIN = Loader(2)
VAL = Loader(2, "train.py", 20)


class TestPlainLoops:
    def test_epochs_of_training_and_validation(self, program):
        for _ in range(2):
            train_epoch(program, TRAIN)
            validate(program, VAL)

        first = ["step train 1", "step train 2"]
        other = ["batch validation 1", "batch validation 2"]
        assert program.take() == [
            *("begin train#0", *first, "end train#0"),
            *("begin validation#0", *other, "end validation#0"),
            *("begin train#1", *first, "end train#1"),
            *("begin validation#1", *other, "end validation#1"),
        ]
        assert program.tracker.epoch == 1
        assert program.tracker.step == 4

    def test_a_step_has_ended_only_when_the_next_batch_is_fetched(self, program):
        token = program.iter(TRAIN)
        program.next(token)
        program.step()
        assert program.take() == ["begin train#0"]
        program.next(token)
        assert program.take() == ["step train 1"]

    def test_phase_tells_how_many_batches_to_expect(self, program):
        program.next(program.iter(Loader(7)))
        assert program.tracker.phase.expected == 7

    def test_several_optimizers_in_an_iteration_make_one_step(self, program):
        for _ in program.over(Loader(2)):
            program.step(100)
            program.step(101)
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_gradient_accumulation_makes_batches_between_steps(self, program):
        for batch in program.over(Loader(6)):
            if batch % 3 == 2:
                program.step()
        assert program.take() == [
            "begin train#0",
            *("batch train 1", "batch train 2", "step train 3"),
            *("batch train 4", "batch train 5", "step train 6"),
            "end train#0",
        ]
        assert program.tracker.step == 2

    def test_break_ends_step_and_phase(self, program):
        for batch in program.over(Loader(9)):
            program.step()
            if batch == 1:
                break
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_break_in_validation_ends_batch_and_phase(self, program):
        program.eval()
        with program.no_grad():
            for batch in program.over(Loader(9)):
                if batch == 1:
                    break
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0")
        ]

    def test_one_optimizer_step_after_the_pass_is_no_phase_of_its_own(self, program):
        for _ in range(2):
            for _ in program.over(TRAIN):
                pass
            program.step()
        assert program.take() == [
            *("begin train#0", "batch train 1", "batch train 2", "end train#0"),
            *("begin train#1", "batch train 1", "batch train 2", "end train#1"),
        ]
        assert program.tracker.step == 2

    def test_rebuilt_loaders_are_the_same_by_their_place(self, program):
        for _ in range(2):
            train_epoch(program, Loader(1))
            validate(program, Loader(1, "train.py", 20))
        phases = [line for line in program.take() if line.startswith("begin")]
        assert phases == [
            *("begin train#0", "begin validation#0", "begin train#1", "begin validation#1")
        ]

    def test_a_run_that_ends_inside_a_phase_closes_it(self, program):
        program.next(program.iter(TRAIN))
        program.step()
        program.tracker.finish()
        assert program.take() == ["begin train#0", "step train 1", "end train#0"]


class TestValidation:
    def test_nested_in_an_epoch(self, program):
        program.train()
        for _ in program.over(TRAIN):
            program.step()
            validate(program, VAL)
            program.train()
        assert program.take() == [
            *("begin train#0", "step train 1"),
            *("begin validation#0", "batch validation 1", "batch validation 2"),
            *("end validation#0", "step train 2"),
            *("begin validation#1", "batch validation 1", "batch validation 2"),
            *("end validation#1", "end train#0"),
        ]
        assert program.tracker.epoch == 0

    def test_validation_by_forward_passes_follows_the_step_before_it(self, program):
        for _ in program.over(TRAIN):
            program.step()
            program.eval()
            program.forward()
            program.train()
        steps = [line for line in program.take() if not line.startswith("batch")]
        assert steps == [
            *("begin train#0", "step train 1", "begin validation#0", "end validation#0"),
            *("step train 2", "begin validation#1", "end validation#1", "end train#0"),
        ]

    def test_a_loop_that_never_asks_past_its_last_batch_has_used_it(self, program):
        training = program.iter(Loader(10))
        for _ in range(2):
            program.next(training)
            program.step()
            validation = program.iter(Loader(3, line=20))
            with program.no_grad():
                for _ in range(3):
                    program.next(validation)
        program.next(training)
        assert program.batches_at_end == [3, 3]

    def test_a_loader_is_known_again_when_its_loop_never_read_past_the_last_batch(self, program):
        training = Loader(2)
        for epoch in range(2):
            token = next(program.tokens)
            program.tracker.loader_begin(
                token, site=training.site, route=epoch, loader=training.number
            )
            for _ in range(2):
                program.next(token)
            program.step()
        program.tracker.finish()
        epoch = ["batch train 1", "step train 2"]
        assert program.take() == [
            *("begin train#0", *epoch, "end train#0"),
            *("begin train#1", *epoch, "end train#1"),
        ]

    def test_a_mode_that_was_set_unheard_is_no_evaluation(self, program):
        program.eval()
        with program.no_grad():
            for _ in program.over(VAL):
                pass
        program.take()
        program.tracker.evaluated.still = lambda keys: set()
        for _ in program.over(Loader(4)):
            program.step()
        assert program.take()[0] == "begin train#0"

    def test_a_trainer_that_evaluates_and_trains_at_one_line_is_reported_by_the_way(self, program):
        through_training, through_evaluation = 1, 2

        def epoch(route: int, loader: Loader) -> None:
            token = next(program.tokens)
            program.tracker.loader_begin(
                token, site=("train.py", 1), route=route, loader=loader.number
            )
            for _ in range(2):
                program.next(token)
                if route == through_training:
                    program.train()
                    program.step()
            program.next(token)
            program.tracker.loader_end(token)
            program.eval()

        training = Loader(2)
        program.eval()
        for _ in range(3):
            epoch(through_training, training)
            epoch(through_evaluation, Loader(2))
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == [
            *("begin train#0", "begin validation#0", "begin train#1", "begin validation#1"),
            *("begin train#2", "begin validation#2"),
        ]

    def test_a_cross_validation_that_leaves_each_model_in_evaluation_mode(self, program):
        for fold in range(3):
            program.train(100 + fold)
            for _ in program.over(Loader(2)):
                program.step(optimizer=fold)
            program.eval(100 + fold)
            with program.no_grad():
                for _ in program.over(Loader(2, line=20)):
                    pass
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == [f"begin {name}#{i}" for i in range(3) for name in ("train", "validation")]

    def test_a_part_that_trains_next_to_an_evaluated_model_is_no_training(self, program):
        train_epoch(program, TRAIN)
        validate(program, VAL)
        program.eval()
        program.train(501)  # dropout that is to stay at work
        for _ in program.over(Loader(2, line=30)):
            pass
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == ["begin train#0", "begin validation#0", "begin validation:2#0"]

    def test_a_trainer_that_asks_ahead_before_it_leaves_evaluation_mode(self, program):
        program.eval()
        token = next(program.tokens)
        program.tracker.loader_begin(token, site=("train.py", 1), route=1, loader=1)
        for _ in range(3):
            program.next(token)
        program.train()
        program.step()
        program.next(token)
        program.tracker.finish()
        assert program.take() == ["begin train#0", "step train 3", "end train#0"]

    def test_two_loaders_that_come_to_one_line_again_and_again(self, program):
        train_epoch(program, TRAIN)
        program.take()
        validation, test = Loader(2, line=20), Loader(1, line=20)
        program.tracker.sites.is_alive = {validation.number, test.number}.__contains__
        for _ in range(3):
            validate(program, validation)
            validate(program, test)
            train_epoch(program, TRAIN)
        begins = [line for line in program.take() if line.startswith("begin v")]
        assert begins == [
            *("begin validation#0", "begin validation:2#0"),
            *("begin validation#1", "begin validation:2#1"),
            *("begin validation#2", "begin validation:2#2"),
        ]

    def test_two_loaders_of_one_line_take_turns_without_any_training(self, program):
        first, other = Loader(2, line=20), Loader(1, line=20)
        program.tracker.sites.is_alive = {first.number, other.number}.__contains__
        for _ in range(2):
            validate(program, first)
            validate(program, other)
        begins = [line for line in program.take() if line.startswith("begin v")]
        assert begins == [
            *("begin validation#0", "begin validation:2#0"),
            *("begin validation#1", "begin validation:2#1"),
        ]

    def test_loaders_of_folds_are_one_validation(self, program):
        folds = [Loader(1, line=20) for _ in range(3)]
        program.tracker.sites.is_alive = {fold.number for fold in folds}.__contains__
        for fold in folds:
            for _ in range(2):
                train_epoch(program, TRAIN)
                validate(program, fold)
        begins = [line for line in program.take() if line.startswith("begin v")]
        assert begins == [f"begin validation#{number}" for number in range(6)]

    def test_loaders_recreated_for_each_evaluation_are_one_validation(self, program):
        for _ in range(3):
            validate(program, Loader(1, line=20))
        begins = [line for line in program.take() if line.startswith("begin v")]
        assert begins == [f"begin validation#{number}" for number in range(3)]

    def test_loaders_that_come_to_a_line_once_are_one_validation(self, program):
        for _ in range(3):
            train_epoch(program, TRAIN)
            validate(program, Loader(2, line=20))
        begins = [line for line in program.take() if line.startswith("begin v")]
        assert begins == ["begin validation#0", "begin validation#1", "begin validation#2"]

    def test_without_eval_mode_by_no_grad(self, program):
        train_epoch(program, TRAIN)
        program.take()
        with program.no_grad():
            for _ in program.over(VAL):
                pass
        assert program.take()[0] == "begin validation#0"

    def test_without_no_grad_by_eval_mode(self, program):
        train_epoch(program, TRAIN)
        program.take()
        program.eval()
        for _ in program.over(VAL):
            pass
        assert program.take()[0] == "begin validation#0"

    def test_without_any_sign_is_known_by_its_batches_without_a_step(self, program):
        train_epoch(program, TRAIN)
        program.take()
        for _ in range(2):
            for _ in program.over(VAL):
                pass
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0"),
            *("begin validation#1", "batch validation 1", "batch validation 2", "end validation#1"),
        ]

    def test_a_second_place_has_a_name_of_its_own(self, program):
        train_epoch(program, TRAIN)
        validate(program, VAL)
        validate(program, Loader(1, "train.py", 30))
        validate(program, VAL)
        names = [line for line in program.take() if line.startswith("begin v")]
        assert names == ["begin validation#0", "begin validation:2#0", "begin validation#1"]

    def test_after_a_forgotten_return_to_train_mode(self, program):
        for _ in range(2):
            for _ in program.over(TRAIN):
                program.step()
            validate(program, VAL)
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == [
            *("begin train#0", "begin validation#0", "begin train#1", "begin validation#1")
        ]

    def test_a_forgotten_return_to_train_mode_with_rebuilt_loaders(self, program):
        for _ in range(3):
            for _ in program.over(Loader(3)):
                program.step()
            validate(program, Loader(2, "train.py", 20))
        steps = [line for line in program.take() if line.startswith("step")]
        assert len(steps) == 9

    def test_one_line_that_trains_and_validates(self, program):
        def run_epoch(loader: Loader, training: bool) -> None:
            if training:
                program.train()
            else:
                program.eval()
            for _ in program.over(loader):
                if training:
                    program.step()

        training, validation = Loader(2, line=7), Loader(2, line=7)
        for _ in range(2):
            run_epoch(training, True)
            run_epoch(validation, False)
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == [
            *("begin train#0", "begin validation#0", "begin train#1", "begin validation#1")
        ]

    def test_one_line_that_validates_without_a_change_of_mode(self, program):
        def run_epoch(loader: Loader, training: bool) -> None:
            for _ in program.over(loader):
                if training:
                    program.step()

        training, validation = Loader(2, line=7), Loader(2, line=7)
        program.tracker.sites.is_alive = {training.number, validation.number}.__contains__
        for _ in range(2):
            run_epoch(training, True)
            run_epoch(validation, False)
        single = ["batch validation 1", "batch validation 2"]
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2", "end train#0"),
            *("begin validation#0", *single, "end validation#0"),
            *("begin train#1", "step train 1", "step train 2", "end train#1"),
            *("begin validation#1", *single, "end validation#1"),
        ]

    def test_one_line_that_validates_without_a_change_of_mode_with_rebuilt_loaders(self, program):
        for epoch in range(3):
            for _ in program.over(Loader(2, line=7)):
                program.step()
            for _ in program.over(Loader(2, line=7)):
                pass
            if epoch == 1:
                program.take()  # only now is it known that the line serves both
        begins = [line for line in program.take() if line.startswith("begin")]
        assert [begin.partition("#")[0] for begin in begins] == ["begin train", "begin validation"]

    def test_optimizing_the_input_at_test_time_stays_validation(self, program):
        train_epoch(program, TRAIN)
        program.take()
        program.eval()
        for _ in program.over(VAL):
            program.step(optimizer=999)
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0")
        ]

    def test_a_trial_trains_where_another_that_failed_left_its_model_in_evaluation_mode(
        self, program
    ):
        program.tracker.tuning.tunes = lambda keys: False  # each trial has a model of its own
        kept = set()
        program.tracker.sites.is_alive = kept.__contains__
        for trial in range(4):
            loader = Loader(4, line=7)
            for _ in range(2):
                program.train(500 + trial)
                for _ in program.over(loader):
                    program.step(optimizer=100 + trial)
                program.eval(500 + trial)
                with program.no_grad():
                    program.forward(500 + trial)
            kept.add(loader.number)  # by the traceback of what ended the trial
        begins = [line.partition("#")[0] for line in program.take() if line.startswith("begin")]
        assert begins == ["begin train", "begin validation"] * 8

    def test_a_trial_trains_where_another_failed_within_its_validation(self, program):
        program.tracker.tuning.tunes = lambda keys: False
        kept = set()
        program.tracker.sites.is_alive = kept.__contains__
        for trial in range(3):
            loader = Loader(20, line=7)
            program.train(500 + trial)
            for _ in program.over(loader):
                program.step(optimizer=100 + trial)
            program.eval(500 + trial)
            program.next(program.iter(Loader(4, line=20)))
            kept.add(loader.number)
        steps = [line for line in program.take() if line.startswith("step")]
        assert len(steps) >= 20 + 2 * 17
        assert program.tracker.step >= 20 + 2 * 17

    def test_inner_loops_of_a_validation_on_the_line_that_trains_are_no_training(self, program):
        program.tracker.tuning.tunes = lambda keys: False  # a copy adapts to each task

        def run_epoch(loader: Loader) -> None:
            for _ in program.over(loader):
                program.tracker.forget({300})  # of the task before, whose number comes again
                program.step(optimizer=300)
                if not program.tracker.evaluated:
                    program.step()

        program.train()
        run_epoch(Loader(8, line=7))
        program.take()
        program.eval()
        run_epoch(Loader(8, line=7))
        single = [f"batch validation {number}" for number in range(1, 9)]
        assert program.take() == ["begin validation#0", *single, "end validation#0"]

    def test_a_kept_validation_iterator_is_left_when_training_goes_on(self, program):
        training = program.iter(Loader(10))
        validation = program.iter(Loader(10, "train.py", 20))
        for _ in range(2):
            program.next(training)
            program.step()
            program.eval()
            with program.no_grad():
                program.next(validation)
            program.train()
        program.next(training)
        assert program.take() == [
            *("begin train#0", "step train 1", "begin validation#0", "end validation#0"),
            *("step train 2", "begin validation#1", "end validation#1"),
        ]

    def test_a_kept_validation_iterator_needs_no_forward_passes(self, program):
        training, validation = program.iter(Loader(10)), program.iter(Loader(10, line=20))
        for _ in range(2):
            program.next(training)
            program.step()
            program.eval()
            program.next(validation)
            program.forward()
            program.train()
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == ["begin train#0", "begin validation#0", "begin validation#1"]

    def test_a_trainer_that_switches_the_mode_with_a_batch_in_hand_validates_once(self, program):
        training = program.iter(Loader(4))
        loader = Loader(3, line=20)
        for _ in range(2):
            for _ in range(2):
                program.next(training)
                program.train()
                program.step()
            validation = program.iter(loader)
            for _ in range(3):
                program.next(validation)
                program.eval()
                with program.no_grad():
                    program.forward()
        program.next(training)
        batches = [f"batch validation {number}" for number in (1, 2)]
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2"),
            *("begin validation#0", *batches, "end validation#0"),
            *("step train 3", "step train 4"),
            *("begin validation#1", *batches, "end validation#1"),
        ]
        assert program.batches_at_end == [3, 3]

    def test_forward_passes_between_two_batches_of_the_training_are_no_validation_of_its_loader(
        self, program
    ):
        for _ in program.over(TRAIN):
            program.eval()
            program.forward()
            program.forward()
        for _ in program.over(TRAIN):
            program.step()
        assert [line for line in program.take() if "train" in line and "#" in line] == [
            *("begin train#0", "end train#0", "begin train#1", "end train#1"),
        ]

    def test_loops_inside_a_validation_are_phases_of_their_own(self, program):
        with program.no_grad():
            for _ in program.over(Loader(2, "val.py", 1)):
                for _ in program.over(Loader(1, "val.py", 2)):
                    pass
        assert program.take() == [
            "begin validation#0",
            *("begin validation:2#0", "batch validation:2 1", "end validation:2#0"),
            "batch validation 1",
            *("begin validation:2#1", "batch validation:2 1", "end validation:2#1"),
            "batch validation 2",
            "end validation#0",
        ]

    def test_zipped_validation_loaders_are_one_phase(self, program):
        with program.no_grad():
            first, other = program.iter(VAL), program.iter(Loader(2, "train.py", 20))
            for _ in range(2):
                program.next(first)
                program.next(other)
            program.next(first)
            program.tracker.loader_end(first)
            program.tracker.loader_dropped(other)
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0")
        ]


class TestEvaluationOnly:
    def test_in_eval_mode(self):
        program = Program(optimizers=False)
        program.eval()
        for _ in program.over(VAL):
            pass
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0")
        ]

    def test_with_nothing_but_a_loader(self):
        program = Program(optimizers=False)
        for _ in program.over(VAL):
            pass
        assert program.take()[0] == "begin validation#0"

    def test_without_a_loader_the_forward_passes_are_the_batches(self):
        program = Program(optimizers=False)
        program.eval()
        for _ in range(3):
            program.forward()
        program.tracker.finish()
        assert program.take() == [
            *("begin inference#0", "batch inference 1", "batch inference 2", "end inference#0")
        ]
        assert program.batches_at_end == [3]

    def test_before_training_in_eval_mode_begins_with_its_first_batch(self, program):
        program.eval()
        for _ in program.over(Loader(3, "train.py", 20)):
            pass
        assert program.take() == [
            *("begin validation#0", "batch validation 1", "batch validation 2"),
            *("batch validation 3", "end validation#0"),
        ]


class TestSeveralLoaders:
    def test_zip_of_training_loaders_is_one_phase(self, program):
        first, other = program.iter(Loader(2)), program.iter(Loader(2))
        for _ in range(2):
            program.next(first)
            program.next(other)
            program.step()
        program.next(first)
        program.tracker.loader_end(first)
        program.tracker.loader_dropped(other)
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_a_shorter_second_loader_restarted_is_no_phase(self, program):
        short = Loader(1)
        token = program.iter(short)
        for _ in program.over(Loader(3)):
            program.next(token)
            program.tracker.loader_end(token)
            token = program.iter(short)
            program.next(token)
            program.step()
        assert [line for line in program.take() if "begin" in line] == ["begin train#0"]

    def test_an_inner_training_loop_drives_the_steps(self, program):
        for _ in program.over(Loader(2, line=1)):
            for _ in program.over(Loader(2, line=2)):
                program.step()
        assert [line for line in program.take() if "train" in line] == [
            "begin train#0",
            *("step train 1", "step train 2", "step train 3", "step train 4"),
            "end train#0",
        ]

    def test_a_cycle_over_one_loader_makes_a_phase_of_each_pass(self, program):
        loader = Loader(2)
        for _ in range(2):
            for _ in program.over(loader):
                program.step()
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2", "end train#0"),
            *("begin train#1", "step train 1", "step train 2", "end train#1"),
        ]

    def test_a_batch_looked_at_before_training_is_no_phase_of_its_own(self, program):
        loader = Loader(2)
        program.next(program.iter(loader))
        for _ in program.over(loader):
            program.step()
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_an_iterator_recreated_each_epoch_before_the_old_one_is_dropped(self, program):
        loader = Loader(5)
        token = 0
        for _ in range(2):
            fresh = program.iter(loader)
            for _ in range(2):
                program.next(fresh)
                program.step()
            if token:
                program.tracker.loader_dropped(token)
            token = fresh
        program.tracker.finish()
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2", "end train#0"),
            *("begin train#1", "step train 1", "step train 2", "end train#1"),
        ]

    def test_persistent_workers_reuse_their_iterator(self, program):
        loader = Loader(1)
        for _ in range(2):
            program.tracker.loader_begin(7, site=loader.site, loader=loader.number, expected=1)
            program.next(7)
            program.step()
            program.next(7)
            program.tracker.loader_end(7)
        assert program.take() == [
            *("begin train#0", "step train 1", "end train#0"),
            *("begin train#1", "step train 1", "end train#1"),
        ]

    def test_an_iterator_that_is_never_advanced_is_nothing(self, program):
        token = program.iter(TRAIN)
        program.tracker.loader_dropped(token)
        assert program.take() == []

    def test_an_iterator_kept_and_forgotten_does_not_swallow_the_steps(self, program):
        program.next(program.iter(TRAIN))
        for _ in range(STALE_AFTER_STEPS + 5):
            program.step()
        assert len([line for line in program.take() if line.startswith("step")]) == 5


class TestWithoutLoader:
    def test_each_step_of_the_first_optimizer_ends_a_step(self, program):
        for _ in range(2):
            program.step(100)
            program.step(101)
        program.tracker.finish()
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_another_optimizer_becomes_the_leading_one_when_the_first_is_gone(self, program):
        program.step(100)
        program.take()
        for _ in range(100):
            program.step(101)
        assert len(program.take()) > 60

    def test_the_optimizer_of_a_next_training_becomes_the_leading_one_soon(self, program):
        for optimizer in (100, 101, 102):
            for _ in range(100):
                program.step(optimizer)
        assert len([line for line in program.take() if line.startswith("step")]) == 292

    def test_of_short_trainings_one_after_the_other_each_step_counts(self, program):
        for client in range(100, 110):
            for _ in range(28):
                program.step(client)
            program.tracker.iterations.forget({client})
        assert len([line for line in program.take() if line.startswith("step")]) == 280

    def test_the_outer_optimizer_leads_once_an_inner_one_is_gone(self, program):
        for inner in range(200, 300):
            for _ in range(5):
                program.step(inner)
            program.step(100)
            program.tracker.iterations.forget({inner})
        assert len([line for line in program.take() if line.startswith("step")]) == 5 + 99

    def test_a_critic_that_steps_more_often_never_becomes_the_leading_one(self, program):
        for _ in range(200):
            program.step(100)
            for _ in range(5):
                program.step(101)
        assert len([line for line in program.take() if line.startswith("step")]) == 200

    def test_nor_does_one_that_comes_late_and_steps_as_often(self, program):
        for iteration in range(200):
            program.step(100)
            if iteration >= 100:
                program.step(101)
        assert len([line for line in program.take() if line.startswith("step")]) == 200

    def test_validation_by_mode_lies_inside_the_training(self, program):
        for _ in range(2):
            program.train()
            program.step()
            program.eval()
            program.forward()
            program.forward()
        program.train()
        program.tracker.finish()
        assert program.take() == [
            *("begin train#0", "step train 1"),
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0"),
            "step train 2",
            *("begin validation#1", "batch validation 1", "batch validation 2", "end validation#1"),
            "end train#0",
        ]

    def test_validation_by_loader_lies_inside_the_training(self, program):
        program.step()
        validate(program, VAL)
        program.train()
        program.step()
        assert program.take() == [
            *("begin train#0", "step train 1"),
            *("begin validation#0", "batch validation 1", "batch validation 2", "end validation#0"),
            "step train 2",
        ]

    def test_calls_of_other_modules_are_no_batches(self, program):
        program.step()
        program.take()
        program.eval(500)
        program.forward(501)
        assert program.take() == []

    def test_an_eval_call_alone_is_no_phase(self, program):
        program.step()
        program.take()
        program.eval()
        program.train()
        assert program.take() == []

    def test_a_frozen_teacher_is_no_validation(self, program):
        program.eval(700)
        for _ in range(3):
            program.forward(700)
            program.step()
        program.tracker.finish()
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2", "step train 3", "end train#0")
        ]

    def test_a_forgotten_return_to_train_mode_ends_with_the_next_step(self, program):
        program.step()
        program.eval()
        program.forward()
        program.step()
        assert program.take() == [
            *("begin train#0", "step train 1", "begin validation#0", "end validation#0"),
            "step train 2",
        ]

    def test_training_with_a_loader_ends_the_one_without(self, program):
        program.step()
        for _ in program.over(Loader(1)):
            program.step()
        assert program.take() == [
            *("begin train#0", "step train 1", "end train#0"),
            *("begin train#1", "step train 1", "end train#1"),
        ]


class TestForwardPasses:
    def test_each_call_of_eval_after_several_passes_begins_a_validation(self, program):
        program.step()
        program.take()
        for batches in (3, 2):
            program.eval()
            for _ in range(batches):
                program.forward()
        program.train()
        assert [line for line in program.take() if "#" in line] == [
            *("begin validation#0", "end validation#0", "begin validation#1", "end validation#1")
        ]
        assert program.batches_at_end == [3, 2]

    def test_eval_before_each_pass_is_one_validation(self, program):
        program.step()
        for _ in range(3):
            program.eval()
            program.forward()
        program.step()
        assert program.batches_at_end == [3]

    def test_another_model_tested_last_is_a_validation_of_its_own(self, program):
        program.step()
        for module in (500, 501):
            program.eval(module)
            for _ in range(3):
                program.forward(module)
        program.tracker.finish()
        assert program.batches_at_end[:2] == [3, 3]

    def test_before_the_first_step_it_is_reported_once_the_mode_is_put_back(self, program):
        program.eval()
        for _ in range(2):
            program.forward()
        program.train()
        program.step()
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == ["begin validation#0", "begin train#0"]
        assert program.batches_at_end == [2]

    def test_passes_without_gradients_are_a_validation_after_plain_steps(self, program):
        for _ in range(3):
            for _ in range(PLAIN_STEPS):
                program.step()
            with program.no_grad():
                for _ in range(4):
                    program.forward()
        program.step()
        assert program.batches_at_end == [4, 4, 4]

    def test_passes_without_gradients_in_each_step_are_parts_of_steps(self, program):
        for _ in range(3 * PLAIN_STEPS):
            with program.no_grad():
                program.forward()
                program.forward()
            program.step()
        assert {line.split()[1] for line in program.take()} == {"train", "train#0"}

    def test_passes_over_little_are_an_agents_that_acts(self, program):
        for _ in range(3):
            for _ in range(2 * PLAIN_STEPS):
                program.step()
            with program.no_grad():
                for _ in range(20):
                    program.forward(large=False)
        assert "batch validation 1" not in program.take()

    def test_a_pass_through_several_modules_is_one_batch(self, program):
        program.step()
        program.eval()
        for _ in range(3):
            program.forward(500)
            program.forward(501)
            program.forward(502)
        program.train()
        assert program.batches_at_end == [3]

    def test_a_module_that_goes_on_alone_has_the_batches(self, program):
        program.step()
        program.eval()
        with program.no_grad():
            program.forward(500)
            for _ in range(20):
                program.forward(501)
        program.train()
        assert program.batches_at_end == [21]

    def test_a_pass_that_trains_ends_a_validation_without_a_change_of_mode(self, program):
        for _ in range(PLAIN_STEPS):
            program.step()
        with program.no_grad():
            for _ in range(3):
                program.forward()
        program.take()
        program.forward()
        assert program.take() == ["batch validation 3", "end validation#0"]

    def test_one_look_before_training_is_nothing(self, program):
        program.eval()
        program.forward()
        program.train()
        assert program.take() == []

    def test_steps_without_a_loader_after_those_with_one_are_no_epoch(self, program):
        for _ in range(2):
            train_epoch(program, TRAIN)
        for _ in range(4):
            program.step()
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == ["begin train#0", "begin train#1", "begin train:2#0"]
        assert program.tracker.epoch == 1
        assert program.tracker.step == 4 + 4


class TestBackwardPasses:
    def test_an_epoch_without_a_step_is_one_of_training_where_gradients_are_filled(self, program):
        steps = 0
        for _ in range(5):
            program.train()
            for _ in program.over(Loader(3)):
                program.tracker.gradients()
                steps += 1
                if steps % 5 == 0:
                    program.step()
            validate(program, VAL)
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == [
            f"begin {name}#{number}" for number in range(5) for name in ("train", "validation")
        ]
        assert program.tracker.step == 3

    def test_gradients_of_what_an_evaluated_model_is_given_are_none(self, program):
        train_epoch(program, TRAIN)
        program.take()
        program.eval()
        for _ in program.over(Loader(2, line=20)):
            program.tracker.gradients()
        assert program.take()[0] == "begin validation#0"


class TestFrozenParts:
    def test_a_teacher_in_eval_mode_does_not_make_training_a_validation(self, program):
        program.eval(700)
        for _ in range(2):
            train_epoch(program, TRAIN)
        assert program.take() == [
            *("begin train#0", "step train 1", "step train 2", "end train#0"),
            *("begin train#1", "step train 1", "step train 2", "end train#1"),
        ]

    def test_a_model_trained_in_eval_mode_every_epoch_stays_training(self, program):
        for _ in range(2):
            program.eval()
            for _ in program.over(TRAIN):
                program.step()
        begins = [line for line in program.take() if line.startswith("begin")]
        assert begins == ["begin train#0", "begin train#1"]


class TestExplicit:
    def test_a_named_phase_takes_the_batches_of_its_loader(self, program):
        phase = program.tracker.phase_begin("test")
        for _ in program.over(VAL):
            pass
        program.tracker.phase_end(phase)
        assert program.take() == ["begin test#0", "batch test 1", "batch test 2", "end test#0"]

    def test_a_named_training_phase_counts_steps_once(self, program):
        phase = program.tracker.phase_begin("train")
        for _ in program.over(TRAIN):
            program.step()
        program.tracker.phase_end(phase)
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]
        assert program.tracker.step == 2

    def test_validation_named_inside_an_epoch_leaves_the_step_to_training(self, program):
        for _ in program.over(Loader(1)):
            program.step()
            phase = program.tracker.phase_begin("validation")
            with program.no_grad():
                for _ in program.over(Loader(1)):
                    pass
            program.tracker.phase_end(phase)
        assert program.take() == [
            *("begin train#0", "begin validation#0", "batch validation 1", "end validation#0"),
            *("step train 1", "end train#0"),
        ]

    def test_a_phase_around_everything_leaves_training_and_validation_inside(self, program):
        phase = program.tracker.phase_begin("train")
        for _ in program.over(Loader(1)):
            program.step()
        validate(program, Loader(1, "train.py", 20))
        program.tracker.phase_end(phase)
        assert program.take() == [
            *("begin train#0", "step train 1"),
            *("begin validation#0", "batch validation 1", "end validation#0", "end train#0"),
        ]

    def test_the_users_steps_replace_the_optimizers(self, program):
        for _ in program.over(TRAIN):
            program.step()
            program.tracker.step_over()
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_the_users_steps_without_anything_else(self, program):
        program.tracker.step_over()
        program.step()
        program.tracker.step_over()
        assert program.take() == ["begin train#0", "step train 1", "step train 2"]

    def test_a_named_loop_of_steps(self, program):
        steps = program.tracker.steps_begin(2)
        for _ in range(2):
            program.step(100)
            program.step(101)
            program.tracker.steps_next(steps)
        program.tracker.steps_end(steps)
        assert program.take() == ["begin train#0", "step train 1", "step train 2", "end train#0"]

    def test_a_named_loop_left_after_its_step_still_ends_it(self, program):
        steps = program.tracker.steps_begin()
        program.step()
        program.tracker.steps_end(steps)
        assert program.take() == ["begin train#0", "step train 1", "end train#0"]

    def test_validation_inside_a_named_loop_is_found(self, program):
        steps = program.tracker.steps_begin()
        program.step()
        validate(program, Loader(1, "train.py", 20))
        program.tracker.steps_next(steps)
        program.tracker.steps_end(steps)
        assert program.take() == [
            *("begin train#0", "begin validation#0", "batch validation 1", "end validation#0"),
            *("step train 1", "end train#0"),
        ]

    def test_a_named_loop_inside_a_named_phase_belongs_to_it(self, program):
        phase = program.tracker.phase_begin("validation")
        steps = program.tracker.steps_begin()
        program.tracker.steps_next(steps)
        program.tracker.steps_end(steps)
        program.tracker.phase_end(phase)
        assert program.take() == ["begin validation#0", "batch validation 1", "end validation#0"]


def test_nothing_is_kept_of_a_hundred_thousand_places(program):
    for line in range(3000):
        train_epoch(program, Loader(1, line=line))
        validate(program, Loader(1, line=-line))
        phase = program.tracker.phase_begin(f"phase {line}")
        program.tracker.phase_end(phase)
        program.step(optimizer=line)
    tracker = program.tracker
    kept = [tracker._passes, tracker._undecided, tracker.evaluated, tracker._optimizers]
    kept += [tracker.sites._learned, tracker.sites._validations, tracker._stack._occurrences]
    assert max(map(len, kept)) <= 1024


def test_a_batch_that_was_looked_at_and_kept_is_no_training(program):
    train, peeked = Loader(3), Loader(3, line=9)
    for _ in range(4):
        for _ in program.over(train):
            program.step()
        program.next(program.iter(peeked))
    seen = program.take()
    assert seen.count("step train 2") == 4, seen
    assert [word for word in seen if word.startswith("begin")] == [
        f"begin train#{n}" for n in range(4)
    ]


def test_a_batch_of_a_new_loader_that_was_looked_at_and_kept_is_no_training(program):
    for _ in range(4):
        for _ in program.over(Loader(3)):
            program.step()
        program.next(program.iter(Loader(3, line=9)))
    seen = program.take()
    assert [word for word in seen if word.startswith("begin")] == [
        f"begin train#{n}" for n in range(4)
    ]
