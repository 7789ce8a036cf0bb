"""Real recordings, torch 2.0 to 2.11: golden numbers, exact replay, and what each shows."""

from __future__ import annotations

from functools import lru_cache

import pytest
from recorded import GOLDEN, NAMES, needs_recordings, recording

from leakscope.analysis.allocator import compare_snapshots, explain, read_snapshot
from leakscope.analysis.allocator.replay import replay
from leakscope.analysis.allocator.segments import figures_of
from leakscope.model.device import AllocatorSnapshot, BlockState, Segment, Slack
from leakscope.model.explanation import BlockClass, DeviceExplanation, Explanation

pytestmark = needs_recordings
MIB = 1 << 20
CONSISTENT = [name for name in NAMES if name != "anonymised_inconsistent"]


@lru_cache(maxsize=32)
def read(name: str) -> AllocatorSnapshot:
    return read_snapshot(recording(name))


@lru_cache(maxsize=32)
def explained(name: str) -> Explanation:
    return explain(read(name))


def only_device(name: str) -> DeviceExplanation:
    (device,) = explained(name).devices
    return device


def live_bytes(name: str) -> dict[BlockClass, tuple[int, int]]:
    return {row.kind: (row.bytes, row.count) for row in only_device(name).classes}


@pytest.mark.parametrize("ending", ["pickle", "json"])
@pytest.mark.parametrize("name", NAMES)
def test_sums_are_the_golden_ones(name: str, ending: str) -> None:
    snapshot, golden = read_snapshot(recording(name, ending)), GOLDEN[name]
    figures = figures_of(snapshot.segments)
    assert figures.reserved == golden["reserved"]
    assert figures.allocated == golden["allocated"]
    assert figures.active == golden["active"]
    assert figures.requested == golden["requested"]
    assert figures.segments == golden["segments"]
    assert figures.blocks == golden["blocks"]
    assert figures.cached == golden["bytes_in_fully_free_segments"]
    assert figures.stuck == golden["inactive_bytes_in_part_used_segments"]
    assert figures.largest_hole == golden["largest_inactive_block"]
    assert figures.pending == golden["bytes_by_state"].get("active_pending_free", 0)
    assert sorted({s.device for s in snapshot.segments}) == golden["devices"]
    assert [len(trace) for trace in snapshot.traces.values()] == golden["trace_entries"]
    assert len({(s.device, s.stream) for s in snapshot.segments}) == golden["streams"]
    assert len(snapshot.annotations) == golden["annotations"]
    assert sum(s.is_expandable for s in snapshot.segments) == golden["expandable_segments"]


@pytest.mark.parametrize("name", NAMES)
def test_frames_tell_python_from_native_code(name: str) -> None:
    counted = {"none": [0, 0], "python": [0, 0], "cpp_only": [0, 0]}
    for segment in read(name).segments:
        for block in segment.blocks:
            if block.state is BlockState.ALLOCATED:
                stack = block.stack
                kind = "none" if stack is None else "python" if stack.python else "cpp_only"
                counted[kind][0] += 1
                counted[kind][1] += block.size
    assert counted == GOLDEN[name]["active_blocks_by_frame_kind"]


@pytest.mark.parametrize("name", NAMES)
def test_peak_and_start_of_the_history_are_the_golden_ones(name: str) -> None:
    golden = GOLDEN[name]
    played = {device: replay(read(name), device) for device in read(name).devices}
    peaks = {str(d): max(p.live) for d, p in played.items() if p.peak is not None}
    assert peaks == golden["trace_peak_requested_per_device"]
    starts = {str(d): p.start_live for d, p in played.items() if p.peak is not None}
    assert starts == golden.get("trace_start_requested_per_device", {})
    assert all(p.conflicts == 0 for p in played.values())


@pytest.mark.parametrize("name", CONSISTENT)
def test_history_undone_and_played_again_ends_in_the_very_state_of_the_file(name: str) -> None:
    for device in read(name).devices:
        played = replay(read(name), device)
        assert layout(played.state_after(len(played.entries) - 1)) == layout(played.final)


