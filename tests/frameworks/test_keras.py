"""The callback in real trainings of Keras on torch."""

from __future__ import annotations

import gc
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from course import Course, raiser, run_snippet
from torch.utils.data import DataLoader, Dataset
from warm import Warm

import leakscope
from examples import alarms, line_at, report_of
from leakscope.capture.session import current_session
from leakscope.model.errors import LeakscopeError
from leakscope.recording import open_run

with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
    patch.setenv("KERAS_BACKEND", "torch")
    patch.setenv("KERAS_HOME", home)
    keras = pytest.importorskip("keras")

from leakscope.capture.frameworks import keras as door
from leakscope.capture.frameworks import keras as keras_course
from leakscope.capture.frameworks import keras as keras_joining
from leakscope.capture.frameworks import training as training_module
from leakscope.keras import LeakScopeCallback

pytestmark = pytest.mark.slow


def rows(count: int) -> tuple[Any, Any]:
    numbers = np.random.default_rng(count)
    return numbers.random((count, 8), np.float32), numbers.random((count, 4), np.float32)


def model_of(accumulation: int | None = None) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulation)
    model.compile(optimizer, "mse")
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 2, **more: Any) -> list[torch.Tensor]:
    x, y = rows(8)
    given = {"validation_data": rows(4), "batch_size": 2, "verbose": 0, **more}
    model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **given)
    return [weight.value.detach().clone() for weight in model.weights]


@pytest.fixture
def callback(tmp_path: Path) -> LeakScopeCallback:
    return LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)


