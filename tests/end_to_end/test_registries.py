"""What registries of the interpreter and of libraries keep is reported by their own names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "registries.py"
SUBJECTS = {
    "finalizers": ("finalize._registry", "More and more finalizers of objects that are alive"),
    "import_paths": ("sys.path", "More and more paths on which modules are looked for"),
    "tree_nodes": (
        "_pytree.SUPPORTED_NODES",
        "More and more classes registered as nodes of trees",
    ),
    "operators": ("torch.library", "More and more operators and kernels that were registered"),
    "error_handlers": ("codecs", "Error handlers of codecs pile up"),
    "numbered_classes": ("Batch", "New classes are made all along"),
    "script_types": ("type_store", "More and more types of scripted modules"),
    "tracker_records": ("queue", "More and more records that wait to be written"),
    "module_hooks": ("_global_forward_hooks", "More and more hooks of all modules"),
}
"""By program the registry that keeps what it registers, as a row and as a finding."""
BYTES_A_STEP = {
    "finalizers": 300_000,
    "module_hooks": 300_000,
    "error_handlers": 300_000,
    "numbered_classes": 300_000,
}
"""Where nearly nothing else comes with them."""
SAMPLE = {"finalizers", "module_hooks"}


def report_of(case: str, variant: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, str(PROGRAM), case, variant, "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, cwd=folder, env=environment, check=True, timeout=120)
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def registering_line(case: str) -> int:
    lines = PROGRAM.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {case}("))
    return next(n for n in range(start, len(lines)) if "registered here" in lines[n]) + 1


@pytest.mark.parametrize("case", sampled(SUBJECTS, SAMPLE))
def test_a_registry_that_grows_is_named_with_the_line_that_registers(
    case: str, tmp_path: Path
) -> None:
    report = report_of(case, "leak", tmp_path)
    assert report["verdict"] == "leak"
    first = [*report["culprits"], *report["findings"]][0]
    place, title = SUBJECTS[case]
    assert place in first.get("name", "") or first.get("title", "").startswith(title)
    assert any(line.endswith(f":{registering_line(case)}") for line in first["fed_at"])
    if case in BYTES_A_STEP:
        assert first["bytes_per_unit"] == pytest.approx(BYTES_A_STEP[case], rel=0.1)


@pytest.mark.parametrize("case", sampled([*SUBJECTS, "living_finalizers"], set()))
def test_what_is_taken_back_or_bounded_is_clean(case: str, tmp_path: Path) -> None:
    report = report_of(case, "fixed", tmp_path)
    assert report["verdict"] == "clean"
    assert not [f for f in report["findings"] if f["kind"] in ("registry", "unexplained")]