def layout(segments: list[Segment]) -> list[object]:
    return [
        (
            s.address,
            s.size,
            s.stream,
            s.is_small,
            [(b.address, b.size, b.requested, b.state) for b in s.blocks],
        )
        for s in segments
    ]


def test_dump_after_the_exception_is_diagnosed_by_the_state_before_it() -> None:
    device = next(d for d in explained("oom_gnn_3gpu_expandable_t28").devices if d.device == 1)
    fault = device.fault
    assert fault is not None
    assert (fault.entry, fault.request, fault.device_free) == (421, 5_308_694_528, 95_682_560)
    assert not fault.is_fragmentation
    assert fault.figures.live_blocks == 111
    assert (fault.figures.active // MIB, fault.figures.reserved // MIB) == (80_169, 80_302)
    assert fault.place.endswith("models.py:181")
    assert fault.operation == "relu"
    at_the_end = device.figures
    assert (at_the_end.allocated // MIB, at_the_end.reserved // MIB) == (384, 80_302)
    updates = sum(
        s.bytes
        for s in fault.sites
        if s.place.endswith(("models.py:174", "models.py:181", "models.py:176"))
    )
    assert updates / 2**30 == pytest.approx(69.2, abs=0.2)
    assert next(way.title for way in fault.fits_if if way.helps) == "Make the batch 6 % smaller"
    assert "capacity, not fragmentation" in explained("oom_gnn_3gpu_expandable_t28").headline


def test_snapshot_of_an_observer_is_full_by_capacity() -> None:
    fault = only_device("oom_observer_flexgen_t20").fault
    assert fault is not None
    assert fault.entry is None
    assert not fault.is_fragmentation
    assert [way.helps for way in fault.fits_if if way.title == "expandable_segments:True"] == [
        False
    ]


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("oom_")])
def test_no_failure_is_invented(name: str) -> None:
    assert all(device.fault is None for device in explained(name).devices)


@pytest.mark.parametrize(
    ("name", "slack"),
    [
        ("flexgen_a_t20", Slack.CACHE),
        ("flexgen_b_t20", Slack.CACHE),
        ("generate_cached_nohistory_t21", Slack.CACHE),
        ("kvcache_state_only_t24", Slack.TIDY),
        ("linear_grad_t24", Slack.CACHE),
        ("llama_two_streams_t21", Slack.CACHE),
        ("lm_a_first_step_ctx128_t26", Slack.CACHE),
        ("lm_a_forward_compiled_t26", Slack.TIDY),
        ("lm_a_forward_graph_kept_t26", Slack.TIDY),
        ("lm_b_infer_ctx1024_t210", Slack.CACHE),
        ("lm_b_train_ctx1024_t210", Slack.BOTH),
        ("lm_b_train_ctx128_t210", Slack.TIDY),
        ("lm_c_forward_mixed_t26", Slack.TIDY),
        ("prune_emptycache_churn_t25", Slack.TIDY),
        ("rl_private_pools_t26", Slack.TIDY),
    ],
)
def test_cache_is_distinguished_from_fragmentation(name: str, slack: Slack) -> None:
    assert only_device(name).slack is slack


def test_holes_that_the_peak_fills_are_reported_as_filled_and_expandable_segments_to_help() -> None:
    device = only_device("lm_b_train_ctx1024_t210")
    assert "At the peak 96 % of the reserved memory was live" in device.slack_sentence
    helping = {advice.title for advice in device.settings if advice.helps}
    assert helping == {"expandable_segments:True", "max_split_size_mb:128"}


