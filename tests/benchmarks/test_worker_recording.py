"""Recorded workers are measured as torch starts them by itself, and with a large dataset, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from worker_recording import CASES, VARIANTS, tell


def test_small_and_large_datasets_are_loaded_by_workers_of_both_kinds():
    assert {(case.dicts >= 200_000, case.persistent) for case in CASES.values()} == {
        (large, persistent) for large in (False, True) for persistent in (False, True)
    }


def test_the_first_pass_and_processor_time_are_distinguished(capsys):
    plain = {"first": 2.0, "later": 10.0, "processor": 30.0}
    recorded = {"first": 3.0, "later": 10.1, "processor": 33.0}
    tell({VARIANTS[0]: [plain], VARIANTS[1]: [plain], VARIANTS[2]: [recorded]}, passes=4)
    last = capsys.readouterr().out.splitlines()[-1]
    assert "first pass 1.500" in last
    assert "later passes 1.010" in last
    assert "processor 1.100" in last
