"""What reports count of whole kinds of loops, recorded at the default budget."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kinds_of_loops import PROGRAMS
from snippet_recorder import SnippetRecorder

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def recorder():
    with SnippetRecorder() as recorder:
        yield recorder


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_are_right(recorder, tmp_path, name):
    shutil.copy(HERE / "kinds_of_loops.py", tmp_path)
    (tmp_path / "train.py").write_text(f"import kinds_of_loops\nkinds_of_loops.{name}()\n")
    work = recorder.report(tmp_path)["work"]
    wanted = PROGRAMS[name][1]
    batches = work["batches"]
    others = {phase: n for phase, n in batches.items() if not phase.startswith("train")}
    validation = {n for phase, n in others.items() if phase.startswith("validation")}
    told = {
        "steps": work["steps"],
        "epochs": work["epochs"],
        "validations": work["validations"],
        "train": sum(n for phase, n in batches.items() if phase.startswith("train")),
        "validation": sum(n for p, n in others.items() if p.startswith("validation")),
        "inference": others.get("inference", 0),
    }
    true = {
        "steps": wanted.steps,
        "epochs": wanted.epochs,
        "validations": wanted.validations,
        "train": wanted.steps if wanted.train is None else wanted.train,
        "validation": wanted.validation,
        "inference": wanted.inference,
    }
    assert told == true, (batches, validation, (tmp_path / "output").read_text())
