"""What is reported on a snapshot: classes, failures, cache and holes, findings, growth."""

from __future__ import annotations

from typing import Any

import pytest
from fake_allocator import (
    BACKWARD,
    EMPTY_CACHE,
    FORWARD,
    KEPT,
    KIB,
    LOAD,
    MIB,
    OPTIMIZER,
    FakeAllocator,
    native,
    python,
    trained,
)

from leakscope.analysis.allocator import compare_snapshots, explain
from leakscope.analysis.allocator.out_of_memory import is_fragmentation
from leakscope.analysis.allocator.reading import decode_snapshot
from leakscope.model.device import AllocatorSnapshot, Figures, Slack
from leakscope.model.explanation import BlockClass, DeviceExplanation, Fault


def snapshot_of(made: FakeAllocator, name: str = "snapshot") -> AllocatorSnapshot:
    return decode_snapshot(made.snapshot(), name)


def explained(made: FakeAllocator) -> DeviceExplanation:
    (device,) = explain(snapshot_of(made)).devices
    return device


def requested(device: DeviceExplanation) -> dict[BlockClass, int]:
    return {row.kind: row.bytes for row in device.classes}


def test_weights_gradients_and_optimizer_state_are_reported_by_stacks_and_sizes() -> None:
    device = explained(trained(2))
    parameters = 20 * MIB + 512  # 16 and 4 MiB, and 64 bytes rounded up
    assert requested(device) == {
        BlockClass.WEIGHTS: parameters,
        BlockClass.GRADIENTS: parameters,
        BlockClass.OPTIMIZER: 2 * parameters,
    }
    evidence = {row.kind: row.evidence for row in device.classes}
    assert evidence[BlockClass.OPTIMIZER] == "its stack; 6 tensors = 2 × the sizes of 3 gradients"
    assert "sizes of the parameters" in evidence[BlockClass.WEIGHTS]


def test_what_is_older_than_the_recording_and_of_other_sizes_stays_unknown() -> None:
    made = FakeAllocator()
    buffer = 7 * MIB
    for size in (buffer, 16 * MIB):
        made.alloc(size)
    made.trace.clear()
    made.alloc(16 * MIB, BACKWARD)
    made.alloc(16 * MIB, OPTIMIZER)
    assert requested(explained(made))[BlockClass.UNKNOWN] == buffer


def test_without_any_stacks_nothing_is_claimed() -> None:
    made = FakeAllocator()
    made.alloc(16 * MIB)
    made.trace.clear()
    device = explained(made)
    assert requested(device) == {BlockClass.UNKNOWN: 16 * MIB}
    assert "no stacks" in device.headline


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (LOAD, BlockClass.WEIGHTS),
        (FORWARD, BlockClass.ACTIVATIONS),
        (BACKWARD, BlockClass.BACKWARD),
        (OPTIMIZER, BlockClass.OPTIMIZER),
        (KEPT, BlockClass.OTHER),
        ([native("at::cuda::getNewWorkspace()"), *FORWARD], BlockClass.WORKSPACE),
        ([native("at::empty")], BlockClass.OTHER),
        # A closure runs forward inside a step; a user's optimizer is wrapped by torch's.
        ([*FORWARD[:2], *OPTIMIZER], BlockClass.ACTIVATIONS),
        ([python("/home/u/mine.py", 9, "step"), *OPTIMIZER[1:]], BlockClass.OPTIMIZER),
        ([python("/home/u/forwarding.py", 9, "send")], BlockClass.OTHER),
        ([python("C:\\torch\\nn\\modules\\module.py", 9, "_call_impl")], BlockClass.ACTIVATIONS),
    ],
)
def test_innermost_telling_frame_decides(frames: list[Any], kind: BlockClass) -> None:
    made = FakeAllocator()
    made.alloc(3 * MIB, frames)
    assert set(requested(explained(made))) == {kind}


def test_workspace_of_cublas_is_known_by_its_size() -> None:
    made = FakeAllocator()
    made.alloc(8_519_680, FORWARD)
    made.alloc(33_554_432, FORWARD)  # a size that weights have too: only a stack tells
    assert requested(explained(made)) == {
        BlockClass.WORKSPACE: 8_519_680,
        BlockClass.ACTIVATIONS: 33_554_432,
    }


def test_site_is_the_innermost_line_of_the_users() -> None:
    made = FakeAllocator()
    library = python("/opt/lib/python3.11/site-packages/torch/functional.py", 400, "einsum")
    made.alloc(3 * MIB, [library, *FORWARD])
    (site,) = explained(made).sites
    assert (site.place, site.function, site.operation) == (
        "/home/u/model.py:20",
        "forward",
        "einsum",
    )


