"""The page on trackers and its example are true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from leakscope.analysis import analyse
from leakscope.configuration import BY_NAME
from leakscope.recording import open_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trackers.md").read_text()


def run(words: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("LEAKSCOPE_STRICT", None)
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def drawn(folder: Path) -> tuple[set[str], set[str]]:
    """Return the names of scalars and of texts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return set(found.Tags()["scalars"]), set(found.Tags()["tensors"])


@pytest.mark.slow
def test_the_snippet_draws_what_the_page_lists(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    code = PAGE.split("```python\n")[1].split("```")[0]
    (tmp_path / "train.py").write_text(code)
    run(["train.py"], tmp_path)
    scalars, texts = drawn(tmp_path / "logs")
    listed = re.findall(r"`(leakscope/[^`]+)`", PAGE)
    assert "leakscope/host_mib" in scalars & {*listed}
    assert "leakscope/report/text_summary" in texts
    assert "leakscope/culprits/kept_kib_per_step" in scalars
    assert "leakscope/culprits/NAME_kib_per_UNIT" in listed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_names_its_leak(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    example = ROOT / "examples" / "with_trackers" / "train.py"
    reported = run([str(example), "--out", "run", "--logs", "logs"], tmp_path)
    assert "main.outputs grows by" in reported
    report = msgspec.to_builtins(analyse(open_run(tmp_path / "run")))
    assert not report["errors"]
    assert report["overhead"]["seconds"]["trackers"] > 0
    scalars, _ = drawn(tmp_path / "logs")
    assert {"loss", "spread", "leakscope/host_mib"} <= scalars


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_without_its_leak_is_clean(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    example = ROOT / "examples" / "with_trackers" / "train_fixed.py"
    run([str(example), "--out", "run", "--logs", "logs"], tmp_path)
    report = msgspec.to_builtins(analyse(open_run(tmp_path / "run")))
    assert report["verdict"] == "clean"
    assert not report["errors"]


def test_choices_of_the_page_are_those_of_the_setting() -> None:
    read = BY_NAME["trackers"].kind.read
    for name in ("auto", "tensorboard", "wandb", "mlflow"):
        assert read(name) == name
    assert read("off") == "off"
    assert BY_NAME["trackers"].default == "auto"
