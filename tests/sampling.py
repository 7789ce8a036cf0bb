"""Which of many programs `make test` runs; `make zoo` runs all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(names: Iterable[str], sample: Collection[str]) -> list[Any]:
    """Return the names as parameters of a test, those outside the sample marked ``corpus``."""
    every = list(names)
    assert set(sample) <= set(every), f"unknown: {set(sample) - set(every)}"
    return [pytest.param(n, marks=[pytest.mark.corpus] * (n not in sample)) for n in every]
