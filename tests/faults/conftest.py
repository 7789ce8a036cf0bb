"""What the plain training learns, for all tests to compare with."""

from __future__ import annotations

import fault_runs
import pytest


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training prints when leakscope is not there."""
    ended = fault_runs.plainly(fault_runs.TRAINING, tmp_path_factory.mktemp("plain"))
    assert ended.code == 0, ended.err
    return ended.result
