"""What every test on a real device needs: one, and an allocator without leftovers."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from gpu_at_hand import why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> Iterator[str]:
    """The first device, awake, its cache empty before and after."""
    import torch

    torch.cuda.init()
    _forget()
    yield "cuda:0"
    _forget()


def _forget() -> None:
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
