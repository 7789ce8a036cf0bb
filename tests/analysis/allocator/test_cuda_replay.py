"""Playing a history gives back every state that the allocator was in, blocks and holes included."""

from __future__ import annotations

from typing import Any

from fake_allocator import FORWARD, KIB, MIB, FakeAllocator
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.analysis.allocator.reading import decode_snapshot
from leakscope.analysis.allocator.replay import replay
from leakscope.analysis.allocator.segments import figures_of
from leakscope.model.device import BlockState, Segment

SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 3 * MIB), st.integers(MIB, 40 * MIB))
ACTS = st.sampled_from(["alloc", "alloc", "free", "defer", "complete", "empty"])
STEPS = st.lists(st.tuples(ACTS, SIZES, st.integers(0, 1), st.integers(0, 999)), max_size=60)


def layout(segments: list[Segment]) -> list[Any]:
    return [
        (s.address, s.size, s.stream, s.is_small, s.allocated, s.active, s.requested,
         [(b.address, b.size, b.requested, b.state) for b in s.blocks])
        for s in sorted(segments, key=lambda s: s.address)
    ]  # fmt: skip


def perform(made: FakeAllocator, steps: Any) -> list[tuple[int, Any]]:
    """Do the steps; return after each the length of the history and the true layout."""
    live: list[int] = []
    waiting: list[int] = []
    states = []
    for what, size, stream, pick in steps:
        if what == "alloc":
            live.append(made.alloc(size, FORWARD, stream))
        elif what == "free" and live:
            made.free(live.pop(pick % len(live)))
        elif what == "defer" and live:
            waiting.append(live.pop(pick % len(live)))
            made.free(waiting[-1], is_waited_for=True)
        elif what == "complete" and waiting:
            made.complete(waiting.pop(pick % len(waiting)))
        elif what == "empty":
            made.empty_cache()
        states.append((len(made.trace), layout(decode_snapshot(made.snapshot(), "x").segments)))
    return states


@given(before=STEPS, steps=STEPS)
@settings(deadline=None)
def test_every_earlier_state_is_restored_exactly(before: Any, steps: Any) -> None:
    made = FakeAllocator(capacity=1 << 40)
    perform(made, before)
    made.trace.clear()
    start = layout(decode_snapshot(made.snapshot(), "x").segments)
    states = perform(made, steps)
    played = replay(decode_snapshot(made.snapshot(), "x"), 0)
    assert played.conflicts == 0
    assert layout(played.state_after(-1)) == start
    for entries, state in states:
        assert layout(played.state_after(entries - 1)) == state


@given(steps=STEPS)
@settings(deadline=None)
def test_curve_counts_what_was_live_and_reserved(steps: Any) -> None:
    made = FakeAllocator(capacity=1 << 40)
    truth = []
    for step in steps:
        perform(made, [("alloc", *step[1:])])
        truth.append((len(made.trace), made.live, made.reserved))
    played = replay(decode_snapshot(made.snapshot(), "x"), 0)
    for entries, live, reserved in truth:
        assert (played.live[entries - 1], played.reserved[entries - 1]) == (live, reserved)
    if truth:
        assert played.peak is not None
        assert played.live[played.peak] == max(played.live)


@given(steps=STEPS)
@settings(deadline=None)
def test_sums_add_up_to_what_is_reserved(steps: Any) -> None:
    made = FakeAllocator(capacity=1 << 40)
    perform(made, steps)
    figures = figures_of(decode_snapshot(made.snapshot(), "x").segments)
    assert figures.active + figures.cached + figures.stuck == figures.reserved == made.reserved
    assert figures.allocated + figures.pending == figures.active
    assert figures.requested <= figures.active
    assert figures.largest_hole <= figures.cached + figures.stuck


def test_block_handed_out_whole_keeps_its_rest_at_earlier_moments_too() -> None:
    made = FakeAllocator()
    address = made.alloc(20 * MIB - 700 * KIB)
    made.free(address)
    played = replay(decode_snapshot(made.snapshot(), "x"), 0)
    (segment,) = played.state_after(1)
    assert [(b.size, b.state) for b in segment.blocks] == [(20 * MIB, BlockState.ALLOCATED)]


def test_expandable_segments_grow_and_shrink_in_place() -> None:
    def entry(action: str, offset: int, size: int) -> dict[str, Any]:
        return {"action": action, "addr": (1 << 40) + offset * MIB, "size": size * MIB, "stream": 0}

    trace = [
        entry("segment_map", 0, 40), entry("alloc", 0, 40), entry("segment_map", 40, 20),
        entry("alloc", 40, 15), entry("free_requested", 0, 40), entry("free_completed", 0, 40),
        entry("segment_unmap", 0, 20),
    ]  # fmt: skip
    live = {"state": "active_allocated", "requested_size": 15 * MIB}
    segment = {
        "device": 0, "address": (1 << 40) + 20 * MIB, "total_size": 40 * MIB, "stream": 0,
        "segment_type": "large", "is_expandable": True, "segment_pool_id": (0, 0),
        "blocks": [
            {"address": (1 << 40) + 20 * MIB, "size": 20 * MIB, "state": "inactive"},
            {"address": (1 << 40) + 40 * MIB, "size": 15 * MIB, **live},
            {"address": (1 << 40) + 55 * MIB, "size": 5 * MIB, "state": "inactive"},
        ],
    }  # fmt: skip
    played = replay(decode_snapshot({"segments": [segment], "device_traces": [trace]}, "x"), 0)
    assert played.conflicts == 0
    assert played.state_after(-1) == []
    (full,) = played.state_after(3)
    assert (full.size, full.active) == (60 * MIB, 55 * MIB)
    (last,) = played.state_after(6)
    assert layout([last]) == layout(played.final)


def test_damaged_history_is_counted_and_still_played() -> None:
    made = FakeAllocator()
    made.alloc(3 * MIB)
    reported = made.snapshot()
    reported["device_traces"][0] += [
        {"action": "alloc", "addr": 7, "size": 512, "stream": 0},
        {"action": "segment_free", "addr": 99, "size": 2 * MIB, "stream": 0},
        {"action": "free_requested", "addr": 11, "size": 512, "stream": 0},
    ]
    played = replay(decode_snapshot(reported, "x"), 0)
    assert played.conflicts > 0
    for number in range(-1, len(played.entries)):
        played.state_after(number)


def test_history_of_frees_completed_alone_counts_them() -> None:
    trace = [
        {"action": "alloc", "addr": 512, "size": 100, "stream": 0},
        {"action": "free_completed", "addr": 512, "size": 100, "stream": 0},
    ]
    played = replay(decode_snapshot({"segments": [], "device_traces": [trace]}, "x"), 0)
    assert played.live == [100, 0]
    assert played.conflicts == 0
