"""Trainings of Keras on torch that are recognised without a callback of ours."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from course import Course, raiser
from torch.utils.data import DataLoader, TensorDataset

import leakscope
from leakscope.capture.session import current_session

with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
    patch.setenv("KERAS_BACKEND", "torch")
    patch.setenv("KERAS_HOME", home)
    keras = pytest.importorskip("keras")

from leakscope.capture.frameworks import keras as keras_course
from leakscope.capture.frameworks import keras as keras_joining
from leakscope.capture.frameworks import training as training_module
from leakscope.capture.torch_hooks.models import ModeHooks
from leakscope.capture.torch_hooks.optimizers import OptimizerHooks
from leakscope.keras import LeakScopeCallback

pytestmark = pytest.mark.slow


def rows(count: int) -> tuple[Any, Any]:
    numbers = np.random.default_rng(count)
    return numbers.random((count, 8), np.float32), numbers.random((count, 4), np.float32)


def model_of(accumulation: int | None = None) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(4)])
    optimizer = keras.optimizers.Adam(0.1, gradient_accumulation_steps=accumulation)
    model.compile(optimizer, "mse")
    return model


def fit(model: Any, **given: Any) -> list[torch.Tensor]:
    x, y = rows(8)
    model.fit(x, y, **{"epochs": 2, "batch_size": 2, "verbose": 0, **given})
    return [weight.value.detach().clone() for weight in model.weights]


def train_by_batches(model: Any) -> list[torch.Tensor]:
    x, y = rows(4)
    for start in (0, 2):
        model.train_on_batch(x[start : start + 2], y=y[start : start + 2])
    return [weight.value.detach().clone() for weight in model.weights]


@pytest.fixture
def recording(tmp_path: Path, course: Course) -> Iterator[None]:
    with leakscope.profile(tmp_path / "run", report=False, quiet=True):
        yield


@pytest.fixture
def no_optimizer_of_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program of Keras's alone: other tests of this process have made some."""
    monkeypatch.setattr(OptimizerHooks, "any_made", lambda _: False)


@pytest.mark.usefixtures("recording")
class TestPhasesAndSteps:
    def test_a_training_without_validation_has_none(self, course: Course) -> None:
        fit(model_of())
        assert str(course) == "train[ 1 2 3 4 train] epoch train[ 5 6 7 8 train] epoch"
        assert course.expected == {"train": 4}
        assert course.epochs == [0, 1]

    @pytest.mark.parametrize(
        "given", [{"validation_split": 0.5}, {"validation_data": rows(4)}], ids=["split", "data"]
    )
    def test_the_validation_of_an_epoch_is_one(self, course: Course, given: Any) -> None:
        fit(model_of(), **given)
        steps = 2 if "validation_split" in given else 4
        first = " ".join(str(step) for step in range(1, steps + 1))
        again = " ".join(str(step) for step in range(steps + 1, 2 * steps + 1))
        assert str(course) == (
            f"train[ {first} train] validation[ b b validation] epoch "
            f"train[ {again} train] validation[ b b validation] epoch"
        )

    def test_gathered_gradients(self, course: Course) -> None:
        fit(model_of(accumulation=2), epochs=1)
        assert str(course) == "train[ b 1 b 2 train] epoch"

    def test_a_stream_that_is_never_exhausted_has_epochs(self, course: Course) -> None:
        def stream() -> Iterator[Any]:
            while True:
                yield rows(2)

        model_of().fit(stream(), steps_per_epoch=3, epochs=2, verbose=0)
        assert str(course) == "train[ 1 2 3 train] epoch train[ 4 5 6 train] epoch"

    def test_what_callbacks_of_the_program_evaluate_inside_an_epoch_lies_in_it(
        self, course: Course
    ) -> None:
        class Looks(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_begin(self, logs: Any = None) -> None:
                self.model.predict(rows(2)[0], batch_size=2, verbose=0)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if batch == 1:
                    self.model.evaluate(*rows(4), batch_size=2, verbose=0)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.predict(rows(2)[0], batch_size=2, verbose=0)

        fit(model_of(), epochs=1, callbacks=[Looks()])
        assert str(course) == (
            "test[ b test] train[ 1 validation[ b b validation] 2 3 4 test[ b test] train] epoch"
        )

    def test_a_callback_of_ours_tells_by_itself(self, course: Course) -> None:
        callback = LeakScopeCallback()
        fit(model_of(), epochs=1, callbacks=[callback])
        assert str(course) == "train[ 1 2 3 4 train] epoch"

    def test_a_training_within_a_training_adds_nothing(self, course: Course) -> None:
        def probe(epoch: int, logs: Any) -> None:
            fit(model_of(), epochs=1)

        fit(model_of(), epochs=1, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=probe)])
        assert str(course) == "train[ 1 2 3 4 train] epoch"

    def test_loops_of_torch_are_found_before_and_after(self, course: Course) -> None:
        def loop() -> None:
            for (batch,) in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2):
                layer(batch).sum().backward()
                optimizer.step()

        layer = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        loop()
        fit(model_of(), epochs=1)
        loop()
        assert str(course) == ("train[ 1 2 train] train[ 3 4 5 6 train] epoch train[ 7 8 train]")

    @pytest.mark.usefixtures("no_optimizer_of_torchs")
    @pytest.mark.parametrize("looks", ["evaluate", "predict"])
    def test_batches_that_are_trained_one_by_one_around_evaluations(
        self, course: Course, looks: str
    ) -> None:
        x, y = rows(4)
        model = model_of()
        for _ in range(3):
            train_by_batches(model)
            getattr(model, looks)(x, *[y] * (looks == "evaluate"), batch_size=2, verbose=0)
        validation = "validation[ b b validation]"
        assert str(course) == f"train[ 1 2 {validation} 3 4 {validation} 5 6 {validation}"

    @pytest.mark.usefixtures("no_optimizer_of_torchs")
    def test_gradients_that_are_only_looked_at_next_to_such_batches_are_no_step(
        self, course: Course
    ) -> None:
        x, y = rows(4)
        model = model_of()
        train_by_batches(model)
        model.evaluate(x, y, batch_size=4, verbose=0)
        model(torch.from_numpy(x)).sum().backward()
        train_by_batches(model)
        assert str(course) == "train[ 1 2 validation[ b validation] 3 4"

    def test_a_list_of_callbacks_of_another_class_is_not_relied_on(self, course: Course) -> None:
        class Silent(keras.callbacks.CallbackList):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                pass

        model = model_of()
        fit(model, epochs=1, callbacks=Silent(model=model, add_history=True))
        assert "validation" not in str(course)
        assert str(course).startswith("train[ ")


