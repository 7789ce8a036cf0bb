"""What a step leaves to the next: reported with its bytes and the `del` that helps."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

pytestmark = pytest.mark.slow

ReportOf = Callable[[Path, Path], dict[str, Any]]
PROGRAMS = Path(__file__).parent / "programs"
CONTEXT = 32 * 32 * 2 * 2048 * 4
CONFUSION = 32 * 100_000 * 8
FROZEN = 4 * (1024 * 2048 + 2048 + 2048 * 256 + 256)
GRADIENTS = 4 * (2 * 2048 * 1024 + 1024 + 1024 * 10 + 10)


@pytest.fixture
def report_of(leakscope_commands: Warm) -> ReportOf:
    """Return what runs a program under leakscope in a folder, and returns its report."""

    def report(program: Path, folder: Path) -> dict[str, Any]:
        folder.mkdir(exist_ok=True)
        command = ["-m", "leakscope", "run", "--quiet", "--out", "run", str(program)]
        leakscope_commands.run(command, folder).well()
        found: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
        return found

    return report


def patched(program: Path, diff: str, tmp_path: Path) -> Path:
    copy = tmp_path / program.name
    copy.write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
    lines = diff.replace(diff.splitlines()[0], f"--- {copy.name}", 1)
    command = ["patch", "--quiet", str(copy)]
    subprocess.run(command, input=lines, text=True, check=True, cwd=tmp_path)
    return copy


def test_variables_that_live_through_the_next_step(tmp_path: Path, report_of: ReportOf) -> None:
    program = PROGRAMS / "step_leftovers.py"
    report = report_of(program, tmp_path)
    findings = {finding["kind"]: finding for finding in report["findings"]}
    assert report["verdict"] == "clean"
    left = findings["outlives_iteration"]
    assert left["severity"] == "note"
    assert left["title"].startswith("confusion and context keep")
    assert left["total_bytes"] == pytest.approx(CONTEXT + CONFUSION, rel=0.1)

    gradients = findings["gradients_through_forward"]
    assert gradients["total_bytes"] == pytest.approx(GRADIENTS, rel=0.1)
    assert (
        "+            optimizer.zero_grad()\n             features" in gradients["remedy"]["diff"]
    )

    mended = report_of(patched(program, left["remedy"]["diff"], tmp_path), tmp_path / "mended")
    assert "outlives_iteration" not in {finding["kind"] for finding in mended["findings"]}


def test_a_step_that_leaves_nothing(tmp_path: Path, report_of: ReportOf) -> None:
    report = report_of(PROGRAMS / "step_tidy.py", tmp_path)
    assert report["verdict"] == "clean"
    kinds = {finding["kind"] for finding in report["findings"]}
    assert kinds <= {"allocator_slack"}  # large tensors that come and go leave some


def test_gradients_that_frozen_parameters_keep(tmp_path: Path, report_of: ReportOf) -> None:
    report = report_of(PROGRAMS / "frozen_gradients.py", tmp_path)
    assert report["verdict"] == "clean"
    frozen = {finding["kind"]: finding for finding in report["findings"]}["frozen_gradients"]
    assert frozen["severity"] == "note"
    assert frozen["total_bytes"] == pytest.approx(FROZEN, rel=0.02)
    assert "frozen_gradients.py:20" in frozen["text"]


def test_frozen_parameters_whose_gradients_were_dropped(
    tmp_path: Path, report_of: ReportOf
) -> None:
    report = report_of(PROGRAMS / "frozen_tidy.py", tmp_path)
    kinds = {finding["kind"] for finding in report["findings"]}
    assert kinds <= {"allocator_slack"}


@pytest.mark.parametrize(
    ("clearing", "kind"),
    [
        ("optimizer.zero_grad(set_to_none=False)", "gradients_kept_as_zeros"),
        pytest.param("pass", "gradients_never_cleared", marks=pytest.mark.corpus),
    ],
)
def test_gradients_that_stay_through_the_forward_pass(
    tmp_path: Path, clearing: str, kind: str, report_of: ReportOf
) -> None:
    tidy = (PROGRAMS / "step_tidy.py").read_text(encoding="utf-8")
    program = tmp_path / "train.py"
    program.write_text(tidy.replace("optimizer.zero_grad()", clearing), encoding="utf-8")
    report = report_of(program, tmp_path)
    kinds = {finding["kind"]: finding for finding in report["findings"]}
    assert report["verdict"] == "clean"
    assert kinds.keys() - {"allocator_slack"} == {kind}
    assert kinds[kind]["total_bytes"] == pytest.approx(GRADIENTS, rel=0.1)
