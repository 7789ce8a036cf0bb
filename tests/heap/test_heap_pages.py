"""What a forked process has copied of what it inherited, reported without touching any of it."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from pathlib import Path

import pytest

from leakscope.heap import CensusTaker
from leakscope.heap.row_details import exclusive_share, sampled
from leakscope.model.census import CensusScope

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/pagemap").exists(),
    reason="the kernel tells nothing of pages here",
)


def copied_share(container):
    return exclusive_share(sampled(container))


class Sample:
    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"sample {number}"


def in_child(ask):
    """Return what a function returns in a forked child, the collector off there."""
    gc.collect()
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()
        try:
            os.write(send, pickle.dumps(ask()))
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return pickle.loads(answer)


@pytest.mark.parametrize("gather", [list, tuple, lambda them: dict(enumerate(them)), set])
def test_what_is_only_inherited_is_not_copied(gather):
    samples = gather(Sample(i) for i in range(20_000))
    assert in_child(lambda: copied_share(samples)) < 0.2
    assert len(samples) == 20_000


def test_what_was_looked_at_is_copied():
    samples = [Sample(i) for i in range(20_000)]

    def looked_at():
        before = copied_share(samples)
        for sample in samples[: len(samples) // 2]:
            sample.number
        half = copied_share(samples)
        for sample in samples:
            sample.number
        return before, half, copied_share(samples)

    before, half, whole = in_child(looked_at)
    assert before < 0.2
    assert 0.4 < half < 0.8
    assert whole > 0.95


def test_what_a_census_looked_at_can_be_read_again_without_another():
    samples = [Sample(i) for i in range(20_000)]

    def queried_again():
        # Whatever else the process holds may be looked at, too.
        taker = CensusTaker(project_root="/", work_items={"samples": samples})
        taker.take(CensusScope.FOCUSED)
        before = taker.copied_shares()
        for sample in samples:
            sample.number
        after = taker.copied_shares()
        (path,) = (path for path in before if path.endswith("samples"))
        return before[path], after[path]

    before, after = in_child(queried_again)
    assert before < 0.2
    assert after > 0.95


def test_asking_copies_nothing():
    samples = [Sample(i) for i in range(20_000)]
    first, second = in_child(lambda: (copied_share(samples), copied_share(samples)))
    assert second - first < 0.05


def test_asking_takes_no_reference():
    samples = [Sample(i) for i in range(100)]
    before = [sys.getrefcount(sample) for sample in samples]
    copied_share(samples)
    assert [sys.getrefcount(sample) for sample in samples] == before


def test_a_process_that_nobody_shares_with_has_all_for_itself():
    assert copied_share([Sample(i) for i in range(1000)]) == 1.0


def test_few_objects_tell_nothing():
    assert copied_share([Sample(i) for i in range(10)]) is None
    assert copied_share(3) is None


def test_a_platform_that_does_not_tell_gives_no_answer(monkeypatch):
    def refuse(*_):
        raise PermissionError

    samples = [Sample(i) for i in range(1000)]
    monkeypatch.setattr(os, "open", refuse)
    assert copied_share(samples) is None
