"""Circles through C++ and a hook are reported as loops, with the line that made them."""

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

PROGRAM = Path(__file__).parent / "programs" / "autograd_circles.py"
LOOPS = {
    "cached_output": ("the hook Memo.seen and the graph of", ["Memo", "Memo.hidden"]),
    "wrapper": ("the hook Wrapper.__init__.<lambda> and the graph of", ["Wrapper", "Wrapper.out"]),
    "old_weight_norm": ("the graph of Linear.weight", ["Linear", "Linear.weight"]),
    "parametrized": ("the graph of Symmetric.last", ["Symmetric", "Symmetric.last"]),
    "saved_tensors": ("the unpack hook Halved.unpack and the graph of", ["Halved", "result"]),
    "after_accumulation": ("and Linear.weight keep", ["Linear", "Linear.weight"]),
    "communication_hook": (
        "a communication hook and DistributedDataParallel",
        ["State", "DistributedDataParallel", "Reducer"],
    ),
}
"""By program words of the title, and steps of the loop."""
BYTES_A_STEP = {"communication_hook": 3 * 133_120, "after_accumulation": 2 * 133_120}
"""Parameters, gradients and buckets, where nothing else of size comes with them."""
HEALTHY = ("leaf_hook", "module_hook")


def report_of(case: str, variant: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, str(PROGRAM), case, variant, "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, cwd=folder, env=environment, check=True, timeout=120)
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def lines_that_make(case: str) -> set[int]:
    """Return the marked line below a case's function or class, and those of the same statement."""
    starts = {"cached_output": "class Memo", "wrapper": "class Wrapper"}
    starts |= {"parametrized": "class Symmetric", "saved_tensors": "class Halved"}
    lines = PROGRAM.read_text().splitlines()
    begins = next(
        n for n, line in enumerate(lines) if line.startswith(starts.get(case, f"def {case}("))
    )
    made = next(n for n in range(begins, len(lines)) if "made here" in lines[n]) + 1
    return {made, made - 1}


@pytest.mark.parametrize("case", sampled(LOOPS, {"after_accumulation"}))
def test_the_loop_is_reported_with_its_steps_and_the_line_that_made_it(
    case: str, tmp_path: Path
) -> None:
    report = report_of(case, "leak", tmp_path)
    assert report["verdict"] == "leak"
    first = [*report["culprits"], *report["findings"]][0]
    words, steps = LOOPS[case]
    assert first["kind"] == "autograd_loop"
    assert words.lower() in first["title"].lower()
    reported = first["circles"][0]["steps"]
    assert all(any(step in each for each in reported) for step in steps), reported
    assert {int(line.rpartition(":")[2]) for line in first["fed_at"]} & lines_that_make(case)
    if case in BYTES_A_STEP:
        assert first["bytes_per_unit"] == pytest.approx(BYTES_A_STEP[case], rel=0.15)
    kinds = {f["kind"] for f in report["findings"] if f["severity"] != "note"}
    assert not kinds & {"leaked_references", "native_held", "unexplained"}


@pytest.mark.parametrize("case", sampled([*LOOPS, *HEALTHY], {"module_hook"}))
def test_what_is_opened_or_seen_by_the_collector_is_clean(case: str, tmp_path: Path) -> None:
    report = report_of(case, "fixed", tmp_path)
    assert report["verdict"] != "leak"
    kinds = {f["kind"] for f in report["findings"] if f["severity"] != "note"}
    assert not kinds & {"autograd_loop", "leaked_references", "native_held", "unexplained"}
