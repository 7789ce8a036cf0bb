"""What a census makes is not traced; what the program makes is, before and after."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from types import CodeType

import pytest

from leakscope.heap import CensusTaker, pausing
from leakscope.heap.pausing import remember_allocators, without_tracing
from leakscope.heap.row_details import traceback_of
from leakscope.model.census import CensusScope

SIZE = 200

pytest.importorskip("leakscope.heap._native", reason="only the native part can pause tracing")


@pytest.fixture
def _tracing() -> Iterator[None]:
    assert not tracemalloc.is_tracing()
    remember_allocators()
    tracemalloc.start(4)
    yield
    tracemalloc.stop()


def is_traced(obj: object) -> bool:
    return bool(traceback_of(obj))


def make() -> list[bytearray]:
    return [bytearray(SIZE) for _ in range(100)]


def traced_at(code: CodeType) -> int:
    """Return how many traced bytes come from the first statement of that code."""
    return sum(
        trace.size
        for trace in tracemalloc.take_snapshot().traces
        for frame in trace.traceback[-1:]
        if (frame.filename, frame.lineno) == (code.co_filename, code.co_firstlineno + 1)
    )


def traced_by(taker: CensusTaker) -> int:
    """Return how many bytes were traced at most while a census was taken."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    assert taker.take(CensusScope.FOCUSED).objects > 1000
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.usefixtures("_tracing")
class TestWhatIsTraced:
    def test_nothing_that_is_made_meanwhile(self) -> None:
        made = without_tracing(make)
        assert not any(is_traced(block) for block in made)
        # Its array of references is beyond the blocks that can go untraced.
        assert traced_at(make.__code__) == sys.getsizeof(made) - sys.getsizeof([])

    def test_all_that_was_made_before_and_is_made_after(self) -> None:
        before = make()
        without_tracing(make)
        assert all(is_traced(block) for block in [*before, *make()])

    def test_what_is_freed_meanwhile_is_forgotten(self) -> None:
        kept = [make()]
        before = tracemalloc.get_traced_memory()[0]
        without_tracing(kept.clear)
        assert tracemalloc.get_traced_memory()[0] < before - 100 * SIZE

    def test_what_was_made_meanwhile_may_be_freed_and_grow_later(self) -> None:
        made = without_tracing(make)
        without_tracing(made.extend, make())
        for block in made:
            block.extend(bytes(5000))
        assert all(len(block) == SIZE + 5000 for block in made)
        made.clear()

    def test_an_object_that_grows_meanwhile_stays_traced(self) -> None:
        grown: list[int] = [0]
        without_tracing(grown.extend, range(10000))
        assert tracemalloc.get_traced_memory()[0] >= 8 * 10000
        grown.clear()

    def test_an_error_ends_it(self) -> None:
        with pytest.raises(ZeroDivisionError):
            without_tracing(lambda: 1 / 0)
        assert is_traced(bytearray(SIZE))

    def test_one_within_another_ends_both(self) -> None:
        # No census begins within one, but a caller may count on it.
        without_tracing(lambda: without_tracing(make))
        assert is_traced(bytearray(SIZE))

    def test_tracing_that_is_stopped_meanwhile_stays_stopped(self) -> None:
        without_tracing(tracemalloc.stop)
        assert not tracemalloc.is_tracing()
        make()
        tracemalloc.start(2)
        assert is_traced(bytearray(SIZE))

    def test_tracing_that_begins_again_meanwhile_goes_on(self) -> None:
        def again() -> bytearray:
            tracemalloc.stop()
            tracemalloc.start(2)
            return bytearray(SIZE)

        assert is_traced(without_tracing(again))
        assert is_traced(bytearray(SIZE))

    def test_a_census_traces_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        taker = CensusTaker(project_root=__file__.rpartition("/")[0])
        taker.take(CensusScope.FOCUSED)
        little = traced_by(taker)
        monkeypatch.setattr(pausing, "_is_remembered", False)
        assert little < traced_by(taker) / 2


def test_nothing_happens_where_nobody_traces() -> None:
    remember_allocators()
    assert len(without_tracing(make)) == 100


def test_without_the_native_part_all_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "_native", None)
    monkeypatch.setattr(pausing, "_is_remembered", False)
    remember_allocators()
    tracemalloc.start()
    try:
        assert all(is_traced(block) for block in without_tracing(make))
    finally:
        tracemalloc.stop()


FORK = """
import json, os, tracemalloc
from leakscope.heap.pausing import remember_allocators, without_tracing
remember_allocators()
tracemalloc.start()

def forked():
    child = os.fork()
    if not child:
        made = bytearray(200)
        print(json.dumps(tracemalloc.get_object_traceback(made) is not None), flush=True)
        os._exit(0)
    os.waitpid(child, 0)

without_tracing(forked)
"""


@pytest.mark.parametrize("allocators", ["pymalloc_debug", "pymalloc", "malloc"])
def test_a_process_forked_meanwhile_traces_again(allocators: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORK],
        env={"PYTHONMALLOC": allocators, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) is True
