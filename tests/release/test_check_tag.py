"""A release is refused where tag, version and changelog don't agree."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import leakscope

SCRIPT = Path(__file__).parents[2] / ".github" / "check_tag.py"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-28\n"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_tag", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_read_without_importing_anything(check: ModuleType) -> None:
    assert check.version('import torch\n__version__ = "1.2.0"\n') == "1.2.0"
    with pytest.raises(SystemExit):
        check.version("import torch\n")


@pytest.mark.parametrize(
    ("tag", "version", "text"),
    [
        ("v1.2.0", "1.2.0", ""),
        ("v1.2.1", "1.2.0", "the tag must be v1.2.0"),
        ("1.2.0", "1.2.0", "the tag must be v1.2.0"),
        ("v1.3.0", "1.3.0", "no section `## [1.3.0]"),
    ],
)
def test_tag_version_and_changelog_must_agree(
    check: ModuleType, tag: str, version: str, text: str
) -> None:
    trouble = check.trouble(tag, version, CHANGELOG)
    assert text in trouble
    assert bool(trouble) is bool(text)


def test_another_tag_ends_the_script_with_an_error() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "v0.0.0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"the tag must be v{leakscope.__version__}" in done.stderr
