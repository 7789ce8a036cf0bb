"""The examples of the page on tests run, and write what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "pytest.md"
BLOCK = re.compile(r"```python\n# (\w+\.py)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
BLOCKS = {
    name: (f"# {name}\n{code}", shown) for name, code, shown in BLOCK.findall(PAGE.read_text())
}


def ran(folder: Path, name: str) -> tuple[int, str]:
    (folder / name).write_text(BLOCKS[name][0])
    options = ["-m", "pytest", "-p", "leakscope.testing.plugin", "--rootdir=."]
    command = [sys.executable, *(options if name.startswith("test_") else []), name]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=250
    )
    return done.returncode, done.stdout + done.stderr


def test_every_block_is_a_program_that_these_tests_run() -> None:
    assert set(BLOCKS) == {"test_server.py", "test_jobs.py", "no_leaks.py"}
    assert PAGE.read_text().count("```") == 2 * (3 + 2)


@pytest.mark.slow
def test_the_leaking_test_fails_with_the_message_shown(tmp_path: Path) -> None:
    code, out = ran(tmp_path, "test_server.py")
    assert code == 1, out
    assert BLOCKS["test_server.py"][1] in out


@pytest.mark.slow
def test_the_fixture_finds_what_the_page_says(tmp_path: Path) -> None:
    code, out = ran(tmp_path, "test_jobs.py")
    assert code == 0, out


@pytest.mark.slow
def test_the_function_prints_what_the_page_shows(tmp_path: Path) -> None:
    assert ran(tmp_path, "no_leaks.py") == (0, BLOCKS["no_leaks.py"][1])
