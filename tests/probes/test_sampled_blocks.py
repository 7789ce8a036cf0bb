"""Of Python's own blocks some are sampled: by them the lines of objects are known, all run long."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leakscope.model.census import SampledBlock
from leakscope.model.record import NativeSite, interval_of
from leakscope.probes import native_allocations
from leakscope.probes.native_allocations import NativeProfile

pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")

HERE = str(Path(__file__).parent)


class Item:
    """Some 48 bytes, from no list of free objects."""

    __slots__ = ("first", "second")


Started = Callable[..., NativeProfile]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    profiles: list[NativeProfile] = []

    def start(interval: int = 64, seed: int = 1) -> NativeProfile:
        monkeypatch.setattr(native_allocations, "PYTHON_INTERVAL_BYTES", interval)
        profile = NativeProfile(seed=seed, project_root=HERE)
        profiles.append(profile)
        assert profile.start(), profile.why_not
        return profile

    yield start
    for profile in profiles:
        profile.stop()


def line_of(function: Callable[..., Any], after: int = 1) -> tuple[str, int]:
    return __file__, function.__code__.co_firstlineno + after


def made(count: int) -> list[Item]:
    return [Item() for _ in range(count)]


def appended(target: list[int], count: int) -> None:
    for number in range(count):
        target.append(number)


def lines(blocks: list[SampledBlock], *, is_table: bool = False) -> set[tuple[str, int]]:
    return {block.lines[0] for block in blocks if block.is_table is is_table}


def small_at(profile: NativeProfile, line: tuple[str, int]) -> NativeSite | None:
    sites = profile.snapshot(most=10_000, share=0.0).small_sites
    return next((site for site in sites if (site.file, site.line) == line), None)


class TestObjects:
    def test_have_the_line_of_the_user_that_made_them(self, started: Started) -> None:
        profile = started()
        items: list[object] = [*made(2000)]
        blocks = profile.blocks_of(items, [])
        assert lines(blocks) == {line_of(made)}
        assert len(blocks) > 100

    def test_that_were_freed_are_found_no_more(self, started: Started) -> None:
        profile = started()
        items = made(2000)
        assert small_at(profile, line_of(made)) is not None
        del items
        assert small_at(profile, line_of(made)) is None

    def test_made_before_sampling_began_have_no_line(self, started: Started) -> None:
        items: list[object] = [*made(2000)]
        assert started().blocks_of(items, []) == []

    def test_from_lists_of_free_objects_are_left_out(self, started: Started) -> None:
        profile = started()
        items: list[object] = [float(i) for i in range(2000)]
        items += [(i, i + 1) for i in range(2000)]
        assert profile.blocks_of(items, []) == []

    def test_of_leakscope_itself_are_not_sampled(self, started: Started) -> None:
        profile = started()
        for _ in range(20):
            profile.snapshot()
        own = str(Path(native_allocations.__file__).parent)
        sites = profile.snapshot(most=10_000, share=0.0).small_sites
        assert not [site for site in sites if site.file.startswith(own)]

    def test_that_an_import_makes_are_not_sampled(
        self, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = "\n".join(f"def function_{i}(): return {i}" for i in range(3000))
        (tmp_path / "full_of_functions.py").write_text(names)
        monkeypatch.syspath_prepend(tmp_path)
        profile = started()
        module = __import__("full_of_functions")
        assert profile.blocks_of([*vars(module).values()], []) == []


class TestContainers:
    def test_have_the_line_that_last_made_room_in_them(self, started: Started) -> None:
        profile = started()
        target: list[int] = []
        appended(target, 5000)
        assert lines(profile.blocks_of([target], []), is_table=True) == {line_of(appended, 2)}

    @pytest.mark.parametrize("kind", [dict, set, deque])
    def test_of_other_kinds_have_it_too(self, started: Started, kind: type) -> None:
        profile = started()
        targets: list[object] = []
        for _ in range(200):
            numbers = range(100)
            targets.append(dict.fromkeys(numbers) if kind is dict else kind(numbers))
        assert {at[0] for at in lines(profile.blocks_of(targets, []), is_table=True)} == {__file__}


class TestData:
    def test_of_an_array_have_the_line_that_made_them(self, started: Started) -> None:
        numpy = pytest.importorskip("numpy")
        profile = started()
        arrays = [numpy.ones(200_000) for _ in range(20)]
        blocks = profile.blocks_of([], [array.ctypes.data for array in arrays])
        assert all(__file__ in dict(block.lines) for block in blocks)
        assert 10 <= len(blocks) <= 20


class TestEstimates:
    def test_the_interval_holds_the_truth_in_95_of_100_runs(self, started: Started) -> None:
        """Each block of an item has 48 bytes: its header, the collector's and two slots."""
        size = sys.getsizeof(Item())
        held = 0
        for seed in range(1, 101):
            profile = started(interval=8192, seed=seed)
            items = made(20_000)
            site = small_at(profile, line_of(made))
            profile.stop()
            assert site is not None
            low, high = interval_of(site.bytes, site.chance_bytes, site.deviation_bytes)
            held += low <= size * len(items) <= high
        assert held >= 90

    def test_a_program_that_allocates_much_has_fewer_blocks_sampled(self, started: Started) -> None:
        profile = started(interval=64)
        for _ in range(300):
            made(2000)
        state = native_allocations._sampling.state()["blocks"]
        assert state["drawn"] < 300 * 2000 / 4  # with an interval of 64 bytes nearly half were
        assert state["live"] < 1000
        assert profile.own_bytes < 20 << 20

    def test_room_is_bounded_and_what_lives_is_still_estimated_right(
        self, started: Started
    ) -> None:
        profile = started(interval=1)
        items = made(200_000)
        site = small_at(profile, line_of(made))
        assert site is not None
        truth = sys.getsizeof(Item()) * len(items)
        assert abs(site.bytes - truth) < 5 * site.deviation_bytes
        assert profile.own_bytes < 20 << 20


