"""Boundaries found in real torch programs, and torch left as it was found."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
import weakref
from itertools import islice
from pathlib import Path

import pytest
import torch
from fake_session import FakeSession
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from leakscope.capture.torch_hooks.optimizers import OptimizerHooks
from leakscope.model.boundary import BoundaryKind as Kind

SHORT = {
    Kind.PHASE_BEGIN: "begin",
    Kind.PHASE_END: "end",
    Kind.STEP: "step",
    Kind.BATCH: "batch",
}


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_STRICT", "1")
    run = FakeSession(boundaries="auto", focused=0.0, whole=0.0, resumed=0.0)
    yield run
    run.close()


def reported(run: FakeSession) -> str:
    """The boundaries of a run in one line: ``begin train, step, …``."""
    words = []
    for boundary in run.writer.boundaries:
        if boundary.kind in (Kind.PHASE_BEGIN, Kind.PHASE_END):
            words.append(f"{SHORT[boundary.kind]} {boundary.phase}")
        elif boundary.kind in SHORT:
            words.append(SHORT[boundary.kind])
    return ", ".join(words)


def loader(batches: int = 2, **options) -> DataLoader:
    data = TensorDataset(torch.arange(batches * 2.0).reshape(-1, 1))
    return DataLoader(data, batch_size=2, **options)


class Task:
    """A model, its optimizer, and one training step on a batch."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)

    def backward(self, batch: torch.Tensor) -> None:
        self.model(batch).sum().backward()

    def step(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def train(self, batches) -> None:
        self.model.train()
        for (batch,) in batches:
            self.step(batch)

    def validate(self, batches) -> None:
        self.model.eval()
        with torch.no_grad():
            for (batch,) in batches:
                self.model(batch)
        self.model.train()


TRAIN = "begin train, step, step, end train"
VALIDATION = "begin validation, batch, batch, end validation"


class TestPrograms:
    def test_epochs_of_training_and_validation(self, run):
        task, training, validation = Task(), loader(), loader()
        for _ in range(2):
            task.train(training)
            task.validate(validation)
        assert reported(run) == ", ".join([TRAIN, VALIDATION] * 2)
        assert run.writer.boundaries[-1].epoch == 1

    def test_phases_know_how_many_batches_to_expect(self, run):
        Task().train(loader(3))
        (begin,) = [b for b in run.writer.boundaries if b.kind is Kind.PHASE_BEGIN]
        assert begin.expected_batches == 3

    def test_gradient_accumulation(self, run):
        task = Task()
        for number, (batch,) in enumerate(loader(4)):
            task.backward(batch)
            if number % 2:
                task.optimizer.step()
                task.optimizer.zero_grad()
        assert reported(run) == "begin train, batch, step, batch, step, end train"

    def test_each_step_of_short_trainings_counts_whose_optimizers_go(self, run):
        for _ in range(6):
            client = Task()
            for _ in range(7):
                client.step(torch.ones(2, 1))
            del client
        assert reported(run).count("step") == 42

    def test_an_inner_loop_makes_optimizers_and_the_outer_one_leads(self, run):
        learner = Task()
        for _ in range(20):
            inner = Task()
            for _ in range(3):
                inner.step(torch.ones(2, 1))
            learner.step(torch.ones(2, 1))
        assert reported(run).count("step") == 3 + 19

    @pytest.mark.parametrize("steps", [9, 30])
    @pytest.mark.parametrize("validates", [False, True])
    def test_each_step_of_trials_counts_though_their_optimizers_are_kept(
        self, run, steps, validates
    ):
        kept = [Task() for _ in range(6)]
        for trial in kept:
            trial.model.train()
            for _ in range(steps):
                trial.step(torch.ones(2, 1))
            if validates:
                trial.model.eval()
                trial.model(torch.ones(2, 1))
        assert run.session.tracker.step == 6 * steps

    @pytest.mark.parametrize("inner_steps", [6, 10])
    def test_the_outer_loop_goes_on_leading_once_it_is_known(self, run, inner_steps):
        learner = Task()
        for _ in range(4):
            for _ in range(10):
                inner = Task()
                for _ in range(inner_steps):
                    inner.step(torch.ones(2, 1))
                learner.step(torch.ones(2, 1))
            learner.model.eval()
            learner.model(torch.ones(2, 1))
            learner.model.train()
        assert run.session.tracker.step == inner_steps + 39

    def test_optimizers_are_not_kept_alive(self, run):
        task = Task()
        task.step(torch.ones(2, 1))
        visited = weakref.ref(task.optimizer)
        del task
        gc.collect()
        assert visited() is None

    def test_two_optimizers_of_a_gan(self, run):
        generator, critic = Task(), Task()
        for (batch,) in loader():
            critic.step(batch)
            critic.step(batch)
            generator.step(batch)
        assert reported(run) == TRAIN

    def test_training_without_a_loader(self, run):
        task = Task()
        for _ in range(2):
            task.step(torch.ones(2, 1))
        run.close()
        assert reported(run) == TRAIN

    def test_validation_without_a_loader(self, run):
        task = Task()
        task.step(torch.ones(2, 1))
        task.validate([(torch.ones(2, 1),)] * 2)
        task.step(torch.ones(2, 1))
        assert reported(run) == f"begin train, step, {VALIDATION}, step"

    @pytest.mark.parametrize("calls_itself", [False, True])
    def test_validation_without_a_loader_by_the_models_own_methods(self, run, calls_itself):
        class Coder(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(nn.Linear(1, 2), nn.Tanh())
                self.decoder = nn.Linear(2, 1)

            def encode(self, batch):
                return self.encoder(batch)

            def forward(self, batch):
                return self.decoder(self.encode(batch))

        task = Task()
        task.model = Coder()
        task.optimizer = torch.optim.SGD(task.model.parameters(), lr=1e-6)
        task.step(torch.ones(2, 1))
        task.model.eval()
        for _ in range(2):
            if calls_itself:
                task.model(torch.ones(2, 1))
            else:
                task.model.decoder(task.model.encode(torch.ones(2, 1)))
        task.model.train()
        task.step(torch.ones(2, 1))
        assert reported(run) == f"begin train, step, {VALIDATION}, step"

    def test_inference_alone(self, run):
        model = nn.Linear(1, 1)
        model.eval()
        with torch.inference_mode():
            for (batch,) in loader():
                model(batch)
        assert reported(run) == VALIDATION

    def test_inference_without_eval_or_no_grad(self, run):
        run.session.tracker.surroundings = lambda: (True, False)  # no optimizer was made
        model = nn.Linear(1, 1)
        for (batch,) in loader():
            with torch.no_grad():
                model(batch)
        assert reported(run) == VALIDATION

    def test_a_mode_that_is_set_without_a_call(self, run):
        task, validation = Task(), loader()
        with torch.no_grad():
            task.model.eval()
            for (batch,) in validation:
                task.model(batch)
        for module in task.model.modules():
            module.training = True
        for (batch,) in loader():
            task.backward(batch)
        assert reported(run).startswith(f"{VALIDATION}, begin train, batch")

    def test_validation_inside_an_epoch(self, run):
        task, validation = Task(), loader()
        for (batch,) in loader():
            task.step(batch)
            task.validate(validation)
        assert reported(run) == f"begin train, step, {VALIDATION}, step, {VALIDATION}, end train"

    def test_leaving_a_loop_early(self, run):
        task = Task()
        for number, (batch,) in enumerate(loader(9)):
            task.step(batch)
            if number == 1:
                break
        assert reported(run) == TRAIN

    def test_an_exception_in_the_loop(self, run):
        task = Task()

        def train() -> None:
            for (batch,) in loader(9):
                task.step(batch)
                raise ValueError

        with pytest.raises(ValueError):
            train()
        assert reported(run) == "begin train, step, end train"

    def test_the_first_batches_of_a_validation(self, run):
        task, validation = Task(), loader(9)
        task.train(loader())
        task.validate(islice(validation, 2))
        assert reported(run) == f"{TRAIN}, {VALIDATION}"

    def test_zipped_loaders(self, run):
        task = Task()
        for (item,), (other,) in zip(loader(), loader(), strict=True):
            task.step(item + other)
        assert reported(run) == TRAIN

    def test_an_endless_generator_around_a_loader(self, run):
        def cycle(batches):
            while True:
                yield from batches

        task = Task()
        for (batch,) in islice(cycle(loader()), 4):
            task.step(batch)
        assert reported(run) == f"{TRAIN}, {TRAIN}"

    def test_a_batch_looked_at_before_training(self, run):
        task, training = Task(), loader()
        first = iter(training)
        next(first)
        task.train(training)
        assert reported(run) == TRAIN

    def test_an_iterator_advanced_by_hand(self, run):
        task = Task()
        batches = iter(loader())
        for _ in range(2):
            task.step(next(batches)[0])
        with pytest.raises(StopIteration):
            next(batches)
        assert reported(run) == TRAIN

    @pytest.mark.parametrize("persistent", [False, True])
    def test_workers(self, run, persistent):
        task, training = Task(), loader(num_workers=2, persistent_workers=persistent)
        for _ in range(2):
            task.train(training)
        assert reported(run) == f"{TRAIN}, {TRAIN}"

    def test_a_loader_that_keeps_its_iterator_over_all_epochs(self, run):
        class Kept(DataLoader):
            def __init__(self):
                super().__init__(TensorDataset(torch.ones(64, 1)), batch_size=2)
                self.iterator = super().__iter__()

            def __iter__(self):
                for _ in range(2):
                    yield next(self.iterator)

        original, task, training = Kept.__iter__, Task(), Kept()
        for _ in range(2):
            task.train(training)
            task.validate(loader())
        assert reported(run) == ", ".join([TRAIN, VALIDATION] * 2)
        run.close()
        assert Kept.__iter__ is original
        assert len(list(training)) == 2

    def test_a_loader_that_changes_the_batches_of_torchs(self, run):
        class Doubled(DataLoader):
            def __iter__(self):
                for (batch,) in super().__iter__():
                    yield (batch * 2,)

        original, task = Doubled.__iter__, Task()
        training = Doubled(TensorDataset(torch.ones(4, 1)), batch_size=2)
        for _ in range(2):
            task.train(training)
        assert reported(run) == f"{TRAIN}, {TRAIN}"
        assert Doubled.__iter__ is original

    def test_an_iterable_dataset_without_length(self, run):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from torch.ones(4, 1)

        task = Task()
        for batch in DataLoader(Stream(), batch_size=2):
            task.step(batch)
        assert reported(run) == TRAIN
        assert {b.expected_batches for b in run.writer.boundaries} == {None}

    def test_a_frozen_teacher(self, run):
        task, teacher = Task(), nn.Linear(1, 1)
        teacher.eval()
        for (batch,) in loader():
            teacher(batch)
            task.step(batch)
        assert reported(run) == TRAIN

    def test_students_after_students_of_a_teacher_trained_before(self, run):
        teacher = Task()
        for _ in range(100):
            teacher.step(torch.ones(2, 1))
        teacher.model.eval().requires_grad_(False)
        students = []
        for _ in range(2):
            students.append(Task())  # each with an optimizer of its own
            for _ in range(100):
                batch = torch.ones(2, 1)
                teacher.model(batch)
                students[-1].step(batch)
        run.close()
        assert run.writer.boundaries[-1].step == 300
        assert "batch" not in reported(run)

    def test_what_is_tuned_on_each_batch_of_a_test_is_no_training(self, run):
        task = Task()
        for _ in range(3):
            task.step(torch.ones(2, 1))
        for _ in range(2):
            task.model.eval()
            tuned = torch.optim.SGD(task.model.parameters(), lr=1e-9)
            for _ in range(2):
                task.model(torch.ones(2, 1)).sum().backward()
                tuned.step()
            task.model.train()
        assert reported(run).count("step") == 3
        assert reported(run).count("begin validation") == 2

    def test_a_frozen_backbone_inside_the_model(self, run):
        class Frozen(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.backbone, self.head = nn.Linear(1, 1), nn.Linear(1, 1)

            def train(self, mode=True):
                super().train(mode)
                self.backbone.eval()
                return self

            def forward(self, batch):
                return self.head(self.backbone(batch))

        task = Task()
        task.model = Frozen()
        task.optimizer = torch.optim.SGD(task.model.head.parameters(), lr=1e-6)
        for _ in range(2):
            task.train(loader())
            task.validate(loader())
        assert reported(run) == ", ".join([TRAIN, VALIDATION] * 2)

    def test_a_wrapped_model_evaluated_without_its_wrapper(self, run):
        task = Task()
        inner = task.model
        task.model = nn.DataParallel(inner)
        task.train(loader())
        inner.eval()
        for (batch,) in loader():
            inner(batch)
        assert reported(run) == f"{TRAIN}, {VALIDATION}"

    def test_training_in_another_thread(self, run):
        task = Task()

        def work() -> None:
            task.train(loader())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert reported(run) == TRAIN

    def test_steps_of_several_threads_all_count(self, run):
        start = threading.Barrier(3)

        def work() -> None:
            task = Task()
            start.wait()
            for _ in range(20):
                task.step(torch.ones(2, 1))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.session.tracker.step == 60

    def test_a_thread_follows_one_that_has_ended(self, run):
        def work() -> None:
            task = Task()
            task.train(loader())
            task.validate(loader())

        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            threading.Thread(target=lambda: None).start()  # the next has another number
        assert reported(run) == ", ".join([TRAIN, VALIDATION] * 2)

    def test_the_thread_that_is_heard_is_not_kept_alive(self, run):
        thread = threading.Thread(target=lambda: Task().step(torch.ones(2, 1)))
        thread.start()
        thread.join()
        reference = weakref.ref(thread)
        del thread
        gc.collect()
        assert reference() is None

    def test_loading_in_another_thread_while_this_one_trains(self, run):
        task = Task()
        task.step(torch.ones(2, 1))
        thread = threading.Thread(target=list, args=(loader(),))
        thread.start()
        thread.join()
        task.step(torch.ones(2, 1))
        assert reported(run) == "begin train, step, step"

    def test_named_steps_silence_the_loader_they_go_over(self, run):
        from leakscope.capture.scope import _steps

        task = Task()
        for (batch,) in _steps(run.session, loader()):
            task.step(batch)
        assert reported(run) == TRAIN


@pytest.fixture
def made(monkeypatch):
    """The optimizers of this test alone: torch marks the classes of those of others for good."""
    made = []
    monkeypatch.setattr(OptimizerHooks, "any_made", lambda _: bool(made))
    return made


class ByHand(Task):
    """Changes its weights without an optimizer of torch's."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))

    def step(self, batch: torch.Tensor) -> None:
        self.backward(batch)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight -= 1e-6 * weight.grad
                weight.grad = None


class TestProgramsWithoutAnOptimizer:
    @pytest.fixture
    def run(self, made, run):
        return run

    def test_a_backward_pass_tells_training(self, run):
        task, training, validation = ByHand(), loader(), loader()
        for _ in range(2):
            task.train(training)
            task.validate(validation)
        assert reported(run) == ", ".join([TRAIN, VALIDATION] * 2)

    def test_and_does_so_without_a_change_of_mode(self, run):
        task = ByHand()
        for _ in range(2):
            for (batch,) in loader():
                task.step(batch)
        assert reported(run) == ", ".join([TRAIN] * 2)

    def test_and_without_a_loader(self, run):
        task = ByHand()
        for _ in range(2):
            task.step(torch.ones(2, 1))
        assert reported(run) == "begin train, step, step"

    def test_nothing_but_forward_passes_is_none(self, run):
        model = ByHand().model
        for (batch,) in loader():
            model(batch)
        assert reported(run) == VALIDATION

    @pytest.mark.parametrize("by", ["backward", "grad"])
    def test_gradients_of_what_a_model_is_given_are_none(self, run, by):
        model = ByHand().model.eval()
        for (batch,) in loader():
            given = batch.requires_grad_()
            if by == "grad":
                torch.autograd.grad(model(given).sum(), given)
            else:
                model(given).sum().backward()
        assert reported(run) == VALIDATION

    def test_what_a_checkpoint_recomputes_is_no_further_step(self, run):
        task = ByHand()
        for (batch,) in loader():
            inner = checkpoint(task.model, batch.requires_grad_(), use_reentrant=True)
            inner.sum().backward()
        assert reported(run) == TRAIN

    def test_an_error_in_a_backward_pass_shows_none_of_our_frames(self, run):
        loss = ByHand().model(torch.ones(2, 1)).sum()
        loss.backward()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
        assert "leakscope" not in "".join(traceback.format_tb(caught.value.__traceback__))

    def test_torch_is_as_it_was_afterwards(self, run):
        ours = torch.autograd._engine_run_backward
        run.close()
        assert torch.autograd._engine_run_backward is not ours
        assert torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"
        assert not hasattr(torch.autograd._engine_run_backward, "__wrapped__")

    def test_an_optimizer_of_torchs_is_relied_on_as_soon_as_there_is_one(self, run, made):
        task = Task()
        made.append(task.optimizer)
        for number, (batch,) in enumerate(loader(4)):
            task.backward(batch)
            if number % 2:
                task.optimizer.step()
        assert reported(run) == "begin train, batch, step, batch, step, end train"


def is_listened_to() -> bool:
    return hasattr(nn.Module._call_impl, "__wrapped__")


class TestTorchAsItWas:
    def test_every_hook_is_taken_back(self):
        from torch.optim import optimizer as optimizers
        from torch.utils.data import dataloader as loaders

        def state():
            return (
                DataLoader.__iter__,
                loaders._BaseDataLoaderIter.__next__,
                nn.Module.train,
                list(optimizers._global_optimizer_post_hooks),
                nn.Module._call_impl,
            )

        before = state()
        run = FakeSession(boundaries="auto")
        task = Task()
        task.train(loader())
        task.model.eval()
        task.model(torch.ones(2, 1))
        assert state() != before
        run.close()
        assert state() == before

    def test_modules_are_listened_to_while_no_loader_is_at_work(self, run):
        assert is_listened_to()
        for _ in loader():
            assert not is_listened_to()
        assert is_listened_to()

    def test_within_a_pass_modules_are_listened_to_in_evaluation_mode(self, run):
        task = Task()
        for (batch,) in loader():
            task.step(batch)
            assert not is_listened_to()
            task.model.eval()
            assert is_listened_to()
            task.model(batch)
            task.model.train()
            assert not is_listened_to()

    @pytest.mark.parametrize("by", ["method", "function"])
    def test_listening_neither_begins_nor_ends_once_torch_compiles(self, run, by):
        model = nn.Sequential(nn.Linear(1, 1))
        if by == "method":
            model.compile(backend="eager")
        else:
            model = torch.compile(model, backend="eager")
        try:
            for _ in loader():
                assert is_listened_to()
        finally:
            torch._dynamo.reset()

    def test_a_compiled_model_is_compiled_once_however_it_is_used(self, run):
        graphs = []

        def note(graph, inputs):
            graphs.append(graph)
            return graph.forward

        torch._dynamo.reset()
        task = Task()
        evaluated = torch.compile(task.model, backend=note)
        try:
            for _ in range(2):
                for (batch,) in loader():
                    task.step(batch)
                    with torch.no_grad():
                        evaluated(batch)
                with torch.no_grad():
                    evaluated(batch)
            assert len(graphs) == 1
        finally:
            torch._dynamo.reset()

    def test_the_compiler_takes_none_of_ours_for_the_method_of_modules(self, run):
        from torch._dynamo import utils

        assert not hasattr(utils.unpatched_nn_module_call_impl, "__wrapped__")

    def test_a_model_is_traced_as_it_is(self, run):
        model = nn.Sequential(nn.Linear(1, 1), nn.ReLU()).eval()

        def operations() -> list[str]:
            traced = torch.jit.trace(model, torch.ones(2, 1))
            return [node.kind() for node in traced.inlined_graph.nodes()]

        seen = operations()
        run.close()
        assert seen == operations()

    def test_a_hook_of_somebody_else_survives_ours(self):
        original = DataLoader.__iter__
        run = FakeSession(boundaries="auto")
        ours = DataLoader.__iter__

        def theirs(self):
            return ours(self)

        DataLoader.__iter__ = theirs
        try:
            run.close()
            assert DataLoader.__iter__ is theirs
            assert len(list(loader())) == 2
        finally:
            DataLoader.__iter__ = original

    def test_tracebacks_of_the_program_show_none_of_our_frames(self, run):
        class Broken(Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                raise KeyError(index)

        with pytest.raises(KeyError) as caught:
            list(DataLoader(Broken()))
        assert "leakscope" not in "".join(traceback.format_tb(caught.value.__traceback__))

    def test_a_samplers_length_of_the_users_own_is_not_read(self, run):
        class Shuffling(torch.utils.data.Sampler):
            requested = 0

            def __iter__(self):
                yield from range(4)

            def __len__(self):
                Shuffling.requested += 1
                return 4

        data = TensorDataset(torch.ones(4, 1))
        for _ in DataLoader(data, sampler=Shuffling()):
            pass
        assert Shuffling.requested == 0

    def test_no_batch_loss_or_model_lives_longer(self):
        def survivors() -> list[str]:
            task, training = Task(), loader()
            seen = [weakref.ref(task)]
            for (batch,) in training:
                loss = task.model(batch).sum()
                loss.backward()
                task.optimizer.step()
                seen += [weakref.ref(thing) for thing in (batch, loss, task.model)]
            task.validate(training)
            del task, batch, loss
            return [type(reference()).__name__ for reference in seen if reference() is not None]

        survivors()  # torch keeps some of the very first ones itself
        gc.collect()
        gc.disable()
        try:
            expected = survivors()
            run = FakeSession(boundaries="auto")
            assert survivors() == expected
            run.close()
        finally:
            gc.enable()

    def test_grad_mode_and_generators_are_left_alone(self, run):
        torch.manual_seed(0)
        expected = torch.rand(1)
        torch.manual_seed(0)
        task = Task.__new__(Task)
        state = torch.get_rng_state()
        task.model = nn.Identity()
        task.model.eval()
        task.model(torch.ones(1))
        task.model.train()
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(torch.rand(1), expected)
        assert torch.is_grad_enabled()


class TestCompiledTraining:
    @pytest.fixture(autouse=True)
    def _compiled_afresh(self):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    def test_steps_inside_compiled_code_are_heard(self, run, recwarn):
        task = Task()

        @torch.compile(backend="eager")
        def step(batch: torch.Tensor) -> None:
            task.step(batch)

        for (batch,) in loader():
            step(batch)
        assert reported(run) == TRAIN
        assert not [w for w in recwarn if "get_ident" in str(w.message)]

    def test_none_of_our_functions_are_compiled(self, run):
        task = Task()
        compiled = []

        def note(graph, inputs):
            compiled.append(graph)
            return graph.forward

        @torch.compile(backend=note)
        def step(batch: torch.Tensor) -> None:
            task.step(batch)

        run.session.close(status="completed")
        step(torch.ones(2, 1))
        expected = len(compiled)
        torch._dynamo.reset()
        compiled.clear()
        other = FakeSession(boundaries="auto")
        step(torch.ones(2, 1))
        other.close()
        assert len(compiled) == expected


def test_calls_of_all_threads_count_while_the_followed_one_is_in_a_call_too(tmp_path):
    """In a process of its own: optimizers of other tests would make it a training."""
    code = """
import threading, time, torch, leakscope
from leakscope.capture.session import current_session

class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return x

model = Slow().eval()

def serve():
    for _ in range(50):
        model(torch.ones(1))
        time.sleep(0.001)

with leakscope.profile("run", report=False, quiet=True):
    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (phase,) = current_session().tracker.open_phases()
    print(phase.name, phase.batch)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    name, batches = done.stdout.split()
    assert name == "inference"
    assert 170 <= int(batches) <= 201
