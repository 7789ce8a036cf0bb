"""What can be recorded with this Python: the heap's walker, torch, its devices.

Importing torch takes seconds and may fail, so a process of its own does it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
_MARK = "leakscope abilities "
_QUERY_SCRIPT = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder] + [sys.argv.pop(1)]
from leakscope.capture.capabilities import print_capabilities
print_capabilities()"""
"""A file of the user's named like a library of ours is not imported."""


def query_capabilities(patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Return what :func:`print_capabilities` prints in a process of its own, or a ``fault``."""
    root = str(Path(__file__).parents[2])
    # With NVML torch counts devices without waking them.
    environment = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _QUERY_SCRIPT, root],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"fault": f"importing torch took more than {patience_s:.0f} s"}
    except OSError as fault:
        return {"fault": f"Python can't be started ({fault.strerror or fault})"}
    lines = done.stdout.decode(errors="replace").splitlines()
    answers = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    try:
        answer: dict[str, Any] = json.loads(answers[-1])
        return answer
    except (IndexError, ValueError):
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        reason = errors[-1] if errors else f"it ended with code {done.returncode}"
        return {"fault": f"looking for torch failed: {reason}"}


def print_capabilities() -> None:
    """Print what is there, as JSON."""
    facts = {**_facts("walker", _walker), **_facts("torch", _torch)}
    sys.stdout.write(f"\n{_MARK}{json.dumps(facts)}\n")
    sys.stdout.flush()


def _facts(name: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return look()
    except Exception as fault:
        return {f"{name}_fault": f"{type(fault).__name__}: {fault}"}


def _walker() -> dict[str, Any]:
    from leakscope.heap.graph import engine_name

    if engine_name() == "native":
        return {"walker": "native"}
    try:  # `from leakscope.heap import` would raise another error for a module that isn't there
        import_module("leakscope.heap._native")
    except ModuleNotFoundError:
        return {"walker": "reference"}
    except ImportError as fault:
        return {"walker": "reference", "walker_fault": str(fault)}
    return {"walker": "native"}


def _torch() -> dict[str, Any]:
    began = time.monotonic()
    try:
        import torch
    except ModuleNotFoundError as fault:
        if fault.name == "torch":
            return {}
        raise
    facts: dict[str, Any] = {
        "torch": str(torch.__version__),
        "seconds": time.monotonic() - began,
        "cuda_build": torch.version.cuda,
        "hip_build": getattr(torch.version, "hip", None),
        "devices": 0,
    }
    if facts["cuda_build"] or facts["hip_build"]:
        facts["devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        facts["accelerator"] = str(accelerator.current_accelerator())
    return facts
