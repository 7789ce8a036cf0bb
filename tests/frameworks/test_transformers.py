"""The callback in the real Hugging Face trainer."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from course import Course, raiser, run_snippet
from torch import nn
from warm import Warm

import leakscope
from examples import alarms, line_at, report_of
from leakscope.analysis import analyse
from leakscope.capture.session import current_session
from leakscope.recording import open_run

transformers = pytest.importorskip("transformers")
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from leakscope.capture.frameworks import training  # noqa: E402
from leakscope.capture.frameworks import training as training_module  # noqa: E402
from leakscope.capture.frameworks import transformers as door  # noqa: E402
from leakscope.transformers import LeakScopeCallback  # noqa: E402

pytestmark = pytest.mark.slow

FLOAT = 4


class Rows(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(count)
        self.x = torch.rand(count, 8, generator=generator)
        self.labels = torch.randint(0, 4, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "labels": self.labels[index]}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture
def trainer_of(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return what makes a trainer: 16 rows in batches of 2 by default."""

    def make(*callbacks: Any, kind: type = Trainer, **more: Any) -> Any:
        torch.manual_seed(0)
        given = {
            name: more.pop(name) for name in ("eval_dataset", "compute_metrics") if name in more
        }
        arguments = {
            "output_dir": str(tmp_path / "checkpoints"),
            "num_train_epochs": 2,
            "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 4,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            **more,
        }
        given.setdefault("eval_dataset", Rows(8))
        return kind(
            model=Model(), args=TrainingArguments(**arguments), train_dataset=Rows(16),
            callbacks=list(callbacks), **given,
        )  # fmt: skip

    yield make
    gc.collect()


@pytest.fixture
def callback(tmp_path: Path) -> LeakScopeCallback:
    return LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)


def weights(trainer: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.model.parameters()]


