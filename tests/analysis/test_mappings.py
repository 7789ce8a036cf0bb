"""The growth of host memory by kind of mapping, and what is reported on it."""

from __future__ import annotations

import pytest
from synthetic_runs import MIB, Program, State

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.report import Finding, MappingTerm, Report, RunVerdict
from leakscope.model.run import Run
from leakscope.model.trend import TrendVerdict

FILE = gauge.mapped_file("data.arrow")


def growing(state: State) -> float:
    return state.step * MIB


def program() -> Program:
    return Program(epochs=14).swell(growing)


def term(report: Report, kind: str) -> MappingTerm:
    return next(term for term in report.mappings if term.kind == kind)


def finding(report: Report, kind: str = "unexplained") -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def test_each_kind_is_judged_by_itself() -> None:
    run = program()
    run.gauge(gauge.MAPPED_ARENAS, growing).gauge(gauge.MAPPED_HEAP, lambda _: 90 * MIB)
    report = analyse(run.build())
    assert term(report, gauge.MAPPED_ARENAS).verdict is TrendVerdict.GROWING
    assert term(report, gauge.MAPPED_ARENAS).bytes_per_unit > 0
    assert term(report, gauge.MAPPED_HEAP).verdict is TrendVerdict.BOUNDED
    assert report.mappings[0].kind == gauge.MAPPED_ARENAS


def test_what_kinds_gained_is_that_of_the_stretch_of_the_ledger_and_no_term_of_it() -> None:
    report = analyse(program().gauge(gauge.MAPPED_ARENAS, growing).build())
    ledger = report.ledgers[0]
    assert term(report, gauge.MAPPED_ARENAS).bytes == pytest.approx(ledger.total_bytes, rel=0.05)
    assert sum(entry.bytes for entry in ledger.entries) == ledger.total_bytes
    assert not any("arena" in entry.label for entry in ledger.entries)


def test_growth_without_a_name_says_in_which_mappings_it_lies() -> None:
    run = program().gauge(gauge.MAPPED_HEAP, lambda _: 90 * MIB)
    run.gauge(gauge.MAPPED_ARENAS, growing)
    text = finding(analyse(run.build())).text
    assert "MiB in thread arenas of glibc." in text
    assert "main heap" not in text


def test_of_several_kinds_the_largest_comes_first() -> None:
    run = program().gauge(gauge.MAPPED_HEAP, lambda s: s.step * MIB * 0.4)
    run.gauge(gauge.MAPPED_ANONYMOUS, lambda s: s.step * MIB * 0.6)
    text = finding(analyse(run.build())).text
    assert text.index("anonymous mappings") < text.index("the main heap")


def test_what_leakscope_holds_is_no_growth_of_a_kind() -> None:
    run = Program(epochs=14).gauge(gauge.MAPPED_ANONYMOUS, lambda s: 50 * MIB + growing(s))
    run.gauge(gauge.OWN, growing)
    term_of_it = term(analyse(run.build()), gauge.MAPPED_ANONYMOUS)
    assert term_of_it.verdict is not TrendVerdict.GROWING


def with_file(size: Program) -> Report:
    return analyse(size.gauge(gauge.MAPPED_FILES, lambda s: 90 * MIB + growing(s)).build())


def test_a_file_that_is_read_is_reported_as_no_leak() -> None:
    report = with_file(Program(epochs=14).gauge(FILE, growing).gauge(gauge.MAPPED, growing))
    cleared = next(c for c in report.cleared if c.name == "data.arrow")
    assert "page cache" in cleared.reason
    assert report.verdict is RunVerdict.CLEAN
    assert term(report, gauge.MAPPED_FILE).file == "data.arrow"


def test_a_file_that_was_read_before_the_work_is_not_worth_a_word() -> None:
    run = Program(epochs=14).gauge(gauge.MAPPED_FILES, lambda _: 90 * MIB)
    report = analyse(run.gauge(FILE, lambda _: 80 * MIB).build())
    assert not [c for c in report.cleared if c.name == "data.arrow"]


def test_shared_memory_that_stays_mapped_without_a_name_is_a_leak() -> None:
    report = analyse(Program(epochs=14).gauge(gauge.MAPPED_SHARED, growing).build())
    assert report.verdict is RunVerdict.LEAK
    assert finding(report, "shared_memory").title == "Shared memory stays mapped"


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(lambda s: min(s.step, 60) * MIB, id="filled"),
        pytest.param(lambda s: (s.step % 40) * MIB, id="released"),
        pytest.param(lambda s: s.step * MIB / 100, id="little"),
    ],
)
def test_shared_memory_that_does_not_go_on_is_none(size) -> None:
    report = analyse(Program(epochs=14).gauge(gauge.MAPPED_SHARED, size).build())
    assert not [f for f in report.findings if f.kind == "shared_memory"]


def test_segments_that_pile_up_as_files_are_reported_once() -> None:
    run = Program(epochs=14).gauge(gauge.MAPPED_SHARED, growing)
    run.gauge(gauge.SHM_FILES, growing).gauge(gauge.CHILDREN, lambda _: 2)
    found = [f.title for f in analyse(run.build()).findings if f.kind == "shared_memory"]
    assert found == ["Files in shared memory pile up"]


def test_page_locked_memory_that_a_driver_maps_so_is_reported_once() -> None:
    run = Program(epochs=14).gauge(gauge.MAPPED_SHARED, growing)
    found = analyse(run.gauge(gauge.PINNED_HOST, growing).build()).findings
    assert not [f for f in found if f.kind == "shared_memory"]
    assert [f for f in found if f.kind == "pinned_host"]


def slack_report(allocator: str, platform: str = "Linux 6.1 x86_64") -> Report:
    run = Program(epochs=14).swell(growing)
    run.gauge(gauge.MALLOC_FREE, growing).gauge(gauge.MALLOC_IN_USE, growing)
    run.gauge(gauge.MAPPED_ARENAS, growing)
    built: Run = run.build()
    built.manifest.environment.update(
        allocator=allocator, platform=platform, torch="2.13.0", libc="glibc 2.36"
    )
    return analyse(built)


@pytest.mark.parametrize(
    ("allocator", "cure"),
    [
        ("glibc", "MALLOC_ARENA_MAX"),
        ("", "malloc_trim"),
        ("jemalloc", "background_thread"),
        ("tcmalloc", "TCMALLOC_RELEASE_RATE"),
        ("mimalloc", "MIMALLOC_PURGE_DELAY"),
    ],
)
def test_the_cure_of_slack_is_that_of_the_allocator(allocator: str, cure: str) -> None:
    found = finding(slack_report(allocator), "allocator_slack")
    assert found.remedy is not None
    assert cure in found.remedy.text
    assert (allocator or "glibc") in found.text
    cures = {"MALLOC_ARENA_MAX", "background_thread", "TCMALLOC_RELEASE", "MIMALLOC_PURGE"}
    assert len([each for each in cures if each in found.remedy.text]) == 1


def test_the_allocator_inside_torch_on_arm_has_its_cure_too() -> None:
    arm = finding(slack_report("glibc", "Linux 6.1 aarch64"), "allocator_slack")
    assert arm.remedy is not None
    assert "MIMALLOC_PURGE_DELAY" in arm.remedy.text


def test_arenas_of_threads_are_reported_where_they_hold_what_is_free() -> None:
    assert "Arenas that threads have" in finding(slack_report("glibc"), "allocator_slack").text
    assert "Arenas that threads" not in finding(slack_report("jemalloc"), "allocator_slack").text
