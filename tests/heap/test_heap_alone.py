"""Tests of what a process holds as a whole, each file in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from heap_programs import ALONE


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_in_a_process_of_their_own() -> None:
    file = Path(__file__).with_name(ALONE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