class TestPhasesAndSteps:
    def test_accumulation_evaluations_saves_and_epochs(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course
    ) -> None:
        trainer_of(
            callback, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=3,
            save_strategy="steps", save_steps=4, save_total_limit=1,
        ).train()  # fmt: skip
        assert str(course) == (
            "train[ b 1 b 2 b 3 validation[ b b validation] b 4 (checkpoint) train] epoch "
            "train[ b 5 b 6 validation[ b b validation] b 7 b 8 "
            "validation[ b b validation] (checkpoint) train] epoch"  # it evaluates at the end too
        )
        assert course.expected == {"train": 8, "validation": 2}
        assert current_session() is None

    def test_an_evaluation_after_each_epoch_lies_between_the_training_phases(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course
    ) -> None:
        trainer_of(callback, eval_strategy="epoch", eval_on_start=True, max_steps=10).train()
        assert str(course) == (
            "validation[ b b validation] train[ 1 2 3 4 5 6 7 8 train] validation[ b b validation] "
            "epoch train[ 9 10 train] validation[ b b validation] epoch"
        )

    @pytest.mark.parametrize("place", ["before", "after"])
    def test_an_evaluation_by_another_callback_comes_after_the_step_that_it_follows(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        place: str,
    ) -> None:  # fmt: skip
        class Evaluates(TrainerCallback):
            trainer: Any = None

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == 2:
                    self.trainer.evaluate()

        own = Evaluates()
        order = (own, callback) if place == "before" else (callback, own)
        own.trainer = trainer_of(*order, max_steps=4, gradient_accumulation_steps=2)
        own.trainer.train()
        assert str(course) == "train[ b 1 b 2 validation[ b b validation] b 3 b 4 train] epoch"

    def test_several_data_sets_have_a_phase_each(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course
    ) -> None:
        data = {"near": Rows(4), "far": Rows(8)}
        trainer = trainer_of(callback, eval_strategy="epoch", max_steps=2, eval_dataset=data)
        trainer.train()
        assert str(course) == (
            "train[ 1 2 train] validation:near[ b validation:near] "
            "validation:far[ b b validation:far] epoch"
        )

    def test_a_resumed_training_goes_on_from_its_step(
        self, trainer_of: Callable[..., Any], tmp_path: Path, course: Course
    ) -> None:
        more: dict[str, Any] = {"save_strategy": "steps", "save_steps": 5, "logging_steps": 2}
        trainer_of(**more, num_train_epochs=1).train()
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        trainer_of(callback, **more).train(str(tmp_path / "checkpoints" / "checkpoint-5"))
        assert str(course) == (
            "train[ 6 7 8 train] epoch train[ 9 10 (checkpoint) 11 12 13 14 15 (checkpoint) 16 "
            "(checkpoint) train] epoch"
        )

    def test_the_report_counts_the_steps_of_this_recording(
        self, trainer_of: Callable[..., Any], tmp_path: Path
    ) -> None:
        more: dict[str, Any] = {"save_strategy": "steps", "save_steps": 5}
        trainer_of(**more, num_train_epochs=1).train()
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        trainer_of(callback, **more).train(str(tmp_path / "checkpoints" / "checkpoint-5"))
        run = open_run(tmp_path / "run")
        assert max(m.boundary.step for m in run.main.measurements) == 16
        work = analyse(run).work
        assert (work.steps, work.epochs) == (11, 2)

    def test_predictions_and_evaluations_outside_join_who_records(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        trainer = trainer_of(callback, max_steps=2)
        trainer.evaluate()
        assert str(course) == ""
        with leakscope.profile(tmp_path / "own", report=False, quiet=True) as scope:
            trainer.train()
            trainer.evaluate()
            trainer.predict(Rows(4))
            assert current_session() is not None
            assert scope.run_path == tmp_path / "own"
            assert not current_session().gate.is_phase_control_claimed  # type: ignore[union-attr]
        assert not (tmp_path / "run").exists()
        assert str(course) == ("train[ 1 2 train] epoch validation[ b b validation] test[ b test]")

    def test_what_comes_after_the_training_is_found_again(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            trainer_of(callback, max_steps=2).train()
            model = Model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in torch.utils.data.DataLoader(Rows(6), batch_size=2):
                model(**batch)["loss"].backward()
                optimizer.step()
        assert str(course) == "train[ 1 2 train] epoch train[ 3 4 5 train]"

    def test_a_trainer_with_an_evaluation_loop_of_its_own(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course
    ) -> None:
        class Own(Trainer):
            def evaluation_loop(self, dataloader: Any, *_: Any, **__: Any) -> Any:
                for _batch in dataloader:
                    self.callback_handler.on_prediction_step(self.args, self.state, self.control)
                return transformers.trainer_utils.EvalLoopOutput(None, None, {"eval_loss": 0.0}, 8)

        trainer_of(callback, kind=Own, eval_strategy="epoch", max_steps=1).train()
        assert str(course) == "train[ 1 train] validation[ b b validation] epoch"


class TestEndings:
    @pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()])
    def test_a_training_that_raises_ends_its_run_and_says_so(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, tmp_path: Path,
        error: BaseException,
    ) -> None:  # fmt: skip
        class Stops(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == 3:
                    raise error

        with pytest.raises(type(error)) as raised:
            trainer_of(Stops(), callback).train()
        assert raised.value is error
        files = {entry.path.name for entry in raised.traceback}
        assert files == {Path(__file__).name, "trainer.py", "trainer_callback.py"}
        assert current_session() is None
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        reported = {RuntimeError: ("exception", "RuntimeError: no more"),
                KeyboardInterrupt: ("interrupted", "KeyboardInterrupt")}  # fmt: skip
        assert (end.status, end.exception) == reported[type(error)]

    def test_the_next_training_after_one_that_failed_has_a_run_of_its_own(
        self, trainer_of: Callable[..., Any], course: Course, tmp_path: Path
    ) -> None:
        class Fails(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                raise RuntimeError("no more")

        def recorded(name: str) -> LeakScopeCallback:
            return LeakScopeCallback(out=tmp_path / name, report=False, quiet=True)

        with pytest.raises(RuntimeError):
            trainer_of(recorded("first"), Fails()).train()
        trainer_of(recorded("second"), max_steps=2).train()
        assert str(course) == "train[ 1 train] train[ 1 2 train] epoch"
        ends = [open_run(tmp_path / name).main.end for name in ("first", "second")]
        assert [end and end.status for end in ends] == ["exception", "completed"]

    def test_an_evaluation_that_raises_and_is_caught_ends_its_phase(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course
    ) -> None:
        class Careful(Trainer):
            def _evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
                try:
                    return super()._evaluate(*args, **kwargs)
                except ValueError:
                    return {"eval_loss": 0.0}

        def fails(_: Any) -> dict[str, float]:
            raise ValueError

        trainer_of(
            callback, kind=Careful, eval_strategy="steps", eval_steps=1, max_steps=2,
            compute_metrics=fails,
        ).train()  # fmt: skip
        phase = "validation[ b b validation]"
        assert str(course) == f"train[ 1 {phase} 2 {phase} train] {phase} epoch"

    def test_training_again_with_one_callback_makes_a_second_run(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        trainer = trainer_of(callback, max_steps=1)
        trainer.train()
        trainer.train()
        assert (tmp_path / "run").exists()
        assert (tmp_path / "run-2").exists()

    def test_two_of_them_in_one_trainer_count_once(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        second = LeakScopeCallback(out=tmp_path / "second", report=False, quiet=True)
        trainer_of(callback, second, max_steps=2, eval_strategy="epoch").train()
        assert str(course) == "train[ 1 2 train] validation[ b b validation] epoch"
        assert not (tmp_path / "second").exists()

    def test_a_training_that_begins_again_with_smaller_batches_counts_on_and_says_so(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        class Outgrown(Model):
            passes = 0

            def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
                self.passes += self.training
                if self.passes == 4:
                    raise RuntimeError("CUDA out of memory.")
                return super().forward(x, labels)

        trainer = trainer_of(
            callback, auto_find_batch_size=True, num_train_epochs=1, eval_strategy="epoch",
            per_device_train_batch_size=4,
        )  # fmt: skip
        trainer.model = trainer.model_wrapped = Outgrown()
        trainer.train()
        again = " ".join(str(3 + step) for step in range(1, trainer.state.global_step + 1))
        assert str(course) == (
            f"train[ 1 2 3 train] train[ {again} train] validation[ b b validation] epoch"
        )
        (note,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "begun-anew"]
        assert "anew after 3 steps" in note.message

    def test_trackers_get_the_steps_that_the_trainer_counts(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        messages: list[tuple[int, int]] = []

        class Looks(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                session = current_session()
                assert session is not None
                messages.append((session.tracker.step - session.trackers.ahead, state.global_step))

        class Fails(TrainerCallback):
            has_failed = False

            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == 2 and not self.has_failed:
                    self.has_failed = True
                    raise RuntimeError("CUDA out of memory.")

        more = {"auto_find_batch_size": True, "num_train_epochs": 1}
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            trainer_of(callback, Looks(), Fails(), **more).train()
            trainer_of(callback, Looks(), max_steps=2).train()
        assert len(messages) > 2 + 2
        assert all(drawn == counted for drawn, counted in messages)

    @pytest.mark.parametrize("added", ["at once", "later"])
    def test_one_that_was_added_twice_counts_once(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, course: Course,
        tmp_path: Path, added: str,
    ) -> None:  # fmt: skip
        class Counts(TrainerCallback):
            steps = 0

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                self.steps += 1

        own = Counts()
        more = {"max_steps": 2, "gradient_accumulation_steps": 2, "eval_strategy": "epoch"}
        trainer = trainer_of(own, callback, *([callback] * (added == "at once")), own, **more)
        if added == "later":
            trainer.add_callback(callback)
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            trainer.evaluate()
            trainer.train()
        validation = "validation[ b b validation]"
        assert str(course) == f"{validation} train[ b 1 b 2 train] {validation} epoch"
        assert own.steps == 4, "callbacks of the program's stay as they were given"


class TestTrainingIsUndisturbed:
    _plain: ClassVar[list[Any]] = []

    @pytest.fixture
    def plain(self, trainer_of: Callable[..., Any]) -> Any:
        if not self._plain:
            self._plain.append(self.trained(trainer_of))
        return self._plain[0]

    @staticmethod
    def trained(trainer_of: Callable[..., Any], *callbacks: Any) -> Any:
        trainer = trainer_of(
            *callbacks, gradient_accumulation_steps=2, eval_strategy="epoch", logging_steps=1,
            compute_metrics=lambda p: {"sum": float(p.predictions.sum())},
        )  # fmt: skip
        trainer.train()
        return trainer

    @staticmethod
    def log_history(trainer: Any) -> list[dict[str, float]]:
        timed = ("runtime", "per_second")
        return [
            {key: value for key, value in entry.items() if not key.endswith(timed)}
            for entry in trainer.state.log_history
        ]

    def test_the_result_is_the_same_bit_by_bit(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, plain: Any,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        observed = self.trained(trainer_of, callback)
        assert self.log_history(observed) == self.log_history(plain)
        assert all(map(torch.equal, weights(observed), weights(plain)))
        run = open_run(tmp_path / "run")
        assert run.main.end is not None
        assert run.main.end.status == "completed"
        assert not run.main.errors

    @pytest.mark.parametrize(
        "method",
        ["begin", "enter", "leave", "leave_all", "step", "batch", "end_epoch", "mark", "end",
         "note", "say", "fault", "phase", "leads", "session", "_start", "_join", "_dispatch"],
    )  # fmt: skip
    def test_no_fault_of_ours_changes_it(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, plain: Any, method: str,
        monkeypatch: pytest.MonkeyPatch, course: Course,
    ) -> None:  # fmt: skip
        kind = training_module.Training
        is_property = isinstance(getattr(kind, method), property)
        monkeypatch.setattr(kind, method, property(raiser) if is_property else raiser)
        observed = self.trained(trainer_of, callback)
        assert all(map(torch.equal, weights(observed), weights(plain)))
        assert self.log_history(observed) == self.log_history(plain)

    @pytest.mark.parametrize("part", ["worker_warnings", "length_of", "phase_of", "memory_figures"])
    def test_nor_does_one_in_what_it_calls(
        self, trainer_of: Callable[..., Any], plain: Any, part: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch, course: Course,
    ) -> None:  # fmt: skip
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True, log_every=1)
        monkeypatch.setattr(door if hasattr(door, part) else training, part, raiser)
        observed = self.trained(trainer_of, callback)
        assert all(map(torch.equal, weights(observed), weights(plain)))

    def test_after_many_faults_phases_are_found_as_without_it(
        self, trainer_of: Callable[..., Any], callback: LeakScopeCallback, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(training_module.Training, "step", raiser)
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            trainer_of(callback).train()
            session = current_session()
            assert session is not None
            assert not session.gate.is_phase_control_claimed
        errors = open_run(tmp_path / "own").main.errors
        assert [e.where for e in errors] == ["framework"] * 3
        assert errors[-1].disabled

    def test_trainer_and_callback_are_let_go_of_and_the_class_is_as_it_was(
        self, trainer_of: Callable[..., Any], course: Course, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(door, "_methods", type(door._methods)(door._wrapped))
        train, evaluation_loop = Trainer.train, Trainer.evaluation_loop
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        assert Trainer.train.__wrapped__ is train
        trainer = trainer_of(callback, max_steps=1)
        trainer.train()
        gone = [weakref.ref(trainer), weakref.ref(callback), weakref.ref(trainer.model)]
        del trainer, callback
        gc.collect()
        assert [reference() for reference in gone] == [None] * 3
        assert Trainer.train is train
        assert Trainer.evaluation_loop is evaluation_loop

    def test_a_trainer_without_the_wrapped_methods_still_tells_by_its_events(
        self, trainer_of: Callable[..., Any], course: Course, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(door, "_methods", type(door._methods)(door._wrapped))
        monkeypatch.delattr(Trainer, "evaluation_loop")
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        trainer_of(callback, max_steps=2).train()
        assert str(course) == "train[ 1 2 train] epoch"

    def test_nothing_is_recorded_where_the_environment_says_so(
        self, trainer_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, course: Course,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("LEAKSCOPE", "off")
        trainer_of(LeakScopeCallback(out=tmp_path / "run"), max_steps=1).train()
        assert not course.words
        assert not (tmp_path / "run").exists()

    def test_a_copy_of_the_callback_records_for_itself(self, callback: LeakScopeCallback) -> None:
        callback.training.begin()
        try:
            copy = pickle.loads(pickle.dumps(callback))
        finally:
            callback.training.end()
        assert copy.training.session is None
        assert not copy.training.leads


class TestWhatPeopleKeepByHand:
    def test_memory_is_logged_through_the_trainers_own_log(
        self, trainer_of: Callable[..., Any], tmp_path: Path, course: Course
    ) -> None:
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True, log_every=2)
        trainer = trainer_of(callback, max_steps=6, logging_steps=3)
        trainer.train()
        history = trainer.state.log_history
        figures = {e["step"]: e["leakscope/host_mib"] for e in history if "leakscope/host_mib" in e}
        assert list(figures) == [2, 4, 6]
        assert min(figures.values()) > 1
        assert [e["step"] for e in history if "loss" in e] == [3, 6]

    def test_what_a_callback_of_the_users_raises_in_that_log_is_its_own(
        self, trainer_of: Callable[..., Any], tmp_path: Path, course: Course
    ) -> None:
        class Refuses(TrainerCallback):
            def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                raise LookupError

        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True, log_every=1)
        with pytest.raises(LookupError):
            trainer_of(callback, Refuses(), max_steps=2).train()

    def test_the_gain_of_regular_cleanups_is_reported(
        self, trainer_of: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str],
        course: Course,
    ) -> None:  # fmt: skip
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, cleanup_every=2)
        trainer_of(callback).train()
        reported = next(n for n in open_run(tmp_path / "run").main.notes if n.slug == "cleanup")
        assert reported.message.startswith("cleanup_every(2) freed ")
        assert "in 8 cleanups of" in reported.message
        assert reported.message in capsys.readouterr().err

    @pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()])
    def test_the_gain_is_reported_of_a_training_that_is_broken_off_too(
        self, trainer_of: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str],
        error: BaseException,
    ) -> None:  # fmt: skip
        class Stops(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == 4:
                    raise error

        callback = LeakScopeCallback(out=tmp_path / "run", report=False, cleanup_every=2)
        with pytest.raises(type(error)):
            trainer_of(callback, Stops()).train()
        (reported,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "cleanup"]
        assert "in 2 cleanups of" in reported.message
        assert capsys.readouterr().err.count(reported.message) == 1

    def test_open_images_next_to_workers_are_reported(
        self, trainer_of: Callable[..., Any], tmp_path: Path, callback: LeakScopeCallback,
        course: Course,
    ) -> None:  # fmt: skip
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")

        class Photos(Rows):
            def __init__(self) -> None:
                super().__init__(8)
                self.images = [image.open(tmp_path / "image.png")]

        data = Photos()
        trainer = trainer_of(callback, max_steps=1, dataloader_num_workers=1)
        trainer.train_dataset = data
        trainer.train()
        data.images[0].close()
        (note,) = open_run(tmp_path / "run").main.notes
        assert note.message.startswith(
            "Photos.images keeps open PIL images beside 1 DataLoader worker: forked workers share "
        )

    def test_those_of_the_data_of_an_evaluation_too(
        self, trainer_of: Callable[..., Any], tmp_path: Path, callback: LeakScopeCallback,
        course: Course,
    ) -> None:  # fmt: skip
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")
        data = Rows(8)
        with image.open(tmp_path / "image.png") as data.image:
            trainer_of(
                callback, max_steps=2, eval_strategy="steps", eval_steps=1, eval_dataset=data,
                dataloader_num_workers=1,
            ).train()  # fmt: skip
        (note,) = open_run(tmp_path / "run").main.notes
        assert note.message.startswith("Rows.image keeps open PIL images beside 1 DataLoader")

    @pytest.mark.parametrize("option", [{"log_every": 0}, {"cleanup_every": 0}, {"budget": 7}])
    def test_options_without_sense_are_refused_at_once(self, option: dict[str, int]) -> None:
        with pytest.raises((ValueError, leakscope.model.errors.LeakscopeError)):
            LeakScopeCallback(**option)


def test_the_snippet_of_the_page_works(
    trainer_of: Callable[..., Any], course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_REPORT", "false")
    arguments = trainer_of(max_steps=2).args
    run_snippet(
        "Hugging Face transformers", model=Model(), arguments=arguments, train_data=Rows(4),
        eval_data=Rows(2),
    )  # fmt: skip
    assert str(course) == "train[ 1 2 train] epoch"
    assert list((tmp_path / "leakscope-runs").iterdir())


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("transformers")
    with Warm("torch", "transformers", "transformers.trainer") as programs:
        return {
            form: report_of("with_transformers", form, programs, folder)
            for form in ("train", "train_fixed")
        }


def test_a_planted_leak_is_named_with_line_and_rate(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train"]
    assert report["verdict"] == "leak"
    first = report["culprits"][0]
    assert first["name"] == "Metrics.evaluations"
    assert "self.evaluations.append(" in line_at("with_transformers", first["fed_at"][0])
    assert first["unit"] in ("epoch", "validation")
    assert first["bytes_per_unit"] == pytest.approx(512 * 1000 * FLOAT, rel=0.1)
    assert (report["work"]["steps"], report["work"]["validations"]) == (320, 8)


def test_its_healthy_form_is_clean(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train_fixed"]
    assert report["verdict"] == "clean", alarms(report)
    assert report["work"]["epochs"] == 8