def failed(made: FakeAllocator, size: int, frames: list[Any] = FORWARD) -> Fault:
    with pytest.raises(MemoryError):
        made.alloc(size, frames)
    fault = explained(made).fault
    assert fault is not None
    return fault


def test_full_device_fails_by_capacity() -> None:
    made = FakeAllocator(capacity=200 * MIB)
    for _ in range(9):
        made.alloc(20 * MIB, FORWARD)
    fault = failed(made, 40 * MIB)
    assert not fault.is_fragmentation
    assert (fault.request, fault.device_free, fault.missing) == (40 * MIB, 20 * MIB, 20 * MIB)
    assert fault.place == "/home/u/model.py:20"
    # 180 MiB of activations and a request of 40: 20 missing are a share of 20 / 220.
    assert next(way.title for way in fault.fits_if if way.helps) == "Make the batch 10 % smaller"
    assert fault.fits_if[-1].title == "expandable_segments:True"
    assert not fault.fits_if[-1].helps


def fragmented(capacity: int = 200 * MIB) -> FakeAllocator:
    """Every segment of 100 MiB keeps its first 2 MiB: the rest is free in pieces of 98 MiB."""
    made = FakeAllocator(capacity=capacity)
    fillings = []
    for _ in range(capacity // (100 * MIB)):
        made.free(made.alloc(100 * MIB, FORWARD))
        made.alloc(2 * MIB, FORWARD)
        fillings.append(made.alloc(98 * MIB, FORWARD))
    for address in fillings:
        made.free(address)
    return made


def test_free_memory_in_pieces_fails_by_fragmentation() -> None:
    fault = failed(fragmented(), 120 * MIB)
    assert fault.is_fragmentation
    assert fault.figures.stuck == 196 * MIB
    assert fault.figures.largest_hole == 98 * MIB
    assert fault.fits_if[0].title == "expandable_segments:True"
    assert fault.fits_if[0].helps
    assert fault.fits_if[0].bytes == 160 * MIB  # pages of 20 MiB between 2 and 100, twice


def test_pages_that_small_blocks_pin_are_no_help_to_expand() -> None:
    made = FakeAllocator(capacity=200 * MIB)
    pieces = [made.alloc(2 * MIB, FORWARD) for _ in range(100)]
    for number, address in enumerate(pieces):
        if number % 10 != 5:
            made.free(address)
    fault = failed(made, 60 * MIB)
    assert fault.is_fragmentation
    assert not fault.fits_if[0].helps


def test_dump_after_the_exception_shows_the_state_before_it() -> None:
    made = FakeAllocator(capacity=200 * MIB)
    held = [made.alloc(20 * MIB, FORWARD) for _ in range(10)]
    with pytest.raises(MemoryError):
        made.alloc(20 * MIB, FORWARD)
    for address in held:
        made.free(address)
    device = explained(made)
    assert device.subject == "fault"
    assert device.figures.active == 0
    assert device.fault is not None
    assert not device.fault.is_fragmentation
    assert requested(device) == {BlockClass.ACTIVATIONS: 200 * MIB}
    assert "written after the exception" in device.fault.sentence


def test_rule_of_fragmentation_counts_what_may_be_put_together() -> None:
    figures = Figures(reserved=100, active=40, cached=20, stuck=40, largest_hole=20)
    assert is_fragmentation(50, 0, figures, largest_hole=20)
    assert not is_fragmentation(61, 0, figures, largest_hole=20)  # more than all that is free
    assert not is_fragmentation(30, 10, figures, largest_hole=20)  # the cache and the device do
    assert not is_fragmentation(25, 0, figures, largest_hole=25)  # a hole does


def test_hole_of_another_stream_serves_nobody_else() -> None:
    made = FakeAllocator(capacity=100 * MIB)
    made.free(made.alloc(60 * MIB, FORWARD, stream=1))
    made.alloc(2 * MIB, FORWARD, stream=1)
    fault = failed(made, 50 * MIB)
    assert fault.figures.largest_hole == 58 * MIB
    assert fault.is_fragmentation


def test_gradients_that_outlive_the_step_are_offered_to_a_forward_pass() -> None:
    made = trained(1, parameters=(64 * MIB, 32 * MIB))
    made.capacity = made.reserved + 20 * MIB
    made.empty_cache()
    with pytest.raises(MemoryError):
        made.alloc(made.capacity, FORWARD)
    fault = explained(made).fault
    assert fault is not None
    assert "Drop the gradients before the forward pass" in {way.title for way in fault.fits_if}


def test_cache_is_no_fragmentation() -> None:
    made = FakeAllocator()
    made.alloc(20 * MIB, FORWARD)
    for _ in range(2):
        made.free(made.alloc(100 * MIB, FORWARD))
    made.trace.clear()
    device = explained(made)
    assert device.slack is Slack.CACHE
    assert device.figures.cached == 100 * MIB
    assert [a.title for a in device.settings if a.helps] == ["torch.cuda.empty_cache()"]


def test_cache_that_the_peak_needs_is_no_help_to_give_back() -> None:
    made = FakeAllocator()
    made.free(made.alloc(100 * MIB, FORWARD))
    (advice,) = [a for a in explained(made).settings if a.title == "torch.cuda.empty_cache()"]
    assert not advice.helps
    assert "takes 100 MiB of it back" in advice.evidence


def test_holes_are_fragmentation_and_the_helping_setting_comes_first() -> None:
    made = fragmented()
    made.trace.clear()
    device = explained(made)
    assert device.slack is Slack.FRAGMENTATION
    assert device.settings[0].title == "expandable_segments:True"
    assert device.settings[0].helps
    assert not next(a for a in device.settings if a.title.startswith("garbage")).helps


def test_free_pages_of_expandable_segments_are_not_stuck() -> None:
    live = {"requested_size": 2 * MIB, "state": "active_allocated"}
    segment = {
        "device": 0, "address": 1 << 40, "total_size": 200 * MIB, "stream": 0,
        "segment_type": "large", "is_expandable": True, "segment_pool_id": (0, 0),
        "blocks": [
            {"address": 1 << 40, "size": 2 * MIB, **live},
            {"address": (1 << 40) + 2 * MIB, "size": 198 * MIB, "state": "inactive"},
        ],
    }  # fmt: skip
    (device,) = explain(decode_snapshot([segment], "x")).devices
    assert device.figures.stuck == 198 * MIB
    assert device.figures.releasable == 180 * MIB  # whole pages of 20 MiB from 20 to 200
    assert device.slack is Slack.CACHE


def test_growth_of_every_step_is_found_with_the_line_that_allocates_it() -> None:
    device = explained(trained(8, kept_per_step=3 * MIB))
    finding = next(f for f in device.findings if f.slug == "grows-per-step")
    assert finding.severity == "critical"
    assert "3 MiB per step" in finding.title
    assert "/home/u/train.py:33" in finding.text
    assert device.headline.startswith("Live memory grows by 3 MiB per step; ")


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 20])
def test_steady_training_is_no_leak(steps: int) -> None:
    slugs = {f.slug for f in explained(trained(steps)).findings}
    assert not slugs & {"grows-per-step"}


