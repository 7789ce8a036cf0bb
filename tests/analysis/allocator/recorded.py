"""Snapshots recorded on real GPUs, where they are to be had; the tests skip without them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[3].parent / "shared" / "data" / "cuda_snapshots"
FOLDER = Path(os.environ.get("LEAKSCOPE_CUDA_SNAPSHOTS", _BESIDE))
_GOLDEN = FOLDER / "expected.json"
GOLDEN: dict[str, Any] = json.loads(_GOLDEN.read_text()) if _GOLDEN.is_file() else {}
NAMES = sorted(GOLDEN)
needs_recordings = pytest.mark.skipif(not NAMES, reason="the recorded snapshots are not here")


def recording(name: str, ending: str = "pickle") -> Path:
    return FOLDER / f"{name}.{ending}.gz"