@pytest.mark.parametrize(
    ("name", "weights", "gradients", "optimizer"),
    [
        ("lm_a_first_step_ctx128_t26", 291, 291, 582),
        ("lm_b_train_ctx128_t210", 219, 219, 438),
        ("lm_b_train_ctx1024_t210", 219, 219, 438),
        ("lm_c_forward_mixed_t26", 435, 435, 870),
    ],
)
def test_training_state_is_classified(
    name: str, weights: int, gradients: int, optimizer: int
) -> None:
    live = live_bytes(name)
    assert live[BlockClass.WEIGHTS][1] == weights
    assert live[BlockClass.GRADIENTS][1] == gradients
    assert live[BlockClass.OPTIMIZER][1] == optimizer
    assert live[BlockClass.UNKNOWN][0] < 0.001 * sum(size for size, _ in live.values())
    assert live[BlockClass.GRADIENTS][0] == pytest.approx(live[BlockClass.WEIGHTS][0], rel=0.02)


def test_optimizer_state_that_was_replaced_is_known_at_the_peak_by_its_sizes() -> None:
    peak = only_device("lm_b_train_ctx1024_t210").peak
    assert peak is not None
    assert peak.phase == "backward"
    live = {row.kind: (row.bytes // MIB, row.count) for row in peak.classes}
    assert live[BlockClass.OPTIMIZER] == (3232, 438)
    assert live[BlockClass.WEIGHTS] == (1616, 219)


def test_weights_alone_are_likely_before_a_forward_pass() -> None:
    assert live_bytes("lm_a_forward_graph_kept_t26")[BlockClass.WEIGHTS][0] // MIB == 13_125
    assert live_bytes("lm_a_forward_graph_kept_t26")[BlockClass.ACTIVATIONS][0] // MIB == 9_748
    titles = [f.title for f in only_device("lm_a_forward_graph_kept_t26").findings]
    assert titles == ["A forward pass keeps 9.5 GiB"]


def test_empty_cache_in_a_loop_is_named_with_its_line() -> None:
    (finding,) = only_device("prune_emptycache_churn_t25").findings
    assert finding.slug == "empty-cache-churn"
    assert "entrance.py:104" in finding.remedy


def test_private_pools_and_pending_frees_are_shown() -> None:
    device = only_device("rl_private_pools_t26")
    pools: dict[tuple[int, int], int] = {}
    for pool in device.pools:
        pools[pool.pool] = pools.get(pool.pool, 0) + pool.figures.segments
    assert pools == {(0, 0): 59, (0, 1): 44, (0, 2): 24}
    assert device.figures.pending == 597_377_024
    assert [finding.slug for finding in device.findings] == ["pending-free"]


def test_first_step_of_an_optimizer_is_no_leak() -> None:
    (finding,) = only_device("lm_a_first_step_ctx128_t26").findings
    assert finding.slug == "first-step"


def test_three_context_lengths_are_ranked_by_stuck_bytes() -> None:
    names = ["lm_b_infer_ctx1024_t210", "lm_b_train_ctx128_t210", "lm_b_train_ctx1024_t210"]
    compared = compare_snapshots([read(name) for name in names])
    assert compared.by_stuck == [2, 1, 0]
    stuck = [figures.stuck // MIB for figures in compared.devices[0].figures]
    assert stuck == [13, 70, 6409]
    assert compared.devices[0].kind == "fragmentation"


def test_same_data_in_longer_context_is_fragmentation_and_no_leak() -> None:
    compared = compare_snapshots([read("lm_b_train_ctx128_t210"), read("lm_b_train_ctx1024_t210")])
    assert compared.headline.startswith("Fragmentation grew, not the tensors")


def test_forward_with_gradients_peaks_higher_than_without() -> None:
    compared = compare_snapshots([read("linear_no_grad_t24"), read("linear_grad_t24")])
    (device,) = compared.devices
    assert device.peaks == [4_234_803_008, 4_434_803_008]
    assert "Peaks: 3.9 GiB → 4.1 GiB" in device.sentence


def test_inconsistent_sums_are_reported() -> None:
    notes = " ".join(explained("anonymised_inconsistent").notes)
    assert "don't add up to its size (5 times)" in notes
    assert not explained("lm_b_train_ctx128_t210").notes
