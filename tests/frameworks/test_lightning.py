"""The callback in real Lightning trainers."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import warnings
import weakref
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
from leakscope.analysis import analyse
from leakscope.capture.session import current_session
from leakscope.recording import open_run

pl = pytest.importorskip("lightning.pytorch")

from leakscope.capture.frameworks import lightning as hooks  # noqa: E402
from leakscope.capture.frameworks import training as training_module  # noqa: E402
from leakscope.lightning import LeakScopeCallback  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

FLOAT = 4


def rows(count: int, batch_size: int = 2) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(0, 4, (count,), generator=generator)
    return DataLoader(TensorDataset(torch.rand(count, 8, generator=generator), labels), batch_size)


def module_of(package: Any) -> Any:
    class Classifier(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(8, 4)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
            self.layer(batch[0])

        def test_step(self, batch: Any, index: int) -> None:
            self.layer(batch[0])

        def predict_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Classifier()


def trainer_of(*callbacks: Any, package: Any = pl, **more: Any) -> Any:
    options = {
        "max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, **more,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return package.Trainer(callbacks=list(callbacks), **options)


@pytest.fixture
def callback(tmp_path: Path) -> Any:
    return LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)


def without_marks(course: Course) -> str:
    return str(course).replace(" (checkpoint)", "")


class TestPhasesAndSteps:
    def test_sanity_check_accumulation_and_validations_inside_epochs(
        self, callback: Any, course: Course
    ) -> None:
        trainer = trainer_of(callback, accumulate_grad_batches=2, val_check_interval=4)
        trainer.fit(module_of(pl), rows(16), rows(4))
        validation = "validation[ b b validation]"
        assert str(course) == (
            f"sanity[ b b sanity] train[ b 1 b 2 {validation} b 3 b 4 {validation} train] epoch "
            f"train[ b 5 b 6 {validation} b 7 b 8 {validation} train] epoch"
        )
        assert course.expected == {"sanity": None, "train": 8, "validation": 2}
        assert current_session() is None

    def test_each_loader_of_a_validation_has_a_phase(self, callback: Any, course: Course) -> None:
        trainer = trainer_of(callback, max_epochs=1, num_sanity_val_steps=0)
        trainer.fit(module_of(pl), rows(4), [rows(4), rows(6)])
        assert str(course) == (
            "train[ 1 2 validation[ b b validation] validation:2[ b b b validation:2] train] epoch"
        )
        assert course.expected == {"train": 2, "validation": 2, "validation:2": 3}

    def test_checkpoints_are_marked_and_a_resumed_training_goes_on(
        self, tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
        first = trainer_of(max_epochs=1)
        first.fit(module_of(pl), rows(6))
        first.save_checkpoint(tmp_path / "last.ckpt")
        saving = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2)
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        second = trainer_of(callback, saving, max_epochs=2, enable_checkpointing=True)
        second.fit(module_of(pl), rows(6), ckpt_path=tmp_path / "last.ckpt")
        assert str(course) == "train[ 4 (checkpoint) 5 6 (checkpoint) train] epoch"
        assert course.epochs == [1]

    @pytest.mark.parametrize(
        ("optimizers", "every", "fresh", "resumed"),
        [(2, 1, "train[ 1 2 3 4 train]", "train[ 5 6 7 8 train]"),
         (1, 2, "train[ b 1 b 2 train]", "train[ b 3 b 4 train]")],
        ids=["two optimizers", "gathered by hand"],
    )  # fmt: skip
    def test_a_module_that_steps_its_optimizers_itself_resumes_from_its_step(
        self, callback: Any, course: Course, tmp_path: Path,
        optimizers: int, every: int, fresh: str, resumed: str,
    ) -> None:  # fmt: skip
        class Manual(type(module_of(pl))):  # type: ignore[misc]
            automatic_optimization = False

            def training_step(self, batch: Any, index: int) -> None:
                given = self.optimizers()
                for optimizer in given if optimizers > 1 else [given]:
                    self.manual_backward(super().training_step(batch, index))
                    if index % every == every - 1:
                        optimizer.step()
                        optimizer.zero_grad()

            def configure_optimizers(self) -> Any:
                return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(optimizers)]

        class Saves(pl.Callback):
            def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
                trainer.save_checkpoint(tmp_path / "last.ckpt")

        trainer_of(callback, Saves(), max_epochs=1).fit(Manual(), rows(8))
        assert without_marks(course) == f"{fresh} epoch"
        course.words.clear()
        trainer_of(callback).fit(Manual(), rows(8), ckpt_path=tmp_path / "last.ckpt")
        assert without_marks(course) == f"{resumed} epoch"

    @pytest.mark.parametrize(
        ("accumulation", "saved_at", "text", "epochs"),
        [
            (1, 2, "train[ 3 4 5 train] epoch train[ 6 7 8 9 10 train] epoch", [0, 1]),
            (2, 1, "train[ b 2 3 train] epoch train[ b 4 b 5 6 train] epoch", [0, 1]),
            (2, 4, "train[ b 5 6 train] epoch", [1]),
            (1, 5, "train[ 6 7 8 9 10 train] epoch", [1]),
        ],
    )
    def test_a_training_that_resumes_in_the_middle_of_an_epoch_tells_its_rest(
        self, callback: Any, tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch,
        accumulation: int, saved_at: int, text: str, epochs: list[int],
    ) -> None:  # fmt: skip
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
        more = {"accumulate_grad_batches": accumulation, "num_sanity_val_steps": 0}
        saving = pl.callbacks.ModelCheckpoint(
            tmp_path / "saved", "{step}", every_n_train_steps=1, save_top_k=-1
        )
        trainer_of(saving, enable_checkpointing=True, **more).fit(module_of(pl), rows(10))
        trainer = trainer_of(callback, **more)
        saved = tmp_path / "saved" / f"step={saved_at}.ckpt"
        trainer.fit(module_of(pl), rows(10), ckpt_path=saved)
        assert str(course) == text
        assert course.epochs == epochs
        assert trainer.global_step == int(text.split()[-3])
        assert current_session() is None

    def test_the_rest_of_an_epoch_expects_the_batches_that_are_left(
        self, callback: Any, tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
        saving = pl.callbacks.ModelCheckpoint(tmp_path, "saved", every_n_train_steps=4)
        trainer_of(saving, enable_checkpointing=True, max_epochs=1).fit(module_of(pl), rows(10))
        trainer = trainer_of(callback, max_epochs=1)
        trainer.fit(module_of(pl), rows(10), rows(2), ckpt_path=tmp_path / "saved.ckpt")
        assert str(course) == "train[ 5 validation[ b validation] train] epoch"
        assert course.expected == {"train": 1, "validation": 1}

    def test_one_that_was_added_twice_counts_once(self, callback: Any, course: Course) -> None:
        trainer = trainer_of(callback, callback, accumulate_grad_batches=2, max_epochs=1)
        others = [item for item in trainer.callbacks if item is not callback]
        trainer.fit(module_of(pl), rows(8), rows(4))
        assert str(course) == (
            "sanity[ b b sanity] train[ b 1 b 2 validation[ b b validation] train] epoch"
        )
        assert [item for item in trainer.callbacks if item is not callback] == others

    def test_tests_and_predictions_join_who_records(
        self, callback: Any, course: Course, tmp_path: Path
    ) -> None:
        module = module_of(pl)
        trainer_of(callback).test(module, rows(4), verbose=False)
        assert str(course) == ""
        with leakscope.profile(tmp_path / "own", report=False, quiet=True):
            trainer_of(callback).validate(module, rows(4), verbose=False)
            trainer_of(callback).test(module, rows(4), verbose=False)
            trainer_of(callback).predict(module, rows(4))
            assert current_session() is not None
        assert str(course) == ("validation[ b b validation] test[ b b test] predict[ b b predict]")

    def test_the_other_name_of_lightning(self, tmp_path: Path) -> None:
        pytest.importorskip("pytorch_lightning")
        program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
import pytorch_lightning
from leakscope.lightning import LeakScopeCallback
assert "lightning.pytorch" not in sys.modules
callback = LeakScopeCallback(out="run", report=False, quiet=True)
assert isinstance(callback, pytorch_lightning.Callback)
import torch
from torch.utils.data import DataLoader
class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = pytorch_lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=callback,
)
trainer.fit(Module(), DataLoader(torch.rand(6, 8), 2))
"""
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, check=True)
        run = open_run(tmp_path / "run").main
        assert run.measurements[-1].boundary.step == 3
        assert run.end is not None
        assert run.end.status == "completed"


