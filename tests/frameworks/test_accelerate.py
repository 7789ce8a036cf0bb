"""The tracker in real loops with Accelerate."""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from course import Course, raiser, run_snippet
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from warm import Warm

import leakscope
from examples import alarms, line_at, report_of
from leakscope.capture.session import current_session
from leakscope.recording import open_run

pytest.importorskip("accelerate")
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.tracking import GeneralTracker
from accelerate.utils import DataLoaderConfiguration

from leakscope.accelerate import LeakScopeTracker
from leakscope.capture.frameworks import accelerate as door
from leakscope.capture.frameworks import training as training_module

pytestmark = pytest.mark.slow

FLOAT = 4


class Logged(GeneralTracker):
    """What a tracker of somebody else's gets."""

    name = "logged"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[int | None, dict[str, float]]] = []

    @property
    def tracker(self) -> Logged:
        return self

    def log(self, values: dict[str, float], step: int | None = None, **_: Any) -> None:
        self.entries.append((step, values))


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Accelerate keeps what it is in classes."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.fixture
def tracker(tmp_path: Path) -> LeakScopeTracker:
    return LeakScopeTracker(out=tmp_path / "run", report=False, quiet=True)


def train(*trackers: Any, epochs: int = 2, neighbour: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=list(trackers))
    if neighbour:
        trackers[0].log_to_trackers_of(accelerator)
    accelerator.init_trackers("test", config={"epochs": epochs})
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = TensorDataset(torch.rand(16, 8, generator=torch.Generator().manual_seed(1)))
    model, optimizer, loader, val_loader = accelerator.prepare(
        model, optimizer, DataLoader(rows, 2), DataLoader(rows, 8)
    )
    for epoch in range(epochs):
        model.train()
        for (batch,) in loader:
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for (batch,) in val_loader:
                model(batch)
        accelerator.log({"loss": loss.item()}, step=epoch)
    accelerator.end_training()
    return [p.detach().clone() for p in model.parameters()]


class TestPhasesAndSteps:
    def test_a_plain_loop_with_gathered_gradients(
        self, tracker: LeakScopeTracker, course: Course, tmp_path: Path
    ) -> None:
        train(tracker)
        assert str(course) == (
            "train[ b 1 b 2 b 3 b 4 train] validation[ b b validation] "
            "train[ b 5 b 6 b 7 b 8 train] validation[ b b validation]"
        )
        assert course.expected == {"train": 8, "validation": 2}
        assert current_session() is None
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        assert end.status == "completed"

    def test_an_evaluation_every_few_steps_lies_within_the_training(
        self, tracker: LeakScopeTracker, course: Course
    ) -> None:
        accelerator = Accelerator(cpu=True, log_with=[tracker])
        accelerator.init_trackers("test")
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = TensorDataset(torch.rand(8, 8))
        model, optimizer, loader, val_loader = accelerator.prepare(
            model, optimizer, DataLoader(rows, 2), DataLoader(rows, 4)
        )
        steps = 0
        for _ in range(2):
            model.train()
            for (batch,) in loader:
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                if steps % 3 == 0:
                    model.eval()
                    with torch.no_grad():
                        for (held,) in val_loader:
                            model(held)
                    model.train()
        accelerator.end_training()
        assert str(course) == (
            "train[ 1 2 3 validation[ b b validation] 4 train] "
            "train[ 5 6 validation[ b b validation] 7 8 train]"
        )
        assert course.epochs == [0, 1]

    def test_it_joins_who_records(
        self, tracker: LeakScopeTracker, course: Course, tmp_path: Path
    ) -> None:
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            train(tracker, epochs=1)
            assert current_session() is not None
        assert str(course) == "train[ b 1 b 2 b 3 b 4 train] validation[ b b validation]"
        assert not (tmp_path / "run").exists()


