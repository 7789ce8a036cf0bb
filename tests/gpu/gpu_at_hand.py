"""Whether there is a device to test on."""

from __future__ import annotations


def why_not() -> str:
    """Return why nothing can be tested on a device here; empty where it can."""
    try:
        import torch
    except ImportError:
        return "torch isn't installed"
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built without CUDA"
    return "" if torch.cuda.is_available() else "there is no CUDA device"
