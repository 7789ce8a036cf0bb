"""What is logged, when, and what a tracker that fails costs."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import Guard
from leakscope.capture.options import SessionOptions, configured_options
from leakscope.capture.schedule import GrowthWatch
from leakscope.capture.trackers import MLflowRun, Rates, Trackers, WandB, memory_of, named
from leakscope.configuration.project import read_configuration
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.documents import LiveLeak
from leakscope.model.errors import LeakscopeError
from leakscope.recording import RunDirectory

MIB = 1 << 20
GAUGES = {gauge.RSS: 300 * MIB, "cuda:0.allocated": 5 * MIB, gauge.THREADS: 3}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Set:
    """Trackers with all that they are given."""

    def __init__(self, *queried: str, report: bool = True) -> None:
        self.clock = Clock()
        self.faults: list[tuple[str, str, bool]] = []
        self.notes: list[tuple[str, str]] = []
        self.costs = Costs()
        self.growth = GrowthWatch()
        guard = Guard(lambda *reported: self.faults.append(reported))
        guard.strict = False
        options = SessionOptions(trackers=[*queried], report=report)
        self.trackers = Trackers(
            options, guard, self.costs, lambda *reported: self.notes.append(reported), self.clock
        )

    def reach(self, time_s: float, step: int, kind: BoundaryKind = BoundaryKind.STEP) -> None:
        self.trackers.at(
            Boundary(index=step, kind=kind, time_s=time_s, step=step), GAUGES, self.growth
        )


def looks(growth: GrowthWatch, step: int, **sizes: int) -> None:
    rows = [
        CensusRow(
            path=path.replace("__", "·"),
            name=path,
            root=RootKind.GLOBAL,
            type="list",
            kind="list",
            host_bytes=size,
            user=True,
        )
        for path, size in sizes.items()
    ]
    census = Census(scope=CensusScope.FULL, rows=rows, cutoff_bytes=1, objects=1, heap_bytes=1)
    growth.learn(Boundary(index=step, kind=BoundaryKind.STEP, time_s=step, step=step), census, {})


class TestWhatIsDrawn:
    def test_memory_in_mib_without_what_is_zero_or_no_memory(self) -> None:
        assert memory_of(GAUGES | {gauge.CHILDREN_PSS: 0}) == {
            "leakscope/host_mib": 300.0,
            "leakscope/cuda:0_allocated_mib": 5.0,
        }

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("__main__·Trainer.history[*]['pred']", "Trainer.history_pred"),
            ("train()·outputs", "train_outputs"),
            ("__main__·größe", "gr_e"),
            ("__main__·ß", "unnamed"),
            ("__main__·" + "x" * 200, "x" * 80),
        ],
    )
    def test_names_are_such_as_every_tracker_takes(self, path: str, name: str) -> None:
        assert named(path) == name

    def test_what_rises_each_time_has_a_rate_since_it_was_seen_to(self) -> None:
        growth, rates, seen = GrowthWatch(), Rates(), []
        for step in range(0, 80, 10):
            looks(growth, step, main__kept=step * 10 * 1024, main__still=1 << 20)
            seen.append(rates.at(step, growth))
        assert seen[:4] == [{}] * 4, "three rises in a row are needed, then one to measure"
        assert seen[4:] == [{"leakscope/growing/main_kept_kib_per_step": 10.0}] * 4

    def test_neither_owners_nor_elements_are_drawn_next_to_the_container(self) -> None:
        growth, rates = GrowthWatch(), Rates()
        for step in range(6):
            size = step * 100_000
            watched = {"trainer": size + 9, "trainer.kept": size + 8, "trainer.kept[*]": size}
            looks(growth, step, **watched)
            seen = rates.at(step, growth)
        assert [*seen] == ["leakscope/growing/trainer.kept_kib_per_step"]

    def test_what_grows_no_more_has_no_rate(self) -> None:
        growth, rates = GrowthWatch(), Rates()
        for step in range(8):
            looks(growth, step, main__kept=min(step, 5) * 100_000)
            seen = rates.at(step, growth)
        assert seen == {}

    def test_names_are_bounded(self) -> None:
        growth, rates = GrowthWatch(), Rates()
        names: set[str] = set()
        for step in range(60):
            grown = {f"main__kept{i}": step * 100_000 for i in range(step // 2, step // 2 + 10)}
            looks(growth, step, **grown)
            now = rates.at(step, growth)
            assert len(now) <= 5
            names |= now.keys()
        assert 5 <= len(names) <= 20


class TestChoosing:
    @pytest.mark.parametrize(
        ("text", "chosen"),
        [
            ("wandb, mlflow", "wandb,mlflow"),
            ("auto", "auto"),
            ("off", "off"),
            ("auto,wandb,auto", "auto,wandb"),
        ],
    )
    def test_the_environment(self, text: str, chosen: str) -> None:
        found = read_configuration(environment={"LEAKSCOPE_TRACKERS": text})
        assert found.value("trackers") == chosen

    @pytest.mark.parametrize("value", ["neptune", ["wandb", "off"], 3, [["wandb"]]])
    def test_what_makes_no_sense_is_refused(self, value: object) -> None:
        with pytest.raises(LeakscopeError, match="trackers must be 'off' or a list of 'auto'"):
            configured_options(trackers=value)

    def test_options_cross_processes(self) -> None:
        for chosen in ("off", "auto,wandb"):
            options = configured_options(trackers=chosen)
            assert SessionOptions.from_json(options.to_json()).trackers == chosen


tensorboard = pytest.importorskip("tensorboard") and pytest.importorskip("torch.utils.tensorboard")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Any]:
    gc.collect()
    with tensorboard.SummaryWriter(str(tmp_path / "logs")) as writer:
        yield writer


def drawn(folder: Path) -> dict[str, list[int]]:
    """Return the steps at which each name was drawn."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    names = found.Tags()["scalars"]
    return {name: [event.step for event in found.Scalars(name)] for name in names}