class TestItsLoaders:
    @staticmethod
    def prepared(batches: int, accumulation: int = 1, **how: Any) -> tuple[Any, ...]:
        configuration = DataLoaderConfiguration(**how)
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=accumulation, dataloader_config=configuration
        )
        model = nn.Linear(8, 4)
        rows = TensorDataset(torch.rand(2 * batches, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return accelerator, *accelerator.prepare(model, optimizer, DataLoader(rows, 2))

    @staticmethod
    def train(accelerator: Any, model: Any, optimizer: Any, loader: Any, most: int = 99) -> None:
        model.train()
        for index, (batch,) in enumerate(loader):
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).sum())
                optimizer.step()
                optimizer.zero_grad()
            if index + 1 == most:
                break

    @pytest.mark.parametrize("dispatches", [False, True])
    def test_the_last_step_of_an_epoch_takes_the_batches_that_are_left(
        self, course: Course, tmp_path: Path, dispatches: bool
    ) -> None:
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            parts = self.prepared(5, accumulation=2, dispatch_batches=dispatches)
            self.train(*parts)
            self.train(*parts)
        assert str(course) == "train[ b 1 b 2 3 train] train[ b 4 b 5 6 train]"

    def test_a_loop_that_is_left_early(self, course: Course, tmp_path: Path) -> None:
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            parts = self.prepared(5)
            self.train(*parts, most=2)
            self.train(*parts)
        assert str(course) == "train[ 1 2 train] train[ 3 4 5 6 7 train]"

    def test_batches_that_are_skipped_where_it_resumes(
        self, course: Course, tmp_path: Path
    ) -> None:
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            accelerator, model, optimizer, loader = self.prepared(5)
            rest = accelerator.skip_first_batches(loader, 3)
            self.train(accelerator, model, optimizer, rest)
        assert str(course) == "train[ 1 2 train]"

    def test_a_batch_that_can_not_be_made_raises_without_our_frames(
        self, course: Course, tmp_path: Path
    ) -> None:
        def fail(_: Any) -> Any:
            raise ZeroDivisionError

        def raised() -> list[str]:
            accelerator = Accelerator(cpu=True)
            loader = accelerator.prepare(DataLoader([1, 2], collate_fn=fail))
            with pytest.raises(ZeroDivisionError) as error:
                next(iter(loader))
            return [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]

        plain = raised()
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            assert raised() == plain

    def test_a_batch_is_let_go_of_and_the_classes_are_as_they_were(
        self, course: Course, tmp_path: Path
    ) -> None:
        original = DataLoaderShard.__iter__
        with leakscope.profile(tmp_path / "run", report=False, quiet=True):
            loader = self.prepared(3)[-1]
            batches = iter(loader)
            assert type(batches).__name__ == "generator"
            (batch,) = next(batches)
            gone = weakref.ref(batch)
            del batch
            next(batches)
            assert gone() is None
        assert DataLoaderShard.__iter__ is original


class TestBesideTheLoss:
    def test_memory_is_drawn_by_the_other_trackers(
        self, tracker: LeakScopeTracker, course: Course
    ) -> None:
        logged = Logged()
        train(tracker, logged, neighbour=True)
        figures = [(step, entry) for step, entry in logged.entries if "leakscope/host_mib" in entry]
        assert [step for step, _ in figures] == [0, 1]
        assert min(entry["leakscope/host_mib"] for _, entry in figures) > 1
        assert [step for step, entry in logged.entries if set(entry) == {"loss"}] == [0, 1]

    def test_it_is_not_drawn_a_second_time(self, tracker: LeakScopeTracker, tmp_path: Path) -> None:
        pytest.importorskip("tensorboard")
        from accelerate.tracking import TensorBoardTracker
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        train(tracker, TensorBoardTracker("logs", logging_dir=tmp_path), neighbour=True)
        drawn = EventAccumulator(str(tmp_path / "logs"))
        drawn.Reload()
        steps = [event.step for event in drawn.Scalars("leakscope/host_mib")]
        assert steps == [0, 1], "as often as the program logs"

    def test_nothing_is_logged_unless_requested(
        self, tracker: LeakScopeTracker, course: Course
    ) -> None:
        logged = Logged()
        train(tracker, logged)
        assert [set(entry) for _, entry in logged.entries] == [{"loss"}] * 2

    def test_open_images_next_to_workers_are_reported(
        self, tracker: LeakScopeTracker, course: Course, tmp_path: Path
    ) -> None:
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")
        rows: Any = TensorDataset(torch.ones(4, 2))
        accelerator = Accelerator(cpu=True, log_with=[tracker])
        tracker.log_to_trackers_of(accelerator)
        with image.open(tmp_path / "image.png") as rows.image:
            accelerator.init_trackers("test")
            accelerator.prepare(DataLoader(rows, num_workers=1))
            accelerator.log({"loss": 1.0})
            accelerator.log({"loss": 0.5})
        accelerator.end_training()
        (note,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "workers"]
        assert note.message.startswith("TensorDataset.image keeps open PIL images beside 1 Data")