def test_growth_that_stops_is_no_leak() -> None:
    made = trained(6)
    made.mark("Optimizer.step#AdamW.step", "START")
    made.alloc(3 * MIB, KEPT)
    made.mark("Optimizer.step#AdamW.step", "END")
    assert "grows-per-step" not in {f.slug for f in explained(made).findings}


def test_first_step_is_named_as_such() -> None:
    assert [f.slug for f in explained(trained(1)).findings] == ["first-step"]


def test_forward_that_keeps_its_graph_is_noted_unless_backward_follows() -> None:
    made = FakeAllocator()
    made.alloc(200 * MIB, FORWARD)
    assert "forward-kept" in {f.slug for f in explained(made).findings}
    made.alloc(2 * MIB, BACKWARD)
    assert "forward-kept" not in {f.slug for f in explained(made).findings}


def test_empty_cache_in_a_loop_is_named() -> None:
    made = FakeAllocator()
    for _ in range(60):
        made.free(made.alloc(20 * MIB, FORWARD))
        made.empty_cache(EMPTY_CACHE)
    (finding,) = [f for f in explained(made).findings if f.slug == "empty-cache-churn"]
    assert "/home/u/prune.py:7" in finding.remedy
    assert "60 segments" in finding.text


def test_flush_for_want_of_memory_is_distinguished_from_empty_cache() -> None:
    made = FakeAllocator(capacity=64 * MIB)
    made.free(made.alloc(40 * MIB, FORWARD))
    made.alloc(60 * MIB, FORWARD)
    device = explained(made)
    assert device.trace is not None
    assert device.trace.retries == 1
    assert "flushed-for-want" in {f.slug for f in device.findings}


def test_tiny_tensors_kept_one_by_one_are_seen_as_rounding() -> None:
    made = FakeAllocator()
    for _ in range(2000):
        made.alloc(4, KEPT)
    assert "rounding" in {f.slug for f in explained(made).findings}


