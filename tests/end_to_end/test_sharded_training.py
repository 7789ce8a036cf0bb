"""Distributed tensors, sharded models and wrappers under torchrun over gloo: what they keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "rank_programs" / "sharded.py"
ROOT = Path(__file__).parents[2]
BYTES_A_STEP = {
    "tensors_kept": 256 * 128 * 4,
    "full_parameters_kept": 128 * 128 * 4,
    "sharded_gradients_kept": (128 * 128 + 128) * 4,
    "sharded_hooks": 256 * 128 * 4,
    "communication_state": 2 * (128 * 128 + 128) * 4,
}
HOLDERS = {
    "tensors_kept": "tensors_kept.log",
    "full_parameters_kept": "full_parameters_kept.snapshots",
    "sharded_gradients_kept": "sharded_gradients_kept.gradients",
    "models_sharded": "models_sharded.registry",
    "shapes_sharded": "More and more results of operators for shapes of tensors",
    "sharded_hooks": "sharded_hooks.model._forward_hooks",
    "communication_state": "communication_state.state['buckets']",
    "wrapped_again": "wrapped_again.wrappers",
}
WITHOUT_LINE = {"communication_state"}
"""Only torch hands the state to the function that fills it."""
OF_SEVERAL_LINES = {"shapes_sharded"}
"""Other cases of the same file make distributed tensors, too."""
SAMPLE = {"tensors_kept"}


def report_of(case: str, variant: str, folder: Path) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    recorded = ["-m", "leakscope", "run", "--quiet", "--out", "run", str(PROGRAM), case, variant]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *launcher, *recorded]
    subprocess.run(words, cwd=folder, env=environment, check=True, timeout=240, capture_output=True)
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def filling_line(case: str) -> int:
    lines = PROGRAM.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {case}("))
    return next(n for n in range(start, len(lines)) if "grows here" in lines[n]) + 1


@pytest.mark.parametrize("case", sampled(HOLDERS, SAMPLE))
def test_what_keeps_them_is_named_with_line_and_rate(case: str, tmp_path: Path) -> None:
    report = report_of(case, "leak", tmp_path)
    first = [*report["culprits"], *report["findings"]][0]
    assert report["verdict"] == "leak"
    assert first.get("name", first.get("title")) == HOLDERS[case]
    if case not in WITHOUT_LINE:
        lines = first["fed_at"] if case in OF_SEVERAL_LINES else first["fed_at"][:1]
        assert any(line.endswith(f"sharded.py:{filling_line(case)}") for line in lines)
    if case in BYTES_A_STEP:
        assert first["bytes_per_unit"] == pytest.approx(BYTES_A_STEP[case], rel=0.1)
        assert not [f for f in report["findings"] if f["severity"] != "note"]


@pytest.mark.parametrize("case", sampled(HOLDERS, set()))
def test_the_fixed_twin_is_clean(case: str, tmp_path: Path) -> None:
    report = report_of(case, "fixed", tmp_path)
    assert report["verdict"] == "clean"
    assert report["culprits"] == []
