"""Diagnoses of device memory, each next to a look-alike that must stay clean."""

from __future__ import annotations

import pytest
from synthetic_runs import KIB, MIB, Program, Size, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.census import RootKind
from leakscope.model.report import Finding, Report, RunVerdict, Severity

DEVICE = "cuda:0"


def device(program: Program, **gauges: Size) -> Program:
    """Plant gauges of the device; what it allocates and reserves stays the same unless given."""
    usual: dict[str, Size] = {"allocated": lambda s: 300 * MIB, "reserved": lambda s: 320 * MIB}
    for name, value in (usual | gauges).items():
        program.gauge(f"{DEVICE}.{name}", value)
    return program


def report_of(**gauges: Size) -> Report:
    return analyse(device(Program(epochs=12), **gauges).build())


def finding(report: Report, kind: str) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def kinds(report: Report) -> set[str]:
    return {f.kind for f in report.findings}


def climbs(per_step: float, start: float = 300 * MIB) -> Size:
    return lambda s: start + s.step * per_step


def fills(most: float, start: float = 300 * MIB, until: int = 90) -> Size:
    """What a warm-up of some steps takes, and no more."""
    return lambda s: start + most * min(s.step, until) / until


def test_live_memory_that_grows_without_a_name_is_a_leak() -> None:
    report = report_of(allocated=climbs(MIB), reserved=climbs(MIB, 320 * MIB))
    found = finding(report, "device_leak")
    assert (found.severity, found.device) == (Severity.WARNING, DEVICE)
    assert found.bytes_per_unit == pytest.approx(40 * MIB, rel=0.01)
    assert found.share == pytest.approx(1.0)
    assert report.verdict is RunVerdict.LEAK


def test_live_memory_that_a_name_explains_is_the_culprits() -> None:
    program = Program(epochs=12).leak("Trainer.feats", 500 * KIB, device=DEVICE)
    report = analyse(device(program, allocated=climbs(500 * KIB)).build())
    assert [c.name for c in report.culprits] == ["Trainer.feats"]
    assert report.findings == []


def test_a_bounded_buffer_that_fills_through_the_run_explains_what_it_takes() -> None:
    buffer = Thing(
        "Agent.replay", climbs(MIB, 0), "deque", "collections.deque", device=DEVICE,
        length=lambda s: s.step, capacity=10_000,
    )  # fmt: skip
    report = analyse(device(Program(epochs=12).plant(buffer), allocated=climbs(MIB)).build())
    assert "device_leak" not in kinds(report)


def test_tensors_in_cycles_are_the_collectors() -> None:
    cycles = Thing(
        "<garbage>\u00b7torch.Tensor", climbs(MIB, 0), "tensor", "torch.Tensor",
        root=RootKind.GARBAGE, user=False, device=DEVICE,
    )  # fmt: skip
    program = Program(epochs=12, full_every=1).plant(cycles)
    found = finding(analyse(device(program, allocated=climbs(MIB)).build()), "device_leak")
    assert "awaited the collector" in found.text
    assert "circles" in found.remedy.title


@pytest.mark.parametrize(
    "allocated",
    [
        pytest.param(lambda s: (300 if s.step < 1 else 900) * MIB, id="optimizer state"),
        pytest.param(fills(200 * MIB), id="a cache by shape that fills"),
        pytest.param(lambda s: (300 + 40 * (s.epochs_done % 3)) * MIB, id="cycles collected"),
        pytest.param(lambda s: (300 + 8.125 * (s.step > 40)) * MIB, id="cuBLAS workspace"),
    ],
)
def test_live_memory_that_comes_to_rest_is_no_leak(allocated: Size) -> None:
    report = report_of(allocated=allocated, reserved=lambda s: 1024 * MIB)
    assert report.verdict is RunVerdict.CLEAN
    assert report.findings == []


def test_a_cache_that_grows_past_its_tensors_is_a_note_where_blocks_tell_it_from_holes() -> None:
    program = Program(epochs=12).blocks(
        reserved=climbs(MIB, 320 * MIB), cached=climbs(MIB, 20 * MIB), stuck=lambda s: 0
    )
    report = analyse(device(program, reserved=climbs(MIB, 320 * MIB)).build())
    assert finding(report, "device_cache").severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN


def test_a_cache_or_holes_that_grow_untold_apart_are_a_warning() -> None:
    found = finding(report_of(reserved=climbs(MIB, 320 * MIB)), "device_cache")
    assert found.severity is Severity.WARNING
    assert "or in holes" in found.text


def test_a_cache_that_fills_once_is_fine() -> None:
    report = report_of(reserved=fills(200 * MIB, 320 * MIB))
    assert report.verdict is RunVerdict.CLEAN
    assert report.findings == []


