"""The join of blocks with who holds them, on recorded snapshots and on their replay."""

from __future__ import annotations

from functools import lru_cache

import pytest
from fake_allocator import FORWARD, KEPT, MIB, FakeAllocator, trained
from recorded import GOLDEN, NAMES, needs_recordings, recording
from recorded_runs import block_list, run_of

from leakscope.analysis.allocator import read_snapshot
from leakscope.analysis.allocator.classes import CUBLAS_WORKSPACE
from leakscope.analysis.allocator.devices import find_owners, owner_rows, unexplained_rows
from leakscope.analysis.allocator.explain import Study, study
from leakscope.analysis.allocator.reading import decode_snapshot
from leakscope.analysis.allocator.replay import replay
from leakscope.analysis.allocator.segments import figures_of, state_of
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.device import BlockState, DeviceMemory, Segment
from leakscope.model.explanation import BlockClass
from leakscope.model.report import Report, Severity

TRAINED = ["lm_a_first_step_ctx128_t26", "lm_b_train_ctx128_t210", "lm_b_train_ctx1024_t210"]
WHOLE = [n for n in NAMES if n not in {"empty", "anonymised_inconsistent"}]
ROLES = {
    BlockClass.WEIGHTS: ("parameters", "model.layers[*].weight"),
    BlockClass.GRADIENTS: ("gradients", "model.layers[*].weight.grad"),
    BlockClass.OPTIMIZER: ("optimizer_state", "optimizer.state[*]['exp_avg']"),
}


@lru_cache(maxsize=8)
def studied(name: str) -> Study:
    snapshot = read_snapshot(recording(name))
    return study(snapshot, snapshot.devices[0])


def storages_of(of_device: Study) -> list[tuple[int, int, str, str]]:
    """Return a storage for each block whose class is known: what a census would have met."""
    return [
        (live.block.address, live.block.requested, *ROLES[live.kind])
        for live in of_device.found
        if live.kind in ROLES
    ]


@needs_recordings
@pytest.mark.parametrize("name", WHOLE)
def test_a_list_of_blocks_keeps_every_sum_of_a_snapshot(name: str) -> None:
    final = studied(name).played.final
    assert state_of(block_list(final)).figures == figures_of(final)


@needs_recordings
@pytest.mark.parametrize("name", TRAINED)
def test_every_block_of_a_recorded_step_has_its_owner_or_none(name: str) -> None:
    of_device = studied(name)
    state = state_of(block_list(of_device.state, storages_of(of_device)))
    found = find_owners(state)
    by_role = {row.role: row for row in owner_rows(found.blocks, by_name=False)}
    assert sum(row.bytes for row in by_role.values()) == state.figures.active
    for kind, (role, _) in ROLES.items():
        blocks = [live.block for live in of_device.found if live.kind is kind]
        assert by_role[role].bytes == sum(block.size for block in blocks)
        assert by_role[role].count == len(blocks)
    workspaces = [x for x in of_device.found if x.block.requested == CUBLAS_WORKSPACE]
    assert by_role["workspace"].count >= max(1, len(workspaces))
    assert found.astray == 0


@needs_recordings
def test_without_a_census_all_but_workspaces_is_unexplained() -> None:
    of_device = studied("lm_b_train_ctx128_t210")
    found = find_owners(state_of(block_list(of_device.state)))
    assert {row.role for row in owner_rows(found.blocks, by_name=False)} == {
        "unexplained",
        "workspace",
    }
    rows = unexplained_rows(found.blocks)
    assert rows == sorted(rows, key=lambda row: -row.bytes)


@needs_recordings
def test_private_pools_and_pending_frees_are_distinguished() -> None:
    of_device = studied("rl_private_pools_t26")
    found = find_owners(state_of(block_list(of_device.state)))
    roles = {row.role: row for row in owner_rows(found.blocks, by_name=False)}
    assert roles["pending"].count == 9
    assert roles["pending"].bytes == 597_377_024
    pooled = [s for s in of_device.state if s.pool != (0, 0)]
    live = sum(b.size for s in pooled for b in s.blocks if b.state is BlockState.ALLOCATED)
    assert roles["private_pool"].bytes == live


