"""What libraries of some years ago are known to keep, with those versions: the entry is reported.

They are installed next to the present ones for the time of a test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "old_libraries"
ACCELERATE = ("accelerate==1.3.0",)
TRANSFORMERS = (
    "transformers==4.39.3",
    "tokenizers==0.15.2",
    "huggingface-hub<0.30",
    "accelerate==0.34.2",
    "peft==0.10.0",
)
LIGHTNING = ("pytorch-lightning==1.9.5", "lightning-utilities<0.16", "setuptools<80")
Install = Callable[[tuple[str, ...]], Path]


@dataclass(frozen=True)
class Old:
    """A program and the library that it shows."""

    program: str
    packages: tuple[str, ...]
    culprit: str

    @property
    def library(self) -> tuple[str, ...]:
        """Name and version."""
        return tuple(self.packages[0].split("=="))


OLD = {
    "accelerate-dataloader-references": Old(
        "loaders_left_early.py", ACCELERATE, "accelerator.gradient_state.dataloader_references"
    ),
    "transformers-evaluation-joined": Old(
        "outputs_of_an_evaluation.py", TRANSFORMERS, "Trainer.evaluation_loop.preds_host"
    ),
    "lightning-epoch-end-outputs": Old("outputs_of_a_validation.py", LIGHTNING, "_outputs"),
    "lightning-csv-logger": Old("metrics_written_as_csv.py", LIGHTNING, "experiment.metrics"),
}
"""By the entry of the catalogue."""


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Return what installs packages into a folder of their own, each set once."""
    folders: dict[tuple[str, ...], Path] = {}

    def installed(packages: tuple[str, ...]) -> Path:
        if packages not in folders:
            folder = tmp_path_factory.mktemp("old")
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
            subprocess.run([*command, str(folder), *packages], check=True)
            folders[packages] = folder
        return folders[packages]

    return installed


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("name", OLD)
def test_what_an_old_version_is_known_for_is_reported_with_its_culprit(
    name: str, install: Install, tmp_path: Path
) -> None:
    old = OLD[name]
    command = [sys.executable, "-m", "leakscope", "run", "--quiet", "--out", "run"]
    paths = [str(install(old.packages)), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [*command, str(PROGRAMS / old.program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    output = json.loads((tmp_path / "run" / "report.json").read_text())
    first = output["culprits"][0]
    assert first["name"].endswith(old.culprit)
    assert first["known"]["id"] == name
    assert (first["known"]["library"], first["known"]["version"]) == old.library
