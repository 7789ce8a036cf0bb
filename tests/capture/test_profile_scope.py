"""``leakscope.profile()`` as a user writes it, with the real probes, heap and recording."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leakscope
from leakscope.capture import scope as scopes
from leakscope.model.errors import LeakscopeError
from leakscope.recording import open_run
from leakscope.recording.directory import MANIFEST


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEAKSCOPE", raising=False)
    monkeypatch.setenv("LEAKSCOPE_STRICT", "1")
    scopes._warned.clear()


def recorded_lines(run_path: Path) -> list[str]:
    words = []
    for measurement in open_run(run_path).main.measurements:
        boundary = measurement.boundary
        words.append(f"{boundary.kind.value} {boundary.phase}{boundary.label}".strip())
    return words


def train(epochs: int = 2, observe=None) -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
    training = DataLoader(data, batch_size=8, shuffle=True)
    for _ in range(epochs):
        model.train()
        for inputs, targets in training:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if observe is not None:
                observe(inputs, loss, model)
        model.eval()
        with torch.no_grad():
            for inputs, _ in training:
                model(inputs)
    return model


EPOCH = [
    *("phase_begin train", "step train", "step train", "step train", "step train"),
    "phase_end train",
    *("phase_begin validation", *["batch validation"] * 4, "phase_end validation"),
]


class TestContextManager:
    def test_records_a_run(self):
        with leakscope.profile("run", report=False) as scope:
            assert scope.run_path == Path("run").absolute()
            train()
        assert recorded_lines(Path("run")) == ["run_begin", *EPOCH, *EPOCH, "run_end"]
        main = open_run("run").main
        assert main.end.status == "completed"
        assert main.errors == []
        looked_at = [number for number, m in enumerate(main.measurements) if m.census]
        assert main.overhead.censuses == len(looked_at) >= 4
        assert looked_at[-1] == len(main.measurements) - 1
        assert any(0 < number <= len(EPOCH) for number in looked_at)
        assert any(len(EPOCH) < number <= 2 * len(EPOCH) for number in looked_at)

    def test_names_what_grows_and_keeps_its_source(self):
        history = []
        with leakscope.profile("run", report=False):
            train(observe=lambda inputs, loss, model: history.append(torch.ones(10_000)))
        main = open_run("run").main
        names = {row.name for m in main.measurements if m.census for row in m.census.rows}
        assert any("history" in name for name in names)
        assert str(Path(__file__).resolve()) in {str(Path(p).resolve()) for p in main.sources}

    def test_default_folder_is_named_after_time_and_script(self):
        with leakscope.profile(report=False) as scope:
            path = scope.run_path
        with leakscope.profile(report=False) as scope:
            other = scope.run_path
        assert path.parent == Path("leakscope-runs").absolute()
        assert path != other
        assert (path / "run.json").exists()
        assert (other / "run.json").exists()

    def test_the_program_is_reported_as_it_was_typed(self, tmp_path):
        script = tmp_path / "code" / "train.py"
        script.parent.mkdir()
        script.write_text("import leakscope\nwith leakscope.profile('run', quiet=True): pass\n")
        subprocess.run([sys.executable, "code/train.py", "--epochs", "2"], check=True)
        manifest = open_run(Path("run")).manifest
        assert manifest.script == "code/train.py"
        assert manifest.command == [Path(sys.executable).name, "code/train.py", "--epochs", "2"]

    def test_manifest_tells_options_and_limits(self):
        with leakscope.profile("run", report=False, budget=0.05, label="before"):
            pass
        manifest = json.loads(Path("run/run.json").read_text())
        assert manifest["options"]["budget"] == 0.05
        assert manifest["options"]["label"] == "before"
        assert manifest["environment"]
        assert manifest["project_root"]

    def test_twice_in_one_process(self):
        for name in ("one", "two"):
            with leakscope.profile(name, report=False):
                train(1)
        assert (
            recorded_lines(Path("one"))
            == recorded_lines(Path("two"))
            == ["run_begin", *EPOCH, "run_end"]
        )

    def test_an_exception_passes_unchanged_and_is_noted(self):
        error = ValueError("wrong shape")
        with (
            pytest.raises(ValueError, match="wrong shape") as caught,
            leakscope.profile("run", report=False),
        ):
            raise error
        assert caught.value is error
        end = open_run("run").main.end
        assert (end.status, end.exit_code) == ("exception", 1)
        assert end.exception == "ValueError: wrong shape"

    @pytest.mark.parametrize(
        ("error", "status", "code"),
        [(SystemExit(3), "exit", 3), (KeyboardInterrupt(), "interrupted", 130)],
    )
    def test_exit_and_interrupt_pass(self, error, status, code):
        with pytest.raises(type(error)), leakscope.profile("run", report=False):
            raise error
        end = open_run("run").main.end
        assert (end.status, end.exit_code) == (status, code)

    def test_an_inner_profile_adds_to_the_outer_one_and_says_so_once(self, capfd):
        with leakscope.profile("outer", report=False):
            for _ in range(2):
                with leakscope.profile("inner", report=False) as inner:
                    inner.mark("here")
        assert not Path("inner").exists()
        assert recorded_lines(Path("outer")).count("mark here") == 2
        assert capfd.readouterr().err.count("already recording") == 1


class TestBadOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"budget": 0},
            {"budget": 2},
            {"budget": "lots"},
            {"boundaries": "sometimes"},
            {"tracemalloc": True},
        ],
    )
    def test_are_refused_before_anything_runs(self, options):
        with pytest.raises(LeakscopeError):
            leakscope.profile("run", **options)
        assert not Path("run").exists()

    def test_a_run_is_not_overwritten_and_keeps_no_program_from_starting(self, capfd):
        with leakscope.profile("run", report=False):
            pass
        made = Path("run", MANIFEST).read_bytes()
        for number in (2, 3):
            with leakscope.profile("run", report=False):
                pass
            assert "run already holds a run; this one is recorded into " in capfd.readouterr().err
            assert open_run(f"run-{number}").recordings
        assert Path("run", MANIFEST).read_bytes() == made
        with leakscope.profile("run", report=False, force=True):
            pass
        assert Path("run", MANIFEST).read_bytes() != made

    def test_a_generator_is_not_decorated(self):
        def batches():
            yield 1

        with pytest.raises(LeakscopeError, match="generator"):
            leakscope.profile("run")(batches)


class TestDecorator:
    def test_each_call_is_a_run(self):
        @leakscope.profile("run", report=False)
        def work(epochs: int, *, factor: int) -> int:
            train(epochs)
            return epochs * factor

        assert work(1, factor=3) == 3
        assert work(1, factor=4) == 4
        assert work.__name__ == "work"
        assert (
            recorded_lines(Path("run"))
            == recorded_lines(Path("run-2"))
            == ["run_begin", *EPOCH, "run_end"]
        )

    def test_of_a_coroutine(self):
        @leakscope.profile("run", report=False)
        async def work() -> int:
            await asyncio.sleep(0)
            train(1)
            return 5

        assert asyncio.run(work()) == 5
        assert recorded_lines(Path("run")) == ["run_begin", *EPOCH, "run_end"]

    def test_without_parentheses(self, monkeypatch):
        monkeypatch.setattr(scopes, "report_of", lambda *_, **__: None)

        @leakscope.profile
        def work() -> int:
            return 5

        assert work() == 5
        assert len(list(Path("leakscope-runs").iterdir())) == 1


class TestNamedBoundaries:
    def test_epochs_steps_phases_and_marks(self):
        with leakscope.profile("run", report=False, boundaries="manual") as scope:
            for _ in scope.epochs(range(2)):
                for _ in scope.steps([1, 2]):
                    pass
                with scope.phase("validation"):
                    scope.mark("checked")
        epoch = [
            *("phase_begin train", "step train", "step train", "phase_end train"),
            *("phase_begin validation", "mark validationchecked", "phase_end validation"),
            "epoch_end",
        ]
        assert recorded_lines(Path("run")) == ["run_begin", *epoch, *epoch, "run_end"]

    def test_steps_of_a_loader_are_counted_once(self):
        task = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
        batches = DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=2)
        with leakscope.profile("run", report=False) as scope:
            for (batch,) in scope.steps(batches):
                task(batch).sum().backward()
                optimizer.step()
        lines = recorded_lines(Path("run"))
        assert lines[1:-1] == ["phase_begin train", "step train", "step train", "phase_end train"]

    def test_a_batch_is_not_kept_by_the_loop_of_steps(self):
        with leakscope.profile("run", report=False, boundaries="manual") as scope:
            for batch in scope.steps(torch.ones(100) * n for n in range(3)):
                reference = weakref.ref(batch)
                del batch
                assert reference() is None

    def test_steps_end_where_the_user_says(self):
        with leakscope.profile("run", report=False) as scope:
            for _ in range(3):
                scope.step()
        assert recorded_lines(Path("run")).count("step train") == 3

    def test_all_work_after_the_end(self):
        with leakscope.profile("run", report=False) as scope:
            pass
        assert list(scope.epochs([1])) == list(scope.steps([1])) == [1]
        with scope.phase("test"):
            scope.step()
            scope.mark("late")
        assert scope.run_path is None


class TestSwitchedOff:
    @pytest.fixture(params=["environment", "argument"])
    def off(self, request, monkeypatch):
        if request.param == "environment":
            monkeypatch.setenv("LEAKSCOPE", "off")
            return leakscope.profile("run")
        return leakscope.profile("run", enabled=False)

    def test_does_nothing(self, off):
        before = DataLoader.__iter__
        with off as scope:
            assert not scope.enabled
            assert DataLoader.__iter__ is before
            batches = [1, 2]
            assert list(scope.steps(batches)) == batches
            with scope.phase("x"):
                scope.step()
        assert not Path("run").exists()

    def test_gives_a_function_back_as_it_is(self, off):
        assert off(train) is train

    def test_costs_less_than_the_loop_it_is_in(self, off):
        def best(work) -> float:
            times = []
            for _ in range(50):
                began = time.thread_time()
                for _ in range(200):
                    work()
                times.append(time.thread_time() - began)
            return min(times)

        with off as scope:
            assert best(scope.step) < 4 * best(lambda: None)


class TestTrainingIsUndisturbed:
    def test_results_are_the_same_bit_by_bit(self):
        expected = [parameter.clone() for parameter in train(3).parameters()]
        state = torch.get_rng_state()
        with leakscope.profile("run", report=False, tracemalloc="always"):
            model = train(3)
        assert torch.equal(torch.get_rng_state(), state)
        for parameter, other in zip(model.parameters(), expected, strict=True):
            assert torch.equal(parameter, other)

    def test_nothing_of_the_users_lives_longer(self):
        def survivors() -> list[str]:
            references = []

            def observe(inputs, loss, model) -> None:
                for name, thing in (("inputs", inputs), ("loss", loss), ("model", model)):
                    references.append((f"{name} {len(references)}", weakref.ref(thing)))

            train(2, observe)
            return [name for name, reference in references if reference() is not None]

        survivors()  # torch keeps some of the very first ones itself
        gc.collect()
        gc.disable()
        try:
            expected = survivors()
            with leakscope.profile("run", report=False):
                assert survivors() == expected
        finally:
            gc.enable()

    def test_the_collector_and_the_warnings_are_left_alone(self):
        import warnings

        filters = list(warnings.filters)
        thresholds = gc.get_threshold()
        with leakscope.profile("run", report=False):
            train(1)
        assert gc.get_threshold() == thresholds
        assert gc.isenabled()
        assert list(warnings.filters) == filters
        assert torch.get_default_dtype() is torch.float32


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "LEAKSCOPE_STRICT": "1", **environment},
    )


class TestInAProcessOfItsOwn:
    def test_torch_is_not_imported_and_heard_when_it_comes_late(self):
        done = python(
            """
            import sys
            import leakscope
            with leakscope.profile("run", report=False):
                assert "torch" not in sys.modules
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                assert torch.utils.data.dataloader.__spec__.loader.__class__.__module__.startswith(
                    "_frozen_importlib"
                )
                from leakscope.capture.events import PASSAGES
                counted = {passage.module for passage in PASSAGES}
                def watches():
                    names = ((finder, type(finder).__module__) for finder in sys.meta_path)
                    return [finder for finder, name in names if name.startswith("leakscope")]
                def ours():
                    return [each for each in watches() if not counted >= each._arrivals.keys()]
                for_events = [each for each in watches() if each not in ours()]
                assert [each._arrivals.keys() for each in for_events] == [counted - {*sys.modules}]
                awaited = [sorted(watch._arrivals) for watch in ours()]
                later = ["accelerate.data_loader", "keras.src.backend.torch.trainer"]
                assert awaited == [[*later, "torch._dynamo.utils"]], awaited  # which need torch
                import accelerate.data_loader, keras, torch._dynamo
                assert ours() == [], ours()
                model = torch.nn.Linear(1, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for (batch,) in DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=2):
                    model(batch).sum().backward()
                    optimizer.step()
            """,
            KERAS_BACKEND="torch",
            KERAS_HOME=str(Path("keras").absolute()),
        )
        assert done.returncode == 0, done.stderr
        steps = ["phase_begin train", "step train", "step train", "phase_end train"]
        assert recorded_lines(Path("run")) == ["run_begin", *steps, "run_end"]

    def test_importing_leakscope_imports_nothing_heavy(self):
        done = python(
            """
            import sys
            import leakscope
            leakscope.profile
            heavy = {"torch", "numpy", "matplotlib", "rich", "scipy", "jinja2"}
            assert not heavy & set(sys.modules), heavy & set(sys.modules)
            """
        )
        assert done.returncode == 0, done.stderr

    def test_a_child_forked_inside_writes_no_end_and_no_report(self):
        done = python(
            """
            import os, sys
            import leakscope
            with leakscope.profile("run", report=False) as scope:
                if os.fork() == 0:
                    scope.mark("child")
                    sys.exit(0)
                os.wait()
                scope.mark("parent")
            """
        )
        assert done.returncode == 0, done.stderr
        assert recorded_lines(Path("run")) == ["run_begin", "mark parent", "run_end"]
        assert open_run("run").main.end.status == "completed"

    @pytest.mark.slow
    def test_the_report_is_written_at_the_end(self):
        done = python(
            """
            import leakscope
            with leakscope.profile("run"):
                pass
            print("after")
            """
        )
        assert done.stdout == "after\n"
        assert Path("run/report.html").exists()
        assert Path("run/report.json").exists()


class TestRanks:
    def test_ranks_record_into_one_folder_and_the_first_alone_reports(self, monkeypatch):
        reported = []
        monkeypatch.setattr(scopes, "report_of", lambda s, **_: reported.append(s.run_path.name))
        monkeypatch.setenv("WORLD_SIZE", "2")
        for rank in ("0", "1"):
            monkeypatch.setenv("RANK", rank)
            with leakscope.profile("run"):
                pass
        assert [r.header.rank for r in open_run("run").recordings] == [0, 1]
        assert reported == ["run"]

    def test_an_earlier_run_in_the_same_place_is_never_added_to(self, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", "0")
        with leakscope.profile("run", report=False):
            pass
        with leakscope.profile("run", report=False):
            pass
        monkeypatch.setenv("MASTER_ADDR", "somewhere")
        monkeypatch.setenv("MASTER_PORT", "1234")
        monkeypatch.setenv("RANK", "1")
        with leakscope.profile("run", report=False):
            pass
        assert len(open_run("run").recordings) == 1

    def test_of_ranks_that_replace_a_run_only_the_first_does(self, monkeypatch):
        with leakscope.profile("run", report=False):
            pass
        monkeypatch.setenv("WORLD_SIZE", "2")
        for rank in ("1", "0"):
            monkeypatch.setenv("RANK", rank)
            with leakscope.profile("run", report=False, force=True):
                pass
        assert [r.header.rank for r in open_run("run").recordings] == [0, 1]

    def test_the_environment_may_name_the_folder(self, monkeypatch):
        monkeypatch.setenv("LEAKSCOPE_RUN_DIR", "named/run")
        for _ in range(2):
            with leakscope.profile(report=False):
                pass
        assert open_run("named/run").recordings
        assert open_run("named/run-2").recordings


class TestOurOwnFaults:
    def test_one_at_the_start_costs_the_recording_alone(self, monkeypatch, capfd):
        from leakscope.capture import gauges

        def broken():
            raise RuntimeError("no probes here")

        monkeypatch.delenv("LEAKSCOPE_STRICT")
        monkeypatch.setattr(gauges, "default_probes", broken)
        with leakscope.profile("run", report=False) as scope:
            scope.step()
            assert not scope.enabled
        assert "nothing is recorded (RuntimeError: no probes here)" in capfd.readouterr().err
