"""Ways in which torch programs leak, and look-alikes that don't, each recorded unmodified.

Every leak tells by itself, in a run of its own without leakscope, how many bytes it keeps per unit.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled
from snippet_recorder import SnippetRecorder
from torch_leaks.table import LEAKS, Leak
from warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "torch_leaks"
SAMPLE = ("create_graph_cycle", "hidden_state", "running_total", "views")
LOOK_ALIKES = sorted(path.stem for path in PROGRAMS.glob("*_lookalike.py"))
ALIKE = ("metric_state_lookalike", "replay_buffer_lookalike", "retain_graph_lookalike")


def run(recorder: SnippetRecorder, folder: Path, program: str) -> dict[str, Any]:
    return recorder.report(Path(shutil.copytree(PROGRAMS, folder / "project")), f"{program}.py")


def kept_bytes(python: Warm, folder: Path, program: str) -> dict[str, float]:
    """Return what a program says it keeps, per unit of each kind."""
    done = python.run([str(PROGRAMS / f"{program}.py")], folder, {"COUNT_KEPT": "1"}).well()
    output = next(line for line in done.out.splitlines() if line.startswith("kept bytes "))
    kept: dict[str, float] = json.loads(output.removeprefix("kept bytes "))
    return kept


def accusations(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return culprits, then findings, without the notes."""
    finding = [*report["culprits"], *report["findings"]]
    return [item for item in finding if item["severity"] != "note"]


def summary(report: dict[str, Any]) -> str:
    keys = ("name", "kind", "severity", "growth", "unit", "bytes_per_unit", "fed_at")
    rows = [{key: c.get(key) for key in keys} for c in accusations(report)]
    remedies = [c["remedy"] for c in accusations(report)]
    return f"{report['headline']}\n{json.dumps(rows, indent=1)}\n{json.dumps(remedies, indent=1)}"


def check_where(first: dict[str, Any], program: str, leak: Leak) -> None:
    source = (PROGRAMS / f"{program}.py").read_text().splitlines()
    fed = [source[int(location.rpartition(":")[2]) - 1] for location in first["fed_at"]]
    assert any(leak.line in text for text in fed[:2]), fed


def check_remedy(remedy: dict[str, Any], leak: Leak) -> None:
    assert leak.title in remedy["title"]
    if leak.diff:
        assert leak.diff in (remedy["diff"] or "").splitlines(), remedy["diff"]
    else:
        assert remedy["diff"] is None


@pytest.mark.parametrize("name", sampled(LEAKS, SAMPLE))
def test_leak_is_diagnosed_with_its_line_rate_and_remedy(
    name: str, tmp_path: Path, recorder: SnippetRecorder, torch_programs: Warm
) -> None:
    leak, program = LEAKS[name], f"{name}_leaks"
    report = run(recorder, tmp_path, program)
    found = accusations(report)
    assert report["verdict"] == "leak", summary(report)
    assert len(found) == 1, summary(report)
    first = found[0]
    assert first.get("name", first["kind"]) in leak.names, summary(report)
    assert first["unit"] in leak.units, summary(report)
    check_where(first, program, leak)
    check_remedy(first["remedy"], leak)
    truth = kept_bytes(torch_programs, tmp_path, program)[first["unit"]]
    assert first["bytes_per_unit"] == pytest.approx(truth, rel=0.1), summary(report)
    if leak.graph and "graph_nodes" in first:
        assert first["graph_nodes"] > 0, summary(report)
        assert first["graph_bytes"]["host"] > 0, summary(report)
        assert "autograd node" in first["sentence"], summary(report)


@pytest.mark.parametrize("program", sampled(LOOK_ALIKES, ALIKE))
def test_look_alike_is_clean(program: str, tmp_path: Path, recorder: SnippetRecorder) -> None:
    report = run(recorder, tmp_path, program)
    assert report["verdict"] == "clean", summary(report)


def test_every_leak_has_its_look_alike() -> None:
    assert sorted(f"{name}_lookalike" for name in LEAKS) == LOOK_ALIKES
