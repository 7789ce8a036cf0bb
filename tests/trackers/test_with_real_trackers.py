"""Real trackers in one program: what the program logs stays as it is, memory is added.

Those that are installed are tested, together and each by itself.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leakscope.recording import open_run

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM = PROGRAMS / "three_trackers.py"
OWN = ("_timestamp", "_runtime")
"""What differs from run to run in a row of wandb's."""


def is_installed(library: str) -> bool:
    found = importlib.util.find_spec(library)
    return found is not None and found.origin is not None  # a folder of that name is none


LIBRARIES = ("tensorboard", "wandb", "mlflow")
INSTALLED = tuple(filter(is_installed, LIBRARIES))


def needs(library: str) -> pytest.MarkDecorator:
    text = f"needs {library}: pip install 'leakscope[trackers]'"
    return pytest.mark.skipif(library not in INSTALLED, reason=text)


needs_any = pytest.mark.skipif(not INSTALLED, reason=f"needs one of {', '.join(LIBRARIES)}")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Ended(NamedTuple):
    folder: Path
    printed: str
    run: Path


def run_program(
    folder: Path,
    *options: str,
    recorded: bool = True,
    close: bool = False,
    trackers: tuple[str, ...] = INSTALLED,
) -> Ended:
    folder.mkdir()
    run = folder / "run"
    before = ["-m", "leakscope", "run", "--quiet", "--out", str(run), *options] if recorded else []
    words = [str(PROGRAM), str(folder), *trackers, *(["--close"] if close else [])]
    return Ended(folder, printed_by([*before, *words], folder), run)