def fragmented(stuck: Size, hole: int = 2 * MIB, peak: int = 310 * MIB, **more: Size) -> Report:
    def reserved(state: State) -> float:
        return 320 * MIB + (stuck(state) or 0)

    sums: dict[str, Size] = {
        "largest_hole": lambda s: hole,
        "largest_live": lambda s: 64 * MIB,
        "stuck": stuck,
        "reserved": reserved,
    }
    program = device(Program(epochs=12), reserved=reserved, peak_allocated=lambda s: peak, **more)
    return analyse(program.blocks(**sums).build())


def test_holes_that_grow_and_serve_nothing_are_fragmentation() -> None:
    report = fragmented(climbs(MIB, 0))
    found = finding(report, "fragmentation")
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(40 * MIB, rel=0.01)
    assert "expandable_segments" in found.remedy.text
    assert "device_cache" not in kinds(report)


def test_holes_that_grow_and_still_serve_are_a_note() -> None:
    assert finding(fragmented(climbs(MIB, 0), hole=80 * MIB), "fragmentation").severity is (
        Severity.NOTE
    )


def test_holes_that_are_always_there_are_a_note() -> None:
    found = finding(fragmented(lambda s: 400 * MIB), "fragmentation")
    assert (found.severity, found.growth) == (Severity.NOTE, "constant")


def test_holes_that_each_step_fills_are_the_price_of_its_peak() -> None:
    assert "fragmentation" not in kinds(fragmented(lambda s: 400 * MIB, peak=700 * MIB))


def test_free_pages_of_expandable_segments_are_cache_rather_than_holes() -> None:
    program = Program(epochs=12).blocks(
        reserved=climbs(MIB, 320 * MIB), stuck=climbs(MIB, 0), releasable=climbs(MIB, 0)
    )
    report = analyse(device(program, reserved=climbs(MIB, 320 * MIB)).build())
    assert kinds(report) == {"device_cache"}


def test_holes_between_what_leaks_are_the_leaks() -> None:
    report = fragmented(climbs(MIB / 4, 0), allocated=climbs(MIB))
    assert "fragmentation" not in kinds(report)
    assert "device_leak" in kinds(report)


def test_private_pools_that_grow_with_each_shape() -> None:
    grown = climbs(MIB, 0)
    report = report_of(private_pools=grown, reserved=climbs(MIB, 320 * MIB))
    assert finding(report, "private_pools").severity is Severity.WARNING
    assert kinds(report) == {"private_pools"}


def test_private_pools_are_reported_by_block_lists_where_torch_counts_none() -> None:
    program = Program(epochs=12).blocks(private=climbs(MIB, 0), private_pools=lambda s: s.step)
    report = analyse(device(program, reserved=climbs(MIB, 320 * MIB)).build())
    assert kinds(report) == {"private_pools"}
    assert "grew by 440 MiB" in finding(report, "private_pools").text


@pytest.mark.parametrize("pools", [lambda s: 500 * MIB, fills(500 * MIB, 0)])
def test_private_pools_that_stay_are_fine(pools: Size) -> None:
    report = report_of(private_pools=pools, reserved=lambda s: 900 * MIB)
    assert report.findings == []


def test_much_pending_memory_is_a_note_and_a_warning_where_it_grows() -> None:
    level = report_of(active=lambda s: 500 * MIB, reserved=lambda s: 600 * MIB)
    assert finding(level, "pending_free").severity is Severity.NOTE
    grown = report_of(active=climbs(MIB), reserved=climbs(MIB, 400 * MIB))
    assert finding(grown, "pending_free").severity is Severity.WARNING


def test_memory_pending_within_a_step_alone_is_fine() -> None:
    assert report_of(active=lambda s: (500 if s.inner else 300) * MIB).findings == []


def test_memory_outside_the_allocator_that_grows_is_a_note() -> None:
    report = report_of(used=climbs(MIB, 900 * MIB))
    assert finding(report, "outside_allocator").severity is Severity.NOTE
    ledger = next(x for x in report.ledgers if x.metric == f"{DEVICE}.used")
    assert {e.kind for e in ledger.entries if e.bytes} == {"outside"}
    assert sum(e.bytes for e in ledger.entries) == ledger.total_bytes


OWNERS: dict[str, Size] = {
    "used": lambda s: 1500 * MIB,
    "used_by_process": lambda s: 700 * MIB,
    "used_by_children": lambda s: 0,
    "used_by_others": lambda s: 400 * MIB,
}


