"""`leakscope verify`: whether an offered remedy frees what grows, tried in a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import record_run
from click.testing import CliRunner, Result

from leakscope.cli import leakscope

TRAIN = """
import torch
from meter import Meter

def main():
    model = torch.nn.Linear(256, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = Meter()
    for epoch in range(6):
        for _ in range(150):
            loss = model(torch.randn(128, 256)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss)
    print("done", KIND(meter.values[-1]))

main()
"""
METER = """
import torch

class Meter:
    def __init__(self):
        self.values = []
        self.pages = []

    def update(self, loss):
        self.values.append(float(loss.detach()))
        self.pages.append(torch.zeros(8192))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the run of a program that keeps a page in each step."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(TRAIN.replace("KIND", "type"))
    (folder / "meter.py").write_text(METER)
    command = [sys.executable, "-m", "leakscope", "run", "--out", "run", "train.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def verify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leakscope", "verify", *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        capture_output=True,
        text=True,
        check=False,
    )


def invoke(*words: object) -> Result:
    return CliRunner().invoke(leakscope, ["verify", *map(str, words)], standalone_mode=False)


@pytest.mark.slow
def test_remedy_that_frees_is_fixed_and_leaves_its_patch(recorded: Path) -> None:
    ended = verify(recorded, "run")
    assert ended.returncode == 0, ended.stderr
    assert "leakscope: fixed: Meter.pages no longer grows" in ended.stderr
    assert "done <class 'float'>" in ended.stdout
    assert (recorded / "meter.py").read_text() == METER
    patched = recorded.parent / "patched"
    shutil.copytree(recorded, patched)
    subprocess.run(
        ["patch", "-p1", "-i", "run/remedy-1.patch"], cwd=patched, check=True, capture_output=True
    )
    assert (patched / "meter.py").read_text() != METER


@pytest.mark.slow
def test_program_that_fails_with_the_remedy_verifies_nothing(recorded: Path) -> None:
    ended = verify(recorded, "run", "--out", "other", "--", "train.py", "more", "arguments")
    assert ended.returncode == 0, ended.stderr
    (recorded / "fails.py").write_text("import meter, sys\nsys.exit(3)\n")
    ended = verify(recorded, "run", "--out", "failed", "--", "fails.py")
    assert ended.returncode == 1
    assert "ended with exit code 3, so nothing was verified" in ended.stderr


@pytest.mark.slow
def test_remedy_in_a_module_that_is_not_imported_verifies_nothing(recorded: Path) -> None:
    (recorded / "other.py").write_text("print('other work')\n")
    ended = verify(recorded, "run", "--out", "not-imported", "--", "other.py")
    assert ended.returncode == 1
    assert "didn't import the changed meter.py" in ended.stderr


def test_run_without_culprits_has_nothing_to_verify(tmp_path: Path) -> None:
    result = invoke(record_run(tmp_path / "run", grows=0))
    assert str(result.exception).startswith("Nothing to verify: ")


def test_number_without_a_diff_is_refused(tmp_path: Path) -> None:
    result = invoke(record_run(tmp_path / "run"), "--remedy", "7")
    assert "Culprit 7 has no diff" in str(result.exception)


def test_script_that_is_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(record_run(tmp_path / "run"))
    assert "There is no train.py in this folder" in str(result.exception)


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "is empty" in str(invoke(tmp_path).exception)
