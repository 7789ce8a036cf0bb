"""What the recorded snapshots may say of the machine they come from: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import record_snapshots
from gpu_at_hand import why_not

from leakscope.analysis.allocator.reading import decode_snapshot

PACKAGES = sysconfig.get_path("purelib")


def test_paths_begin_in_the_repository_or_in_a_package() -> None:
    assert record_snapshots.relative(__file__) == "tests/gpu/test_record_snapshots.py"
    assert record_snapshots.relative(f"{PACKAGES}/torch/nn/modules/module.py") == (
        "torch/nn/modules/module.py"
    )
    assert record_snapshots.relative("/home/somebody/secret/train.py") == "train.py"
    assert record_snapshots.relative("??") == "??"


def test_a_snapshot_keeps_all_but_its_folders() -> None:
    frames = [{"filename": "/home/u/a.py", "line": 1, "name": "f"}]
    block = {"size": 512, "requested_size": 4, "address": 0, "state": "active_allocated"}
    reported = {
        "segments": [
            {
                "device": 0, "address": 0, "total_size": 1024, "stream": 0,
                "segment_type": "small", "segment_pool_id": (0, 0), "allocated_size": 1024,
                "active_size": 1024, "requested_size": 8,
                "blocks": [{**block, "address": at, "frames": frames} for at in (0, 512)],
            }
        ],
        "device_traces": [[]],
    }  # fmt: skip
    made = record_snapshots.with_relative_paths(reported)
    (segment,) = decode_snapshot(made, "made").segments
    first, second = segment.blocks
    assert first.stack is second.stack is not None
    assert first.stack.frames[0].file == "a.py"
    assert frames[0]["filename"] == "/home/u/a.py"
    shared = [b["frames"] for b in made["segments"][0]["blocks"]]
    assert shared[0] is shared[1]


def test_without_a_device_it_says_so(tmp_path: Path) -> None:
    if not why_not():
        return
    script = Path(record_snapshots.__file__)
    root = str(script.parents[2])
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 1
    assert "no CUDA device" in done.stderr
    assert not (tmp_path / "out").exists()