def printed_by(words: list[str], folder: Path) -> str:
    environment = os.environ | {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    environment.pop("LEAKSCOPE_STRICT", None)
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_program(tmp_path_factory.mktemp("plain") / "it", recorded=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_program(tmp_path_factory.mktemp("recorded") / "it")


def wandb_records(folder: Path) -> Iterator[Any]:
    """Yield what wandb wrote, in LevelDB's log format: blocks of 32 KiB after its own header."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, gathered = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        gathered += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(gathered)
            gathered = b""
            yield record


def wandb_rows(folder: Path) -> list[dict[str, str]]:
    rows = [
        {(item.key or ".".join(item.nested_key)): item.value_json for item in record.history.item}
        for record in wandb_records(folder)
        if record.WhichOneof("record_type") == "history"
    ]
    return [{key: row[key] for key in row if key not in OWN} for row in rows]


def ours(row: dict[str, str]) -> dict[str, float]:
    return {key: float(text) for key, text in row.items() if key.startswith("leakscope/")}


def tensorboard(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "logs"))
    found.Reload()
    return found


def metrics(folder: Path) -> dict[str, list[list[str]]]:
    """Return the values of each of MLflow's metrics: time, value and step."""
    (where,) = folder.glob("mlruns/0/*/metrics")
    files = [path for path in where.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(where)): [line.split() for line in path.read_text().splitlines()]
        for path in files
    }


@needs_any
def test_the_program_computes_the_same(plain: Ended, recorded: Ended) -> None:
    assert recorded.printed == plain.printed != ""
    assert not open_run(recorded.run).main.errors


@needs("wandb")
class TestWandB:
    def test_rows_and_steps_of_the_program_stay(self, plain: Ended, recorded: Ended) -> None:
        with_us = wandb_rows(recorded.folder)
        stripped = [{key: row[key] for key in row if key not in ours(row)} for row in with_us]
        alone = wandb_rows(plain.folder)
        assert stripped[: len(alone)] == alone
        # What was logged after the program's last log is a row without anything of the program's.
        assert [list(row) for row in stripped[len(alone) :]] in ([], [["_step"]])

    def test_memory_is_in_the_programs_rows(self, recorded: Ended) -> None:
        reported = [
            ours(row)["leakscope/host_mib"] for row in wandb_rows(recorded.folder) if ours(row)
        ]
        assert len(reported) >= 3
        assert all(50 < figure < 10_000 for figure in reported)

    def test_the_report_is_an_artifact_and_its_verdict_in_the_summary(
        self, recorded: Ended
    ) -> None:
        records = list(wandb_records(recorded.folder))
        (artifact,) = [r.artifact for r in records if r.WhichOneof("record_type") == "artifact"]
        assert artifact.type == "leakscope-report"
        assert [entry.path for entry in artifact.manifest.contents] == ["report.html"]
        summary = {
            (item.key or ".".join(item.nested_key)): item.value_json
            for record in records
            if record.WhichOneof("record_type") == "summary"
            for item in record.summary.update
        }
        assert summary["leakscope/verdict"] == '"leak"'
        assert float(summary["leakscope/culprits/kept_kib_per_step"]) == pytest.approx(16, rel=0.1)


@needs("tensorboard")
class TestTensorBoard:
    def test_scalars_lie_next_to_the_loss(self, plain: Ended, recorded: Ended) -> None:
        with_us, alone = tensorboard(recorded.folder), tensorboard(plain.folder)
        losses = [(event.step, event.value) for event in with_us.Scalars("loss")]
        assert losses == [(event.step, event.value) for event in alone.Scalars("loss")]
        steps = [event.step for event in with_us.Scalars("leakscope/host_mib")]
        assert steps == sorted(steps)
        assert steps[-1] == 150

    def test_the_verdict_is_a_text(self, recorded: Ended) -> None:
        (event,) = tensorboard(recorded.folder).Tensors("leakscope/report/text_summary")
        assert b"**leak**" in event.tensor_proto.string_val[0]


@needs("mlflow")
class TestMLflow:
    def test_metrics_lie_next_to_the_loss(self, plain: Ended, recorded: Ended) -> None:
        with_us, alone = metrics(recorded.folder), metrics(plain.folder)
        assert [line[1:] for line in with_us["loss"]] == [line[1:] for line in alone["loss"]]
        assert with_us["leakscope/host_mib"][-1][2] == "150"
        (rate,) = with_us["leakscope/culprits/kept_kib_per_step"]
        assert float(rate[1]) == pytest.approx(16, rel=0.1)

    def test_the_report_is_an_artifact(self, recorded: Ended) -> None:
        (page,) = recorded.folder.glob("mlruns/0/*/artifacts/leakscope/report.html")
        assert "kept" in page.read_text()
        (verdict,) = recorded.folder.glob("mlruns/0/*/tags/leakscope.verdict")
        assert verdict.read_text() == "leak"


HAS_MEMORY: dict[str, Callable[[Path], bool]] = {
    "wandb": lambda folder: any(ours(row) for row in wandb_rows(folder)),
    "mlflow": lambda folder: "leakscope/host_mib" in metrics(folder),
    "tensorboard": lambda folder: "leakscope/host_mib" in tensorboard(folder).Tags()["scalars"],
}


@pytest.mark.parametrize("library", [pytest.param(name, marks=needs(name)) for name in LIBRARIES])
def test_a_tracker_by_itself_is_given_the_memory(tmp_path: Path, library: str) -> None:
    ended = run_program(tmp_path / "it", trackers=(library,))
    assert HAS_MEMORY[library](ended.folder)
    assert not open_run(ended.run).main.errors


@needs_any
def test_runs_that_the_program_ends_itself_are_given_the_memory_only(tmp_path: Path) -> None:
    ended = run_program(tmp_path / "it", close=True)
    assert all(HAS_MEMORY[library](ended.folder) for library in INSTALLED)
    assert not [*ended.folder.glob("mlruns/0/*/artifacts/leakscope")]
    written = len([*ended.folder.glob("logs/*")])
    assert written == ("tensorboard" in INSTALLED), "a writer that was closed stays closed"
    assert (ended.run / "report.html").exists()
    assert closed_ones(ended.run) == sorted(INSTALLED)


def closed_ones(run: Path) -> list[str]:
    """Return the trackers of which a recording notes that they keep no report."""
    notes = [note for note in open_run(run).main.notes if note.slug == "tracker-closed"]
    assert all("neither the report nor the culprits' rates" in note.message for note in notes)
    return sorted(note.message.split()[0] for note in notes)


@pytest.mark.skipif(not is_installed("transformers"), reason="needs transformers")
@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=needs(name)) for name in ("tensorboard", "mlflow")]
)
class TestTheTrainerOfTransformers:
    """Its own callbacks close what they log to where they hear that the training is over."""

    def test_what_it_reports_to_keeps_the_report_of_a_callback(
        self, tmp_path: Path, library: str
    ) -> None:
        printed_by(self.words(tmp_path, library, "callback"), tmp_path)
        assert HAS_REPORT[library](tmp_path)
        assert closed_ones(tmp_path / "run") == []

    def test_a_recording_that_ends_later_says_that_it_is_not_kept(
        self, tmp_path: Path, library: str
    ) -> None:
        out = str(tmp_path / "run")
        before = ["-m", "leakscope", "run", "--quiet", "--out", out]
        printed_by([*before, *self.words(tmp_path, library, "run")], tmp_path)
        assert not HAS_REPORT[library](tmp_path)
        assert closed_ones(tmp_path / "run") == [library]

    @staticmethod
    def words(folder: Path, library: str, recorded: str) -> list[str]:
        return [str(PROGRAMS / "transformers_trainer.py"), str(folder), library, recorded]


def tensorboard_of_trainer(folder: Path) -> bool:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (logs,) = folder.glob("checkpoints/runs/*")
    found = EventAccumulator(str(logs))
    found.Reload()
    tags = found.Tags()
    has_text = "leakscope/report/text_summary" in tags["tensors"]
    return has_text and "leakscope/culprits/kept_kib_per_step" in tags["scalars"]


def mlflow_of_trainer(folder: Path) -> bool:
    pages = [*folder.glob("mlruns/*/*/artifacts/leakscope/report.html")]
    return bool(pages) and "leakscope/culprits/kept_kib_per_step" in metrics(folder)


HAS_REPORT = {"tensorboard": tensorboard_of_trainer, "mlflow": mlflow_of_trainer}


@needs_any
def test_off_leaves_all_trackers_alone(tmp_path: Path) -> None:
    ended = run_program(tmp_path / "it", "--tracker", "off")
    assert not any(HAS_MEMORY[library](ended.folder) for library in INSTALLED)
    if "mlflow" in INSTALLED:
        assert [*metrics(ended.folder)] == ["loss"]
    if "tensorboard" in INSTALLED:
        assert tensorboard(ended.folder).Tags()["scalars"] == ["loss"]