class TestPhasesAndSteps:
    def test_gathered_gradients_and_a_validation_in_each_epoch(
        self, callback: LeakScopeCallback, course: Course
    ) -> None:
        fit(model_of(accumulation=2), callback)
        assert str(course) == (
            "train[ b 1 b 2 train] validation[ b b validation] epoch "
            "train[ b 3 b 4 train] validation[ b b validation] epoch"
        )
        assert course.expected == {"train": 4, "validation": None}
        assert current_session() is None

    def test_a_training_that_resumes_goes_on_from_its_step(
        self, callback: LeakScopeCallback, course: Course, tmp_path: Path
    ) -> None:
        first = model_of(accumulation=2)
        fit(first, epochs=1)
        first.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        fit(again, callback, validation_data=None, initial_epoch=1)
        assert str(course) == "train[ b 3 b 4 train] epoch"
        assert course.epochs == [1]

    def test_an_evaluation_inside_an_epoch_lies_in_its_training(
        self, callback: LeakScopeCallback, course: Course
    ) -> None:
        class Evaluates(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 2:
                    callback.on_test_begin()
                    callback.on_test_batch_end(0)
                    callback.on_test_end()

        fit(model_of(), callback, Evaluates(), epochs=1, validation_data=None)
        assert str(course) == "train[ 1 2 validation[ b validation] 3 4 train] epoch"

    @pytest.mark.parametrize("is_first", [True, False])
    def test_what_other_callbacks_evaluate_and_predict_is_reported_too(
        self, callback: LeakScopeCallback, course: Course, *, is_first: bool
    ) -> None:
        class Looks(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 2:
                    self.model.evaluate(*rows(4), batch_size=2, verbose=0)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.predict(rows(2)[0], batch_size=2, verbose=0)

        order = (callback, Looks()) if is_first else (Looks(), callback)
        model = model_of()
        fit(model, *order, epochs=1, validation_data=None)
        model.predict(rows(2)[0], batch_size=2, verbose=0)
        training = "train[ 1 2 validation[ b b validation] 3 4"
        end = "train] test[ b test] epoch" if is_first else "test[ b test] train] epoch"
        assert str(course) == f"{training} {end}"

    @pytest.mark.parametrize("given", ["list", "tuple", "place", "CallbackList"])
    def test_one_that_is_given_twice_counts_once(
        self, callback: LeakScopeCallback, course: Course, given: str
    ) -> None:
        class Counts(keras.callbacks.Callback):  # type: ignore[misc]
            batches = 0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.batches += 1

        own, model = Counts(), model_of(accumulation=2)
        several: Any = [callback, own, callback, own]
        if given == "tuple":
            several = tuple(several)
        elif given == "CallbackList":
            several = keras.callbacks.CallbackList(several, add_history=True, model=model, epochs=1)
        if given == "place":
            model.fit(*rows(8), 2, 1, 0, several)
        else:
            model.fit(*rows(8), batch_size=2, verbose=0, callbacks=several)
        assert str(course) == "train[ b 1 b 2 train] epoch"
        assert own.batches == 8, "callbacks of the program's stay as they were given"

    def test_a_step_of_the_programs_own_with_an_optimizer_of_torchs(
        self, callback: LeakScopeCallback, course: Course
    ) -> None:
        class Own(keras.Sequential):  # type: ignore[misc]
            def train_step(self, data: Any) -> dict[str, Any]:
                loss = (self(data[0]) - data[1]).square().mean()
                loss.backward()
                self.torch_optimizer.step()
                return {"loss": loss.detach()}

        model = Own([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse")
        weights = [weight.value for weight in model.weights]
        model.torch_optimizer = torch.optim.SGD(weights, lr=0.1)
        fit(model, callback, epochs=1, validation_data=None)
        assert str(course) == "train[ 1 2 3 4 train] epoch"

    def test_it_joins_who_records(
        self, callback: LeakScopeCallback, course: Course, tmp_path: Path
    ) -> None:
        model = model_of()
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            fit(model, callback, epochs=1, validation_data=None)
            model.predict(rows(4)[0], batch_size=2, verbose=0, callbacks=[callback])
            assert current_session() is not None
        assert str(course) == "train[ 1 2 3 4 train] epoch test[ b b test]"
        assert not (tmp_path / "run").exists()


class TestEndings:
    @pytest.mark.parametrize(
        ("error", "reported"),
        [
            (RuntimeError("no more"), ("exception", "RuntimeError: no more")),
            (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
        ],
    )
    def test_a_training_that_raises_ends_and_says_so(
        self, callback: LeakScopeCallback, tmp_path: Path, error: BaseException, reported: Any
    ) -> None:
        def fail(batch: int, logs: Any) -> None:
            raise error

        failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
        with pytest.raises(type(error)) as raised:
            fit(model_of(), callback, failing)
        assert raised.value is error
        assert current_session() is None
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        assert (end.status, end.exception) == reported

    def test_a_callback_that_the_call_itself_makes_hears_of_an_exception(
        self, course: Course, tmp_path: Path
    ) -> None:
        model, (x, y) = model_of(), rows(8)

        def recorded(name: str) -> LeakScopeCallback:
            return LeakScopeCallback(out=tmp_path / name, report=False, quiet=True)

        gc.collect()
        with pytest.raises(RuntimeError):
            model.fit(x, y, batch_size=2, verbose=0, callbacks=[recorded("first"), Fails()])
        assert current_session() is None
        model.fit(x, y, batch_size=2, verbose=0, callbacks=[recorded("second")])
        assert str(course) == "train[ 1 2 3 train] train[ 4 5 6 7 train] epoch"
        ends = [open_run(tmp_path / name).main.end for name in ("first", "second")]
        assert [end and end.status for end in ends] == ["exception", "completed"]

    def test_an_epoch_that_an_error_broke_off_is_not_counted(
        self, callback: LeakScopeCallback, course: Course
    ) -> None:
        with pytest.raises(RuntimeError):
            fit(model_of(), callback, Fails())
        assert str(course) == "train[ 1 2 3 train]"

    def test_nothing_is_kept_and_keras_is_as_it_was(
        self, callback: LeakScopeCallback, course: Course, tmp_path: Path
    ) -> None:
        model = model_of()
        fit(model, callback, epochs=1)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
        methods = type(door._methods)(door._wrapped)
        owner = next(kind for kind in keras.Model.__mro__ if "fit" in vars(kind))
        before = vars(owner)["fit"]
        served = Served()
        methods.serve(served)
        assert vars(owner)["fit"] is not before
        del served
        assert vars(owner)["fit"] is before


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            raise RuntimeError("no more")


class Served:
    """What methods are wrapped for."""


class TestUpkeep:
    def test_memory_lies_in_the_logs(self, course: Course, tmp_path: Path) -> None:
        seen: list[bool] = []
        callback = LeakScopeCallback(log_every=3, out=tmp_path / "run", report=False, quiet=True)
        look = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append("leakscope/host_mib" in logs)
        )
        model = model_of()
        fit(model, callback, look)
        assert seen == [number in (3, 6) for number in range(1, 9)]
        assert len(model.history.history["leakscope/host_mib"]) == 2

    def test_regular_cleanups_tell_what_they_gained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fit(model_of(), LeakScopeCallback(cleanup_every=2, out=tmp_path / "run", report=False))
        notes = [note.message for note in open_run(tmp_path / "run").main.notes]
        (reported,) = [note for note in notes if note.startswith("cleanup_every(2) freed")]
        assert "in 4 cleanups" in reported
        assert reported in capsys.readouterr().err

    def test_workers_with_open_images_are_reported(
        self, callback: LeakScopeCallback, course: Course, tmp_path: Path
    ) -> None:
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")
        data = Rows()
        with image.open(tmp_path / "image.png") as data.image:
            loader = DataLoader(data, 2, num_workers=1)
            model_of().fit(loader, epochs=1, verbose=0, callbacks=[callback])
        (note,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "workers"]
        assert note.message.startswith("Rows.image keeps open PIL images beside 1 DataLoader")
        assert callback._loaders == ()

    def test_what_makes_no_sense_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ValueError, match="log_every"):
            LeakScopeCallback(log_every=0)
        monkeypatch.setattr(keras.config, "backend", lambda: "jax")
        with pytest.raises(LeakscopeError, match="KERAS_BACKEND=torch"):
            LeakScopeCallback()


class Rows(Dataset[Any]):
    image: Any = None

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.ones(8), torch.ones(4)


class TestTrainingIsUndisturbed:
    _plain: ClassVar[list[list[torch.Tensor]]] = []

    @pytest.fixture
    def plain(self) -> list[torch.Tensor]:
        if not self._plain:
            self._plain.append(fit(model_of(accumulation=2)))
        return self._plain[0]

    def test_the_result_is_the_same_bit_by_bit(
        self, callback: LeakScopeCallback, plain: list[torch.Tensor], tmp_path: Path
    ) -> None:
        assert all(map(torch.equal, fit(model_of(accumulation=2), callback), plain))
        run = open_run(tmp_path / "run").main
        assert run.end is not None
        assert run.end.status == "completed"
        assert not run.errors

    @pytest.mark.parametrize(
        "method",
        ["begin", "resume", "enter", "leave", "leave_all", "step", "batch", "end_epoch", "end",
         "fault", "session", "_start", "_join", "_dispatch"],
    )  # fmt: skip
    def test_no_fault_of_ours_changes_it(
        self, callback: LeakScopeCallback, plain: list[torch.Tensor], method: str, course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        kind = training_module.Training
        is_property = isinstance(getattr(kind, method), property)
        monkeypatch.setattr(kind, method, property(raiser) if is_property else raiser)
        assert all(map(torch.equal, fit(model_of(accumulation=2), callback), plain))

    @pytest.mark.parametrize(
        "part", ["iterations", "_add", "Upkeep.begin", "Upkeep.step", "Upkeep.end", "_several"]
    )
    def test_nor_does_one_in_what_it_calls(
        self, plain: list[torch.Tensor], part: str, course: Course, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        callback = LeakScopeCallback(
            log_every=1, cleanup_every=1, out=tmp_path / "run", report=False, quiet=True
        )
        owner, _, name = part.rpartition(".")
        room = keras_course if part == "iterations" else door
        monkeypatch.setattr(getattr(room, owner) if owner else room, name, raiser)
        assert all(map(torch.equal, fit(model_of(accumulation=2), callback), plain))

    @pytest.mark.parametrize("owner", [keras_joining, keras_course.FitCourse])
    def test_nor_does_one_in_hearing_what_others_predict(
        self, callback: LeakScopeCallback, course: Course, owner: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        class Predicts(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.predict(rows(2)[0], batch_size=2, verbose=0)

        plain = fit(model_of(accumulation=2), Predicts())
        name = "contains_ours" if owner is keras_joining else "evaluate"
        monkeypatch.setattr(owner, name, raiser)
        assert all(map(torch.equal, fit(model_of(accumulation=2), callback, Predicts()), plain))


@pytest.fixture
def recording_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_REPORT", "false")
    yield
    assert "KERAS_BACKEND" not in os.environ


@pytest.mark.usefixtures("recording_here")
def test_the_snippet_of_the_page_works(course: Course) -> None:
    x, y = rows(8)
    run_snippet("Keras 3", model=model_of(), x=x, y=y, validation=rows(4))
    assert str(course).count("epoch") == 2
    assert "validation[" in str(course)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("keras")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_HOME", str(folder / "home"))
        with Warm("torch", "keras") as programs:
            return {
                form: report_of("with_keras", form, programs, folder)
                for form in ("train", "train_fixed")
            }


def test_a_planted_leak_is_named_with_line_and_rate(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train"]
    assert report["verdict"] == "leak"
    first = report["culprits"][0]
    assert first["name"] == "Confusions.outputs"
    assert "self.outputs.append(" in line_at("with_keras", first["fed_at"][0])
    assert first["unit"] in ("epoch", "validation")
    assert first["bytes_per_unit"] == pytest.approx(512 * 1000 * 4, rel=0.1)
    assert (report["work"]["steps"], report["work"]["epochs"]) == (320, 8)


def test_its_healthy_form_is_clean(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train_fixed"]
    assert report["verdict"] == "clean", alarms(report)
    assert (report["work"]["steps"], report["work"]["epochs"]) == (320, 8)
