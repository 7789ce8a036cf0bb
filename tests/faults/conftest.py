"""What the plain training learns, and the readers of pages that other rooms' tests have."""

from __future__ import annotations

import sys
from pathlib import Path

import fault_runs
import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("report", "zoo")]


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training prints when leakscope is not there."""
    ended = fault_runs.plainly(fault_runs.TRAINING, tmp_path_factory.mktemp("plain"))
    assert ended.code == 0, ended.err
    return ended.result