def test_memory_of_this_process_outside_the_allocator_is_a_warning_with_its_cure() -> None:
    program = device(Program(epochs=12), **{
        **OWNERS, "used": climbs(MIB, 1500 * MIB), "used_by_process": climbs(MIB, 700 * MIB),
    })  # fmt: skip
    program.gauge("registry process-groups", lambda s: 1 + s.step // 40)
    report = analyse(program.build())
    found = finding(report, "outside_allocator")
    assert found.severity is Severity.WARNING
    assert found.title == f"This process's memory outside torch's allocator grows on {DEVICE}"
    assert "are of this process (" in found.text
    assert "400 MiB are of other processes (0 B more than before)" in found.text
    assert "process groups came and were not ended" in found.text
    assert "destroy_process_group" in found.remedy.text
    assert [f.kind for f in report.findings].count("outside_allocator") == 1
    ledger = next(x for x in report.ledgers if x.metric == f"{DEVICE}.used")
    sizes = {e.label: e.bytes for e in ledger.entries if e.bytes}
    assert [*sizes] == ["outside torch's allocator: this process"]
    assert sum(sizes.values()) == ledger.total_bytes


def test_memory_of_other_processes_is_a_note_that_says_whose_it_is() -> None:
    report = report_of(**{
        **OWNERS, "used": climbs(MIB, 1500 * MIB), "used_by_others": climbs(MIB, 400 * MIB),
    })  # fmt: skip
    found = finding(report, "outside_allocator")
    assert found.severity is Severity.NOTE
    assert found.remedy.title == "Look at the other processes of the device"
    assert report.verdict is RunVerdict.CLEAN
    ledger = next(x for x in report.ledgers if x.metric == f"{DEVICE}.used")
    assert [e.label for e in ledger.entries if e.bytes] == [
        "outside torch's allocator: other processes"
    ]


def test_contexts_and_handles_that_are_made_once_are_fine() -> None:
    own = fills(500 * MIB, 400 * MIB)
    used = fills(500 * MIB, 1200 * MIB)
    report = report_of(**{**OWNERS, "used": used, "used_by_process": own})
    assert (report.verdict, report.findings) == (RunVerdict.CLEAN, [])


def test_memory_beyond_the_allocator_is_reported_by_new_shapes_where_it_comes_with_them() -> None:
    own = OWNERS | {"used_by_process": lambda s: 700 * MIB + 30 * MIB * (s.step // 13)}
    program = device(Program(epochs=12), **own)
    program.gauge("shapes", lambda s: 4 + s.step // 13)
    program.event("log", lambda s: s.step)
    found = finding(analyse(program.build()), "outside_allocator")
    assert "per new shape" in found.text, found.text


def test_the_rates_of_what_has_no_name_are_reported_without_a_share() -> None:
    report = report_of(used=climbs(MIB, 900 * MIB), reserved=lambda s: 320 * MIB)
    growth = {g.metric: g for g in report.growth}
    outside = growth[f"{DEVICE}.outside"]
    assert outside.bytes_per_unit == pytest.approx(40 * MIB, rel=0.01)
    assert outside.explained_share is None


def test_memory_that_nccl_takes_once_is_fine() -> None:
    assert report_of(used=lambda s: (900 + 2000 * (s.step > 60)) * MIB).findings == []


def test_pinned_memory_that_grows() -> None:
    program = Program(epochs=12).gauge("pinned_host", climbs(MIB, 0)).swell(climbs(MIB, 0))
    report = analyse(program.build())
    found = finding(report, "pinned_host")
    assert (found.severity, found.device) == (Severity.WARNING, "host")
    assert "unexplained" not in kinds(report)


def test_pinned_memory_of_a_loader_is_fine() -> None:
    program = Program(epochs=12).gauge("pinned_host", fills(400 * MIB, 0))
    assert analyse(program.swell(fills(400 * MIB, 0)).build()).findings == []


def test_retries_are_a_note_that_says_where() -> None:
    report = report_of(alloc_retries=lambda s: s.validation_batches, ooms=lambda s: s.step > 50)
    found = finding(report, "allocation_retries")
    assert (found.severity, report.verdict) == (Severity.NOTE, RunVerdict.CLEAN)
    assert "120 times" in found.text
    assert "in validation" in found.text
    assert "1 out-of-memory error" in found.text


def test_an_allocator_that_never_ran_short_is_not_mentioned() -> None:
    assert report_of(alloc_retries=lambda s: 0, ooms=lambda s: 0).findings == []


def test_scalars_that_pile_up_are_a_note() -> None:
    report = report_of(
        blocks=lambda s: 900 + 4 * s.step,
        allocated=climbs(4 * 512),
        requested=climbs(4 * 4),
    )
    assert kinds(report) == {"tiny_blocks"}
    assert finding(report, "tiny_blocks").severity is Severity.NOTE


def test_blocks_that_come_with_the_optimizer_are_fine() -> None:
    report = report_of(blocks=lambda s: 900 if s.step < 1 else 2700)
    assert report.findings == []


def test_activations_in_many_blocks_are_not_tiny() -> None:
    program = Program(epochs=12).plant(Thing("m", lambda s: MIB, "tensor", device=DEVICE))
    gauges: dict[str, Size] = {
        "blocks": lambda s: 900 + 4 * s.step,
        "allocated": climbs(MIB),
        "requested": climbs(MIB),
    }
    assert "tiny_blocks" not in kinds(analyse(device(program, **gauges).build()))


def test_a_run_without_a_device_has_no_findings_of_one() -> None:
    assert analyse(Program(epochs=12).build()).findings == []