class TestOthers:
    def test_what_lives_is_followed_through_any_order_of_work(self, started: Started) -> None:
        profile = started(interval=1)
        chance = random.Random(7)
        kept: list[Any] = []
        for number in range(20_000):
            if number % 500 == 0:
                time.sleep(0.05)  # the pace allows a thousand a second
            action = chance.random()
            if action < 0.6 or not kept:
                kept.append(chance.choice([Item, bytearray, set])())
            elif action < 0.8:
                kept.pop(chance.randrange(len(kept)))
            elif isinstance(kept[-1], bytearray):
                kept[-1].extend(bytes(chance.randrange(600)))
            else:
                kept[-1] = {"a": [chance.random()], "b": Item()}
        assert len(profile.blocks_of(kept, [])) > 100
        kept.clear()
        assert native_allocations._sampling.state()["blocks"]["live"] < 1000

    def test_a_program_that_traces_meanwhile_is_not_disturbed(self, started: Started) -> None:
        profile = started()
        tracemalloc.start()
        try:
            items: list[object] = [*made(2000)]
            traced = tracemalloc.get_object_traceback(items[0])
            assert traced is not None
            assert traced[0].lineno == line_of(made)[1]
        finally:
            tracemalloc.stop()
        assert lines(profile.blocks_of(items, [])) == {line_of(made)}
        more: list[object] = [*made(2000)]
        assert lines(profile.blocks_of(more, [])) == {line_of(made)}

    def test_where_a_tracer_went_that_came_before_it_starts_again(self) -> None:
        """In a process of its own: what other tests left in front of the allocators goes on."""
        program = textwrap.dedent(
            """
            import tracemalloc
            from leakscope.probes import native_allocations
            native_allocations.PYTHON_INTERVAL_BYTES = 64
            class Item:
                __slots__ = ("first", "second")
            tracemalloc.start()
            profile = native_allocations.NativeProfile(seed=1, project_root="")
            assert profile.start(), profile.why_not
            stale = [Item() for _ in range(2000)]
            assert profile.blocks_of(stale, [])
            tracemalloc.stop()  # puts back what stood there before both
            profile.snapshot()
            assert profile.blocks_of(stale, []) == []
            items = [Item() for _ in range(2000)]
            assert profile.blocks_of(items, [])
            profile.stop()
            """
        )
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
        )
        assert (result.returncode, result.stderr) == (0, "")

    def test_threads_sample_at_the_same_time(self, started: Started) -> None:
        profile = started()
        results: list[list[Item]] = []
        workers = [threading.Thread(target=lambda: results.append(made(3000))) for _ in range(16)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        items: list[object] = [item for result in results for item in result]
        assert len(results) == len(workers)
        assert lines(profile.blocks_of(items, [])) == {line_of(made)}

    def test_a_forked_child_samples_nothing_and_goes_on(self, started: Started) -> None:
        started()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                made(5000)
                code = int(native_allocations._sampling.state()["blocks"]["running"])
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_it_can_be_started_and_stopped_many_times(self, started: Started) -> None:
        for seed in range(1, 50):
            profile = started(seed=seed)
            items: list[object] = [*made(500)]
            assert lines(profile.blocks_of(items, [])) == {line_of(made)}
            profile.stop()
            assert profile.blocks_of(items, []) == []

    @pytest.mark.parametrize("allocator", ["malloc", "debug", "pymalloc_debug"])
    def test_other_allocators_of_python_are_followed_too(self, allocator: str) -> None:
        program = textwrap.dedent(
            """
            import sys
            from leakscope.probes import native_allocations
            native_allocations.PYTHON_INTERVAL_BYTES = 64
            profile = native_allocations.NativeProfile(seed=1, project_root="/")
            assert profile.start(), profile.why_not
            class Item:
                __slots__ = ("first", "second")
            items = [Item() for _ in range(5000)]
            blocks = profile.blocks_of(items, [])
            print(len(blocks) > 100 or sys.flags.dev_mode)
            del items
            profile.stop()
            """
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONMALLOC": allocator},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (result.returncode, result.stderr) == (0, "")
