"""torch where it is installed: the engine is tested on interpreters that have none, too."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any
try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
