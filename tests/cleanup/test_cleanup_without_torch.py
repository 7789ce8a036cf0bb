"""Everything works in a process that can't import torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
sys.modules["torch"] = None
from leakscope import cleanup

print(cleanup.clear_memory(force=True))
print(cleanup.memory_stats())
cleanup.log_memory_stats("now")
cleanup.reset_peak_memory_stats()
with cleanup.MemoryScope("block", exact_peak=True):
    pass
for attempt in cleanup.oom_guard.attempts(retries=1):
    with attempt:
        if attempt.number == 1:
            bytearray(2**62)
every = cleanup.cleanup_every(1)
for _ in every(range(6)):
    pass
print(every.report())
print(cleanup.live_tensors().groups)
print(cleanup.survey_gpus().remark)
"""


def test_all_of_it_works_where_torch_cant_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "No GPU figures: this process has not imported torch." in done.stdout
    assert "now: host" in done.stderr
    assert "block: host kept" in done.stderr
    assert "Out of memory on host" in done.stderr
    assert "leave it out" in done.stderr
    assert "Traceback" not in done.stderr