class TestEndings:
    @pytest.mark.parametrize(
        ("error", "raised", "reported"),
        [
            (RuntimeError("no more"), RuntimeError, ("exception", "RuntimeError: no more")),
            (KeyboardInterrupt(), SystemExit, ("interrupted", "KeyboardInterrupt")),
        ],
    )
    def test_a_training_that_raises_ends_its_run_and_says_so(
        self, callback: Any, tmp_path: Path, error: BaseException,
        raised: type[BaseException], reported: tuple[str, str],
    ) -> None:  # fmt: skip
        import signal

        class Stops(pl.Callback):
            def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, i: int) -> None:
                if i == 2:
                    raise error

        before = signal.getsignal(signal.SIGINT)
        try:
            with pytest.raises(raised):
                trainer_of(callback, Stops()).fit(module_of(pl), rows(8))
        finally:
            signal.signal(signal.SIGINT, before)
        assert current_session() is None
        end = open_run(tmp_path / "run").main.end
        assert end is not None
        assert (end.status, end.exception) == reported

    def test_the_next_training_after_one_that_failed_has_a_run_of_its_own(
        self, course: Course, tmp_path: Path
    ) -> None:
        class Fails(pl.Callback):
            def on_train_batch_end(self, *_: Any) -> None:
                raise RuntimeError("no more")

        def fit(name: str, *others: Any) -> None:
            recorded = LeakScopeCallback(out=tmp_path / name, report=False, quiet=True)
            trainer_of(recorded, *others, max_epochs=1).fit(module_of(pl), rows(4))

        with pytest.raises(RuntimeError):
            fit("first", Fails())
        fit("second")
        assert str(course) == "train[ 1 train] train[ 1 2 train] epoch"
        ends = [open_run(tmp_path / name).main.end for name in ("first", "second")]
        assert [end and end.status for end in ends] == ["exception", "completed"]

    def test_the_callback_reaches_spawned_processes(self, callback: Any) -> None:
        callback.training.begin()
        try:
            copy = pickle.loads(pickle.dumps(callback))
        finally:
            callback.training.end()
        assert type(copy) is LeakScopeCallback
        assert copy.training.session is None
        assert not copy.training.leads

    def test_trainer_and_module_are_let_go_of(self, course: Course, tmp_path: Path) -> None:
        module = module_of(pl)
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        trainer = trainer_of(callback, max_epochs=1)
        trainer.fit(module, rows(4))
        gone = [weakref.ref(trainer), weakref.ref(module)]
        del trainer, module, callback  # Lightning gives a callback its module's methods
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
    def trained(*callbacks: Any) -> list[torch.Tensor]:
        module = module_of(pl)
        trainer = trainer_of(*callbacks, accumulate_grad_batches=2)
        trainer.fit(module, rows(16), [rows(4), rows(2)])
        return [p.detach().clone() for p in module.parameters()]

    def test_the_result_is_the_same_bit_by_bit(
        self, callback: Any, plain: list[torch.Tensor], tmp_path: Path
    ) -> None:
        assert all(map(torch.equal, self.trained(callback), plain))
        run = open_run(tmp_path / "run").main
        assert run.end is not None
        assert run.end.status == "completed"
        assert not run.errors

    @pytest.mark.parametrize(
        "method",
        ["begin", "resume", "enter", "leave", "leave_all", "step", "batch", "end_epoch", "mark",
         "end", "fault", "phase", "session", "_start", "_join", "_dispatch"],
    )  # fmt: skip
    def test_no_fault_of_ours_changes_it(
        self, callback: Any, plain: list[torch.Tensor], method: str, course: Course,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        kind = training_module.Training
        is_property = isinstance(getattr(kind, method), property)
        monkeypatch.setattr(kind, method, property(raiser) if is_property else raiser)
        assert all(map(torch.equal, self.trained(callback), plain))

    @pytest.mark.parametrize(
        "part",
        ["whole", "batches_of", "as_list", "step_of_logs", "Upkeep.begin", "Upkeep.step",
         "Upkeep.end"],
    )  # fmt: skip
    def test_nor_does_one_in_what_it_calls(
        self, plain: list[torch.Tensor], part: str, course: Course, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        callback = LeakScopeCallback(
            out=tmp_path / "run", report=False, quiet=True, log_every=1, cleanup_every=1
        )
        owner, _, name = part.rpartition(".")
        monkeypatch.setattr(getattr(hooks, owner) if owner else hooks, name, raiser)
        assert all(map(torch.equal, self.trained(callback), plain))


class Logged(pl.loggers.Logger):  # type: ignore[misc]
    """What the trainer's loggers get."""

    name, version = "logged", 0

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[int, set[str]]] = []

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        return None

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.entries.append((step, {name for name in metrics if name.startswith("leakscope")}))


class TestUpkeep:
    def test_memory_is_logged_every_few_steps(self, course: Course, tmp_path: Path) -> None:
        callback = LeakScopeCallback(log_every=3, out=tmp_path / "run", report=False, quiet=True)
        logged = Logged()
        trainer_of(callback, logger=logged, accumulate_grad_batches=2).fit(module_of(pl), rows(16))
        ours = [entry for entry in logged.entries if entry[1]]
        # Lightning's own loggers draw what belongs to the third step at 2.
        assert ours == [(2, {"leakscope/host_mib"}), (5, {"leakscope/host_mib"})]

    def test_regular_cleanups_tell_what_they_gained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        callback = LeakScopeCallback(cleanup_every=2, out=tmp_path / "run", report=False)
        trainer_of(callback).fit(module_of(pl), rows(8))
        notes = [note.message for note in open_run(tmp_path / "run").main.notes]
        (reported,) = [note for note in notes if note.startswith("cleanup_every(2) freed")]
        assert "in 4 cleanups" in reported
        assert reported in capsys.readouterr().err

    def test_they_do_so_where_the_training_is_broken_off_too(self, tmp_path: Path) -> None:
        class Stops(pl.Callback):
            def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, i: int) -> None:
                if i == 2:
                    raise RuntimeError("no more")

        callback = LeakScopeCallback(
            cleanup_every=1, out=tmp_path / "run", report=False, quiet=True
        )
        with pytest.raises(RuntimeError):
            trainer_of(callback, Stops()).fit(module_of(pl), rows(8))
        (reported,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "cleanup"]
        assert "in 2 cleanups" in reported.message

    def test_workers_with_open_images_are_reported(self, course: Course, tmp_path: Path) -> None:
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (4, 4)).save(tmp_path / "image.png")
        callback = LeakScopeCallback(out=tmp_path / "run", report=False, quiet=True)
        loader = rows(4)
        with image.open(tmp_path / "image.png") as loader.dataset.image:  # type: ignore[attr-defined]
            validation = DataLoader(loader.dataset, 2, num_workers=1)
            trainer_of(callback, max_epochs=1).fit(module_of(pl), loader, [loader, validation])
        (note,) = [n for n in open_run(tmp_path / "run").main.notes if n.slug == "workers"]
        assert note.message.startswith("TensorDataset.image keeps open PIL images beside 1 Data")

    def test_numbers_below_one_are_refused(self) -> None:
        with pytest.raises(ValueError, match="log_every"):
            LeakScopeCallback(log_every=0)
        with pytest.raises(ValueError, match="cleanup_every"):
            LeakScopeCallback(cleanup_every=0)