class TestTrainingIsUndisturbed:
    @pytest.mark.parametrize("given", [{}, {"validation_split": 0.5}], ids=["plain", "validated"])
    def test_the_result_is_the_same_bit_by_bit(self, given: Any, tmp_path: Path) -> None:
        plain = fit(model_of(), **given)
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            assert all(map(torch.equal, fit(model_of(), **given), plain))

    @pytest.mark.parametrize(
        ("owner", "name"),
        [
            (training_module.Training, "begin"),
            (training_module.Training, "enter"),
            (training_module.Training, "step"),
            (training_module.Training, "end"),
            (keras_course, "iterations"),
            (keras_joining, "contains_ours"),
        ],
    )
    def test_no_fault_of_ours_changes_it(
        self, owner: Any, name: str, course: Course, recording: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, raiser)
            reported = fit(model_of(accumulation=2))
        assert all(map(torch.equal, fit(model_of(accumulation=2)), reported))

    def test_batches_that_are_trained_one_by_one_come_to_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def trained() -> list[torch.Tensor]:
            model = model_of()
            train_by_batches(model)
            model.evaluate(*rows(4), verbose=0)
            return train_by_batches(model)

        plain = trained()
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            assert all(map(torch.equal, trained(), plain))
        monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
        monkeypatch.setattr(ModeHooks, "trains", raiser)
        with leakscope.profile(tmp_path / "again", report=False, quiet=True):
            assert all(map(torch.equal, trained(), plain))

    @pytest.mark.usefixtures("recording")
    def test_a_training_that_raises_gives_the_leading_place_back(self, course: Course) -> None:
        def fail(batch: int, logs: Any) -> None:
            raise error

        error = RuntimeError("no more")
        failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
        with pytest.raises(RuntimeError) as raised:
            fit(model_of(), callbacks=[failing])
        assert raised.value is error
        frames = [entry.path for entry in raised.traceback]
        assert not [path for path in frames if "leakscope/capture" in str(path)]
        session = current_session()
        assert session is not None
        assert not session.gate.is_phase_control_claimed
        assert str(course) == "train[ train]", "an epoch that was broken off is none"

    def test_nothing_is_kept_and_keras_is_as_it_was(self, tmp_path: Path) -> None:
        trainer = next(kind for kind in keras.Model.__mro__ if "fit" in vars(kind))
        before = {**vars(trainer)}, {**vars(keras.callbacks.CallbackList)}
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            assert vars(trainer)["fit"] is not before[0]["fit"]
            model = model_of()
            fit(model)
            gone = weakref.ref(model)
            del model
            gc.collect()
            assert gone() is None
        assert ({**vars(trainer)}, {**vars(keras.callbacks.CallbackList)}) == before
