"""The handlers in real engines of PyTorch-Ignite."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from course import Course, raiser, run_snippet
from torch import nn
from torch.utils.data import DataLoader, Dataset
from warm import Warm

import leakscope
from examples import alarms, line_at, report_of
from leakscope.capture.session import current_session
from leakscope.recording import open_run

pytest.importorskip("ignite")
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver

from leakscope.capture.frameworks import ignite as handlers
from leakscope.capture.frameworks import training as training_module
from leakscope.ignite import LeakScope

pytestmark = pytest.mark.slow

FLOAT = 4


class Engines:
    """A trainer that steps every so many iterations, and an evaluator that it runs."""

    def __init__(self, accumulation: int = 1) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train(engine: Engine, batch: torch.Tensor) -> None:
            self.model(batch).square().mean().backward()
            if engine.state.iteration % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()

        self.trainer = Engine(train)
        self.evaluator = Engine(lambda _, batch: None)
        self.data = list(torch.rand(4, 2, 8, generator=torch.Generator().manual_seed(1)))

    def evaluate(self, _: Engine) -> None:
        self.evaluator.run(self.data[:2])

    def run(self, epochs: int = 2) -> list[torch.Tensor]:
        self.trainer.run(self.data, max_epochs=epochs)
        return [p.detach().clone() for p in self.model.parameters()]


class Rows(Dataset[torch.Tensor]):
    image: Any = None

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(8)


@pytest.fixture
def scope(tmp_path: Path) -> LeakScope:
    return LeakScope(out=tmp_path / "run", report=False, quiet=True)


class TestPhasesAndSteps:
    @pytest.mark.parametrize("order", ["before", "after"])
    def test_gathered_gradients_and_an_evaluation_after_each_epoch(
        self, scope: LeakScope, course: Course, order: str
    ) -> None:
        engines = Engines(accumulation=2)
        evaluate = Events.EPOCH_COMPLETED, engines.evaluate
        if order == "before":
            engines.trainer.add_event_handler(*evaluate)
        scope.attach(engines.trainer, {"val": engines.evaluator})
        if order == "after":
            engines.trainer.add_event_handler(*evaluate)
        engines.run()
        assert str(course) == (
            "train[ b 1 b 2 train] validation[ b b validation] epoch "
            "train[ b 3 b 4 train] validation[ b b validation] epoch"
        )
        assert course.expected == {"train": 4, "validation": 2}
        assert current_session() is None

    def test_evaluations_every_few_iterations_and_several_evaluators(
        self, scope: LeakScope, course: Course
    ) -> None:
        engines, other = Engines(), Engines()
        scope.attach(
            engines.trainer,
            {"val": engines.evaluator, "near": other.evaluator, "test": other.trainer},
        )
        engines.trainer.add_event_handler(Events.ITERATION_COMPLETED(every=3), engines.evaluate)
        engines.trainer.add_event_handler(Events.EPOCH_COMPLETED, other.evaluate)
        engines.run(epochs=1)
        assert str(course) == (
            "train[ 1 2 3 validation[ b b validation] 4 train] "
            "validation:near[ b b validation:near] epoch"
        )

    def test_an_evaluation_by_a_handler_that_was_added_before_comes_after_its_step(
        self, scope: LeakScope, course: Course
    ) -> None:
        engines = Engines(accumulation=2)
        for event in (Events.ITERATION_COMPLETED(every=2), Events.EPOCH_COMPLETED):
            engines.trainer.add_event_handler(event, engines.evaluate)
        scope.attach(engines.trainer, evaluators={"val": engines.evaluator})
        engines.run(epochs=1)
        validation = "validation[ b b validation]"
        assert str(course) == f"train[ b 1 {validation} b 2 {validation} train] {validation} epoch"

    @pytest.mark.parametrize("ending", ["raises", "terminates", "raises where others listen"])
    def test_an_evaluation_that_is_broken_off_ends_its_phase(
        self, scope: LeakScope, course: Course, ending: str
    ) -> None:
        engines = Engines()

        def breaks_off(engine: Engine) -> None:
            if ending == "terminates":
                engine.terminate(skip_completed=True)
            else:
                raise ValueError

        engines.evaluator.add_event_handler(Events.ITERATION_STARTED(once=2), breaks_off)
        if ending.endswith("listen"):
            engines.evaluator.add_event_handler(Events.EXCEPTION_RAISED, lambda *_: None)

        def evaluate(engine: Engine) -> None:
            with suppress(ValueError):
                engines.evaluate(engine)

        scope.attach(engines.trainer, evaluators={"val": engines.evaluator})
        engines.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), evaluate)
        engines.run(epochs=1)
        assert str(course) == "train[ 1 2 validation[ b validation] 3 4 train] epoch"

    def test_one_that_is_attached_twice_counts_once(self, scope: LeakScope, course: Course) -> None:
        engines = Engines(accumulation=2)
        scope.attach(engines.trainer)
        scope.attach(engines.trainer, {"val": engines.evaluator})
        scope.attach(engines.trainer, {"val": engines.evaluator})
        engines.trainer.add_event_handler(Events.EPOCH_COMPLETED, engines.evaluate)
        engines.run(epochs=1)
        assert str(course) == "train[ b 1 b 2 train] validation[ b b validation] epoch"

    def test_a_resumed_run_goes_on_from_its_iteration(
        self, scope: LeakScope, course: Course
    ) -> None:
        engines = Engines()
        scope.attach(engines.trainer)
        engines.trainer.load_state_dict({"epoch": 1, "epoch_length": 4, "max_epochs": 2})
        engines.run()
        assert str(course) == "train[ 5 6 7 8 train] epoch"
        assert course.epochs == [1]

    @pytest.mark.parametrize("order", ["before", "after"])
    @pytest.mark.parametrize("saved_at", [3, 4, 5, 6])
    def test_a_checkpoint_tells_how_many_iterations_were_steps(
        self, course: Course, tmp_path: Path, order: str, saved_at: int
    ) -> None:
        def run(folder: str, resume: bool) -> None:
            engines = Engines(accumulation=2)
            own = LeakScope(out=tmp_path / folder, report=False, quiet=True)
            parts = {"trainer": engines.trainer, "model": engines.model, "leakscope": own}
            saver = Checkpoint(parts, DiskSaver(tmp_path / "saved", require_empty=False))
            if resume:
                (file,) = (tmp_path / "saved").iterdir()
                Checkpoint.load_objects(parts, torch.load(file))
            attach = [
                lambda: own.attach(engines.trainer),
                lambda: engines.trainer.add_event_handler(
                    Events.ITERATION_COMPLETED(once=saved_at), saver
                ),
            ]
            for item in attach if order == "before" else reversed(attach):
                item()
            engines.run()

        run("whole", resume=False)
        whole = str(course).replace("epoch", "").split()
        course.words.clear()
        course.epochs.clear()
        run("resumed", resume=True)
        done = saved_at - 4 if saved_at > 4 else saved_at
        rest = {3: "2 train] epoch train[ b 3 b 4", 4: "b 3 b 4", 5: "3 b 4", 6: "b 4"}[saved_at]
        assert " ".join(whole) == "train[ b 1 b 2 train] train[ b 3 b 4 train]"
        assert str(course) == f"train[ {rest} train] epoch"
        assert course.epochs == ([0, 1] if saved_at == 3 else [1])
        if saved_at > 4:
            assert course.expected == {"train": 4 - done}

    def test_ignites_own_trainer_tells_how_many_iterations_a_step_takes(
        self, scope: LeakScope, course: Course
    ) -> None:
        model = nn.Linear(8, 4)
        trainer = create_supervised_trainer(
            model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss(),
            gradient_accumulation_steps=2,
        )  # fmt: skip
        scope.attach(trainer)
        trainer.load_state_dict({"epoch": 1, "epoch_length": 4, "max_epochs": 2})
        trainer.run([(torch.rand(2, 8), torch.rand(2, 4))] * 4)
        assert str(course) == "train[ b 3 b 4 train] epoch"

    def test_an_evaluator_of_two_names_counts_each_batch_once(
        self, scope: LeakScope, course: Course
    ) -> None:
        engines = Engines()
        names = {"val": engines.evaluator, "train": engines.evaluator}
        scope.attach(engines.trainer, names)
        engines.trainer.add_event_handler(Events.EPOCH_COMPLETED, engines.evaluate)
        engines.run(epochs=1)
        assert str(course) == "train[ 1 2 3 4 train] validation[ b b validation] epoch"

    def test_a_run_that_was_terminated_goes_on(
        self, scope: LeakScope, course: Course, tmp_path: Path
    ) -> None:
        engines = Engines(accumulation=2)
        scope.attach(engines.trainer)
        stop = Events.ITERATION_COMPLETED(once=6), lambda engine: engine.terminate()
        engines.trainer.add_event_handler(*stop)
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            engines.run(epochs=3)
            assert str(course) == "train[ b 1 b 2 train] epoch train[ b 3 train] epoch"
            course.words.clear()
            engines.run(epochs=3)
        assert str(course) == "train[ b 4 b 5 train] epoch"
        assert (course.epochs, course.expected) == ([0, 1, 2], {"train": 4})

    @pytest.mark.parametrize("skips", [False, True])
    def test_a_run_that_is_terminated_ends(
        self, scope: LeakScope, course: Course, tmp_path: Path, skips: bool
    ) -> None:
        engines = Engines()
        scope.attach(engines.trainer)
        engines.trainer.add_event_handler(
            Events.ITERATION_COMPLETED(once=2), lambda e: e.terminate(skip_completed=skips)
        )
        engines.run()
        assert str(course) == "train[ 1 2 train] epoch"
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        assert end.status == "completed"

    def test_it_joins_who_records(self, scope: LeakScope, course: Course, tmp_path: Path) -> None:
        engines = Engines()
        scope.attach(engines.trainer, {"val": engines.evaluator})
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            engines.run(epochs=1)
            engines.evaluator.run(engines.data[:1])
            assert current_session() is not None
        assert str(course) == "train[ 1 2 3 4 train] epoch validation[ b validation]"
        assert not (tmp_path / "run").exists()


class TestUpkeep:
    def test_memory_lies_among_the_metrics_every_few_steps(
        self, course: Course, tmp_path: Path
    ) -> None:
        seen: list[set[str]] = []
        engines = Engines()
        LeakScope(log_every=3, out=tmp_path / "run", report=False, quiet=True).attach(
            engines.trainer
        )

        def look(engine: Engine) -> None:
            seen.append(set(engine.state.metrics))
            engine.state.metrics.clear()

        engines.trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
        engines.run()
        assert seen == [{"leakscope/host_mib"} if i % 3 == 0 else set() for i in range(1, 9)]

    def test_regular_cleanups_tell_what_they_gained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        engines = Engines()
        LeakScope(cleanup_every=2, out=tmp_path / "run", report=False).attach(engines.trainer)
        engines.run()
        notes = [note.message for note in open_run(tmp_path / "run").main.notes]
        (reported,) = [note for note in notes if note.startswith("cleanup_every(2) freed")]
        assert "in 4 cleanups" in reported
        assert reported in capsys.readouterr().err

    def test_workers_with_open_images_are_reported(self, course: Course, tmp_path: Path) -> None:
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")
        engines, data = Engines(), Rows()
        scope = LeakScope(out=tmp_path / "run", report=False, quiet=True).attach(engines.trainer)
        with image.open(tmp_path / "image.png") as data.image:
            engines.trainer.run(DataLoader(data, 2, num_workers=1), max_epochs=1)
        assert scope.training.session is None
        (note,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "workers"]
        assert note.message.startswith("Rows.image keeps open PIL images beside 1 DataLoader")

    def test_numbers_below_one_are_refused(self) -> None:
        with pytest.raises(ValueError, match="log_every"):
            LeakScope(log_every=0)
        with pytest.raises(ValueError, match="cleanup_every"):
            LeakScope(cleanup_every=0)


class TestEndings:
    @staticmethod
    def failing(error: BaseException) -> Engines:
        engines = Engines()

        def fail(_: Engine) -> None:
            raise error

        engines.trainer.add_event_handler(Events.ITERATION_STARTED(once=3), fail)
        return engines

    @pytest.mark.parametrize(
        ("error", "reported"),
        [
            (RuntimeError("no more"), ("exception", "RuntimeError: no more")),
            (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
        ],
    )
    def test_a_run_that_raises_ends_and_says_so(
        self, scope: LeakScope, tmp_path: Path, error: BaseException, reported: tuple[str, str]
    ) -> None:
        engines = self.failing(error)
        scope.attach(engines.trainer)
        with pytest.raises(type(error)) as raised:
            engines.run()
        assert raised.value is error
        assert current_session() is None
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        assert (end.status, end.exception) == reported

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_who_else_listens_decides_whether_the_run_goes_on(
        self, scope: LeakScope, course: Course, order: str
    ) -> None:
        heard = []
        engines = self.failing(RuntimeError("passed over"))
        listen = Events.EXCEPTION_RAISED, lambda _, error: heard.append(str(error))
        if order == "before":
            engines.trainer.add_event_handler(*listen)
        scope.attach(engines.trainer)
        if order == "after":
            engines.trainer.add_event_handler(*listen)
        engines.run()
        assert heard == ["passed over"]
        assert str(course) == "train[ 1 2 train] epoch train[ 3 4 5 6 train] epoch"

    def test_an_epoch_that_an_error_broke_off_is_not_counted(
        self, scope: LeakScope, course: Course
    ) -> None:
        engines = self.failing(RuntimeError("no more"))
        scope.attach(engines.trainer)
        with pytest.raises(RuntimeError):
            engines.run()
        assert str(course) == "train[ 1 2 train]"

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_an_error_that_another_listener_passes_on_ends_the_run(
        self, scope: LeakScope, course: Course, tmp_path: Path, order: str
    ) -> None:
        def passes_on(_: Engine, error: BaseException) -> None:
            raise error

        engines = self.failing(RuntimeError("no more"))
        listen = Events.EXCEPTION_RAISED, passes_on
        if order == "before":
            engines.trainer.add_event_handler(*listen)
        scope.attach(engines.trainer)
        if order == "after":
            engines.trainer.add_event_handler(*listen)
        with pytest.raises(RuntimeError):
            engines.run()
        again = Engines()
        LeakScope(out=tmp_path / "again", report=False, quiet=True).attach(again.trainer)
        again.run(epochs=1)
        assert str(course) == "train[ 1 2 train] train[ 1 2 3 4 train] epoch"
        ends = [open_run(tmp_path / name).main.end for name in ("run", "again")]
        assert [end and end.status for end in ends] == ["exception", "completed"]

    def test_engines_are_let_go_of(self, scope: LeakScope, course: Course) -> None:
        engines = Engines()
        scope.attach(engines.trainer, {"val": engines.evaluator})
        engines.run(epochs=1)
        gone = [weakref.ref(engines.trainer), weakref.ref(engines.model)]
        del engines
        gc.collect()
        assert [reference() for reference in gone] == [None, None]


class TestTrainingIsUndisturbed:
    _plain: ClassVar[list[list[torch.Tensor]]] = []

    @pytest.fixture
    def plain(self) -> list[torch.Tensor]:
        if not self._plain:
            self._plain.append(self.trained())
        return self._plain[0]

    @staticmethod
    def trained(attach: Callable[..., Any] | None = None) -> list[torch.Tensor]:
        engines = Engines(accumulation=2)
        if attach is not None:
            attach(engines.trainer, {"val": engines.evaluator})
        engines.trainer.add_event_handler(Events.EPOCH_COMPLETED, engines.evaluate)
        return engines.run()

    def test_the_result_is_the_same_bit_by_bit(
        self, scope: LeakScope, plain: list[torch.Tensor], tmp_path: Path
    ) -> None:
        assert all(map(torch.equal, self.trained(scope.attach), plain))
        run = open_run(tmp_path / "run").main
        assert run.end is not None
        assert not run.errors

    @pytest.mark.parametrize(
        "method",
        ["begin", "resume", "enter", "leave", "leave_all", "step", "batch", "end_epoch", "end",
         "fault", "session", "_start", "_join", "_dispatch"],
    )  # fmt: skip
    def test_no_fault_of_ours_changes_it(
        self, scope: LeakScope, plain: list[torch.Tensor], method: str, course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        kind = training_module.Training
        is_property = isinstance(getattr(kind, method), property)
        monkeypatch.setattr(kind, method, property(raiser) if is_property else raiser)
        assert all(map(torch.equal, self.trained(scope.attach), plain))

    @pytest.mark.parametrize("method", ["listen", "stepped_since_last_query", "close"])
    def test_nor_does_one_in_what_it_calls(
        self, scope: LeakScope, plain: list[torch.Tensor], method: str, course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        with monkeypatch.context() as patches:
            patches.setattr(handlers.OptimizerSteps, method, raiser)
            assert all(map(torch.equal, self.trained(scope.attach), plain))
        scope._steps.close()

    @pytest.mark.parametrize("method", ["begin", "step", "end"])
    def test_nor_one_in_its_upkeep(
        self, plain: list[torch.Tensor], method: str, course: Course, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        scope = LeakScope(
            log_every=1, cleanup_every=1, out=tmp_path / "run", report=False, quiet=True
        )
        monkeypatch.setattr(handlers.Upkeep, method, raiser)
        assert all(map(torch.equal, self.trained(scope.attach), plain))


def test_the_snippet_of_the_page_works(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_REPORT", "false")
    own = Engines()
    run_snippet(
        "PyTorch-Ignite", trainer=own.trainer, evaluator=own.evaluator, train_loader=own.data[:1]
    )
    assert str(course) == "train[ 1 train] epoch train[ 2 train] epoch"
    run_snippet("PyTorch-Ignite", 2, LeakScope=LeakScope, trainer=own.trainer, model=own.model)
    own.trainer.run(own.data[:1], max_epochs=3)
    assert list((tmp_path / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ignite")
    with Warm("torch", "ignite.engine") as programs:
        return {
            form: report_of("with_ignite", form, programs, folder)
            for form in ("train", "train_fixed")
        }


def test_a_planted_leak_is_named_with_line_and_rate(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train"]
    assert report["verdict"] == "leak"
    first = report["culprits"][0]
    assert first["name"].rpartition(".")[2] == "outputs"
    assert "outputs.append(" in line_at("with_ignite", first["fed_at"][0])
    assert first["unit"] in ("epoch", "validation")
    assert first["bytes_per_unit"] == pytest.approx(512 * 1000 * FLOAT, rel=0.1)
    assert (report["work"]["steps"], report["work"]["validations"]) == (320, 8)


def test_its_healthy_form_is_clean(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train_fixed"]
    assert report["verdict"] == "clean", alarms(report)
    assert report["work"]["epochs"] == 8