@needs_recordings
@pytest.mark.parametrize("name", ["lm_b_train_ctx1024_t210", "prune_emptycache_churn_t25"])
def test_the_replay_gives_the_same_sums_at_every_moment(name: str) -> None:
    played = studied(name).played
    for entry in range(0, len(played.entries), len(played.entries) // 12):
        segments = played.state_after(entry)
        assert state_of(block_list(segments)).figures == figures_of(segments)


@needs_recordings
def test_a_program_that_empties_its_cache_all_the_time_leaks_nothing() -> None:
    played = studied("prune_emptycache_churn_t25").played
    after = range(2000, len(played.entries), 400)
    report = analyse(run_of([played.state_after(entry) for entry in after]))
    assert [f.kind for f in report.findings if f.severity is not Severity.NOTE] == []


@needs_recordings
def test_fragmentation_is_reported_with_the_setting_that_reaches_it() -> None:
    of_device = studied("lm_b_train_ctx1024_t210")
    report = analyse(run_of([of_device.state] * 3, lambda _: storages_of(of_device)))
    device = only(report)
    golden = GOLDEN["lm_b_train_ctx1024_t210"]["inactive_bytes_in_part_used_segments"]
    assert device.figures.stuck == golden
    assert device.slack.value == "both"
    assert any(advice.helps for advice in device.settings)
    note = next(f for f in report.findings if f.kind == "fragmentation")
    assert note.remedy.title.startswith("Try ")


def only(report: Report) -> DeviceMemory:
    (device,) = report.devices
    return device


def segments_of(allocator: FakeAllocator) -> list[Segment]:
    snapshot = decode_snapshot(allocator.snapshot(), "made")
    return replay(snapshot, 0).final


def leaking(steps: int) -> list[tuple[list[Segment], list[int]]]:
    """Return the states after each step of a program that keeps 5 MiB a step, and what it keeps."""
    states = []
    for step in range(1, steps + 1):
        allocator = trained(step, kept_per_step=5 * MIB)
        segments = segments_of(allocator)
        kept = [
            b.address
            for s in segments
            for b in s.blocks
            if b.state is not BlockState.FREE and b.requested == 5 * MIB
        ]
        states.append((segments, kept))
    return states


def test_what_a_list_keeps_is_its_own_and_says_who_allocated_it() -> None:
    states = leaking(10)
    report = analyse(
        run_of(
            [segments for segments, _ in states],
            lambda n: [(a, 5 * MIB, "accumulation", "history") for a in states[n][1]],
        )
    )
    device = only(report)
    assert device.moment == "after step 10 of train"
    (owner,) = [o for o in device.owners if o.name == "history"]
    assert (owner.role, owner.bytes, owner.count) == ("accumulation", 50 * MIB, 10)
    assert owner.allocated_at == ["train.py:33"]
    assert sum(row.bytes for row in device.roles) == device.figures.active


def test_what_no_census_saw_is_unexplained_and_accused_without_a_name() -> None:
    report = analyse(run_of([segments for segments, _ in leaking(14)]))
    found = next(f for f in report.findings if f.kind == "device_leak")
    assert found.severity is Severity.WARNING
    assert "14 of 5 MiB, allocated at /home/u/train.py:33" in found.text
    (row, *_) = only(report).unexplained
    assert (row.size, row.count) == (5 * MIB, 14)


def test_a_block_that_lay_about_in_the_forward_pass_belongs_to_the_graph() -> None:
    allocator = FakeAllocator()
    address = allocator.alloc(24 * MIB, FORWARD)
    allocator.alloc(3 * MIB, KEPT)
    state = state_of(block_list(segments_of(allocator), [(address, 24 * MIB, "graph", "total")]))
    rows = {row.role: row.bytes for row in owner_rows(find_owners(state).blocks, by_name=False)}
    assert rows == {"graph": 24 * MIB, "unexplained": 3 * MIB}


def test_tensors_of_the_size_of_a_workspace_are_none_when_there_are_many() -> None:
    few, many = FakeAllocator(), FakeAllocator()
    for allocator, count in ((few, 2), (many, 9)):
        for _ in range(count):
            allocator.alloc(32 * MIB)
    reported = [find_owners(state_of(block_list(segments_of(a)))).blocks for a in (few, many)]
    assert [{row.role for row in owner_rows(blocks, by_name=False)} for blocks in reported] == [
        {"workspace"},
        {"unexplained"},
    ]
