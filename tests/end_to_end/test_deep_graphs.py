"""A graph too deep to be walked again is still the culprit, at the rate at which memory grows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "deep_graph.py"


def run(case: str, folder: Path) -> tuple[dict[str, Any], str]:
    words = [sys.executable, str(PROGRAM), case, "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        words, cwd=folder, env=environment, check=True, timeout=120, capture_output=True, text=True
    )
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report, ended.stdout


def test_a_state_that_is_never_detached_has_its_whole_rate(tmp_path: Path) -> None:
    report, out = run("leak", tmp_path)
    truth = int(out.partition("bytes per step:")[2].split()[0])
    first = [*report["culprits"], *report["findings"]][0]
    lines = PROGRAM.read_text().splitlines()
    grows = next(n for n, line in enumerate(lines, 1) if "grows here" in line)
    assert report["verdict"] == "leak"
    assert "Recogniser.hidden" in report["headline"]
    assert first["fed_at"][0].endswith(f"deep_graph.py:{grows}")
    assert first["bytes_per_unit"] == pytest.approx(truth, rel=0.1)
    assert not [f for f in report["findings"] if f["kind"] == "unexplained"]


def test_what_an_extension_leaks_next_to_it_is_reported_with_its_own_line(tmp_path: Path) -> None:
    report, out = run("beside", tmp_path)
    truth = int(out.partition("bytes per step:")[2].split()[0]) - 400_000
    reported = [*report["culprits"], *report["findings"]]
    lines = PROGRAM.read_text().splitlines()
    leaks = next(n for n, line in enumerate(lines, 1) if "leaks here" in line)
    graph = max(reported, key=lambda each: each["bytes_per_unit"])
    (other,) = [f for f in report["findings"] if f["kind"] == "leaked_references"]
    assert "Recogniser.hidden" in report["headline"]
    assert "Also: " in report["headline"]
    assert graph["bytes_per_unit"] == pytest.approx(truth, rel=0.1)
    assert other["fed_at"][0].endswith(f"deep_graph.py:{leaks}")
    assert other["bytes_per_unit"] == pytest.approx(400_000, rel=0.4)  # some eighty samples


@pytest.mark.parametrize("case", ["fixed", "cut"])
def test_a_graph_that_is_cut_is_clean_however_deep_it_was(case: str, tmp_path: Path) -> None:
    report, _ = run(case, tmp_path)
    assert report["verdict"] == "clean"
    assert report["culprits"] == []
    assert not [f for f in report["findings"] if f["severity"] != "note"]
