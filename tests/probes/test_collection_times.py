"""Every collection is timed, what the program requested apart, and nothing of that is noticed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from leakscope.model import gauge
from leakscope.model.record import CleaningCall
from leakscope.probes.interpreter import CollectionTimes

pytest.importorskip("leakscope.probes._counting", reason="only the native part can time them")

PAYLOAD = 100_000
USERS = ((), ("/site-packages/",))


class Node:
    def __init__(self) -> None:
        self.itself = self
        self.payload = bytearray(PAYLOAD)


@pytest.fixture
def times() -> Iterator[CollectionTimes]:
    gc.collect()
    times = CollectionTimes()
    times.start(*USERS)
    yield times
    times.stop()


def calls_from_here(times: CollectionTimes) -> list[CleaningCall]:
    return [call for call in times.calls() if call.file == __file__]


def test_what_the_program_asks_for_is_reported_by_its_line_with_what_it_brings(
    times: CollectionTimes,
) -> None:
    for _ in range(3):
        for _ in range(10):
            Node()
        gc.collect()
    gauges = times.gauges()
    (call,) = calls_from_here(times)
    assert (call.call, call.times, call.weighed) == ("gc.collect()", 3, 3)
    assert call.objects is not None
    assert 30 <= call.objects < 200
    assert 30 * PAYLOAD <= call.freed_bytes < 40 * PAYLOAD
    assert 10 * PAYLOAD <= call.most_freed_bytes < 14 * PAYLOAD
    assert 0 < call.longest_s <= call.seconds < 10
    assert gauges[gauge.GC_EXPLICIT] == 3
    assert gauges[gauge.GC_EXPLICIT_TIME] == pytest.approx(1e6 * call.seconds, abs=2)
    assert gauges[gauge.GC_EXPLICIT_PAUSE] == pytest.approx(1e6 * call.longest_s, abs=2)


def test_what_the_collector_does_by_itself_is_reported_by_generation(
    times: CollectionTimes,
) -> None:
    first, second, _ = gc.get_threshold()
    kept = [[] for _ in range(first * (second + 2))]
    gauges = times.gauges()
    assert len(kept) > first
    assert gauges[gauge.GC_TIMES[0]] > 0
    assert gauges[gauge.GC_TIMES[1]] > 0
    assert gauges[gauge.GC_PAUSES[0]] <= gauges[gauge.GC_TIMES[0]]
    assert gauge.GC_EXPLICIT not in gauges
    assert not times.calls()


def test_a_full_collection_that_comes_by_itself_is_not_called_requested(
    times: CollectionTimes,
) -> None:
    before = gc.get_stats()[2]["collections"]
    kept: list[list[object]] = []
    while gc.get_stats()[2]["collections"] == before:
        kept += [[] for _ in range(10_000)]
    assert times.gauges()[gauge.GC_TIMES[2]] > 0
    assert not times.calls()


def test_younger_generations_can_be_requested_too(times: CollectionTimes) -> None:
    gc.collect(0)
    gc.collect(1)
    assert sum(call.times for call in calls_from_here(times)) == 2


def test_with_the_collector_off_whatever_is_collected_was_requested(times: CollectionTimes) -> None:
    gc.disable()
    try:
        kept = [[] for _ in range(100_000)]
        gc.collect()
    finally:
        gc.enable()
    assert len(kept) == 100_000
    assert [call.times for call in calls_from_here(times)] == [1]
    assert gauge.GC_TIMES[2] not in times.gauges()


def test_sums_are_reported_as_they_change_and_the_longest_begins_again(
    times: CollectionTimes,
) -> None:
    gc.collect()
    first = times.gauges()
    assert gauge.GC_EXPLICIT_PAUSE in first
    assert not {gauge.GC_EXPLICIT, gauge.GC_EXPLICIT_PAUSE} & set(times.gauges())
    gc.collect()
    second = times.gauges()
    assert second[gauge.GC_EXPLICIT] == first[gauge.GC_EXPLICIT] + 1
    assert second[gauge.GC_EXPLICIT_TIME] > first[gauge.GC_EXPLICIT_TIME]


def test_what_is_our_own_doing_is_not_counted(times: CollectionTimes) -> None:
    with times.muted():
        gc.collect()
        with times.muted():
            gc.collect()
        gc.collect()
    assert not calls_from_here(times)
    gc.collect()
    assert [call.times for call in calls_from_here(times)] == [1]


def test_a_call_in_a_library_is_reported_by_the_users_line_that_led_there() -> None:
    times = CollectionTimes()
    library: dict[str, object] = {}
    text = "import gc\ndef tidy():\n    gc.collect()\n"
    exec(compile(text, "/x/site-packages/tidy.py", "exec"), library)
    times.start(*USERS)
    try:
        library["tidy"]()  # type: ignore[operator]
        line = sys._getframe().f_lineno - 1
    finally:
        times.stop()
    assert [(call.line, call.times) for call in calls_from_here(times)] == [(line, 1)]


def test_only_so_many_lines_are_distinguished(times: CollectionTimes) -> None:
    for number in range(50):
        exec(compile("\n" * number + "import gc; gc.collect(0)", "made.py", "exec"), {})
    calls = times.calls()
    assert len(calls) == 33
    assert sum(call.times for call in calls) == 50


def test_the_list_of_callbacks_is_left_as_it_was_found() -> None:
    before = list(gc.callbacks)
    mine: list[str] = []

    def listen(phase: str, info: dict[str, int]) -> None:
        mine.append(phase)

    times, other = CollectionTimes(), CollectionTimes()
    times.start(*USERS)
    other.start(*USERS)
    gc.callbacks.append(listen)
    try:
        assert len(gc.callbacks) == len(before) + 2
        gc.collect()
        times.stop()
        assert gc.callbacks == [*before, listen]
        gc.callbacks.remove(listen)
        times.stop()
        assert gc.callbacks == before
    finally:
        gc.callbacks[:] = before
    assert mine == ["start", "stop"]


def test_a_program_that_empties_the_list_is_not_disturbed(times: CollectionTimes) -> None:
    before = [each for each in gc.callbacks if "on_collection" not in repr(each)]
    gc.callbacks.clear()
    gc.collect()
    times.stop()
    gc.callbacks[:] = before
    assert not calls_from_here(times)


def test_collections_of_several_threads_add_up(times: CollectionTimes) -> None:
    def work() -> None:
        for _ in range(20):
            gc.collect(0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A collection that begins while another one runs is none.
    assert 20 <= sum(call.times for call in calls_from_here(times)) <= 80


def test_no_object_of_the_programs_is_kept(times: CollectionTimes) -> None:
    class Mark:
        pass

    def collect(mark: Mark) -> None:
        gc.collect()

    mark = Mark()
    before = sys.getrefcount(collect.__code__), sys.getrefcount(mark)
    for _ in range(20):
        collect(mark)
    assert [call.times for call in calls_from_here(times)] == [20]
    assert (sys.getrefcount(collect.__code__), sys.getrefcount(mark)) == before


def test_what_collections_report_to_others_is_nothing_to_us(times: CollectionTimes) -> None:
    ours = next(each for each in gc.callbacks if "on_collection" in repr(each))
    for wrong in (
        (), ("start",), ("stop", {}), (1, {}), ("start", None), ("start", {"generation": "x"}),
        ("start", {"generation": 1 << 80}), ("stop", {"collected": None}),
        ("start", {"generation": 7}),
    ):  # fmt: skip
        ours(*wrong)
    assert all(call.times == 1 for call in times.calls())


INTERRUPTED = """
import gc, os, signal, threading, time
from leakscope.probes.interpreter import CollectionTimes