class TestTensorBoard:
    def test_what_is_open_is_logged_to(self, writer: Any, tmp_path: Path) -> None:
        given = Set("auto")
        for step in range(6):
            given.reach(step * 10, step)
        writer.close()
        figures = drawn(tmp_path / "logs")
        assert figures["leakscope/host_mib"] == [*range(6)]
        assert not given.faults

    def test_a_closed_writer_stays_closed(self, writer: Any, tmp_path: Path) -> None:
        given = Set("auto")
        given.reach(0, 0)
        writer.close()
        given.reach(10, 1)
        assert writer.all_writers is None
        assert len([*(tmp_path / "logs").iterdir()]) == 1

    def test_a_writer_that_follows_is_found(self, writer: Any, tmp_path: Path) -> None:
        given = Set("auto")
        given.reach(0, 0)
        writer.close()
        with tensorboard.SummaryWriter(str(tmp_path / "later")):
            given.reach(10, 1)
        assert drawn(tmp_path / "later")["leakscope/host_mib"] == [1]

    def test_of_several_one_is_chosen(self, writer: Any, tmp_path: Path) -> None:
        with tensorboard.SummaryWriter(str(tmp_path / "eval")):
            Set("auto").reach(0, 0)
        writer.close()
        assert drawn(tmp_path / "eval")
        assert not drawn(tmp_path / "logs")

    def test_a_writer_is_not_kept_alive(self, tmp_path: Path) -> None:
        import weakref

        given = Set("auto")
        writer = tensorboard.SummaryWriter(str(tmp_path / "logs"))
        given.reach(0, 0)
        gone = weakref.ref(writer)
        writer.close()
        del writer
        gc.collect()
        assert gone() is None

    def test_random_numbers_stay(self, writer: Any) -> None:
        before = random.getstate()
        Set("auto").reach(0, 0)
        assert random.getstate() == before

    def test_steps_of_trainings_before_are_not_counted(self, writer: Any, tmp_path: Path) -> None:
        given = Set("auto")
        given.reach(0.0, 40)
        given.trackers.ahead = 40
        given.reach(5.0, 43)
        writer.close()
        assert drawn(tmp_path / "logs")["leakscope/host_mib"] == [40, 3]

    def test_memory_that_somebody_else_draws_is_left_out(self, writer: Any, tmp_path: Path) -> None:
        given = Set("auto")
        given.trackers.leaves_memory = True
        for step in range(5):
            looks(given.growth, step, main__kept=step * 100_000)
            given.reach(step * 10, step)
        writer.close()
        assert [*drawn(tmp_path / "logs")] == ["leakscope/growing/main_kept_kib_per_step"]


class Failing:
    """A writer's method that raises, or takes its time."""

    def __init__(self, given: Set, *, seconds: float = 0.0, raises: bool = False) -> None:
        self.calls = 0
        self._given, self._seconds, self._raises = given, seconds, raises

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        self._given.clock.now += self._seconds
        if self._raises:
            raise ZeroDivisionError("a bug of the tracker's")


class TestTroubles:
    def test_a_fault_is_reported_and_after_three_there_are_no_more(
        self, writer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = Set("auto")
        failing = Failing(given, raises=True)
        monkeypatch.setattr(writer, "add_scalar", failing)
        for step in range(6):
            given.reach(step * 10, step)
        assert failing.calls == 3
        assert [fault[0] for fault in given.faults] == ["tracker tensorboard"] * 3
        assert given.faults[-1][2]

    def test_a_log_has_to_be_paid_for_before_the_next(
        self, writer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = Set("auto")
        slow = Failing(given, seconds=0.1)  # per figure, of which there are two
        monkeypatch.setattr(writer, "add_scalar", slow)
        for second in range(101):
            given.reach(second, second)
        # The first is free, the second after a second; each costs 0.2 s: a fifth of 2 % of 50 s.
        assert slow.calls == 2 * 3
        assert given.costs.seconds["trackers"] == pytest.approx(0.6)

    def test_who_keeps_the_training_waiting_is_reported_no_more(
        self, writer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = Set("auto")
        slow = Failing(given, seconds=3)
        monkeypatch.setattr(writer, "add_scalar", slow)
        for step in range(3):
            given.reach(step * 1000, step)
        assert slow.calls == 2
        assert [slug for slug, _ in given.notes] == ["tracker-slow"]

    def test_a_tracker_that_was_requested_in_vain_is_reported(self) -> None:
        given = Set("wandb")
        given.reach(0, 0)
        given.reach(10, 1, BoundaryKind.RUN_END)
        assert [slug for slug, _ in given.notes] == ["tracker-absent"]
        assert not given.faults

    @pytest.mark.parametrize(
        ("closes", "report", "lines"),
        [(True, True, ["tracker-closed"]), (True, False, []), (False, True, [])],
    )
    def test_a_tracker_that_was_closed_before_the_report_is_reported(
        self, writer: Any, closes: bool, report: bool, lines: list[str]
    ) -> None:
        given = Set("auto", report=report)
        given.reach(0, 0)
        if closes:
            writer.close()
        given.reach(10, 1, BoundaryKind.RUN_END)
        assert [slug for slug, _ in given.notes] == lines
        assert not given.faults

    def test_a_report_that_is_missing_is_reported(self, tmp_path: Path) -> None:
        (sentence,) = Set("auto").trackers.keep(tmp_path)
        assert "report.json" in sentence


class TestWhatLeavesTheMachine:
    @pytest.mark.parametrize(
        ("tracking", "artifacts", "is_local"),
        [
            ("file:///work/mlruns", "file:///work/mlruns/0/1/artifacts", True),
            ("/work/mlruns", "/work/mlruns/0/1/artifacts", True),
            ("sqlite:///mlflow.db", "/work/mlartifacts", True),
            ("sqlite:///mlflow.db", "s3://bucket/1", False),
            ("http://127.0.0.1:5000", "mlflow-artifacts:/0/1", False),
            ("databricks", "dbfs:/databricks/mlflow/1", False),
        ],
    )
    def test_mlflow(self, tracking: str, artifacts: str, is_local: bool) -> None:
        library = SimpleNamespace(get_tracking_uri=lambda: tracking)
        assert MLflowRun(library, SimpleNamespace(artifact_uri=artifacts)).is_local is is_local

    @pytest.mark.parametrize(
        ("offline", "requested", "logs"),
        [(True, "auto", True), (False, "auto", False), (False, "wandb", True)],
    )
    def test_wandb_gets_figures_online_only_on_request(
        self, monkeypatch: pytest.MonkeyPatch, offline: bool, requested: str, logs: bool
    ) -> None:
        messages: list[dict[str, float]] = []
        run = SimpleNamespace(
            offline=offline, disabled=False, log=lambda figures, commit: messages.append(figures)
        )
        monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run, patched={}))
        Set(requested).reach(0, 0)
        assert bool(messages) is logs

    def test_a_run_fed_from_tensorboard_is_not_reported_twice(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = SimpleNamespace(offline=True, disabled=False)
        library = SimpleNamespace(run=run, patched={"tensorboard": [["writer"]]})
        monkeypatch.setitem(sys.modules, "wandb", library)
        assert WandB().place() is None


@pytest.mark.slow
def test_no_tracker_is_imported(tmp_path: Path) -> None:
    code = """
import sys, leakscope
with leakscope.profile("run", trackers=["tensorboard", "wandb", "mlflow"], quiet=True) as scope:
    for _ in scope.epochs(range(3)):
        pass
assert not {"tensorboard", "torch.utils.tensorboard", "wandb", "mlflow"} & set(sys.modules)
"""
    root = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
        check=True,
        timeout=200,
    )


class TestClientsOfMonitoringSystems:
    """Prometheus and OpenTelemetry: they ask, and get what was read last."""

    def set_of(self, name: str, folder: Path) -> Set:
        reported = Set(name)
        guard = Guard(lambda *fault: reported.faults.append(fault))
        guard.strict = False
        options = SessionOptions(trackers=[name])
        note = lambda *sentence: reported.notes.append(sentence)  # noqa: E731
        reported.trackers = Trackers(
            options, guard, reported.costs, note, reported.clock, lambda: folder
        )
        return reported

    def leaking(self, folder: Path) -> None:
        leak = LiveLeak(
            headline="Memory leaks.",
            name="replies",
            place="serve.py:5",
            signature="a",
            bytes_per_unit=4096.0,
            unit="request",
            full_at=time.time() + 3600,
            judged_at=time.time(),
        )
        RunDirectory(folder).write_live(leak)

    def test_prometheus_has_memory_and_what_leaks(self, tmp_path: Path) -> None:
        client = pytest.importorskip("prometheus_client")
        reported = self.set_of("prometheus", tmp_path)
        reported.reach(1.0, 1)
        self.leaking(tmp_path)
        exposed = client.generate_latest().decode()
        assert 'leakscope_memory_bytes{of="host"} 3.145728e+08' in exposed
        labels = 'name="replies",place="serve.py:5",unit="request"'
        assert f"leakscope_leak_bytes{{{labels}}} 4096.0" in exposed
        left = float(exposed.split('leakscope_leak_full_in_seconds{name="replies"} ')[1].split()[0])
        assert left == pytest.approx(3600, abs=60)
        reported.reach(2.0, 2, BoundaryKind.RUN_END)
        assert "leakscope" not in client.generate_latest().decode()
        assert reported.faults == reported.notes == []

    def test_opentelemetry_has_the_same(self, tmp_path: Path) -> None:
        export = pytest.importorskip("opentelemetry.sdk.metrics.export")
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider

        reader = export.InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        reported = self.set_of("opentelemetry", tmp_path)
        reported.reach(1.0, 1)
        self.leaking(tmp_path)

        def exported() -> dict[str, list[float]]:
            data = reader.get_metrics_data()
            scopes = [s for r in data.resource_metrics for s in r.scope_metrics] if data else []
            return {
                m.name: [p.value for p in m.data.data_points] for s in scopes for m in s.metrics
            }

        seen = exported()
        assert seen["leakscope.memory"][0] == 300 * MIB
        assert seen["leakscope.leak"] == [4096.0]
        reported.reach(2.0, 2, BoundaryKind.RUN_END)
        assert not any(exported().values())
        assert reported.faults == reported.notes == []

    def test_one_that_the_program_does_not_use_is_noted(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
        reported = self.set_of("prometheus", tmp_path)
        reported.reach(1.0, 1)
        reported.reach(2.0, 2, BoundaryKind.RUN_END)
        ((slug, sentence),) = reported.notes
        assert slug == "tracker-absent"
        assert "prometheus" in sentence

    def test_none_is_reported_without_a_request(self, tmp_path: Path) -> None:
        client = pytest.importorskip("prometheus_client")
        reported = self.set_of("auto", tmp_path)
        reported.reach(1.0, 1)
        assert "leakscope" not in client.generate_latest().decode()
