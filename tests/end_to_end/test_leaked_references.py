"""A C extension that leaks references, and the same one used so that it doesn't."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

PROGRAMS = Path(__file__).parent / "programs"
COMPILER = shutil.which("gcc") or shutil.which("cc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program and the extension, which is built there."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(PROGRAMS / "encoded_in_c.py", folder)
    target = folder / f"leaky_encoder{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    source = PROGRAMS / "leaky_encoder.c"
    command = [COMPILER, "-shared", "-fPIC", "-O1", f"-I{include}", source, "-o", target]
    subprocess.run([str(part) for part in command], check=True)
    return folder


def report_of(project: Path, out: Path, leakscope: Warm, function: str) -> dict[str, Any]:
    command = ["-m", "leakscope", "run", "--quiet", "--out", str(out), "encoded_in_c.py", function]
    leakscope.run(command, project).well()
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def test_the_function_that_leaks_references_is_named_with_its_line(
    project: Path, tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of(project, tmp_path / "run", leakscope_commands, "encode")
    first = report["findings"][0]
    assert report["verdict"] == "leak"
    assert first["kind"] == "leaked_references"
    assert first["title"] == "References to list objects are leaked by leaky_encoder.encode"
    assert first["fed_at"] == ["encoded_in_c.py:14"]
    assert "unexplained" not in {finding["kind"] for finding in report["findings"]}


@pytest.mark.parametrize("function", ["encode_well", "enqueue"])
def test_neither_a_function_that_keeps_nothing_nor_a_queue_that_drains_is_accused(
    project: Path, tmp_path: Path, leakscope_commands: Warm, function: str
) -> None:
    report = report_of(project, tmp_path / "run", leakscope_commands, function)
    assert report["verdict"] == "clean", report["headline"]