kept = [[] for _ in range(1_500_000)]
times = CollectionTimes()
times.start((), ())
began = time.monotonic()
gc.collect()
each = time.monotonic() - began
struck = 0
for _ in range(10):
    try:
        signal.setitimer(signal.ITIMER_REAL, each / 3)
        gc.collect()
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
print(struck)
"""


def test_ctrl_c_during_a_collection_is_not_lost() -> None:
    text = INTERRUPTED.replace(
        "kept =", "signal.signal(signal.SIGALRM, signal.default_int_handler)\nkept =", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "10\n"
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_begins_from_nought(times: CollectionTimes) -> None:
    gc.collect()
    child = os.fork()
    if not child:
        try:
            mine = CollectionTimes()
            mine.start(*USERS)
            gc.collect()
            right = [call.times for call in calls_from_here(mine)] == [1]
        finally:
            os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [call.times for call in calls_from_here(times)] == [1]


def test_nothing_is_reported_where_it_was_not_started() -> None:
    times = CollectionTimes()
    gc.collect()
    with times.muted():
        gc.collect()
    times.stop()
    assert times.gauges() == {}
    assert times.calls() == []


def test_the_time_is_the_collections_own(times: CollectionTimes) -> None:
    class Slow:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            time.sleep(0.05)

    Slow()
    began = time.perf_counter()
    gc.collect()
    took = time.perf_counter() - began
    (call,) = calls_from_here(times)
    assert 0.05 <= call.seconds <= took


def test_a_timer_of_the_programs_strikes_as_it_did(times: CollectionTimes) -> None:
    struck: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: struck.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(5):
            gc.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck
