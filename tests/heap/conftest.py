from __future__ import annotations

from pathlib import Path

import pytest
from heap_programs import RunProgram, program_runner


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    return program_runner(tmp_path)
