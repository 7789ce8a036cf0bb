"""Where there is no C compiler the package installs all the same, and says what it lacks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import leakscope
kept = []
with leakscope.profile(out="run", boundaries="manual") as scope:
    for epoch in scope.epochs(range(12)):
        kept.append(bytearray(4 << 20))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package with a compiler that always fails; return where it went."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    folder = tmp_path_factory.mktemp("without_compiler")
    sources, site = folder / "sources", folder / "site"
    unbuilt = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(REPOSITORY / "leakscope", sources / "leakscope", ignore=unbuilt)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, sources)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--target", str(site), str(sources)),
        ],
        env=os.environ | {"CC": "false", "CXX": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
def test_a_run_is_recorded_and_the_report_says_which_walker_it_was(
    installed: Path, tmp_path: Path
) -> None:
    assert not list(installed.glob("leakscope/**/*.so"))
    (tmp_path / "train.py").write_text(PROGRAM)
    for command in ("train.py", "-m leakscope report run --format text"):
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "walker: reference" in done.stdout
    assert "reports no other holders of what grows" in " ".join(done.stdout.split())
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["overhead"]["walker"] == "reference"
    assert [culprit["name"] for culprit in report["culprits"]] == ["kept"]
