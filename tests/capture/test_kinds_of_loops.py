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
    true, batches = PROGRAMS[name][1], work["batches"]
    validations = true.validations if isinstance(true.validations, set) else {true.validations}
    output = (tmp_path / "output").read_text()
    assert (work["steps"], work["epochs"]) == (true.steps, true.epochs), (work, output)
    assert work["validations"] in validations, (work, output)
    assert batches.get("train", 0) == (true.steps if true.train is None else true.train), work
    evaluated = sum(n for phase, n in batches.items() if phase.startswith("validation"))
    assert (evaluated, batches.get("inference", 0)) == (true.validation, true.inference), work
