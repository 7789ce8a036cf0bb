"""The size of batches, as workers make them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch

from leakscope.model import gauge
from leakscope.probes.interpreter import EVERY, FIRST, BatchProbe, batch_bytes

Pair = namedtuple("Pair", ["image", "label"])


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.zeros(100), 400),
        ([torch.zeros(100), torch.zeros(10, dtype=torch.int64)], 480),
        (Pair(torch.zeros(100), torch.zeros(1)), 404),
        ({"image": torch.zeros(100), "name": ["ab", "cd"]}, 404),
        (np.zeros(100, dtype=np.uint8), 100),
        ([b"x" * 10] * 1000, 10_000),
        (None, 0),
        ([], 0),
    ],
)
def test_everything_in_a_batch_is_weighed(batch, expected):
    assert batch_bytes(batch) == expected


def test_a_storage_counts_once_and_whole():
    whole = torch.zeros(1000)
    assert batch_bytes([whole, whole[:10], whole.view(10, 100)]) == 4000
    assert batch_bytes(torch.zeros(1000)[:10]) == 4000


def test_what_contains_itself_has_an_end():
    endless: list[object] = [torch.zeros(1)]
    endless.append(endless)
    assert batch_bytes(endless) == 4


def test_things_that_nobody_knows_are_not_touched():
    class Touchy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_):
            raise AssertionError("touched")

    assert batch_bytes([torch.zeros(3).as_subclass(Touchy), torch.zeros(3).to_sparse()]) == 0


def test_the_largest_batch_that_was_looked_at_is_reported_and_none_is_kept():
    probe = BatchProbe()
    assert probe.read() == {}
    for size in [100, 300, 200, *[10] * (EVERY - FIRST - 1), 5000]:
        probe.see(torch.zeros(size))
    assert probe.read() == {gauge.BATCH: 1200}
    for _ in range(EVERY):
        probe.see(torch.zeros(400))
    assert probe.read() == {gauge.BATCH: 1600}