class TestTrainingsThatTellNoEnd:
    """Accelerate tells trackers nothing of an exception: a run ends when its tracker is gone."""

    @staticmethod
    def recorded(folder: Path) -> LeakScopeTracker:
        return LeakScopeTracker(out=folder, report=False, quiet=True)

    @staticmethod
    def ended(folder: Path) -> str | None:
        end = open_run(folder).main.end
        return None if end is None else end.status

    def test_the_run_of_a_tracker_that_is_gone_is_closed(
        self, course: Course, tmp_path: Path
    ) -> None:
        tracker = self.recorded(tmp_path / "first")
        tracker.start()
        assert current_session() is not None
        del tracker
        assert current_session() is None
        assert self.ended(tmp_path / "first") == "detached"
        train(self.recorded(tmp_path / "second"))
        assert self.ended(tmp_path / "second") == "completed"

    def test_a_training_that_joined_goes_on_and_ends_the_run(
        self, course: Course, tmp_path: Path
    ) -> None:
        first, second = self.recorded(tmp_path / "first"), self.recorded(tmp_path / "second")
        first.start()
        second.start()
        del first
        assert current_session() is not None
        second.finish()
        assert current_session() is None
        assert self.ended(tmp_path / "first") == "completed"
        assert not (tmp_path / "second").exists()

    def test_a_run_lost_in_the_middle_of_an_event_is_closed_by_the_next_training(
        self, course: Course, tmp_path: Path
    ) -> None:
        trackers = [self.recorded(tmp_path / "first")]
        trackers[0].start()
        session = current_session()
        assert session is not None
        session.gate.dispatch(trackers.clear)
        assert session.is_live
        second = self.recorded(tmp_path / "second")
        second.start()
        assert not session.is_live
        assert self.ended(tmp_path / "first") == "detached"
        second.finish()
        assert self.ended(tmp_path / "second") == "completed"

    def test_a_tracker_that_records_again_after_another_closed_its_run_has_a_new_one(
        self, course: Course, tmp_path: Path
    ) -> None:
        tracker = self.recorded(tmp_path / "run")
        tracker.start()
        session = current_session()
        assert session is not None
        session.close(status="completed")
        tracker.start()
        assert current_session() is not None
        tracker.finish()
        assert self.ended(tmp_path / "run-2") == "completed"


class TestTrainingIsUndisturbed:
    _plain: ClassVar[list[list[torch.Tensor]]] = []

    @pytest.fixture
    def plain(self) -> list[torch.Tensor]:
        if not self._plain:
            self._plain.append(train())
        return self._plain[0]

    def test_the_result_is_the_same_bit_by_bit(
        self, tracker: LeakScopeTracker, plain: list[torch.Tensor], tmp_path: Path
    ) -> None:
        assert all(map(torch.equal, train(tracker), plain))
        assert not open_run(tmp_path / "run").main.errors

    @pytest.mark.parametrize(
        "method", ["begin", "end", "fault", "session", "leave_all", "_start", "_join"]
    )
    def test_no_fault_of_ours_changes_it(
        self, tracker: LeakScopeTracker, plain: list[torch.Tensor], method: str, course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        kind = training_module.Training
        is_property = isinstance(getattr(kind, method), property)
        monkeypatch.setattr(kind, method, property(raiser) if is_property else raiser)
        assert all(map(torch.equal, train(tracker, Logged(), neighbour=True), plain))

    def test_nor_does_one_in_its_figures(
        self, tracker: LeakScopeTracker, plain: list[torch.Tensor], course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(door, "memory_figures", raiser)
        assert all(map(torch.equal, train(tracker, Logged(), neighbour=True), plain))

    def test_a_program_that_never_ends_the_training_keeps_nothing_alive(
        self, tracker: LeakScopeTracker, course: Course
    ) -> None:
        accelerator = Accelerator(cpu=True, log_with=[tracker])
        tracker.log_to_trackers_of(accelerator)
        accelerator.init_trackers("test")
        gone = weakref.ref(accelerator)
        del accelerator
        gc.collect()
        assert gone() is None
        assert tracker.training.session is not None
        tracker.finish()
        assert current_session() is None


def test_the_snippet_of_the_page_works(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_REPORT", "false")
    logged = Logged()
    run_snippet("Accelerate", other_trackers=[logged], train=lambda a: a.log({"loss": 1.0}, step=1))
    assert [step for step, _ in logged.entries] == [1, 1]
    assert current_session() is None


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("accelerate")
    with Warm("torch", "accelerate") as programs:
        return {
            form: report_of("with_accelerate", form, programs, folder)
            for form in ("train", "train_fixed")
        }


def test_a_planted_leak_is_named_with_line_and_rate(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train"]
    assert report["verdict"] == "leak"
    first = report["culprits"][0]
    assert first["name"].rpartition(".")[2] == "outputs"
    assert "outputs.append(" in line_at("with_accelerate", first["fed_at"][0])
    assert first["unit"] in ("epoch", "validation")
    assert first["bytes_per_unit"] == pytest.approx(512 * 1000 * FLOAT, rel=0.1)
    assert (report["work"]["steps"], report["work"]["validations"]) == (160, 8)


def test_its_healthy_form_is_clean(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train_fixed"]
    assert report["verdict"] == "clean", alarms(report)
    assert report["work"]["epochs"] == 8