def test_the_snippet_of_the_page_works(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_REPORT", "false")
    options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False,
               "enable_progress_bar": False}  # fmt: skip
    run_snippet(
        "Lightning", module=module_of(pl), train_loader=rows(2), val_loader=rows(2), options=options
    )
    once = "train[ {} validation[ b validation] train] epoch"
    assert str(course) == f"sanity[ b sanity] {once.format(1)} {once.format(2)}"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("lightning")
    with Warm("torch", "lightning.pytorch") as programs:
        return {
            form: report_of("with_lightning", form, programs, folder)
            for form in ("train", "train_fixed")
        }


def test_a_planted_leak_is_named_with_line_and_rate(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train"]
    assert report["verdict"] == "leak"
    first = report["culprits"][0]
    assert first["name"] == "Classifier.outputs"
    assert "self.outputs.append(" in line_at("with_lightning", first["fed_at"][0])
    assert first["unit"] in ("epoch", "validation")
    assert first["bytes_per_unit"] == pytest.approx(512 * 1000 * FLOAT, rel=0.1)
    assert (report["work"]["steps"], report["work"]["validations"]) == (320, 8)


def test_its_healthy_form_is_clean(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["train_fixed"]
    assert report["verdict"] == "clean", alarms(report)
    assert report["work"]["epochs"] == 8


SPAWNED = """\
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from leakscope.lightning import LeakScopeCallback


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.kept = []

    def training_step(self, batch, index):
        output = self.layer(batch)
        self.kept.append(output.detach().repeat(1, 32))
        return output.square().mean()

    def validation_step(self, batch, index):
        self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = pl.Trainer(
        max_epochs=6, accelerator="cpu", devices=2, strategy="ddp_spawn", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[LeakScopeCallback(out="run", report=False)],
    )
    trainer.fit(
        Model(), DataLoader(torch.rand(640, 64), 16), DataLoader(torch.rand(128, 64), 16)
    )
"""


def test_ranks_that_lightning_spawns_record_into_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    assert sorted(recording.header.rank for recording in run.recordings) == [0, 1]
    report = analyse(run)
    assert (report.work.epochs, report.work.steps, report.work.validations) == (6, 120, 6)
    first = report.culprits[0]
    assert (first.name, first.unit) == ("Model.kept", "step")
    assert first.bytes_per_unit == pytest.approx(16 * 64 * 32 * FLOAT, rel=0.1)
    assert "self.kept.append(" in SPAWNED.splitlines()[int(first.fed_at[0].rpartition(":")[2]) - 1]