def test_phases_come_from_marks_and_from_stacks() -> None:
    device = explained(trained(1))
    assert [row.phase for row in device.phases] == ["forward", "backward", "optimizer"]
    kept = {row.phase: row.kept_bytes for row in device.phases}
    assert kept["optimizer"] == 2 * (20 * MIB + 64)
    assert device.peak is not None
    assert device.peak.live_bytes == max(row.peak_bytes for row in device.phases)


def test_devices_with_room_next_to_one_that_ran_out_are_pointed_at() -> None:
    full, idle = FakeAllocator(capacity=100 * MIB), FakeAllocator(device=1)
    full.alloc(90 * MIB, FORWARD)
    with pytest.raises(MemoryError):
        full.alloc(20 * MIB, FORWARD)
    idle.alloc(2 * MIB, FORWARD)
    reported, other = full.snapshot(), idle.snapshot()
    reported["segments"] += other["segments"]
    reported["device_traces"].append(other["device_traces"][1])
    explanation = explain(decode_snapshot(reported, "two"))
    assert [f.slug for f in explanation.findings] == ["uneven-devices"]
    assert explanation.headline.startswith("cuda:0: Out of memory by capacity")


def kept(count: int, size: int = 5 * MIB) -> AllocatorSnapshot:
    made = trained(2)
    for _ in range(count):
        made.alloc(size, KEPT)
    return snapshot_of(made, f"step{count}")


def test_steady_rise_over_several_snapshots_is_a_leak_with_its_line() -> None:
    compared = compare_snapshots([kept(0), kept(10), kept(20), kept(30)])
    (device,) = compared.devices
    assert device.kind == "live"
    assert "a leak" in compared.headline
    assert "/home/u/train.py:33" in compared.headline
    assert (device.sites[0].change, device.sites[0].counts) == (150 * MIB, [0, 10, 20, 30])
    assert device.sizes[0].size == 5 * MIB


def test_two_snapshots_tell_a_rise_and_no_leak() -> None:
    compared = compare_snapshots([kept(0), kept(30)])
    assert compared.devices[0].kind == "live"
    assert "leak" not in compared.headline


def test_rise_that_falls_back_is_no_leak() -> None:
    assert "leak" not in compare_snapshots([kept(0), kept(30), kept(20)]).headline


def test_same_snapshot_twice_has_not_grown() -> None:
    compared = compare_snapshots([kept(3), kept(3)])
    assert compared.devices[0].kind == "nothing"


def test_optimizer_state_that_appears_once_is_no_leak() -> None:
    parameters = (160 * MIB, 40 * MIB)
    before = FakeAllocator()
    for size in parameters:
        before.alloc(size, LOAD)
    compared = compare_snapshots(
        [snapshot_of(before), snapshot_of(trained(1, parameters=parameters))]
    )
    assert "appears once and stays, no leak" in compared.headline


def test_leak_without_stacks_is_not_taken_for_weights_that_appear_once() -> None:
    snapshots = []
    for count in (2, 20, 40):
        made = FakeAllocator()
        for _ in range(count):
            made.alloc(5 * MIB)
        made.trace.clear()
        made.alloc(KIB, FORWARD)
        snapshots.append(snapshot_of(made, f"s{count}"))
    assert ": a leak" in compare_snapshots(snapshots).headline


def cached(count: int) -> AllocatorSnapshot:
    made = trained(2)
    for address in [made.alloc(40 * MIB, FORWARD) for _ in range(count)]:
        made.free(address)
    return snapshot_of(made)


def test_growing_cache_is_cache_and_growing_holes_are_fragmentation() -> None:
    assert compare_snapshots([cached(0), cached(10)]).devices[0].kind == "cache"
    holes = [snapshot_of(fragmented(capacity)) for capacity in (100 * MIB, 400 * MIB)]
    assert compare_snapshots(holes).devices[0].kind == "fragmentation"


def test_snapshots_are_ranked_by_stuck_bytes() -> None:
    three = [snapshot_of(fragmented(size * MIB), str(size)) for size in (100, 300, 200)]
    assert compare_snapshots(three).by_stuck == [1, 2, 0]


def test_device_that_is_missing_in_one_snapshot_counts_as_empty() -> None:
    first, two = trained(1), FakeAllocator(device=1)
    two.alloc(64 * MIB, KEPT)
    compared = compare_snapshots([snapshot_of(first), snapshot_of(two)])
    assert [(d.device, d.kind) for d in compared.devices] == [(0, "less"), (1, "live")]
